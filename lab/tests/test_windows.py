"""What only POSIX systems have is imported where it is used and nowhere else, and locks work without it."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from focalcal.errors import FocalCalError
from focalcal_lab.run_folder import RunFolder

# Imports every module of both packages, without the modules that Windows lacks; other packages may have them.
IMPORT_ALL = """
import builtins, importlib, pkgutil
missing = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
usual = builtins.__import__

def without(name, globals=None, *rest, **named):
    if name in missing and (globals or {}).get("__name__", "").startswith("focalcal"):
        raise ModuleNotFoundError(f"No module named {name!r}")
    return usual(name, globals, *rest, **named)

builtins.__import__ = without
import focalcal, focalcal_lab
for package in (focalcal, focalcal_lab):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
            print(found.name)
"""


@pytest.mark.slow
def test_every_module_is_imported_without_what_posix_alone_has():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"focalcal.cli.process", "focalcal.files.ray", "focalcal_lab.run_folder"} <= set(done.stdout.split())


def test_a_run_is_locked_where_there_is_no_fcntl(tmp_path, monkeypatch):
    held = set()

    def locking(handle, how, count):
        assert (how, count) == ("now or never", 1)
        if held:
            raise PermissionError(13, "Permission denied")
        held.add(handle)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK="now or never"))
    place = RunFolder(tmp_path)
    with place.locked(), pytest.raises(FocalCalError, match="is being written by process"), place.locked():
        pass
    assert held
