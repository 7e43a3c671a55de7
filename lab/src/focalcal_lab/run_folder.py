"""A run's folder: its files, a lock for one writer at a time, and checkpoints that are complete or absent.

recipe.yaml        the resolved recipe, which `focalcal lab run` takes, too
run.json           method, seed, data folder, the user's data set, trainer options, and the recipe's fingerprint
environment.json   versions and the machine
checkpoints/       the last two, each with the hash of its content in its name
monitor.json       what the papers plot, per epoch
predictions.npz    logits of val and test, ready for `focalcal report`
calibrators/       one file each
out_of_distribution/   logits of foreign sets, where the recipe has some
results.json       every number, when the run is finished
time.json          the seconds that it took
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypeAlias

import torch
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from focalcal import __version__
from focalcal.atomic import write_atomically
from focalcal.errors import FileFormatError, FocalCalError, InputError
from focalcal_lab.catalog import find_recipe, recipe_file
from focalcal_lab.data.user_dataset import is_dataset_name
from focalcal_lab.path_below import path_below
from focalcal_lab.recipe import FileName, Recipe, require_method
from focalcal_lab.run_results import RunResult, checked, read_result

_KEPT = 2
_FAR_BEHIND = 1 << 30
# What a run may tell Lightning's trainer: plain values, and nothing that would be imported.
TrainerOption: TypeAlias = 'Literal["accelerator", "devices", "strategy", "num_nodes", "precision", "logger"]'


def _named_dataset(name: str) -> str:
    if not is_dataset_name(name):
        raise ValueError('must be "package.module:name"')
    return name


@dataclass(frozen=True)
class RunSettings:
    """What a run needs beside its recipe to be the same run again.

    `dataset` is the name of the user's own code that gives the data. It is recorded, to be compared with what the user
    names when the run goes on; nothing is imported because it stands here.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    method: FileName
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    digest: str
    data: str | None = None
    threads: Annotated[int, Field(ge=1, lt=2**16)] | None = None
    checkpoint_every: Annotated[int, Field(ge=1)] | None = None
    trainer: dict[TrainerOption, int | str] = field(default_factory=dict)
    dataset: Annotated[str, AfterValidator(_named_dataset)] | None = None


_SETTINGS = TypeAdapter(RunSettings)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def file(self, *names: str) -> Path:
        """The path of one of the run's files, or of one in a folder of its own; refuses what leads elsewhere."""
        return path_below(self.path, *names)

    def files(self, folder: str, pattern: str = "*") -> list[Path]:
        """The files in one of the run's folders, by their names."""
        return [self.file(folder, path.name) for path in sorted(self.file(folder).glob(pattern))]

    @property
    def begun(self) -> bool:
        """Whether a run was begun here."""
        return self.file("run.json").exists()

    @property
    def finished(self) -> bool:
        """Whether the run here is finished."""
        return self.file("results.json").exists()

    def result(self) -> RunResult:
        """What the finished run found."""
        return read_result(self.file("results.json"))

    def begin(self, recipe: Recipe, settings: RunSettings) -> None:
        """Initialise the folder. Resumes if it holds the same run; raises if it holds anything else."""
        if self.begun:
            _, before = self.read()
            if before != settings:
                named = [name for name, value in asdict(settings).items() if getattr(before, name) != value]
                other = ", ".join("recipe" if name == "digest" else name for name in named)
                raise InputError(f"{self.path}: holds another run, with another {other}. Name another --out.")
            return
        if self.path.exists() and (not self.path.is_dir() or any(each.name != "lock" for each in self.path.iterdir())):
            raise InputError(f"{self.path}: must be a new or empty folder for a run. Name another --out.")
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file("recipe.yaml"), recipe_file(recipe, defaults=True).encode())
        write_atomically(self.file("environment.json"), _json(environment()))
        write_atomically(self.file("run.json"), _json(asdict(settings)))  # last: the run has begun when it is there

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds of a block to those of the run; what a killed process spent is not known."""
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = self.seconds + time.monotonic() - started
            write_atomically(self.file("time.json"), _json({"seconds": round(seconds, 1)}))

    @property
    def seconds(self) -> float:
        """How long the run took, over all its resumptions."""
        try:
            return float(json.loads(self.file("time.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError, TypeError):  # not begun, or damaged: the run is worth more than its time
            return 0.0

    def read(self) -> tuple[Recipe, RunSettings]:
        """What the run is, refusing a recipe that was changed since it began, and links that lead out of the folder."""
        if not self.begun:
            raise InputError(f"{self.path}: must be the folder of a run; it has no run.json.")
        for entry in self.path.iterdir():
            if entry.is_symlink():
                self.file(entry.name)
        path = self.file("run.json")
        settings = checked(path.read_bytes(), _SETTINGS, path, "what a run writes")
        recipe = find_recipe(str(self.file("recipe.yaml")))
        require_method(recipe, settings.method)
        if recipe.digest(settings.method) != settings.digest:
            raise InputError(
                f"{self.file('recipe.yaml')}: was changed since the run began, and the rest would be another run. "
                "Put back what it was, or begin a new run with the changed recipe."
            )
        return recipe, settings

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer; the system frees the lock when the process ends, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.file("lock"), "a+", encoding="utf-8") as lock:
            try:
                _hold(lock)
            except OSError as error:
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                raise FocalCalError(f"{self.path}: is being written by {holder}. Wait for it, or end it.") from error
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {platform.node()}\n")
            lock.flush()
            yield

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints, the newest first."""
        return self.files("checkpoints", "step-*.ckpt")[::-1]

    def write_checkpoint(self, step: int, state: dict[str, Any]) -> None:
        """Keep a checkpoint under a name that says its step and content, and forget all but the last two."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        self.file("checkpoints").mkdir(exist_ok=True)
        name = f"step-{step:010d}-{hashlib.sha256(content).hexdigest()[:16]}.ckpt"
        write_atomically(self.file("checkpoints", name), content)
        for old in self.checkpoints[_KEPT:]:
            old.unlink()

    def newest_checkpoint(self) -> tuple[Path | None, list[Path]]:
        """The newest checkpoint that is whole, and newer ones that are not; None if the run has not come to one."""
        damaged: list[Path] = []
        for path in self.checkpoints:
            if hashlib.sha256(path.read_bytes()).hexdigest()[:16] == path.stem.rpartition("-")[2]:
                return path, damaged
            damaged.append(path)
        if damaged:
            names = ", ".join(str(path) for path in damaged)
            raise FileFormatError(
                f"{names}: no checkpoint of the run is whole. Restore one from a copy, or remove the folder "
                "checkpoints to begin the run again: the seed makes it the same."
            )
        return None, []


def environment() -> dict[str, Any]:
    """The versions and the machine that a run ran on."""
    return {
        "focalcal": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "accelerators": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _hold(lock: IO[str]) -> None:
    """Take the system's lock on a file until it is closed; an OSError says that another process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows, where nobody can read what is locked: a byte far behind the text
        import msvcrt

        lock.seek(_FAR_BEHIND)
        msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
