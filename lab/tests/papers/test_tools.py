"""The comparisons that the checks are made of, and what a failed check says."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import focalcal as fc
from focalcal_lab import papers
from focalcal_lab.papers import exact
from focalcal_lab.papers.exact.tools import check, close, gradient, refused, warned

numbers = st.floats(-10, 10) | st.sampled_from([0.0, 1e-13, 1.0, 1.0 + 1e-6, 1.0 + 2e-6, float("inf"), float("nan")])
tolerances = st.none() | st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.5])


def is_close(ours, expected, **tolerance):
    try:
        close(ours, expected, **tolerance)
    except AssertionError:
        return False
    return True


@given(numbers, numbers, tolerances, tolerances)
def test_close_decides_on_numbers_as_pytest_does(ours, expected, rel, abs):
    assert is_close(ours, expected, rel=rel, abs=abs) == (ours == pytest.approx(expected, rel=rel, abs=abs))


@given(st.floats(-10, 10), st.floats(-1e-5, 1e-5), tolerances, tolerances)
def test_close_decides_on_near_numbers_as_pytest_does(expected, away, rel, abs):
    ours = expected + away
    assert is_close(ours, expected, rel=rel, abs=abs) == (ours == pytest.approx(expected, rel=rel, abs=abs))


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, 2.1]),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.1, 4.0]])),
        (np.array([1.0, 1.0]), 1.0),
        (np.array([1.0, 1.1]), 1.0),
        ((1.0, 2.0), (1.0, 2.0)),
        ({1.0: 2.0, 3.0: 4.0}, {1.0: 2.0, 3.0: 4.0}),
        ({1.0: 2.0, 3.0: 4.0}, {1.0: 2.0, 3.0: 4.1}),
        ({1.0: 2.0}, {1.0: 2.0, 3.0: 4.0}),
        ([1.0, 2.0], [1.0, 2.0, 3.0]),
        (np.ones(3), np.ones((1, 3))),
    ],
)
def test_close_decides_on_arrays_and_dictionaries_as_pytest_does(ours, expected):
    same = ours == pytest.approx(expected)
    assert is_close(ours, expected) == bool(np.all(same))


def test_close_shows_both_numbers_and_the_first_place():
    with pytest.raises(AssertionError, match=r"^3\.5 is not 3 at \[1, 0\], 1 of 4 entries \(rel 0, abs 0\.1\)$"):
        close(np.array([[1.0, 2.0], [3.5, 4.0]]), np.array([[1, 2], [3, 4]]), abs=0.1)


def test_refused_needs_an_input_error_with_the_words():
    with refused("one half"):
        raise fc.InputError("p0: must be below one half; got 0.7.")
    with pytest.raises(AssertionError, match="one half"), refused("one half"):
        raise fc.InputError("p0: must be positive; got -1.")
    with pytest.raises(AssertionError, match="nothing was refused"), refused("one half"):
        pass
    with pytest.raises(KeyError), refused("one half"):
        raise KeyError("one half")


def test_warned_needs_a_user_warning_with_the_words():
    with warned("wrong sign"):
        warnings.warn("gamma gives gradients of the wrong sign", UserWarning, stacklevel=1)
    for category, text in ((UserWarning, "something else"), (DeprecationWarning, "wrong sign")):
        with pytest.raises(AssertionError, match="wrong sign"), warned("wrong sign"):
            warnings.warn(text, category, stacklevel=1)


def test_gradient_is_the_derivative():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert gradient((x**2).sum(), x).tolist() == [2, 4, 6]


def test_a_claim_cannot_be_tied_twice():
    with pytest.raises(RuntimeError, match="checked twice"):
        check("mukhoti2020.eq1")(lambda: None)


def test_importing_the_tables_does_not_import_the_checks():
    code = (
        "import sys; from focalcal_lab import papers; papers.claims();"
        "print([name for name in ('torch', 'scipy', 'mpmath') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "[]\n"


def test_a_failed_check_says_the_statement_and_the_numbers_it_failed_for(monkeypatch):
    true = fc.gradient_ratio
    monkeypatch.setattr(fc, "gradient_ratio", lambda p, gamma: true(p, gamma) + (gamma == 3.0))
    result = papers.run_check("mukhoti2020.g.limits")
    assert not result.passed
    assert "AssertionError" in result.message
    assert "of mukhoti2020.py: assert (away <= " in result.message
    assert "gamma = 3.0" in result.message
    assert "\n" not in result.message


def test_an_unexpected_error_is_a_failed_check_too(monkeypatch):
    def broken(gamma):
        raise ZeroDivisionError("no thresholds today")

    monkeypatch.setattr(fc, "confidence_thresholds", broken)
    result = papers.run_check("mukhoti2020.g.p0-gamma1")
    assert not result.passed
    assert result.message.startswith("ZeroDivisionError: no thresholds today at line ")


def test_a_check_runs_in_one_thread_and_gives_the_others_back():
    seen = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seconds, message = exact.run(lambda: seen.append(torch.get_num_threads()))
        assert (seen, message, torch.get_num_threads()) == ([1], "", 2)
        assert seconds >= 0
    finally:
        torch.set_num_threads(before)


def test_run_check_refuses_what_is_no_exact_claim():
    with pytest.raises(fc.InputError, match=r"Nearest: .*mukhoti2020\.eq1"):
        papers.run_check("mukhoti2020.eq11")
    for name in ("mukhoti2020.fig1", "mukhoti2020"):
        with pytest.raises(fc.InputError, match="arithmetic only"):
            papers.run_check(name)


def test_python_that_leaves_out_assertions_is_refused():
    code = "from focalcal_lab import papers; papers.run_check('mukhoti2020.eq1')"
    answer = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    assert "FocalCalError: The checks are assert statements, which python -O" in answer.stderr
