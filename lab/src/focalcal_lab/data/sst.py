"""The Stanford Sentiment Treebank with binary labels: all nodes in training, the root in validation and test."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.dataset import DataSplits
from focalcal_lab.data.sentiment_trees import Forest, Tree, TreeBatch, read_trees
from focalcal_lab.data.tokens import PADDING, SPECIAL, UNKNOWN
from focalcal_lab.data.word_vectors import Missing, find_vectors, read_vectors, words_with_vectors

# The treebank's five labels as negative, neutral and positive.
SENTIMENT = np.array([0, 0, 1, 2, 2])
NEGATIVE, NEUTRAL, POSITIVE = 0, 1, 2
HUB = "stanfordnlp/sst"
_SPLITS = {"train": ("train",), "val": ("dev", "val", "valid", "validation"), "test": ("test",)}


class TreeRows(Dataset[Any]):
    """Trees as batches: with `all_nodes` one label out of three for every node, else 0 or 1 for the root."""

    def __init__(self, trees: Sequence[Tree], numbers: dict[str, int], *, all_nodes: bool) -> None:
        words = [[PADDING if not word else numbers.get(word, UNKNOWN) for word in tree.words] for tree in trees]
        self.forest, self.all_nodes = Forest(trees, words), all_nodes
        self.forest.labels = SENTIMENT[self.forest.labels]

    def __len__(self) -> int:
        return len(self.forest)

    def __getitems__(self, indices: Sequence[int]) -> tuple[TreeBatch, Tensor]:
        """The trees of `indices` as one batch."""
        batch, labels = self.forest.batch(indices, all_nodes=self.all_nodes)
        return batch, labels if self.all_nodes else (labels == POSITIVE).long()


def sst_binary(
    folder: Path | None,
    *,
    seed: int,
    lower: bool = False,
    min_count: int | None = None,
    vectors: str | None = None,
    missing: Missing = "random",
) -> DataSplits:
    """The treebank without the sentences that are neutral as a whole: 6,920/872/1,821 of them, split as published.

    In training every node is labelled negative, neutral or positive, and a network has three outputs (the fact
    `node_classes`). Validation and test ask for the root alone, which is never neutral: there the network gives the
    columns negative and positive (the fact `root_classes`) and the labels are 0 and 1. Tai et al.'s code decides so as
    well. Differs from mukhoti2020's code in the confidence, which there still has the neutral class in the softmax.

    The vocabulary is that of the training trees, with words seen fewer than `min_count` times unknown: 2 by default, so
    that there is an unknown word to learn. With `vectors` it is 1, and words of the other splits that have a vector
    belong to it too.

    Source: [mukhoti2020, App. D].
    """
    splits = {name: _decided(trees) for name, trees in _read_splits(folder).items()}
    if lower:
        splits = {name: [_lower(tree) for tree in trees] for name, trees in splits.items()}
    words = _count_words(splits["train"], min_count or (2 if vectors is None else 1))
    matrix = None
    if vectors is not None:
        file = find_vectors(vectors, folder)
        others = sorted(set(_words(splits["val"] + splits["test"])) - set(words))
        known = words_with_vectors(file, others)
        words += [word for word in others if word in known]
        matrix = read_vectors(file, (*SPECIAL, *words), seed=seed, missing=missing)
    numbers = {word: number for number, word in enumerate(words, start=len(SPECIAL))}
    rows = {name: TreeRows(trees, numbers, all_nodes=name == "train") for name, trees in splits.items()}
    sizes = "/".join(str(len(split)) for split in rows.values())
    return DataSplits(
        "sst-binary",
        rows["train"],
        rows["val"],
        rows["test"],
        num_classes=2,
        class_names=("negative", "positive"),
        one_row_a_sample=False,
        facts={
            "vocabulary": len(SPECIAL) + len(words),
            "vectors": matrix,
            "node_classes": 3,
            "root_classes": (NEGATIVE, POSITIVE),
        },
        about=f"{folder.name if folder else HUB}; split {sizes} as published, neutral sentences left out",
    )


def _read_splits(folder: Path | None) -> dict[str, list[Tree]]:
    if folder is None:
        return {name: read_trees(lines, f"{HUB} {name}") for name, lines in _from_hub(HUB).items()}
    if not folder.is_dir():
        raise InputError(f"data: must be a folder with the trees of SST; got {folder}, which is not one.")
    return {name: _read_file(_find_file(folder, name)) for name in _SPLITS}


def _find_file(folder: Path, split: str) -> Path:
    """The file of a split: train.txt, sst_train.txt.gz, trees/train.txt and the like."""
    places = [place for place in (folder, folder / "trees", folder / "sst") if place.is_dir()]
    names = [f"{start}{name}.txt{end}" for name in _SPLITS[split] for start in ("", "sst_") for end in ("", ".gz")]
    for path in (place / name for place in places for name in names):
        if path.is_file():
            return path
    raise InputError(f"data: must hold the file {names[0]} (or {', '.join(names[1:])}); got {folder}, which has none.")


def _read_file(path: Path) -> list[Tree]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            trees = read_trees(file, str(path))
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise FileFormatError(f"{path}: it cannot be read as text: {error}.") from error
    if not trees:
        raise FileFormatError(f"{path}: it has no trees.")
    for number, tree in enumerate(trees, start=1):
        if max(tree.labels) >= len(SENTIMENT):
            raise FileFormatError(f"{path}: labels must lie in 0..4; tree {number} has {max(tree.labels)}.")
    return trees


def _from_hub(name: str) -> dict[str, Iterable[str]]:
    import datasets

    try:
        # The set is published as a script, which `datasets` no longer runs; the hub keeps a Parquet copy of it.
        found = datasets.load_dataset(name, "ptb", revision="refs/convert/parquet")
        return {
            "train": found["train"]["ptb_tree"],
            "val": found["validation"]["ptb_tree"],
            "test": found["test"]["ptb_tree"],
        }
    except (OSError, ValueError, RuntimeError, KeyError) as error:  # what it raises offline or for another layout
        raise InputError(
            f"data: {name} cannot be had from the Hugging Face hub ({type(error).__name__}). Go online, or give a "
            "folder with train.txt, dev.txt and test.txt."
        ) from error


def _decided(trees: Sequence[Tree]) -> list[Tree]:
    return [tree for tree in trees if SENTIMENT[tree.labels[0]] != NEUTRAL]


def _lower(tree: Tree) -> Tree:
    return Tree(tree.labels, tuple(word.lower() for word in tree.words), tree.depths)


def _words(trees: Sequence[Tree]) -> Iterable[str]:
    return (word for tree in trees for word in tree.words if word)


def _count_words(trees: Sequence[Tree], min_count: int) -> list[str]:
    """The words of some trees, the commonest first and equally common ones by the alphabet."""
    counts = Counter(_words(trees))
    return sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
