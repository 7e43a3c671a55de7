"""What tests share: golden values and the predictions behind them, and environments in which the wheels are installed."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings

# Beside the project lie predictions of real networks, which are not ours to copy.
SHARED = Path(__file__).resolve().parents[2] / "shared"
VALUES = Path(__file__).parent / "golden" / "values"

torch.set_num_threads(1)
# The same examples every time, and no stop-watch: the machine may be busy.
settings.register_profile("focalcal", deadline=None, derandomize=True)
settings.load_profile("focalcal")


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
    """The python of an environment that has the library's wheel and the libraries of this one, but not the lab."""
    return _environment(tmp_path_factory.mktemp("library") / "env", wheels.library)


@pytest.fixture(scope="session")
def library_and_lab(wheels, tmp_path_factory) -> Path:
    """The same with the lab."""
    return _environment(tmp_path_factory.mktemp("lab") / "env", wheels.library, wheels.lab)


def _environment(folder: Path, *wheels: Path) -> Path:
    """Links lead to what is installed here, one by one: an editable focalcal and its entry points must not follow."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if path.suffix != ".pth" and not path.name.lower().lstrip("_").startswith(("focalcal", "editable")):
            (site / path.name).symlink_to(path)
    python = folder / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", *wheels)
    return python


def _run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
