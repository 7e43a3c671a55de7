"""Calibrators as ONNX models: onnxruntime computes what the module computes."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import focalcal.calibrators as c
from focalcal.calibrators import export
from focalcal.errors import FocalCalError, InputError, MissingExtraError
from tests.calibrators.cases import CASES, close, draw, state_of

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


# An export takes seconds: one of numbers and one of tables, then one of every other method.
FIRST = ("temperature nll", "isotonic")
EXPORTED = [
    pytest.param(case, id=case.id, marks=[] if case.id in FIRST else [pytest.mark.slow])
    for case in {type(case.make()): case for case in reversed(CASES)}.values()
]


@pytest.mark.parametrize("case", EXPORTED)
def test_onnxruntime_computes_what_the_module_computes(case, tmp_path):
    classes = 2 if case.binary else 5
    calibrator = case.make().fit(*draw(240, classes))
    before = state_of(calibrator)
    path = tmp_path / "calibrator.onnx"
    calibrator.train().to_onnx(path)
    assert calibrator.training
    assert state_of(calibrator) == before
    assert list(tmp_path.iterdir()) == [path]  # one file: no weights beside it
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {entry.domain or "ai.onnx": entry.version for entry in model.opset_import} == {"ai.onnx": 18}
    run = session(path)
    (given,), (answer,) = run.get_inputs(), run.get_outputs()
    assert (given.name, given.type, given.shape[1]) == ("logits", "tensor(float)", classes)
    assert (answer.name, answer.type) == ("log_probs", "tensor(float)")
    leading = np.zeros((400, classes))
    leading[:, 1] = np.linspace(-100, 100, 400)  # one class before or behind all others, by every degree
    batches = [scale * draw(rows, classes, seed=9)[0] for rows in (1, 7) for scale in (0.1, 1.0, 10.0, 1e4)]
    for logits in (*batches, leading):
        logits = logits.astype(np.float32)
        (log_probs,) = run.run(None, {"logits": logits})
        assert log_probs.shape == logits.shape
        assert log_probs.dtype == np.float32
        close(np.exp(log_probs), calibrator.predict_probs(logits), 1e-6)


@pytest.mark.slow
def test_a_kept_identity_is_what_is_exported(tmp_path):
    calibrator = c.TemperatureScaling().fit(*draw(240, 3))
    object.__setattr__(calibrator._report, "kept_identity", True)
    calibrator.to_onnx(tmp_path / "identity.onnx")
    logits = draw(7, 3, seed=9)[0].astype(np.float32)
    (log_probs,) = session(tmp_path / "identity.onnx").run(None, {"logits": logits})
    close(log_probs, torch.log_softmax(torch.tensor(logits), 1), 1e-5)


def test_what_was_not_fitted_needs_a_number_of_classes(tmp_path):
    with pytest.raises(InputError, match=r"^num_classes: "):
        c.FocalCalibration(1.0).to_onnx(tmp_path / "focal.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_was_not_fitted_is_exported_for_a_number_of_classes(tmp_path):
    c.FocalCalibration(1.0).to_onnx(tmp_path / "focal.onnx", num_classes=3)
    logits = draw(7, 3, seed=9)[0].astype(np.float32)
    (log_probs,) = session(tmp_path / "focal.onnx").run(None, {"logits": logits})
    close(np.exp(log_probs), c.FocalCalibration(1.0).predict_probs(logits), 1e-6)


@pytest.mark.parametrize("num_classes", [0, 1, -3])
def test_a_number_of_classes_below_two_is_refused(tmp_path, num_classes):
    calibrator = c.TemperatureScaling().fit(*draw(50, 3))
    with pytest.raises(InputError, match="class"):
        calibrator.to_onnx(tmp_path / "calibrator.onnx", num_classes=num_classes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, package):
    calibrator = c.TemperatureScaling().fit(*draw(50, 3))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'focalcal\[onnx\]'"):
        calibrator.to_onnx(tmp_path / "calibrator.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_differs_is_not_written(tmp_path, monkeypatch):
    path = tmp_path / "calibrator.onnx"
    path.write_text("as it was")
    calibrator = c.TemperatureScaling().fit(*draw(50, 3))
    translate = export._translate
    halved = c.TemperatureScaling().fit(2 * draw(50, 3)[0], draw(50, 3)[1])
    monkeypatch.setattr(export, "_translate", lambda onnx, _, *rest: translate(onnx, halved, *rest))
    with pytest.raises(FocalCalError, match="onnxruntime differs"):
        calibrator.to_onnx(path)
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]
