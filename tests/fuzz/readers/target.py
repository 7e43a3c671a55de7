"""Damaged prediction files of every format: read right, whole and as a stream, or refused."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from focalcal.errors import InputWarning
from focalcal.files import PredictionStream, PredictionTable, read_predictions
from focalcal.predictions.arrays import Predictions
from tests.fuzz.limits import Refused, watched
from tests.fuzz.readers.examples import Files
from tests.fuzz.readers.formats import VARIANTS, mutated_files, valid_files
from tests.fuzz.readers.judge import judge
from tests.fuzz.target import Case, Target, packed, smaller_bytes, unpacked

T = TypeVar("T")
Rows = tuple[Any, Any, Any]


def damaged(variant: str, seed: int) -> Case:
    """The damaged file of a seed."""
    return case_of(variant, mutated_files(variant, seed))


def case_of(variant: str, files: Files) -> Case:
    """Files as a case."""
    contents = {name: packed(content) for name, content in files.contents.items()}
    return {"variant": variant, "as_folder": files.as_folder, "files": contents}


def check(case: Case) -> str:
    """Read the files, whole and as a stream, and judge what comes back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of rounded probabilities
        _warm_up()
        return _check(case)


def _check(case: Case) -> str:
    place = Path(tempfile.mkdtemp(prefix="focalcal-fuzz-"))
    try:
        return _read(case["variant"], place, _written(place, case))
    finally:
        shutil.rmtree(place)


def _read(variant: str, place: Path, paths: list[Path]) -> str:
    fuzzed = VARIANTS[variant]

    def attempt(read: Callable[[], T]) -> T | Refused:
        return watched(read, str(place), may_ask_for_memory=fuzzed.may_ask_for_memory)

    table = attempt(lambda: read_predictions(paths))
    if not isinstance(table, Refused):
        judge(table, paths, fuzzed.read_elsewhere)
    rows = attempt(lambda: _rows_of(PredictionStream(paths)))
    if isinstance(table, Refused):
        return "refused"  # though a stream may not see it: it does not read everything that may be damaged
    assert not isinstance(rows, Refused), f"what can be read is refused as a stream: {rows}"
    assert _same_rows(rows, table), f"as a stream it is other than whole: {rows}"
    return "read"


@cache
def _warm_up() -> None:
    """Valid files are read first: what is loaded once for all is not counted, and all of them must be fine."""
    for variant in VARIANTS:
        for files in valid_files(variant):
            assert _check(case_of(variant, files)) == "read", variant


def _rows_of(stream: PredictionStream) -> Rows:
    """Scores (n, K), labels and weights of the rows of a stream that count."""
    chunks = [chunk for batch in stream.batches() for chunk in batch.chunks()]
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    return (
        np.concatenate([chunk.scores.numpy() for chunk in chunks] or [np.zeros((0, stream.num_classes))]),
        np.concatenate([chunk.labels.numpy() for chunk in chunks] or [np.zeros(0)]),
        np.concatenate(weights) if weights else None,
    )


def _same_rows(rows: Rows, table: PredictionTable) -> bool:
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


def _written(place: Path, case: Case) -> list[Path]:
    for name, content in case["files"].items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(unpacked(content))
    return [place] if case["as_folder"] else [place / name for name in case["files"]]


def _smaller(case: Case) -> Iterator[Case]:
    for name, content in case["files"].items():
        for less in smaller_bytes(unpacked(content)):
            yield {**case, "files": {**case["files"], name: packed(less)}}


TARGET = Target(
    "readers",
    "prediction files of every format",
    st.builds(damaged, st.sampled_from(list(VARIANTS)), st.integers(0, 2**32)),
    check,
    frozenset({"read", "refused"}),
    in_ci=600,
    guarded=True,
    smaller=_smaller,
)
