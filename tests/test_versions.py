"""What a bug report should have: versions, kernels, and the extras that are installed."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import focalcal as fc
from focalcal import versions
from focalcal.kernels.choice import kernels_in_use

ROOT = Path(__file__).resolve().parents[1]
OWN_TOOLS = {"docs", "test", "dev", "fuzz", "mutants", "bench"}


def test_everything_is_printed_and_nothing_returned(capsys):
    assert fc.show_versions() is None
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["focalcal"] == fc.__version__
    assert lines["kernels"] == kernels_in_use()
    assert lines["Python"] == platform.python_version()
    assert lines["torch"] == torch.__version__
    assert lines == versions.find_versions()


def test_what_is_not_installed_is_left_out(monkeypatch):
    def version(name: str) -> str:
        if name in ("torch", "numpy", "onnx"):
            return "1.2"
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", version)
    found = versions.find_versions()
    assert list(found) == ["focalcal", "kernels", "Python", "platform", "torch", "numpy", "onnx"]


def test_every_package_of_every_extra_is_asked_for():
    named: dict[str, tuple[str, ...]] = {}
    for line in requires("focalcal") or ():
        needed = Requirement(line)
        for extra in versions.EXTRAS:
            if needed.marker and "extra" in str(needed.marker) and needed.marker.evaluate({"extra": extra}):
                named[extra] = (*named.get(extra, ()), needed.name)
    assert named == versions.EXTRAS
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - OWN_TOOLS == set(versions.EXTRAS)


def test_versions_are_found_without_importing_torch():
    code = "import sys; from focalcal.versions import show_versions; show_versions(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
