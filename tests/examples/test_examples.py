"""Every example runs, as a user would run it but shorter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("every", "updates"), [(None, 2), (4, 4)])
def test_the_adafocal_loop_updates_as_often_as_it_says(every, updates, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = load("adafocal_loop")
    monkeypatch.setattr(example, "UPDATE_EVERY", every)
    loss = example.main(epochs=2)
    assert loss.history["gamma"].shape == (updates, 15)
    assert "epoch  1" in capsys.readouterr().out
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert torch.equal(saved["loss"]["gamma"], loss.gamma)


def test_calibrated_scikit_learn_models_have_better_probabilities(capsys):
    found = load("calibrated_sklearn").main(num_trees=20)
    assert set(found) == {"RandomForestClassifier", "GaussianNB"}
    assert all(after < before / 2 for before, after in found.values())
    assert "best for GaussianNB: " in capsys.readouterr().out


# Lightning's advice for a tiny run on a CPU, and torch's of Lightning's own calls
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
def test_adafocal_in_a_lightning_module_updates_every_epoch(capsys):
    loss = load("lightning_adafocal").main(epochs=2)
    assert loss.history["gamma"].shape == (2, 15)
    assert "ECE on test images" in capsys.readouterr().out


def test_no_example_is_left_out():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "adafocal_loop",
        "calibrated_sklearn",
        "ddp_adafocal",
        "language_model",
        "lightning_adafocal",
    }
