"""The public surface: what the contract names is there and in the guides; the folders keep their order."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import focalcal as fc
from tests.imports import imports, package_of

ROOT = Path(__file__).resolve().parents[1]
LIBRARY, LAB, REPRODUCTION = ROOT / "src", ROOT / "lab/src", ROOT / "reproduction"

# The names of version 0.1.0.dev0 under `fc.`; they stay.
CONTRACT = """
    AdaFocalLoss BayesianBinning BetaCalibration BinaryFocalLoss BrierLoss CalFocalLoss Calibrator Compose
    DirichletCalibration EnsembleTemperatureScaling Evaluation FileFormatError FitReport FocalCalError
    FocalCalibration FocalLoss FocalTemperatureScaling HistogramBinning Identity InputError InputWarning
    IsotonicCalibration LabelSmoothingLoss LinearFocalLoss MMCELoss MatrixScaling MissingExtraError
    NotFittedError PlattScaling ScheduledGamma Selection SplineCalibration StepGamma TemperatureScaling
    VectorScaling bootstrap brier_loss calibrators compare confidence_thresholds evaluate focal_loss focal_map
    focal_map_inverse focal_minimizer gamma_star gradient_ratio load_calibrator metrics nearest_temperature
    optimal_temperature plots proper_focal_loss select_calibrator sigmoid_focal_loss suggest_gamma
    temperature_bounds
""".split()  # noqa: SIM905
METRICS = """
    ece ada_ece mce classwise_ece ece_debiased ece_sweep smooth_ece ks_error mmce nll brier brier_decomposition accuracy
    error top_k_accuracy entropy s99 aurc auroc_correctness ood_auroc fpr95 kl_to_posterior
""".split()  # noqa: SIM905


# That every public name has a docstring, an example and its page: tests/docs/test_reference.py.
def test_the_names_of_the_contract_are_public():
    assert set(fc.__all__) >= set(CONTRACT)
    assert set(dir(fc)) >= {*CONTRACT, "__version__"}
    assert all(getattr(fc, name) is not None for name in fc.__all__)
    assert set(fc.metrics.__all__) >= set(METRICS)


def test_unknown_and_moved_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="has no attribute 'FocalLos'"):
        fc.FocalLos  # noqa: B018
    with pytest.raises(AttributeError, match=r"focalcal_lab\.papers.*pip install focalcal-lab"):
        fc.papers  # noqa: B018


def code_words(page: str) -> set[str]:
    """Every name that stands alone or at the start of a code span of a guide, and every `plots.name` in its code."""
    text = (ROOT / "docs" / page).read_text()
    return set(re.findall(r"`(\w+)[`(]", text)) | set(re.findall(r"\bplots\.(\w+)\(", text))


def test_every_figure_is_in_its_guide():
    functions = {name for name in fc.plots.__all__ if callable(getattr(fc.plots, name)) and name.islower()}
    assert sorted(functions - code_words("plots.md")) == []


LOADED = """
import sys, torch, numpy
before = set(sys.modules)
import focalcal; focalcal.FocalLoss; focalcal.metrics.ece; focalcal.TemperatureScaling
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""


def test_importing_focalcal_brings_in_torch_and_numpy_only():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"torch", "numpy"} <= {"focalcal", "lazy_loader"}


# ---------------------------------------------------------------------- who may import whom

# Each folder imports only from those before it; those in one line do not import one another.
ORDER = """
    errors
    printable
    atomic
    threads
    machine
    drawing
    core
    _kernels
    kernels
    versions
    predictions
    losses metrics calibrators
    select
    networks
    files
    report
    integrations
    noisy_digits
    demo
    cli
    __main__
"""
PLACES = {name: place for place, line in enumerate(ORDER.strip().splitlines()) for name in line.split()}


def sources(folder: Path) -> list[Path]:
    return sorted(path for pattern in ("*.py", "*.pyi") for path in folder.rglob(pattern))


def imported_by(path: Path, source: Path) -> set[str]:
    return imports(path.read_text(encoding="utf-8"), package=package_of(path, source), root="focalcal")


def folders_imported_by(path: Path) -> Iterator[str]:
    for name in imported_by(path, LIBRARY):
        top, _, rest = name.partition(".")
        if top == "focalcal" and not rest.startswith("__version__"):
            first = rest.split(".")[0]
            # `from focalcal import FocalLoss` is an import from the folder that has it
            yield first if first in PLACES else getattr(fc, first).__module__.split(".")[1]


def test_folders_import_only_from_those_before_them():
    wrong, seen = [], 0
    for path in sources(LIBRARY / "focalcal"):
        inside = path.relative_to(LIBRARY / "focalcal")
        here = inside.parts[0].removesuffix(".py")
        if here in ("__init__", "__init__.pyi"):
            continue
        for folder in folders_imported_by(path):
            seen += 1
            if folder != here and not PLACES[folder] < PLACES[here]:
                wrong.append(f"{inside} imports {folder}")
    assert not wrong, "\n".join(sorted(wrong))
    assert seen > 300  # the reader of imports has not gone blind


FORBIDDEN = {
    LIBRARY: {"focalcal_lab", "reproduction", "tests", "benchmarks", "lab"},
    LAB: {"reproduction", "tests", "benchmarks", "lab"},
    REPRODUCTION: {"tests", "lab"},
}


@pytest.mark.parametrize("room", FORBIDDEN, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_no_room_imports_from_the_next(room):
    files = [path for path in sources(room) if not path.is_relative_to(REPRODUCTION / "tests")]
    source = ROOT if room == REPRODUCTION else room
    wrong = {
        str(path.relative_to(room)): found
        for path in files
        if (found := {name for name in imported_by(path, source) if name.split(".")[0] in FORBIDDEN[room]})
    }
    assert len(files) > 20
    assert not wrong, wrong


@pytest.mark.parametrize("room", [LIBRARY, LAB], ids=["library", "lab"])
def test_shipped_files_name_no_path_of_the_repository_and_no_page(room):
    path_of_the_repository = re.compile(
        r"\b(?:tests|docs|reproduction|benchmarks|examples)/|\b\w+\.md\b|\btest_\w+\.py"
    )
    found = [
        f"{path.relative_to(room)}:{number}: {line.strip()[:100]}"
        for path in sorted(room.rglob("*"))
        if path.suffix in {".py", ".pyi", ".yaml", ".csv", ".json", ".html", ".js", ".css", ".md"}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if path_of_the_repository.search(line)
    ]
    assert not found, "\n".join(found)


def test_a_class_name_stands_for_one_thing():
    homes = defaultdict(list)
    for room in (LIBRARY, LAB, REPRODUCTION):
        for path in sources(room):
            if path.suffix == ".py" and "tests" not in path.relative_to(room).parts:
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.ClassDef):
                        homes[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    shared = [f"{name}: {', '.join(paths)}" for name, paths in sorted(homes.items()) if len(paths) > 1]
    assert not shared, "\n".join(shared)


def test_every_source_key_is_in_the_references():
    page = (ROOT / "docs/references.md").read_text()
    known = set(re.findall(r'^\| <a id="(\w+\d{4})"></a>\1 \|', page, re.MULTILINE))
    texts = [path.read_text() for room in (LIBRARY, LAB) for path in sources(room)]
    cited = {key for text in texts for key in re.findall(r"\[([a-z]+\d{4})[,\]]", text)}
    assert len(cited) > 10
    assert cited <= known
