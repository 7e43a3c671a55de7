"""The content of a prediction file in memory: scores, labels, weights, split and class names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from focalcal.core.checks import Array, require, require_whole, to_array
from focalcal.core.score_kinds import Kind, plain_kind
from focalcal.errors import InputError


@dataclass(frozen=True)
class Columns:
    """The names of the parts in a file, and how they are read; None stands for what is usual.

    Usual are `logits`, `log_probs` or `probs`, whose name says the `kind`; `labels`; and where they are there,
    `weights`, `split` and `class_names`. Scores of another name need `kind`.

    `scores` is a key or column, what the names of the score columns begin with, or these names themselves with commas
    between them. `classes` are the names of the classes in the order of the scores, for labels that are
    text; `positive` is the one of two classes that binary scores belong to. `class_axis` is the axis of the classes of
    batches with more than two dimensions; by default the shape of the labels says it. Rows whose label is
    `ignore_index` are left out.

    >>> Columns(scores="score_", kind="logits").kind  # score_0, score_1, ... are logits; all else has its usual name
    'logits'
    """

    scores: str | None = None
    labels: str | None = None
    weights: str | None = None
    split: str | None = None
    class_names: str | None = None
    kind: Kind | None = None
    classes: tuple[str, ...] | None = None
    positive: str | None = None
    class_axis: int | None = None
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if self.kind is not None:
            object.__setattr__(self, "kind", plain_kind(self.kind))
        if self.classes is not None:
            fine = isinstance(self.classes, Sequence) and not isinstance(self.classes, str)
            fine = fine and all(isinstance(each, str) for each in self.classes)
            require(fine, "classes", "must be a list of names", repr(self.classes))
            object.__setattr__(self, "classes", tuple(self.classes))
        double = self.classes is not None and len(set(self.classes)) < len(self.classes)
        require(not double, "classes", "must differ from one another", ", ".join(self.classes or ()))
        axis = self.class_axis is None or (isinstance(self.class_axis, int) and not isinstance(self.class_axis, bool))
        require(axis, "class_axis", "must be the number of the axis that has the classes", repr(self.class_axis))
        if self.ignore_index is not None:
            require_whole(self.ignore_index, "ignore_index", -(2**63))

    def names_of(self, name: str, there: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The names of the classes: those that the caller gave, or those of the file, with which they must agree."""
        if self.classes is None or there == self.classes:
            return there
        if there is not None and sorted(there) == sorted(self.classes):
            raise InputError(
                f"{name}: its scores are of the classes {', '.join(there)}, in this order. Leave out --classes."
            )
        return self.classes


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """Predictions in memory: scores (N, K), or (N,) of the positive class, and what else the file had.

    `history` holds the record of an AdaFocal run, fields (updates, bins) by the names of `AdaFocalLoss.history`, stored
    in a file as `history_gamma`, `history_count` and so on. `name` says where the rows came from, and `groups` has the
    column that they are grouped by, if that was asked for.

    >>> table = PredictionTable("mine", np.array([[2.0, 0.0], [0.0, 1.0]]), "logits", labels=np.array([0, 1]))
    >>> table.num_rows, table.num_classes
    (2, 2)
    """

    name: str
    scores: Array
    kind: Kind
    labels: Array | None = None
    weights: Array | None = None
    split: Array | None = None
    class_names: tuple[str, ...] | None = None
    groups: Array | None = None
    history: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, column in self._columns().items():
            object.__setattr__(self, name, to_array(column, f"{self.name}: {name}"))

    def _columns(self) -> dict[str, Array]:
        """The arrays that have a value per row."""
        columns = {name: getattr(self, name) for name in ("scores", "labels", "weights", "split", "groups")}
        return {name: column for name, column in columns.items() if column is not None}

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.scores)

    @property
    def num_classes(self) -> int:
        """The number of classes; scores (N,) have two."""
        return 2 if self.scores.ndim == 1 else int(self.scores.shape[1])

    def splits(self) -> dict[str, int]:
        """The names of the splits and their numbers of rows, in order of appearance.

        >>> PredictionTable("t", np.zeros((3, 2)), "logits", split=np.array(["val", "test", "test"])).splits()
        {'val': 1, 'test': 2}
        """
        if self.split is None:
            return {}
        names, first, count = np.unique(self.split, return_index=True, return_counts=True)
        return {str(names[i]): int(count[i]) for i in np.argsort(first)}

    def take(self, rows: Array) -> PredictionTable:
        """Some of the rows: a mask, or their numbers."""
        return self._with_columns(lambda column: column[rows])

    def _with_columns(self, change: Callable[[Array], Array]) -> PredictionTable:
        """The table with every column changed."""
        changed: dict[str, Any] = {name: change(column) for name, column in self._columns().items()}
        return replace(self, **changed)

    def copy(self) -> PredictionTable:
        """The same rows in arrays of their own."""
        return self._with_columns(lambda column: column.copy())

    def of_split(self, name: str) -> PredictionTable:
        """The rows of one split."""
        there = self.splits()
        said = ", ".join(f"{each} ({count:,} rows)" for each, count in there.items()) or "no split column"
        require(name in there, self.name, f"has no rows of split {name!r}", said, "Name one of those, or none.")
        assert self.split is not None
        return self.take(self.split == name)
