"""Where docs/comparison.md says that another library gives another number, it does; skipped where it is not there."""

from __future__ import annotations

import math
import warnings
from importlib.metadata import PackageNotFoundError, files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch

import focalcal as fc

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "comparison.md").read_text()


def printed(library: str, words: str) -> tuple[str, str]:
    """Their number and ours in the row of the page that begins with the library and has these words."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {library} |") and words in line]
    theirs, ours = row.strip("| ").split(" | ")[-2:]
    return theirs, ours


def shown(value: float, as_printed: str) -> str:
    """A number with the digits of the page."""
    return f"{value:.{len(as_printed.partition('.')[2])}f}"


def torchmetrics_ece(scores, labels, num_bins):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    return float(functional.multiclass_calibration_error(scores, labels, num_classes=2, n_bins=num_bins))


def million() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    confidence = 0.9 + 0.05 * torch.rand(1_000_000, generator=generator)
    labels = (torch.rand(1_000_000, generator=generator) > confidence).long()
    return torch.stack([confidence, 1 - confidence], 1), labels


CASES = {
    "1.0 has a bin": (torch.tensor([[1.0, 0.0], [0.95, 0.05]], dtype=torch.float64), torch.tensor([1, 0]), 15, "probs"),
    "taken for probabilities": (torch.tensor([[0.9, 0.1], [0.8, 0.3]]), torch.tensor([0, 0]), 15, "logits"),
}


@pytest.mark.parametrize("words", CASES)
def test_torchmetrics_gives_another_ece(words):
    scores, labels, num_bins, kind = CASES[words]
    theirs, ours = printed("torchmetrics", words)
    assert shown(torchmetrics_ece(scores, labels, num_bins), theirs) == theirs
    assert shown(fc.metrics.ece(scores, labels, kind=kind, num_bins=num_bins), ours) == ours


def test_torchmetrics_drifts_over_a_million_rows():
    probs, labels = million()
    theirs, ours = printed("torchmetrics", "a million rows")
    exact = abs(float(probs[:, 0].double().mean()) - float((labels == 0).double().mean()))
    assert fc.metrics.ece(probs, labels, kind="probs", num_bins=1) == pytest.approx(exact, abs=1e-9)
    assert shown(exact, ours) == ours
    assert torchmetrics_ece(probs, labels, 1) == pytest.approx(float(theirs), rel=0.2)  # by the order of the sums


def too_sharp() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(3000, 5, generator=generator)
    noise = torch.empty_like(logits).exponential_(generator=generator).log_()
    return logits, (logits / 2 - noise).argmax(1)


def test_netcal_returns_its_start_from_float32_and_the_inverse_from_float64():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaling = pytest.importorskip(
            "netcal.scaling", reason="netcal is not installed; `make bench` installs the peers"
        )
        logits, labels = too_sharp()
        found = [
            float(
                scaling.TemperatureScaling()
                .fit(torch.softmax(logits.to(dtype), 1).numpy(), labels.numpy())
                .temperature[0]
            )
            for dtype in (torch.float32, torch.float64)
        ]
    exact = fc.TemperatureScaling().fit(logits, labels).temperature_
    assert found[0] == 1
    assert found[1] == pytest.approx(1 / exact, rel=1e-3)
    for value, words in zip(found, ("from float32", "from float64"), strict=True):
        theirs, ours = printed("netcal", words)
        assert (shown(value, theirs), shown(exact, ours)) == (theirs, ours)


@pytest.fixture(scope="module")
def torch_uncertainty_losses():
    """The one file of its losses: the package itself cannot be imported without torchvision."""
    try:
        paths = files("torch-uncertainty") or []
    except PackageNotFoundError:
        pytest.skip("torch-uncertainty is not installed; see benchmarks/README.md")
    (path,) = [path for path in paths if str(path).endswith("losses/classification.py")]
    spec = spec_from_file_location("torch_uncertainty_losses", str(path.locate()))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_torch_uncertainty_has_no_gradient_where_a_network_is_sure(torch_uncertainty_losses):
    gradients = []
    for loss in (torch_uncertainty_losses.FocalLoss(0.5), fc.FocalLoss(0.5)):
        logits = torch.tensor([[100.0, 0.0]], requires_grad=True)
        loss(logits, torch.tensor([0])).backward()
        gradients.append(logits.grad)
    assert math.isnan(gradients[0][0, 0])
    assert np.all(gradients[1].numpy() == 0)


def test_torch_uncertainty_divides_by_rows_where_torch_divides_by_weights(torch_uncertainty_losses):
    generator = torch.Generator().manual_seed(0)
    logits, weight = torch.randn(64, 10, generator=generator), 0.1 + torch.rand(10, generator=generator)
    labels = torch.randint(0, 10, (64,), generator=generator)
    torch_loss = torch.nn.functional.cross_entropy(logits, labels, weight=weight)
    theirs, ours = printed("torch-uncertainty", "with class weights")
    assert float(fc.FocalLoss(0.0, weight=weight)(logits, labels)) == pytest.approx(float(torch_loss), rel=1e-6)
    assert shown(float(torch_loss), ours) == ours
    assert shown(float(torch_uncertainty_losses.FocalLoss(0.0, alpha=weight)(logits, labels)), theirs) == theirs
