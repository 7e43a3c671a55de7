from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.testing import assert_close

import focalcal as fc
from focalcal.core.focal_map import focal_log_probs
from tests import oracles

TINY = st.floats(-29, -1).map(lambda exponent: 10.0**exponent)


def exact_row(parts):
    """A distribution that adds up to 1 exactly: the last class has what the others leave."""
    with mp.workdps(400):
        parts = [mp.mpf(part) for part in parts]
        return [*parts, 1 - mp.fsum(parts)]


@given(parts=st.lists(TINY, min_size=1, max_size=4), gamma=st.floats(-0.5, 20))
def test_focal_map_agrees_with_mpmath_however_sure_the_row_is(parts, gamma):
    row = exact_row(parts)
    exact = oracles.focal_map(row, gamma)
    got = fc.focal_map(torch.tensor([float(v) for v in row], dtype=torch.float64), gamma)
    for value, want in zip(got.tolist(), exact, strict=True):
        assert oracles.relative_error(value, want, 1e-300) <= 1e-12


@given(parts=st.lists(TINY.map(np.float32), min_size=1, max_size=4), gamma=st.floats(-0.5, 20))
def test_focal_map_agrees_with_mpmath_in_float32(parts, gamma):
    row = exact_row([float(part) for part in parts])
    got = fc.focal_map(torch.tensor([float(v) for v in row], dtype=torch.float32), gamma)
    assert got.dtype == torch.float32
    for value, want in zip(got.tolist(), oracles.focal_map(row, gamma), strict=True):
        assert oracles.relative_error(value, want, 1.2e-38) <= 2e-6


@settings(max_examples=40)
@given(parts=st.lists(TINY, min_size=1, max_size=3), gamma=st.floats(0.01, 20))
def test_inverse_agrees_with_mpmath(parts, gamma):
    row = exact_row(parts)
    given_row = torch.tensor([float(v) for v in row], dtype=torch.float64)
    got = fc.focal_map_inverse(given_row, gamma).tolist()
    exact = oracles.focal_map_inverse(row, gamma, got)
    for value, want in zip(got, exact, strict=True):
        assert oracles.relative_error(value, want, 1e-300) <= 1e-12


@settings(max_examples=25)
@given(p=TINY, gamma=st.floats(-0.9, 20))
def test_binary_inverse_agrees_with_mpmath_for_negative_gamma_too(p, gamma):
    row = exact_row([p])
    got = fc.focal_map_inverse(torch.tensor([float(v) for v in row], dtype=torch.float64), gamma).tolist()
    exact = oracles.focal_map_inverse(row, gamma, got)
    assert oracles.relative_error(got[0], exact[0], 1e-300) <= 1e-12


@pytest.mark.parametrize("classes", [2, 3, 10, 1000, 20_000])
@pytest.mark.parametrize("gamma", [0.05, 1.0, 5.0])
def test_map_and_inverse_undo_each_other(classes, gamma):
    generator = torch.Generator().manual_seed(classes)
    probs = torch.softmax(4 * torch.randn(3, classes, generator=generator, dtype=torch.float64), 1)
    assert_close(fc.focal_map(fc.focal_map_inverse(probs, gamma), gamma), probs, rtol=1e-11, atol=0)
    assert_close(fc.focal_map_inverse(fc.focal_map(probs, gamma), gamma), probs, rtol=1e-11, atol=0)


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 0.37, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("row", [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25] * 4, [0.0, 1.0]])
def test_one_hot_and_uniform_rows_are_their_own_image(row, gamma):
    row = torch.tensor(row, dtype=torch.float64)
    assert_close(fc.focal_map(row, gamma), row, rtol=1e-14, atol=0)
    if gamma >= 0:
        assert_close(fc.focal_map_inverse(row, gamma), row, rtol=1e-14, atol=0)


def test_gamma_zero_is_the_identity_to_the_bit():
    probs = torch.softmax(torch.randn(20, 7, generator=torch.Generator().manual_seed(0)), 1)
    assert torch.equal(fc.focal_map(probs, 0.0), probs)
    assert torch.equal(fc.focal_map_inverse(probs, 0.0), probs)


def test_a_gamma_per_row_equals_each_row_alone():
    probs = torch.softmax(torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 1)
    gammas = torch.tensor([0.0, 0.5, 2.0, 7.0], dtype=torch.float64)
    for function in (fc.focal_map, fc.focal_map_inverse):
        together = function(probs, gammas)
        for row in range(4):
            assert_close(together[row], function(probs[row], float(gammas[row])), rtol=1e-13, atol=0)


def test_classes_may_stand_in_any_dimension():
    probs = torch.softmax(torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)), 1)
    by_dim = fc.focal_map(probs, 2.0, dim=1)
    assert_close(by_dim, fc.focal_map(probs.movedim(1, -1), 2.0).movedim(-1, 1))
    assert_close(by_dim.sum(1), torch.ones(2, 4, 5))


def test_binary_probabilities_are_the_second_class_of_two():
    p = np.array([0.0, 1e-9, 0.3, 0.5, 0.999, 1.0])
    rows = np.stack([1 - p, p], -1)
    assert isinstance(fc.focal_map(p, 2.0, binary=True), np.ndarray)
    np.testing.assert_allclose(fc.focal_map(p, 2.0, binary=True), fc.focal_map(rows, 2.0)[:, 1], rtol=1e-12)
    np.testing.assert_allclose(
        fc.focal_map_inverse(p, 2.0, binary=True), fc.focal_map_inverse(rows, 2.0)[:, 1], rtol=1e-12
    )


def test_the_map_of_logits_keeps_digits_that_probabilities_have_lost():
    """The log-probabilities of a row with logits 1e4 apart are finite and right."""
    log_probs = focal_log_probs(torch.tensor([[1e4, 0.0]], dtype=torch.float64), torch.tensor(1.0))
    assert_close(log_probs[0, 1], torch.tensor(math.log(2) - 2e4, dtype=torch.float64), rtol=1e-14, atol=0)


@pytest.mark.parametrize("gamma", [-0.5, 0.5, 3.0])
def test_the_map_can_be_differentiated(gamma):
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: fc.focal_map(torch.softmax(x, 1), gamma), logits)


def test_the_minimizer_minimises_the_expected_focal_loss():
    posterior, gamma = np.array([0.6, 0.3, 0.1]), 2.0
    best = fc.focal_minimizer(posterior, gamma)

    def risk(q):
        return -(posterior * (1 - q) ** gamma * np.log(q)).sum()

    generator = np.random.default_rng(0)
    for _ in range(200):
        step = generator.normal(size=3) * 1e-3
        assert risk(best) < risk(best + step - step.mean())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_proper_loss_of_the_mapped_prediction_is_the_focal_loss(reduction):
    logits = torch.randn(30, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    labels = torch.arange(30) % 4
    mapped = fc.focal_map(torch.softmax(logits, 1), 2.5)
    proper = fc.proper_focal_loss(mapped, labels, 2.5, reduction=reduction)
    assert_close(proper, fc.focal_loss(logits, labels, gamma=2.5, reduction=reduction), rtol=1e-11, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler calls torch's deprecated parts
@pytest.mark.parametrize("function", [fc.focal_map, fc.gradient_ratio])
def test_torch_compile_takes_the_functions_whole(function):
    probs = torch.softmax(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), 1)
    compiled = torch.compile(function, fullgraph=True)
    assert_close(compiled(probs, 2.0), function(probs, 2.0))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fc.focal_map([0.5, 0.5], -1.0), "gamma: must be greater than -1; got -1.0"),
        (
            lambda: fc.focal_map([0.7, 0.7], 1.0),
            r"probs: each row must sum to 1 within 1e-05; row 0 sums to 1.4",
        ),
        (
            lambda: fc.focal_map([2.0, -1.0], 1.0),
            r"probs: every entry must lie in \[0, 1\]; row 0 reaches from -1 to 2",
        ),
        (
            lambda: fc.focal_map([math.nan, 0.5], 1.0),
            r"probs: every value must be finite; got nan at index \(0,\)",
        ),
        (lambda: fc.focal_map([1.0], 1.0), "probs: needs at least two classes"),
        (lambda: fc.focal_map(torch.tensor([1, 0]), 1.0), "probs: must be floating point"),
        (lambda: fc.focal_map([0.5, 0.5], math.nan), "gamma: every value must be finite"),
        (lambda: fc.focal_map([0.5, 0.5], 1.0, dim=3), "dim: must name a dimension"),
        (
            lambda: fc.focal_map([[0.5, 0.5]], torch.ones(3)),
            "gamma: must be a number or have one value per row",
        ),
        (lambda: fc.focal_map(1.5, 1.0), r"probs: must lie in \[0, 1\]"),
        (lambda: fc.focal_map_inverse([0.2, 0.3, 0.5], -0.5), "three or more classes needs gamma >= 0"),
        (
            lambda: fc.proper_focal_loss([[0.5, 0.5]], [2], 1.0),
            r"labels: every label must lie in 0..1; got 2",
        ),
        (lambda: fc.proper_focal_loss([[0.5, 0.5]], [0.0], 1.0), "labels: must be class numbers"),
        (lambda: fc.proper_focal_loss([[0.5, 0.5]], [0], -1.0), "gamma: must be non-negative"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_rule(call, match):
    with pytest.raises(fc.InputError, match=match):
        call()
