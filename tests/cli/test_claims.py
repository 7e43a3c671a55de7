"""`focalcal claims`, run as a process; a failing check is shown in this one, where the library can be broken."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import focalcal as fc
from focalcal import cli, papers
from focalcal.cli.claims import ClaimsResult

SCRIPT = Path(sys.executable).with_name("focalcal")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, "claims", *arguments], capture_output=True, text=True, timeout=300, check=False)


def in_process(monkeypatch, capsys, *arguments):
    """The exit code of a run in this process, and what it printed."""
    monkeypatch.setattr(sys, "argv", ["focalcal", "claims", *arguments])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    return leaving.value.code, capsys.readouterr().out


def break_gradient_ratio(monkeypatch):
    true = fc.gradient_ratio
    monkeypatch.setattr(fc, "gradient_ratio", lambda p, gamma: 1.01 * true(p, gamma))


def test_a_paper_with_json_gives_every_claim_its_verdict():
    answer = run("ghosh2022", "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    document = json.loads(answer.stdout)
    assert (document["schema"], document["command"]) == (1, "claims")
    assert [row["id"] for row in document["rows"]] == [row["id"] for row in papers.claims("ghosh2022")]
    verdicts = [row["verdict"] for row in document["rows"]]
    assert (document["hold"], document["hold_with_a_correction"]) == (21, 2)
    assert (verdicts.count("holds"), verdicts.count("holds with a correction")) == (21, 2)
    assert document["need_training"] == verdicts.count("needs training") == 43
    assert (document["failed"], document["not_run"]) == (0, 0)
    for row in document["rows"]:
        assert (row["seconds"] is None) == (row["verdict"] == "needs training")
        assert bool(row["printed"]) == (row["verdict"] == "holds with a correction")
    TypeAdapter(ClaimsResult).validate_python(document)


def test_a_table_has_the_verdicts_then_the_corrections_then_one_line():
    answer = run("mukhoti2020.eq3", "mukhoti2020.fig1", "mukhoti2020.g.p0-gamma1", "ghosh2022")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert cells[0] == ["claim", "where", "verdict", "seconds"]
    assert len(cells) == 1 + 3 + 23
    assert cells[1][:3] == ["mukhoti2020.eq3", "sec. 2, eq. 3", "holds with a correction"]
    assert cells[2] == ["mukhoti2020.fig1", "sec. 3, fig. 1", "needs training: not run", ""]
    assert cells[4][:3] == ["ghosh2022.eq1", "sec. 3, eq. 1", "holds"]
    assert "  printed: For gamma = 1, p0 is about 0.4." in lines
    assert "  true: p0 = 1/e = 0.3679. At 0.4, g is 0.967." in lines
    assert lines[-1].startswith("25 exact claims checked in ")
    assert lines[-1].endswith(
        " s: 21 hold as printed, 4 with a correction; 44 need trained networks and are listed by --list."
    )


def test_an_id_shows_the_claim_in_full():
    answer = run("komisarenko2024.prop5.lemma")
    assert (answer.returncode, answer.stderr) == (0, "")
    (check,) = [check for check in papers.checks() if check.id == "komisarenko2024.prop5.lemma"]
    (claim,) = papers.claims(check.id)
    for text in (check.id, check.claim, claim["note"], check.printed, check.true, check.checked, check.name):
        assert text in answer.stdout
    assert "  where: App. A.5 of komisarenko2024\n" in answer.stdout
    assert "  result: holds with a correction, in 0." in answer.stdout


def test_an_id_of_a_claim_that_needs_training_says_what_it_needs():
    answer = run("mukhoti2020.fig1")
    assert answer.returncode == 0
    assert "  needs: the paper's own training runs\n  result: needs training: not run\n" in answer.stdout
    assert answer.stdout.endswith("\n1 needs trained networks.\n")


def test_list_shows_all_231_and_runs_nothing(monkeypatch, capsys):
    answer = run("--list")
    assert (answer.returncode, answer.stderr) == (0, "")
    listed = [line.split("|")[1].strip() for line in answer.stdout.splitlines() if line.startswith("| ")]
    assert listed[1:] == [row["id"] for row in papers.claims()]
    assert answer.stdout.count("arithmetic only, and a correction") == 25
    assert answer.stdout.endswith("\n105 exact claims, checked by running without --list; 126 need trained networks.\n")
    monkeypatch.setattr(papers, "run_check", None)
    code, printed = in_process(monkeypatch, capsys, "--list", "--json")
    document = json.loads(printed)
    assert code == 0
    assert (len(document["rows"]), document["not_run"], document["need_training"]) == (231, 105, 126)
    assert all(row["seconds"] is None for row in document["rows"])


def test_quiet_prints_the_last_line_only():
    answer = run("mukhoti2020.g.limits", "-q")
    assert answer.returncode == 0
    assert re.fullmatch(
        r"1 exact claim checked in \d+\.\d s: 1 holds as printed, 0 with a correction\.\n", answer.stdout
    )


@pytest.mark.parametrize(
    ("name", "nearest"), [("komisarenko2024.porp5", "komisarenko2024.prop5"), ("mukoti2020", "mukhoti2020")]
)
def test_an_unknown_name_leaves_with_2_and_the_nearest_ones(name, nearest):
    answer = run("mukhoti2020.eq1", name)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("focalcal: claim: must be the id of a claim or of a paper; got ")
    assert f" {nearest}" in answer.stderr.split("Nearest:")[1]
    assert answer.stderr.count("\n") == 1


def test_a_failing_check_leaves_with_1_and_says_why(monkeypatch, capsys):
    break_gradient_ratio(monkeypatch)
    code, printed = in_process(monkeypatch, capsys, "mukhoti2020.g.limits", "mukhoti2020.eq1")
    assert code == 1
    assert "  result: FAILED, in " in printed
    assert "  because: AssertionError at line " in printed
    assert "2 exact claims checked in " in printed
    assert "1 holds as printed, 0 with a correction, 1 FAILED." in printed


def test_a_failing_check_is_in_the_table_and_in_json(monkeypatch, capsys):
    break_gradient_ratio(monkeypatch)
    code, printed = in_process(monkeypatch, capsys, "ghosh2022")
    assert code == 1
    assert "FAILED" in next(line for line in printed.splitlines() if line.startswith("| ghosh2022.eq1 "))
    assert "\nghosh2022.eq1\n  FAILED: AssertionError: " in printed
    code, printed = in_process(monkeypatch, capsys, "ghosh2022.eq1", "--json")
    assert code == 1
    document = json.loads(printed)
    assert (document["failed"], document["rows"][0]["verdict"]) == (1, "failed")
    assert "gradient_ratio" in document["rows"][0]["message"]


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
    table = text[text.index("╭") : text.index("╯")]
    for check in papers.checks():
        assert (f"│ {check.id} " in table) == (check.paper == "ghosh2022")
