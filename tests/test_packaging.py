"""What is built and installed: contents, metadata, a smoke test away from the source tree, types seen from outside.

The built wheel goes into an environment of its own, which finds torch and the others in this one: nothing is loaded
from a network.
"""

from __future__ import annotations

import ast
import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import focalcal as fc

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Folders of one machine, which no file of a release may name.
MACHINE = re.compile(rb"/(?:home|Users|root|work|opt|mnt)/[a-z0-9_.-]+/|/tmp/[a-z]/|[A-Z]:\\\\Users")
TEXT = {".py", ".md", ".json", ".csv", ".yaml", ".toml", ".txt", ".css", ".html", ".js", ".svg", ".cff", ""}
PAPERS = {"Mukhoti": 2020, "Charoenphakdee": 2021, "Ghosh": 2022, "Komisarenko": 2024}


# ---------------------------------------------------------------------- the citation


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == fc.__version__ == citation["version"]


def test_the_citation_agrees_with_the_project_and_has_the_four_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type"} <= set(citation)
    assert citation["title"] == PROJECT["name"]
    assert citation["abstract"] == PROJECT["description"]
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert {paper["authors"][0]["family-names"]: paper["year"] for paper in citation["references"]} == PAPERS


def test_the_citation_has_the_authors_and_titles_of_the_references():
    lines = [line for line in (ROOT / "docs/references.md").read_text().splitlines() if line.startswith("|")]
    for paper in yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]:
        key = f"{paper['authors'][0]['family-names'].lower()}{paper['year']}"
        (line,) = [line for line in lines if line.startswith(f'| <a id="{key}"></a>{key} |')]
        assert paper["title"] in line
        named = [author.split()[-1] for author in line.split("|")[2].split(paper["title"])[0].rstrip(", ").split(", ")]
        assert [author["family-names"] for author in paper["authors"]] == named


# ---------------------------------------------------------------------- what is built


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, made from the sdist as an installer would, and the sdist."""
    pytest.importorskip("build", reason="`build` makes the wheel; it is in the extra dev")
    pytest.importorskip("hatchling", reason="`hatchling` makes the wheel; it is in the extra dev")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def source_files() -> set[str]:
    """All files of the package, but what Python leaves behind."""
    source = ROOT / "src"
    files = (path for path in (source / "focalcal").rglob("*") if path.is_file())
    return {str(path.relative_to(source)) for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_the_wheel_has_the_whole_package_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == source_files()
    assert {Path(name).suffix for name in names} >= {".py", ".csv", ".json", ".yaml", ".css", ".html", ".js", ".typed"}
    assert "focalcal/py.typed" in names
    assert built[0].stat().st_size < 8 << 20


@pytest.mark.slow
def test_the_wheel_says_what_the_project_says(built):
    with zipfile.ZipFile(built[0]) as wheel:
        (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
        found = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
        assert f"{info}/licenses/LICENSE" in wheel.namelist()
        assert "focalcal = focalcal.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert (found["Name"], found["Version"]) == ("focalcal", PROJECT["version"])
    assert found["Requires-Python"] == ">=3.10"
    assert found["License-Expression"] == "Apache-2.0"
    assert set(found.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    always = [line for line in found.get_all("Requires-Dist") if "extra ==" not in line]
    assert len(always) == len(PROJECT["dependencies"])


@pytest.mark.slow
def test_the_sdist_has_what_the_tests_need(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {f"src/{name}" for name in source_files()} <= names
    for folder in ("tests", "docs", "benchmarks", "examples"):
        files = {path for path in (ROOT / folder).rglob("*") if path.is_file()}
        expected = {str(path.relative_to(ROOT)) for path in files if path.suffix in {".py", ".md", ".json", ".csv"}}
        assert {name for name in expected if "__pycache__" not in name} <= names
    assert {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "constraints.txt"} <= names
    assert not [name for name in names if name.startswith((".venv", "dist", ".ci"))]


@pytest.mark.slow
def test_no_file_of_a_release_names_a_folder_of_this_machine(built):
    wheel, sdist = built
    found = []
    with zipfile.ZipFile(wheel) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    with tarfile.open(sdist) as file:
        contents |= {member.name: file.extractfile(member).read() for member in file.getmembers() if member.isfile()}
    here = str(ROOT).encode() + b"/"
    for name, content in contents.items():
        if name.endswith("tests/test_packaging.py"):
            continue  # it has the patterns
        if here in content or (Path(name).suffix in TEXT and MACHINE.search(content)):
            match = MACHINE.search(content)
            found.append(f"{name}: {match.group().decode() if match else here}")
    assert not found


# ---------------------------------------------------------------------- what is installed


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The python of an environment that has the wheel, and finds all else in this one."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*command, str(built[0])], capture_output=True, text=True, env=clean())
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    # The folder named here is searched after this one, and its own .pth files are not read: one of them may lead to an
    # editable focalcal.
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def clean() -> dict[str, str]:
    """The environment without anything that leads to the source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(command: list[object], folder: Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=folder, env=clean())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SMOKE = """
import json, sys, torch, focalcal as fc
loss = fc.FocalLoss(3.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
kinds = {name: type(getattr(fc, name)).__name__ for name in fc.__all__}
homes = sorted({str(module.__file__) for name, module in sys.modules.items() if name.split(".")[0] == "focalcal"})
found = {"loss": float(loss), "names": len(kinds), "homes": homes, "path": sys.path, "version": fc.__version__}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_installed_package_works_and_never_leads_back_to_the_source(installed, tmp_path):
    found = json.loads(run([installed, "-c", SMOKE], tmp_path))
    assert found["loss"] == pytest.approx(float(fc.FocalLoss(3.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))))
    assert found["names"] == len(fc.__all__)
    assert found["version"] == PROJECT["version"]
    assert len(found["homes"]) > 50
    assert all(home.startswith(str(installed.parents[1])) for home in found["homes"])
    assert not [path for path in found["path"] if path.startswith(str(ROOT / "src"))]


@pytest.mark.slow
def test_the_installed_command_line_goes_from_a_file_to_calibrated_probabilities(installed, tmp_path):
    command = installed.with_name("focalcal")
    generator = np.random.default_rng(0)
    logits = 3 * generator.normal(size=(400, 5)).astype(np.float32)
    labels = (logits / 2 + generator.gumbel(size=logits.shape)).argmax(1)
    np.savez(tmp_path / "test.npz", logits=logits, labels=labels)
    assert "evaluate" in run([command, "--help"], tmp_path)
    found = json.loads(run([command, "evaluate", "test.npz", "--json"], tmp_path))
    assert fc.evaluate(logits, labels).ece == pytest.approx(found["before"]["measures"]["ece"]["value"])
    assert "mukhoti2020.eq2" in run([command, "claims", "mukhoti2020.eq2"], tmp_path)
    run([command, "calibrate", "--fit", "test.npz", "--method", "temperature", "--out", "calibrator.json"], tmp_path)
    run([command, "apply", "calibrator.json", "test.npz", "--out", "calibrated.npz"], tmp_path)
    expected = fc.TemperatureScaling().fit(logits, labels).predict_probs(logits)
    with np.load(tmp_path / "calibrated.npz") as file:
        assert np.allclose(file["probs"], expected, atol=1e-6)


# ---------------------------------------------------------------------- types, seen from outside

TYPING = ROOT / "tests" / "typing"


def test_the_typed_program_uses_every_public_name():
    tree = ast.parse((TYPING / "user.py").read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fc"
    }
    assert set(fc.__all__) <= used


def expected_errors() -> set[int]:
    """The lines of the wrong program that say so."""
    lines = (TYPING / "wrong.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def mypy_cache(folder: Path) -> Path:
    """A copy of what mypy knows of torch and the others from `make check`, which saves minutes; else empty."""
    cache = folder / "cache"
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", cache)
    return cache


@pytest.mark.slow
def test_mypy_finds_the_types_of_the_wheel_and_the_errors_of_a_wrong_program(installed, tmp_path):
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--python-executable",
        str(installed),
        "--cache-dir",
        str(mypy_cache(tmp_path)),
    ]
    command += ["--config-file", str(ROOT / "pyproject.toml"), str(TYPING / "user.py"), str(TYPING / "wrong.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean())
    found = re.findall(r"^(\S+?)(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert [each for each in found if each[1] != "wrong.py"] == [], done.stdout + done.stderr
    assert {int(line) for _, _, line, _ in found} == expected_errors(), done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_finds_the_types_of_the_wheel_and_the_errors_of_a_wrong_program(installed, tmp_path):
    pytest.importorskip("basedpyright", reason="basedpyright is in the extra dev, and ships its own node")
    settings = {"typeCheckingMode": "standard", "include": [str(TYPING)], "pythonVersion": "3.10"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", str(installed)]
    done = subprocess.run([*command, "--project", str(tmp_path)], capture_output=True, text=True, env=clean())
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    other = [each for each in found if Path(each["file"]).name != "wrong.py"]
    assert other == []
    assert {each["range"]["start"]["line"] + 1 for each in found} == expected_errors(), found
