"""Files that coverage leads to: libFuzzer, by way of atheris, keeps what reaches new lines of our readers.

`make fuzz-guided FORMAT=csv` installs atheris and reads files of one format, or calibrator files. What fails is written
into the corpus, and the run ends there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["focalcal.files", "focalcal.calibrators.files"]):
    import focalcal.calibrators.files  # noqa: F401
    from focalcal.files import read_predictions  # noqa: F401
    from focalcal.files.table import FORMATS

    for _each in FORMATS.values():
        _each.function("stream")

from tests.fuzz import calibrator_files, corpus
from tests.fuzz.corpus import Kept
from tests.fuzz.readers import target as readers
from tests.fuzz.readers.examples import Files
from tests.fuzz.readers.formats import VARIANTS, valid_files
from tests.fuzz.target import Case, Target, packed

CALIBRATORS = calibrator_files.TARGET.name


def main() -> None:
    """Fuzz the readers of one format until the time is over or a file fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("what", choices=[*VARIANTS, CALIBRATORS])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory(prefix="focalcal-guided-") as place:
        for i, content in enumerate(_seeds(given.what)):
            (Path(place) / str(i)).write_bytes(content)
        options = [f"-max_total_time={round(60 * given.minutes)}", f"-seed={given.seed}", "-max_len=16384"]
        atheris.Setup(
            [sys.argv[0], place, "-timeout=60", "-rss_limit_mb=4096", *options], lambda data: _try(given.what, data)
        )
        atheris.Fuzz()


def _seeds(what: str) -> list[bytes]:
    if what == CALIBRATORS:
        return list(calibrator_files.examples())
    return [next(iter(files.contents.values())) for files in valid_files(what)]


def _try(what: str, data: bytes) -> None:
    target, case = _case(what, data)
    try:
        target.check(case)
    except AssertionError as error:
        kept = Kept(f"Found by coverage, {what}: {str(error).strip().splitlines()[-1][:300]}", None, case)
        print(corpus.write_case(target.name, corpus.name_of(case), kept))
        raise


def _case(what: str, data: bytes) -> tuple[Target, Case]:
    """The bytes as the first of the files of a variant; the others are those of a valid example."""
    if what == CALIBRATORS:
        document = _document(data)
        return calibrator_files.TARGET, {"file": packed(data)} if document is None else {
            "document": document,
            "arrays": {},
        }
    files = valid_files(what)[0]
    first = next(iter(files.contents))
    return readers.TARGET, readers.case_of(what, Files({**files.contents, first: data}, files.as_folder))


def _document(data: bytes) -> dict[str, Any] | None:
    """The JSON object that the bytes are, which is then signed: no mutation would ever find the digest."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


if __name__ == "__main__":
    main()
