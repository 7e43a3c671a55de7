"""Labelled binary trees: the Penn Treebank's brackets, and batches of trees for a network that goes up by depth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.errors import FileFormatError
from focalcal_lab.data.tokens import Ints, Ragged

# A no-break space is part of a word: the treebank has "2 1\/2" as one.
_PIECE = re.compile(r"[()]|[^ \t\r\n()]+")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


@dataclass(frozen=True)
class Tree:
    """A binary tree, its nodes from the root down and from left to right in each depth.

    The children of the i-th inner node are the (2i)-th and (2i + 1)-th node after the root. `words` has an empty string
    for inner nodes.
    """

    labels: tuple[int, ...]
    words: tuple[str, ...]
    depths: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass
class _Node:
    label: int
    word: str = ""
    children: list[_Node] | None = None


def parse_tree(line: str, place: str = "tree") -> Tree:
    r"""A tree from brackets: `(3 (2 It) (4 works))`.

    A chain of nodes with one child each is one node, with the label of the topmost: all of them span the same words.
    `place` begins the message of an error.

    >>> tree = parse_tree("(3 (2 It) (4 (4 works) (2 .)))")
    >>> tree.labels, tree.words, tree.depths
    ((3, 2, 4, 4, 2), ('', 'It', '', 'works', '.'), (0, 1, 1, 2, 2))
    >>> parse_tree("(3 (3 (2 It)))").words
    ('It',)
    >>> parse_tree("(3 (2 It) (4 works)", "train.txt, line 7")
    Traceback (most recent call last):
    focalcal.errors.FileFormatError: train.txt, line 7: a bracket is not closed.
    """
    return _by_depth(_read_nodes(line, place))


def read_trees(lines: Iterable[str], name: str) -> list[Tree]:
    """The trees of a file with one tree per line; empty lines are skipped."""
    return [parse_tree(line, f"{name}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]


def _read_nodes(line: str, place: str) -> _Node:
    """The nodes as brackets nest them; with a stack, since a tree may be deeper than Python's recursion."""
    pieces = _PIECE.findall(line)
    above: list[_Node] = []
    root, position = None, 0
    while position < len(pieces):
        piece = pieces[position]
        _need(root is None, place, f"there is {piece!r} after the end of the tree")
        if piece == "(":
            label = pieces[position + 1] if position + 1 < len(pieces) else ""
            _need(label.isdecimal(), place, f"a bracket must begin with a class number, not {label!r}")
            node = _Node(int(label))
            if above:
                _add_child(above[-1], node, place)
            above.append(node)
            position += 2
            continue
        _need(bool(above), place, f"{piece!r} is outside of every bracket")
        if piece == ")":
            node = above.pop()
            _need(bool(node.word) or bool(node.children), place, "a bracket has neither a word nor brackets in it")
            root = root if above else node
        else:
            _need(not above[-1].word and not above[-1].children, place, f"{piece!r} must be alone in its bracket")
            above[-1].word = _BRACKETS.get(piece, piece.replace("\\/", "/").replace("\\*", "*"))
        position += 1
    _need(not above, place, "a bracket is not closed")
    if root is None:
        raise FileFormatError(f"{place}: there is no tree.")
    return root


def _add_child(parent: _Node, child: _Node, place: str) -> None:
    _need(not parent.word, place, "a bracket has both a word and brackets in it")
    parent.children = [*(parent.children or []), child]
    _need(len(parent.children) <= 2, place, "a node has more than two children; trees must be binary")


def _by_depth(root: _Node) -> Tree:
    labels, words, depths = [], [], []
    level, depth = [root], 0
    while level:
        below: list[_Node] = []
        for node in level:
            labels.append(node.label)
            depths.append(depth)
            while node.children and len(node.children) == 1:
                node = node.children[0]
            words.append(node.word)
            below += node.children or []
        level, depth = below, depth + 1
    return Tree(tuple(labels), tuple(words), tuple(depths))


def _need(condition: bool, place: str, problem: str) -> None:
    if not condition:
        raise FileFormatError(f"{place}: {problem}.")


@dataclass(frozen=True)
class TreeBatch:
    """Trees of a batch, as a network needs them that goes from the deepest level up to the roots.

    The rows of a level are ordered as their parents are, so rows 2j and 2j + 1 are the children of the j-th inner node
    one level higher, and no other index is needed. `levels` has the numbers of inner nodes and of leaves, from the
    roots down. `order` (num_nodes,) says for each row of a level where it lies in [its inner nodes, its leaves], and
    `words` (num_leaves,) are the leaves' word numbers, both level after level. The roots are the first rows.

    With `all_nodes` a network gives the logits of all nodes, in this order: that is training. Without, those of the
    roots alone.
    """

    words: Tensor
    order: Tensor
    levels: tuple[tuple[int, int], ...]
    all_nodes: bool

    def __len__(self) -> int:
        return sum(self.levels[0])

    @property
    def num_nodes(self) -> int:
        """How many nodes all trees have together."""
        return len(self.order)

    def to(self, device: Any, non_blocking: bool = False) -> TreeBatch:
        """The same on a device."""
        words = self.words.to(device, non_blocking=non_blocking)
        return TreeBatch(words, self.order.to(device, non_blocking=non_blocking), self.levels, self.all_nodes)

    def pin_memory(self) -> TreeBatch:
        """The same in pinned memory, as torch's loader asks for."""
        return TreeBatch(self.words.pin_memory(), self.order.pin_memory(), self.levels, self.all_nodes)


class Forest:
    """Many trees, prepared once: each tree's nodes by depth, so that a batch is a gather and one stable sort.

    >>> trees = [parse_tree("(1 (0 a) (1 b))"), parse_tree("(2 c)")]
    >>> batch, labels = Forest(trees, [[0, 5, 6], [7]]).batch([0, 1], all_nodes=True)
    >>> batch.levels, batch.words.tolist(), batch.order.tolist(), labels.tolist()
    (((1, 1), (0, 2)), [7, 5, 6], [0, 1, 0, 1], [1, 2, 0, 1])
    """

    def __init__(self, trees: Sequence[Tree], words: Sequence[Sequence[int]]) -> None:
        self.words = Ragged.of(words)
        self.labels = np.concatenate([np.asarray(tree.labels, dtype=np.int64) for tree in trees])
        self.depths = np.concatenate([np.asarray(tree.depths, dtype=np.int64) for tree in trees])
        self.is_leaf = np.concatenate([np.array([word != "" for word in tree.words]) for tree in trees])

    def __len__(self) -> int:
        return len(self.words)

    @property
    def root_labels(self) -> Ints:
        """The label of each tree's root."""
        return self.labels[self.words.starts[:-1]]

    def batch(self, indices: Sequence[int], *, all_nodes: bool) -> tuple[TreeBatch, Tensor]:
        """Some trees, and the label of each node if `all_nodes`, else of each root."""
        places, _ = self.words.places(np.asarray(indices, dtype=np.int64))
        # Stable, so that a level holds the trees in their order and each tree's nodes in theirs.
        places = places[np.argsort(self.depths[places], kind="stable")]
        leaf, sizes = self.is_leaf[places], np.bincount(self.depths[places])
        ends = np.cumsum(sizes)
        order = _order_in_levels(leaf, ends - sizes, sizes)
        leaves = np.add.reduceat(leaf.astype(np.int64), ends - sizes)
        levels = tuple(zip((sizes - leaves).tolist(), leaves.tolist(), strict=True))
        words = torch.from_numpy(self.words.values[places[leaf]]).long()
        labels = torch.from_numpy(self.labels[places if all_nodes else places[: sizes[0]]])
        return TreeBatch(words, torch.from_numpy(order), levels, all_nodes), labels


def _order_in_levels(leaf: Ints, starts: Ints, sizes: Ints) -> Ints:
    """For each node, its place in [inner nodes of its level, leaves of its level]."""
    leaves_before = np.cumsum(leaf) - leaf
    inner_before = np.arange(len(leaf)) - leaves_before
    inner = np.repeat(inner_before[starts], sizes)
    num_inner = np.repeat(np.add.reduceat((~leaf).astype(np.int64), starts), sizes)
    rank_of_leaf = leaves_before - np.repeat(leaves_before[starts], sizes)
    order: Ints = np.where(leaf, num_inner + rank_of_leaf, inner_before - inner)
    return order
