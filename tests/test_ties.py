"""Equal probabilities stay equal, and those on the edge of a bin stay there, whichever way they take.

A forest of 100 trees gives probabilities of k/100: most confidences are tied, and many lie on the edges of bins. The
expected values are counted in whole numbers, where nothing is rounded.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import metrics
from focalcal.core.score_kinds import probabilities, with_unit_sums
from focalcal.files import Columns, PredictionStream, PredictionTable, derived_streams, write_predictions
from focalcal.report.measure_version import calibrated
from tests.cli.tools import call

NUM_BINS = 20


def votes(seed: int = 2, rows: int = 600, num_classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """How many of 100 trees vote for each class, and labels."""
    generator = np.random.default_rng(seed)
    cast = generator.multinomial(100, generator.dirichlet(np.full(num_classes, 0.7), rows))
    drawn = (generator.random((rows, 1)) * 100 < np.cumsum(cast, 1)).argmax(
        1
    )  # a calibrated forest: gaps of both signs
    return cast, drawn


VOTES, LABELS = votes()
PROBS = VOTES / 100


def counted_auroc(cast: np.ndarray, labels: np.ndarray) -> float:
    """The AUROC of correctness, by comparing each correct row with each wrong one."""
    top, right = cast.max(1), cast.argmax(1) == labels
    hit, missed = top[right][:, None], top[~right][None]
    return float((2 * (hit > missed).sum() + (hit == missed).sum()) / (2 * hit.size * missed.size))


def counted_ece(cast: np.ndarray, labels: np.ndarray) -> float:
    """ECE with bins of equal width, in fractions."""
    top, right = cast.max(1), cast.argmax(1) == labels
    place = -(-top * NUM_BINS // 100)  # the bin (i - 1, i] / 20 in which k/100 lies
    gaps = [Fraction(int(top[place == i].sum()), 100) - int(right[place == i].sum()) for i in range(1, NUM_BINS + 1)]
    return float(sum(map(abs, gaps)) / len(top))


EXPECTED = counted_auroc(VOTES, LABELS), counted_ece(VOTES, LABELS)


def measured(*predictions, **options) -> tuple[float, float]:
    evaluation = fc.evaluate(*predictions, num_bins=NUM_BINS, **options)
    return evaluation.auroc_correctness, evaluation.ece


def assert_expected(found: tuple[float, float]) -> None:
    assert found == pytest.approx(EXPECTED, rel=1e-12)


def kept_identity() -> fc.TemperatureScaling:
    """A calibrator whose fit has found nothing better than the raw logits."""
    calibrator = fc.TemperatureScaling().fit(PROBS, LABELS, kind="probs")
    calibrator.set_extra_state({"num_classes": 5, "report": calibrator.report_.to_dict() | {"kept_identity": True}})
    return calibrator


LEAVING = {
    "identity": fc.Identity,
    "compose": lambda: fc.Compose(fc.Identity(), fc.Identity()),
    "kept": kept_identity,
}


@pytest.mark.parametrize("as_tensor", [False, True])
def test_measures_and_evaluate(as_tensor):
    probs = torch.from_numpy(PROBS) if as_tensor else PROBS
    rows = metrics.read(probs, LABELS, kind="probs")
    assert_expected((metrics.auroc_correctness(rows), metrics.ece(rows, num_bins=NUM_BINS)))
    assert_expected(measured(probs, LABELS, kind="probs"))


def test_log_probabilities_keep_ties():
    with np.errstate(divide="ignore"):
        auroc, _ = measured(np.log(PROBS), LABELS, kind="log_probs")  # exp(log p) may leave the edge of a bin
    assert auroc == pytest.approx(EXPECTED[0], rel=1e-12)


@pytest.mark.parametrize("dtypes", [("float32",), ("float16",), ("float32", "float64")])
def test_the_precision_of_the_scores_does_not_matter(dtypes):
    probs = PROBS
    for dtype in dtypes:  # the last case is what a network gives, widened afterwards
        probs = probs.astype(dtype)
    assert metrics.auroc_correctness(probs, LABELS, kind="probs") == pytest.approx(EXPECTED[0], rel=1e-12)


def test_streams():
    parts = [(PROBS[:250], LABELS[:250]), (PROBS[250:], LABELS[250:])]
    assert_expected(measured(PredictionStream(parts, Columns(kind="probs"))))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_files_and_the_command_line(tmp_path, suffix):
    file = tmp_path / f"forest{suffix}"
    write_predictions(PredictionTable("forest", PROBS, "probs", labels=LABELS), file)
    found = call("evaluate", file, "--num-bins", NUM_BINS, "--kind", "probs", "--json").json()
    values = {name: each["value"] for name, each in found["before"]["measures"].items()}
    assert_expected((values["auroc_correctness"], values["ece"]))


@pytest.mark.parametrize("name", LEAVING)
def test_calibrators_that_leave_the_scores_as_they_are(name):
    calibrator = LEAVING[name]()
    probs = calibrator.predict_probs(PROBS, kind="probs")
    np.testing.assert_array_equal(probs, PROBS)
    assert_expected(measured(probs, LABELS, kind="probs"))
    table = calibrated(PredictionTable("forest", PROBS, "probs", labels=LABELS), calibrator)
    assert_expected(measured(table.scores, table.labels, kind=table.kind))
    stream = PredictionStream([(PROBS, LABELS)], Columns(kind="probs"))
    assert_expected(measured(derived_streams.calibrated(stream, calibrator)))


def test_apply_writes_the_probabilities_that_it_read(tmp_path):
    fc.Identity().save(tmp_path / "identity.json")
    np.savez(tmp_path / "forest.npz", probs=PROBS, labels=LABELS)
    answer = call("apply", tmp_path / "identity.json", tmp_path / "forest.npz", "--out", tmp_path / "out.npz")
    assert answer.code == 0, answer.err
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_array_equal(out["probs"], PROBS)


def test_select_judges_the_raw_probabilities_as_they_are():
    found = fc.select_calibrator(PROBS, LABELS, kind="probs", methods=["temperature"], criterion="aurc", nested=False)
    raw = next(row for row in found.table if row.name == "identity")
    assert raw.score == pytest.approx(metrics.aurc(PROBS, LABELS, kind="probs"), rel=1e-12)


def test_a_fit_reports_the_criterion_of_the_probabilities_as_they_are():
    fitted = fc.TemperatureScaling(criterion="ece", num_bins=NUM_BINS).fit(PROBS, LABELS, kind="probs")
    assert fitted.report_.before == pytest.approx(EXPECTED[1], rel=1e-12)


# ---------------------------------------------------------------------- which sums are 1 within rounding


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [2, 10, 1000])
def test_what_softmax_gives_is_left_as_it_is(dtype, num_classes):
    logits = 4 * torch.randn(200, num_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.softmax(logits.to(dtype), 1)
    given = rows if dtype in (torch.float32, torch.float64) else rows.float()
    assert with_unit_sums(given, "probs", torch.finfo(dtype).eps) is given
    given = torch.log_softmax(logits.to(dtype), 1)
    given = given if dtype in (torch.float32, torch.float64) else given.float()
    assert with_unit_sums(given, "log_probs", torch.finfo(dtype).eps) is given


def test_means_of_many_models_are_left_as_they_are():
    logits = torch.randn(100, 50, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.softmax(logits, 2).mean(0)
    assert with_unit_sums(rows, "probs", torch.finfo(torch.float32).eps) is rows


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rounded_rows_are_divided_by_their_sum_and_then_left_alone(kind, dtype):
    rows = torch.tensor([[0.33333, 0.33333, 0.33333], [0.5, 0.25, 0.25]], dtype=torch.float64)
    rows = (rows if kind == "probs" else rows.log()).to(dtype)
    epsilon = torch.finfo(dtype).eps
    once = with_unit_sums(rows, kind, epsilon)
    np.testing.assert_allclose(probabilities(once, kind)[0].double().numpy(), 1 / 3, rtol=4 * epsilon)
    assert torch.equal(once[1], rows[1])
    assert with_unit_sums(once, kind, epsilon) is once
