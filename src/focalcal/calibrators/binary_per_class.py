r"""A calibrator of two classes for more of them: each class against the rest, as scikit-learn does in Platt scaling.

$$ p'_k = \frac{q_k}{\sum_j q_j}, \qquad q_k = f_k(s_k), \qquad s_k = x_k - \log \sum_{j \ne k} e^{x_j} $$

where $x$ are the logits, and $f_k$ is the calibrator, fitted to the log-odds $s_k$ of class k and to whether k is the
label. Differs from scikit-learn: it takes the column of the decision function for $s_k$.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor, nn

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.search.criteria import Criterion
from focalcal.core.checks import require
from focalcal.core.log_odds import all_log_odds
from focalcal.errors import InputError


class BinaryPerClass(Calibrator):
    """Copies of a calibrator of two classes, one for each class against the rest; the module's docstring has the map.

    After the fit `parts` has a calibrator for each class. The log-odds of all rows are held in memory.

    >>> from focalcal import PlattScaling
    >>> logits, labels = [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]] * 4, [0, 1, 2] * 3 + [1, 2, 0]
    >>> calibrator = BinaryPerClass(PlattScaling()).fit(logits, labels)
    >>> len(calibrator.parts), calibrator.predict_probs([[2.0, 0.0, 0.0]]).argmax().item()
    (3, 0)
    """

    PER_CLASS = True

    def __init__(self, template: Calibrator) -> None:
        super().__init__()
        require(template.BINARY, "template", "must be a calibrator of two classes", type(template).__name__)
        self._template = copy.deepcopy(template)
        self.parts = cast("list[Calibrator]", nn.ModuleList())
        self.criterion = Criterion("nll")

    def _reset(self) -> None:
        super()._reset()
        if "parts" in self.__dict__["_modules"]:
            self.parts = cast("list[Calibrator]", nn.ModuleList())

    @property
    def is_fitted(self) -> bool:
        """Whether there is a fitted calibrator for each class."""
        return len(self.parts) > 0

    def settings(self) -> dict[str, Any]:
        """The settings of the calibrator that is fitted to each class."""
        return self._template.settings()

    def _fit(self, data: FitData) -> None:
        rows = data.reduce(_against_rest, _joined)
        for k in range(rows.odds.shape[1]):
            part = copy.deepcopy(self._template)
            part.fit(rows.odds[:, k], (rows.labels == k).long(), sample_weight=rows.weight)
            self.parts.append(part)

    def _log_probs(self, logits: Tensor) -> Tensor:
        odds = all_log_odds(logits)
        pairs = (torch.stack([torch.zeros_like(column), column], 1) for column in odds.unbind(1))
        log_q = [part._calibrated(pair)[:, 1] for part, pair in zip(self.parts, pairs, strict=True)]
        return torch.log_softmax(torch.stack(log_q, 1), 1)

    def save(self, path: str | Path) -> NoReturn:
        """Refuse: there is no file format for it."""
        fix = "Pickle the model that it belongs to, or take a calibrator of many classes, such as VectorScaling."
        raise InputError(f"path: {type(self).__name__} cannot be saved; got {path}. {fix}")


class _Rows(NamedTuple):
    """Log-odds (n, K) of each class, labels (n,) and weights (n,)."""

    odds: Tensor
    labels: Tensor
    weight: Tensor


def _against_rest(blocks: Iterator[LabelledLogits]) -> _Rows:
    parts = [(all_log_odds(block.logits).cpu(), block.labels.cpu(), row_weights(block).cpu()) for block in blocks]
    return _Rows(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _joined(one: _Rows, other: _Rows) -> _Rows:
    return _Rows(*(torch.cat(pair) for pair in zip(one, other, strict=True)))
