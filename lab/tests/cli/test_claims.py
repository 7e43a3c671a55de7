"""`focalcal claims`, as a user types it."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest

import focalcal as fc
from focalcal_lab import papers
from focalcal_lab.papers import illustrations
from tests.cli.tools import SCRIPT, call


def claims(*arguments):
    return call("claims", *arguments)


def break_gradient_ratio(monkeypatch):
    true = fc.gradient_ratio
    monkeypatch.setattr(fc, "gradient_ratio", lambda p, gamma: 1.01 * true(p, gamma))


def test_json_gives_every_claim_its_verdict(monkeypatch):
    monkeypatch.setattr(papers, "run_check", lambda id: papers.CheckResult(id, True, 0.5, ""))
    document = claims("ghosh2022", "--json").json()
    assert (document["schema"], document["command"]) == (1, "claims")
    assert [row["id"] for row in document["rows"]] == [row["id"] for row in papers.claims("ghosh2022")]
    verdicts = [row["verdict"] for row in document["rows"]]
    assert (document["hold"], document["hold_with_a_correction"]) == (21, 2)
    assert (verdicts.count("holds"), verdicts.count("holds with a correction")) == (21, 2)
    assert document["need_training"] == verdicts.count("needs training") == 43
    assert (document["failed"], document["not_run"], document["seconds"]) == (0, 0, 11.5)
    for row in document["rows"]:
        assert (row["seconds"] is None) == (row["verdict"] == "needs training")
        assert bool(row["printed"]) == (row["standing"] == "holds with a correction")
        assert row["tables"] == []
    assert document["standings"] == {
        "holds with a correction": 3,
        "proved numerically": 21,
        "measured": 17,
        "does not hold here": 9,
        "set-up kept by a recipe": 4,
        "needs a GPU recipe": 12,
    }


def test_a_table_has_the_verdicts_then_the_corrections_then_one_line(monkeypatch):
    monkeypatch.setattr(papers, "run_check", lambda id: papers.CheckResult(id, True, 0.5, ""))
    answer = claims("mukhoti2020.eq3", "mukhoti2020.fig1", "mukhoti2020.g.p0-gamma1", "ghosh2022")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert cells[0] == ["standing", "claims"]
    counted = cells[: cells.index(["claim", "where", "verdict", "seconds"])]
    assert ["measured", "18"] in counted
    assert sum(int(number) for _, number in counted[1:]) == 69
    cells = cells[len(counted) :]
    assert len(cells) == 1 + 3 + 23
    assert cells[1] == ["mukhoti2020.eq3", "sec. 2, eq. 3", "holds with a correction", "0.50"]
    assert cells[2] == ["mukhoti2020.fig1", "sec. 3, fig. 1", "measured: seen here", ""]
    assert cells[4][:3] == ["ghosh2022.eq1", "sec. 3, eq. 1", "holds"]
    assert "  printed: For gamma = 1, p0 is about 0.4." in lines
    assert "  true: p0 = 1/e = 0.3679. At 0.4, g is 0.967." in lines
    assert lines[-1] == (
        "25 exact claims checked in 12 s: 21 hold as printed, 4 with a correction; 44 others (1 holds with a "
        "correction, 18 measured, 9 does not hold here, 4 set-up kept by a recipe, 12 needs a GPU recipe; "
        "--list has them)."
    )


def test_an_id_shows_the_claim_in_full():
    answer = claims("komisarenko2024.prop5.lemma")
    assert (answer.code, answer.err) == (0, "")
    (check,) = [check for check in papers.checks() if check.id == "komisarenko2024.prop5.lemma"]
    (claim,) = papers.claims(check.id)
    for text in (check.id, check.claim, claim["note"], check.printed, check.true, check.checked, check.name):
        assert text in answer.out
    assert "  where: App. A.5 of komisarenko2024\n" in answer.out
    assert "  result: holds with a correction, in " in answer.out
    assert "equation" not in answer.out


def test_an_id_of_a_claim_about_networks_says_what_was_found():
    answer = claims("mukhoti2020.fig1")
    assert answer.code == 0
    assert "  found: Share of training rows in the top bin at the start" in answer.out
    assert "  runs: 6, up to 3 seeds, of cpu/cifar10-s-resnet8, cpu/cifar10-s-resnet20\n" in answer.out
    assert "\n  result: measured: seen here\n" in answer.out
    assert answer.out.endswith("\n1 claim (1 measured).\n")


def test_a_claim_that_needs_a_gpu_names_the_command():
    answer = claims("mukhoti2020.top5")
    assert answer.code == 0
    assert "  recipe: focalcal lab run mukhoti2020/cifar100-resnet50\n  result: needs a GPU recipe\n" in answer.out


def test_show_explains_a_claim_with_its_equation_and_a_table():
    answer = claims("show", "mukhoti2020.g.threshold")
    assert answer.code == 0
    assert "  equation: g(p, γ) = (1 − p)^γ − γ p (1 − p)^(γ−1) log p\n            g ≥ 1 on [0, p₀]" in answer.out
    assert "| 0.25258 |" in answer.out
    assert "1 exact claim checked in " in answer.out


SLOW = (illustrations.line, illustrations.scaling)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=make.__name__, marks=pytest.mark.slow if make in SLOW else [])
        for make in illustrations._CLAIMS
    ],
)
def test_every_illustration_is_a_table_of_known_claims(make):
    table = make()
    assert table.title
    assert table.rows
    assert all(len(row) == len(table.headings) for row in table.rows)
    for paper, names in illustrations._CLAIMS[make].items():
        assert len(papers.claims(*(f"{paper}.{name}" for name in names.split()))) == len(names.split())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "`focalcal claims show` needs the id of a claim"),
        (("ghosh2022",), "must be the id of one claim; got the paper 'ghosh2022'"),
        (("ghosh2022.eq44",), "Nearest: ghosh2022.eq4"),
    ],
)
def test_show_refuses_what_is_no_claim(names, said):
    answer = claims("show", *names)
    assert answer.code == 2
    assert said in answer.err


def test_list_shows_all_231_and_runs_nothing(monkeypatch):
    monkeypatch.setattr(papers, "run_check", None)
    answer = claims("--list")
    assert (answer.code, answer.err) == (0, "")
    listed = [line.split("|")[1].strip() for line in answer.out.splitlines() if line.startswith("| ")]
    assert listed[listed.index("claim") + 1 :] == [row["id"] for row in papers.claims()]
    assert answer.out.count("measured: seen here") == 28
    assert answer.out.count("needs a GPU recipe") == 28 + 2  # in the counts and in the last line
    assert "\n105 exact claims, checked by running without --list; 126 others (" in answer.out
    document = claims("--list", "--json").json()
    assert (len(document["rows"]), document["not_run"], document["need_training"]) == (231, 105, 126)
    assert all(row["seconds"] is None for row in document["rows"])


def test_quiet_prints_the_last_line_only():
    answer = claims("mukhoti2020.g.limits", "-q")
    assert answer.code == 0
    assert re.fullmatch(r"1 exact claim checked in \d+\.\d s: 1 holds as printed, 0 with a correction\.\n", answer.out)


@pytest.mark.parametrize(
    ("name", "nearest"), [("komisarenko2024.porp5", "komisarenko2024.prop5"), ("mukoti2020", "mukhoti2020")]
)
def test_an_unknown_name_leaves_with_2_and_the_nearest_ones(name, nearest):
    answer = claims("mukhoti2020.eq1", name)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("focalcal: claim: must be the id of a claim or of a paper; got ")
    assert f" {nearest}" in answer.err.split("Nearest:")[1]
    assert answer.err.count("\n") == 1


def test_a_failing_check_leaves_with_1_and_says_why(monkeypatch):
    break_gradient_ratio(monkeypatch)
    answer = claims("mukhoti2020.g.limits", "mukhoti2020.eq1")
    assert answer.code == 1
    assert "  result: FAILED, in " in answer.out
    assert "  because: AssertionError at line " in answer.out
    assert "2 exact claims checked in " in answer.out
    assert "1 holds as printed, 0 with a correction, 1 FAILED." in answer.out


def test_a_failing_check_is_in_the_table_and_in_json(monkeypatch):
    failed = papers.CheckResult("ghosh2022.eq1", False, 0.5, "AssertionError: gradient_ratio")
    monkeypatch.setattr(
        papers, "run_check", lambda id: failed if id == failed.id else papers.CheckResult(id, True, 0.5, "")
    )
    answer = claims("ghosh2022")
    assert answer.code == 1
    assert "FAILED" in next(line for line in answer.out.splitlines() if line.startswith("| ghosh2022.eq1 "))
    assert "\nghosh2022.eq1\n  FAILED: AssertionError: " in answer.out
    answer = claims("ghosh2022.eq1", "--json")
    assert answer.code == 1
    assert '"failed": 1' in answer.out
    assert "gradient_ratio" in answer.out


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_whole_ids():
    ours, theirs = pty.openpty()
    # Rich asks the environment for the width; the claim and the corrections must not be cut at 80 columns.
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", "NO_COLOR": "1"}
    process = subprocess.Popen([SCRIPT, "claims", "ghosh2022"], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux ends a pseudo-terminal with an error
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    text = seen.decode()
    assert "━" in text
    _, table, *_ = text.split("╭")[1:]  # the first table has the counts
    table = table[: table.index("╯")]
    for check in papers.checks():
        assert (f"│ {check.id} " in table) == (check.paper == "ghosh2022")
