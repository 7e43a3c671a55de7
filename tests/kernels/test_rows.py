"""One pass over rows of scores: the compiled kernel against its definition, mpmath and brute force."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from focalcal.core.masking import unify_masks
from focalcal.core.score_kinds import probabilities
from focalcal.kernels.class_bins import ClassBinSums
from focalcal.kernels.compiled import compiled_kernels
from focalcal.kernels.rows import DefinedRows, read_rows

COLUMNS = ("confidence", "correct", "nll", "brier", "entropy", "energy", "rank", "top", "top_confidence")
KINDS = ("logits", "log_probs", "probs")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-6, torch.bfloat16: 2e-6}

pytestmark = pytest.mark.skipif(compiled_kernels() is None, reason="needs the compiled kernels")


@pytest.fixture(params=compiled_kernels().available() if compiled_kernels() else [])
def instruction_set(request):
    """Every set that this machine can run, one after the other."""
    kernels = compiled_kernels()
    before = kernels.in_use()
    kernels.choose(request.param)
    yield request.param
    kernels.choose(before)


def drawn(rows: int, classes: int, kind: str, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of a kind, some rows all but sure, and labels that are often the predicted class."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * 3
    logits[::5] *= 6
    if kind != "logits":
        logits = logits.to(torch.float32 if dtype.itemsize < 8 else dtype).log_softmax(1)
    scores = (logits.exp() if kind == "probs" else logits).to(dtype)
    guess = torch.randint(classes, (rows,), generator=generator)
    return scores, torch.where(torch.rand(rows, generator=generator) < 0.6, scores.float().argmax(1), guess)


def exact(scores: torch.Tensor, labels: torch.Tensor | None, kind: str, target: int | None = None) -> DefinedRows:
    """The definition in float64, on the numbers as they were given."""
    wide = scores.double() if kind == "probs" else unify_masks(scores.double(), scores.dtype)
    return DefinedRows(wide, labels, kind, target)


def assert_close(found, expected, tolerance, name):
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 1e-3, err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 10, 31, 32, 33, 100])
def test_every_column_equals_the_definition(instruction_set, kind, dtype, classes):
    scores, labels = drawn(37, classes, kind, dtype)
    expected = exact(scores, labels, kind)
    found = read_rows(scores, labels, kind, COLUMNS)
    for name in COLUMNS:
        if name in ("correct", "rank", "top"):
            assert found[name].tolist() == getattr(expected, name).tolist(), name
        elif name != "energy" or kind == "logits":
            assert_close(found[name], getattr(expected, name), TOLERANCE[dtype], name)
    assert found["confidence"].dtype == (np.float64 if dtype == torch.float64 else np.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("classes", [1000, 100_000])
def test_many_classes(instruction_set, dtype, classes):
    scores, labels = drawn(3, classes, "logits", dtype)
    found, expected = read_rows(scores, labels, "logits", COLUMNS), exact(scores, labels, "logits")
    for name in ("confidence", "nll", "brier", "entropy", "energy"):
        assert_close(found[name], getattr(expected, name), TOLERANCE[dtype], name)
    assert found["rank"].tolist() == expected.rank.tolist()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("classes", [3, 40])
def test_sure_rows_keep_their_digits_as_mpmath_says(instruction_set, dtype, tolerance, classes):
    gaps = (0.0, 1e-3, 1.0, 20.0, 60.0, 80.0)
    scores = torch.zeros(len(gaps), classes, dtype=dtype)
    scores[:, 1] = torch.tensor(gaps, dtype=dtype)
    labels = torch.ones(len(gaps), dtype=torch.int64)
    found = read_rows(scores, labels, "logits", ("nll", "brier", "entropy"))
    for row, gap in enumerate(scores[:, 1].tolist()):
        with mpmath.workdps(60):
            rest = (classes - 1) * mpmath.exp(-mpmath.mpf(gap))
            nll = mpmath.log1p(rest)
            other = mpmath.exp(-mpmath.mpf(gap)) / (1 + rest)
            brier = (rest / (1 + rest)) ** 2 + (classes - 1) * other**2
            entropy = nll + rest / (1 + rest) * gap
        for name, value in (("nll", nll), ("brier", brier), ("entropy", entropy)):
            if name == "brier" and value < 1e-37 and dtype == torch.float32:
                continue  # squares of float32 end here
            assert found[name][row] == pytest.approx(float(value), rel=tolerance, abs=1e-300), (name, gap)


def test_huge_and_subnormal_logits(instruction_set):
    tiny = np.finfo(np.float32).smallest_subnormal
    scores = torch.tensor([[1e30, -1e30, 0.0], [tiny, 0.0, -tiny], [-1e4, -1e4, -1e4], [3e38, 3e38, 0.0]])
    found = read_rows(scores, torch.tensor([1, 0, 2, 0]), "logits", COLUMNS)
    assert found["confidence"].tolist() == pytest.approx([1.0, 1 / 3, 1 / 3, 0.5])
    assert found["nll"].tolist() == pytest.approx([2e30, math.log(3), math.log(3), math.log(2)])
    assert found["top"].tolist() == [0, 0, 0, 0]
    assert np.isfinite(found["entropy"]).all()


@pytest.mark.parametrize("classes", [5, 50])
def test_of_tied_classes_the_first_is_predicted_and_ranks_count_lower_numbers(instruction_set, classes):
    scores = torch.zeros(3, classes)
    found = read_rows(scores, torch.tensor([0, 2, classes - 1]), "logits", ("top", "rank", "correct"))
    assert found["top"].tolist() == [0, 0, 0]
    assert found["rank"].tolist() == [0, 2, classes - 1]
    assert found["correct"].tolist() == [True, False, False]


@pytest.mark.parametrize("mask", [-math.inf, "lowest"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("classes", [6, 70])
def test_masked_classes_count_nothing(instruction_set, mask, dtype, classes):
    scores, _ = drawn(20, classes, "logits", dtype)
    value = torch.finfo(dtype).min if mask == "lowest" else mask
    left = torch.arange(classes) % 3 != 1
    scores[:, ~left] = value
    labels = torch.zeros(20, dtype=torch.int64)
    found = read_rows(scores, labels, "logits", COLUMNS)
    alone = read_rows(scores[:, left].contiguous(), labels, "logits", COLUMNS)
    for name in ("confidence", "nll", "brier", "entropy", "rank"):
        assert_close(found[name], alone[name], TOLERANCE[dtype], name)
    of_masked = read_rows(scores, labels + 1, "logits", ("nll",))["nll"]
    assert np.isposinf(of_masked).all()


def test_a_single_class_that_is_left_is_sure(instruction_set):
    scores = torch.full((2, 40), -math.inf)
    scores[:, 7] = 1.5
    found = read_rows(scores, torch.tensor([7, 7]), "logits", COLUMNS)
    for name, value in (("confidence", 1), ("nll", 0), ("brier", 0), ("entropy", 0), ("rank", 0), ("energy", 1.5)):
        assert found[name].tolist() == [value, value], name


@pytest.mark.parametrize("classes", [4, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_the_confidence_of_a_target_class(instruction_set, kind, classes):
    scores, labels = drawn(25, classes, kind, torch.float64)
    found = read_rows(scores, labels, kind, ("confidence", "correct"), target=2)
    expected = exact(scores, labels, kind, target=2)
    assert_close(found["confidence"], expected.confidence, 1e-12, "confidence")
    assert found["correct"].tolist() == (labels == 2).tolist()


@pytest.mark.parametrize("classes", [5, 50])
def test_any_strides_give_the_same(instruction_set, classes):
    scores, labels = drawn(24, classes, "logits", torch.float32)
    expected = read_rows(scores, labels, "logits", COLUMNS)
    wide = torch.zeros(24, classes + 3)
    wide[:, :classes] = scores
    sparse = torch.zeros(24, 2 * classes)
    sparse[:, ::2] = scores
    layouts = [wide[:, :classes], sparse[:, ::2], scores.t().contiguous().t(), scores.flip(0).flip(0)]
    for each in layouts:
        found = read_rows(each, labels, "logits", COLUMNS)
        assert all(np.array_equal(found[name], expected[name]) for name in COLUMNS)
    repeated = read_rows(scores[:1].expand(24, classes), labels, "logits", ("confidence",))["confidence"]
    assert set(repeated.tolist()) == {expected["confidence"][0].item()}


@pytest.mark.parametrize("classes", [7, 90])
def test_what_a_row_yields_does_not_depend_on_its_neighbours(instruction_set, classes):
    scores, labels = drawn(50, classes, "logits", torch.float32)
    whole = read_rows(scores, labels, "logits", COLUMNS)
    for start, stop in ((0, 1), (3, 20), (33, 50)):
        part = read_rows(scores[start:stop], labels[start:stop], "logits", COLUMNS)
        assert all(np.array_equal(part[name], whole[name][start:stop]) for name in COLUMNS)


@pytest.mark.parametrize(("rows", "classes"), [(70_000, 10), (3_000, 300)])
def test_the_number_of_threads_changes_nothing(instruction_set, rows, classes):
    scores, labels = drawn(rows, classes, "logits", torch.float32)
    weight, before, results = np.random.default_rng(0).random(rows), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            sums = ClassBinSums(classes, 15)
            results.append((read_rows(scores, labels, "logits", COLUMNS, class_sums=sums, weight=weight), sums))
    finally:
        torch.set_num_threads(before)
    for columns, sums in results[1:]:
        assert all(np.array_equal(columns[name], results[0][0][name]) for name in COLUMNS)
        assert torch.equal(sums.sums, results[0][1].sums)
        assert torch.equal(sums.whole, results[0][1].whole)


@pytest.mark.parametrize("weighted", [None, "fractions", "whole numbers"])
@pytest.mark.parametrize("num_bins", [1, 2, 15, 200])
@pytest.mark.parametrize("classes", [2, 10, 80])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_every_class_equal_the_definition(instruction_set, kind, classes, num_bins, weighted):
    scores, labels = drawn(64, classes, kind, torch.float64)
    generator = np.random.default_rng(1)
    weight = {None: None, "fractions": generator.random(64), "whole numbers": generator.integers(0, 4, 64) * 1.0}[
        weighted
    ]
    found, expected = ClassBinSums(classes, num_bins), ClassBinSums(classes, num_bins)
    read_rows(scores, labels, kind, (), class_sums=found, weight=weight)
    expected.add(probabilities(scores, kind), labels, weight)
    torch.testing.assert_close(found.sums[:, :, 1:], expected.sums[:, :, 1:], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.sums[3], expected.sums[3], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.whole, expected.whole, rtol=1e-12, atol=1e-12)


def test_bins_of_every_class_by_brute_force(instruction_set):
    scores, labels = drawn(200, 6, "probs", torch.float64)
    sums = ClassBinSums(6, 10)
    read_rows(scores, labels, "probs", (), class_sums=sums)
    bins = sums.bins()
    for number in range(6):
        p, hit = scores[:, number].numpy(), (labels == number).numpy()
        for bin_ in range(10):
            inside = (p > bin_ / 10) & (p <= (bin_ + 1) / 10)
            assert bins.count[number, bin_] == inside.sum()
            if inside.any():
                assert bins.confidence[number, bin_].item() == pytest.approx(p[inside].mean(), rel=1e-12)
                assert bins.accuracy[number, bin_].item() == pytest.approx(hit[inside].mean(), rel=1e-12)


def test_probabilities_on_an_edge_belong_to_the_bin_below(instruction_set):
    scores = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    sums = ClassBinSums(2, 4)
    read_rows(scores, torch.tensor([0, 0]), "probs", (), class_sums=sums)
    assert sums.bins().count.tolist() == [[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]


def test_rows_without_labels_still_say_how_sure_they_are(instruction_set):
    scores, labels = drawn(20, 12, "logits", torch.float32)
    found = read_rows(scores, None, "logits", ("confidence", "entropy", "energy", "top"))
    expected = read_rows(scores, labels, "logits", ("confidence", "entropy", "energy", "top"))
    assert all(np.array_equal(found[name], expected[name]) for name in found)


def test_no_rows_give_empty_columns(instruction_set):
    found = read_rows(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64), "logits", COLUMNS)
    assert {len(column) for column in found.values()} == {0}
