"""Files that are complete or not there at all, whenever the work on them is broken off."""

import builtins
import os
import stat

import pytest

from focalcal.atomic import atomic_file, write_atomically


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
