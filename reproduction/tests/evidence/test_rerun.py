"""A recorded experiment run again, reduced to two losses and one seed, by the commands that a reader would type."""

from __future__ import annotations

import pytest

from reproduction.evidence.files import evidence_of, read_evidence

from ...cli.tools import run
from ...conftest import _need

RECIPE = "cpu/sst-binary-tree-lstm"
METHODS = ("ce", "flsd-53")
# Other processors add up in another order, and training magnifies that: these are a third of the spread over seeds or
# less for error and NLL, and far below what is claimed of ECE.
NEAR = {"error": 0.015, "nll": 0.02, "ece_ew": 0.015, "ece_em": 0.015}


@pytest.mark.slow
def test_sst_gives_the_recorded_numbers_again(tmp_path):
    data = _need("data", "sst_train.txt.gz").parent
    wanted = [part for method in METHODS for part in ("--method", method)]
    options = ("--threads", 1, "--accelerator", "cpu", "--data", data, "--out", tmp_path, "--quiet")
    assert run("lab", "run", RECIPE, *wanted, *options).code == 0
    answer = run("lab", "collect", tmp_path / RECIPE, "--out", tmp_path / "found.json")
    assert answer.code == 0, answer.err
    found, recorded = read_evidence(tmp_path / "found.json"), evidence_of(RECIPE)
    assert (found.recipe, found.sizes) == (recorded.recipe, recorded.sizes)
    for method in METHODS:
        ours, theirs = found.of(method)[0], recorded.of(method)[0]
        for phase in ("pre", "ts-nll"):
            for measure, near in NEAR.items():
                assert ours.phases[phase][measure][0] == pytest.approx(theirs.phases[phase][measure][0], abs=near), (
                    f"{method}, {phase}, {measure}"
                )
        assert ours.fits["ts-nll"]["temperature"] == pytest.approx(theirs.fits["ts-nll"]["temperature"], rel=0.15)
    # what the page says of SST: focal loss is under-confident there, and a temperature below 1 mends it
    plain, focal = (found.of(method)[0] for method in METHODS)
    assert focal.phases["pre"]["ece_ew"][0] > plain.phases["pre"]["ece_ew"][0] + 0.05
    assert focal.fits["ts-nll"]["temperature"] < 0.8 < plain.fits["ts-nll"]["temperature"]
