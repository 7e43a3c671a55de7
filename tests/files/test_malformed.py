"""What cannot be right is refused in one sentence or two that begin with the file and end with the fix."""

from __future__ import annotations

import atexit
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from focalcal.errors import FileFormatError, InputError
from focalcal.files import Columns, parquet, read_predictions, rewrite_predictions
from focalcal.files.memory_limits import require_memory, require_no_bomb
from tests.files.malformed import Case, good, make_all

_FOLDER = tempfile.TemporaryDirectory(prefix="focalcal-malformed-")
atexit.register(_FOLDER.cleanup)
CASES = make_all(Path(_FOLDER.name))


def test_there_are_more_than_sixty_different_ones():
    assert len(CASES) > 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_malformed_input_is_refused_with_its_name_and_the_reason(case: Case):
    with pytest.raises((InputError, FileFormatError)) as caught:
        read_predictions(case.paths, case.columns)
    message = str(caught.value)
    assert message.startswith(case.begins_with + ":")
    assert case.words in message
    assert message.endswith(".")
    assert message.isprintable()
    assert len(message) < 1500


# What the rewriter has no reason to look at, or is allowed not to have.
ABOUT_OTHER_PARTS = ("label", "weight", "split", "names", "class_names", "npy_pair", "shards_of", "one_dimension")


@pytest.mark.parametrize(
    "case", [case for case in CASES if not any(word in case.name for word in ABOUT_OTHER_PARTS)], ids=lambda c: c.name
)
def test_a_malformed_input_is_not_rewritten_and_leaves_an_old_output_as_it_was(case: Case, tmp_path):
    path = case.paths[0]
    out = tmp_path / f"out{path.suffix}"
    if not path.is_dir() and "*" not in path.name:
        out.write_text("what was there")
    with pytest.raises((InputError, FileFormatError)) as caught:
        rewrite_predictions(path, out, lambda scores, kind: scores, case.columns)
    assert str(caught.value).startswith((case.begins_with + ":", str(out)))
    left = [each for each in tmp_path.rglob("*") if each.is_file() and each != out]
    assert all(each.parent == out for each in left)  # of several shards, those before the bad one are done
    if out.is_file():
        assert out.read_text() == "what was there"


def test_a_bomb_is_larger_than_a_gibibyte_and_grows_more_than_two_hundred_times():
    size = (1 << 30) + 1
    require_no_bomb("val.npz:", 1, size - 1)
    require_no_bomb("val.npz:", size // 200 + 1, size)
    with pytest.raises(InputError, match=r"^val.npz: would grow from 5\.1 MiB to 1\.0 GiB, as no real scores do\."):
        require_no_bomb("val.npz:", size // 200, size)


def test_as_much_as_the_machine_holds_may_be_read(monkeypatch):
    monkeypatch.setattr("focalcal.files.memory_limits.machine_memory", lambda: 100)
    require_memory("val.npz", 100)
    with pytest.raises(InputError, match="would take 101 bytes"):
        require_memory("val.npz", 101)


def test_a_small_parquet_file_is_read_without_a_buffer_of_the_size_it_declares():
    assert parquet._limits(parquet._SMALL)["buffer_size"] == 0
    assert parquet._limits(parquet._SMALL + 1)["buffer_size"] > 0


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("focalcal.files.memory_limits.BOMB_BYTES", 1 << 20)
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("logits.npy", "w", force_zip64=True) as out,
    ):
        for _ in range(4):
            out.write(bytes(1 << 20))
    with pytest.raises(InputError, match="would grow from"):
        read_predictions(path)


def test_a_parquet_file_of_few_bytes_and_very_many_rows_is_refused(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "val.parquet"
    pq.write_table(pa.table({"logit_0": [0.5] * 10**6, "logit_1": [0.5] * 10**6, "label": [0] * 10**6}), path)
    assert read_predictions(path).num_rows == 10**6
    monkeypatch.setattr("focalcal.files.memory_limits.BOMB_BYTES", 1 << 20)
    with pytest.raises(InputError, match=r"would grow from .* to 15\.3 MiB"):
        read_predictions(path)


def test_what_the_machine_cannot_hold_is_refused_with_its_size(tmp_path, monkeypatch):
    path = tmp_path / "val.npz"
    np.savez(path, **good())
    monkeypatch.setattr("focalcal.files.memory_limits.machine_memory", lambda: 100)
    with pytest.raises(InputError, match=r"would take 120 bytes of memory, and there are 100 bytes"):
        read_predictions(path)


def test_a_key_that_nobody_asks_for_does_no_harm(tmp_path):
    path = tmp_path / "val.npz"
    np.savez(path, **good(), notes=np.array([{"a": 1}], dtype=object))
    assert read_predictions(path).num_rows == 6


def test_kind_chooses_between_two_score_keys(tmp_path):
    path = tmp_path / "val.npz"
    probs = np.full((6, 3), 1 / 3)
    np.savez(path, **good(), probs=probs)
    assert np.array_equal(read_predictions(path, Columns(kind="probs")).scores, probs)
    assert read_predictions(path, Columns(scores="logits")).kind == "logits"
