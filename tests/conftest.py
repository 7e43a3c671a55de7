"""What tests share: golden values and the predictions behind them, and environments with the wheels installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from focalcal.files.ray import ray

# Beside the project lie predictions of real networks, which are not ours to copy.
SHARED = Path(__file__).resolve().parents[2] / "shared"
VALUES = Path(__file__).parent / "golden" / "values"

torch.set_num_threads(1)
# The same examples every time, and no stop-watch: the machine may be busy.
settings.register_profile("focalcal", deadline=None, derandomize=True)
settings.load_profile("focalcal")


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The local Ray cluster that the library starts, for all tests and pages of the group "shared"."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        # Ray's own default niceness of 15 never lets workers start on a busy machine.
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        started = ray()
        yield
        started.shutdown()


def _need(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is not beside the project; tests/golden/test_made.py needs no such file")
    return path


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads a file of reference values."""
    return lambda name: json.loads((VALUES / name).read_text())


@pytest.fixture(scope="session")
def golden_predictions() -> Callable[[str], tuple[np.ndarray, np.ndarray]]:
    """The probabilities and labels of a model named as in the reference values, or skips."""
    files = {
        "lenet-5-cifar-10": "cifar10_lenet5.npz",
        "wideresnet-16-4-cifar-10": "cifar10_wideresnet16_4.npz",
        "lenet-5-cifar-100": "cifar100_lenet5.npz",
        "wideresnet-16-4-cifar-100": "cifar100_wideresnet16_4.npz",
    }

    def read(model: str) -> tuple[np.ndarray, np.ndarray]:
        with np.load(_need("data", "predictions", files[model])) as file:
            return file["probs"].astype(np.float64), file["labels"].astype(np.int64)

    return read


class Wheels(NamedTuple):
    """What a release consists of."""

    library: Path
    sdist: Path
    lab: Path


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Wheels:
    """The wheel of the library, made from its sdist as an installer would make it, that sdist, and the lab's wheel."""
    root, folder = Path(__file__).resolve().parents[1], tmp_path_factory.mktemp("dist")
    for source, options in ((root, []), (root / "lab", ["--wheel"])):
        _run(sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", folder, source)
    (library,), (lab,) = folder.glob("focalcal-*.whl"), folder.glob("focalcal_lab-*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Wheels(library, sdist, lab)


@pytest.fixture(scope="session")
def library_alone(wheels, tmp_path_factory) -> Path:
    """The python of an environment with the library's wheel and what it depends on, and nothing else."""
    return _environment(tmp_path_factory.mktemp("library") / "env", {"focalcal": wheels.library})


class Installed(NamedTuple):
    """The python of an environment, and what pip printed while it built the package for it."""

    python: Path
    output: str


@pytest.fixture(scope="session")
def library_without_compiler(wheels, tmp_path_factory) -> Installed:
    """The library, built from its sdist where no compiler can be found."""
    folder = tmp_path_factory.mktemp("without-compiler")
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "CMAKE_ARGS")}
    environment["PATH"] = str(folder)
    command = (sys.executable, "-m", "pip", "wheel", "--verbose", "--no-build-isolation", "--no-deps", "--no-index")
    output = _run(*command, "--no-cache-dir", "--wheel-dir", folder, wheels.sdist, env=environment)
    (wheel,) = folder.glob("focalcal-*-py3-none-any.whl")
    return Installed(_environment(folder / "env", {"focalcal": wheel}), output)


@pytest.fixture(scope="session")
def library_and_lab(wheels, tmp_path_factory) -> Path:
    """The same with the lab."""
    return _environment(
        tmp_path_factory.mktemp("lab") / "env", {"focalcal": wheels.library, "focalcal-lab": wheels.lab}
    )


def _environment(folder: Path, wheels: dict[str, Path]) -> Path:
    """Dependencies are links to what is installed here: nothing is loaded from a network, or installed twice."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in {each for wheel in wheels for each in _dependencies(wheel)} - set(wheels):
        here = distribution(name)
        for top in {file.parts[0] for file in here.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = site / top
            if not link.exists():
                link.symlink_to(here.locate_file(top))
    python = folder / "bin" / "python"
    command = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    _run(*command, *wheels.values())
    return python


def _dependencies(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The names of all distributions that one needs to be installed."""
    found, waiting = {canonicalize_name(name)}, [(name, extras)]
    seen = set()
    while waiting:
        each, wanted = waiting.pop()
        if (each, wanted) in seen:
            continue
        seen.add((each, wanted))
        for line in distribution(each).requires or ():
            needed = Requirement(line)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (wanted or {""})):
                found.add(canonicalize_name(needed.name))
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return found


def _run(*command: object, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
