"""How far predictions are from what people say: CIFAR-10H before and after calibrators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from focalcal.drawing import BLUE, COLUMN, GREY, VERMILION, legend, new_figure, rows_of_names, style
from reproduction.labels import (
    IMAGES,
    NETWORKS,
    PHASES,
    TITLES,
    All,
    bullets,
    capital,
    how_many,
    method_name,
    spread,
    table,
)
from reproduction.result_files import Evidence, RunEvidence

TITLE = "Against people's answers"

_RECIPES = (*IMAGES, NETWORKS)
_PHASES = ("pre", "ts-nll", "fts", "ets", "spline", "psi")
# Measures: words, what they are multiplied by, and the digits to show.
_MEASURES = {"kl": ("KL, nats", 1, 3), "ece": ("ECE to people, %", 100, 2)}
_STEM = "human_kl"


def page(evidence: All) -> str:
    """The page: which calibrator comes closest, whether labels are a fair stand-in, and all tables."""
    there = _there(evidence)
    parts = [f"# {TITLE}", _summary(there), _left_out(there)]
    if there:
        parts += [part for title, group in _groups(there) for part in _calibrators(title, group)]
        parts += ["## What the numbers say", bullets(_sentences(_runs(there)))]
        parts += [part for each in there for part in _tables(each)]
        parts += [_IMAGE if _drawn(there) else "", _READING]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def figures(evidence: All) -> dict[str, Any]:
    """The figure by file name: KL before and after temperature scaling of every loss and network."""
    there = _drawn(_there(evidence))
    return {_STEM: _draw(there)} if there else {}


# What there is.


def _there(evidence: All) -> list[Evidence]:
    known = (evidence[name] for name in _RECIPES if name in evidence)
    return [each for each in known if any(run.human for run in each.runs)]


def _left_out(there: Sequence[Evidence]) -> str:
    missing = [TITLES[name] for name in _RECIPES if name not in {each.name for each in there}]
    return f"Without results here, and left out: {'; '.join(missing)}." if missing else ""


def _runs(there: Sequence[Evidence]) -> list[RunEvidence]:
    return [run for each in there for run in each.runs if run.human]


def _groups(there: Sequence[Evidence]) -> list[tuple[str, list[RunEvidence]]]:
    """The runs of networks trained here, and published networks."""
    trained, published = ([each for each in there if (each.name == NETWORKS) is known] for known in (False, True))
    found = (("Networks trained here", _runs(trained)), ("Published networks", _runs(published)))
    return [(title, runs) for title, runs in found if runs]


def _value(run: RunEvidence, phase: str, measure: str) -> float | None:
    """A number of a phase in the units of tables; None where there is none, or where it is not finite."""
    found = run.human.get(phase, {}).get(measure)
    return None if found is None else _MEASURES[measure][1] * found


def _over_seeds(evidence: Evidence, method: str, phase: str, measure: str) -> list[float]:
    found = (_value(run, phase, measure) for run in evidence.of(method))
    return [value for value in found if value is not None]


def _changes(runs: Sequence[RunEvidence], phase: str, measure: str) -> list[tuple[float, float]]:
    """A measure as trained and after a calibrator, of every run that has both."""
    found = ((_value(run, "pre", measure), _value(run, phase, measure)) for run in runs)
    return [(before, after) for before, after in found if before is not None and after is not None]


def _closest(runs: Sequence[RunEvidence], measure: str) -> dict[str, int]:
    """In how many runs each phase has the lowest value."""
    found = dict.fromkeys(_PHASES, 0)
    for run in runs:
        values = {phase: value for phase in _PHASES if (value := _value(run, phase, measure)) is not None}
        if values:
            found[min(values, key=lambda phase: values[phase])] += 1
    return found


# Sentences.


def _lowered(pairs: Sequence[tuple[float, float]], digits: int, unit: str) -> str:
    """In how many runs a number falls, and its means: "3 of 4 runs (1.20 to 1.10 nats on average)"."""
    before, after = (fmean(column) for column in zip(*pairs, strict=True))
    counted = how_many([second < first for first, second in pairs])
    return f"{counted} ({before:.{digits}f} to {after:.{digits}f} {unit} on average)"


def _summary(there: Sequence[Evidence]) -> str:
    if not there:
        return "There is no result file that compares with people's answers yet."
    runs, sentences = _runs(there), []
    if pairs := _changes(runs, "ts-nll", "kl"):
        sentences.append(
            "Temperature scaling by NLL, fitted to labels, lowers the divergence of predictions from people's answers "
            f"in {_lowered(pairs, 3, 'nats')}."
        )
    if any(counts := list(_closest(runs, "kl").values())):
        most = [PHASES[phase] for phase, count in zip(_PHASES, counts, strict=True) if count == max(counts)]
        sentences.append(f"Most often closest: {' and '.join(most)}, in {max(counts)} of {sum(counts)} runs.")
    return " ".join(sentences)


def _sentences(runs: Sequence[RunEvidence]) -> Iterator[str]:
    yield from _labels_and_people(runs)
    if pairs := _changes(runs, "ts-nll", "ece"):
        yield f"ECE to people falls with TS by NLL in {_lowered(pairs, 2, '%')}."
    if pairs := _pairs(runs, "gap"):
        yield (
            "The distance between confidence and people's share of the predicted class, image by image, falls with TS "
            f"by NLL in {_lowered([(100 * before, 100 * after) for before, after in pairs], 1, 'points')}."
        )
    yield from _agreement(runs)
    yield from _infinite(runs)


def _infinite(runs: Sequence[RunEvidence]) -> Iterator[str]:
    """Where a class that people gave has a probability of 0."""
    there = ((phase, run) for phase in _PHASES for run in runs if phase in run.human)
    found = [PHASES[phase] for phase, run in there if _value(run, phase, "kl") is None]
    if found:
        told = ", ".join(f"{name} in {found.count(name)}" for name in dict.fromkeys(found))
        yield f"Runs without a finite KL, which tables leave out: {told}."


def _labels_and_people(runs: Sequence[RunEvidence]) -> Iterator[str]:
    """Whether what lowers the NLL of labels also lowers the divergence from people."""
    for phase in _PHASES[1:]:
        both = [
            (nll, after < before)
            for run in runs
            if (nll := _nll_falls(run, phase)) is not None and (pair := _changes([run], phase, "kl"))
            for before, after in pair
        ]
        if both:
            told = [people for labels, people in both if labels]
            then = f"; of those, KL to people falls in {how_many(told)}" if told else ""
            yield f"{PHASES[phase]}: NLL of the test labels falls in {how_many([nll for nll, _ in both])}{then}."


def _nll_falls(run: RunEvidence, phase: str) -> bool | None:
    values = [run.phases.get(each, {}).get("nll", [None])[0] for each in ("pre", phase)]
    before, after = values
    return None if before is None or after is None else after < before


def _pairs(runs: Sequence[RunEvidence], measure: str) -> list[tuple[float, float]]:
    """A measure as trained and after temperature scaling, as in the files."""
    found = ([run.human.get(phase, {}).get(measure) for phase in ("pre", "ts-nll")] for run in runs)
    return [(before, after) for before, after in found if before is not None and after is not None]


def _agreement(runs: Sequence[RunEvidence]) -> Iterator[str]:
    shares = [100 * share for run in runs if (share := run.human.get("pre", {}).get("agreement")) is not None]
    if shares:
        yield (
            f"The predicted class has {fmean(shares):.1f} % of people's answers on average over runs "
            f"({min(shares):.1f} to {max(shares):.1f} %)."
        )


# Tables.


def _calibrators(title: str, runs: Sequence[RunEvidence]) -> Iterator[str]:
    """Each calibrator over all runs of a group."""
    closest = {measure: _closest(runs, measure) for measure in _MEASURES}
    yield f"## {title}: which calibrator comes closest"
    yield table(
        ["calibrator", "runs", "KL falls", "mean change, nats", "lowest KL", "ECE falls", "lowest ECE"],
        (row for phase in _PHASES if (row := _calibrator(runs, phase, closest))),
    )


def _calibrator(runs: Sequence[RunEvidence], phase: str, closest: Mapping[str, Mapping[str, int]]) -> list[str]:
    number = sum(phase in run.human for run in runs)
    lowest = [str(closest[measure][phase]) for measure in ("kl", "ece")]
    if not number:
        return []
    if phase == "pre":
        return [PHASES[phase], str(number), "", "", lowest[0], "", lowest[1]]
    kl, ece = (_changes(runs, phase, measure) for measure in ("kl", "ece"))
    change = f"{fmean(after - before for before, after in kl):+.3f}" if kl else ""
    fallen = [str(sum(after < before for before, after in pairs)) for pairs in (kl, ece)]
    return [PHASES[phase], str(number), fallen[0], change, lowest[0], fallen[1], lowest[1]]


def _tables(evidence: Evidence) -> Iterator[str]:
    """The measures by loss or network, and phase."""
    phases = [phase for phase in _PHASES if any(phase in run.human for run in evidence.runs)]
    methods = [method for method in evidence.methods if any(run.human for run in evidence.of(method))]
    first = "network" if evidence.name == NETWORKS else "loss"
    yield f"## {capital(TITLES[evidence.name])}"
    for measure, (words, _, digits) in _MEASURES.items():
        rows = [_row(evidence, method, phases, measure, digits) for method in methods]
        yield f"{words}:"
        yield table([first, *(PHASES[phase] for phase in phases)], rows)
    yield " ".join(_lowest(evidence, methods, phase) for phase in ("pre", "ts-nll"))
    missing = [_shown(evidence, method) for method in evidence.recipe["methods"] if method not in methods]
    absent = [PHASES[phase] for phase in _PHASES if phase not in phases]
    if missing or absent:
        yield f"Not measured here: {', '.join(missing + absent)}."


def _lowest(evidence: Evidence, methods: Sequence[str], phase: str) -> str:
    """The losses or networks with the lowest and the highest mean KL of a phase."""
    means = {method: fmean(values) for method in methods if (values := _over_seeds(evidence, method, phase, "kl"))}
    if len(set(means.values())) < 2:
        return ""
    low, high = (end(means, key=lambda method: means[method]) for end in (min, max))
    when = "As trained" if phase == "pre" else f"After {PHASES[phase]}"
    return (
        f"{when}, mean KL is lowest with {_shown(evidence, low)} ({means[low]:.3f}) and highest with "
        f"{_shown(evidence, high)} ({means[high]:.3f})."
    )


def _row(evidence: Evidence, method: str, phases: Sequence[str], measure: str, digits: int) -> list[str]:
    """The lowest mean of a row is bold: the calibrator that comes closest."""
    values = [_over_seeds(evidence, method, phase, measure) for phase in phases]
    means = [round(fmean(each), digits) for each in values if each]
    cells = (spread(each, digits, bold=bool(each) and round(fmean(each), digits) == min(means)) for each in values)
    return [_shown(evidence, method), *cells]


def _shown(evidence: Evidence, method: str) -> str:
    return method if evidence.name == NETWORKS else method_name(method)


# The figure.


def _drawn(there: Sequence[Evidence]) -> list[Evidence]:
    return [each for each in there if _changes(each.runs, "ts-nll", "kl")]


def _draw(there: Sequence[Evidence]) -> Any:
    """A panel for each recipe, a row for each loss or network, and two marks for each seed."""
    methods = [[method for method in each.methods if _changes(each.of(method), "ts-nll", "kl")] for each in there]
    rows = list(map(len, methods))
    figure = new_figure(COLUMN, 0.7 + 0.4 * len(there) + 0.145 * sum(rows))
    axes = figure.subplots(len(there), height_ratios=[0.6 + row for row in rows], squeeze=False)[:, 0]
    handles: list[Any] = []
    for ax, each, names in zip(axes, there, methods, strict=True):
        _join(ax, each, names)
        handles = list(_marks(ax, each, names))
        rows_of_names(ax, [_shown(each, method) for method in names])
        style(ax, title=TITLES[each.name], xlabel="KL to people's answers, nats" if ax is axes[-1] else "")
        ax.set_xlim(left=0)
    legend(axes[-1], handles, [PHASES["pre"], PHASES["ts-nll"]], under=True)
    return figure


def _join(ax: Any, evidence: Evidence, methods: Sequence[str]) -> None:
    """A line between the means of each row."""
    for row, method in enumerate(methods):
        ends = [fmean(_over_seeds(evidence, method, phase, "kl")) for phase in ("pre", "ts-nll")]
        ax.plot(ends, [row, row], color=GREY, linewidth=0.8, zorder=1)


def _marks(ax: Any, evidence: Evidence, methods: Sequence[str]) -> Iterator[Any]:
    for phase, colour, marker, face in (("pre", VERMILION, "o", "none"), ("ts-nll", BLUE, "s", BLUE)):
        points = [
            (value, row) for row, method in enumerate(methods) for value in _over_seeds(evidence, method, phase, "kl")
        ]
        look = {"linestyle": "none", "marker": marker, "markersize": 2.8, "markeredgewidth": 0.7}
        (handle,) = ax.plot(*zip(*points, strict=True), color=colour, markerfacecolor=face, zorder=2, **look)
        yield handle


_IMAGE = f"""## Before and after temperature scaling

![KL from people's answers before and after temperature scaling by NLL of every loss and network](images/{_STEM}.svg)

The divergence from people's answers as trained and after temperature scaling by NLL: marks are seeds, lines join the
means over seeds, and each panel has its own horizontal axis."""

_READING = """## How to read this page

CIFAR-10H has about 51 people's answers for each test image of CIFAR-10. Their shares are taken as the probabilities
that a calibrated network should give. KL is the mean divergence of the predictions from these shares; it counts all
classes, and is 0 only where they are equal. ECE to people is that of the predicted class against its share of the
answers, in 15 bins of equal width. No calibrator saw these answers: all were fitted to one label an image.

Tables by loss have means over seeds ± their standard deviation; bold is the lowest mean of a row, smaller is better. An
empty cell is a calibrator that a run does not have: Psi^gamma needs a fixed gamma above 0. In the tables by calibrator,
"lowest" counts the runs in which no other row is lower; equals count for the upper row. How close a network
could come with so few answers an image is not known here, so there is no floor to compare with."""
