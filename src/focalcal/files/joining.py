"""Joining the tables of one set of predictions, after checking that they belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from focalcal.errors import InputError
from focalcal.files.messages import listed
from focalcal.files.prediction_table import PredictionTable


def join(tables: list[PredictionTable], name: str) -> PredictionTable:
    """Join the shards of a set in order, which must belong together."""
    return replace(joined(tables), name=name)


def joined(tables: list[PredictionTable]) -> PredictionTable:
    """Concatenate tables that have the same parts."""
    first = tables[0]
    if len(tables) == 1:
        return first
    if len({each.scores.shape[1:] for each in tables}) > 1:
        raise InputError(
            f"{first.name}: the lists of scores differ in length. Give every row one score for each class."
        )

    def whole(part: str) -> Any:
        return None if getattr(first, part) is None else np.concatenate([getattr(each, part) for each in tables])

    return replace(first, **{part: whole(part) for part in ("scores", "labels", "weights", "split", "groups")})


def require_agreement(first: PredictionTable, other: PredictionTable) -> None:
    """Raise an error if a table does not belong to the same set as another one."""

    def differ(what: str, here: object, there: object) -> InputError:
        return InputError(
            f"{other.name}: does not belong to the same set as {first.name}: it has {what} {here}, that one {there}. "
            "Give files of one set only."
        )

    if other.kind != first.kind:
        raise differ("scores of kind", other.kind, first.kind)
    if other.scores.shape[1:] != first.scores.shape[1:]:
        raise differ("a number of classes of", other.num_classes, first.num_classes)
    for part in ("labels", "weights", "split"):
        if (getattr(other, part) is None) != (getattr(first, part) is None):
            here, there = ("none", "some") if getattr(other, part) is None else ("some", "none")
            raise differ(f"{part}:", here, there)
    if other.class_names != first.class_names:
        raise differ("class names", listed(other.class_names or ()), listed(first.class_names or ()))
