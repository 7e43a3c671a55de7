"""Text: every loss before and after temperature scaling, and AdaFocal with one and with many updates an epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any

from focalcal import drawing as look
from reproduction.labels import TEXT, All, bullets, found_of, joined, method_name, spread, table, title_of
from reproduction.pages.losses import (
    COMPARE,
    agreement,
    by_seed,
    draw_mean,
    how_to_read,
    lower_in,
    section,
    summary,
    temperatures,
)
from reproduction.result_files import Evidence, RunEvidence

TITLE = "Text: every loss, and how often AdaFocal updates"

_RARE, _OFTEN = "adafocal", "adafocal-10"
# The losses that ghosh2022, Figs. 16 and 17, follow along the epochs, and how they are drawn.
_FOLLOWED = {
    "ce": {"color": look.BLUE, "linestyle": "-", "marker": "o"},
    "flsd-53": {"color": look.VERMILION, "linestyle": "--", "marker": "s"},
    _RARE: {"color": look.GREEN, "linestyle": "-.", "marker": "^"},
    _OFTEN: {"color": look.PURPLE, "linestyle": ":", "marker": "D"},
}

_PAPERS_TEXT = (
    " On their own text they leave these ranges: T of 20 Newsgroups and of SST binary is 3.4 and 1.8 for cross-entropy,"
    " 2.2 and 1.5 for MMCE, 2.3 and 2.5 for Brier, 1.1 and 1.2 for LS-0.05, 1.5 and 0.7 for FLSD-53 (mukhoti2020,"
    " Table 1)."
)


def page(evidence: All) -> str:
    """The page about text."""
    there, missing = found_of(evidence, TEXT)
    parts = [f"# {TITLE}", *summary(there), *_in_brief(there), *missing]
    if there:
        parts += [COMPARE, *chain.from_iterable(map(section, there)), *temperatures(there, _PAPERS_TEXT)]
        parts += [*agreement(there), *_updates(there), *how_to_read(there)]
    return joined(parts)


def figures(evidence: All) -> dict[str, Any]:
    """Test ECE by epoch."""
    there = _followed(found_of(evidence, TEXT)[0])
    return {"text_epochs": _draw(there)} if there else {}


def _along(run: RunEvidence) -> dict[int, float]:
    """Test ECE by epoch, counted from 1, where it was recorded."""
    if "test_ece" not in run.dynamics:
        return {}
    series = zip(run.dynamics["epoch"], run.dynamics["test_ece"], strict=True)
    return {epoch + 1: 100 * value for epoch, value in series if value is not None}


def _by_epoch(evidence: Evidence, method: str) -> dict[int, list[float]]:
    """Test ECE of all seeds by epoch, in percent."""
    found: dict[int, list[float]] = {}
    for run in evidence.of(method):
        for epoch, value in _along(run).items():
            found.setdefault(epoch, []).append(value)
    return dict(sorted(found.items()))


def _followed(there: Sequence[Evidence]) -> list[Evidence]:
    """The result files that have a series of one of the losses to follow."""
    return [each for each in there if any(_by_epoch(each, method) for method in _FOLLOWED)]


def _in_brief(there: Sequence[Evidence]) -> list[str]:
    """In how many recipes frequent updates have the lower ECE, in one sentence."""
    finals = [means for each in there if (means := _finals(each))]
    if not finals:
        return []
    lower = sum(often < rare for rare, often in finals)
    shown = "; ".join(f"{often:.2f} instead of {rare:.2f} %" for rare, often in finals)
    return [
        f"AdaFocal with updates every 10 batches ends with a lower ECE than with one update an epoch in {lower} of"
        f" {len(finals)} recipes ({shown})."
    ]


def _finals(evidence: Evidence) -> tuple[float, float] | None:
    """The mean ECEs of the kept networks with rare and with frequent updates, where there are both."""
    rare, often = (by_seed(evidence, method, "pre", "ece_ew").values() for method in (_RARE, _OFTEN))
    return (fmean(rare), fmean(often)) if rare and often else None


def _updates(there: Sequence[Evidence]) -> list[str]:
    """AdaFocal with one and with many updates an epoch, at the end and along the epochs."""
    rows = [row for evidence in there for method in _FOLLOWED if (row := _row(evidence, method))]
    if not rows:
        return ["None of the losses to follow was run: how often AdaFocal updates is left out."]
    headings = ["recipe", "loss", "network kept", "last epoch", "mean over epochs", "worst epoch"]
    return [
        "## AdaFocal: one update an epoch, or one every 10 batches",
        "In ghosh2022, App. I (Figs. 16 and 17), frequent updates keep the network calibrated at all epochs, and lower"
        " the final ECE where one update an epoch means few updates. Test ECE, %, of the network that is kept and along"
        " the epochs:",
        table(headings, rows, words=2).rstrip("\n"),
        bullets(sentence for evidence in there for sentence in _verdicts(evidence)),
        *(_FIGURE if _followed(there) else ["No run has a series by epoch: the figure is left out."]),
    ]


_FIGURE = (
    "![Test ECE by epoch of cross-entropy, FLSD-53, AdaFocal and AdaFocal every 10 batches, one panel a data set]"
    "(images/text_epochs.svg)",
    "Test ECE by epoch: the mean over seeds, and the range of the seeds (compare ghosh2022, Figs. 16b and 17b).",
)


def _row(evidence: Evidence, method: str) -> list[str]:
    kept = list(by_seed(evidence, method, "pre", "ece_ew").values())
    runs = [list(along.values()) for run in evidence.of(method) if (along := _along(run))]
    if not kept and not runs:
        return []
    values = (kept, [each[-1] for each in runs], [fmean(each) for each in runs], [max(each) for each in runs])
    return [title_of(evidence), method_name(method), *map(spread, values)]


def _verdicts(evidence: Evidence) -> list[str]:
    """Frequent against rare updates, at the end and along the epochs, and what to mind."""
    found = [_at_the_end(evidence), _on_the_way(evidence)]
    if not any(found):
        found = [": AdaFocal was not run in both ways, and is not compared."]
    return [f"{title_of(evidence)}{words}" for words in (*found, _selected(evidence)) if words]


def _at_the_end(evidence: Evidence) -> str:
    finals = _finals(evidence)
    if finals is None:
        return ""
    rare, often = (by_seed(evidence, method, "pre", "ece_ew") for method in (_RARE, _OFTEN))
    training = evidence.recipe["training"]
    batches, epochs = math.ceil(evidence.sizes[0] / training["batch_size"]), training["epochs"]
    updates = batches // evidence.recipe["methods"][_OFTEN]["every"]
    return (
        f", at the end: {updates} updates an epoch of {batches} batches instead of 1, {epochs * updates} instead of"
        f" {epochs} in all; ECE {finals[1]:.2f} % instead of {finals[0]:.2f} %, lower in {lower_in(often, rare)} seeds."
    )


def _on_the_way(evidence: Evidence) -> str:
    rare, often = (_means(_by_epoch(evidence, method)) for method in (_RARE, _OFTEN))
    common = sorted(rare.keys() & often.keys())
    if not common:
        return ""
    lower = [epoch for epoch in common if often[epoch] < rare[epoch]]
    worst = [max(common, key=each.__getitem__) for each in (often, rare)]
    return (
        f", along the epochs: the mean ECE over seeds is lower with frequent updates at {len(lower)} of {len(common)}"
        f" epochs; it is at most {often[worst[0]]:.2f} % (epoch {worst[0]}) with frequent updates, and"
        f" {rare[worst[1]]:.2f} % (epoch {worst[1]}) with one an epoch."
    )


def _means(found: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {epoch: fmean(values) for epoch, values in found.items()}


def _selected(evidence: Evidence) -> str:
    """A warning where the network kept is not that of the last epoch."""
    if evidence.recipe["training"].get("select") != "best" or not _followed([evidence]):
        return ""
    return (
        ": the recipe keeps the epoch of the lowest validation error (`select: best`), while the series has the test"
        " ECE of all epochs; the network kept need not be that of the last one."
    )


def _draw(there: Sequence[Evidence]) -> Any:
    figure = look.new_figure(2 * look.COLUMN, 2.7)
    panels = figure.subplots(1, len(there), squeeze=False)[0]
    lines: dict[str, Any] = {}
    for ax, evidence in zip(panels, there, strict=True):
        for method, line in _FOLLOWED.items():
            found = _by_epoch(evidence, method)
            if found:
                shares = {epoch: [each / 100 for each in values] for epoch, values in found.items()}
                lines[method] = draw_mean(shares, ax, **line)
        ax.set_ylim(bottom=0)
        look.percent(ax.yaxis)
        ax.xaxis.get_major_locator().set_params(integer=True)
        look.style(ax, title=title_of(evidence), xlabel="epoch", ylabel="test ECE" if ax is panels[0] else "")
    look.legend(panels[0], list(lines.values()), list(map(method_name, lines)), under=True, columns=4)
    return figure
