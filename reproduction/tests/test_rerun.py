"""A recorded experiment run again, reduced to one loss and one seed.

The data are public but not ours to copy, so this test runs only where they lie beside the repository.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from focalcal.cli import app
from reproduction.collect import MeasurementPlan, collect
from reproduction.result_files import evidence_of

RECIPE, METHOD = "cpu/sst-binary-tree-lstm", "flsd-53"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
# Other processors add up in another order, and training magnifies that: these are a third of the spread over seeds or
# less for error and NLL, and far below what is claimed of ECE.
NEAR = {"error": 0.015, "nll": 0.02, "ece_ew": 0.015, "ece_em": 0.015}


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "sst_train.txt.gz").exists(), reason="needs SST in ../shared/data")
def test_sst_gives_the_recorded_numbers_again(tmp_path):
    options = ["--threads", "1", "--accelerator", "cpu", "--data", str(DATA), "--out", str(tmp_path), "--quiet"]
    answer = CliRunner().invoke(app, ["lab", "run", RECIPE, "--method", METHOD, *options])
    assert answer.exit_code == 0, answer.output
    found, recorded = collect(tmp_path / RECIPE, MeasurementPlan(100)), evidence_of(RECIPE)
    assert (found.recipe, found.sizes) == (recorded.recipe, recorded.sizes)
    ours, theirs = found.of(METHOD)[0], recorded.of(METHOD)[0]
    for phase in ("pre", "ts-nll"):
        for measure, near in NEAR.items():
            assert ours.phases[phase][measure][0] == pytest.approx(theirs.phases[phase][measure][0], abs=near), (
                f"{phase}, {measure}"
            )
    assert ours.fits["ts-nll"]["temperature"] == pytest.approx(theirs.fits["ts-nll"]["temperature"], rel=0.15)
    # what the page says of SST: focal loss is under-confident there, and a temperature below 1 mends it
    assert ours.phases["pre"]["ece_ew"][0] > 0.05
    assert ours.fits["ts-nll"]["temperature"] < 0.8
