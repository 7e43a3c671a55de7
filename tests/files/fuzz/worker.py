"""Reads damaged files one after the other and says of each, on a line of JSON, how that went.

The fuzz test runs this as a process of its own, so that it can see crashes and hangs from outside. By hand,
`python -m tests.files.fuzz npz 17` does it for one file, says where that is, and shows what happened.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from focalcal.core.checks import Array
from focalcal.errors import FileFormatError, InputError
from focalcal.files import PredictionStream, PredictionTable, read_predictions
from focalcal.predictions.arrays import Predictions
from tests.files.fuzz.examples import Files
from tests.files.fuzz.formats import VARIANTS, mutated_files, valid_files
from tests.files.fuzz.judge import Judgement, judge

T = TypeVar("T")

# What reading a file of some kilobytes may add to the memory of the process.
MOST_BYTES = 64 << 20
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
        os.execve(sys.executable, [sys.executable, "-m", "tests.files.fuzz", *sys.argv[1:]], os.environ | ENVIRONMENT)
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
    for name in VARIANTS:
        for files in valid_files(name):
            outcome = try_files(folder, name, files)
            assert outcome.result == "read", (name, outcome)


def try_files(folder: Path, name: str, files: Files) -> Outcome:
    """Read files that are written to a folder of their own, whole and as a stream, and judge what comes back."""
    paths = _written(folder / name, files)
    fuzzed = VARIANTS[name]
    limit = None if fuzzed.may_ask_for_memory else MOST_BYTES
    table, whole = _watched(lambda: read_predictions(paths), folder / name, limit)
    if table is not None and whole.result == "read":
        result, why = judge(table, paths, fuzzed.read_elsewhere)
        whole = replace(whole, result=result, why=why)
    if whole.result == "failed":
        return whole
    rows, streamed = _watched(lambda: _rows_of(PredictionStream(paths)), folder / name, limit)
    if streamed.result == "failed":
        return replace(streamed, why=f"as a stream: {streamed.why}")
    if table is not None and (rows is None or not _same_rows(rows, table)):
        # The other way round is fine: a stream does not read everything that may be damaged.
        return replace(streamed, result="failed", why=f"as a stream it is other than whole: {streamed.why or rows}")
    return whole


def _watched(read: Callable[[], T], folder: Path, limit: int | None) -> tuple[T | None, Outcome]:
    """What came out of reading, if it did, and how that went."""
    _forget_peak()
    before, started = _resident(), time.process_time()
    found: T | None = None
    try:
        with _at_most(limit):
            found = read()
        result, why = "read", ""
    except (InputError, FileFormatError) as error:
        result, why = _refusal(error, folder, limit)
    except BaseException:
        result, why = "failed", traceback.format_exc()
    seconds, grown = time.process_time() - started, _peak() - before
    if seconds > MOST_SECONDS:
        result, why = "failed", f"reading took {seconds:.1f} s of the processor. {why}"
    if grown > MOST_BYTES:
        result, why = "failed", f"reading took {grown >> 20} MiB more than there were. {why}"
    return found, Outcome(result, why, grown, seconds)


def _rows_of(stream: PredictionStream) -> tuple[Array, Array, Array | None]:
    """Scores (n, K), labels and weights of the rows of a stream that count."""
    chunks = [chunk for batch in stream.batches() for chunk in batch.chunks()]
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    return (
        np.concatenate([chunk.scores.numpy() for chunk in chunks] or [np.zeros((0, stream.num_classes))]),
        np.concatenate([chunk.labels.numpy() for chunk in chunks] or [np.zeros(0)]),
        np.concatenate(weights) if weights else None,
    )


def _same_rows(rows: tuple[Array, Array, Array | None], table: PredictionTable) -> bool:
    """Whether these are the rows of the table that count, to the last bit."""
    count = np.ones(table.num_rows, dtype=bool) if table.weights is None else table.weights > 0
    scores, labels, weights = rows
    # Both read by rows: that is where probabilities come to sum to 1.
    whole = Predictions(table.scores[count], None, kind=table.kind, may_be_empty=True).chunks(check=False)
    same_scores = np.array_equal(scores, np.concatenate([chunk.scores.numpy() for chunk in whole] or [scores[:0]]))
    assert table.labels is not None
    if weights is None:
        same_weights = table.weights is None or not count.any()
    else:
        same_weights = table.weights is not None and np.array_equal(weights, table.weights[count])
    return same_weights and same_scores and np.array_equal(labels, table.labels[count])


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
