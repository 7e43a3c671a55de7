"""The page about training: its first sentences, its topics in order, and how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from reproduction.labels import LITTLE, LITTLE_20, TITLES, All, how_many, method_name
from reproduction.pages.dynamics import confidence, cross_entropy, focal, gammas, learned, norms
from reproduction.pages.dynamics.compare import against, beside_ce, risen, rises
from reproduction.pages.dynamics.drawing import draw
from reproduction.pages.dynamics.records import LOSSES, end, monitored, with_drop
from reproduction.result_files import Evidence

TITLE = "How calibration changes during training"

_RECIPES = (LITTLE, LITTLE_20)
_SECTIONS = [topic.SECTION for topic in (cross_entropy, focal, norms, confidence, gammas, learned)]


def page(evidence: All) -> str:
    """The page: cross-entropy by epoch, then focal losses beside it, norms, bins, gammas and learned epochs."""
    there = _there(evidence)
    parts = [f"# {TITLE}", _summary(there), _left_out(there)]
    parts += [part for section in _SECTIONS for part in section.parts(there)]
    parts += [_READING] if there else []
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def figures(evidence: All) -> dict[str, Any]:
    """The figures by file name: each topic for each recipe that has its series."""
    drawings = [drawing for section in _SECTIONS for drawing in section.drawings]
    there = _there(evidence)
    return {drawing.of(each): draw(drawing, each) for drawing in drawings for each in there if drawing.has(each)}


def _there(evidence: All) -> list[Evidence]:
    """The recipes whose runs were monitored."""
    known = (evidence[name] for name in _RECIPES if name in evidence)
    return [each for each in known if any(monitored(each, method) for method in each.methods)]


def _summary(there: Sequence[Evidence]) -> str:
    if not there:
        return "There is no result file with records of training yet."
    sentences = []
    if found := rises([run for each in there for run in with_drop(each, "ce")], "test_nll", "train_nll"):
        sentences.append(
            "After the first drop of the learning rate, the test NLL of cross-entropy rises in "
            f"{how_many([test > 0 for test, _ in found])}, and its train NLL falls in "
            f"{how_many([train < 0 for _, train in found])}."
        )
    if pairs := [pair for each in there for pair in beside_ce(each, partial(end, name="test_nll_wrong"))]:
        sentences.append(
            "At the end, the NLL of wrong test rows is lower with focal loss (gamma 1, 2, 3) than with cross-entropy "
            f"of the same seed in {risen(pairs, -1)} ({against(pairs)})."
        )
    return " ".join(sentences)


def _left_out(there: Sequence[Evidence]) -> str:
    """Recipes without records, and losses that are not in the others."""
    names = [each.name for each in there]
    lines = [f"Without records of training, and left out: {TITLES[name]}." for name in _RECIPES if name not in names]
    for each in there:
        missing = [method_name(method) for method in LOSSES if not monitored(each, method)]
        lines += [f"{TITLES[each.name]} has no records of {', '.join(missing)}."] if missing else []
    return " ".join(lines)


_READING = """## How to read this page

Numbers are means over seeds ± their standard deviation; NLL and entropy are in nats, ECE has 15 bins of equal width.
A record is made every few epochs. Training numbers are running means over the steps of the recorded epoch, while the
network changes and with batch statistics; test numbers are of the network at the epoch's end. So train and test NLL
are not of the same weights.

"After the drop" compares the first record after it with the last one, and not with a record before it, because the
smaller learning rate by itself moves every number at once. Bins are of equal mass on the validation split, counted
from 0. Training rows are put between the edges of the validation bins, so both confidences of a bin lie between the
same edges, and a correlation over bins is high by construction; that within bins says more, but the edges move with
the validation confidence too. Bins without training rows are left out. Feature norms are those of test rows; the
paper has training rows. The top bin is one of 15; the paper's Fig. 1 has 25. Gradients are of each loss itself: a
loss that is smaller by a factor has smaller gradients by the same factor.
"""
