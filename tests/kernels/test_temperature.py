"""The sums of a temperature step: C++ against the definition in torch, and both against high precision."""

from __future__ import annotations

import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.core.masking import mask_limit
from focalcal.core.temperature import ORDER
from focalcal.kernels.compiled import compiled_kernels
from focalcal.kernels.temperature import (
    defined_tempered_columns,
    defined_tempered_sums,
    tempered_columns,
    tempered_sums,
)

KERNELS = compiled_kernels()
needs_kernels = pytest.mark.skipif(KERNELS is None, reason="no compiled kernels")
INSTRUCTION_SETS = [] if KERNELS is None else KERNELS.available()
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TOLERANCE = {torch.float64: 1e-12}
IN_FLOAT32 = 2e-6


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request):
    """One set of kernels after the other; afterwards that which was in use."""
    before = KERNELS.in_use()
    KERNELS.choose(request.param)
    yield request.param
    KERNELS.choose(before)


@pytest.fixture
def threads():
    """Sets torch's number of threads for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def drawn(rows, classes, dtype=torch.float32, *, spread=4.0, seed=0, masked=0.0):
    """Logits, labels that are not masked, and weights; a share of the other classes is masked."""
    generator = torch.Generator().manual_seed(seed)
    logits = (spread * torch.randn(rows, classes, generator=generator, dtype=torch.float64)).to(dtype)
    labels = torch.randint(classes, (rows,), generator=generator)
    if masked:
        hidden = torch.rand(rows, classes, generator=generator) < masked
        hidden.scatter_(1, labels.unsqueeze(1), False)
        logits[hidden] = -math.inf
    return logits, labels, torch.rand(rows, generator=generator, dtype=torch.float64)


def sizes(logits, labels, weight, inverse, order):
    """The sums of what cancels in a derivative: the absolute moments of the distances to the largest logit."""
    x = logits.double()
    behind = x - x.amax(1, keepdim=True)
    label = behind.gather(1, labels.unsqueeze(1)).squeeze(1).abs()
    p, weight = torch.softmax(inverse * x, 1), torch.ones(len(x)).double() if weight is None else weight
    behind = torch.where(p > 0, behind, 0.0).abs()
    nll = -torch.log_softmax(inverse * x, 1).gather(1, labels.unsqueeze(1)).squeeze(1)
    moments = [(p * behind**n).sum(1) + label * (n == 1) for n in range(1, order + 1)]
    return np.array([float(weight @ column) for column in (nll, *moments)])


def assert_same(by, logits, labels, weight, orders, rtol):
    """What `by` gives is the definition in float64, relative to what cancels in the sums."""
    ours, expected = by(logits, labels, weight, orders), defined_tempered_sums(logits.double(), labels, weight, orders)
    assert ours.keys() == expected.keys()
    for inverse, sums in expected.items():
        assert ours[inverse].mass == pytest.approx(sums.mass, rel=1e-13)
        assert ours[inverse].all_right == sums.all_right
        off = np.abs(ours[inverse].derivatives - sums.derivatives)
        assert np.all(off <= rtol * sizes(logits, labels, weight, inverse, orders[inverse])), inverse


ORDERS = {1.0: ORDER, 0.37: 3, 2.5: 1, 0.01: 2}


@needs_kernels
@pytest.mark.parametrize("classes", [2, 3, 10, 16, 33, 100, 256, 257, 1000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_agree_with_the_definition(instruction_set, dtype, classes):
    logits, labels, weight = drawn(83, classes, dtype)
    for weights in (None, weight):
        assert_same(tempered_sums, logits, labels, weights, ORDERS, TOLERANCE.get(dtype, IN_FLOAT32))


@needs_kernels
@pytest.mark.parametrize(
    ("rows", "classes"), [(1, 2), (1, 300), (7, 20_000), (2, 100_000), (16, 5), (17, 5), (5000, 4)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_any_number_of_rows_and_classes(instruction_set, dtype, rows, classes):
    logits, labels, _ = drawn(rows, classes, dtype)
    assert_same(tempered_sums, logits, labels, None, ORDERS, TOLERANCE.get(dtype, IN_FLOAT32))


def exact_sums(rows, labels, inverse, order):
    """NLL and derivatives by mpmath: cumulants are the derivatives of log-sum-exp in the inverse temperature."""
    with mpmath.workdps(60):
        added = [mpmath.mpf(0)] * (order + 1)
        for row, label in zip(rows, labels, strict=True):
            left = [mpmath.mpf(x) for x in row if x != -math.inf]

            def log_sum(beta, left=left):
                return mpmath.log(mpmath.fsum(mpmath.exp(beta * (x - left[0])) for x in left))

            columns = mpmath.taylor(log_sum, mpmath.mpf(inverse), order)
            columns = [column * mpmath.factorial(n) for n, column in enumerate(columns)]
            behind = mpmath.mpf(row[label]) - left[0]
            columns[0] -= mpmath.mpf(inverse) * behind
            columns[1] -= behind
            added = [one + two for one, two in zip(added, columns, strict=True)]
        return np.array([float(value) for value in added])


@pytest.mark.parametrize("by", [defined_tempered_sums, tempered_sums], ids=["torch", "in use"])
@pytest.mark.parametrize("masked", [0.0, 0.5])
@pytest.mark.parametrize("inverse", [0.05, 0.8, 3.0])
def test_sums_agree_with_mpmath(by, inverse, masked):
    logits, labels, _ = drawn(6, 5, torch.float64, masked=masked, spread=2.0)
    exact = exact_sums(logits.tolist(), labels.tolist(), inverse, ORDER)
    ours = by(logits, labels, None, {inverse: ORDER})[inverse].derivatives
    size = np.maximum(np.abs(exact), inverse ** -np.arange(ORDER + 1.0))
    assert np.all(np.abs(ours - exact) <= 1e-12 * size)


@needs_kernels
@pytest.mark.parametrize("classes", [7, 300])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_mask_of_a_dtype_is_a_class_that_is_not_there(instruction_set, dtype, classes):
    logits, labels, _ = drawn(50, classes, dtype, masked=0.4)
    expected = tempered_sums(logits, labels, None, {1.0: 6, 1e-6: 2})
    for mask in (torch.finfo(dtype).min, mask_limit(dtype)):
        given = torch.where(logits == -math.inf, mask, logits)
        for inverse, sums in tempered_sums(given, labels, None, {1.0: 6, 1e-6: 2}).items():
            assert sums.derivatives.tolist() == expected[inverse].derivatives.tolist()
    assert_same(tempered_sums, logits, labels, None, {1.0: 6, 1e-6: 2}, IN_FLOAT32)
    # Just above the limit it is a logit, which counts at a temperature that is high enough.
    above = torch.where(logits == -math.inf, mask_limit(dtype) * 0.99, logits)
    inverse = 1e-3 / abs(mask_limit(dtype))
    most = float(tempered_sums(above, labels, None, {inverse: 1})[inverse].nll)
    assert most == pytest.approx(50 * math.log(classes), rel=1e-2)
    assert most > float(tempered_sums(logits, labels, None, {inverse: 1})[inverse].nll)


@needs_kernels
def test_rows_that_leave_only_their_label_are_exactly_flat(instruction_set):
    for classes in (4, 400):
        logits = torch.full((20, classes), -math.inf)
        logits[:, 1] = 3.0
        sums = tempered_sums(logits, torch.ones(20, dtype=torch.int64), None, {0.7: ORDER})[0.7]
        assert sums.derivatives.tolist() == [0.0] * (ORDER + 1)
        assert sums.all_right


@needs_kernels
@pytest.mark.parametrize("classes", [6, 300])
def test_ties_share_and_count_as_right(instruction_set, classes):
    logits = torch.zeros(33, classes)
    sums = tempered_sums(logits, torch.arange(33) % classes, None, {2.0: 3})[2.0]
    assert sums.derivatives == pytest.approx([33 * math.log(classes), 0, 0, 0], abs=1e-5)
    assert sums.all_right
    logits[5, 2] = 1e-6
    assert not tempered_sums(logits, torch.zeros(33, dtype=torch.int64), None, {2.0: 3})[2.0].all_right


@needs_kernels
def test_far_logits_overflow_nothing(instruction_set):
    for classes in (3, 300):
        logits, labels, _ = drawn(40, classes, torch.float32, spread=1e6)
        for inverse in (1e-7, 1.0, 100.0):
            expected = defined_tempered_sums(logits.double(), labels, None, {inverse: ORDER})
            ours = tempered_sums(logits, labels, None, {inverse: ORDER})
            assert np.isfinite(ours[inverse].derivatives).all()
            assert ours[inverse].nll == pytest.approx(expected[inverse].nll, rel=IN_FLOAT32)


def strided(layout, logits):
    """The same logits in another layout."""
    rows, classes = logits.shape
    if layout == "gaps between rows":
        return torch.cat([logits, torch.full_like(logits[:, :3], math.nan)], 1)[:, :classes]
    if layout == "every other row":
        return logits.repeat_interleave(2, 0)[::2]
    if layout == "by columns":
        return logits.t().contiguous().t()
    return logits[:1].expand(rows, classes)


@needs_kernels
@pytest.mark.parametrize("layout", ["gaps between rows", "every other row", "by columns", "one row repeated"])
@pytest.mark.parametrize("classes", [9, 300])
def test_layouts_change_nothing(layout, classes):
    logits, labels, weight = drawn(45, classes)
    given = strided(layout, logits)
    labels, weight = labels.repeat_interleave(2)[::2], weight.repeat_interleave(2)[::2]
    expected = tempered_sums(given.clone(memory_format=torch.contiguous_format), labels, weight, ORDERS)
    for inverse, sums in tempered_sums(given, labels, weight, ORDERS).items():
        assert sums.derivatives.tolist() == expected[inverse].derivatives.tolist()


@needs_kernels
@pytest.mark.parametrize("classes", [10, 700])
def test_the_number_of_threads_changes_no_bit(threads, classes):
    logits, labels, weight = drawn(400_000 // classes, classes)
    seen = set()
    for number in (1, 2, 4):
        threads(number)
        sums = tempered_sums(logits, labels, weight, ORDERS)
        seen.add(tuple((each.mass, *each.derivatives) for each in sums.values()))
    assert len(seen) == 1


@needs_kernels
def test_several_temperatures_at_once_are_those_one_by_one():
    logits, labels, weight = drawn(100, 12)
    together = tempered_sums(logits, labels, weight, ORDERS)
    for inverse, order in ORDERS.items():
        alone = tempered_sums(logits, labels, weight, {inverse: order})[inverse]
        assert alone.derivatives.tolist() == together[inverse].derivatives.tolist()
        assert len(alone.derivatives) == order + 1


@pytest.mark.parametrize("classes", [4, 300])
@pytest.mark.parametrize("bad", [math.nan, math.inf, "all masked", "label masked"])
def test_what_is_no_logit_shows_in_the_sums(classes, bad):
    logits, labels, _ = drawn(40, classes)
    if bad == "all masked":
        logits[17] = -math.inf
    elif bad == "label masked":
        logits[17, labels[17]] = -math.inf
    else:
        logits[17, 3] = bad
    assert not np.isfinite(tempered_sums(logits, labels, None, {1.0: 1})[1.0].derivatives).all()


@needs_kernels
@pytest.mark.parametrize("rows", [1, 8, 53, 3000])
@pytest.mark.parametrize("classes", [3, 31, 300])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns_of_every_row_agree_with_the_definition(instruction_set, dtype, classes, rows):
    logits, labels, _ = drawn(rows, classes, dtype, masked=0.2)
    inverses = [0.4, 0.8]
    ours = tempered_columns(logits, labels, inverses, 2)
    expected = defined_tempered_columns(logits.double(), labels, inverses, 2)
    assert ours.shape == (2, 3, rows)
    # Distances of up to 40 times the inverse temperature cancel in the columns.
    tolerance = 1e-12 if dtype == torch.float64 else IN_FLOAT32
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=40 * tolerance)
    sums = tempered_sums(logits, labels, None, dict.fromkeys(inverses, 2))
    for inverse, columns in zip(inverses, ours, strict=True):
        added = columns.sum(1).numpy() / inverse ** np.arange(3)
        assert sums[inverse].derivatives == pytest.approx(added, rel=1e-10, abs=1e-10 * rows)


IN_TORCH = """
import torch, focalcal as fc
from focalcal.kernels.compiled import kernels_in_use
assert kernels_in_use() == "torch"
g = torch.Generator().manual_seed(3)
logits = 3 * torch.randn(2000, 5, generator=g)
labels = torch.multinomial(torch.softmax(logits / 2, 1), 1, generator=g).squeeze(1)
print(repr(fc.TemperatureScaling().fit(logits, labels).temperature_))
"""


def test_a_fit_by_the_definitions_ends_at_the_same_temperature(monkeypatch):
    monkeypatch.setenv("FOCALCAL_KERNELS", "torch")
    done = subprocess.run([sys.executable, "-c", IN_TORCH], capture_output=True, text=True, check=True)
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(2000, 5, generator=generator)
    labels = torch.multinomial(torch.softmax(logits / 2, 1), 1, generator=generator).squeeze(1)
    assert fc.TemperatureScaling().fit(logits, labels).temperature_ == pytest.approx(float(done.stdout), rel=1e-7)
