"""A network and its calibrator in one ONNX file, read by onnxruntime; calibrators alone are in tests/calibrators."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

import focalcal as fc
from focalcal.calibrators import export
from focalcal.errors import FocalCalError, MissingExtraError, NotFittedError
from focalcal.integrations import onnx as integration
from focalcal.integrations.onnx import OPSET, export_onnx

pytestmark = pytest.mark.slow

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def make_network():
    """With parts that compute otherwise in training."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 6 * 6, 5)
    )
    network(torch.randn(20, 1, 8, 8))  # statistics that are not the initial ones
    return network


NETWORK = make_network()
IMAGES = torch.randn(200, 1, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(200) % 5


def logits_of(images):
    with torch.no_grad():
        return make_network().eval()(images)


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("calibrator", "rows"),
    [(fc.TemperatureScaling(), 1), (fc.Compose(fc.FocalCalibration(2.0), fc.VectorScaling()), 3)],
)
def test_one_file_goes_from_inputs_to_calibrated_probabilities(calibrator, rows, tmp_path):
    network, path = make_network(), tmp_path / "classifier.onnx"
    network[4].eval()
    calibrator.fit(logits_of(IMAGES), LABELS)
    export_onnx(network, calibrator, path, IMAGES[:rows])
    assert network.training
    assert not network[4].training
    assert list(tmp_path.iterdir()) == [path]  # one file: no weights beside it
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {entry.domain or "ai.onnx": entry.version for entry in model.opset_import} == {"ai.onnx": OPSET}
    run = session(path)
    assert [each.name for each in run.get_inputs()] == ["inputs"]
    for number in (1, 2, 77):  # any number of rows
        images = IMAGES[-number:]
        probs, logits = run.run(["probs", "logits"], {"inputs": images.numpy()})
        np.testing.assert_allclose(logits, logits_of(images), atol=1e-5)
        np.testing.assert_allclose(probs, calibrator.predict_probs(logits_of(images)), atol=1e-6)
        np.testing.assert_allclose(probs.sum(1), 1, atol=1e-6)


def test_what_was_not_fitted_or_does_not_fit_is_refused(tmp_path):
    path = tmp_path / "classifier.onnx"
    with pytest.raises(NotFittedError):
        export_onnx(NETWORK, fc.TemperatureScaling(), path, IMAGES[:2])
    scaling = fc.VectorScaling().fit(logits_of(IMAGES)[:, :4], LABELS % 4)
    with pytest.raises(fc.InputError, match="fitted to 4 classes"):
        export_onnx(NETWORK, scaling, path, IMAGES[:2])
    with pytest.raises(
        fc.InputError, match=r"network: must map 2 rows of inputs to logits \(2, K\); got \(2, 4, 6, 6\)"
    ):
        export_onnx(NETWORK[0], fc.FocalCalibration(1.0), path, IMAGES[:2])
    with pytest.raises(fc.InputError, match="example: must have at least one row"):
        export_onnx(NETWORK, fc.FocalCalibration(1.0), path, IMAGES[:0])
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_differs_is_not_written(tmp_path, monkeypatch):
    path = tmp_path / "classifier.onnx"
    path.write_text("as it was")
    translate, other = export._translate, integration._ProbsAndLogits(NETWORK, fc.FocalCalibration(5.0))
    monkeypatch.setattr(export, "_translate", lambda onnx, _, *rest: translate(onnx, other, *rest))
    with pytest.raises(
        FocalCalError, match=r"onnxruntime differs from torch by .* more than 1e-05; nothing was written"
    ):
        export_onnx(NETWORK, fc.FocalCalibration(1.0), path, IMAGES[:2])
    assert path.read_text() == "as it was"


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'focalcal\[onnx\]'"):
        export_onnx(NETWORK, fc.FocalCalibration(1.0), tmp_path / "classifier.onnx", IMAGES[:2])
