"""Focal loss beside cross-entropy: the table at the last record, its sentences and its figure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reproduction.labels import bullets, method_name, spread, table
from reproduction.pages.dynamics.compare import after, against, beside_ce, rise, risen
from reproduction.pages.dynamics.drawing import Drawing, by_loss
from reproduction.pages.dynamics.records import GAMMAS, drops, end, over_seeds, present, with_drop
from reproduction.pages.dynamics.section import Section
from reproduction.result_files import Evidence


def _tell(evidence: Evidence) -> Iterator[str]:
    if methods := present(evidence, GAMMAS):
        yield table(
            ["loss", "test NLL", "its rise", "wrong rows", "its rise", "correct rows", "entropy, wrong"],
            (_row(evidence, method) for method in methods),
        )
        yield bullets(_sentences(evidence))


def _row(evidence: Evidence, method: str) -> list[str]:
    columns = (
        over_seeds(evidence, method, "test_nll"),
        _rises(evidence, method, "test_nll"),
        over_seeds(evidence, method, "test_nll_wrong"),
        _rises(evidence, method, "test_nll_wrong"),
        over_seeds(evidence, method, "test_nll_correct"),
        over_seeds(evidence, method, "test_entropy_wrong"),
    )
    return [method_name(method), *(spread(column, 3) for column in columns)]


def _rises(evidence: Evidence, method: str, name: str) -> list[float]:
    return [last - first for first, last in after(with_drop(evidence, method), name)]


def _sentences(evidence: Evidence) -> Iterator[str]:
    """What the paper says of focal loss against cross-entropy of the same seed."""
    claims = (
        ("test_nll_wrong", "NLL of wrong rows", "lower", -1),
        ("test_entropy_wrong", "Entropy of wrong rows", "higher", 1),
        ("test_nll_correct", "NLL of correct rows", "higher", 1),
    )
    for name, heading, word, sign in claims:
        if pairs := beside_ce(evidence, partial(end, name=name)):
            yield f"{heading} at the end, focal loss: {word} in {risen(pairs, sign)} ({against(pairs)})."
    for drop in drops(evidence)[:1]:
        if pairs := beside_ce(evidence, partial(rise, name="test_nll_wrong", drop=drop)):
            less = f"less in {risen(pairs, -1)} ({against(pairs)})"
            yield f"Rise of the NLL of wrong rows after the drop, focal loss: {less}."


SECTION = Section(
    "Focal loss beside cross-entropy",
    "mukhoti2020 Fig. 3(a) to (d): with focal loss the NLL of wrong rows rises less, and entropy of wrong rows "
    'and NLL of correct rows are higher. All columns are of the test split at the last record; "its rise" is the '
    "change of the column before it since the first record after the drop. Below the table, runs of focal loss "
    "(gamma 1, 2, 3) are compared with the cross-entropy run of the same seed.",
    _tell,
    (
        Drawing(
            "focal",
            {
                "test NLL": by_loss(GAMMAS, "test_nll"),
                "NLL, wrong": by_loss(GAMMAS, "test_nll_wrong"),
                "entropy, wrong": by_loss(GAMMAS, "test_entropy_wrong"),
            },
            "Test NLL, NLL of wrong test rows and entropy of wrong test rows by epoch for cross-entropy and focal "
            "losses",
            "Cross-entropy and focal loss with gamma 1, 2, 3 by epoch, after mukhoti2020 Fig. 3(a), (c) and (d).",
        ),
    ),
)
