"""Which rows a calibrator is fitted to and which ones it is scored on, as the options say; no row may be both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.files import PredictionTable

FIT_SPLITS = ("val", "validation", "valid", "dev")
SCORE_SPLITS = ("test",)
_WAYS = (
    "Say which rows to fit to: --fit VAL_FILE with FILE to score, a split column (--fit-split val --score-split test), "
    "or --holdout 0.5."
)


@dataclass(frozen=True)
class SplitOptions:
    """What the options say about rows."""

    split: str | None = None
    fit_split: str | None = None
    score_split: str | None = None
    holdout: float | None = None
    seed: int = 0
    allow_same_data: bool = False

    def __post_init__(self) -> None:
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise InputError(f"--holdout: must lie between 0 and 1; got {self.holdout:g}. Half of the rows is 0.5.")
        named = self.fit_split is not None or self.score_split is not None
        if named and self.split is not None:
            raise InputError("--split: does not go with --fit-split or --score-split. Leave out one of them.")
        if named and self.holdout is not None:
            raise InputError("--holdout: does not go with --fit-split or --score-split. Leave out one of them.")


@dataclass(frozen=True)
class DividedRows:
    """Rows to fit to and rows to score, how they were chosen in words, and how far they are the same."""

    fit: PredictionTable
    score: PredictionTable | None
    words: str
    same_data: bool = False
    num_shared: int = 0

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before trusting the scores."""
        if self.same_data:
            return [same_data_warning()]
        if self.num_shared and self.score is not None:
            shared = f"{self.num_shared:,} of {self.score.num_rows:,} scored rows"
            return [f"{shared} equal a row of the fit: if they are the same samples, the numbers look too good."]
        return []


def same_data_warning() -> str:
    """What a reader must know of a score on the rows of the fit."""
    return "Fitted to and scored on the same rows: the numbers look better than they are (--allow-same-data)."


def only(
    table: PredictionTable, name: str | None, usual: Sequence[str] = SCORE_SPLITS, option: str = "--split"
) -> PredictionTable:
    """The rows of the named split; without a name the usual one, or all where nothing is to choose."""
    if name is not None:
        return table.of_split(name)
    there = table.splits()
    if len(there) <= 1:
        return table
    found = next((each for each in usual if each in there), None)
    if found is None:
        raise InputError(f"{table.name}: has the splits {_listed(there)}. Name one with {option}.")
    return table.of_split(found)


def divide(
    table: PredictionTable | None, fit: PredictionTable | None, asked: SplitOptions, *, same_file: bool = False
) -> DividedRows:
    """The rows to fit to and those to score, from what was read and what was asked."""
    if fit is not None:
        return _of_two(table, fit, asked, same_file)
    assert table is not None
    if asked.holdout is not None:
        return _held_out(only(table, asked.split), asked.holdout, asked)
    if asked.split is None and len(table.splits()) > 1:
        return _by_column(table, asked)
    for option, name in (("--fit-split", asked.fit_split), ("--score-split", asked.score_split)):
        if name is not None:  # a file of one split can still be asked for it
            raise InputError(f"{table.name}: {option} {name} needs a split column with two splits. {_WAYS}")
    if not asked.allow_same_data:
        raise InputError(f"{table.name}: nothing says which rows to fit to and which to score. {_WAYS}")
    rows = only(table, asked.split)
    return DividedRows(rows, rows, f"fitted to and scored on the same {rows.num_rows:,} rows", same_data=True)


def _of_two(table: PredictionTable | None, fit: PredictionTable, asked: SplitOptions, same_file: bool) -> DividedRows:
    if asked.holdout is not None:
        raise InputError("--holdout: does not go with --fit, which names the rows of the fit. Leave out one of them.")
    rows = only(fit, asked.fit_split, FIT_SPLITS, "--fit-split")
    if table is None:
        return DividedRows(rows, None, f"fitted to {_named(rows)}; nothing was measured on other rows")
    score = only(table, asked.score_split or asked.split, SCORE_SPLITS, "--score-split")
    _require_alike(rows, score)
    same = same_file and not fit.splits()
    return _checked(rows, score, f"fitted to {_named(rows)}, scored on {_named(score)}", asked, same=same)


def _by_column(table: PredictionTable, asked: SplitOptions) -> DividedRows:
    names = []
    usual = (("--fit-split", asked.fit_split, FIT_SPLITS), ("--score-split", asked.score_split, SCORE_SPLITS))
    there = table.splits()
    for option, name, common in usual:
        found = name or next((each for each in common if each in there), None)
        if found is None:
            raise InputError(f"{table.name}: has the splits {_listed(there)}, none of them {common[0]}. Use {option}.")
        names.append(found)
    fit, score = (table.of_split(name) for name in names)
    sizes = [f"split {name} ({rows.num_rows:,} rows)" for name, rows in zip(names, (fit, score), strict=True)]
    return _checked(fit, score, f"fitted to {sizes[0]}, scored on {sizes[1]}", asked, same=names[0] == names[1])


def _held_out(table: PredictionTable, share: float, asked: SplitOptions) -> DividedRows:
    from focalcal.report.duplicates import count_shared
    from focalcal.report.hold_out import held_out_words, hold_out

    fit, score = hold_out(table, share, asked.seed)
    words = held_out_words(fit, score, share, asked.seed)
    return DividedRows(fit, score, words, num_shared=count_shared(fit, score))


def _checked(
    fit: PredictionTable, score: PredictionTable, words: str, asked: SplitOptions, *, same: bool = False
) -> DividedRows:
    """The division, unless all that is scored was fitted to."""
    from focalcal.report.duplicates import count_shared

    shared = score.num_rows if same else count_shared(fit, score)
    if shared < score.num_rows:
        return DividedRows(fit, score, words, num_shared=shared)
    if not asked.allow_same_data:
        raise InputError(
            f"{score.name}: every scored row is among the rows of the fit, which makes the numbers look better than "
            f"they are. Score other rows, or add --allow-same-data."
        )
    return DividedRows(fit, score, f"{words}: the same rows", same_data=True, num_shared=shared)


def same_files(fit: Sequence[str], score: Sequence[str]) -> bool:
    """Whether some file is named for the fit and for the scores."""
    return any(os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b) for a in fit for b in score)


def _require_alike(fit: PredictionTable, score: PredictionTable) -> None:
    for what, one, other in (
        ("classes", fit.num_classes, score.num_classes),
        ("kind of scores", fit.kind, score.kind),
        ("class names", fit.class_names or score.class_names, score.class_names or fit.class_names),
    ):
        if one != other:
            said = "others" if isinstance(one, tuple) else f"{other}, and {fit.name} has {one}"
            raise InputError(f"{score.name}: {what} must be those of the fit; it has {said}.")


def _named(table: PredictionTable) -> str:
    return f"{table.name} ({table.num_rows:,} rows)"


def _listed(splits: dict[str, int]) -> str:
    return ", ".join(splits)
