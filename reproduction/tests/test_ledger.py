"""The ledger: every claim has one standing, and whatever holds has a test or a result file behind it."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from focalcal.errors import FocalCalError, InputError
from focalcal_lab import papers
from reproduction.claims.tools import UNTESTABLE, Numbers
from reproduction.ledger import STANDINGS, build, decided_by, entry, ledger, others
from reproduction.ledger.bias import SPREAD, SURE, ece_bias
from reproduction.ledger.braille import bars, plot
from reproduction.ledger.equations import EQUATIONS
from reproduction.ledger.page import escape, page
from reproduction.ledger.views import views_of
from reproduction.ledger.views.choose import FAMILIES
from reproduction.ledger.watch import Watch
from reproduction.result_files import read_evidence, recorded

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "claims.md"
ENTRIES = {each.id: each for each in ledger()}
MEASURED = [each.id for each in ledger() if each.results]


def test_every_claim_has_exactly_one_entry():
    assert [each.id for each in ledger()] == [row["id"] for row in papers.claims()]
    assert len(ENTRIES) == 231
    assert {each.standing for each in ledger()} == set(STANDINGS)


def test_what_stands_behind_a_claim_is_what_its_standing_promises():
    for each in ledger():
        held = each.standing not in ("needs a GPU recipe", "set-up kept by a recipe")
        assert bool(each.tests) == (each.standing != "needs a GPU recipe"), each.id
        assert bool(each.check) == (each.standing in ("proved numerically", "holds with a correction")), each.id
        assert bool(each.printed) == bool(each.true) == (each.standing == "holds with a correction"), each.id
        assert bool(each.recipes) == (bool(each.results) or not held), each.id
        assert bool(each.results) == (each.runs > 0) == (each.seeds > 0), each.id
        if each.standing in ("measured", "does not hold here"):
            assert each.verdict in (("not seen",) if each.standing[0] == "d" else ("seen here", "seen in part")), (
                each.id
            )
        assert each.sentence.endswith("."), each.id


@pytest.mark.slow
def test_every_named_test_is_collected():
    """Asked of pytest itself, in another process, as this one may have been told to run some tests only."""
    named = {test for each in ledger() for test in each.tests}
    files = sorted({test.partition("::")[0] for test in named})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    there = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ).stdout
    assert named <= set(there.splitlines()), sorted(named - set(there.splitlines()))


@pytest.mark.parametrize("claim", MEASURED)
def test_the_verdict_follows_from_the_result_files(claim):
    each, trend = ENTRIES[claim], decided_by(claim)
    evidence = {found.name: found for found in (read_evidence(ROOT / path) for path in each.results)}
    assert tuple(evidence) == each.recipes
    outcome = trend.check(*(Numbers(found) for found in evidence.values()))
    assert (outcome.verdict, outcome.sentence) == (each.verdict, each.sentence)
    assert each.runs <= sum(len(found.runs) for found in evidence.values())


def test_every_gpu_recipe_is_one_that_lab_run_takes():
    pytest.importorskip("yaml", reason="recipes are YAML; pip install focalcal-lab")
    from focalcal_lab.catalog import find_recipe

    for each in ledger():
        for name in () if each.results else each.recipes:
            assert find_recipe(name).name == name
            assert not name.startswith("cpu/")


def test_a_claim_whose_source_is_gone_is_refused(monkeypatch):
    exact = {check.id: check for check in papers.checks()}
    evidence = recorded()
    assert build(exact, evidence) == ledger()
    without = {claim: check for claim, check in exact.items() if claim != "mukhoti2020.eq1"}
    with pytest.raises(FocalCalError, match=r"mukhoti2020\.eq1: must have exactly one standing; 0 sources"):
        build(without, evidence)
    with pytest.raises(FocalCalError, match="needs results that are not recorded"):
        build(exact, {name: found for name, found in evidence.items() if name != "cpu/toy-translation"})
    monkeypatch.setitem(others.GPU, "mukhoti2020.fig1", others.Recipe("mukhoti2020/cifar10-resnet50", "Twice."))
    with pytest.raises(FocalCalError, match=r"mukhoti2020\.fig1: must have exactly one standing; 2 sources"):
        build(exact, evidence)


def test_a_verdict_changes_with_the_results():
    exact = {check.id: check for check in papers.checks()}
    evidence = recorded()
    name = "cpu/toy-translation"
    runs = [
        dataclasses.replace(run, method={"ce": "fl-1", "fl-1": "ce"}.get(run.method, run.method))
        for run in evidence[name].runs
    ]
    swapped = {**evidence, name: dataclasses.replace(evidence[name], runs=runs)}
    (now,) = (each for each in build(exact, swapped) if each.id == "mukhoti2020.table3")
    assert now.sentence != ENTRIES["mukhoti2020.table3"].sentence
    assert ENTRIES["mukhoti2020.table3"].standing == "measured"


def test_claims_that_the_evidence_pages_cannot_decide_have_a_recipe_or_a_simulation():
    assert set(UNTESTABLE) <= set(others.GPU) | set(others.SIMULATED)


def test_the_runs_of_a_claim_are_those_that_its_check_reads():
    watch = Watch()
    decided_by("mukhoti2020.fig1").of(recorded(), watch)
    assert watch.runs == {(name, "ce", seed) for name in ENTRIES["mukhoti2020.fig1"].recipes for seed in range(3)}
    assert (ENTRIES["mukhoti2020.fig1"].runs, ENTRIES["mukhoti2020.fig1"].seeds) == (6, 3)


def test_equal_mass_ece_has_the_lower_bias_only_where_confidences_crowd_at_1():
    said = ENTRIES["ghosh2022.appF.bias"].true
    sure = [100 * ece_bias(SURE, edges) for edges in ("equal_mass", "equal_width")]
    spread = [100 * ece_bias(SPREAD, edges) for edges in ("equal_mass", "equal_width")]
    assert sure[0] < 0.6 * sure[1]
    assert spread[0] > 1.1 * spread[1]
    assert f"{sure[0]:.1f} % by equal mass and {sure[1]:.1f} % by equal width" in said
    assert f"{spread[0]:.1f} % and {spread[1]:.1f} %" in said


def test_a_wrong_id_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"Nearest: .*komisarenko2024\.prop5"):
        entry("komisarenko2024.porp5")
    with pytest.raises(InputError, match="must be the id of one claim; got the paper 'ghosh2022'"):
        entry("ghosh2022")


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_ledger_makes():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m reproduction.ledger docs/claims.md"


@pytest.mark.slow
def test_the_command_writes_the_page(tmp_path):
    subprocess.run([sys.executable, "-m", "reproduction.ledger", str(tmp_path / "claims.md")], check=True)
    assert (tmp_path / "claims.md").read_bytes() == PAGE.read_bytes()


def test_the_page_counts_every_standing_and_has_every_claim_once_by_paper():
    text = page()
    count = Counter(each.standing for each in ledger())
    for standing in STANDINGS:
        assert f"| **{standing}** | {count[standing]} |" in text
    assert re.findall(r'^\| <a id="([^"]+)"', text, flags=re.M) == [each.id for each in ledger()]
    before = text[: text.index("## Mukhoti")]
    assert re.findall(r"^\| \[`([^`]+)`\]\(#", before, flags=re.M) == [each.id for each in ledger() if each.printed]


def test_links_of_the_page_lead_to_files():
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page())
    assert len(links) > 300
    for link in set(links):
        assert (ROOT / "docs" / link).exists(), link


def test_every_row_of_the_page_has_the_cells_of_its_table():
    width = 0
    for line in page().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        if not line.startswith("|"):
            width = 0
        elif width:
            assert cells == width, line
        else:
            width = cells


def test_emphasis_and_tags_are_escaped():
    assert escape("gamma* <= |a|") == r"gamma\* &lt;= \|a\|"
    assert escape("a `gamma*|b` *c*") == r"a `gamma*\|b` \*c\*"
    assert escape("p_y and _b and W_{-1}") == r"p_y and \_b and W_{-1}"


# --- equations and views --------------------------------------------------------------------------------------------


def test_equations_belong_to_claims_and_are_plain_text_of_a_terminals_width():
    assert set(EQUATIONS) <= set(ENTRIES)
    for claim, text in EQUATIONS.items():
        assert not re.search(r"[\\$`]", text), claim
        assert max(map(len, text.splitlines())) <= 84, claim
    missing = [each.id for each in ledger() if each.check and each.id not in EQUATIONS]
    assert missing == [
        "mukhoti2020.ts-identity",
        "ghosh2022.alg1.init",
        "ghosh2022.alg1.lookup",
        "ghosh2022.alg1.rebin",
        "ghosh2022.hyper.bins",
        "ghosh2022.hyper.frequency",
    ]


def test_every_check_and_every_measured_claim_has_a_view():
    assert set(FAMILIES) <= set(ENTRIES)
    assert [each.id for each in ledger() if each.check and each.id not in FAMILIES] == ["mukhoti2020.ts-identity"]
    for claim in MEASURED:
        for view in views_of(ENTRIES[claim]):
            assert view.rows, claim
            assert all(len(row) == len(view.headings) for row in view.rows), claim


@pytest.mark.parametrize(
    "make", sorted(set(FAMILIES.values()), key=lambda each: each.__name__), ids=lambda each: each.__name__
)
@pytest.mark.slow
def test_a_family_has_whole_tables_and_plots(make):
    for view in make():
        assert bool(view.plot) != bool(view.rows)
        assert all(len(row) == len(view.headings) for row in view.rows)
        assert "nan" not in view.plot + str(view.rows)


def test_a_view_has_the_numbers_of_the_result_files():
    (view, *_) = views_of(ENTRIES["mukhoti2020.table3"])
    run = recorded()["cpu/toy-translation"].of("ce")[0]
    assert view.headings == ("method", "number", "mean", "seed 0", "seed 1")
    row = next(row for row in view.rows if row[:2] == ("cross-entropy", "ECE, % as trained"))
    assert row[3] == f"{100 * run.phases['pre']['ece_ew'][0]:.2f}"


def test_a_plot_puts_values_where_they_belong():
    lines = plot({"x: one half": lambda x: 0 * x + 0.5}, (0, 1), (0, 1), width=10, height=5).splitlines()
    assert [line.count("x") for line in lines] == [0, 0, 3, 0, 0, 0, 0, 1]
    assert lines[0].startswith("       1 ┤")
    outside = plot({"x: above": lambda x: 0 * x + 2}, (0, 1), (0, 1), width=10, height=5).splitlines()
    assert not any("x" in line for line in outside[:5])


def test_bars_rise_with_their_values():
    assert bars((1.0, 2.0, 3.0)) == "▁▅█"
    assert bars((2.0, 2.0)) == "▁▁"
    assert len(bars(tuple(range(100)))) == 16
