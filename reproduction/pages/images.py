"""Images with little and with more data: every loss before and after temperature scaling, and the best gamma."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple

from focalcal import drawing as look
from reproduction.labels import (
    IMAGES,
    LITTLE,
    LITTLE_20,
    MORE,
    PHASES,
    All,
    bullets,
    found_of,
    gamma_of,
    joined,
    listed,
    method_name,
    over_seeds,
    spread,
    table,
    title_of,
)
from reproduction.pages.losses import (
    COMPARE,
    agreement,
    by_seed,
    draw_mean,
    how_to_read,
    section,
    summary,
    temperatures,
)
from reproduction.result_files import Evidence, RunEvidence

TITLE = "Images: every loss, and the best gamma"

_LOSSES_FIGURE = (
    "![ECE of every loss, a panel a recipe: as trained and after temperature scaling by NLL](images/image_losses.svg)",
    "ECE of every loss as trained and after temperature scaling by NLL: a dot a seed, a bar the mean (compare"
    " mukhoti2020, Tables 1 and 5; ghosh2022, Table 1).",
)


def page(evidence: All) -> str:
    """The page about images."""
    there, missing = found_of(evidence, IMAGES)
    parts = [f"# {TITLE}", *summary(there), *_psi_summary(there), *missing]
    if there:
        parts += [COMPARE, *chain.from_iterable(map(section, there)), *_LOSSES_FIGURE]
        parts += [*temperatures(there), *agreement(there), *_psi_section(there), *how_to_read(there)]
    return joined(parts)


def figures(evidence: All) -> dict[str, Any]:
    """ECE by loss, and ECE by gamma."""
    there, _ = found_of(evidence, IMAGES)
    swept = [each for each in there if len(gammas_of(each)) > 1]
    found = {"image_losses": _draw_losses(there)} if there else {}
    return {**found, "image_gammas": _draw_gammas(swept)} if swept else found


# --- the map Psi^gamma and the best gamma


def gammas_of(evidence: Evidence) -> dict[float, str]:
    """The methods with one fixed gamma by it; cross-entropy has gamma 0."""
    found = {gamma_of(method): method for method in evidence.methods}
    return {gamma: found[gamma] for gamma in sorted(each for each in found if each is not None)}


def _eces(evidence: Evidence, gamma: float, phase: str) -> dict[int, float]:
    """ECE by seed; Psi^0 is the identity, and result files leave it out."""
    if gamma == 0:
        phase = {"psi": "pre", "ts-fl+psi": "ts-fl"}.get(phase, phase)
    return by_seed(evidence, gammas_of(evidence)[gamma], phase, "ece_ew")


_SWEPT = ("pre", "psi", "ts-fl", "ts-fl+psi")


def _psi_section(there: Sequence[Evidence]) -> list[str]:
    swept = [each for each in there if len(gammas_of(each)) > 1]
    if not swept:
        return ["There are not two gammas to compare: Psi^gamma and the best gamma are left out."]
    return [
        "## More data, larger network: Psi^gamma and the best gamma",
        "If a network reached the minimum of the focal risk, Psi^gamma would give the true probabilities"
        " (charoenphakdee2021, Thm. 11). In that paper it helps less as data shrink and as the network grows"
        " (sec. 6.2, Figs. 4 to 6), and the gamma with the lowest raw ECE grows. Gamma 0 is cross-entropy, for which"
        " Psi^gamma changes nothing. *Significantly* means that the paired 95 % bootstrap interval of a difference,"
        " over the test rows, lies on one side of 0.",
        *chain.from_iterable(_sweep(each) for each in swept),
        *_effects(swept),
        *_best_section(swept),
        "![ECE against gamma, one panel a recipe: as trained and after Psi^gamma](images/image_gammas.svg)",
        "ECE against gamma, as trained and after Psi^gamma: the mean over seeds, and the range of the seeds"
        " (compare charoenphakdee2021, Fig. 5).",
    ]


def _sweep(evidence: Evidence) -> list[str]:
    gammas = gammas_of(evidence)
    columns = [_bold_lowest([list(_eces(evidence, gamma, phase).values()) for gamma in gammas]) for phase in _SWEPT]
    changes = [_changes(evidence.of(method), "psi") for method in gammas.values()]
    rows = [
        [f"{gamma:g}", *(column[place] for column in columns), _shift(changes[place]), _sides(changes[place])]
        for place, gamma in enumerate(gammas)
    ]
    absent = [f"{gamma:g}" for gamma, found in zip(gammas, changes, strict=True) if gamma > 0 and not found]
    headings = ["gamma", *(PHASES[phase] for phase in _SWEPT), "Psi^gamma - as trained, points", "better, worse"]
    return [
        f"### {title_of(evidence)}",
        "ECE, %, and the paired difference with the number of runs that are significantly better and worse:",
        table(headings, rows, words=0).rstrip("\n"),
        f"Without a comparison with Psi^gamma: gamma {listed(absent)}." if absent else "",
    ]


def _bold_lowest(columns: Sequence[Sequence[float]]) -> list[str]:
    """Cells of means and spreads of ECEs, the lowest mean in bold."""
    rounded = [round(fmean(each), 2) for each in columns if each]
    return [spread(each, bold=bool(each) and round(fmean(each), 2) == min(rounded)) for each in columns]


class _Change(NamedTuple):
    """A paired difference of ECEs and its 95 % interval, in points."""

    value: float
    low: float
    high: float


def _changes(runs: Iterable[RunEvidence], phase: str) -> list[_Change]:
    found = (run.pairs.get(f"{phase} - pre", {}).get("ece_ew") for run in runs)
    return [_Change(*(100 * each for each in pair[:3])) for pair in found if pair is not None]


def _shift(changes: Sequence[_Change]) -> str:
    return f"{fmean(each.value for each in changes):+.2f}" if changes else ""


def _sides(changes: Sequence[_Change]) -> str:
    return f"{_better(changes)}, {_worse(changes)} of {len(changes)}" if changes else ""


def _better(changes: Sequence[_Change]) -> int:
    return sum(each.high < 0 for each in changes)


def _worse(changes: Sequence[_Change]) -> int:
    return sum(each.low > 0 for each in changes)


def _focal_changes(there: Iterable[Evidence], phase: str) -> list[_Change]:
    """The changes of all runs with a fixed gamma above 0."""
    methods = ((each, method) for each in there for gamma, method in gammas_of(each).items() if gamma > 0)
    return [change for each, method in methods for change in _changes(each.of(method), phase)]


def _effects(swept: Sequence[Evidence]) -> list[str]:
    """What Psi^gamma and TS_FL do to the ECE of runs with a focal loss, recipe by recipe and in all."""
    rows = [
        [title_of(each), PHASES[phase], _shift(changes), f"{_better(changes)}", f"{_worse(changes)}", f"{len(changes)}"]
        for each in swept
        for phase in _SWEPT[1:]
        if (changes := _focal_changes([each], phase))
    ]
    if not rows:
        return []
    return [
        "### What the maps do to ECE",
        "All runs with a focal loss: the mean change against the network as trained, and how many runs are"
        " significantly better and worse.",
        table(["recipe", "map", "mean change, points", "better", "worse", "runs"], rows, words=2).rstrip("\n"),
        bullets(_effect(swept, phase) for phase in _SWEPT[1:]),
    ]


# What charoenphakdee2021 finds.
_PAPER = {
    "psi": "on CIFAR-10 it raises it, on SVHN it lowers it; sec. 6.2",
    "ts-fl": "it raises it; Fig. 4",
    "ts-fl+psi": "it lowers it; Fig. 4",
}


def _effect(swept: Sequence[Evidence], phase: str) -> str:
    changes = _focal_changes(swept, phase)
    if not changes:
        return ""
    return (
        f"{PHASES[phase]}: ECE is significantly lower in {_better(changes)} and significantly higher in"
        f" {_worse(changes)} of all {len(changes)} runs (charoenphakdee2021: {_PAPER[phase]})."
    )


def _psi_summary(there: Sequence[Evidence]) -> list[str]:
    changes = _focal_changes(there, "psi")
    if not changes:
        return []
    return [
        f"Psi^gamma makes ECE significantly lower in {_better(changes)} and significantly higher in {_worse(changes)}"
        f" of {len(changes)} runs with a focal loss."
    ]


class _Best(NamedTuple):
    """A recipe's best gammas, and what Psi^gamma does at the gammas that all recipes have."""

    evidence: Evidence
    raw: float
    mapped: float | None
    of_seeds: list[float]
    of_all: float
    changes: dict[float, float]

    @property
    def change(self) -> float | None:
        """The mean change by Psi^gamma."""
        return fmean(self.changes.values()) if self.changes else None


def _best_section(swept: Sequence[Evidence]) -> list[str]:
    """The gamma with the lowest ECE by recipe, and how it moves with data and network."""
    common = [gamma for gamma in gammas_of(swept[0]) if all(gamma in gammas_of(each) for each in swept)]
    found = {each.name: best for each in swept if (best := _best(each, common)) is not None}
    if len(common) < 2 or not found:
        return []
    range_ = f"{common[0]:g} to {common[-1]:g}"
    headings = ["recipe", "epochs, steps", f"best gamma of {range_}", "in each seed", "of all tried"]
    headings += [f"after Psi^gamma, of {range_}", "mean change by Psi^gamma, points"]
    return [
        "### The best gamma",
        f"The gamma with the lowest ECE, of those that all recipes have ({listed([f'{each:g}' for each in common])}),"
        " and how far Psi^gamma changes ECE at those above 0:",
        table(headings, [_best_row(best) for best in found.values()]).rstrip("\n"),
        bullets(
            [
                *_compared(found.get(MORE), found.get(LITTLE), "With less data", common[-1]),
                *_compared(found.get(LITTLE), found.get(LITTLE_20), "With the larger network", common[-1]),
                "The paper's best gammas are 0 for ResNet-8, 1 for ResNet-20 and 2 for ResNet-110 on CIFAR-10, and 3"
                " for ResNet-110 on a tenth of it (charoenphakdee2021, Fig. 5).",
                "The recipes also differ in how long they train (second column): data and network are not all that"
                " changes."
                if len({_length(best.evidence) for best in found.values()}) > 1
                else "",
            ]
        ),
    ]


def _best(evidence: Evidence, common: Sequence[float]) -> _Best | None:
    raw = {gamma: _eces(evidence, gamma, "pre") for gamma in gammas_of(evidence)}
    known = [gamma for gamma in common if raw[gamma]]
    if not known:
        return None
    mapped = {gamma: found for gamma in common if (found := list(_eces(evidence, gamma, "psi").values()))}
    seeds = sorted(set.intersection(*(set(raw[gamma]) for gamma in known)))
    changes = {gamma: _changes(evidence.of(gammas_of(evidence)[gamma]), "psi") for gamma in known if gamma > 0}
    return _Best(
        evidence,
        raw=min(known, key=lambda gamma: fmean(raw[gamma].values())),
        mapped=min(mapped, key=lambda gamma: fmean(mapped[gamma]), default=None),
        of_seeds=[min(known, key=lambda gamma: raw[gamma][seed]) for seed in seeds],
        of_all=min((gamma for gamma in raw if raw[gamma]), key=lambda gamma: fmean(raw[gamma].values())),
        changes={gamma: fmean(each.value for each in found) for gamma, found in changes.items() if found},
    )


def _best_row(best: _Best) -> list[str]:
    epochs, steps = _length(best.evidence)
    gammas = list(gammas_of(best.evidence))
    return [
        title_of(best.evidence),
        f"{epochs}, {steps:,}",
        f"{best.raw:g}",
        ", ".join(f"{each:g}" for each in best.of_seeds),
        f"{best.of_all:g} of {gammas[0]:g} to {gammas[-1]:g}",
        "" if best.mapped is None else f"{best.mapped:g}",
        "" if best.change is None else f"{best.change:+.2f}",
    ]


def _length(evidence: Evidence) -> tuple[int, int]:
    """Epochs and steps of a training."""
    training = evidence.recipe["training"]
    return training["epochs"], training["epochs"] * math.ceil(evidence.sizes[0] / training["batch_size"])


def _compared(before: _Best | None, after: _Best | None, what: str, largest: float) -> list[str]:
    """How the best gamma and the effect of Psi^gamma move from one recipe to another, beside what the paper says."""
    if before is None or after is None:
        return []
    way = f"from {title_of(before.evidence)} to {title_of(after.evidence)}"
    if after.raw == before.raw:
        moved = f"stays at {after.raw:g}" + (", the largest that both have" if after.raw == largest else "")
    else:
        moved = f"{'grows' if after.raw > before.raw else 'falls'} from {before.raw:g} to {after.raw:g}"
    sentences = [f"{what} ({way}) the best gamma {moved}; in the paper it grows."]
    gammas = before.changes.keys() & after.changes.keys()
    if gammas:
        less = sum(after.changes[gamma] > before.changes[gamma] for gamma in gammas)
        values = [fmean(each.changes[gamma] for gamma in gammas) for each in (after, before)]
        sentences.append(
            f"{what} Psi^gamma helps less at {less} of {len(gammas)} gammas: it changes ECE by {values[0]:+.2f} instead"
            f" of {values[1]:+.2f} points in the mean; in the paper it helps less."
        )
    return sentences


# --- figures


def _draw_losses(there: Sequence[Evidence]) -> Any:
    methods = list(dict.fromkeys(method for evidence in there for method in evidence.methods))
    figure = look.new_figure(2 * look.COLUMN, 1.0 + 0.2 * len(methods))
    panels = figure.subplots(1, len(there), sharex=True, sharey=True, squeeze=False)[0]
    handles: list[Any] = []
    for ax, evidence in zip(panels, there, strict=True):
        handles = [
            _dots(ax, evidence, methods, phase, offset=offset, colour=colour, marker=marker)
            for phase, offset, colour, marker in (("pre", -0.17, look.BLUE, "o"), ("ts-nll", 0.17, look.VERMILION, "D"))
        ]
        ax.grid(axis="y", color=look.GRID)
        look.percent(ax.xaxis, 4)
        look.style(ax, title=title_of(evidence), xlabel="ECE")
    panels[0].set_xlim(left=0)  # of all panels, and so only when all have been drawn
    look.rows_of_names(panels[0], [method_name(method) for method in methods])
    look.legend(panels[0], handles, [PHASES["pre"], PHASES["ts-nll"]], under=True)
    return figure


def _dots(
    ax: Any, evidence: Evidence, methods: Sequence[str], phase: str, *, offset: float, colour: str, marker: str
) -> Any:
    """A row of dots a method, and a bar at their mean; the dots of one method, for a legend."""
    dots: Any = None
    values = [[each / 100 for each in over_seeds(evidence, method, phase, "ece_ew")] for method in methods]
    for place, row in enumerate(values):
        (drawn,) = ax.plot(row, [place + offset] * len(row), marker, color=colour, markersize=2.8, alpha=0.7, mew=0)
        dots = dots or drawn
        if row:
            ax.plot(fmean(row), place + offset, "|", color=colour, markersize=8, mew=1.3)
    return dots


def _draw_gammas(swept: Sequence[Evidence]) -> Any:
    figure = look.new_figure(2 * look.COLUMN, 2.5)
    widths = [max(gammas_of(each)) - min(gammas_of(each)) + 0.6 for each in swept]
    panels = figure.subplots(1, len(swept), sharey=True, squeeze=False, width_ratios=widths)[0]
    handles: list[Any] = []
    for ax, evidence in zip(panels, swept, strict=True):
        handles = [
            _line(ax, evidence, phase, color=colour, linestyle=line, marker=marker)
            for phase, colour, line, marker in (("pre", look.BLUE, "-", "o"), ("psi", look.VERMILION, "--", "s"))
        ]
        gammas = list(gammas_of(evidence))
        ax.set_xticks(gammas)
        ax.set_xlim(gammas[0] - 0.3, gammas[-1] + 0.3)
        title = title_of(evidence).replace(" on ", "\non ")  # a panel of few gammas is narrow
        look.style(ax, title=title, xlabel="gamma", ylabel="ECE" if ax is panels[0] else "")
    panels[0].set_ylim(bottom=0)
    look.percent(panels[0].yaxis)
    look.legend(panels[0], handles, [PHASES["pre"], PHASES["psi"]], under=True)
    return figure


def _line(ax: Any, evidence: Evidence, phase: str, **line: Any) -> Any:
    """The mean over seeds against gamma, and the range of the seeds."""
    found = {gamma: [each / 100 for each in _eces(evidence, gamma, phase).values()] for gamma in gammas_of(evidence)}
    return draw_mean({gamma: values for gamma, values in found.items() if values}, ax, **line)
