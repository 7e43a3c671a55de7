"""Files that are complete or not there at all, whenever the work on them is broken off."""

import builtins
import errno
import os
import stat
from contextlib import contextmanager

import numpy as np
import pytest

from focalcal.atomic import atomic_file, write_atomically
from focalcal.files import PredictionTable, write_predictions


def test_an_interrupt_in_the_moment_of_creation_leaves_nothing_behind(tmp_path, monkeypatch):
    place = tmp_path / "numbers.json"
    place.write_bytes(b"old")
    created = []

    def interrupted(name, mode="r", *rest, **options):
        open_as_usual(name, mode, *rest, **options).close()
        created.append(name)
        raise KeyboardInterrupt

    open_as_usual = builtins.open
    monkeypatch.setattr(builtins, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(place, b"new")
    monkeypatch.undo()
    assert created  # the moment was met
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.json"]
    assert place.read_bytes() == b"old"


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    place = tmp_path / "numbers.json"
    place.write_bytes(b"old")

    def write_half():
        with atomic_file(place) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.json"]
    assert place.read_bytes() == b"old"


def test_the_file_has_the_rights_that_any_new_file_has(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "numbers.json", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "numbers.json").stat().st_mode) == 0o640


def test_a_name_as_long_as_the_system_allows(tmp_path):
    place = tmp_path / ("語" * 85)  # 255 bytes
    write_atomically(place, b"1")
    assert place.read_bytes() == b"1"


@contextmanager
def full_at(size: int):
    """No file may grow beyond `size` bytes: writing fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _written(path):
    scores = np.random.default_rng(0).normal(size=(4000, 4))  # does not shrink
    write_predictions(PredictionTable("t", scores, "logits", np.zeros(4000, np.int64)), path)


WRITERS = dict.fromkeys(("npz", "npy", "csv", "parquet", "safetensors"), _written) | {
    "json": lambda path: write_atomically(path, b"1" * 100_000),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path, suffix):
    place = tmp_path / f"logits.{suffix}"
    place.write_bytes(b"old")
    with full_at(1000), pytest.raises(OSError, match="File too large") as caught:
        WRITERS[suffix](place)
    assert caught.value.filename == str(place)
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    assert place.read_bytes() == b"old"


def test_an_error_of_another_file_keeps_its_name(tmp_path):
    for error in (OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, "No space left", "other")):
        with pytest.raises(OSError, match=str(error.strerror)) as caught, atomic_file(tmp_path / "mine"):
            raise error
        assert caught.value.filename != str(tmp_path / "mine")
