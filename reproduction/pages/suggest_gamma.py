"""The training gamma that a cross-entropy run suggests, against a sweep of trained gammas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from reproduction.labels import (
    IMAGES,
    MEASURES,
    TITLES,
    All,
    cells,
    gamma_of,
    method_name,
    over_seeds,
    spread,
    table,
)
from reproduction.result_files import Evidence, RunEvidence

TITLE = "The gamma that cross-entropy suggests"
_FIGURE = "suggest_gamma"
# The measures of the sweep, and what sentences call them.
_MEASURES = {"ece_ew": "ECE", "ece_em": "AdaECE", "nll": "NLL", "error": "error"}
# A sweep has at least so many gammas, 0 among them.
_FEWEST = 3


# --- numbers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sweep:
    """The trained gammas of a task, in order, and what its cross-entropy runs suggest, by seed."""

    evidence: Evidence
    methods: dict[float, str]
    suggested: dict[int, float]

    @property
    def title(self) -> str:
        return TITLES.get(self.evidence.name, self.evidence.name)

    @property
    def suggestion(self) -> float:
        """The mean over seeds."""
        return fmean(self.suggested.values())

    @property
    def nearest(self) -> float:
        """The trained gamma nearest to the mean suggestion."""
        return _nearest(list(self.methods), self.suggestion)

    def values(self, gamma: float, measure: str) -> list[float]:
        """A measure of the seeds of a gamma as trained, in the units of tables."""
        return over_seeds(self.evidence, self.methods[gamma], "pre", measure)

    def means(self, measure: str) -> dict[float, float]:
        """The mean over seeds of every gamma that has the measure."""
        found = {gamma: self.values(gamma, measure) for gamma in self.methods}
        return {gamma: fmean(values) for gamma, values in found.items() if values}


def _nearest(gammas: Sequence[float], wanted: float) -> float:
    return min(gammas, key=lambda gamma: abs(gamma - wanted))


def _sweep(evidence: All, name: str) -> _Sweep | None:
    """The sweep of a task, unless too few gammas were trained or no run suggests one."""
    if name not in evidence:
        return None
    each = evidence[name]
    measured = [method for method in each.methods if over_seeds(each, method, "pre", "ece_ew")]
    gammas = {gamma: method for method in measured if (gamma := gamma_of(method)) is not None}
    suggested = {run.seed: run.extra["suggested_gamma"] for run in each.of("ce") if "suggested_gamma" in run.extra}
    return _Sweep(each, dict(sorted(gammas.items())), suggested) if len(gammas) >= _FEWEST and suggested else None


def _sweeps(evidence: All) -> list[_Sweep]:
    return [sweep for name in IMAGES if (sweep := _sweep(evidence, name)) is not None]


def _interpolated(points: dict[float, float], wanted: float) -> float | None:
    """The value at a gamma on the straight line between its neighbours; None outside.

    >>> _interpolated({0.0: 8.0, 2.0: 4.0}, 0.5), _interpolated({0.0: 8.0, 2.0: 4.0}, 3.0)
    (7.0, None)
    """
    for (left, low), (right, high) in pairwise(sorted(points.items())):
        if left <= wanted <= right:
            return low + (high - low) * (wanted - left) / (right - left)
    return None


@dataclass(frozen=True)
class _Found:
    """Where the suggestion falls in the sweep by one measure: means over seeds."""

    nearest: float
    at_nearest: float
    best: float
    at_best: float
    rank: int
    at_suggestion: float | None
    noise: float  # the larger standard deviation over seeds of the two

    @property
    def behind(self) -> float:
        return self.at_nearest - self.at_best


def _found(sweep: _Sweep, measure: str) -> _Found | None:
    means = sweep.means(measure)
    if sweep.nearest not in means:
        return None
    best = min(means, key=lambda gamma: means[gamma])
    spreads = [stdev(values) for gamma in (best, sweep.nearest) if len(values := sweep.values(gamma, measure)) > 1]
    at_nearest = means[sweep.nearest]
    return _Found(
        nearest=sweep.nearest,
        at_nearest=at_nearest,
        best=best,
        at_best=means[best],
        rank=1 + sum(mean < at_nearest for mean in means.values()),
        at_suggestion=_interpolated(means, sweep.suggestion),
        noise=max(spreads, default=0.0),
    )


def _temperatures(sweep: _Sweep, gamma: float) -> list[float]:
    """The temperatures by NLL that the runs of a gamma still need."""
    found = (run.fits.get("ts-nll", {}).get("temperature") for run in sweep.evidence.of(sweep.methods[gamma]))
    return [value for value in found if value is not None]


# --- the page --------------------------------------------------------------------------------------------------------


def page(evidence: All) -> str:
    """The page's Markdown."""
    sweeps = _sweeps(evidence)
    parts = [f"# {TITLE}\n", _opening(sweeps), *map(_section, sweeps), _picture(sweeps), _READING]
    return "\n".join(part for part in parts if part) + _left_out(sweeps)


def _opening(sweeps: Sequence[_Sweep]) -> str:
    if not sweeps:
        return "There is no sweep of training gammas with a suggestion to compare.\n"
    return "".join(f"{sweep.title}: {_verdict(sweep)}" for sweep in sweeps[:1]) + _other_verdicts(sweeps[1:])


def _other_verdicts(sweeps: Sequence[_Sweep]) -> str:
    found = [(sweep, result) for sweep in sweeps if (result := _found(sweep, "ece_ew")) is not None]
    parts = [
        f"{sweep.title}: suggested {sweep.suggestion:.1f}, lowest ECE at {result.best:g} of {_gammas(sweep)}"
        for sweep, result in found
    ]
    return f"{'; '.join(parts)}.\n" if parts else ""


def _gammas(sweep: _Sweep) -> str:
    return ", ".join(f"{gamma:g}" for gamma in sweep.methods)


def _verdict(sweep: _Sweep) -> str:
    """What came of following the suggestion, by ECE, in words that the numbers choose."""
    found = _found(sweep, "ece_ew")
    if found is None:
        return ""
    away = abs(found.nearest - sweep.suggestion)
    return (
        f"cross-entropy runs suggest gamma {_suggestions(sweep)}; the nearest trained gamma, {found.nearest:g}"
        f" ({away:.2f} away), has an ECE of {found.at_nearest:.2f} %, rank {found.rank} of {len(sweep.methods)}.\n"
        f"{_against_best(sweep, found)}{_against_none(sweep, found)}"
    )


def _suggestions(sweep: _Sweep) -> str:
    values = list(sweep.suggested.values())
    mean = f"{sweep.suggestion:.2f}"
    return f"{mean} ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else mean


def _against_best(sweep: _Sweep, found: _Found) -> str:
    if found.best == found.nearest:
        return f"No other gamma of the sweep ({_gammas(sweep)}) has a lower ECE.\n"
    side = "larger" if found.best > sweep.suggestion else "smaller"
    noise = "within" if found.behind <= found.noise else "more than"
    away = abs(found.best - sweep.suggestion)
    return (
        f"The lowest ECE, {found.at_best:.2f} %, is at a {side} gamma, {found.best:g} ({away:.2f} away):"
        f" {found.behind:.2f} points lower, {noise} the standard deviation over seeds ({found.noise:.2f}).\n"
    )


def _against_none(sweep: _Sweep, found: _Found) -> str:
    """How much of what a gamma can gain over cross-entropy the suggestion gains."""
    plain = sweep.means("ece_ew").get(0.0)
    if plain is None or found.nearest == 0:
        return ""
    gain, possible = plain - found.at_nearest, plain - found.at_best
    if gain <= 0:
        return f"Cross-entropy itself has {plain:.2f} %: the suggestion does not lower ECE.\n"
    share = 100 * gain / possible
    return f"Cross-entropy itself has {plain:.2f} %: the suggestion gains {share:.0f} % of what the best gamma gains.\n"


def _section(sweep: _Sweep) -> str:
    parts = [f"## {sweep.title[:1].upper()}{sweep.title[1:]}\n", _sweep_table(sweep), _place_table(sweep)]
    return "\n".join([*parts, _seeds_table(sweep)])


def _sweep_table(sweep: _Sweep) -> str:
    methods = list(sweep.methods.values())
    columns = [cells(sweep.evidence, methods, "pre", measure) for measure in _MEASURES]
    columns.append([spread(_temperatures(sweep, gamma)) for gamma in sweep.methods])
    rows = ([method_name(method), *row] for method, row in zip(methods, zip(*columns, strict=True), strict=True))
    headings = ["loss", *(MEASURES[measure][0] for measure in _MEASURES), "T by NLL"]
    lead = "As trained, mean ± standard deviation over seeds; the lowest mean is bold.\n"
    return f"{lead}{_temperature_sentence(sweep)}\n{table(headings, rows)}"


def _temperature_sentence(sweep: _Sweep) -> str:
    """Whether the rule reaches its own aim: a network that needs no temperature."""
    found = {gamma: fmean(values) for gamma in sweep.methods if (values := _temperatures(sweep, gamma))}
    if sweep.nearest not in found:
        return ""
    closest = min(found, key=lambda gamma: abs(found[gamma] - 1))
    text = (
        f"The rule aims at a temperature of 1: at gamma {sweep.nearest:g}, the nearest to the suggestion, T by NLL is"
        f" {found[sweep.nearest]:.2f}"
    )
    if closest == sweep.nearest:
        return f"{text}, the closest to 1 in the sweep.\n"
    return f"{text}; it is closest to 1 at gamma {closest:g} ({found[closest]:.2f}).\n"


def _place_table(sweep: _Sweep) -> str:
    rows = []
    for measure, name in _MEASURES.items():
        if (found := _found(sweep, measure)) is not None:
            rows.append([name, *_place_cells(sweep, found, MEASURES[measure][2])])
    between = "values there are on straight lines between trained gammas"
    outside = "outside the sweep, so that nothing can be read between trained gammas"
    lead = f"Where the mean suggestion, {sweep.suggestion:.2f}, falls: {between if _inside(sweep) else outside}.\n"
    headings = ["by", "best gamma", "best", f"at {sweep.nearest:g}, nearest", "rank", "above best", "at suggestion"]
    return f"{lead}\n{table(headings, rows)}"


def _inside(sweep: _Sweep) -> bool:
    return min(sweep.methods) <= sweep.suggestion <= max(sweep.methods)


def _place_cells(sweep: _Sweep, found: _Found, digits: int) -> list[str]:
    values = [found.at_best, found.at_nearest, found.behind]
    best, nearest, behind = (f"{value:.{digits}f}" for value in values)
    at_suggestion = "" if found.at_suggestion is None else f"{found.at_suggestion:.{digits}f}"
    return [f"{found.best:g}", best, nearest, f"{found.rank} of {len(sweep.methods)}", behind, at_suggestion]


def _seeds_table(sweep: _Sweep) -> str:
    rows = []
    better = []
    for seed, suggested in sweep.suggested.items():
        eces = _of_seed(sweep, seed)
        nearest, best = _nearest(list(sweep.methods), suggested), min(eces, key=lambda gamma: eces[gamma], default=None)
        if best is None or nearest not in eces:
            continue
        better.append(eces[nearest] < eces.get(0.0, eces[nearest]))
        numbers = [f"{nearest:g}", f"{eces[nearest]:.2f}", f"{best:g}", f"{eces[best]:.2f}"]
        rows.append([f"{seed}", _temperature_of(sweep, seed), f"{suggested:.2f}", *numbers])
    if not rows:
        return ""
    lead = (
        f"Seed by seed: in {sum(better)} of {len(better)} the gamma nearest to the suggestion has a lower ECE than"
        " cross-entropy.\n"
    )
    headings = ["seed", "T of CE by NLL", "suggested", "nearest", "its ECE, %", "best", "its ECE, %"]
    return f"{lead}\n{table(headings, rows, words=0)}"


def _of_seed(sweep: _Sweep, seed: int) -> dict[float, float]:
    """ECE of each gamma with one seed, in percent."""
    found = {}
    for gamma, method in sweep.methods.items():
        for run in sweep.evidence.of(method):
            value = (run.phases.get("pre", {}).get("ece_ew") or [None])[0]
            if run.seed == seed and value is not None:
                found[gamma] = 100 * value
    return found


def _temperature_of(sweep: _Sweep, seed: int) -> str:
    runs: list[RunEvidence] = [run for run in sweep.evidence.of("ce") if run.seed == seed]
    found = [run.fits.get("ts-nll", {}).get("temperature") for run in runs]
    return f"{found[0]:.2f}" if found and found[0] is not None else ""


def _picture(sweeps: Sequence[_Sweep]) -> str:
    if not sweeps:
        return ""
    alt = "ECE and NLL against the training gamma, with the suggested gammas marked on top"
    caption = "Means over seeds and their range. A triangle is what one cross-entropy run suggests, its line the mean."
    return f"![{alt}](images/{_FIGURE}.svg)\n\n{caption}\n"


_READING = """\
## How to read this

The rule (`focalcal.suggest_gamma`) is made from komisarenko2024, Sec. 4.1: a focal network is softer than its own
calibrated probabilities by about a temperature, so the gamma is taken whose temperature cancels that of a cross-entropy
network on validation rows. The paper does not test such a rule.
It suggests 20 at most. Gamma 0 is cross-entropy.
ECE has 15 bins; small differences of ECE between neighbouring gammas may be noise.
"""


def _left_out(sweeps: Sequence[_Sweep]) -> str:
    there = {sweep.evidence.name for sweep in sweeps}
    missing = [TITLES[name] for name in IMAGES if name not in there]
    if not missing:
        return ""
    return f"Left out, for want of {_FEWEST} trained gammas or of a suggestion: {'; '.join(missing)}.\n"


# --- figures ---------------------------------------------------------------------------------------------------------


def figures(evidence: All) -> dict[str, Any]:
    """The page's figure by its file name."""
    sweeps = _sweeps(evidence)
    return {_FIGURE: _figure(sweeps)} if sweeps else {}


def _figure(sweeps: Sequence[_Sweep]) -> Any:
    from focalcal import drawing as look

    figure = look.new_figure(look.COLUMN, 4.2)
    upper, lower = figure.subplots(2, sharex=True)
    for place, sweep in enumerate(sweeps):
        style = {"color": look.PALETTE[place], "marker": "osD"[place % 3], "linestyle": ("-", "--", ":")[place % 3]}
        for ax, measure in ((upper, "ece_ew"), (lower, "nll")):
            _draw(ax, sweep, measure, style)
            _mark(ax, sweep, style, 0.97 - 0.06 * place)
    look.style(upper, ylabel="ECE, %")
    look.style(lower, xlabel="training gamma (0 is cross-entropy)", ylabel="NLL, nats")
    for ax in (upper, lower):
        ax.grid(color=look.GRID)
    handles = [line for line in lower.lines if line.get_marker() in ("o", "s", "D")]
    look.legend(lower, handles, [sweep.title for sweep in sweeps], under=True, columns=1)
    return figure


def _draw(ax: Any, sweep: _Sweep, measure: str, style: dict[str, str]) -> None:
    """The mean of a measure over seeds with their range."""
    ax.margins(y=0.22)  # room for marks on top
    means = sweep.means(measure)
    ranges = [sweep.values(gamma, measure) for gamma in means]
    ax.fill_between(list(means), list(map(min, ranges)), list(map(max, ranges)), color=style["color"], alpha=0.15, lw=0)
    ax.plot(list(means), list(means.values()), linewidth=1.2, markersize=3.5, **style)


def _mark(ax: Any, sweep: _Sweep, style: dict[str, str], height: float) -> None:
    """What the seeds suggest, as triangles at a height of their own, and the mean."""
    ax.axvline(sweep.suggestion, color=style["color"], linewidth=0.7, linestyle=style["linestyle"])
    where = {"transform": ax.get_xaxis_transform(), "color": style["color"], "markeredgecolor": "white"}
    ax.plot(list(sweep.suggested.values()), [height] * len(sweep.suggested), "v", markersize=5, mew=0.4, **where)
