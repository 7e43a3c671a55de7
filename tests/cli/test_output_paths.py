"""Places that cannot be written to are refused before long work starts."""

from __future__ import annotations

import os
import stat

import pytest

import focalcal as fc
from focalcal.cli.output_paths import require_output
from focalcal.files import write_predictions
from tests.cli.tools import call, predictions


def test_an_output_that_is_an_input_by_another_name_is_refused(tmp_path):
    (tmp_path / "a.npz").touch()
    os.symlink(tmp_path / "a.npz", tmp_path / "b.npz")
    with pytest.raises(fc.InputError, match="cannot be written at the same time"):
        require_output(str(tmp_path / "b.npz"), "--out", inputs=[str(tmp_path / "a.npz")])
    require_output(str(tmp_path / "c.npz"), "--out", inputs=[str(tmp_path / "a.npz")])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_pipes_and_devices_are_no_place_for_an_output(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(fc.InputError, match="neither a file nor a directory"):
        require_output(str(tmp_path / "pipe.json"), "--out")
    write_predictions(predictions(), tmp_path / "a.npz")
    for command in (
        ("calibrate", tmp_path / "a.npz", "--holdout", 0.5, "--out", tmp_path / "pipe.json"),
        ("apply", tmp_path / "c.json", tmp_path / "a.npz", "--out", tmp_path / "pipe.json"),
        ("report", tmp_path / "a.npz", "--out", tmp_path / "pipe.json"),
    ):
        fc.FocalCalibration(1.0).save(tmp_path / "c.json")
        assert call(*command).code == 2
        assert stat.S_ISFIFO(os.stat(tmp_path / "pipe.json").st_mode)
