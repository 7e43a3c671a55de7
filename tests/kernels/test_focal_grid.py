"""The grid of the focal temperature family: the compiled kernel, its definition in torch, and the map in float64."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch

from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.search import Criterion, focal_temperature_map
from focalcal.core.focal_map import focal_temperature_log_probs
from focalcal.kernels import compiled, focal_grid
from focalcal.kernels.focal_grid import SCAN_ERROR, CompiledGridRows, DefinedGridRows, prepare_rows

GAMMAS = (-0.9, -0.5, 0.0, 0.05, 1.0, 5.0, 20.0)
TEMPERATURES = (0.01, 0.05, 0.3, 0.8, 1.0, 1.3, 2.5, 5.0, 100.0, 1000.0)
LINES = [(temperature, GAMMAS) for temperature in TEMPERATURES]
CRITERIA = [("nll", 0.0), ("brier", 0.0), ("focal", 2.0), ("focal", 0.5)]

KERNELS = compiled.compiled_kernels()
needs_compiled = pytest.mark.skipif(KERNELS is None, reason="there are no compiled kernels here")


@pytest.fixture(params=[] if KERNELS is None else KERNELS.available())
def instruction_set(request):
    before = KERNELS.in_use()
    assert KERNELS.choose(request.param)
    yield request.param
    KERNELS.choose(before)


def draw(rows, classes, *, spread=3.0, masked=True, seed=0, dtype=torch.float64):
    """Logits of which some classes are masked in some rows, and labels that are not."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (rows,), generator=generator)
    if masked:
        hidden = torch.rand(rows, classes, generator=generator) < 0.3
        hidden[torch.arange(rows), labels] = False
        logits = logits.masked_fill(hidden, -np.inf)
    return logits.to(dtype), labels


def exact_confidences(logits, lines=LINES):
    points = [(gamma, temperature) for temperature, gammas in lines for gamma in gammas]
    return torch.stack([focal_temperature_log_probs(logits, *point).amax(1).exp() for point in points])


def assert_close(found, expected, error=SCAN_ERROR):
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected)
    assert np.isfinite(found).all()
    assert (np.abs(found - expected) / np.maximum(1, np.abs(expected))).max() < error


@pytest.mark.parametrize("classes", [1, 2, 3, 9, 40])
def test_the_definition_is_the_focal_map_of_the_softmax(classes):
    logits, labels = draw(20, classes)
    exact = exact_confidences(logits)
    assert_close(DefinedGridRows(logits, labels, torch.float64).confidences(LINES), exact, 1e-12)
    assert_close(DefinedGridRows(logits, labels).confidences(LINES), exact)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_the_sums_of_the_definition_are_those_of_the_criterion(criterion):
    (logits, labels), (name, loss_gamma) = draw(20, 12), criterion
    weight = torch.rand(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = data_of_arrays(logits, labels, "logits", weight)
    named = Criterion(name, loss_gamma if name == "focal" else None)
    lines = [(0.7, (0.0, 1.0)), (2.0, (-0.5, 5.0))]
    found = DefinedGridRows(logits, labels, torch.float64).sums(lines, name, loss_gamma, weight)
    points = [(gamma, temperature) for temperature, gammas in lines for gamma in gammas]
    expected = [float(weight.sum()) * named.of(data, focal_temperature_map(*point)) for point in points]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("gamma", [-0.9, 0.05, 5.0, 20.0])
@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
def test_confidences_agree_with_mpmath(gamma, temperature):
    logits, labels = draw(3, 11, masked=False, dtype=torch.float32)
    found = prepare_rows(logits, labels).confidences([(temperature, (gamma,))])[0]
    for row, confidence in zip(logits.tolist(), found.tolist(), strict=True):
        with mp.workdps(60):
            exps = [mp.e ** (mp.mpf(x) / mp.mpf(temperature)) for x in row]
            q = [x / mp.fsum(exps) for x in exps]
            h = [v / ((1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * mp.log(v)) for v in q]
            expected = float(h[q.index(max(q))] / mp.fsum(h))
        assert confidence == pytest.approx(expected, abs=SCAN_ERROR)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("classes", [2, 3, 7, 8, 9, 10, 17, 60, 300])
@pytest.mark.parametrize("rows", [1, 16, 37])
def test_compiled_confidences_are_right_at_every_point(rows, classes):
    logits, labels = draw(rows, classes)
    found = CompiledGridRows(KERNELS, logits, labels)
    assert torch.equal(found.correct, logits.argmax(1) == labels)
    assert_close(found.confidences(LINES), exact_confidences(logits))


@pytest.mark.usefixtures("instruction_set")
def test_thousands_of_classes_lose_no_digits():
    for spread in (0.0, 1.0, 8.0):
        logits, labels = draw(18, 10_000, spread=spread, dtype=torch.float32)
        lines = [(temperature, (-0.5, 0.0, 1.0, 20.0)) for temperature in (0.1, 1.0, 3.0)]
        rows = CompiledGridRows(KERNELS, logits, labels)
        assert_close(rows.confidences(lines), exact_confidences(logits, lines))
        assert_close(rows.sums(lines, "nll"), DefinedGridRows(logits, labels, torch.float64).sums(lines, "nll"))


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@pytest.mark.parametrize("classes", [2, 8, 9, 40])
def test_compiled_sums_are_those_of_the_definition(classes, criterion):
    logits, labels = draw(37, classes, seed=2)
    weight = torch.rand(37, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for each in (None, weight):
        found = CompiledGridRows(KERNELS, logits, labels).sums(LINES, *criterion, each)
        mass = 37 if each is None else float(weight.sum())
        expected = DefinedGridRows(logits, labels, torch.float64).sums(LINES, *criterion, each)
        assert_close(found / mass, expected / mass)


@needs_compiled
@pytest.mark.parametrize("gamma", [-0.95, -0.5, 0.0, 2.0, 20.0])
def test_rows_that_are_sure_tied_or_alone_are_right(gamma):
    nine_seconds = torch.tensor([[50.0, *[0.0] * 11]], dtype=torch.float64)  # none of which may underflow
    rows = torch.cat(
        [
            nine_seconds,
            torch.zeros(1, 12, dtype=torch.float64),
            torch.tensor([[1e6, *[0.0] * 11], [3.0, *[-np.inf] * 11], [2.0, 2.0, *[-1.0] * 10]], dtype=torch.float64),
        ]
    )
    labels = torch.tensor([0, 3, 1, 0, 1])
    lines = [(temperature, (gamma,)) for temperature in (0.01, 0.3, 1.0, 50.0)]
    found = CompiledGridRows(KERNELS, rows, labels)
    assert found.correct.tolist() == [True, False, False, True, False]  # the first of equal logits is predicted
    assert_close(found.confidences(lines), exact_confidences(rows, lines))
    for criterion in CRITERIA:
        assert_close(
            found.sums(lines, *criterion), DefinedGridRows(rows, labels, torch.float64).sums(lines, *criterion)
        )


@needs_compiled
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_type_and_any_layout_of_logits_will_do(dtype):
    logits, labels = draw(21, 11)
    logits = logits.to(dtype)
    expected = DefinedGridRows(logits.double(), labels, torch.float64).confidences(LINES)
    gaps = torch.zeros(21, 30, dtype=dtype)
    gaps[:, :11] = logits
    for same in (logits, logits.t().contiguous().t(), gaps[:, :11]):
        assert_close(CompiledGridRows(KERNELS, same, labels).confidences(LINES), expected)


@needs_compiled
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    logits, labels = draw(3000, 50)
    lines = [(0.5 + i / 10, (-0.5, 0.0, 1.0)) for i in range(20)]
    results = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(focal_grid, "threads_for", lambda _, threads=threads: threads)
        rows = CompiledGridRows(KERNELS, logits, labels)
        results.append((rows.confidences(lines), rows.sums(lines, "nll"), rows.sums(lines, "brier")))
    for confidences, *sums in results[1:]:
        assert torch.equal(confidences, results[0][0])
        assert all(np.array_equal(one, other) for one, other in zip(sums, results[0][1:], strict=True))


@needs_compiled
def test_instruction_sets_agree():
    logits, labels = draw(100, 30)
    before, found = KERNELS.in_use(), []
    for name in KERNELS.available():
        assert KERNELS.choose(name)
        rows = CompiledGridRows(KERNELS, logits, labels)
        found.append((rows.confidences(LINES), rows.sums(LINES, "nll") / 100))
    KERNELS.choose(before)
    for confidences, nll in found[1:]:
        assert_close(confidences, found[0][0])
        assert_close(nll, found[0][1])


def test_the_polynomials_are_as_right_as_promised_or_not_used():
    q = np.concatenate([np.geomspace(1e-12, 1 / 9, 5000), np.linspace(1e-6, 1 / 9, 5000)])
    gammas = (-0.9, -0.5, 0.0, 0.3, 1.0, 5.0, 20.0)
    linear, square = focal_grid.polynomials(gammas)
    assert not linear[6].any()  # gamma 20 needs more than ten terms
    assert not square[:, 0].any()
    monomials = focal_grid.monomials(q)
    for place, gamma in enumerate(gammas[:6]):
        ratio = (1 - q) ** -gamma / (1 - gamma * q * np.log(q) / (1 - q))
        # Twice, because the coefficients are rounded to float32.
        assert np.abs(monomials @ linear[place] - ratio).max() < 2 * focal_grid._POLYNOMIAL
        assert np.abs(monomials @ square[place] - q * ratio**2).max() < 2 * focal_grid._POLYNOMIAL
