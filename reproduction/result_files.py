"""Result files: one for each recipe, with every number that the pages show, and small enough for version control.

{"schema": 1, "recipe": {...}, "environment": {...}, "threads": 1, "data": "...", "sizes": [4500, 500, 10000],
 "runs": [{"method": "ce", "seed": 0, "seconds": 240.5, "phases": {...}, ...}, ...]}
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from focalcal.atomic import write_atomically
from focalcal.errors import FileFormatError, InputError

SCHEMA = 1
# Numbers are rounded to so many digits: far more than the spread over seeds leaves.
DIGITS = 5

# By phase ("pre" or that of a calibrator of the recipe), then by measure of `focalcal_lab.measurement.MEASURES`: the
# value on the test split and the ends of its 95 % bootstrap interval (both None where none was drawn).
Phases: TypeAlias = "dict[str, dict[str, list[float | None]]]"
# By "after - before", two phases, then by measure: paired difference, ends of its 95 % interval, two-sided p-value.
Pairs: TypeAlias = "dict[str, dict[str, list[float]]]"


@dataclass(frozen=True)
class RunEvidence:
    """The measurements of one run.

    `fits` has the fitted temperature and gamma by phase; `human` compares with human label distributions, by phase and
    measure; `foreign` is detection of sets out of distribution, by set, phase ("pre", "post") and measure; `dynamics`
    are series of the monitor, each as long as `dynamics["epoch"]`, but for those below "bins", which are by bin; and
    `extra` is what only some recipes have: `suggested_gamma` of a cross-entropy run, curves of a translation.
    """

    method: str
    seed: int
    seconds: float
    phases: Phases
    fits: dict[str, dict[str, float]] = field(default_factory=dict)
    pairs: Pairs = field(default_factory=dict)
    human: dict[str, dict[str, float]] = field(default_factory=dict)
    foreign: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    dynamics: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """The measurements of all runs of a recipe, and how the runs were made."""

    recipe: dict[str, Any]
    environment: dict[str, Any]
    threads: int
    data: str
    sizes: list[int]
    runs: list[RunEvidence]
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.recipe["name"])

    @property
    def methods(self) -> list[str]:
        """The methods that were run, in the recipe's order."""
        there = {run.method for run in self.runs}
        return [method for method in self.recipe["methods"] if method in there]

    def of(self, method: str) -> list[RunEvidence]:
        """The runs of a method by seed."""
        return sorted((run for run in self.runs if run.method == method), key=lambda run: run.seed)


def file_name(recipe: str) -> str:
    """The name of a recipe's result file.

    >>> file_name("cpu/cifar10-s-resnet8")
    'cifar10-s-resnet8.json'
    """
    return recipe.rpartition("/")[2] + ".json"


def write_evidence(evidence: Evidence, path: str | Path) -> None:
    """Write a result file with one line for each run, so that changes can be read."""
    head = asdict(evidence)
    runs = head.pop("runs")
    lines = ",\n".join(_dumped(shortened(run)) for run in runs)
    write_atomically(path, f'{_dumped(head)[:-1]}, "runs": [\n{lines}\n]}}\n'.encode())


def read_evidence(path: str | Path) -> Evidence:
    """Read a result file; anything else is refused."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        if fields["schema"] != SCHEMA:
            raise FileFormatError(f"{path}: it has schema {fields['schema']}; this version reads {SCHEMA}.")
        return Evidence(**{**fields, "runs": [RunEvidence(**run) for run in fields["runs"]]})
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path}: it is not a result file: {error}.") from error


def recorded() -> dict[str, Evidence]:
    """The recorded result files, by the name of their recipe.

    >>> all(name.startswith("cpu/") for name in recorded())
    True
    """
    folder = resources.files("reproduction") / "results"
    found = (read_evidence(Path(str(entry))) for entry in folder.iterdir() if entry.name.endswith(".json"))
    return {evidence.name: evidence for evidence in sorted(found, key=lambda each: each.name)}


def evidence_of(recipe: str) -> Evidence:
    """The recorded result file of a recipe."""
    there = recorded()
    if recipe not in there:
        raise InputError(f"recipe: has no recorded results; those that have are {', '.join(there)}; got {recipe!r}.")
    return there[recipe]


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def shortened(value: Any, digits: int = DIGITS) -> Any:
    """Numbers rounded to a few digits, all the way down; what is not finite becomes None.

    >>> shortened({"nll": [1 / 3, float("nan"), 2]})
    {'nll': [0.33333, None, 2]}
    """
    if isinstance(value, dict):
        return {name: shortened(each, digits) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [shortened(each, digits) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
