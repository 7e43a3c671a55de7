from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import focalcal
from focalcal import metrics
from focalcal.calibrators import Calibrator, FocalTemperatureScaling, TemperatureScaling, VectorScaling
from focalcal.errors import InputError
from focalcal.files.prediction_table import PredictionTable
from focalcal.report.build import build_contents, default_methods
from focalcal.report.contents import BIN_COUNTS, Contents, Model
from focalcal.report.explorer import decode
from focalcal.report.html import render
from focalcal.report.measure_version import calibrated
from tests.report.cases import model_of, sharp_table

QUICK: dict[str, Any] = {"num_resamples": 100}
INTERVALS = ("accuracy", "mean_confidence", "nll", "brier", "ece", "ada_ece")
# As good as the defaults here, and ten times as fast to fit.
LIGHT = {"temperature": TemperatureScaling(), "line": FocalTemperatureScaling("nll", search="continuous")}


@pytest.fixture(scope="module", autouse=True)
def _coarse_maps_and_bands() -> Iterator[None]:
    """Maps of few temperatures and bands of few draws: their values have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("focalcal.report.measure_version._CHANCE_DRAWS", 100)
        patch.setattr("focalcal.report.criterion_landscape._NUM_TEMPERATURES", 5)
        patch.setattr("focalcal.report.criterion_landscape._ROUNDS", 1)
        yield


@lru_cache(maxsize=1)
def usual() -> tuple[PredictionTable, PredictionTable, Model]:
    """A table to score, one to fit to, and the report's model of them."""
    score, fit = sharp_table(700, seed=0), sharp_table(500, seed=1)
    return score, fit, build_contents([model_of(score, fit)], **QUICK).models[0]


def only(table: PredictionTable, **options: Any) -> Model:
    """The model of a table to which nothing is fitted."""
    return build_contents([model_of(table)], **QUICK, **options).models[0]


def close(table: PredictionTable, model: Model) -> None:
    """The report's numbers of the first version are those of the library."""
    evaluation = metrics.evaluate(table.scores, table.labels, kind=table.kind, sample_weight=table.weights)
    for name, number in model.versions[0].numbers.items():
        expected = evaluation.mean_confidence - evaluation.accuracy if name == "gap" else getattr(evaluation, name)
        finite = expected is not None and np.isfinite(expected)
        assert number.value == (pytest.approx(expected, abs=1e-9) if finite else None), name


def test_numbers_of_the_model_are_those_of_the_library() -> None:
    score, _, model = usual()
    close(score, model)
    numbers = model.versions[0].numbers
    for name in INTERVALS:
        interval = metrics.bootstrap(name, score.scores, score.labels, num_resamples=100)
        assert (numbers[name].low, numbers[name].high) == pytest.approx((interval.low, interval.high))
    assert model.verdict == model.versions[0].verdict
    assert model.verdict.startswith("overconfident")


def test_numbers_after_a_calibrator_are_those_of_its_probabilities() -> None:
    score, fit, model = usual()
    for name, template in default_methods().items():
        calibrator = template.fit(fit.scores, fit.labels)
        evaluation = metrics.evaluate(calibrator.predict_probs(score.scores), score.labels, kind="probs")
        version = next(each for each in model.versions if each.name == name)
        for measure in ("accuracy", "nll", "brier", "ece", "ada_ece", "aurc"):
            assert version.numbers[measure].value == pytest.approx(getattr(evaluation, measure), abs=2e-6)


def test_versions_are_the_model_as_it_is_and_each_method_with_its_settings() -> None:
    _, fit, model = usual()
    assert [version.name for version in model.versions] == ["as it is", "temperature", "focal-temperature"]
    temperature = TemperatureScaling().fit(fit.scores, fit.labels).temperature_
    focal = FocalTemperatureScaling().fit(fit.scores, fit.labels)
    assert model.versions[0].settings == ""
    assert model.versions[1].settings == f"T = {temperature:.2f}"
    assert model.versions[2].settings == f"γ = {focal.gamma_:.2f}, T = {focal.temperature_:.2f}"
    explorer = model.explorer
    assert explorer is not None
    assert explorer.temperature == temperature
    assert (explorer.focal_gamma, explorer.focal_temperature) == (focal.gamma_, focal.temperature_)


@pytest.mark.parametrize("scheme", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("num_bins", BIN_COUNTS)
def test_diagrams_are_the_bins_and_bands_of_the_library(scheme: Any, num_bins: int) -> None:
    score, _, model = usual()
    found = next(d for d in model.versions[0].diagrams if (d.scheme, d.num_bins) == (scheme, num_bins))
    rows = metrics.read(score.scores, score.labels)
    bins = rows.bins(num_bins, scheme)
    there = bins.count > 0
    assert sum(found.count) == 700
    assert found.count == bins.count[there].tolist()
    assert found.confidence == bins.confidence[there].tolist()
    assert found.accuracy == bins.accuracy[there].tolist()
    assert found.lower == bins.edges[:-1][there].tolist()
    assert found.upper == bins.edges[1:][there].tolist()
    low, high = metrics.accuracy_bands(bins)
    assert (found.low, found.high) == (low[there].tolist(), high[there].tolist())
    measure = metrics.ece if scheme == "equal_width" else metrics.ada_ece
    assert found.error == pytest.approx(float(measure(rows, num_bins=num_bins)))
    assert 0 < found.chance_error < 0.2
    # Accuracies come in steps of one row.
    step = 1 / np.array(found.count)
    assert (np.array(found.chance_low) - step < found.confidence).all()
    assert (np.array(found.chance_high) + step > found.confidence).all()


def test_risk_coverage_is_thinned_and_ends_with_the_error_of_all_rows() -> None:
    score, _, model = usual()
    curve, exact = model.versions[0].risk_coverage, metrics.risk_coverage_curve(score.scores, score.labels)
    assert len(curve.coverage) <= 200
    assert curve.coverage == sorted(curve.coverage)
    assert curve.coverage[0] == exact.coverage[0]
    assert (curve.coverage[-1], curve.risk[-1]) == (1.0, exact.risk[-1])
    places = np.searchsorted(exact.coverage, curve.coverage)
    assert curve.risk == exact.risk[places].tolist()
    assert np.diff(curve.coverage).max() < 0.01


def test_facts_are_carried_through() -> None:
    score, fit, _ = usual()
    score = replace(score.take(np.flatnonzero(score.labels != 2)), class_names=("a", "b", "c", "d"))
    score.scores[3] = score.scores[1]
    model = build_contents([model_of(score, fit, same_data=True)], methods={}, **QUICK).models[0]
    assert model.same_data
    assert model.split == "fitted to some rows, measured on others"
    assert (model.num_rows, model.num_fit_rows, model.num_classes, model.kind) == (score.num_rows, 500, 4, "logits")
    assert (model.missing_classes, model.num_missing, model.num_duplicates) == (["c"], 1, 1)
    assert not model.weighted
    assert any("do not occur" in warning for warning in model.versions[0].warnings)


def test_templates_are_not_fitted_themselves() -> None:
    template = TemperatureScaling()
    build_contents([model_of(sharp_table(60), sharp_table(60))], methods={"t": template}, **QUICK)
    assert not template.is_fitted


class _Broken(TemperatureScaling):
    def _fit(self, data: Any) -> Any:
        raise RuntimeError("no luck today")


def test_a_method_that_fails_is_left_out_with_a_warning() -> None:
    methods: dict[str, Calibrator] = {"broken": _Broken(), "temperature": TemperatureScaling()}
    model = build_contents([model_of(sharp_table(100), sharp_table(100))], methods=methods, **QUICK).models[0]
    assert [version.name for version in model.versions] == ["as it is", "temperature"]
    assert "broken is left out: no luck today" in model.versions[0].warnings


def test_rows_that_nothing_can_be_fitted_to_leave_the_model_as_it_is() -> None:
    model = build_contents([model_of(sharp_table(100), sharp_table(1))], **QUICK).models[0]
    assert [version.name for version in model.versions] == ["as it is"]
    assert model.landscapes == []
    left_out = [warning for warning in model.versions[0].warnings if "left out" in warning]
    assert len(left_out) == 3
    assert all("at least 2 rows" in warning for warning in left_out)


def test_a_given_calibrator_that_does_not_fit_is_left_out_with_a_warning() -> None:
    other = sharp_table(300, 5)
    wrong = VectorScaling().fit(other.scores, other.labels)
    model = build_contents([model_of(sharp_table(100), calibrators={"theirs": wrong})], **QUICK).models[0]
    assert [version.name for version in model.versions] == ["as it is"]
    assert any("theirs is left out" in warning for warning in model.versions[0].warnings)


def test_without_rows_to_fit_to_only_given_calibrators_are_shown() -> None:
    score, fit, _ = usual()
    ready = TemperatureScaling().fit(fit.scores, fit.labels)
    model = build_contents([model_of(score, calibrators={"given": ready})], **QUICK).models[0]
    assert [version.name for version in model.versions] == ["as it is", "given"]
    assert model.landscapes == []
    assert model.num_fit_rows == 0
    assert model.explorer is not None
    assert model.explorer.temperature == ready.temperature_
    assert (model.explorer.focal_gamma, model.explorer.focal_temperature) == (0.0, 1.0)


def test_given_calibrators_may_have_the_name_of_a_method() -> None:
    score, fit, _ = usual()
    ready = TemperatureScaling().fit(score.scores, score.labels)
    given = model_of(score, fit, calibrators={"temperature": ready})
    model = build_contents([given], methods={"temperature": TemperatureScaling()}, **QUICK).models[0]
    assert [version.name for version in model.versions] == ["as it is", "temperature", "temperature"]
    own = TemperatureScaling().fit(fit.scores, fit.labels).temperature_
    assert [version.settings for version in model.versions[1:]] == [f"T = {ready.temperature_:.2f}", f"T = {own:.2f}"]


def test_landscapes_are_those_of_the_rows_of_the_fit() -> None:
    _, fit, model = usual()
    nll = model.landscapes[0]
    assert [each.criterion for each in model.landscapes] == ["nll", "ada_ece"]
    expected = TemperatureScaling().fit(fit.scores, fit.labels).temperature_
    assert nll.best_temperature.temperature == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["whole", "some zero"])
def test_weighted_rows_are_measured_with_their_weights(kind: str) -> None:
    generator = np.random.default_rng(0)
    weights = generator.integers(1, 4, 300).astype(float) if kind == "whole" else generator.uniform(0.2, 2, 300)
    if kind == "some zero":
        weights[::3] = 0
    table = sharp_table(300, weights=weights)
    model = build_contents([model_of(table, table)], methods=LIGHT, **QUICK).models[0]
    close(table, model)
    assert model.weighted
    assert model.explorer is not None
    assert model.explorer.weights is not None
    assert any("weighted" in warning for warning in model.versions[1].warnings)
    assert model.versions[1].numbers["nll"].value < model.versions[0].numbers["nll"].value  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["logits", "probs", "log_probs"])
def test_binary_scores_of_the_positive_class_are_two_classes(kind: Any) -> None:
    table = sharp_table(300, 2)
    column = (table.scores[:, 1] - table.scores[:, 0]).astype(np.float64)
    scores = {"logits": column, "probs": 1 / (1 + np.exp(-column)), "log_probs": -np.log1p(np.exp(-column))}[kind]
    binary = PredictionTable("binary", scores, kind, labels=table.labels)
    only_temperature = {"temperature": TemperatureScaling()}
    model, two = (
        build_contents([model_of(each, each)], methods=only_temperature, **QUICK).models[0] for each in (binary, table)
    )
    assert model.num_classes == 2
    for mine, theirs in zip(model.versions, two.versions, strict=True):
        assert mine.numbers["nll"].value == pytest.approx(theirs.numbers["nll"].value, abs=1e-5)
    assert model.confusions.total == two.confusions.total


def test_thirty_rows_are_enough() -> None:
    table = sharp_table(30, 3)
    model = build_contents([model_of(table, table)], methods=LIGHT, **QUICK).models[0]
    close(table, model)
    largest = next(d for d in model.versions[0].diagrams if (d.scheme, d.num_bins) == ("equal_mass", 50))
    assert sum(largest.count) == len(largest.count) == 30


def test_one_row_is_enough_to_be_measured() -> None:
    model = only(PredictionTable("one", np.array([[2.0, 0.0]]), "logits", labels=np.array([1])))
    assert model.versions[0].numbers["accuracy"].value == 0
    assert model.versions[0].risk_coverage.risk == [1.0]
    assert model.confusions.total == 1


def test_a_model_that_is_always_right_has_no_confusions() -> None:
    table = sharp_table(200)
    table = replace(table, labels=table.scores.argmax(1))
    model = build_contents([model_of(table, table)], methods=LIGHT, **QUICK).models[0]
    assert model.versions[0].numbers["accuracy"].value == 1
    assert model.versions[0].numbers["auroc_correctness"].value is None
    assert (model.confusions.total, model.confusions.count) == (0, [])
    render(replace(_contents(), models=[model]))


def test_probabilities_of_zero_make_the_nll_undefined_and_nothing_else() -> None:
    probs = np.zeros((200, 3))
    probs[np.arange(200), np.arange(200) % 3] = 1
    table = PredictionTable("hard", probs, "probs", labels=(np.arange(200) // 2) % 3)
    model = build_contents([model_of(table, table)], methods=LIGHT, **QUICK).models[0]
    numbers = model.versions[0].numbers
    assert numbers["nll"].value is None
    assert numbers["ece"].value == pytest.approx(1 - float(numbers["accuracy"].value or 0))
    assert model.explorer is not None
    assert np.isfinite(decode(model.explorer).scores.numpy()).all()
    assert model.versions[1].numbers["nll"].value is not None


def test_history_of_adafocal_becomes_dynamics() -> None:
    generator = np.random.default_rng(0)
    names = ("gamma", "lower_edge", "upper_edge", "confidence", "accuracy", "count")
    history = {name: generator.uniform(size=(4, 15)) for name in names}
    found = only(sharp_table(50, history=history)).dynamics
    assert found is not None
    assert found.gamma == history["gamma"].tolist()
    assert (found.lower, found.upper) == (history["lower_edge"][-1].tolist(), history["upper_edge"][-1].tolist())
    assert only(sharp_table(50)).dynamics is None


def test_several_models_share_the_room_of_the_page() -> None:
    tables = [sharp_table(4000, 10, seed=seed) for seed in range(3)]
    contents = build_contents([model_of(table, name=f"m{i}") for i, table in enumerate(tables)], **QUICK)
    assert [model.name for model in contents.models] == ["m0", "m1", "m2"]
    assert all(2000 < model.explorer.num_rows < 4000 for model in contents.models if model.explorer)


def test_more_classes_than_the_page_can_count_leave_the_explorer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focalcal.report.explorer.MOST_CLASSES", 3)
    assert only(sharp_table(50, 4)).explorer is None
    assert only(sharp_table(50, 3)).explorer is not None


def test_a_fit_at_the_end_of_its_range_is_warned_of() -> None:
    table = sharp_table(200)
    right = replace(table, labels=table.scores.argmax(1))
    model = build_contents([model_of(table, right)], methods={"temperature": TemperatureScaling()}, **QUICK).models[0]
    assert any("end of its range" in warning for warning in model.versions[1].warnings)


def test_progress_counts_up_to_the_total() -> None:
    seen: list[tuple[int, int, str]] = []
    score, fit = sharp_table(60), sharp_table(60)
    ready = TemperatureScaling().fit(fit.scores, fit.labels)
    models = [model_of(score, fit, name="a", calibrators={"ready": ready}), model_of(score, name="b")]
    build_contents(models, methods=LIGHT, progress=lambda *step: seen.append(step), **QUICK)
    total = seen[0][1]
    assert [done for done, _, _ in seen] == list(range(total + 1))
    assert {each for _, each, _ in seen} == {total}
    assert [what for _, _, what in seen if what.startswith("b:")] == [
        "b: measuring the model as it is",
        "b: sampling rows for the page",
    ]


def _contents() -> Contents:
    return build_contents([model_of(sharp_table(80), sharp_table(80, seed=1))], methods=LIGHT, **QUICK)


def test_same_input_and_seed_give_the_same_bytes() -> None:
    assert render(_contents()) == render(_contents())


def test_contents_say_how_they_were_made() -> None:
    contents = build_contents([model_of(sharp_table(80))], title="A title", num_bins=10, level=0.9, seed=7, **QUICK)
    made = (contents.title, contents.num_bins, contents.level, contents.seed, contents.version)
    assert made == ("A title", 10, 0.9, 7, focalcal.__version__)
    assert contents.bin_counts == list(BIN_COUNTS)


def test_calibrated_scores_keep_their_precision_and_their_rows() -> None:
    table = sharp_table(50)
    ready = FocalTemperatureScaling("nll", search="continuous").fit(table.scores, table.labels)
    found = calibrated(table, ready)
    assert (found.kind, found.scores.dtype, found.labels is table.labels) == ("log_probs", np.float32, True)
    np.testing.assert_allclose(np.exp(found.scores), ready.predict_probs(table.scores), rtol=1e-5)


def test_bad_models_are_refused() -> None:
    with pytest.raises(InputError, match="models: must be at least one"):
        build_contents([])
    with pytest.raises(InputError, match="must have labels"):
        only(replace(sharp_table(20), labels=None))
    with pytest.raises(InputError, match="classes of the measured rows, 4"):
        build_contents([model_of(sharp_table(20, 4), sharp_table(20, 3))])
