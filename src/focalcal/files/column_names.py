"""Finding the keys or columns that hold scores, labels and other parts: by usual names, or as the caller says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from focalcal.core.score_kinds import KINDS, Kind
from focalcal.errors import FileFormatError, InputError
from focalcal.files.messages import listed
from focalcal.files.prediction_table import Columns

USUAL_NAMES = {
    "labels": ("labels", "label"),
    "weights": ("weights", "weight"),
    "split": ("split",),
    "class_names": ("class_names",),
}
HISTORY = "history_"
OPTIONS = {"labels": "--labels", "weights": "--weights", "split": "--split-key", "class_names": "--class-names"}
# One column per class: logit_cat, logits.0, prob[2]. The name of the kind, a separator, and the class.
_CLASS = r"(?:[_.:](.*)|\[(.*)\])"
_ONE_PER_CLASS: dict[Kind, re.Pattern[str]] = {
    "logits": re.compile("logits?" + _CLASS, re.DOTALL),
    "log_probs": re.compile("log_?probs?" + _CLASS, re.DOTALL),
    "probs": re.compile("probs?" + _CLASS, re.DOTALL),
}
PREFIX: dict[Kind, str] = {"logits": "logit_", "log_probs": "log_prob_", "probs": "prob_"}


@dataclass(frozen=True)
class ScoreColumns:
    """The columns that hold the scores, in the order of the classes; `single` if one column holds them all."""

    names: tuple[str, ...]
    kind: Kind
    single: bool = False
    class_names: tuple[str, ...] | None = None

    def renamed(self, to: Kind) -> tuple[str, ...]:
        """The names of the same columns once they hold scores of another kind.

        >>> ScoreColumns(("logits.cat", "logits.dog"), "logits", class_names=("cat", "dog")).renamed("probs")
        ('prob_cat', 'prob_dog')
        """
        if self.single:
            return (to,)
        classes = self.class_names or tuple(str(k) for k in range(len(self.names)))
        return tuple(PREFIX[to] + each for each in classes)


def require_free(name: str, new: Sequence[str], others: Sequence[str]) -> None:
    """Raise an error if a new name for the scores is taken by something else in the file."""
    taken = [each for each in new if each in others]
    if taken:
        raise InputError(
            f"{name}: the new scores would be named {listed(taken)}, as something else in the file is. "
            "Rename or drop that first."
        )


def require_once(name: str, there: Sequence[str]) -> None:
    """Raise an error if two columns have the same name."""
    twice = sorted(each for each, count in Counter(there).items() if count > 1)
    if twice:
        raise FileFormatError(f"{name}: has two columns named {listed(twice)}. Give each its own name.")


def find_part(name: str, part: str, there: Sequence[str], wanted: str | None) -> str | None:
    """The key or column of the labels, weights, split or class names; None if there is none and none was asked for.

    >>> find_part("preds.npz", "labels", ["logits", "label"], None)
    'label'
    """
    if wanted is not None:
        if wanted not in there:
            raise InputError(f"{name}: has no {wanted} for {OPTIONS[part]}; it has {listed(there)}. Name one of those.")
        return wanted
    found = [each for each in USUAL_NAMES[part] if each in there]
    if len(found) > 1:
        raise InputError(f"{name}: has both {' and '.join(found)}; say which one counts with {OPTIONS[part]} KEY.")
    return found[0] if found else None


def find_group(name: str, there: Sequence[str], wanted: str | None) -> str | None:
    """The key or column that rows are grouped by, if any.

    >>> find_group("preds.parquet", ["logits", "label", "language"], "language")
    'language'
    """
    if wanted is not None and wanted not in there:
        raise InputError(f"{name}: has no column {wanted} to group by; it has {listed(there)}. Name one of those.")
    return wanted


def find_parts(name: str, there: Sequence[str], columns: Columns, by: str | None) -> dict[str, str]:
    """The keys or columns of labels, weights and split, and of the groups if rows are grouped; only those that exist.

    >>> find_parts("preds.parquet", ["logits", "label", "language"], Columns(), "language")
    {'labels': 'label', 'groups': 'language'}
    """
    found = {part: find_part(name, part, there, getattr(columns, part)) for part in ("labels", "weights", "split")}
    found["groups"] = find_group(name, there, by)
    return {part: key for part, key in found.items() if key is not None}


def find_score_key(name: str, there: Sequence[str], columns: Columns) -> tuple[str, Kind]:
    """Find the key of the scores in an archive, and their kind.

    >>> find_score_key("preds.npz", ["labels", "logits"], Columns())
    ('logits', 'logits')
    """
    if columns.scores is not None:
        if columns.scores not in there:
            raise InputError(
                f"{name}: has no key {columns.scores}; it has {listed(there)}. Name one with --scores KEY."
            )
        return columns.scores, kind_of(name, columns.scores, columns)
    usual = KINDS if columns.kind is None else (columns.kind,)
    found = [each for each in usual if each in there]
    if not found:
        looked_for = "logits, log_probs or probs" if columns.kind is None else columns.kind
        raise InputError(
            f"{name}: has no key {looked_for}; it has {listed(there)}. Name it with --scores KEY and --kind."
        )
    if len(found) > 1:
        raise InputError(
            f"{name}: has more than one key of scores: {', '.join(found)}. Say which one counts with --scores KEY."
        )
    return found[0], kind_of(name, found[0], columns)


def kind_of(name: str, scores: str, columns: Columns) -> Kind:
    """The kind of scores with this name, as stated by the caller or implied by the name."""
    if columns.kind is not None:
        return columns.kind
    for kind in PREFIX:
        if scores in (kind, PREFIX[kind][:-1]) or _ONE_PER_CLASS[kind].fullmatch(scores):
            return kind
    raise InputError(
        f"{name}: {scores} may be logits, log_probs or probs, and its name does not say it. Say it with --kind."
    )


def find_score_columns(name: str, there: Sequence[str], columns: Columns) -> ScoreColumns:
    """The columns of a table that hold the scores: one for all classes, or one per class.

    >>> find_score_columns("preds.csv", ["label", "prob_cat", "prob_dog"], Columns()).class_names
    ('cat', 'dog')
    """
    if columns.scores is not None:
        prefix = columns.scores
        if prefix in there:
            return ScoreColumns((prefix,), kind_of(name, prefix, columns), single=True)
        if "," in prefix:
            return _named_columns(name, there, prefix, columns)
        endings = (r"(.*)()",) if prefix[-1:] in "_.:" else (_CLASS, r"(\d+)()")  # score_cat; score_0, score0
        tried = (_classes(there, re.compile(re.escape(prefix) + ending, re.DOTALL)) for ending in endings)
        found = next(filter(None, tried), {})
        if not found:
            raise InputError(
                f"{name}: has no column {prefix} and none whose name begins with it; it has {listed(there)}. "
                "Name the column, what the columns' names begin with, or all columns with commas, with --scores."
            )
        return _in_order(name, found, kind_of(name, prefix, columns))
    choices = [_columns_of_kind(name, there, kind) for kind in ((columns.kind,) if columns.kind else PREFIX)]
    sets = [choice for choice in choices if choice is not None]
    if not sets:
        raise InputError(
            f"{name}: has no columns logit_*, log_prob_* or prob_*, nor one named logits, log_probs or probs; it has "
            f"{listed(there)}. Name them with --scores PREFIX and --kind."
        )
    if len(sets) > 1:
        said = " and ".join(f"{each.kind} ({listed(each.names[:2])}...)" for each in sets)
        raise InputError(f"{name}: has more than one set of scores: {said}. Say which one counts with --kind.")
    return sets[0]


def _named_columns(name: str, there: Sequence[str], names: str, columns: Columns) -> ScoreColumns:
    """The score columns that the caller named one by one; their names are those of the classes."""
    wanted = tuple(each.strip() for each in names.split(","))
    missing = [each for each in wanted if each not in there]
    if missing:
        raise InputError(
            f"{name}: has no column {listed(missing)}; it has {listed(there)}. Name one column per class with --scores."
        )
    if len(set(wanted)) < len(wanted):
        raise InputError(f"{name}: --scores names a column twice: {listed(wanted)}. Name each once.")
    if columns.kind is None:
        raise InputError(
            f"{name}: {listed(wanted)} may be logits, log_probs or probs, and their names do not say it. Say it with "
            "--kind."
        )
    return ScoreColumns(wanted, columns.kind, class_names=wanted)


def _columns_of_kind(name: str, there: Sequence[str], kind: Kind) -> ScoreColumns | None:
    single = [each for each in (kind, PREFIX[kind][:-1]) if each in there]
    several = _classes(there, _ONE_PER_CLASS[kind])
    if len(single) + bool(several) > 1:
        raise InputError(
            f"{name}: has more than one set of {kind}: {listed([*single, *several])}. "
            "Say which one counts with --scores, the column or what the columns' names begin with."
        )
    if single:
        return ScoreColumns((single[0],), kind, single=True)
    return _in_order(name, several, kind) if several else None


def _classes(there: Sequence[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """The columns whose names match, and the class that each belongs to."""
    matches = {each: pattern.fullmatch(each) for each in there}
    return {each: match.group(1) or match.group(2) or "" for each, match in matches.items() if match}


def _in_order(name: str, found: dict[str, str], kind: Kind) -> ScoreColumns:
    """The columns in order of their class numbers if they are numbered from 0, else in the order of the file."""
    if len(set(found.values())) < len(found):
        raise InputError(f"{name}: two score columns are of the same class; they are {listed(list(found))}. Drop one.")
    if set(found.values()) == {str(k) for k in range(len(found))}:
        return ScoreColumns(tuple(sorted(found, key=lambda each: int(found[each]))), kind)
    return ScoreColumns(tuple(found), kind, class_names=tuple(found.values()))
