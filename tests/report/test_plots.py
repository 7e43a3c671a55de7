"""Figures show the library's numbers, leave matplotlib as it was, and come out the same every time."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import cache
from io import BytesIO

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import drawing, metrics
from focalcal.metrics import Estimate
from focalcal.report import plots
from focalcal.report.contents import (
    ClassTable,
    Confusions,
    Contents,
    CriterionPoint,
    Curve,
    Diagram,
    Dynamics,
    Landscape,
    Model,
    ModelVersion,
)

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

HOSTILE = (
    "<script>alert(1)</script>",
    "n" * 200,
    "שלום עולם",
    "مرحبا بالعالم",
    r"$\frac{1}{",
    "two\nlines\tand a tab",
    "emoji 🏳️‍🌈 猫",
    "\u202egnp.exe",
    "_under % & # ~",
    "",
)


def drawn(n=2000, k=4, seed=0):
    """Logits that are twice too sure, and their labels."""
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(n, k))
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)


LOGITS, LABELS = drawn()


def heights(ax):
    return [patch.get_height() for patch in ax.patches if patch.get_fill()]


def histogram(ax):
    return ax.child_axes[0]


def legend_of(ax):
    (made,) = ax.figure.legends or [ax.get_legend()]
    return [text.get_text() for text in made.get_texts()]


def names_of(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def render(ax):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax.figure.savefig(BytesIO(), format="png")


# ---- the reliability diagram


@pytest.mark.parametrize("edges", ["equal_width", "equal_mass"])
def test_bars_are_the_accuracies_of_the_bins_that_ece_reads(edges):
    bins = metrics.reliability(LOGITS, LABELS, edges=edges)
    held = bins.count > 0
    ax = plots.reliability_diagram(LOGITS, LABELS, edges=edges)
    assert heights(ax) == bins.accuracy[held].tolist()
    gaps = [patch.get_height() for patch in ax.patches if not patch.get_fill()]
    assert gaps == pytest.approx(bins.gap[held].tolist())
    assert ax.get_title().startswith(
        f"{'ECE' if edges == 'equal_width' else 'AdaECE'} {float(bins.weight @ bins.gap.abs()):.1%}"
    )


def test_bands_are_those_of_clopper_and_pearson_and_of_chance():
    bins = metrics.reliability(LOGITS, LABELS)
    chance = metrics.consistency_bars(LOGITS, LABELS, level=0.9)
    held = bins.count > 0
    ax = plots.reliability_diagram(LOGITS, LABELS, level=0.9)
    (container,) = [each for each in ax.containers if hasattr(each, "lines")]
    ends = np.array([segment[:, 1] for segment in container.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends.T, [band[held] for band in metrics.accuracy_bands(bins, 0.9)])
    shaded = [(path.vertices[:, 1].min(), path.vertices[:, 1].max()) for path in ax.collections[0].get_paths()]
    np.testing.assert_allclose(shaded, np.stack([chance.low[held], chance.high[held]], 1))
    assert legend_of(ax) == ["accuracy", "gap to confidence", "90% of perfect models", "90% band"]


def test_the_histogram_has_the_shares_of_equal_width_bins_under_either_scheme():
    bins = metrics.reliability(LOGITS, LABELS)
    for edges in ("equal_width", "equal_mass"):
        ax = plots.reliability_diagram(LOGITS, LABELS, edges=edges)
        assert heights(histogram(ax)) == bins.weight[bins.count > 0].tolist()
    assert not plots.reliability_diagram(LOGITS, LABELS, histogram=False).child_axes


def test_the_histogram_stands_under_the_diagram_inside_the_room_of_the_given_axes():
    for layout in (None, "constrained", "tight"):
        figure = Figure(figsize=(6, 3), layout=layout)
        left, right = figure.subplots(1, 2)
        assert plots.reliability_diagram(LOGITS, LABELS, ax=left) is left
        right.plot([0, 1])
        figure.draw_without_rendering()
        over, under, room = left.get_position(), histogram(left).get_position(), left.get_position(original=True)
        assert under.y1 < over.y0
        assert (under.x0, under.x1) == pytest.approx((over.x0, over.x1))
        assert under.y0 >= room.y0 - 1e-9
        assert under.x1 < right.get_position().x0


def test_drawing_again_into_the_same_axes_keeps_one_histogram():
    ax = plots.reliability_diagram(LOGITS, LABELS)
    plots.reliability_diagram(LOGITS, LABELS, ax=ax)
    assert len(ax.child_axes) == 1


def test_rows_an_evaluation_and_a_diagram_give_the_same_bars_as_scores():
    rows, evaluation = metrics.read(LOGITS, LABELS), fc.evaluate(LOGITS, LABELS)
    expected = heights(plots.reliability_diagram(LOGITS, LABELS))
    for given in (rows, evaluation, diagram_of(rows, "equal_width")):
        assert heights(plots.reliability_diagram(given)) == expected
    assert heights(evaluation.plot()) == expected
    equal_mass = plots.reliability_diagram(evaluation, edges="equal_mass")
    assert heights(equal_mass) == evaluation.equal_mass_bins.accuracy.tolist()


def test_the_chance_band_of_an_evaluation_is_close_to_that_of_its_rows():
    shaded = []
    for given in (metrics.read(LOGITS, LABELS), fc.evaluate(LOGITS, LABELS)):
        paths = plots.reliability_diagram(given).collections[0].get_paths()
        shaded.append([(path.vertices[:, 1].min(), path.vertices[:, 1].max()) for path in paths])
    np.testing.assert_allclose(*shaded, atol=0.06)  # one row of the thinnest bin


def test_weighted_rows_have_weighted_bars_and_no_chance_band():
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(LABELS))
    bins = metrics.reliability(LOGITS, LABELS, sample_weight=weight)
    evaluation = fc.evaluate(LOGITS, LABELS, sample_weight=weight)
    for ax in (plots.reliability_diagram(LOGITS, LABELS, sample_weight=weight), plots.reliability_diagram(evaluation)):
        assert heights(ax) == pytest.approx(bins.accuracy[bins.count > 0].tolist())
        assert heights(histogram(ax)) == pytest.approx(bins.weight[bins.count > 0].tolist())
        assert not any("perfect" in name for name in legend_of(ax))


@pytest.mark.parametrize("edges", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_few_rows_are_enough(n, edges):
    ax = plots.reliability_diagram(LOGITS[:n], LABELS[:n], edges=edges)
    render(ax)
    assert len(heights(ax)) <= n


@pytest.mark.parametrize("edges", ["equal_width", "equal_mass"])
def test_rows_that_are_all_sure_and_right_are_one_full_bar_without_a_gap(edges):
    ax = plots.reliability_diagram(np.array([[1.0, 0.0]] * 5), [0] * 5, kind="probs", edges=edges)
    render(ax)  # without a warning
    assert heights(ax) == [1.0] * len(heights(ax))
    assert [patch.get_height() for patch in ax.patches if not patch.get_fill()] == [0.0] * len(heights(ax))
    assert sum(heights(histogram(ax))) == 1.0


def test_what_was_measured_takes_no_labels_and_scores_need_them():
    with pytest.raises(fc.InputError, match="labels"):
        plots.reliability_diagram(fc.evaluate(LOGITS, LABELS), LABELS)
    with pytest.raises(fc.InputError, match="labels"):
        plots.reliability_diagram(LOGITS)
    with pytest.raises(fc.InputError, match="one class or the top label"):
        plots.reliability_diagram(metrics.read(LOGITS, LABELS, target="classwise"))
    with pytest.raises(fc.InputError, match="equal_mass"):
        plots.reliability_diagram(fc.evaluate(LOGITS, LABELS), edges="array_split")


def test_small_multiples_have_a_diagram_for_each_name():
    models = {"before $x$": LOGITS, "after": torch.tensor(LOGITS / 2), "read": metrics.read(LOGITS, LABELS)}
    axes = plots.reliability_diagrams(models, LABELS)
    assert [ax.get_title().splitlines()[0] for ax in axes] == list(models)
    assert heights(axes[1]) == heights(plots.reliability_diagram(LOGITS / 2, LABELS))
    given = Figure().subplots(1, 3)
    assert list(plots.reliability_diagrams(models, LABELS, axes=given)) == list(given)
    with pytest.raises(fc.InputError, match="one for each model"):
        plots.reliability_diagrams(models, LABELS, axes=given[:2])


def test_five_diagrams_take_two_rows():
    axes = plots.reliability_diagrams({str(i): LOGITS for i in range(5)}, LABELS)
    assert axes.shape == (5,)
    assert len(axes[0].figure.axes) == 5


def test_a_figure_can_be_pickled():
    ax = plots.reliability_diagram(LOGITS, LABELS)
    assert heights(pickle.loads(pickle.dumps(ax.figure)).axes[0]) == heights(ax)


# ---- the other figures


def test_risk_coverage_curves_are_those_of_the_metrics():
    curve = metrics.risk_coverage_curve(LOGITS, LABELS)
    thinned = Curve(curve.coverage[::10].tolist(), curve.risk[::10].tolist())
    ax = plots.risk_coverage({"_scores": LOGITS, "curve": curve, "thinned": thinned}, LABELS)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([curve.coverage, curve.risk], 1))
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), ax.lines[0].get_xydata())
    assert len(ax.lines[2].get_xydata()) == len(thinned.risk)
    assert legend_of(ax) == [f"_scores: AURC {metrics.aurc(LOGITS, LABELS):.3f}", "curve", "thinned"]


def test_a_single_risk_coverage_curve_goes_into_the_given_axes():
    ax = Figure().subplots()
    assert plots.risk_coverage(metrics.read(LOGITS, LABELS), ax=ax) is ax
    render(plots.risk_coverage([[2.0, 0.0]], [0]))


def test_the_landscape_shows_the_values_and_both_optima():
    found = landscape_of()
    ax = plots.criterion_landscape(found)
    values = ax.collections[0].get_array()
    np.testing.assert_allclose(values, np.array(found.values).T)
    marked = [line.get_xydata()[0].tolist() for line in ax.lines[:2]]
    assert marked == [[0.0, 2.0], [0.5, 3.0]]
    np.testing.assert_array_equal(ax.lines[2].get_xydata(), found.line)
    given = Figure().subplots()
    assert plots.criterion_landscape(found, ax=given) is given


def test_a_landscape_with_zeros_infinities_or_no_line_can_be_drawn():
    found = landscape_of()
    values = np.array(found.values)
    values[0, 0], values[1, 1] = np.inf, 0.0
    ax = plots.criterion_landscape(replace(found, values=values.tolist(), line=[]))
    render(ax)
    drawn_values = ax.collections[0].get_array()
    assert drawn_values.min() == 1e-6  # 0 is the best there is, not a hole
    assert np.ma.count_masked(drawn_values) == 1
    render(plots.criterion_landscape(replace(found, values=np.full_like(values, 0.1).tolist())))


@pytest.mark.parametrize("criterion", ["nll", "ada_ece"])
def test_the_landscape_of_scores_marks_the_fitted_temperature(criterion):
    ax = plots.criterion_landscape(LOGITS, LABELS, criterion=criterion)
    fitted = fc.TemperatureScaling(criterion).fit(LOGITS, LABELS)
    gamma, temperature = ax.lines[0].get_xydata()[0]
    assert gamma == 0
    assert temperature == pytest.approx(fitted.temperature_, rel=0.05)
    with pytest.raises(fc.InputError, match="criterion"):
        plots.criterion_landscape(LOGITS, LABELS, criterion="brier")


def test_per_class_shows_the_worst_classes_first():
    table = ClassTable(
        4, list("abcd"), [1] * 4, [0.25] * 4, [0.3] * 4, [0.1, -0.2, 0.3, 0.0], [0.1, 0.4, 0.3, 0.2], [None] * 4
    )
    ax = plots.per_class(table, most=3)
    assert names_of(ax) == ["b", "c", "d"]
    assert [patch.get_width() for patch in ax.patches] == [0.4, 0.3, 0.2]
    assert ax.lines[0].get_xdata().tolist() == [-0.2, 0.3, 0.0]
    assert ax.get_title(loc="right") == "worst 3 of 4 classes"


def test_per_class_of_scores_has_the_classwise_ece():
    ax = plots.per_class(LOGITS, LABELS, class_names=["ape", "bat", "cat", "dog"])
    assert sorted(names_of(ax)) == ["ape", "bat", "cat", "dog"]
    widths = [patch.get_width() for patch in ax.patches]
    assert np.mean(widths) == pytest.approx(metrics.classwise_ece(LOGITS, LABELS))


def test_confusions_are_counted_and_may_be_none():
    ax = plots.confusions(Confusions(0.9, 7, ["a", "b"], ["b", "a"], [5, 2], [0.95, 0.91]))
    assert names_of(ax) == ["a → b", "b → a"]
    assert [patch.get_width() for patch in ax.patches] == [5, 2]
    assert [text.get_text() for text in ax.texts] == ["95%", "91%"]
    empty = plots.confusions(Confusions(0.9, 0, [], [], [], []))
    assert [text.get_text() for text in empty.texts] == ["no confident errors"]
    render(empty)


def test_confusions_of_scores_are_its_sure_errors():
    logits = np.array([[9.0, 0.0, 0.0]] * 5 + [[0.0, 9.0, 0.0]])
    ax = plots.confusions(torch.tensor(logits), torch.tensor([1, 1, 1, 2, 0, 1]), class_names=["x", "y", "z"])
    assert names_of(ax) == ["y → x", "z → x"]
    assert [patch.get_width() for patch in ax.patches] == [3, 1]


def test_the_dynamics_of_a_loss_its_history_and_a_report_are_the_same():
    loss = fc.AdaFocalLoss(num_bins=5)
    for seed in range(3):
        loss.update(*map(torch.tensor, drawn(100, seed=seed)))
    gamma = loss.history["gamma"].numpy()
    dynamics = Dynamics(gamma.tolist(), [0.0] * 5, [1.0] * 5)
    for given in (loss, loss.history, dynamics):
        ax = plots.gamma_dynamics(given)
        np.testing.assert_array_equal(np.stack([line.get_ydata() for line in ax.lines[:5]], 1), gamma)
        assert ax.lines[0].get_xdata().tolist() == [1, 2, 3]
    render(plots.gamma_dynamics({"gamma": [[1.0]]}))
    with pytest.raises(fc.InputError, match="at least one update"):
        plots.gamma_dynamics(fc.AdaFocalLoss())


def test_versions_are_compared_by_the_intervals_of_the_bootstrap():
    interval = metrics.bootstrap("nll", LOGITS, LABELS, num_resamples=100)
    rows = metrics.read(LOGITS / 2, LABELS)
    versions = {"scores": LOGITS, "interval": interval, "rows": rows, "number": Estimate(0.5)}
    ax = plots.compare_versions(versions, LABELS, measure="nll", num_resamples=100)
    assert names_of(ax) == list(versions)
    bars, dots = ax.lines[0:8:2], ax.lines[1:8:2]
    for bar in bars[:2]:
        assert bar.get_xdata().tolist() == [interval.low, interval.high]
    assert dots[2].get_xdata() == pytest.approx(metrics.nll(rows), rel=1e-14)
    assert np.isnan(bars[3].get_xdata()).all()


def test_versions_of_a_report_carry_the_names_of_their_models():
    contents = contents_of("one", "two")
    assert names_of(plots.compare_versions(contents))[2:] == ["two, as it is", "two, temperature"]
    assert names_of(plots.compare_versions(contents.models[0])) == ["as it is", "temperature"]
    with pytest.raises(fc.InputError, match="version with brier"):
        plots.compare_versions(contents, measure="brier")


# ---- names


def test_hostile_names_are_shown_as_text_without_a_warning():
    k = len(HOSTILE)
    table = ClassTable(k, list(HOSTILE), [1] * k, [0.1] * k, [0.1] * k, [0.1] * k, [0.1] * k, [None] * k)
    axes = [
        plots.per_class(table),
        plots.confusions(Confusions(0.5, k, list(HOSTILE), list(HOSTILE), [1] * k, [0.9] * k)),
        plots.compare_versions({name: Estimate(0.1, 0.0, 0.2) for name in HOSTILE}),
        plots.risk_coverage(dict.fromkeys(HOSTILE, LOGITS[:50]), LABELS[:50]),
        *plots.reliability_diagrams(dict.fromkeys(HOSTILE[:3], LOGITS[:50]), LABELS[:50])[:1],
    ]
    for ax in axes:
        render(ax)
    assert r"$\frac{1}{" in names_of(axes[0])
    assert max(map(len, names_of(axes[0]))) <= 24
    assert legend_of(axes[3])[8].startswith("_under % & # ~")


def test_signs_that_turn_text_around_are_left_out_of_names():
    assert drawing.shown("\u202egnp.exe") == "gnp.exe"


def test_an_arrow_between_right_to_left_names_still_points_to_the_second():
    mark = "\u200e"
    assert drawing.arrow("שלום", "عالم") == f"{mark}שלום{mark} → {mark}عالم{mark}"


# ---- all figures of a report


def diagram_of(rows, scheme, num_bins=15):
    chance = metrics.consistency_bars(rows, num_bins=num_bins, edges=scheme, num_resamples=100)
    bins = chance.bins
    low, high = metrics.accuracy_bands(bins)
    held = bins.count > 0
    columns = (
        bins.edges[:-1],
        bins.edges[1:],
        bins.count,
        bins.confidence,
        bins.accuracy,
        low,
        high,
        chance.low,
        chance.high,
    )
    return Diagram(scheme, num_bins, *(column[held].tolist() for column in columns), chance.ece, chance.ece_high)


def landscape_of(criterion="nll"):
    values = [[1.0, 0.5, 0.9], [0.8, 0.6, 0.4]]
    best = CriterionPoint(0.0, 2.0, 0.5), CriterionPoint(0.5, 3.0, 0.4)
    return Landscape(criterion, [0.0, 0.5], [1.0, 2.0, 3.0], values, *best, [[0.0, 2.0], [0.5, 2.5]])


@cache
def version_of(name, temperature):
    rows = metrics.read(LOGITS / temperature, LABELS)
    numbers = {measure: Estimate(0.1, 0.05, 0.15) for measure in ("ece", "ada_ece", "nll", "aurc")}
    diagrams = [diagram_of(rows, scheme, count) for scheme in ("equal_width", "equal_mass") for count in (5, 15)]
    return ModelVersion(name, "", "", "both", numbers, diagrams, Curve([0.5, 1.0], [0.1, 0.2]), [])


def model_of(name, dynamics=None):
    return Model(
        name=name,
        num_rows=len(LABELS),
        num_fit_rows=0,
        num_classes=4,
        kind="logits",
        weighted=False,
        split="",
        same_data=False,
        missing_classes=[],
        num_missing=0,
        num_duplicates=0,
        verdict="",
        versions=[version_of("as it is", 1.0), version_of("temperature", 2.0)],
        classes=ClassTable(1, ["a"], [1], [1.0], [1.0], [0.0], [0.0], [1.0]),
        confusions=Confusions(0.5, 1, ["a"], ["b"], [1], [0.7]),
        landscapes=[landscape_of("nll"), landscape_of("ada_ece")],
        explorer=None,
        dynamics=dynamics,
    )


def contents_of(*names, **options):
    return Contents("title", "0", 0.95, 15, 0, [model_of(name, **options) for name in names])


def small_contents_of(*names):
    """One version, one landscape: six figures a model."""
    models = [
        replace(model, versions=model.versions[:1], landscapes=model.landscapes[:1])
        for model in contents_of(*names).models
    ]
    return replace(contents_of(), models=models)


def test_every_figure_of_a_report_is_saved(tmp_path):
    contents = contents_of("Net 5", dynamics=Dynamics([[1.0, 1.1]], [0.0, 0.5], [0.5, 1.0]))
    saved = plots.save_figures(contents, tmp_path / "new" / "figures")
    assert [path.name for path in saved] == [
        "compare_ece.png",
        "compare_ada_ece.png",
        "compare_nll.png",
        "reliability_Net-5_as-it-is.png",
        "reliability_equal_mass_Net-5_as-it-is.png",
        "reliability_Net-5_temperature.png",
        "reliability_equal_mass_Net-5_temperature.png",
        "risk_coverage_Net-5.png",
        "landscape_Net-5_nll.png",
        "landscape_Net-5_ada_ece.png",
        "per_class_Net-5.png",
        "confusions_Net-5.png",
        "gamma_dynamics_Net-5.png",
    ]
    assert sorted(path.name for path in (tmp_path / "new" / "figures").iterdir()) == sorted(path.name for path in saved)


@pytest.mark.slow
def test_all_formats_are_written_and_the_same_contents_give_the_same_bytes(tmp_path):
    contents = small_contents_of("net")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    first = plots.save_figures(contents, tmp_path / "a", formats=tuple(start))
    with matplotlib.rc_context({"svg.hashsalt": "another"}):
        second = plots.save_figures(contents, tmp_path / "b", formats=tuple(start))
    assert len(first) == 3 * 6
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes().startswith(start[one.suffix[1:]])
        assert one.read_bytes() == two.read_bytes(), one.name


def test_file_names_are_safe_and_never_overwrite_one_another(tmp_path, monkeypatch):
    monkeypatch.setattr("focalcal.report.plots.save.bytes_of", lambda figure, name: b"")
    names = ("../../etc/passwd", "", "a/b", "A b", "模型" + "x" * 300)
    saved = plots.save_figures(small_contents_of(*names), tmp_path)
    assert len({path.name.lower() for path in saved}) == len(saved) == 3 + 6 * len(names)
    assert {path.parent for path in saved} == {tmp_path}
    assert all(path.exists() and path.name.isascii() and len(path.name) < 150 for path in saved)


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(fc.InputError, match="png, svg, pdf"):
        plots.save_figures(contents_of("net"), tmp_path / "figures", formats=("png", "exe"))
    assert not (tmp_path / "figures").exists()


def test_a_figure_that_fails_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr("focalcal.report.plots.save.confusions", fail)
    with pytest.raises(RuntimeError):
        plots.save_figures(small_contents_of("net"), tmp_path)
    assert not list(tmp_path.iterdir())


# ---- matplotlib itself


def test_settings_are_the_same_before_and_after(tmp_path):
    before = dict(dict.items(matplotlib.rcParams))  # reading the backend by its name would choose one
    plots.save_figures(small_contents_of("net"), tmp_path, formats=("svg",))
    plots.reliability_diagram(LOGITS, LABELS)
    assert dict(dict.items(matplotlib.rcParams)) == before


def test_importing_the_figures_loads_no_matplotlib_and_drawing_them_neither_loads_pyplot_nor_filters_warnings(tmp_path):
    (tmp_path / "contents").write_bytes(pickle.dumps(small_contents_of("net")))
    code = (
        "import pickle, sys, warnings; from pathlib import Path; from focalcal.report import plots; "
        "print('matplotlib' in sys.modules); "
        "contents = pickle.loads(Path('contents').read_bytes()); import matplotlib; before = warnings.filters[:]; "
        "saved = plots.save_figures(contents, 'figures', formats=['png']); "
        "plots.gamma_dynamics({'gamma': [[1.0]]}); "
        "print(len(saved), 'matplotlib.pyplot' in sys.modules, warnings.filters == before)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout.split() == ["False", "6", "False", "True"], ran.stderr


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    calls = [
        lambda: plots.reliability_diagram(LOGITS, LABELS),
        lambda: plots.reliability_diagrams({"a": LOGITS}, LABELS),
        lambda: plots.risk_coverage(LOGITS, LABELS),
        lambda: plots.criterion_landscape(landscape_of()),
        lambda: plots.per_class(LOGITS, LABELS),
        lambda: plots.confusions(LOGITS, LABELS),
        lambda: plots.gamma_dynamics({"gamma": [[1.0]]}),
        lambda: plots.compare_versions({"a": Estimate(0.1)}),
        lambda: plots.save_figures(contents_of("a"), "unused"),
    ]
    for call in calls:
        with pytest.raises(fc.MissingExtraError, match=r"focalcal\[plots\]"):
            call()


def test_names_survive_a_user_who_sets_everything_in_tex():
    with matplotlib.rc_context({"text.usetex": True, "text.parse_math": True}):
        ax = plots.compare_versions({"100 % $a": Estimate(0.1)}, title="a_b % $c$ $")
    shown = [ax.title, ax.xaxis.label, *ax.get_yticklabels()]
    assert not any(text.get_usetex() or text.get_parse_math() for text in shown)
