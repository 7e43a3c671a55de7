"""Reads damaged files one after the other and says of each, on a line of JSON, how that went.

The fuzz test runs this as a process of its own, so that it can see crashes and hangs from outside. By hand,
`python -m tests.streams.fuzz npz 17` does it for one file, says where that is, and shows what happened.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from focalcal.errors import FileFormatError, InputError
from focalcal.streams import Table, read_predictions
from tests.streams.fuzz.judge import Judgement, judge
from tests.streams.fuzz.mutate import mutated_files
from tests.streams.fuzz.valid import FORMATS, Files, valid_files

# What reading a file of some kilobytes may add to the memory of the process.
MOST_BYTES = 64 << 20
# For most formats that is not even asked for. pyarrow asks for as much as a header says, before it finds that less is
# there; it writes nothing to it, so that of these formats only the memory that is in use is counted.
ASKED_FOR_BY_PYARROW = ("parquet", "arrow")
# Of the processor, for one file; how busy the machine is changes that little.
MOST_SECONDS = 2.0
_LONGEST_MESSAGE = 1500
# Of the process: memory that is freed goes back to the system at once, so that the next file's is seen.
ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Outcome:
    """How reading one file went: `read`, `refused` or `failed`, and why; by how many bytes memory grew; seconds."""

    result: str
    why: str
    grown: int
    seconds: float


def main() -> None:
    """Answer requests, each a format and a seed, until there are no more; or the one that the command line gives."""
    if not os.environ.items() >= ENVIRONMENT.items():
        os.execve(sys.executable, [sys.executable, "-m", "tests.streams.fuzz", *sys.argv[1:]], os.environ | ENVIRONMENT)
    faulthandler.enable()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory(prefix="focalcal-fuzz-") as place:
        folder = Path(place)
        _warm_up(folder)
        if len(sys.argv) > 1:
            _show(*sys.argv[1:])
            return
        _answer({"ready": True})
        for line in sys.stdin:
            name, seed = line.split()
            outcome = _TRIALS[name]() if name in _TRIALS else try_files(folder, name, mutated_files(name, int(seed)))
            _answer(asdict(outcome))


def _answer(content: dict[str, object]) -> None:
    print(json.dumps(content), flush=True)


def _show(name: str, seed: str) -> None:
    folder = Path(tempfile.gettempdir()) / f"focalcal-fuzz-{name}-{seed}"
    folder.mkdir(exist_ok=True)
    files = mutated_files(name, int(seed))
    print(f"{', '.join(files.contents)} in {folder / name}", flush=True)
    for key, value in asdict(try_files(folder, name, files)).items():
        print(f"{key}: {value}")


def _warm_up(folder: Path) -> None:
    """Valid files are read first: what is loaded once for all is not counted, and all of them must be fine."""
    for name in FORMATS:
        for files in valid_files(name):
            outcome = try_files(folder, name, files)
            assert outcome.result == "read", (name, outcome)


def try_files(folder: Path, name: str, files: Files) -> Outcome:
    """Read files that are written to a folder of their own, and judge what comes back."""
    paths = _written(folder / name, files)
    limit = None if name.startswith(ASKED_FOR_BY_PYARROW) else MOST_BYTES
    _forget_peak()
    before, started = _resident(), time.process_time()
    table: Table | None = None
    try:
        with _at_most(limit):
            table = read_predictions(paths)
        result, why = "read", ""
    except (InputError, FileFormatError) as error:
        result, why = _refusal(error, folder / name, limit)
    except BaseException:
        result, why = "failed", traceback.format_exc()
    seconds, grown = time.process_time() - started, _peak() - before
    if table is not None:
        result, why = judge(table, paths)
    if seconds > MOST_SECONDS:
        result, why = "failed", f"reading took {seconds:.1f} s of the processor. {why}"
    if grown > MOST_BYTES:
        result, why = "failed", f"reading took {grown >> 20} MiB more than there were. {why}"
    return Outcome(result, why, grown, seconds)


def _written(place: Path, files: Files) -> list[Path]:
    place.mkdir(exist_ok=True)
    for each in place.iterdir():
        each.unlink()
    for name, content in files.contents.items():
        (place / name).write_bytes(content)
    return [place] if files.as_folder else [place / name for name in files.contents]


def _refusal(error: Exception, folder: Path, limit: int | None) -> Judgement:
    """Whether a refusal is in order: about the file, on a line, and not because memory had run out."""
    cause: BaseException | None = error
    while limit is not None and cause is not None:
        if isinstance(cause, MemoryError):
            return "failed", f"it asked for more than {limit >> 20} MiB. {''.join(traceback.format_exception(error))}"
        cause = cause.__cause__
    said = str(error)
    in_order = (
        said.startswith(str(folder)) and said.endswith(".") and said.isprintable() and len(said) < _LONGEST_MESSAGE
    )
    return ("refused", said) if in_order else ("failed", f"the message is not in order: {said!r}")


@contextmanager
def _at_most(num_bytes: int | None) -> Iterator[None]:
    """Let the process ask for so many bytes more than it has, and no more."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    if num_bytes is not None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + num_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)


def _forget_peak() -> None:
    """Count the peak of memory anew from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10


def _crash() -> Outcome:
    os.kill(os.getpid(), 11)
    raise AssertionError


def _hang() -> Outcome:
    time.sleep(1e6)
    raise AssertionError


# What the test asks for to see that it sees it.
_TRIALS = {"crash": _crash, "hang": _hang}


if __name__ == "__main__":
    main()
