"""The global-pooling CNN for documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from focalcal.core.checks import require
from focalcal.errors import InputError
from focalcal_lab.data.tokens import PADDING
from focalcal_lab.data.word_vectors import SCALE

# Rows that are convolved together: smaller groups skip more padding, larger ones fill the machine better.
GROUP = 16


@final
class GlobalPoolingCNN(nn.Module):
    """Three convolutions with ReLU, pooling between them and over the whole document after them, two linear layers.

    Most documents are much shorter than the longest one, so most columns of a batch are padding. Convolving them is no
    work worth doing: rows go through the convolutions in groups of similar length, each without the columns that only
    repeat a window full of padding. The logits are those of the whole batch.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        num_classes: int,
        *,
        filters: int,
        width: int,
        pool: int,
        stride: int,
        hidden: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        sizes = (embedding.embedding_dim, filters, filters)
        self.convolutions = nn.ModuleList(nn.Conv1d(size, filters, width) for size in sizes)
        self.pool, self.stride = pool, stride
        self.hidden = nn.Linear(filters, hidden)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_classes)
        # What one output of the last convolution sees: each layer adds its width - 1, times the strides before it.
        self.receptive_field = 1 + (width - 1) * (1 + stride + stride**2) + (pool - 1) * (1 + stride)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (N, K) of word numbers (N, length)."""
        if tokens.shape[1] < self.receptive_field:
            raise InputError(
                f"tokens: the network needs at least {self.receptive_field} columns; got {tokens.shape[1]}. "
                "Raise max_length of the data, or lower the stride."
            )
        order, groups = self._groups(tokens)
        pooled = torch.cat([self._pool_document(tokens[rows, cut:]) for rows, cut in groups])
        logits: Tensor = self.head(self.dropout(F.relu(self.hidden(pooled[order.argsort()]))))
        return logits

    def _pool_document(self, tokens: Tensor) -> Tensor:
        features: Tensor = self.embedding(tokens).transpose(1, 2)
        for number, convolution in enumerate(self.convolutions):
            if number:
                features = F.max_pool1d(features, self.pool, self.stride)
            features = F.relu(convolution(features))
        return features.amax(dim=2)

    def _groups(self, tokens: Tensor) -> tuple[Tensor, list[tuple[Tensor, int]]]:
        """The rows by length, and in groups: which rows, and how many columns at the left they can do without.

        One window of nothing but padding must stay where there is one, and windows must stay where they are: the last
        convolution moves by the square of the stride.
        """
        width, step = tokens.shape[1], self.stride**2
        filled = tokens != PADDING
        starts = torch.where(filled.any(1), filled.int().argmax(1), width)
        order = starts.argsort(stable=True)
        parts = order.split(GROUP)
        firsts: list[int] = starts[order[::GROUP]].tolist()
        cuts = [max(first - self.receptive_field, 0) // step * step for first in firsts]
        return order, list(zip(parts, cuts, strict=True))


def make_embedding(facts: Mapping[str, Any], dimension: int, *, tune: bool) -> nn.Embedding:
    """The words' vectors: those of the data if it has some, else random ones of some dimension; padding is zero.

    >>> make_embedding({"vocabulary": 5, "vectors": None}, 3, tune=True)
    Embedding(5, 3, padding_idx=0)
    """
    vectors = facts.get("vectors")
    if vectors is None:
        require("vocabulary" in facts, "facts", "must say how large the vocabulary is", sorted(facts), "Use text data.")
        # Small, as Keras draws them: torch's unit normals drown what some epochs teach them.
        vectors = torch.empty(facts["vocabulary"], dimension).uniform_(-SCALE, SCALE)
        vectors[PADDING] = 0
    embedding: nn.Embedding = nn.Embedding.from_pretrained(vectors.clone(), freeze=not tune, padding_idx=PADDING)
    return embedding


def gp_cnn(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    dimension: int = 100,
    tune: bool | None = None,
    filters: int = 128,
    width: int = 5,
    pool: int = 5,
    stride: int = 1,
    hidden: int = 128,
    dropout: float = 0.3,
) -> GlobalPoolingCNN:
    """The global-pooling CNN of mukhoti2020, for 20 Newsgroups.

    The defaults are those of its released code, an adaptation of Keras' example of pretrained word vectors: three
    convolutions of 128 filters over 5 words, max pooling over 5 between them that moves by 1 (Keras' example: 5, which
    is several times faster), max pooling over the document, 128 hidden units, dropout 0.3. Vectors from a file stay as
    they are unless `tune` says else; without a file they are learned.

    Source: [mukhoti2020, App. D].

    >>> network = gp_cnn(20, {"vocabulary": 20_000})
    >>> sum(parameter.numel() for name, parameter in network.named_parameters() if "embedding" not in name)
    247316
    >>> network(torch.zeros(2, 30, dtype=torch.long)).shape
    torch.Size([2, 20])
    """
    learned = facts.get("vectors") is None if tune is None else tune
    embedding = make_embedding(facts, dimension, tune=learned)
    return GlobalPoolingCNN(
        embedding,
        num_classes,
        filters=filters,
        width=width,
        pool=pool,
        stride=stride,
        hidden=hidden,
        dropout=dropout,
    )
