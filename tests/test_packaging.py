"""What is built and installed: contents, metadata, and what a user can do with the wheels, away from the source tree.

The environments with the wheels are made by tests/conftest.py.
"""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import focalcal as fc
from tests.test_public import LOADED

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
PROJECT, LAB = (
    tomllib.loads((ROOT / name).read_text())["project"] for name in ("pyproject.toml", "lab/pyproject.toml")
)
# Folders of one machine, which no file of a release may name.
MACHINE = re.compile(rb"/(?:home|Users|root|work|opt|mnt)/[a-z0-9_.-]+/|/tmp/[a-z]/|[A-Z]:\\\\Users")
TEXT = {".py", ".md", ".json", ".csv", ".yaml", ".toml", ".txt", ".css", ".html", ".js", ".svg", ".cff", ""}
PAPERS = {"Mukhoti": 2020, "Charoenphakdee": 2021, "Ghosh": 2022, "Komisarenko": 2024}


# ---------------------------------------------------------------------- the citation


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == LAB["version"] == fc.__version__ == citation["version"]
    (library,) = [each for each in LAB["dependencies"] if each.startswith("focalcal")]
    assert library.endswith(f"=={PROJECT['version']}")


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

installed = pytest.mark.xdist_group("installed")  # one worker builds the wheels, once


def files_of(source: Path) -> set[str]:
    """All files of a package, but what Python leaves behind."""
    files = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(source.parent).as_posix() for path in files}


def names_in(wheel: Path) -> set[str]:
    """The files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
@installed
def test_the_wheels_have_their_packages_and_nothing_else(wheels):
    assert names_in(wheels.lab) == files_of(ROOT / "lab/src/focalcal_lab")
    sources = {name for name in files_of(ROOT / "src/focalcal") if not name.startswith("focalcal/kernels/cpp/")}
    (kernels,) = names_in(wheels.library) - sources
    assert re.fullmatch(r"focalcal/_kernels(\.[\w-]+)?\.(so|pyd)", kernels)
    with zipfile.ZipFile(wheels.library) as file:
        sizes = {name: file.getinfo(name).compress_size for name in file.namelist()}
    assert sum(sizes.values()) - sizes[kernels] < 700_000  # what is not compiled, in bytes


@pytest.mark.slow
@installed
def test_the_wheel_is_for_one_python_or_by_the_stable_abi_for_all_later_ones(wheels):
    python, abi, machine = wheels.library.stem.split("-")[2:]
    this = f"cp3{sys.version_info.minor}"
    assert (python, abi) == ((this, this) if sys.version_info < (3, 12) else ("cp312", "abi3"))
    assert machine != "any"


@pytest.mark.slow
@installed
def test_the_library_ships_no_result_files(wheels):
    """Tables, recorded runs and published numbers belong to the lab and the evidence."""
    names = names_in(wheels.library)
    assert {Path(name).suffix for name in names} - {".so", ".pyd"} == {".py", ".pyi", ".typed", ".html", ".css", ".js"}
    assert "focalcal/py.typed" in names


@pytest.mark.slow
@installed
def test_the_wheels_say_what_the_projects_say(wheels):
    for path, project in ((wheels.library, PROJECT), (wheels.lab, LAB)):
        with zipfile.ZipFile(path) as wheel:
            (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
            found = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
            entry_points = wheel.read(f"{info}/entry_points.txt").decode()
        assert (found["Name"], found["Version"]) == (project["name"], project["version"])
        assert found["Requires-Python"] == ">=3.10"
        assert found["License-Expression"] == "Apache-2.0"
        assert set(found.get_all("Provides-Extra") or []) == set(project.get("optional-dependencies", ()))
        always = [line for line in found.get_all("Requires-Dist") if "extra ==" not in line]
        assert len(always) == len(project["dependencies"])
        assert ("focalcal = focalcal.cli:main" in entry_points) == (project is PROJECT)
        assert ("[focalcal.commands]" in entry_points) == (project is LAB)


@pytest.mark.slow
@installed
def test_the_library_installs_with_the_dependencies_of_the_design(wheels):
    names = {re.split(r"[<>=\[ ]", each)[0] for each in PROJECT["dependencies"]}
    assert names == {
        "torch", "numpy", "scipy", "scikit-learn", "safetensors", "pydantic", "typer", "rich", "lazy-loader",
        "threadpoolctl",  # a dependency of scikit-learn anyway
        "narwhals",
    }  # fmt: skip


@pytest.mark.slow
@installed
def test_the_sdist_has_what_the_tests_need(wheels):
    with tarfile.open(wheels.sdist) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {f"src/{name}" for name in files_of(ROOT / "src/focalcal")} <= names
    for folder in ("tests", "lab", "reproduction", "docs", "benchmarks", "examples"):
        files = {path for path in (ROOT / folder).rglob("*") if path.is_file()}
        expected = {str(path.relative_to(ROOT)) for path in files if path.suffix in {".py", ".md", ".json", ".csv"}}
        assert {name for name in expected if "__pycache__" not in name} <= names
    assert {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "constraints.txt"} <= names
    assert {"conftest.py", "lab/pyproject.toml", "CMakeLists.txt", "src/focalcal/kernels/cpp/module.cpp"} <= names
    assert not [name for name in names if name.startswith((".venv", "dist", ".ci"))]


@pytest.mark.slow
@installed
def test_no_file_of_a_release_names_a_folder_of_this_machine(wheels):
    found, contents = [], {}
    for wheel in (wheels.library, wheels.lab):
        with zipfile.ZipFile(wheel) as file:
            contents |= {name: file.read(name) for name in file.namelist()}
    with tarfile.open(wheels.sdist) as file:
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


def without_python_variables() -> dict[str, str]:
    """The environment without anything that leads to the source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command: object, folder: Path, code: int = 0) -> str:
    """What a process prints, with standard error where it should fail."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=folder, env=without_python_variables()
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr if code else done.stdout


SMOKE = """
import json, sys, torch, focalcal as fc
loss = fc.FocalLoss(3.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
kinds = {name: type(getattr(fc, name)).__name__ for name in fc.__all__}
homes = sorted({str(module.__file__) for name, module in sys.modules.items() if name.split(".")[0] == "focalcal"})
found = {"loss": float(loss), "names": len(kinds), "homes": homes, "path": sys.path, "version": fc.__version__}
print(json.dumps(found))
"""


@pytest.mark.slow
@installed
def test_the_library_works_and_never_leads_back_to_the_source(library_alone, tmp_path):
    found = json.loads(run(library_alone, "-c", SMOKE, folder=tmp_path))
    assert found["loss"] == pytest.approx(float(fc.FocalLoss(3.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))))
    assert found["names"] == len(fc.__all__)
    assert found["version"] == PROJECT["version"]
    assert len(found["homes"]) > 50
    assert all(home.startswith(str(library_alone.parents[1])) for home in found["homes"])
    assert not [path for path in found["path"] if path.startswith(str(ROOT))]


@pytest.mark.slow
@installed
def test_importing_the_library_loads_torch_and_numpy_only(library_alone, tmp_path):
    found = set(run(library_alone, "-c", LOADED, folder=tmp_path).split())
    assert found - {"torch", "numpy"} == {"focalcal", "lazy_loader"}


# The command with few resamples: whether it runs does not depend on their number.
DEMO = """
import sys
import focalcal.demo
from focalcal import cli
from focalcal.report import measure_version
focalcal.demo._NUM_RESAMPLES, measure_version._CHANCE_DRAWS = 10, 100
sys.argv = ["focalcal", "demo", "--epochs", "1", "--quiet"]
cli.main()
"""


@pytest.mark.slow
@installed
def test_the_demo_runs_with_the_library_alone(library_alone, tmp_path):
    run(library_alone, "-c", DEMO, folder=tmp_path)
    assert (tmp_path / "focalcal-demo" / "cross-entropy.npz").exists()


@pytest.mark.slow
@installed
@pytest.mark.parametrize("command", ["lab list", "claims"])
def test_commands_of_the_lab_name_what_to_install(command, library_alone, tmp_path):
    said = run(library_alone.with_name("focalcal"), *command.split(), folder=tmp_path, code=1)
    assert "pip install focalcal-lab" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.slow
@installed
def test_commands_of_the_lab_work_with_both_wheels(library_and_lab, tmp_path):
    command = library_and_lab.with_name("focalcal")
    assert "cpu/digits" in run(command, "lab", "list", folder=tmp_path)
    assert "mukhoti2020.eq2" in run(command, "claims", "mukhoti2020.eq2", folder=tmp_path)


@pytest.mark.slow
@installed
def test_the_command_line_goes_from_a_file_to_calibrated_probabilities(library_alone, tmp_path):
    command = library_alone.with_name("focalcal")
    generator = np.random.default_rng(0)
    logits = 3 * generator.normal(size=(400, 5)).astype(np.float32)
    labels = (logits / 2 + generator.gumbel(size=logits.shape)).argmax(1)
    np.savez(tmp_path / "test.npz", logits=logits, labels=labels)
    found = json.loads(run(command, "evaluate", "test.npz", "--json", folder=tmp_path))
    assert fc.evaluate(logits, labels).ece == pytest.approx(found["before"]["measures"]["ece"]["value"])
    options = ("--method", "temperature", "--out", "calibrator.json")
    run(command, "calibrate", "--fit", "test.npz", *options, folder=tmp_path)
    run(command, "apply", "calibrator.json", "test.npz", "--out", "calibrated.npz", folder=tmp_path)
    expected = fc.TemperatureScaling().fit(logits, labels).predict_probs(logits)
    with np.load(tmp_path / "calibrated.npz") as file:
        assert np.allclose(file["probs"], expected, atol=1e-6)


@pytest.mark.slow
@installed
def test_the_wheel_brings_compiled_kernels(library_alone, tmp_path):
    said = run(library_alone.with_name("focalcal"), "--version", folder=tmp_path)
    assert re.fullmatch(rf"focalcal {fc.__version__}, kernels: compiled \(\w+\)\n", said)


# ---------------------------------------------------------------------- without a compiler

SMALL_WORK = """
import torch, focalcal as fc
logits = torch.tensor([[4.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 5.0]]).repeat(50, 1)
labels = torch.tensor([0, 1, 1, 1]).repeat(50)
loss = fc.FocalLoss(2.0)(logits.requires_grad_(), labels)
loss.backward()
scaling = fc.TemperatureScaling().fit(logits.detach(), labels)
ece = fc.evaluate(logits.detach(), labels).ece
print(float(ece), scaling.temperature_, float(loss), float(logits.grad.abs().sum()))
"""


@pytest.mark.slow
@installed
def test_without_a_compiler_the_package_installs_and_works_by_torch(library_without_compiler, library_alone, tmp_path):
    python = library_without_compiler.python
    assert run(python.with_name("focalcal"), "--version", folder=tmp_path).endswith(", kernels: torch\n")
    found, expected = (
        [float(number) for number in run(each, "-c", SMALL_WORK, folder=tmp_path).split()]
        for each in (python, library_alone)
    )
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@installed
def test_a_build_without_a_compiler_says_so_in_one_line(library_without_compiler):
    """pip hides what a successful build prints: it is seen with `pip install -v`, and by `focalcal --version`."""
    said = [line for line in library_without_compiler.output.splitlines() if "could not be compiled" in line]
    assert {line.strip() for line in said} == {
        "The kernels of focalcal could not be compiled (is there a C++ compiler?). "
        "It works without them, more slowly, by PyTorch alone."
    }


def test_torch_is_no_requirement_of_the_build():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {Requirement(each).name for each in build} == {"scikit-build-core", "nanobind"}


# ---------------------------------------------------------------------- what is promised was tried

OWN_TOOLS = ("test", "dev", "docs", "mutants", "fuzz", "bench")


def test_the_lower_ends_of_all_ranges_are_the_versions_of_check_oldest():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tried = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = [each for name, some in PROJECT["optional-dependencies"].items() if name not in OWN_TOOLS for each in some]
    for text in [*PROJECT["dependencies"], *extras]:
        needed = Requirement(text)
        (lowest,) = [Version(each.version) for each in needed.specifier if each.operator == ">="]
        assert Version(tried[canonicalize_name(needed.name)]) == lowest, text


def test_the_lab_promises_what_the_library_does():
    ranges = {Requirement(text).name: Requirement(text).specifier for text in PROJECT["dependencies"]}
    shared = [Requirement(text) for text in LAB["dependencies"] if Requirement(text).name in ranges]
    assert [str(each) for each in shared if each.specifier != ranges[each.name]] == []
