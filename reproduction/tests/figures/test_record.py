"""The files that figures are drawn from: what is kept of a run is what its own files say."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from focalcal.errors import InputError
from focalcal.files import PredictionTable, read_predictions, write_predictions
from focalcal.metrics import ood_auroc
from focalcal_lab.monitor import read_monitor
from reproduction.figures.record import main, record_runs
from reproduction.result_files import read_evidence, write_evidence


@pytest.fixture(scope="module")
def watched(runs, tmp_path_factory):
    """A finished run, with the logits of a foreign set beside it."""
    root = tmp_path_factory.mktemp("figures") / "digits"
    shutil.copytree(runs / "fl-2", root / "fl-2")
    foreign = np.random.default_rng(0).normal(size=(50, 10)).astype(np.float32)
    place = root / "fl-2/seed-0/out_of_distribution"
    place.mkdir()
    write_predictions(PredictionTable(name="noise", scores=foreign, kind="logits", labels=None), place / "noise.npz")
    return root


@pytest.fixture(scope="module")
def kept(watched, tmp_path_factory):
    """As it is read back from the file."""
    path = tmp_path_factory.mktemp("kept") / "digits.json"
    write_evidence(record_runs(watched), path)
    return read_evidence(path)


def test_what_is_kept_is_what_the_monitor_wrote(watched, kept):
    (run,) = kept.runs
    records = read_monitor(watched / "fl-2/seed-0/monitor.json")
    assert (run.method, run.seed, kept.name, kept.sizes) == ("fl-2", 0, "cpu/digits", [500, 400, 897])
    assert run.dynamics["epoch"] == [0, 1, 2]
    for place, record in enumerate(records):
        assert run.extra["gradient"][place] == record["gradient"]["count"]
        assert sum(run.extra["gradient"][place]) == 500
        assert run.extra["train_bins"][place]["count"] == record["train"]["bins"]["count"]
        assert run.extra["train"]["nll_wrong"][place] == pytest.approx(record["train"]["nll_wrong"], rel=1e-4)
    assert len(run.extra["gradient_edges"]) == len(run.extra["gradient"][0]) - 1


def test_roc_curves_are_those_of_the_logits(watched, kept):
    """Counted by hand: at most a share of the unknown inputs passes, and of the known ones the share that is kept."""
    (run,) = kept.runs
    test = read_predictions([str(watched / "fl-2/seed-0/predictions.npz")]).of_split("test")
    other = read_predictions([str(watched / "fl-2/seed-0/out_of_distribution/noise.npz")], need_labels=False)
    temperature = run.fits["post"]["temperature"]
    for phase, divisor in (("pre", 1.0), ("post", temperature)):
        known, unknown = (torch.from_numpy(table.scores).double() / divisor for table in (test, other))
        curve = run.extra["roc"]["noise"][phase]
        assert curve["auroc"] == pytest.approx(float(ood_auroc(known, unknown)), rel=1e-4)
        entropies = [-(each.softmax(1) * each.log_softmax(1)).sum(1).numpy() for each in (known, unknown)]
        threshold = np.sort(entropies[1])[9]  # ten of fifty pass: one fifth
        passed = (entropies[0] <= threshold).mean()
        before = (entropies[0] < threshold).mean()
        assert before - 1e-4 <= curve["passed"][run.extra["roc_at"].index(0.2)]
        assert curve["passed"][run.extra["roc_at"].index(0.2)] == pytest.approx(passed, abs=0.03)
        assert curve["passed"][0] >= 0
        assert curve["passed"][-1] == 1
        assert curve["passed"] == sorted(curve["passed"])


def test_a_folder_without_finished_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no finished run"):
        record_runs(tmp_path)


def test_runs_of_two_recipes_are_refused(watched, start, recipe, tmp_path):
    shutil.copytree(watched / "fl-2/seed-0", tmp_path / "one")
    other = start(tmp_path / "two", "ce", recipe.model_copy(update={"monitor": 2})).path
    shutil.copy(tmp_path / "one/results.json", other)  # as if it were finished
    with pytest.raises(InputError, match="of another recipe"):
        record_runs(tmp_path)


@pytest.mark.slow
def test_the_command_writes_one_file_for_each_folder_and_the_linear_problem(watched, tmp_path, capsys):
    assert main([str(tmp_path), str(watched)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.json", "linear.json"]
    assert str(tmp_path / "digits.json") in capsys.readouterr().out
    linear = json.loads((tmp_path / "linear.json").read_text())
    assert len(linear["inputs"]) == len(linear["labels"]) == 1000


def test_the_command_says_how_it_is_used(capsys):
    assert main([]) == 2
    assert "usage: python -m reproduction.figures.record" in capsys.readouterr().err
