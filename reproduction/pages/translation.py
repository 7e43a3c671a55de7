"""Translation: token-level ECE, and BLEU against the temperature of beam search [mukhoti2020, Table 3, Fig. 5]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from focalcal.drawing import COLUMN, PALETTE, legend, new_figure, percent, style
from reproduction.labels import (
    TITLES,
    TRANSLATION,
    All,
    bullets,
    how_many,
    method_name,
    over_seeds,
    spread,
    table,
)
from reproduction.result_files import Evidence, RunEvidence

TITLE = "Translation"

# mukhoti2020 Table 3: ECE before and after scaling in percent, temperature, BLEU before and after.
_PUBLISHED = {
    "ce": ("10.16", "2.59", "1.2", "26.31", "26.21"),
    "ls-0.1": ("3.25", "3.25", "1.0", "26.33", "26.33"),
    "fl-1": ("1.69", "1.69", "1.0", "26.39", "26.39"),
}
_STEM = "translation_temperature"


def page(evidence: All) -> str:
    """The page: the paper's table beside ours, the order of losses, and BLEU against temperature."""
    found = _found(evidence)
    if found is None:
        return f"# {TITLE}\n\nThere is no result file of {TITLES[TRANSLATION]} yet.\n"
    parts = [f"# {TITLE}", " ".join(_summary(found)), _left_out(found)]
    parts += ["## ECE and BLEU before and after scaling", _scaling_table(found), bullets(_order_sentences(found))]
    if _with_curve(found):
        parts += ["## BLEU against temperature", _curve_table(found), bullets(_curve_sentences(found)), _image(found)]
    parts += ["## Tokens", _tokens_table(found), _reading(found)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def figures(evidence: All) -> dict[str, Any]:
    """The figure by file name: BLEU and validation ECE against temperature."""
    found = _found(evidence)
    return {_STEM: _draw(found)} if found is not None and _with_curve(found) else {}


# What there is.


def _found(evidence: All) -> Evidence | None:
    found = evidence.get(TRANSLATION)
    return found if found is not None and found.runs else None


def _left_out(evidence: Evidence) -> str:
    wanted = dict.fromkeys([*_PUBLISHED, *evidence.recipe["methods"]])
    missing = [method_name(method) for method in wanted if method not in evidence.methods]
    return f"Not run here: {', '.join(missing)}." if missing else ""


def _curve(run: RunEvidence) -> dict[float, tuple[float, float]]:
    """Validation ECE in percent and test BLEU by temperature."""
    points = run.extra.get("curve") or []
    return {
        point["temperature"]: (100 * point["val_ece"], point["test_bleu"])
        for point in sorted(points, key=lambda each: float(each["temperature"]))
        if point.get("val_ece") is not None and point.get("test_bleu") is not None
    }


def _with_curve(evidence: Evidence) -> list[RunEvidence]:
    return [run for run in evidence.runs if _curve(run)]


def _temperatures(evidence: Evidence, method: str) -> list[float]:
    """The fitted temperature of every seed."""
    found = (run.fits.get("post", {}).get("temperature") for run in evidence.of(method))
    return [temperature for temperature in found if temperature is not None]


def _ece_by_seed(evidence: Evidence, method: str) -> dict[int, float]:
    """ECE before scaling of every seed, in percent."""
    found = ((run.seed, run.phases.get("pre", {}).get("ece_ew")) for run in evidence.of(method))
    return {seed: 100 * each[0] for seed, each in found if each is not None and each[0] is not None}


# Sentences.


def _ordered(evidence: Evidence, measure: str, methods: Sequence[str], *, highest_first: bool = False) -> list[str]:
    """Losses by the mean of a measure before scaling."""
    means = {method: fmean(values) for method in methods if (values := over_seeds(evidence, method, "pre", measure))}
    return sorted(means, key=lambda method: means[method], reverse=highest_first)


def _named(methods: Iterable[str], sign: str) -> str:
    return f" {sign} ".join(map(method_name, methods))


def _summary(evidence: Evidence) -> Iterator[str]:
    order = _ordered(evidence, "ece_ew", evidence.methods)
    if order:
        yield f"Token-level ECE before scaling, on average over seeds: {_named(order, '<')}."
    if losses := [lost for run in _with_curve(evidence) if (lost := _lost(run)) is not None]:
        yield (
            "At the temperature of the lowest validation ECE, test BLEU is "
            f"{fmean(losses):.2f} points below the best of its curve on average, {max(losses):.2f} at most."
        )


def _order_sentences(evidence: Evidence) -> Iterator[str]:
    """Our order of the losses that the paper has beside its own."""
    for measure, column, sign, words in (("ece_ew", 0, "<", "ECE"), ("bleu", 3, ">", "BLEU")):
        ours = _ordered(evidence, measure, [*_PUBLISHED], highest_first=sign == ">")
        theirs = sorted(ours, key=lambda method: float(_PUBLISHED[method][column]), reverse=sign == ">")
        if len(ours) > 1:
            same = "the same order" if ours == theirs else "another order"
            yield f"{words} before scaling: {_named(ours, sign)}; mukhoti2020 has {_named(theirs, sign)}, {same}."
    seeds = _seeds_with_their_order(evidence)
    if seeds:
        yield f"The paper's order by ECE before scaling holds in {how_many(seeds, 'seeds')}."
    before, after = (_all(evidence, phase, "ece_ew") for phase in ("pre", "post"))
    pairs = [(value, after[key]) for key, value in before.items() if key in after]
    if pairs:
        yield f"Scaling lowers the test ECE in {how_many([second < first for first, second in pairs])}."


def _all(evidence: Evidence, phase: str, measure: str) -> dict[tuple[str, int], float]:
    found = (((run.method, run.seed), run.phases.get(phase, {}).get(measure)) for run in evidence.runs)
    return {key: each[0] for key, each in found if each is not None and each[0] is not None}


def _seeds_with_their_order(evidence: Evidence) -> list[bool]:
    theirs = sorted(_PUBLISHED, key=lambda method: float(_PUBLISHED[method][0]))
    values = {method: _ece_by_seed(evidence, method) for method in theirs}
    seeds = sorted(set.intersection(*(set(each) for each in values.values())))
    return [sorted(theirs, key=lambda method: values[method][seed]) == theirs for seed in seeds]


# BLEU against temperature.


def _lowest_ece(run: RunEvidence) -> float:
    """The temperature of the curve with the lowest validation ECE; of equals, the one nearest to 1."""
    curve = _curve(run)
    return min(curve, key=lambda temperature: (curve[temperature][0], abs(temperature - 1)))


def _highest_bleu(run: RunEvidence) -> float:
    """The temperature of the curve with the highest BLEU; of equals, the one nearest to that of the lowest ECE."""
    curve, best = _curve(run), _lowest_ece(run)
    return max(curve, key=lambda temperature: (curve[temperature][1], -abs(temperature - best)))


def _lost(run: RunEvidence, at: float | None = None) -> float | None:
    """BLEU at a temperature, that of the lowest ECE unless told, below the highest of the curve."""
    curve = _curve(run)
    at = _lowest_ece(run) if at is None else at
    return curve[_highest_bleu(run)][1] - curve[at][1] if at in curve else None


def _apart(run: RunEvidence) -> int:
    """How many points of the curve lie between its lowest ECE and its highest BLEU, the last one counted."""
    places = list(_curve(run))
    return abs(places.index(_lowest_ece(run)) - places.index(_highest_bleu(run)))


def _curve_table(evidence: Evidence) -> str:
    headings = ["loss", "T, lowest ECE", "T, highest BLEU", "highest BLEU", "lost at lowest ECE", "lost at T = 1"]
    columns: tuple[Callable[[RunEvidence], float | None], ...] = (
        _lowest_ece,
        _highest_bleu,
        lambda run: _curve(run)[_highest_bleu(run)][1],
        _lost,
        lambda run: _lost(run, 1.0),
    )
    rows = []
    for method in evidence.methods:
        runs = [run for run in evidence.of(method) if _curve(run)]
        if runs:
            found = ([value for run in runs if (value := of(run)) is not None] for of in columns)
            rows.append([method_name(method), *map(spread, found)])
    return table(headings, rows)


def _curve_sentences(evidence: Evidence) -> Iterator[str]:
    runs = _with_curve(evidence)
    apart = [_apart(run) for run in runs]
    yield (
        "The lowest validation ECE and the highest test BLEU are at the same point of the curve in "
        f"{how_many([each == 0 for each in apart])}, and at neighbouring points in "
        f"{how_many([each == 1 for each in apart])}."
    )
    yield (
        "The temperature of the highest BLEU is below that of the lowest ECE in "
        f"{how_many([_highest_bleu(run) < _lowest_ece(run) for run in runs])}, and above it in "
        f"{how_many([_highest_bleu(run) > _lowest_ece(run) for run in runs])}."
    )
    scores = [[bleu for _, bleu in _curve(run).values()] for run in runs]
    ranges = [max(each) - min(each) for each in scores]
    yield f"Over the whole curve, BLEU changes by {fmean(ranges):.2f} points on average."


# Tables.


def _scaling_table(evidence: Evidence) -> str:
    rows = [["here", method_name(method), *_scaled(evidence, method)] for method in evidence.methods]
    rows += [["WMT14", method_name(method), *values] for method, values in _PUBLISHED.items()]
    headings = ["data", "loss", "ECE, %", "ECE after, %", "T", "BLEU", "BLEU after"]
    return table(headings, rows, words=2)


def _scaled(evidence: Evidence, method: str) -> list[str]:
    ece, bleu = (
        [over_seeds(evidence, method, phase, name) for phase in ("pre", "post")] for name in ("ece_ew", "bleu")
    )
    return [*map(spread, ece), spread(_temperatures(evidence, method)), *map(spread, bleu)]


def _tokens_table(evidence: Evidence) -> str:
    rows = []
    for method in evidence.methods:
        nll = [spread(over_seeds(evidence, method, phase, "nll"), 3) for phase in ("pre", "post")]
        errors = [run.extra.get("token_error") for run in evidence.of(method)]
        rows.append([method_name(method), *nll, spread([100 * error for error in errors if error is not None])])
    return table(["loss", "NLL", "NLL after", "wrong tokens, %"], rows)


# The figure.


def _image(evidence: Evidence) -> str:
    names = ", ".join(method_name(method) for method in evidence.methods)
    return (
        f"![Test BLEU and validation ECE against the temperature of the softmax: {names}](images/{_STEM}.svg)\n\n"
        "Test BLEU and validation ECE against temperature, after mukhoti2020 Fig. 5. Thin lines are seeds, thick ones "
        "means over seeds at the temperatures that all seeds have; large marks are the highest BLEU and the lowest ECE "
        "of the means."
    )


_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)))


def _draw(evidence: Evidence) -> Any:
    """BLEU above, validation ECE below, against the temperatures of the curves."""
    figure = new_figure(COLUMN, 3.9)
    upper, lower = figure.subplots(2, sharex=True)
    handles: dict[str, Any] = {}
    looks = zip(PALETTE, _LINES, "os^DvP", strict=True)
    for method, look in zip(evidence.methods, looks, strict=False):
        curves = [curve for run in evidence.of(method) if (curve := _curve(run))]
        if curves:
            _lines(upper, [{t: bleu for t, (_, bleu) in curve.items()} for curve in curves], look, max)
            fine = [_fine(run) for run in evidence.of(method) if _curve(run)]
            handles[method_name(method)] = _lines(lower, fine, look, min)
    style(upper, ylabel="test BLEU")
    percent(lower.yaxis, 5)
    lower.set_ylim(bottom=0)
    style(lower, xlabel="temperature", ylabel="validation ECE")
    figure.align_ylabels([upper, lower])
    legend(lower, list(handles.values()), list(handles), under=True)
    return figure


def _fine(run: RunEvidence) -> dict[float, float]:
    """Validation ECE on the grid of the fit, within the range of the curve."""
    curve = _curve(run)
    grid = {float(t): ece for t, ece in (run.extra.get("val_ece") or {}).items() if ece is not None}
    inside = {t: ece for t, ece in grid.items() if min(curve) <= t <= max(curve)}
    return dict(sorted({**inside, **{t: ece / 100 for t, (ece, _) in curve.items()}}.items()))


def _lines(ax: Any, curves: Sequence[dict[float, float]], look: tuple[Any, ...], best: Any) -> Any:
    """Each seed thin, the mean thick, with a mark at its best point."""
    colour, line, marker = look
    for curve in curves:
        ax.plot(list(curve), list(curve.values()), color=colour, linestyle=line, linewidth=0.5, alpha=0.5)
    common = [t for t in curves[0] if all(t in curve for curve in curves)]
    means = {t: fmean(curve[t] for curve in curves) for t in common}
    (handle,) = ax.plot(
        list(means), list(means.values()), color=colour, linestyle=line, linewidth=1.3, marker=marker, markersize=2.4
    )
    if means:
        at = best(means, key=lambda t: means[t])
        ax.plot([at], [means[at]], color=colour, marker=marker, markersize=6, markerfacecolor="white")
    return handle


# How to read it.


def _reading(evidence: Evidence) -> str:
    first = next((run.extra for run in evidence.runs if run.extra), {})
    searched = f" with {first['beams']} beams" if "beams" in first else ""
    counted = first.get("num_tokens", {}).get("test")
    tokens = f" There are {counted:,} test tokens a run." if counted else ""
    return f"""## How to read this page

The corpus is small and made by a grammar with ambiguous words, so that even the best model is unsure; the network is a
small Transformer. WMT14 rows are those of mukhoti2020 Table 3, English to German: other data and another scale, so only
the order of losses can be compared. ECE is that of the next token, given the true ones before it, in 15 bins; BLEU is
that of beam search{searched} on the test split, from 0 to 100.{tokens}

T is the temperature with the lowest ECE of the validation tokens on a grid of steps of 0.1. The curve has BLEU at a few
temperatures and at T; its points are coarse, so the best temperature is known to its neighbours only. Numbers are means
over seeds ± their standard deviation. Published rows have none."""
