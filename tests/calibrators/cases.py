"""All calibrators, listed once for the tests that hold each to the contract, and the data that they are fitted on."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import focalcal.calibrators as c

CLASSES = 4


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@functools.cache
def draw(rows=240, classes=CLASSES, seed=0, overconfidence=2.0):
    """Logits (N, K) and labels (N,) of a model that is too sure by the given factor, with classes of unequal size."""
    generator = np.random.default_rng(seed)
    logits = 1.5 * generator.standard_normal((rows, classes)) + 0.5 * np.arange(classes) / classes
    labels = np.array([generator.choice(classes, p=row) for row in softmax(logits)])
    logits *= overconfidence
    for array in (logits, labels):
        array.flags.writeable = False
    return logits, labels


@dataclass(frozen=True)
class Case:
    """A calibrator as its caller makes it, and what may be expected of it."""

    id: str
    make: Callable[[], c.Calibrator]
    binary: bool = False  # takes two classes only
    per_class: bool = False  # takes as many classes as it was fitted to
    keeps_class: bool = False  # never changes the predicted class
    streams: bool = False  # a fit to a stream gives what one to arrays gives
    arrays: bool = False  # saved as safetensors, not as JSON
    differentiable: bool = False
    shift_invariant: bool = True  # the same for logits + constant, and so for all kinds of scores
    counts_rows: bool = False  # has a prior worth some rows, so that the scale of the weights matters
    one_pass: bool = False  # reads its data once, and so need not notice that it changes
    ready: bool = False  # works without a fit, which only reports

    @property
    def classes(self):
        return 2 if self.binary else CLASSES

    def data(self, rows=240, seed=0):
        return draw(rows, self.classes, seed)

    def binary_data(self, rows=240, seed=0):
        return draw(rows, 2, seed)

    def fitted(self):
        """A calibrator of its own for the test, fitted to `data()`; the fit is done once."""
        return copy.deepcopy(_fitted(self))

    @property
    def suffix(self):
        return ".safetensors" if self.arrays else ".json"


@functools.cache
def _fitted(case):
    return case.make().fit(*case.data())


def _scalar(id, make, **traits):
    return Case(id, make, **{"keeps_class": True, "differentiable": True, **traits})


def _linear(id, make, **traits):
    return Case(id, make, **{"per_class": True, "arrays": True, "streams": True, "differentiable": True, **traits})


def _binary(id, make, **traits):
    return Case(id, make, binary=True, per_class=True, streams=True, differentiable=True, **traits)


def _binned(id, make, **traits):
    return Case(id, make, per_class=True, arrays=True, **traits)


# Temperatures that are tried: few, because each test makes several fits.
FEW = np.linspace(0.5, 4.0, 15).tolist()

ALL = [
    _scalar("identity", lambda: c.Identity(), streams=True, ready=True, one_pass=True),
    _scalar("temperature nll", lambda: c.TemperatureScaling(), streams=True),
    _scalar("temperature brier", lambda: c.TemperatureScaling("brier"), streams=True),
    _scalar("temperature focal", lambda: c.TemperatureScaling("focal", gamma=2.0), streams=True),
    _scalar("temperature ece", lambda: c.TemperatureScaling("ece")),
    _scalar("temperature ada_ece", lambda: c.TemperatureScaling("ada_ece", num_bins=10)),
    _scalar("temperature smooth_ece", lambda: c.TemperatureScaling("smooth_ece", grid=FEW)),
    _scalar("temperature on the grid of mukhoti2020", lambda: c.TemperatureScaling("ece", grid="mukhoti2020")),
    _scalar("temperature on the grid of komisarenko2024", lambda: c.TemperatureScaling(grid="komisarenko2024")),
    _scalar("temperature refined", lambda: c.TemperatureScaling("ada_ece", grid=[0.5, 1.0, 2.0, 4.0], refine=True)),
    _scalar("focal", lambda: c.FocalCalibration(), streams=True),
    _scalar("focal with its gamma", lambda: c.FocalCalibration(-0.5), streams=True, ready=True),
    _scalar("focal temperature full", lambda: c.FocalTemperatureScaling(gammas=[0.0, 1.0, 2.0], grid=[1.0, 2.0, 3.0])),
    _scalar("focal temperature line", lambda: c.FocalTemperatureScaling(search="line", grid=FEW)),
    _scalar(
        "focal temperature continuous", lambda: c.FocalTemperatureScaling("nll", search="continuous"), streams=True
    ),
    _scalar("ensemble brier", lambda: c.EnsembleTemperatureScaling(), streams=True, arrays=True),
    _scalar("ensemble nll", lambda: c.EnsembleTemperatureScaling("nll"), streams=True, arrays=True),
    Case("spline", lambda: c.SplineCalibration(), arrays=True),
    _linear("vector", lambda: c.VectorScaling(), shift_invariant=False),
    _linear("matrix", lambda: c.MatrixScaling(), shift_invariant=False),
    _linear("matrix regularised", lambda: c.MatrixScaling(off_diagonal=0.1, intercept=0.01), shift_invariant=False),
    _linear("dirichlet", lambda: c.DirichletCalibration()),
    _linear("dirichlet regularised", lambda: c.DirichletCalibration(off_diagonal=0.1, intercept=0.01)),
    _binary("platt", lambda: c.PlattScaling(), counts_rows=True),
    _binary("beta", lambda: c.BetaCalibration()),
    _binned("histogram", lambda: c.HistogramBinning()),
    _binned("isotonic", lambda: c.IsotonicCalibration()),
    _binned("bayesian binning", lambda: c.BayesianBinning(), counts_rows=True),
    _scalar("compose", lambda: c.Compose(c.TemperatureScaling(), c.FocalCalibration())),
    Case(
        "compose with arrays",
        lambda: c.Compose(c.VectorScaling(), c.TemperatureScaling()),
        per_class=True,
        arrays=True,
        differentiable=True,
        shift_invariant=False,
    ),
]


# Those that differ from another one in a criterion, a grid or a penalty only.
VARIANTS = {
    "temperature focal",
    "temperature ece",
    "temperature smooth_ece",
    "temperature on the grid of mukhoti2020",
    "temperature on the grid of komisarenko2024",
    "temperature refined",
    "matrix regularised",
    "dirichlet regularised",
}
# One of each kind of state, for what the base class does for all of them: numbers, arrays that are tied to the classes,
# nothing to fit, and parts. `test_contract.py` asserts that no other class does it in its own way.
KINDS = ("temperature nll", "vector", "focal with its gamma", "compose with arrays")
CASES = [case for case in ALL if case.id not in VARIANTS]


def every_variant(test):
    return pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)(test)


def every_calibrator(test):
    return pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)(test)


def every_kind(test):
    return pytest.mark.parametrize("case", [case for case in ALL if case.id in KINDS], ids=lambda case: case.id)(test)


def calibrators_that(trait):
    """Those with a trait of that name, or without it if the name begins with `not `."""
    wanted = not trait.startswith("not ")
    chosen = [case for case in CASES if getattr(case, trait.removeprefix("not ")) == wanted]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.id)


def require_no_worse(case, report):
    """A fit never ends worse than the raw logits; what was given and not searched for may."""
    given = report.iterations == 0
    assert case.ready or not given
    if not given:
        assert report.after <= report.before


def close(given, expected, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(given), np.asarray(expected), rtol=tolerance, atol=tolerance)


def same(given, expected):
    """Equal to the last bit, and of one type."""
    assert type(given) is type(expected)
    assert given.dtype == expected.dtype
    assert given.shape == expected.shape
    assert bool((given == expected).all())


def state_of(calibrator):
    """Fitted values as bytes, reports and numbers of classes, of all parts."""
    state = calibrator.state_dict()
    return {
        name: (value.dtype, tuple(value.shape), value.numpy().tobytes()) if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }
