"""The ledger: every claim has one standing, and what stands behind it is what the standing promises."""

from __future__ import annotations

import json
import re

import pytest

from focalcal.errors import FocalCalError
from focalcal_lab import papers
from focalcal_lab.catalog import find_recipe
from reproduction import ledger as module
from reproduction.claims.ece_bias import SPREAD, SURE, ece_bias
from reproduction.ledger import FILE, STANDINGS, LedgerEntry, escape, file_content, ledger
from reproduction.recipe_numbers import recorded_numbers


@pytest.fixture(scope="module")
def entries() -> dict[str, LedgerEntry]:
    return {entry.id: entry for entry in ledger(recorded_numbers())}


def test_every_claim_has_one_entry_in_order(entries):
    assert list(entries) == [row["id"] for row in papers.claims()]
    assert len(entries) == 231
    assert {entry.standing for entry in entries.values()} == set(STANDINGS)


def test_an_entry_has_what_its_standing_promises(entries):
    for claim, entry in entries.items():
        corrected, measured = entry.standing == "holds with a correction", entry.runs > 0
        assert bool(entry.printed) == bool(entry.true) == corrected, claim
        assert bool(entry.check) == (
            entry.standing == "proved numerically" or (corrected and claim != "ghosh2022.appF.bias")
        )
        assert measured == (entry.seeds > 0), claim
        assert bool(entry.verdict) == (measured or entry.standing == "does not hold here"), claim
        if entry.verdict:
            assert (entry.verdict == "not seen") == (entry.standing == "does not hold here"), claim
        if not measured and entry.recipes:
            assert find_recipe(entry.recipes[0]).name == entry.recipes[0]
        assert entry.sentence.endswith("."), claim


def test_a_claim_without_a_standing_or_with_two_is_refused(monkeypatch):
    found = module._other_standings()
    monkeypatch.setattr(
        module, "_other_standings", lambda: {k: v for k, v in found.items() if k != "mukhoti2020.table5"}
    )
    with pytest.raises(FocalCalError, match=r"mukhoti2020\.table5: must have exactly one standing; 0 sources"):
        ledger(recorded_numbers())
    twice = found | {"mukhoti2020.eq1": {"standing": "needs a GPU recipe", "sentence": "Twice."}}
    monkeypatch.setattr(module, "_other_standings", lambda: twice)
    with pytest.raises(FocalCalError, match=r"mukhoti2020\.eq1: must have exactly one standing; 2 sources"):
        ledger(recorded_numbers())


def test_the_file_of_the_lab_is_what_the_ledger_makes():
    assert FILE.read_bytes() == file_content(recorded_numbers()), "run: python -m reproduction.ledger"


def test_the_file_names_no_test_page_or_path_of_the_repository():
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    assert len(entries) == 231
    assert not re.search(r"docs/|tests?/|test_|\.py\b|\.md\b|reproduction", FILE.read_text(encoding="utf-8"))
    checks = {entry["check"] for entry in entries if entry["check"]}
    assert len(checks) == 105
    assert checks == {f"focalcal_lab.papers.exact.{check.paper}.{check.name}" for check in papers.checks()}


def test_equations_are_plain_text_of_a_terminals_width(entries):
    assert set(module._yaml("equations")) <= set(entries)
    for claim, entry in entries.items():
        assert not re.search(r"[\\$`]", entry.equation), claim
        assert max(map(len, entry.equation.splitlines()), default=0) <= 84, claim


def test_equal_mass_ece_has_the_lower_bias_only_where_confidences_crowd_at_1(entries):
    said = entries["ghosh2022.appF.bias"].true
    sure = [100 * ece_bias(SURE, edges) for edges in ("equal_mass", "equal_width")]
    spread = [100 * ece_bias(SPREAD, edges) for edges in ("equal_mass", "equal_width")]
    assert sure[0] < 0.6 * sure[1]
    assert spread[0] > 1.1 * spread[1]
    assert f"{sure[0]:.1f} % by equal mass and {sure[1]:.1f} % by equal width" in said
    assert f"{spread[0]:.1f} % and {spread[1]:.1f} %" in said


def test_emphasis_and_tags_are_escaped():
    assert escape("gamma* <= |a|") == r"gamma\* &lt;= \|a\|"
    assert escape("a `gamma*|b` *c*") == r"a `gamma*\|b` \*c\*"
    assert escape("p_y and _b and W_{-1}") == r"p_y and \_b and W_{-1}"
