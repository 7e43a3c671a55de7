"""The files that figures are drawn from, and how they are read; `python -m reproduction.figures.record` writes them.

They are runs of `cpu/cifar10-s-resnet8` with seed 0, on another machine than those of the lab's results, of which more
was kept: `every-epoch` is cross-entropy with a record of every epoch, in 25 bins; `every-third-epoch` the same run with
the recipe's own records and the foreign sets, and so five other losses.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from focalcal_lab.data.dataset import TensorRows
from focalcal_lab.problems.linear import Limit, LinearProblem, LinearRun
from reproduction.recipe_numbers import RecipeNumbers, recorded_numbers
from reproduction.result_files import Evidence, RunEvidence, read_evidence

LINEAR = "linear.json"


def _path(name: str) -> Path:
    return Path(str(resources.files(__name__) / name))


@cache
def every_epoch() -> Evidence:
    """Cross-entropy with a record of every epoch."""
    return read_evidence(_path("every-epoch.json"))


@cache
def every_third_epoch() -> Evidence:
    """Six losses with a record of every third epoch, and ROC curves."""
    return read_evidence(_path("every-third-epoch.json"))


@cache
def lab_results() -> dict[str, RecipeNumbers]:
    """The recorded results by recipe: all seeds, and less of each run."""
    return recorded_numbers()


@cache
def trained_here() -> dict[str, Any]:
    """What networks on the one-dimensional problem ("line") and on noisy digits ("digits") gave.

    >>> sorted(trained_here())
    ['digits', 'line']
    """
    found: dict[str, Any] = json.loads(_path("charoenphakdee2021.json").read_text(encoding="utf-8"))
    return found


def run_of(evidence: Evidence, method: str) -> RunEvidence:
    """The only run of a method."""
    (run,) = evidence.of(method)
    return run


def epochs_trained(run: RunEvidence) -> list[int]:
    """After how many epochs each record was made."""
    return [epoch + 1 for epoch in run.dynamics["epoch"]]


@cache
def linear() -> LinearProblem:
    """The linear problem, solved."""
    fields = json.loads(_path(LINEAR).read_text(encoding="utf-8"))
    inputs, labels = torch.tensor(fields.pop("inputs"), dtype=torch.float64), torch.tensor(fields.pop("labels"))
    runs = tuple(_linear_run(run) for run in fields.pop("runs"))
    return LinearProblem(**fields, runs=runs, test=TensorRows(inputs, labels))


def _linear_run(fields: dict[str, Any]) -> LinearRun:
    limit = Limit(**{name: _tuple(value) for name, value in fields.pop("limit").items()})
    return LinearRun(**{name: _tuple(value) for name, value in fields.items()}, limit=limit)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
