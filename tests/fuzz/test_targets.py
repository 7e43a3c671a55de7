"""Each target for as many cases as CI has time for, and what keeps a run from being good for nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from focalcal.losses.table import LOSSES
from focalcal.metrics.table import MEASURES
from tests.fuzz import losses, metrics
from tests.fuzz.corpus import read_case
from tests.fuzz.guard import Guard
from tests.fuzz.runner import run
from tests.fuzz.table import NAMES, NEEDS, find_target
from tests.fuzz.target import Target

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

SEED = 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_a_fixed_seed_finds_nothing(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "focalcal"))
    target = find_target(name)
    run(target, seed=SEED, cases=target.in_ci, folder=tmp_path).require_good(target)


def test_every_loss_and_every_measure_of_the_tables_has_a_definition_to_be_compared_with():
    assert set(metrics.DEFINITIONS) == set(MEASURES)
    assert set(LOSSES) <= set(losses.LOSSES)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_every_loss_is_right_on_a_plain_batch(name):
    logits = [[1.0, -0.5, 0.25], [-2.0, 3.0, 0.5], [0.0, 0.75, -1.5]]
    case = {"loss": name, "gamma": 2.0, "dtype": "float64", "logits": logits, "labels": [0, 2, 1], "reduction": "mean"}
    assert losses.check(case) == "right"


def test_the_page_says_how_many_cases_ci_tries():
    pytest.importorskip("focalcal_lab")
    page = (Path(__file__).resolve().parents[2] / "docs/design/fuzzing.md").read_text()
    for name in NAMES:
        assert f"| `{name}` | {find_target(name).in_ci:,} |" in page


def _planted(case):
    if case["n"] >= 37:
        raise AssertionError(f"{case['n']} is too much")
    return "small"


PLANTED = Target(
    "planted",
    "a mistake for numbers from 37 on",
    st.builds(lambda n: {"n": n}, st.integers(0, 10_000)),
    _planted,
    frozenset({"small", "never"}),
    in_ci=1,
)


def test_what_fails_is_made_smaller_and_written_down_once(tmp_path):
    done = run(PLANTED, seed=0, cases=300, folder=tmp_path)
    assert done.outcomes.total() >= 300
    (path,) = done.failures
    assert path.parent == tmp_path / "planted"
    assert read_case(path)[1].case == {"n": 37}
    assert "37 is too much" in read_case(path)[1].note
    with pytest.raises(AssertionError, match="37 is too much"):
        done.require_good(PLANTED)


def test_the_same_seed_draws_the_same_cases(tmp_path):
    def drawn(seed):
        seen = []
        harmless = Target("harmless", "", PLANTED.cases, lambda case: seen.append(case["n"]) or "fine", frozenset(), 1)
        run(harmless, seed=seed, cases=120, folder=tmp_path)
        return seen

    assert drawn(0) == drawn(0) != drawn(1)


def test_a_run_without_an_outcome_that_it_should_have_is_not_good(tmp_path):
    harmless = Target("harmless", "", PLANTED.cases, lambda case: "small", PLANTED.outcomes, 1)
    done = run(harmless, seed=0, cases=5, folder=tmp_path)
    with pytest.raises(AssertionError, match="No case of harmless was never"):
        done.require_good(harmless)


@pytest.mark.slow
def test_a_crash_and_a_hang_are_seen():
    guard = Guard()
    try:
        with pytest.raises(AssertionError, match="status -11") as crash:
            guard.check("crash", {})
        assert "in _crash" in str(crash.value)
        with pytest.raises(AssertionError, match="no answer within 1 s") as hang:
            guard.check("hang", {}, patience=1)
        assert "in _hang" in str(hang.value)
    finally:
        guard.stop()
