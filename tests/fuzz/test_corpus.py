"""What fuzzing has found stays found: every case of the corpus is tried again."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.corpus import corpus_files, read_case
from tests.fuzz.guard import Guard
from tests.fuzz.runner import checker
from tests.fuzz.table import NAMES, NEEDS, find_target

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@pytest.fixture(scope="module")
def guard():
    guard = Guard()
    yield guard
    guard.stop()


@pytest.mark.xdist_group("fuzz-corpus")
@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_case_of_the_corpus_ends_well(path, guard):
    name, kept = read_case(path)
    pytest.importorskip(NEEDS.get(name, "focalcal"))
    outcome = checker(find_target(name), guard)(kept.case)
    assert outcome == (kept.outcome or outcome)


def test_every_target_has_cases_in_the_corpus_and_every_case_has_a_name_and_a_note():
    found = corpus_files()
    assert {path.parent.name for path in found} == set(NAMES)
    for path in found:
        assert not path.stem.startswith("new-"), f"Give {path} a name that says what it is."
        assert len(read_case(path)[1].note.split()) > 5, f"Say in {path} what it showed."
