r"""The criteria that calibrators minimise, by name.

| name | what is minimised | smooth |
|---|---|---|
| `nll` | mean of $-\log p_y$ | yes |
| `brier` | mean of $\lVert p - e_y \rVert^2$ | yes |
| `focal` | mean of $-(1 - p_y)^\gamma \log p_y$ [charoenphakdee2021, Sec. 6] | yes |
| `ece` | expected calibration error, 15 bins of equal width [mukhoti2020, Eq. 2] | no |
| `ada_ece` | the same with bins of equal mass [mukhoti2020, Eq. 3] | no |
| `smooth_ece` | smooth ECE [blasiok2023] | no |
| `ks` | Kolmogorov-Smirnov calibration error [gupta2021, Eq. 5] | no |

Definitions are those of `focalcal.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from focalcal.calibrators.data import Block, FitData
from focalcal.core.binning import bin_norm, bin_predictions
from focalcal.core.inputs import require
from focalcal.core.predictions import Chunk
from focalcal.core.ranking import Array, Ranked
from focalcal.core.reader import ChunkReader
from focalcal.core.smooth import smooth_calibration_error

SMOOTH = ("nll", "brier", "focal")
BINNED = ("ece", "ada_ece")
NAMES = (*SMOOTH, *BINNED, "smooth_ece", "ks")

# Maps logits (n, K) to log-probabilities or other logits of the same shape.
LogProbs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Criterion:
    """A named criterion: `gamma` belongs to `focal`, `num_bins` to `ece` and `ada_ece`.

    >>> data = FitData.of_arrays([[0.0, 0.0], [0.0, 0.0]], [0, 1], "logits", None)
    >>> round(Criterion("nll").of(data), 4)
    0.6931
    """

    name: str
    gamma: float | None = None
    num_bins: int = 15

    def __post_init__(self) -> None:
        require(self.name in NAMES, "criterion", f"must be one of {', '.join(NAMES)}", repr(self.name))
        require(self.num_bins >= 1, "num_bins", "must be at least 1", self.num_bins, "The papers use 15.")
        given = self.gamma is not None
        rule = "is needed for criterion focal, and for no other"
        require(given == (self.name == "focal"), "gamma", rule, f"criterion={self.name!r}, gamma={self.gamma}")
        fine = self.gamma is None or (math.isfinite(self.gamma) and self.gamma >= 0)
        require(fine, "gamma", "must be non-negative and finite", self.gamma)

    def settings(self) -> dict[str, Any]:
        """The arguments of a calibrator that choose this criterion."""
        return {"criterion": self.name, "gamma": self.gamma, "num_bins": self.num_bins}

    @property
    def smooth(self) -> bool:
        """Whether it has derivatives: a mean over rows."""
        return self.name in SMOOTH

    def of(self, data: FitData, calibrate: LogProbs | None = None) -> float:
        """The criterion of the data's logits, or of what `calibrate` makes of them."""
        if self.smooth:
            total = sum(block.mean_sum(self.column(_read(block, calibrate))) for block in data.blocks())
            return total / data.mass
        return self.of_confidences(*_pairs(data, calibrate))

    def column(self, reader: ChunkReader) -> Tensor:
        """What a smooth criterion is the mean of, one value per row."""
        if self.gamma is None:
            column: Tensor = getattr(reader, self.name)
            return column
        nll = reader.nll
        return torch.pow(-torch.expm1(-nll), self.gamma) * nll

    def of_confidences(self, confidence: Array, correct: Array, weight: Array | None) -> float:
        """A criterion that reads confidence and correctness (N,) only: the ones that are not smooth."""
        if self.name == "ece":
            bins = bin_predictions(confidence, correct, num_bins=self.num_bins, weight=weight)
            return float(bin_norm(bins, "l1"))
        if self.name == "ada_ece":
            bins = bin_predictions(
                confidence, correct, num_bins=min(self.num_bins, len(confidence)), edges="equal_mass", weight=weight
            )
            return float(bin_norm(bins, "l1"))
        ranked = Ranked.of_rows(confidence, correct, weight)
        if self.name == "ks":
            return ranked.largest_drift()
        return smooth_calibration_error(ranked.value, ranked.residuals)[0]


def _pairs(data: FitData, calibrate: LogProbs | None) -> tuple[Array, Array, Array | None]:
    """Confidence, correctness and weight of all rows.

    In arrays of the full length: pieces kept between the large temporaries of the blocks would tear the heap apart.
    """
    rows = data.count()
    confidence, correct = torch.empty(rows, dtype=torch.float32), torch.empty(rows, dtype=torch.bool)
    weight, start = None, 0
    for block in data.blocks():
        reader = _read(block, calibrate)
        part = slice(start, start + len(block.labels))
        confidence = confidence.to(torch.promote_types(confidence.dtype, reader.confidence.dtype))
        confidence[part], correct[part] = reader.confidence, reader.correct
        if block.weight is not None:
            weight = torch.ones(rows, dtype=torch.float64) if weight is None else weight
            weight[part] = block.weight
        start = part.stop
    return confidence.numpy(), correct.numpy(), None if weight is None else weight.numpy()


def _read(block: Block, calibrate: LogProbs | None) -> ChunkReader:
    logits = block.logits if calibrate is None else calibrate(block.logits)
    return ChunkReader(Chunk(logits, block.labels, None), "logits")
