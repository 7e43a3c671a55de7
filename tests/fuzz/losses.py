"""Every loss of the table, the sigmoid and the linear ones, against its definition in mpmath: value and gradient."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import focalcal as fc
from focalcal.core.checks import Array
from focalcal.losses.table import make_loss
from tests import oracles
from tests.fuzz.target import Case, Target
from tests.golden import definitions

Row = Callable[[list[float], int], tuple[mp.mpf, list[mp.mpf]]]
Batch = tuple[mp.mpf, list[list[mp.mpf]]]

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# So large that the sum of a batch is still a number in float32.
_LARGEST = {"float64": 1e300, "float32": 1e36, "bfloat16": 1e36, "float16": 6e4}
# At or below it a class is masked.
MASKED = {**dict.fromkeys(_DTYPES, -(2.0**119)), "float16": -32752.0}
_CLOSE = {"float64": 1e-11, "float32": 5e-6, "bfloat16": 5e-6, "float16": 5e-6}
_JUMP = 1e-5


# ----------------------------------------------------------------------------------------------------------- the cases


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Logits and labels of a few rows, for one of the losses."""
    name = draw(st.sampled_from(tuple(LOSSES)))
    classes, rows = draw(st.sampled_from((2, 2, 3, 5))), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(tuple(_DTYPES)))
    gamma = draw(st.one_of(st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.0, 20.0, -0.5, -2.0)), st.floats(-3, 8)))
    usual, largest = st.integers(-160, 160).map(lambda n: n / 16), _LARGEST[dtype]
    masks = (-math.inf, torch.finfo(_DTYPES[dtype]).min, MASKED[dtype], -1e36 if dtype != "float16" else -6e4)
    masks = masks[1:] if name == "linear" else masks  # a layer that multiplies by 0 makes NaN of infinity
    odd = st.sampled_from((0.0, 40.0, -100.0, 1000.0, *masks))
    value = st.one_of(usual, usual, odd, st.floats(-largest, largest))
    row = st.lists(value, min_size=classes, max_size=classes)
    logits = draw(st.lists(row, min_size=rows, max_size=rows))
    return {
        "loss": name,
        "gamma": gamma,
        "dtype": dtype,
        "logits": torch.tensor(logits, dtype=torch.float64).to(_DTYPES[dtype]).double().tolist(),
        "labels": draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)),
        "reduction": draw(st.sampled_from(("mean", "sum"))),
    }


# ----------------------------------------------------------------------------------------------------- the definitions


@dataclass(frozen=True)
class Definition:
    """How a loss is called on a case, and what value and gradient it has by its definition.

    `jumps` are the probabilities of a label at which the definition is not continuous. `relative`: every entry of the
    gradient keeps its digits, however small it is; else an entry may be off by rounding at the size of the largest.
    """

    call: Callable[[Case, Tensor, Tensor], Tensor]
    of: Callable[[Case, Array, Array], Batch]
    jumps: tuple[float, ...] = ()
    relative: bool = False


def _by_name(name: str) -> Callable[[Case, Tensor, Tensor], Tensor]:
    return lambda case, logits, labels: make_loss(name, reduction=case["reduction"])(logits, labels)


def _by_rows(row: Row | Callable[[Case], Row], *, of_case: bool = False) -> Callable[[Case, Array, Array], Batch]:
    def batch(case: Case, logits: Array, labels: Array) -> Batch:
        one: Any = row(case) if of_case else row  # type: ignore[call-arg,arg-type]
        found = [_of_classes_left(one, x, y) for x, y in zip(logits.tolist(), labels.tolist(), strict=True)]
        share = mp.mpf(1) if case["reduction"] == "sum" else mp.mpf(1) / len(found)
        return share * mp.fsum(value for value, _ in found), [[share * v for v in slope] for _, slope in found]

    return batch


def _of_classes_left(row: Row, logits: list[float], label: int) -> tuple[mp.mpf, list[mp.mpf]]:
    """A row with masked classes is a row of its other classes; one class alone is certain."""
    left = [k for k, x in enumerate(logits) if x > -math.inf]
    slope = [mp.mpf(0)] * len(logits)
    if len(left) == 1:
        return mp.mpf(0), slope
    value, slopes = row([logits[k] for k in left], left.index(label))
    for k, each in zip(left, slopes, strict=True):
        slope[k] = each
    return value, slope


def _named(name: str, row: Row, *jumps: float, relative: bool = True) -> Definition:
    return Definition(_by_name(name), _by_rows(row), jumps, relative)


def _focal_of_case(case: Case) -> Row:
    return definitions.focal(case["gamma"])


def _call_focal(case: Case, logits: Tensor, labels: Tensor) -> Tensor:
    return fc.FocalLoss(case["gamma"], reduction=case["reduction"])(logits, labels)


def _call_gammas(case: Case, logits: Tensor, labels: Tensor) -> Tensor:
    """The same gamma, as a tensor with one for each row."""
    gamma = torch.full(labels.shape, case["gamma"], dtype=torch.float64)
    return fc.focal_loss(logits, labels, gamma=gamma, reduction=case["reduction"])


def _call_linear(case: Case, logits: Tensor, labels: Tensor) -> Tensor:
    """Through a layer that changes nothing."""
    layer = torch.eye(logits.shape[1], dtype=logits.dtype)
    return fc.LinearFocalLoss(case["gamma"], reduction=case["reduction"])(logits, layer, labels)


def _call_sigmoid(case: Case, logits: Tensor, labels: Tensor) -> Tensor:
    hot = torch.nn.functional.one_hot(labels, logits.shape[1])
    return fc.sigmoid_focal_loss(logits, hot, gamma=case["gamma"], reduction=case["reduction"])


def _sigmoid(case: Case, logits: Array, labels: Array) -> Batch:
    """A softmax of two classes for each entry, of which the other one has the logit 0."""
    share = mp.mpf(1) if case["reduction"] == "sum" else mp.mpf(1) / logits.size
    total, slopes = mp.mpf(0), []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        focal = definitions.focal(case["gamma"])
        found = [_of_classes_left(focal, [0.0, x], int(k == label)) for k, x in enumerate(row)]
        total += mp.fsum(value for value, _ in found)
        slopes.append([share * slope[1] for _, slope in found])
    return share * total, slopes


def _mmce(case: Case, logits: Array, labels: Array) -> Batch:
    """Cross-entropy and twice the weighted MMCE, which beside a sum is multiplied by the size of the batch."""
    value, slopes = _by_rows(definitions.focal(0.0))(case, logits, labels)
    error, error_slopes = definitions.mmce_loss(logits, labels, weighted=True)
    factor = 2 * (len(labels) if case["reduction"] == "sum" else 1)
    more = (factor * error_slopes).tolist()
    return value + factor * error, [
        [a + b for a, b in zip(*rows, strict=True)] for rows in zip(slopes, more, strict=True)
    ]


def _flsd_532(p: mp.mpf) -> float:
    return 5.0 if p < mp.mpf("0.2") else 3.0 if p < mp.mpf("0.5") else 2.0


def _calfocal_sample(p: mp.mpf) -> mp.mpf:
    """Before the first update the accuracy of each of 15 bins is its centre."""
    centre = (min(mp.floor(15 * p), 14) + mp.mpf(1) / 2) / 15
    return mp.exp(10 * (p - centre))


_BRIER_IS_A_MEAN = Definition(
    _by_name("brier"), lambda case, *batch: _by_rows(definitions.brier)({"reduction": "mean"}, *batch)
)

LOSSES: dict[str, Definition] = {
    "ce": _named("ce", definitions.focal(0.0)),
    "brier": _BRIER_IS_A_MEAN,
    "mmce": Definition(_by_name("mmce"), _mmce),
    "ls": Definition(_by_name("ls-0.05"), _by_rows(definitions.label_smoothing)),
    "fl": Definition(_call_focal, _by_rows(_focal_of_case, of_case=True), relative=True),  # type: ignore[arg-type]
    "flsc-531": _named("flsc-531", definitions.focal(5.0)),
    "flsc-532": _named("flsc-532", definitions.focal(5.0)),
    "flsd-53": _named("flsd-53", definitions.focal(definitions.flsd_53), 0.2),
    "flsd-532": _named("flsd-532", definitions.focal(_flsd_532), 0.2, 0.5),
    "calfocal": _named("calfocal", definitions.focal(1.0)),
    "calfocal-sample": _named(
        "calfocal-sample", definitions.focal(_calfocal_sample), *(k / 15 for k in range(1, 15)), relative=False
    ),
    "adafocal": _named("adafocal", definitions.focal(1.0)),
    "gamma of each row": Definition(_call_gammas, _by_rows(_focal_of_case, of_case=True), relative=True),  # type: ignore[arg-type]
    "linear": Definition(_call_linear, _by_rows(_focal_of_case, of_case=True)),  # type: ignore[arg-type]
    "sigmoid": Definition(_call_sigmoid, _sigmoid, relative=True),
}


# ----------------------------------------------------------------------------------------------------------- the check


def check(case: Case) -> str:
    """The loss of a batch and its gradient are what the definition says."""
    definition = LOSSES[case["loss"]]
    wide, numbers = np.array(case["logits"], dtype=np.float64), np.array(case["labels"])
    logits = torch.tensor(wide).to(_DTYPES[case["dtype"]]).requires_grad_()
    wide = np.where(wide <= MASKED[case["dtype"]], -math.inf, wide)
    if (wide[np.arange(len(numbers)), numbers] == -math.inf).any():
        _require_refused(lambda: definition.call(case, logits, torch.tensor(numbers)))
        return "refused"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "gamma=.*inverse focal loss")
        loss = definition.call(case, logits, torch.tensor(numbers))
        loss.backward()
    assert logits.grad is not None
    value, gradient = loss.item(), logits.grad.double().numpy()
    assert math.isfinite(value), f"the loss is {value}"
    assert np.isfinite(gradient).all(), f"the gradient is {gradient}"
    if _near_a_jump(case, definition, wide, numbers):
        return "near a jump"
    with mp.workdps(oracles.DIGITS):
        expected, slopes = definition.of(case, wide, numbers)
        _require_value(value, expected, case)
        _require_gradient(gradient, slopes, case, definition.relative)
    return "right"


def _require_refused(call: Callable[[], Tensor]) -> None:
    try:
        said = f"the loss is {call().item()}"
    except fc.InputError as error:
        said = str(error)
    assert "masked" in said, f"the label is masked, and {said}"


def _require_value(value: float, expected: mp.mpf, case: Case) -> None:
    least = 100 * torch.finfo(torch.float64 if case["dtype"] == "float64" else torch.float32).tiny
    right = abs(value - expected) <= _CLOSE[case["dtype"]] * abs(expected) + least
    assert right, f"the loss is {value!r}, by its definition {mp.nstr(expected, 17)}"


def _require_gradient(gradient: Array, slopes: list[list[mp.mpf]], case: Case, relative: bool) -> None:
    info = torch.finfo(_DTYPES[case["dtype"]])
    close = max(_CLOSE[case["dtype"]], info.eps)
    for i, (ours, theirs) in enumerate(zip(gradient.tolist(), slopes, strict=True)):
        size = mp.mpf(0) if relative else max(map(abs, theirs)) + mp.mpf(1) / len(slopes)
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            right = abs(a - b) <= close * (abs(b) + size) + 100 * info.tiny
            assert right, f"the gradient of row {i}, class {k} is {a!r}, by its definition {mp.nstr(b, 17)}"


def _near_a_jump(case: Case, definition: Definition, logits: Array, labels: Array) -> bool:
    with mp.workdps(oracles.DIGITS):
        rows = [[float(v) for v in oracles.probabilities(row)] for row in logits.tolist()]
    if case["loss"] == "mmce":
        return _near_a_jump_of_mmce(rows, logits, labels)
    picked = [row[y] for row, y in zip(rows, labels.tolist(), strict=True)]
    return any(abs(p - jump) < _JUMP for p in picked for jump in definition.jumps)


def _near_a_jump_of_mmce(rows: list[list[float]], logits: Array, labels: Array) -> bool:
    """Where two classes or two rows of other logits are about equally likely, or where MMCE itself is about 0."""
    tops = sorted(zip((max(row) for row in rows), logits.tolist(), strict=True))
    rivals = any(sorted(row)[-1] - sorted(row)[-2] < _JUMP for row in rows)
    ties = any(b[0] - a[0] < _JUMP and a[1] != b[1] for a, b in itertools.pairwise(tops))
    right = np.array([row.index(max(row)) for row in rows]) == labels
    gaps = [hit - max(row) for hit, row in zip(right, rows, strict=True)]
    return (
        rivals or ties or max(map(abs, gaps)) < 1e-2 or definitions.mmce_loss(logits, labels, weighted=True)[0] < 1e-2
    )


TARGET = Target(
    "losses",
    "every loss and its gradient against mpmath",
    cases(),
    check,
    frozenset({"right", "refused", "near a jump"}),
    in_ci=1500,
)
