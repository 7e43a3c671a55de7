"""The binary constituency Tree-LSTM, a level of all trees of a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from focalcal_lab.data.sentiment_trees import TreeBatch
from focalcal_lab.models.gp_cnn import make_embedding


@final
class TreeLSTM(nn.Module):
    r"""A Tree-LSTM whose inner nodes have two children each and whose leaves are words.

    An inner node with the children l and r has, for $[h_l, h_r]$ in one matrix product,

    $$ i, f_l, f_r, u, o = \sigma, \sigma, \sigma, \tanh, \sigma \; (U [h_l, h_r] + b) $$
    $$ c = i \odot u + f_l \odot c_l + f_r \odot c_r, \quad h = o \odot \tanh c $$

    and a leaf with the word vector x has $c = W x + b$ and $h = \sigma(W_o x + b_o) \odot \tanh c$. Without
    `output_gate`, an inner node has $h = \tanh c$.

    Source: [tai2015, Eq. 9-14 with N = 2, no input at inner nodes]; leaves as in its code, which does not gate their
    cells. Differs: one bias a gate, as in the equations, where the code adds one for each child.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        hidden: int,
        node_classes: int,
        root_classes: Sequence[int],
        dropout: float,
        output_gate: bool,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.hidden, self.output_gate = hidden, output_gate
        self.leaf = nn.Linear(embedding.embedding_dim, 2 * hidden)
        self.compose = nn.Linear(2 * hidden, (5 if output_gate else 4) * hidden)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, node_classes)
        self.register_buffer("root_classes", torch.tensor(list(root_classes)), persistent=False)
        self.root_classes: Tensor

    def forward(self, trees: TreeBatch) -> Tensor:
        """Logits of every node (num_nodes, node_classes) in the batch's order, or of the roots (N, K)."""
        levels = self.states(trees)
        states = torch.cat(levels) if trees.all_nodes else levels[0]
        logits: Tensor = self.head(self.dropout(states))
        return logits if trees.all_nodes else logits[:, self.root_classes]

    def states(self, trees: TreeBatch) -> list[Tensor]:
        """The hidden states of each level's nodes, from the roots down."""
        cells, gates = self.leaf(self.embedding(trees.words)).chunk(2, dim=1)
        leaf_states = torch.cat([cells, torch.sigmoid(gates) * torch.tanh(cells)], dim=1)
        leaves = leaf_states.split([num_leaves for _, num_leaves in trees.levels])
        orders = trees.order.split([sum(level) for level in trees.levels])
        found: list[Tensor] = []
        below = leaf_states[:0]
        for (num_inner, _), leaf_state, order in reversed(list(zip(trees.levels, leaves, orders, strict=True))):
            if num_inner:
                # Both children of a node lie side by side, each as [c, h].
                leaf_state = torch.cat([self._compose(below.view(num_inner, 2, 2, -1)), leaf_state])
            below = leaf_state[order]
            found.append(below[:, self.hidden :])
        return found[::-1]

    def _compose(self, children: Tensor) -> Tensor:
        """The states [c, h] of inner nodes from those of their children (nodes, child, [c, h], hidden)."""
        gates = self.compose(children[:, :, 1].flatten(1)).view(len(children), -1, self.hidden)
        sigmoids = torch.sigmoid(gates[:, 1:])
        # The update comes first, so that one sigmoid serves all the others: input, left and right forget, output.
        kept = (sigmoids[:, 1:3] * children[:, :, 0]).sum(1)
        cell = torch.tanh(gates[:, 0]) * sigmoids[:, 0] + kept
        state = torch.tanh(cell)
        return torch.cat([cell, sigmoids[:, 3] * state if self.output_gate else state], dim=1)


def tree_lstm(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    hidden: int = 150,
    dimension: int = 300,
    tune: bool = True,
    dropout: float = 0.5,
    output_gate: bool = True,
) -> TreeLSTM:
    """The binary constituency Tree-LSTM of mukhoti2020, for SST.

    With the fact `node_classes` it has that many outputs and gives only the columns `root_classes` for roots. Word
    vectors are tuned. mukhoti2020's released code has no output gate at inner nodes (`output_gate: false`).

    Source: [tai2015, Sec. 5.1; mukhoti2020, App. D].

    >>> network = tree_lstm(2, {"vocabulary": 50, "node_classes": 3, "root_classes": (0, 2)})
    >>> sum(parameter.numel() for name, parameter in network.named_parameters() if "embedding" not in name)
    316503
    """
    return TreeLSTM(
        make_embedding(facts, dimension, tune=tune),
        hidden=hidden,
        node_classes=facts.get("node_classes", num_classes),
        root_classes=facts.get("root_classes", range(num_classes)),
        dropout=dropout,
        output_gate=output_gate,
    )
