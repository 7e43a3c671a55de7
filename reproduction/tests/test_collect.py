"""Result files: what is collected from runs is what measuring their predictions by hand gives."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from focalcal import metrics, suggest_gamma
from focalcal.calibrators import load_calibrator
from focalcal.errors import FileFormatError, InputError
from focalcal.files import read_predictions
from focalcal_lab.catalog import find_recipe
from focalcal_lab.measurement import SplitLogits
from focalcal_lab.monitor import read_monitor
from focalcal_lab.training_setup import shortened
from reproduction.collect import MeasurementPlan, _one_recipe, collect, main
from reproduction.measure import CalibratedLogProbs, HumanAnswers, measure_human
from reproduction.result_files import Evidence, RunEvidence, file_name, read_evidence, write_evidence
from reproduction.training_series import dynamics

RESAMPLES = 100


@pytest.fixture(scope="module")
def collected(runs):
    return collect(runs, MeasurementPlan(RESAMPLES))


def predictions(folder, split="test"):
    table = read_predictions([str(folder / "predictions.npz")]).of_split(split)
    return torch.from_numpy(table.scores), torch.from_numpy(table.labels)


def test_finished_runs_are_there_in_the_recipes_order_and_others_are_not(collected):
    assert [(run.method, run.seed) for run in collected.runs] == [("ce", 0), ("fl-2", 0)]
    assert collected.methods == ["ce", "fl-2"]
    assert collected.name == "cpu/digits"
    assert (collected.sizes, collected.threads) == ([500, 400, 897], 1)
    assert all(run.seconds > 0 for run in collected.runs)
    assert collected.environment["torch"] == torch.__version__


def test_values_are_those_of_the_runs_own_results(runs, collected):
    rows = json.loads((runs / "fl-2/seed-0/results.json").read_text())["rows"]
    run = collected.of("fl-2")[0]
    compared = 0
    for row in rows:
        if row["metric"] in run.phases[row["phase"]]:
            assert run.phases[row["phase"]][row["metric"]][0] == pytest.approx(row["value"], rel=1e-6, abs=1e-9)
            compared += 1
    assert compared == 7 * 4 + 1  # seven measures of four phases, and the error, which the run measures once
    assert run.fits["post"]["temperature"] == next(row["temperature"] for row in rows if row["phase"] == "post")
    assert run.fits["psi"] == {"gamma": 2.0}


def test_pairs_are_those_of_compare_with_the_same_resamples(runs, collected):
    logits, labels = predictions(runs / "fl-2/seed-0")
    calibrator = load_calibrator(runs / "fl-2/seed-0/calibrators/ts-nll.json")
    with torch.no_grad():
        after = calibrator(logits)
    before = torch.log_softmax(logits.double(), 1)
    for name, metric, method in (("ece_ew", "ece", "basic"), ("nll", "nll", "percentile")):
        expected = metrics.compare(
            after,
            before,
            labels,
            kind="log_probs",
            metric=metric,
            num_resamples=RESAMPLES,
            method=method,
        )
        found = collected.of("fl-2")[0].pairs["ts-nll - pre"][name]
        assert found[:3] == pytest.approx([expected.difference, expected.low, expected.high], abs=1e-9, rel=1e-6)
        assert (found[3] < 0.05) == (found[1] > 0 or found[2] < 0)


def test_intervals_are_those_of_bootstrap_with_the_same_resamples(runs, collected):
    logits, labels = predictions(runs / "ce/seed-0")
    for name, metric, method in (("ece_ew", "ece", "basic"), ("nll", "nll", "percentile")):
        expected = metrics.bootstrap(metric, logits, labels, num_resamples=RESAMPLES, method=method)
        _, low, high = collected.of("ce")[0].phases["pre"][name]
        # other rows are drawn (there they are sorted first), so only about the same
        assert (low, high) == pytest.approx((expected.low, expected.high), rel=0.1)


def test_the_map_of_cross_entropy_changes_nothing_and_is_left_out(collected):
    assert "psi" not in collected.of("ce")[0].phases
    assert "psi" in collected.of("fl-2")[0].phases


def test_a_cross_entropy_run_suggests_a_gamma(runs, collected):
    logits, labels = predictions(runs / "ce/seed-0", "val")
    assert collected.of("ce")[0].extra["suggested_gamma"] == suggest_gamma(logits, labels)
    assert "suggested_gamma" not in collected.of("fl-2")[0].extra
    line = collected.of("fl-2")[0].extra["best_temperatures"]
    assert [gamma for gamma, _ in line] == [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]
    assert line[-1][1] > line[1][1]  # the map sharpens, so more temperature is needed


def test_series_are_those_of_the_monitor(runs, collected):
    records = read_monitor(runs / "ce/seed-0/monitor.json")
    found = collected.of("ce")[0].dynamics
    assert found == dynamics(records)
    assert found["epoch"] == [0, 1, 2]
    assert found["test_nll"] == [record["test"]["nll"] for record in records]
    bins = records[-1]["train"]["bins"]["count"]
    assert found["train_top_share"][-1] == bins[-1] / sum(bins)
    common = records[1]["correspondence"]["common"]["true"]
    assert found["train_true"][1] == pytest.approx(np.average(common["confidence"], weights=common["count"]))
    assert "gamma" not in found["bins"]  # one gamma for all is no series by bin


def test_no_records_are_no_series():
    assert dynamics([]) == {}


def test_distance_to_peoples_answers_by_hand():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 3, generator=generator), torch.zeros(50, dtype=torch.long)
    counts = np.random.default_rng(0).integers(1, 20, (50, 3))
    found = measure_human(CalibratedLogProbs.of(SplitLogits(logits, labels), {}), HumanAnswers(counts), num_bins=5)[
        "pre"
    ]
    probs, share = logits.double().softmax(1).numpy(), counts / counts.sum(1, keepdims=True)
    top = probs.argmax(1)
    agreed, sure = share[np.arange(50), top], probs.max(1)
    place = np.ceil(sure * 5).astype(int) - 1
    error = sum(abs((sure - agreed)[place == one].sum()) for one in range(5)) / 50
    kl = (share * np.log(share / probs)).sum(1).mean()
    expected = {"kl": kl, "ece": error, "gap": abs(sure - agreed).mean(), "agreement": agreed.mean()}
    assert found == pytest.approx(expected)


def test_answers_about_other_rows_are_refused():
    rows = CalibratedLogProbs.of(SplitLogits(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])), {})
    with pytest.raises(InputError, match=r"counts: must have shape \(4, 3\)"):
        measure_human(rows, HumanAnswers(np.ones((5, 3))))
    with pytest.raises(InputError, match="must be those of the test rows"):
        measure_human(rows, HumanAnswers(np.ones((4, 3)), np.array([0, 1, 2, 2])))


def test_runs_of_two_recipes_are_refused(runs, start, recipe, tmp_path):
    shutil.copytree(runs / "ce/seed-0", tmp_path / "first")
    other = start(tmp_path / "other", "ce", shortened(recipe, 1))
    shutil.copy(tmp_path / "first/results.json", other.path)  # as if it were finished
    with pytest.raises(InputError, match="another recipe than the others"):
        collect(tmp_path)


def test_of_several_versions_the_one_that_trains_every_run_alike_is_taken(start, tmp_path):
    before = find_recipe("cpu/digits").model_copy(update={"name": "own/digits"})
    changed = before.methods["fl-3"].model_copy(update={"loss": "fl-5"})
    after = before.model_copy(update={"methods": before.methods | {"fl-3": changed}})
    places = [start(tmp_path / "ce", "ce", recipe=before), start(tmp_path / "fl-3", "fl-3", recipe=after)]
    assert _one_recipe(places).methods["fl-3"].loss == "fl-5"
    with pytest.raises(InputError, match="another recipe than the others"):
        _one_recipe([*places, start(tmp_path / "old", "fl-3", recipe=before)])


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no finished run in it"):
        collect(tmp_path)


# ------------------------------------------------------------------------- files


def evidence(**changes):
    run = RunEvidence("ce", 0, 1.23456789, {"pre": {"nll": [1 / 3, math.nan, None]}}, extra={"words": "a, b"})
    fields = {"recipe": {"name": "cpu/x", "methods": {"ce": {}}}, "environment": {}, "threads": 1, "data": "d"}
    return Evidence(**{**fields, "sizes": [1, 2, 3], "runs": [run], **changes})


def test_a_file_keeps_everything_to_five_digits_one_line_a_run(tmp_path):
    path = tmp_path / "x.json"
    write_evidence(evidence(runs=evidence().runs * 2), path)
    read = read_evidence(path)
    assert read.runs[0].phases == {"pre": {"nll": [0.33333, None, None]}}
    assert (read.runs[0].seconds, read.runs[0].extra) == (1.2346, {"words": "a, b"})
    assert read.recipe == evidence().recipe
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    assert all(json.loads(line.rstrip(",")) for line in lines[1:3])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 2}', '{"schema": 1, "runs": [{}]}'])
def test_what_is_not_a_result_file_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"x\.json: it "):
        read_evidence(tmp_path / "x.json")


# ------------------------------------------------------------------ command line


def test_the_command_writes_the_file_and_says_what_is_in_it(collected, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reproduction.collect.collect", lambda *given, progress: asked.append(given) or collected)
    np.savez("human.npz", counts=np.ones((897, 10)))
    assert main(["runs", "--resamples", "200", "--human", "human.npz"]) == 0
    assert capsys.readouterr().out == "digits.json: 2 runs of cpu/digits\n"
    assert read_evidence(tmp_path / file_name("cpu/digits")).methods == ["ce", "fl-2"]
    ((folder, plan),) = asked
    assert (folder, plan.num_resamples, plan.human.counts.shape) == (Path("runs"), 200, (897, 10))


def test_mistakes_of_the_command_are_one_line(runs, tmp_path, capsys):
    np.savez(tmp_path / "none.npz", labels=np.ones(3))
    for arguments, said in (
        ((tmp_path,), "has no finished run"),
        ((runs, "--human", tmp_path / "nowhere.npz"), "nowhere.npz"),
        ((runs, "--human", tmp_path / "none.npz"), "must have an array counts"),
    ):
        assert main([*map(str, arguments), "--out", str(tmp_path / "x.json")]) == 2
        assert said in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "x.json").exists()
