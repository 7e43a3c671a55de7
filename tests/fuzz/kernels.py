"""Every compiled kernel against its definition in torch, and against itself with another number of threads.

A kernel is one entry of `KERNELS`. The case says how its scores are made: shape, layout in memory, type, and a pattern
with a seed, so that a large case is a small file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from focalcal.core.checks import Array
from focalcal.errors import InputError
from focalcal.kernels import compiled
from focalcal.kernels.choice import compiled_kernels
from tests.fuzz.target import Case, Target

Columns = dict[str, Array]

_DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
_LAYOUTS = ("adjacent", "gaps", "turned", "repeated", "one number in")
_PATTERNS = ("normal", "ties", "masked", "masked by the lowest", "subnormal", "huge", "sure", "equal")
_WEIGHTS = ("none", "whole", "real", "some zero")
# What both ways may differ by, relative and absolute; half precision is computed in float32.
_CLOSE = {"float64": (1e-11, 1e-12), "float32": (2e-5, 2e-6), "float16": (2e-5, 2e-6), "bfloat16": (2e-5, 2e-6)}


# ----------------------------------------------------------------------------------------------------------- the cases


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A kernel, the scores it reads, and how it is to be run."""
    few = st.integers(1, 40)
    many = st.sampled_from(((5000, 3), (3000, 33), (700, 100), (40, 5000), (3, 40_000), (70_000, 1)))
    rows, classes = draw(st.one_of(st.tuples(few, few), st.tuples(few, few), st.tuples(few, few), many))
    return {
        "kernel": draw(st.sampled_from(tuple(KERNELS))),
        "rows": rows,
        "classes": classes,
        "dtype": draw(st.sampled_from(tuple(_DTYPES))),
        "layout": draw(st.sampled_from(_LAYOUTS)),
        "pattern": draw(st.sampled_from(_PATTERNS)),
        "kind": draw(st.sampled_from(("logits", "logits", "probs", "log_probs"))),
        "weight": draw(st.sampled_from(_WEIGHTS)),
        "gamma": draw(st.sampled_from((0.0, 0.5, 1.0, 3.0, 5.0, -0.5))),
        "temperature": draw(st.sampled_from((0.3, 1.0, 2.5))),
        "num_bins": draw(st.sampled_from((1, 2, 15, 40))),
        "threads": draw(st.sampled_from((1, 2, 4))),
        "instructions": draw(st.sampled_from(("baseline", "avx2", "avx512"))),
        "seed": draw(st.integers(0, 9999)),
    }


def scores_of(case: Case) -> Tensor:
    """The scores (n, K) of a case, in its layout."""
    rng = np.random.default_rng(case["seed"])
    shape = (1 if case["layout"] == "repeated" else case["rows"], case["classes"])
    dtype = _DTYPES[case["dtype"]]
    values = torch.from_numpy(_values(rng, case["pattern"], shape, dtype))
    if case["kind"] != "logits":
        values = torch.log_softmax(values.to(dtype).double(), 1)
        values = values.exp() if case["kind"] == "probs" else values
    return _laid_out(values.to(dtype), case["layout"], case["rows"])


def _values(rng: np.random.Generator, pattern: str, shape: tuple[int, int], dtype: torch.dtype) -> Array:
    values, limits = 3 * rng.normal(size=shape), torch.finfo(dtype)
    odd = rng.random(shape) < 0.3
    odd[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = False  # one class of each row is left
    if pattern == "ties":
        values = np.round(values / 2)
    elif pattern == "masked":
        values[odd] = -math.inf
    elif pattern == "masked by the lowest":
        values[odd] = limits.min
    elif pattern == "subnormal":
        values *= limits.tiny / 8
    elif pattern == "huge":
        values[odd] *= 1e3 if dtype == torch.float16 else 1e30
    elif pattern == "sure":
        values[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] += 10.0 ** rng.uniform(0, 3, shape[0])
    elif pattern == "equal":
        values[:] = 0.25
    return values


def _laid_out(values: Tensor, layout: str, rows: int) -> Tensor:
    """The same values with other strides."""
    if layout == "gaps":
        return torch.cat([values, values, values[:, :1]], 1)[:, : values.shape[1]]
    if layout == "turned":
        return values.t().contiguous().t()
    if layout == "repeated":
        return values.expand(rows, -1)
    if layout == "one number in":  # at no address that is a multiple of 64 bytes
        return torch.cat([values.new_zeros(1), values.reshape(-1)])[1:].view(values.shape)
    return values


def _labels_of(case: Case) -> Tensor:
    """A class of each row that is not masked."""
    scores, rng = scores_of(case).double(), np.random.default_rng(case["seed"] + 1)
    lowest = 0.0 if case["kind"] == "probs" else torch.finfo(_DTYPES[case["dtype"]]).min
    drawn = torch.from_numpy(rng.integers(0, case["classes"], case["rows"]))
    masked = scores.gather(1, drawn.unsqueeze(1)).squeeze(1) <= lowest / 4
    return torch.where(masked, scores.argmax(1), drawn)


def _weight_of(case: Case) -> Array | None:
    rng = np.random.default_rng(case["seed"] + 2)
    if case["weight"] == "none":
        return None
    drawn: Array = rng.integers(1, 4, case["rows"]).astype(np.float64)
    if case["weight"] == "whole":
        return drawn
    return rng.random(case["rows"]) * (1.0 if case["weight"] == "real" else rng.random(case["rows"]) < 0.5)


# --------------------------------------------------------------------------------------------------------- the kernels


@dataclass(frozen=True)
class Kernel:
    """A function of focalcal.kernels: how it is called on a case, and what its columns may be off by.

    `close` gives a relative and an absolute difference, by default those of the type of the scores. `kinds` are the
    scores that it reads.
    """

    module: str
    call: Callable[[Any, Case], Columns]
    kinds: tuple[str, ...] = ("logits",)
    close: Callable[[Case], tuple[float, float]] = lambda case: _CLOSE[case["dtype"]]


def _extremes(module: Any, case: Case) -> Columns:
    return {"extremes": np.array(module.extremes(scores_of(case)), dtype=np.float64)}


def _sum_error(module: Any, case: Case) -> Columns:
    return {"error": np.array(module.largest_sum_error(scores_of(case), case["kind"]))}


def _rows(module: Any, case: Case) -> Columns:
    names = ["confidence", "correct", "nll", "brier", "entropy", "rank", "top", "top_confidence"]
    found: Columns = module.read_rows(scores_of(case), _labels_of(case), case["kind"], names)
    return found


def _class_sums(module: Any, case: Case) -> Columns:
    sums = import_module("focalcal.kernels.class_bins").ClassBinSums(case["classes"], case["num_bins"])
    options = {"class_sums": sums, "weight": _weight_of(case)}
    module.read_rows(scores_of(case), _labels_of(case), case["kind"], [], **options)
    # A probability beside an edge may fall to either side of it, so the sums over all bins are compared.
    return {"whole": sums.whole.numpy(), "correct": sums.sums[3].sum(1).numpy()}


def _bins(module: Any, case: Case) -> Columns:
    rng = np.random.default_rng(case["seed"])
    confidence = (rng.integers(0, 65, case["rows"]) / 64).astype("float64" if case["dtype"] == "float64" else "float32")
    correct, num_bins = rng.random(case["rows"]) < 0.5, case["num_bins"]
    found = {}
    for edges, weight in (("equal_width", _weight_of(case)), ("interpolated", None)):
        bins = module.bin_predictions(confidence, correct, edges=edges, num_bins=num_bins, weight=weight)
        found |= {
            f"{name}, {edges}": getattr(bins, name).numpy() for name in ("count", "confidence", "accuracy", "edges")
        }
    return found


def _ranking(module: Any, case: Case) -> Columns:
    rng = np.random.default_rng(case["seed"])
    confidence = (rng.integers(0, 200, case["rows"]) / 256).astype(
        "float64" if case["dtype"] == "float64" else "float32"
    )
    found = module.ranked_rows(confidence, rng.random(case["rows"]) < 0.5)
    return {name: np.asarray(getattr(found, name)) for name in ("value", "count", "right")}


def _tempered_sums(module: Any, case: Case) -> Columns:
    weight = _weight_of(case)
    orders = {1 / case["temperature"]: 3, 1.0: 1}
    given = None if weight is None else torch.from_numpy(weight)
    found = module.tempered_sums(scores_of(case), _labels_of(case), given, orders)
    # Cumulants come from moments, of which the n-th is of the size of the logits' spread to the power of n.
    logits = scores_of(case).double()
    finite = logits[logits.abs() < 1e4]
    spread = float(finite.max() - finite.min()) + 1 if finite.numel() else 1.0
    return {
        f"at {inverse:.3g}": each.derivatives / max(each.mass, 1.0) / spread ** np.arange(len(each.derivatives))
        for inverse, each in found.items()
    }


def _lines(case: Case) -> list[tuple[float, tuple[float, ...]]]:
    return [(case["temperature"], (0.0, abs(case["gamma"]), 2.0)), (1.5, (1.0,))]


def _grid(module: Any, case: Case) -> Columns:
    prepared = module.prepare_rows(scores_of(case), _labels_of(case))
    return {"confidence": prepared.confidences(_lines(case)).numpy(), "correct": prepared.correct.numpy()}


def _grid_sums(module: Any, case: Case) -> Columns:
    prepared = module.prepare_rows(scores_of(case), _labels_of(case))
    weight = _weight_of(case)
    given = None if weight is None else torch.from_numpy(weight)
    mass = case["rows"] if weight is None else max(weight.sum(), 1.0)
    # Classes that are 1e30 behind count as masked ones, whose loss is huge and no more.
    names = ("nll", "brier", "focal")
    return {name: np.minimum(prepared.sums(_lines(case), name, 1.0, given) / mass, 1e20) for name in names}


def _binned_gaps(module: Any, case: Case) -> Columns:
    rng = np.random.default_rng(case["seed"])
    confidence = (rng.integers(0, 65, (3, case["rows"])) / 64).astype(np.float32)
    correct = rng.random(case["rows"]) < 0.5
    names = {"equal width": False, "equal mass": True}
    options = {"num_bins": case["num_bins"]}
    return {name: module.binned_gaps(confidence, correct, equal_mass=each, **options) for name, each in names.items()}


def _focal_loss(module: Any, case: Case) -> Columns:
    logits, labels = scores_of(case).detach().requires_grad_(), _labels_of(case)
    weight = 0.5 + torch.rand(case["classes"], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = {}
    for reduction in ("mean", "none"):
        options = {"weight": None if case["weight"] == "none" else weight, "reduction": reduction}
        loss = module.focal_rows(logits, labels, case["gamma"], ignore_index=1, **options)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        found |= {reduction: loss.detach().double().numpy(), f"gradient of {reduction}": gradient.double().numpy()}
    return found


def _of_gradients(case: Case) -> tuple[float, float]:
    """Gradients of scores in half precision are rounded to it."""
    return {"float16": (2e-3, 1e-6), "bfloat16": (2e-2, 1e-6)}.get(case["dtype"], _CLOSE[case["dtype"]])


def _of_grids(case: Case) -> tuple[float, float]:
    """The grid is computed in float32 whatever the type of the scores."""
    return 1e-5, 1e-5


_ANY_KIND = ("logits", "probs", "log_probs")
_ALL = {
    "extremes": Kernel("extremes", _extremes, _ANY_KIND),
    "sum error": Kernel("extremes", _sum_error, ("probs", "log_probs")),
    "rows": Kernel("rows", _rows, _ANY_KIND),
    "class sums": Kernel("rows", _class_sums, _ANY_KIND),
    "bins": Kernel("bins", _bins),
    "ranking": Kernel("ranking", _ranking),
    "tempered sums": Kernel("temperature", _tempered_sums),
    "grid": Kernel("focal_grid", _grid, close=_of_grids),
    "grid sums": Kernel("focal_grid", _grid_sums, close=_of_grids),
    "binned gaps": Kernel("binned_gaps", _binned_gaps),
    "focal loss": Kernel("focal_loss", _focal_loss, close=_of_gradients),
}
KERNELS = {name: each for name, each in _ALL.items() if find_spec(f"focalcal.kernels.{each.module}")}


# ----------------------------------------------------------------------------------------------------------- the check


def check(case: Case) -> str:
    """What the compiled kernel finds is what its definition finds, with any number of threads."""
    kernel = KERNELS[case["kernel"]]
    if case["kind"] not in kernel.kinds:
        case = {**case, "kind": kernel.kinds[0]}
    module = import_module(f"focalcal.kernels.{kernel.module}")
    with _kernels("torch", 1):
        expected = _columns(kernel, module, case)
    with _kernels("compiled", 1) as kernels:
        names = kernels.available()
    instructions = case["instructions"] if case["instructions"] in names else "baseline"
    with _kernels(instructions, 1):
        found = _columns(kernel, module, case)
    with _kernels(instructions, case["threads"]):
        again = _columns(kernel, module, case)
    assert found.keys() == expected.keys() == again.keys(), f"{found}, {expected}, {again}"
    for name, column in expected.items():
        assert np.array_equal(found[name], again[name], equal_nan=True), f"{name}: threads change the result"
        _require_close(name, found[name], column, kernel.close(case))
    return "refused" if "refused" in expected else f"right, {instructions}"


def _columns(kernel: Kernel, module: Any, case: Case) -> Columns:
    """What a kernel finds, or that it refuses the case."""
    try:
        return kernel.call(module, case)
    except InputError:
        return {"refused": np.array(1.0)}


def _require_close(name: str, found: Array, expected: Array, close: tuple[float, float]) -> None:
    relative, absolute = close
    assert found.shape == expected.shape, f"{name}: {found.shape} instead of {expected.shape}"
    a, b = found.astype(np.float64), expected.astype(np.float64)
    wrong = ~np.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True)
    place = np.argwhere(wrong)[:1].tolist()
    assert not wrong.any(), (
        f"{name} at {place}: {a[wrong][:1]} instead of {b[wrong][:1]}, {wrong.sum()} of {wrong.size}"
    )


@contextmanager
def _kernels(name: str, threads: int) -> Iterator[Any]:
    """Use these kernels, with that many threads however small the case is."""
    before = os.environ.get("FOCALCAL_KERNELS"), torch.get_num_threads(), compiled._VALUES_PER_THREAD
    kernels = compiled_kernels()
    instructions = kernels and kernels.in_use()
    try:
        os.environ["FOCALCAL_KERNELS"] = name
        compiled_kernels.cache_clear()
        torch.set_num_threads(threads)
        compiled._VALUES_PER_THREAD = 1
        yield compiled_kernels()
    finally:
        os.environ.pop("FOCALCAL_KERNELS")
        if before[0] is not None:
            os.environ["FOCALCAL_KERNELS"] = before[0]
        if kernels:
            kernels.choose(instructions)
        compiled_kernels.cache_clear()
        torch.set_num_threads(before[1])
        compiled._VALUES_PER_THREAD = before[2]


TARGET = Target(
    "kernels",
    "compiled kernels beside their definitions in torch",
    cases(),
    check,
    frozenset({"right, baseline"}),
    in_ci=300,
)
