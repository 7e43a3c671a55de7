"""The base class of calibrators: a module that turns logits into log-probabilities, with `fit`, a report and files."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.calibrators.fit_data import FitData, Progress, fit_data
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.search.criteria import Criterion
from focalcal.core.checks import Array, ArrayLike, Kept, TensorLike, require, to_float_tensor
from focalcal.core.focal import wide_dtype
from focalcal.core.frames import FrameLike
from focalcal.core.masking import unify_masks
from focalcal.core.optimum import Optimum
from focalcal.core.score_kinds import GivenKind, Kind, logits_of, probabilities
from focalcal.errors import NotFittedError
from focalcal.predictions.arrays import Predictions
from focalcal.predictions.labels import listed
from focalcal.predictions.stream import BatchesFactory, Stream

if TYPE_CHECKING:
    from typing_extensions import Self


_ROUNDING = 1e-12
# The types that the fields of a report may have.
_REPORTED: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}


@dataclass(frozen=True)
class FitReport:
    """What happened in a fit.

    `before` and `after` are the criterion of the raw logits and of the calibrated ones, on the data of the fit.
    `kept_identity` says that nothing better than the raw logits was found, so that they are what comes out. `passes` is
    how often a stream was read, 0 for arrays.

    >>> from focalcal import TemperatureScaling
    >>> report = TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1]).report_
    >>> report.criterion, round(report.before, 4), round(report.after, 4), report.converged
    ('nll', 0.7936, 0.6365, True)
    """

    criterion: str
    before: float
    after: float
    iterations: int
    converged: bool
    at_boundary: bool
    kept_identity: bool
    num_rows: int
    passes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> FitReport:
        """The report that `to_dict` described; raises an InputError for values that no fit reports.

        >>> from focalcal import Identity
        >>> report = Identity().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1]).report_
        >>> FitReport.from_dict(report.to_dict()) == report
        True
        """
        for each in fields(FitReport):
            value, kind = plain.get(each.name, each.default), _REPORTED[str(each.type)]
            fine = isinstance(value, kind) and (bool in kind) == isinstance(value, bool)
            fine = fine and (not isinstance(value, (int, float)) or math.isfinite(value))
            require(fine, f"report: {each.name}", f"must be a finite {each.type}", repr(value))
        return FitReport(**plain)


class Calibrator(nn.Module, ABC):
    """Maps logits (N, K) or (N, K, d1, ...) to log-probabilities of the same shape.

    Log-probabilities are logits, so calibrators follow one another. Classes may be masked, in some rows or in all: they
    stay masked, and the others share the probability (`focalcal.core.masking` has the rules).

    A subclass defines how it is fitted (`_fit`) and how it maps rows of logits (`_log_probs`); everything else is here.
    Fitted values end in `_`: they are buffers, move with the module from device to device and keep their float64
    whatever the module's precision.

    >>> import focalcal as fc
    >>> all(issubclass(method, Calibrator) for method in (fc.TemperatureScaling, fc.SplineCalibration, fc.Compose))
    True
    """

    # The names of the fitted values, with what each may be; names alone stand for any finite values.
    FITTED: ClassVar[Mapping[str, FittedValue] | tuple[str, ...]] = ()
    # Whether the fit is tied to a number of classes, and which one it needs, if any.
    PER_CLASS: ClassVar[bool] = False
    BINARY: ClassVar[bool] = False

    criterion: Criterion

    def __init__(self) -> None:
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        """Forget any fit."""
        self.num_classes_: int | None = None
        self.class_names: tuple[str, ...] | None = None
        self._report: FitReport | None = None
        for name in self.FITTED:
            self._buffers[name] = None

    # ------------------------------------------------------------------ what a subclass defines

    @abstractmethod
    def _fit(self, data: FitData) -> Optimum[Any] | None:
        """Set the fitted values with `_set`, and return the result of the search, or None if there was no search."""

    @abstractmethod
    def _log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of rows (n, K) of logits; both may be in float32 or float64.

        The logit of a masked class is -inf, and so is its log-probability. Every other logit is finite.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The arguments, as plain values, that make another calibrator like this one."""

    def _set(self, **values: float | Tensor) -> None:
        for name, value in values.items():
            self._buffers[name] = torch.as_tensor(value, dtype=torch.float64).detach().clone()

    def _value(self, name: str) -> Tensor:
        """A fitted value as a tensor."""
        value = self._buffers[name]
        if value is None:
            raise self._not_fitted(name)
        return value

    def _not_fitted(self, name: str) -> NotFittedError:
        return NotFittedError(
            f"{type(self).__name__} is not fitted yet: it has no {name}. Call fit(logits, labels) first."
        )

    @property
    def is_fitted(self) -> bool:
        """Whether the calibrator is fitted, or needs no fit."""
        return all(self._buffers[name] is not None for name in self.FITTED)

    def require_fitted(self) -> None:
        """Raise a NotFittedError unless the calibrator is fitted or needs no fit."""
        if not self.is_fitted:
            raise self._not_fitted(next(iter(self.FITTED), "fitted values"))

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        logits: ArrayLike | Stream | BatchesFactory,
        labels: ArrayLike | None = None,
        *,
        kind: GivenKind = "logits",
        sample_weight: ArrayLike | None = None,
        ignore_index: int | None = None,
        class_axis: int = 1,
        class_names: Sequence[str] | None = None,
        engine: str | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit to held-out `logits` (N, K) or (N, K, d1, ...) and `labels` (N, ...); not the data the model trained on.

        `kind` says what the scores are: logits, log_probs, probs, or log_scores, which are not normalised and the same
        as logits. Binary scores of the positive class may have shape (N,). The scores are never changed, nor copied as
        a whole.

        Scores and labels are read as by `focalcal.metrics.read`: the classes are along `class_axis`, labels may be
        names, and both may come from pandas, polars or pyarrow. `class_names` then has the names of the classes. Rows
        whose label is `ignore_index` are left out.

        Data that does not fit in memory comes as a stream in place of the logits, which brings its labels and weights
        along: a `focalcal.files.PredictionStream`, or a function that opens the data anew at each call and gives an
        iterable of batches (logits, labels) or (logits, labels, sample_weight), always the same ones. A stream is read
        as often as `report_.passes` says, in bounded memory; `engine="ray"` reads a stream of files on a Ray cluster.

        `progress(done, total, what)` is called now and then by the methods that fit a function for each class. Without
        it they warn, with an estimate, of a fit that takes more than a minute.
        """
        data = fit_data(
            logits,
            labels,
            kind=kind,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            class_axis=class_axis,
            class_names=class_names,
            engine=engine,
        )
        data.progress = progress
        return self._fit_to(data)

    def _fit_to(self, data: FitData) -> Self:
        with torch.inference_mode(False), torch.no_grad():  # autograd may meet the fitted values later
            self._reset()
            try:
                self._report = self._reported(data, self._fit(data))
            except BaseException:
                self._reset()  # nothing half-fitted is left behind
                raise
            self.num_classes_ = data.num_classes
            self.class_names = data.class_names
        return self

    def _reported(self, data: FitData, optimum: Optimum[Any] | None) -> FitReport:
        """The report of a fit; a fit that ended worse than the raw logits keeps those."""
        if optimum is None:
            optimum = Optimum(None, math.nan, 1)
        before, after = optimum.before, optimum.value
        if before is None:
            before, after = self.criterion.of(data), self.criterion.of(data, self._log_probs)
        given = optimum.iterations == 0
        # Rounding may make the raw logits and what is as good as them differ in the last digits.
        worse = not (given or after <= before + _ROUNDING * abs(before))
        return FitReport(
            criterion=self.criterion.name,
            before=before,
            after=after if given else before if worse else min(after, before),
            iterations=optimum.iterations,
            converged=optimum.converged,
            at_boundary=optimum.at_boundary,
            kept_identity=worse,
            num_rows=data.num_rows,
            passes=data.stream_passes,
        )

    @property
    def report_(self) -> FitReport:
        """What happened in the fit."""
        if self._report is None:
            raise self._not_fitted("report_")
        return self._report

    # ------------------------------------------------------------------ use

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Kept) -> Kept:
            """The same as `forward`."""
            ...

    def forward(self, logits: Any) -> Any:
        """Log-probabilities of `logits`, in their shape; float32 for half precision, else in their precision.

        Scores (N,) of the positive class give (N, 2). Arrays come back as arrays.
        """
        if isinstance(logits, np.ndarray):
            return self.forward(to_float_tensor(logits, "logits")).numpy()
        rows, shape = self._rows(logits)
        return _in_shape(self._calibrated(rows).to(rows.dtype), shape)

    @overload
    def predict_probs(self, logits: Array | FrameLike, *, kind: GivenKind = ..., class_axis: int = ...) -> Array: ...
    @overload
    def predict_probs(self, logits: TensorLike, *, kind: GivenKind = ..., class_axis: int = ...) -> Tensor: ...

    def predict_probs(self, logits: ArrayLike, *, kind: GivenKind = "logits", class_axis: int = 1) -> Any:
        """Calibrated probabilities of `logits`, in their shape and kind: numpy and data frames give numpy.

        Scores (N,) of the positive class give its probabilities (N,). Scores of more dimensions have the classes along
        `class_axis`: 1 for images (N, K, H, W), -1 for tokens (B, T, K).
        """
        given = Predictions(logits, None, kind=kind, class_axis=class_axis, argument="logits", may_be_empty=True)
        self._require_classes(given.num_classes)
        self._require_names(given.class_names)
        with torch.no_grad():
            parts = [probabilities(*self.calibrate_rows(chunk.scores, given.kind)) for chunk in given.chunks()]
        if given.binary:
            parts = [part[:, 1] for part in parts]
        device = logits.device if isinstance(logits, Tensor) else None
        probs = torch.cat(parts) if parts else torch.empty(given.given_shape, device=device)
        if not given.binary:
            shape = (given.place[0], given.num_classes, *given.place[1:])
            probs = _in_shape(probs, shape).movedim(1, given.class_axis) if parts else probs
        returned_as_array = not isinstance(logits, (Tensor, list, tuple, int, float))
        return probs.numpy() if returned_as_array else probs

    def _require_names(self, names: tuple[str, ...] | None) -> None:
        """Refuse the columns of a data frame in another order than in the fit."""
        if names is not None and self.class_names is not None and names != self.class_names:
            rule = f"the columns must be those of the fit, {listed(self.class_names)}, in this order"
            require(False, "logits", rule, listed(names))

    def calibrate_rows(self, scores: Tensor, kind: Kind) -> tuple[Tensor, Kind]:
        """Calibrated rows (n, K) of scores, and their kind.

        These are log-probabilities, or the probabilities that were given where the calibrator leaves them as they are:
        to go to their logarithms and back would not give the same numbers.
        """
        if self.leaves_scores and kind != "logits":
            self._require_classes(scores.shape[1])
            return scores, kind
        return self.forward(logits_of(scores, kind)), "log_probs"

    @property
    def leaves_scores(self) -> bool:
        """Whether the probabilities that come out are those that went in."""
        return self._report is not None and self._report.kept_identity

    def _rows(self, logits: Tensor) -> tuple[Tensor, torch.Size]:
        """Rows (n, K) in float32 or float64, and the shape that the answer takes."""
        require(isinstance(logits, Tensor), "logits", "must be a tensor or an array", type(logits).__name__)
        require(logits.is_floating_point(), "logits", "must be floating point", logits.dtype)
        require(logits.dim() >= 1, "logits", "must have shape (N, K), (N,) or (N, K, d1, ...)", "a single number")
        wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        wide = unify_masks(wide, logits.dtype)
        if wide.dim() == 1:
            wide = torch.stack([torch.zeros_like(wide), wide], 1)
        self._require_classes(wide.shape[1])
        shape = wide.shape
        return (wide if wide.dim() == 2 else wide.movedim(1, -1).reshape(-1, shape[1])), shape

    def _require_classes(self, num_classes: int) -> None:
        require(num_classes >= 2, "logits", "needs at least two classes", num_classes)
        self.require_fitted()
        if self.PER_CLASS and self.num_classes_ is not None:
            rule = f"this calibrator was fitted to {self.num_classes_} classes"
            require(num_classes == self.num_classes_, "logits", rule, num_classes)

    def _calibrated(self, rows: Tensor) -> Tensor:
        return torch.log_softmax(rows, 1) if self.leaves_scores else self._log_probs(rows)

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the calibrator to a file: JSON where it is a few numbers, safetensors where it has arrays.

        The file is complete or not there at all. `focalcal.load_calibrator` reads it back.
        """
        from focalcal.calibrators.files import save_calibrator

        save_calibrator(self, path)

    def to_onnx(self, path: str | Path, *, num_classes: int | None = None) -> None:
        """Write an ONNX model that maps float32 logits (N, K) to log-probabilities, checked by onnxruntime.

        `num_classes` is that of the fit unless given. Needs the extra `onnx`.
        """
        from focalcal.calibrators.export import export_calibrator

        export_calibrator(self, path, num_classes)

    # ------------------------------------------------------------------ a well-behaved module

    def __getattr__(self, name: str) -> Any:
        """Fitted values: numbers as floats, arrays as tensors."""
        if name == "report_":  # Python comes here when the property has raised
            raise self._not_fitted(name)
        if name in type(self).FITTED:
            value = self._value(name)
            return float(value) if value.dim() == 0 else value
        return super().__getattr__(name)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move with the module, but keep the precision: a temperature in float16 would be another one."""
        kept = {name: self._buffers[name] for name in self.FITTED}
        super()._apply(fn, recurse)
        for name, value in kept.items():
            moved = self._buffers[name]
            if value is not None and moved is not None:
                self._buffers[name] = value.to(moved.device, wide_dtype(moved.device))
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """What a checkpoint stores beside the buffers."""
        report = None if self._report is None else self._report.to_dict()
        names = {} if self.class_names is None else {"class_names": list(self.class_names)}
        return {"num_classes": self.num_classes_, "report": report, **names}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        self.num_classes_ = state["num_classes"]
        self._report = None if state["report"] is None else FitReport(**state["report"])
        names = state.get("class_names")
        self.class_names = None if names is None else tuple(names)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self.FITTED:  # their shapes are known only now
            value = state_dict.get(prefix + name)
            self._buffers[name] = None if value is None else torch.empty_like(value)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """The settings, and the fitted numbers."""
        said = [f"{name}={value!r}" for name, value in self.settings().items() if value is not None]
        numbers = {name: self._buffers[name] for name in self.FITTED}
        said += [f"{name}={float(v):.6g}" for name, v in numbers.items() if v is not None and v.dim() == 0]
        return ", ".join(said)


def _in_shape(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Rows (n, K) in the shape (N, K) or (N, K, d1, ...) of the scores that they belong to."""
    return rows if len(shape) <= 2 else rows.reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
