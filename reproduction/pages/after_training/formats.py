"""How the page writes measures, differences, p-values and counts."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.pages.after_training.differences import Compared

# What sentences call measures.
NAMES = {"nll": "NLL", "ece_ew": "ECE", "ece_em": "AdaECE", "ece_debias": "debiased ECE", "ece_sweep_em": "sweep ECE"}


def unit(measure: str) -> str:
    """The unit of differences: percentage points for errors, nats for NLL."""
    return "nats" if measure == "nll" else "points"


def change(value: float, measure: str) -> str:
    """A signed difference; NLL has more digits.

    >>> change(-0.123, "ece_ew"), change(0.00123, "nll")
    ('-0.12', '+0.0012')
    """
    return f"{value:+.{4 if measure == 'nll' else 2}f}"


def mean_change(compared: Compared) -> str:
    """The mean difference with its unit."""
    return f"{change(compared.mean, compared.measure)} {unit(compared.measure)}"


def sure_cell(compared: Compared | None) -> str:
    """The mean difference; in brackets the runs in which it is significantly worse / better."""
    if compared is None:
        return ""
    return f"{change(compared.mean, compared.measure)} ({compared.surely_worse} / {compared.surely_better})"


def p_cell(value: float) -> str:
    """A p-value in a table."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def p_equals(value: float) -> str:
    """A p-value in a sentence.

    >>> p_equals(0.0001), p_equals(0.0123)
    ('< 0.001', '= 0.012')
    """
    return p_cell(value) if value < 0.001 else f"= {p_cell(value)}"


def count(number: int, of: int, thing: str) -> str:
    """A number of things.

    >>> count(1, 1, "run"), count(2, 5, "run")
    ('1 of 1 run', '2 of 5 runs')
    """
    return f"{number:,} of {of:,} {thing}{'' if of == 1 else 's'}"


def lower_pairs(changes: Sequence[float]) -> str:
    """In how many pairs of loss and task a measure is lower.

    >>> lower_pairs([-2.0, 1.0])
    '1 of 2 pairs'
    """
    return count(sum(each < 0 for each in changes), len(changes), "pair")


def lowest_in_bold(values: Sequence[float | None], digits: int) -> list[str]:
    """A column of a table, in bold where none shown is lower.

    >>> lowest_in_bold([1.48, 1.52, None, 3.0], 1)
    ['**1.5**', '**1.5**', '', '3.0']
    """
    rounded = [None if value is None else round(value, digits) for value in values]
    least = min((value for value in rounded if value is not None), default=None)
    shown = ["" if value is None else f"{value:.{digits}f}" for value in rounded]
    return [f"**{text}**" if text and value == least else text for text, value in zip(shown, rounded, strict=True)]
