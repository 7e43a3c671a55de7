"""The public surface: what the contract names is there and in the guides; the folders keep their order."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import focalcal as fc

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = {
    "FocalLoss",
    "focal_loss",
    "AdaFocalLoss",
    "CalFocalLoss",
    "BrierLoss",
    "LabelSmoothingLoss",
    "MMCELoss",
    "LinearFocalLoss",
    "sigmoid_focal_loss",
    "BinaryFocalLoss",
    "gradient_ratio",
    "gamma_star",
    "confidence_thresholds",
    "focal_map",
    "focal_map_inverse",
    "focal_minimizer",
    "proper_focal_loss",
    "nearest_temperature",
    "temperature_bounds",
    "suggest_gamma",
    "InputError",
    "metrics",
    "evaluate",
    "bootstrap",
    "compare",
    "plots",
    "select_calibrator",
    "load_calibrator",
}
METRICS = {
    "ece",
    "ada_ece",
    "mce",
    "classwise_ece",
    "ece_debiased",
    "ece_sweep",
    "smooth_ece",
    "ks_error",
    "mmce",
    "nll",
    "brier",
    "brier_decomposition",
    "accuracy",
    "error",
    "top_k_accuracy",
    "entropy",
    "s99",
    "aurc",
    "auroc_correctness",
    "ood_auroc",
    "fpr95",
    "kl_to_posterior",
}


def test_the_names_of_the_contract_are_public():
    assert set(fc.__all__) >= CONTRACT
    assert all(name in dir(fc) for name in CONTRACT)
    assert set(fc.metrics.__all__) >= METRICS


# That every public name has a docstring, an example and its page: tests/docs/test_reference.py.
@pytest.mark.parametrize("name", fc.metrics.__all__)
def test_every_measure_is_in_the_guide(name):
    assert f"`{name}" in (ROOT / "docs/metrics.md").read_text()


@pytest.mark.parametrize("name", fc.plots.__all__)
def test_every_figure_is_in_the_guide(name):
    text = (ROOT / "docs/plots.md").read_text()
    assert f"`{name}" in text or f"plots.{name}(" in text


@pytest.mark.parametrize("name", [name for name in fc.__all__ if not name.endswith("Error")])
def test_every_public_name_is_in_the_readme_or_the_changelog(name):
    text = (ROOT / "README.md").read_text() + (ROOT / "CHANGELOG.md").read_text()
    assert name in text


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'FocalLos'"):
        fc.FocalLos  # noqa: B018


def test_importing_focalcal_its_losses_and_metrics_brings_in_torch_and_numpy_only():
    use = "import sys, focalcal; focalcal.FocalLoss; focalcal.metrics.ece"
    code = f"{use}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "numpy"} <= set(loaded)
    assert not {"scipy", "sklearn", "matplotlib", "pandas", "typer", "rich", "lightning"} & set(loaded)


# Each folder may import from those to its left; losses, metrics and calibrators do not import one another.
ORDER = [
    "errors",
    "core",
    "losses",
    "metrics",
    "calibrators",
    "select",
    "streams",
    "report",
    "integrations",
    "papers",
    "lab",
    "figures",
    "cli",
]
APART = {"losses", "metrics", "calibrators"}


@pytest.mark.parametrize("path", sorted((ROOT / "src/focalcal").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_folders_import_only_from_those_above_them(path):
    here = path.relative_to(ROOT / "src/focalcal").parts[0].removesuffix(".py")
    if here in ("__init__", "__main__"):
        return
    imported = {
        node.module.split(".")[1]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("focalcal.")
    }
    assert all(ORDER.index(name) <= ORDER.index(here) for name in imported)
    assert here not in APART or not (imported & APART) - {here}


def test_every_source_key_is_in_the_references():
    known = set(
        re.findall(r'^\| <a id="(\w+\d{4})"></a>\1 \|', (ROOT / "docs/references.md").read_text(), re.MULTILINE)
    )
    for path in (ROOT / "src").rglob("*.py"):
        cited = set(re.findall(r"\[([a-z]+\d{4})[,\]]", path.read_text()))
        assert cited <= known, path
