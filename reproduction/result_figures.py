"""The figures of docs/results, drawn from the result files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from focalcal import drawing as look
from reproduction.labels import IMAGES, NETWORKS, PHASES, TEXT, TRANSLATION, method_name, short_name
from reproduction.recipe_numbers import RecipeNumbers, Results
from reproduction.result_files import RunEvidence
from reproduction.tables.after_training import ALL, mean_of, temperature_lines
from reproduction.tables.dynamics import GAMMAS, LOSSES, MONITORED
from reproduction.tables.gamma import eces, suggestions
from reproduction.tables.human import distances
from reproduction.tables.losses import FOLLOWED
from reproduction.tables.out_of_distribution import SETS, detection
from reproduction.tables.translation import curve_of as translation_curve
from reproduction.training_curves import LOOKS, EpochCurve, bin_series, by_loss, curve_of, draw_panel, gap

_MARKERS = "osD^vPX*"
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)))


def result_figures() -> dict[str, Callable[[Results], Any]]:
    """What draws each figure, by the name of its file."""
    figures: dict[str, Callable[[Results], Any]] = {
        "image_losses": image_losses,
        "image_gammas": image_gammas,
        "text_epochs": text_epochs,
        "translation_temperature": translation_temperature,
        "after_training_ece": after_training_ece,
        "after_training_line": after_training_line,
        "out_of_distribution_auroc": out_of_distribution_auroc,
        "human_kl": human_kl,
        "suggest_gamma": suggest_gamma,
    }
    for topic, panels in _dynamics().items():
        for recipe in MONITORED:
            figures[f"dynamics_{topic}_{short_name(recipe)}"] = partial(_draw_dynamics, panels=panels, recipe=recipe)
    return figures


def _mean_line(ax: Any, found: Mapping[Any, Sequence[float]], **line: Any) -> Any:
    """A line through the means of values, and a band from the least to the greatest of each; returns the line."""
    low, high = ([each(values) for values in found.values()] for each in (min, max))
    ax.fill_between(list(found), low, high, color=line["color"], alpha=0.15, linewidth=0)
    return ax.plot(list(found), list(map(fmean, found.values())), markersize=3, linewidth=1.2, **line)[0]


# --- losses and gammas


def image_losses(results: Results) -> Any:
    """ECE of every loss, one panel for each recipe, as trained and after temperature scaling."""
    found = [results[name] for name in IMAGES]
    methods = list(dict.fromkeys(method for numbers in found for method in numbers.methods))
    figure = look.new_figure(2 * look.COLUMN, 1.0 + 0.2 * len(methods))
    panels = figure.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
    for ax, numbers in zip(panels, found, strict=True):
        handles = [
            _dots(ax, numbers, methods, *row)
            for row in (("pre", -0.17, look.BLUE, "o"), ("ts-nll", 0.17, look.VERMILION, "D"))
        ]
        ax.grid(axis="y", color=look.GRID)
        look.percent(ax.xaxis, 4)
        look.style(ax, title=numbers.title, xlabel="ECE")
    panels[0].set_xlim(left=0)  # of all panels, and so only when all have been drawn
    look.rows_of_names(panels[0], [method_name(method) for method in methods])
    look.legend(panels[0], handles, [PHASES["pre"], PHASES["ts-nll"]], under=True)
    return figure


def _dots(
    ax: Any, numbers: RecipeNumbers, methods: Sequence[str], phase: str, offset: float, colour: str, marker: str
) -> Any:
    """A row of dots for each method, and a bar at their mean; returns the dots of one method."""
    dots: Any = None
    for place, method in enumerate(methods):
        row = [value / 100 for value in numbers.values(method, "ece_ew", phase)]
        (drawn,) = ax.plot(row, [place + offset] * len(row), marker, color=colour, markersize=2.8, alpha=0.7, mew=0)
        dots = dots or drawn
        if row:
            ax.plot(fmean(row), place + offset, "|", color=colour, markersize=8, mew=1.3)
    return dots


def image_gammas(results: Results) -> Any:
    """ECE against gamma, one panel for each recipe, as trained and after Psi^gamma."""
    found = [results[name] for name in IMAGES]
    figure = look.new_figure(2 * look.COLUMN, 2.5)
    widths = [max(numbers.gammas) - min(numbers.gammas) + 0.6 for numbers in found]
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False, width_ratios=widths)[0]
    for ax, numbers in zip(panels, found, strict=True):
        handles = []
        for phase, colour, line, marker in (("pre", look.BLUE, "-", "o"), ("psi", look.VERMILION, "--", "s")):
            values = {gamma: [each / 100 for each in eces(numbers, gamma, phase)] for gamma in numbers.gammas}
            handles.append(_mean_line(ax, values, color=colour, linestyle=line, marker=marker))
        gammas = list(numbers.gammas)
        ax.set_xticks(gammas)
        ax.set_xlim(gammas[0] - 0.3, gammas[-1] + 0.3)
        title = numbers.title.replace(" on ", "\non ")  # a panel of few gammas is narrow
        look.style(ax, title=title, xlabel="gamma", ylabel="ECE" if ax is panels[0] else "")
    panels[0].set_ylim(bottom=0)
    look.percent(panels[0].yaxis)
    look.legend(panels[0], handles, [PHASES["pre"], PHASES["psi"]], under=True)
    return figure


def text_epochs(results: Results) -> Any:
    """Test ECE by epoch of the losses of ghosh2022, Figs. 16 and 17."""
    looks = zip((look.BLUE, look.VERMILION, look.GREEN, look.PURPLE), ["-", "--", "-.", ":"], "os^D", strict=True)
    figure = look.new_figure(2 * look.COLUMN, 2.7)
    panels = figure.subplots(1, len(TEXT), squeeze=False)[0]
    styles = dict(zip(FOLLOWED, looks, strict=True))
    lines: dict[str, Any] = {}
    for ax, numbers in zip(panels, (results[name] for name in TEXT), strict=True):
        for method, (colour, line, marker) in styles.items():
            runs = numbers.runs(method)
            columns = zip(*([100 * value / 100 for value in run.dynamics["test_ece"]] for run in runs), strict=True)
            shares = {epoch: list(values) for epoch, values in enumerate(columns, start=1)}
            lines[method] = _mean_line(ax, shares, color=colour, linestyle=line, marker=marker)
        ax.set_ylim(bottom=0)
        look.percent(ax.yaxis)
        ax.xaxis.get_major_locator().set_params(integer=True)
        look.style(ax, title=numbers.title, xlabel="epoch", ylabel="test ECE" if ax is panels[0] else "")
    look.legend(panels[0], list(lines.values()), list(map(method_name, lines)), under=True, columns=4)
    return figure


def suggest_gamma(results: Results) -> Any:
    """ECE and NLL against the training gamma, with the gammas that cross-entropy runs suggest."""
    figure = look.new_figure(look.COLUMN, 4.2)
    upper, lower = figure.subplots(2, sharex=True)
    for place, numbers in enumerate(results[name] for name in IMAGES):
        style = {"color": look.PALETTE[place], "marker": "osD"[place], "linestyle": ("-", "--", ":")[place]}
        for ax, measure in ((upper, "ece_ew"), (lower, "nll")):
            _draw_sweep(ax, numbers, measure, style, 0.97 - 0.06 * place)
    look.style(upper, ylabel="ECE, %")
    look.style(lower, xlabel="training gamma (0 is cross-entropy)", ylabel="NLL, nats")
    for ax in (upper, lower):
        ax.grid(color=look.GRID)
    handles = [line for line in lower.lines if line.get_marker() in ("o", "s", "D")]
    look.legend(lower, handles, [results[name].title for name in IMAGES], under=True, columns=1)
    return figure


def _draw_sweep(ax: Any, numbers: RecipeNumbers, measure: str, style: dict[str, str], height: float) -> None:
    """The mean of a measure over seeds with their range, and the suggestions as triangles at some height."""
    ax.margins(y=0.22)  # room for marks on top
    values = {gamma: numbers.values(method, measure) for gamma, method in numbers.gammas.items()}
    low, high = ([end(each) for each in values.values()] for end in (min, max))
    ax.fill_between(list(values), low, high, color=style["color"], alpha=0.15, lw=0)
    ax.plot(list(values), list(map(fmean, values.values())), linewidth=1.2, markersize=3.5, **style)
    found = list(suggestions(numbers).values())
    ax.axvline(fmean(found), color=style["color"], linewidth=0.7, linestyle=style["linestyle"])
    where = {"transform": ax.get_xaxis_transform(), "color": style["color"], "markeredgecolor": "white"}
    ax.plot(found, [height] * len(found), "v", markersize=5, mew=0.4, **where)


# --- translation


def translation_temperature(results: Results) -> Any:
    """BLEU above, validation ECE below, against the temperature."""
    numbers = results[TRANSLATION]
    figure = look.new_figure(look.COLUMN, 3.9)
    upper, lower = figure.subplots(2, sharex=True)
    handles: dict[str, Any] = {}
    for method, *style in zip(numbers.methods, look.PALETTE, _LINES, "os^DvP", strict=False):
        runs = numbers.runs(method)
        _seeds_and_mean(
            upper, [{t: bleu for t, (_, bleu) in translation_curve(run).items()} for run in runs], style, max
        )
        handles[method_name(method)] = _seeds_and_mean(lower, [_fine_ece(run) for run in runs], style, min)
    look.style(upper, ylabel="test BLEU")
    look.percent(lower.yaxis, 5)
    lower.set_ylim(bottom=0)
    look.style(lower, xlabel="temperature", ylabel="validation ECE")
    figure.align_ylabels([upper, lower])
    look.legend(lower, list(handles.values()), list(handles), under=True)
    return figure


def _fine_ece(run: RunEvidence) -> dict[float, float]:
    """Validation ECE on the grid of the fit, within the range of the curve."""
    curve = translation_curve(run)
    grid = {float(t): ece for t, ece in run.extra["val_ece"].items() if ece is not None}
    inside = {t: ece for t, ece in grid.items() if min(curve) <= t <= max(curve)}
    return dict(sorted({**inside, **{t: ece / 100 for t, (ece, _) in curve.items()}}.items()))


def _seeds_and_mean(ax: Any, curves: Sequence[dict[float, float]], style: Sequence[Any], best: Any) -> Any:
    """Each seed thin, the mean thick, with a mark at its best point."""
    colour, line, marker = style
    for curve in curves:
        ax.plot(list(curve), list(curve.values()), color=colour, linestyle=line, linewidth=0.5, alpha=0.5)
    means = {t: fmean(curve[t] for curve in curves) for t in curves[0] if all(t in curve for curve in curves)}
    thick = {"color": colour, "linestyle": line, "linewidth": 1.3, "marker": marker, "markersize": 2.4}
    (handle,) = ax.plot(list(means), list(means.values()), **thick)
    at = best(means, key=lambda t: means[t])
    ax.plot([at], [means[at]], color=colour, marker=marker, markersize=6, markerfacecolor="white")
    return handle


# --- calibrators


def after_training_ece(results: Results) -> Any:
    """ECE after each calibrator divided by that of the same runs after TS by NLL, one dot for each experiment."""
    ratios: dict[str, dict[str, float]] = {}
    for phase in PHASES:
        for name in ALL:
            runs = [run for run in results[name].all_runs if phase in run.phases]
            mean, base = mean_of(runs, phase, "ece_ew"), mean_of(runs, "ts-nll", "ece_ew")
            if mean and base and phase != "ts-nll":
                ratios.setdefault(phase, {})[name] = mean / base
    figure = look.new_figure(look.COLUMN, 0.7 + 0.24 * len(ratios) + 0.15 * len(ALL))
    ax = figure.subplots()
    ax.set_xscale("log")
    ax.axvline(1, color=look.GREY, linewidth=0.8, linestyle="--")
    handles = []
    for place, name in enumerate(ALL):
        apart = 0.13 * (place - (len(ALL) - 1) / 2)  # dots of one row do not hide each other
        points = [(values[name], row + apart) for row, values in enumerate(ratios.values()) if name in values]
        style = {"color": look.PALETTE[place % len(look.PALETTE)], "marker": _MARKERS[place]}
        handles += ax.plot([x for x, _ in points], [y for _, y in points], linestyle="", markersize=3.2, **style)
    look.rows_of_names(ax, [PHASES[phase] for phase in ratios])
    look.logarithmic(ax.xaxis)
    ax.grid(axis="x", color=look.GRID)
    look.style(ax, xlabel="ECE / ECE after TS by NLL", side="center")
    look.legend(ax, handles, [results[name].title for name in ALL], under=True, columns=1)
    return figure


def after_training_line(results: Results) -> Any:
    """The best temperature against gamma_ev, for the recipe with the most training gammas."""
    numbers = results[IMAGES[0]]
    figure = look.new_figure(look.COLUMN, 3.2)
    ax = figure.subplots()
    handles, lines = [], temperature_lines(numbers)
    for line, colour, marker in zip(lines, (look.BLACK, *look.PALETTE), _MARKERS, strict=False):
        slope, intercept = fmean(line.slopes), fmean(line.intercepts)
        gammas, values = list(line.points), list(line.points.values())
        ends = [gammas[0], gammas[-1]]
        ax.plot(ends, [intercept + slope * x for x in ends], color=colour, linewidth=0.9)
        ax.vlines(gammas, list(map(min, values)), list(map(max, values)), color=colour, linewidth=0.5)
        handles += ax.plot(gammas, list(map(fmean, values)), color=colour, marker=marker, linestyle="", markersize=3.5)
    ax.grid(color=look.GRID)
    look.style(ax, title=numbers.title, xlabel="gamma_ev of the focal map", ylabel="best temperature T")
    names = ["cross-entropy" if line.gamma == 0 else f"FL-{line.gamma:g}" for line in lines]
    look.legend(ax, handles, names, under=True, columns=4)
    return figure


# --- detection and people's answers


def out_of_distribution_auroc(results: Results) -> Any:
    """AUROC before scaling: a panel for each set, a row for each loss, a mark for each seed."""
    found = [results[name] for name in IMAGES]
    methods = list(dict.fromkeys(method for numbers in found for method in numbers.methods))
    figure = look.new_figure(look.COLUMN, 1.1 + 0.2 * len(methods))
    axes = figure.subplots(1, len(SETS), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for ax, name in zip(axes, SETS, strict=True):
        ax.axvline(0.5, color=look.GREY, linewidth=0.7, zorder=0)
        for place, numbers in enumerate(found):
            points = [
                (value / 100, row + 0.26 * (place - (len(found) - 1) / 2))
                for row, method in enumerate(methods)
                for value in detection(numbers, method, name)
            ]
            mark = {"linestyle": "none", "marker": "o^s"[place], "markersize": 2.8, "markeredgewidth": 0.6}
            (handle,) = ax.plot(*zip(*points, strict=True), color=look.PALETTE[place], markerfacecolor="none", **mark)
            handles.setdefault(numbers.title, handle)
        look.rows_of_names(ax, [method_name(method) for method in methods])
        look.percent(ax.xaxis, 3)
        look.style(ax, title=SETS[name], xlabel="AUROC")
        ax.grid(axis="y", color=look.GREY, alpha=0.2, linewidth=0.5)
    look.legend(axes[0], list(handles.values()), list(handles), under=True, columns=2)
    return figure


def human_kl(results: Results) -> Any:
    """KL to people's answers: a panel for each recipe, a row for each loss, two marks for each seed."""
    found = [results[name] for name in (*IMAGES, NETWORKS)]
    rows = [len(numbers.methods) for numbers in found]
    figure = look.new_figure(look.COLUMN, 0.7 + 0.4 * len(found) + 0.145 * sum(rows))
    axes = figure.subplots(len(found), height_ratios=[0.6 + row for row in rows], squeeze=False)[:, 0]
    for ax, numbers in zip(axes, found, strict=True):
        for row, method in enumerate(numbers.methods):
            ends = [fmean(distances(numbers, method, phase)) for phase in ("pre", "ts-nll")]
            ax.plot(ends, [row, row], color=look.GREY, linewidth=0.8, zorder=1)
        handles = []
        for phase, colour, marker, face in (
            ("pre", look.VERMILION, "o", "none"),
            ("ts-nll", look.BLUE, "s", look.BLUE),
        ):
            points = [(v, row) for row, method in enumerate(numbers.methods) for v in distances(numbers, method, phase)]
            mark = {"linestyle": "none", "marker": marker, "markersize": 2.8, "markeredgewidth": 0.7}
            handles += ax.plot(*zip(*points, strict=True), color=colour, markerfacecolor=face, zorder=2, **mark)
        look.rows_of_names(ax, [method_name(method) for method in numbers.methods])
        look.style(ax, title=numbers.title, xlabel="KL to people's answers, nats" if ax is axes[-1] else "")
        ax.set_xlim(left=0)
    look.legend(axes[-1], handles, [PHASES["pre"], PHASES["ts-nll"]], under=True)
    return figure


# --- training


def _dynamics() -> dict[str, dict[str, list[EpochCurve]]]:
    """The panels of each topic by the labels of their vertical axes."""
    of_ce = partial(curve_of, "ce")
    nll = [
        of_ce("train_nll", "train NLL", (look.BLUE, "--", "s")),
        of_ce("test_nll", "test NLL", (look.VERMILION, "-", "o")),
    ]
    split = [
        of_ce("test_nll_correct", "correct test rows", (look.GREEN, "-.", "^")),
        of_ce("test_nll_wrong", "wrong test rows", (look.PURPLE, ":", "D")),
    ]
    focal = {"test NLL": "test_nll", "NLL, wrong": "test_nll_wrong", "entropy, wrong": "test_entropy_wrong"}
    norms = {"weight norm": "weight_norm", "feature norm": "feature_norm"}
    bins = {"first": 0.0, "middle": 0.5, "last": 1.0}
    return {
        "cross_entropy": {
            "NLL": nll,
            "test NLL": split,
            "ECE": [of_ce("test_ece", "test ECE", (look.BLACK, "-", "v"))],
        },
        "focal": {label: by_loss(GAMMAS, name) for label, name in focal.items()},
        "norms": {label: by_loss(GAMMAS, name) for label, name in norms.items()},
        "gradient": {"gradient norm": by_loss(LOSSES, "gradient_norm")},
        "confidence": {f"confidence,\n{words} bin": _confidences(share) for words, share in bins.items()},
        "gamma": {"gap": _five_bins(gap), "gamma": _five_bins(partial(bin_series, name="gamma"))},
    }


def _confidences(share: float) -> list[EpochCurve]:
    """Training confidence, drawn through, and validation confidence, dashed, of one bin."""
    return [
        EpochCurve(
            method,
            partial(bin_series, name=name, share=share),
            f"{method_name(method)}, {words}",
            (LOOKS[method][0], line, LOOKS[method][2]),
        )
        for method in ("ce", "fl-3", "flsd-53", "adafocal")
        for name, line, words in (("train_true", "-", "training"), ("val_confidence", "--", "validation"))
    ]


def _five_bins(values: Callable[..., dict[int, float]]) -> list[EpochCurve]:
    """A number of five bins with AdaFocal."""
    names = ("first bin", "bin at a quarter", "middle bin", "bin at three quarters", "last bin")
    rows = zip((0, 0.25, 0.5, 0.75, 1), names, look.PALETTE, _LINES, "os^Dv", strict=False)
    return [
        EpochCurve("adafocal", partial(values, share=share), name, (colour, line, marker))
        for share, name, colour, line, marker in rows
    ]


def _draw_dynamics(results: Results, panels: Mapping[str, list[EpochCurve]], recipe: str) -> Any:
    """Panels from top to bottom over the epochs of a recipe."""
    numbers = results[recipe]
    names = {curve.name for curves in panels.values() for curve in curves}
    figure = look.new_figure(look.COLUMN, 0.75 + 1.1 * len(panels) + 0.15 * -(-len(names) // 2))
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for ax, (label, curves) in zip(axes, panels.items(), strict=True):
        for name, handle in draw_panel(ax, label, curves, numbers).items():
            handles.setdefault(name, handle)
        title, xlabel = numbers.title if ax is axes[0] else "", "epochs trained" if ax is axes[-1] else ""
        look.style(ax, title=title, xlabel=xlabel, ylabel=label)
    figure.align_ylabels(axes)
    look.legend(axes[-1], list(handles.values()), list(handles), under=True, columns=2)
    return figure
