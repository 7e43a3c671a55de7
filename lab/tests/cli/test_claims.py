"""`focalcal claims`, run as a process; a failing check is shown in this one, where the library can be broken."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import focalcal as fc
from focalcal import cli, papers
from focalcal_lab.cli.claims import ClaimsResult

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
        assert bool(row["printed"]) == (row["standing"] == "holds with a correction")
        assert row["views"] == []
    assert document["standings"] == {
        "holds with a correction": 3,
        "proved numerically": 21,
        "measured": 17,
        "does not hold here": 9,
        "set-up kept by a recipe": 4,
        "needs a GPU recipe": 12,
    }
    TypeAdapter(ClaimsResult).validate_python(document)


def test_a_table_has_the_verdicts_then_the_corrections_then_one_line():
    answer = run("mukhoti2020.eq3", "mukhoti2020.fig1", "mukhoti2020.g.p0-gamma1", "ghosh2022")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert cells[0] == ["standing", "claims"]
    counted = cells[: cells.index(["claim", "where", "verdict", "seconds"])]
    assert ["measured", "18"] in counted
    assert sum(int(number) for _, number in counted[1:]) == 69
    cells = cells[len(counted) :]
    assert len(cells) == 1 + 3 + 23
    assert cells[1][:3] == ["mukhoti2020.eq3", "sec. 2, eq. 3", "holds with a correction"]
    assert cells[2] == ["mukhoti2020.fig1", "sec. 3, fig. 1", "measured: seen here", ""]
    assert cells[4][:3] == ["ghosh2022.eq1", "sec. 3, eq. 1", "holds"]
    assert "  printed: For gamma = 1, p0 is about 0.4." in lines
    assert "  true: p0 = 1/e = 0.3679. At 0.4, g is 0.967." in lines
    assert lines[-1].startswith("25 exact claims checked in ")
    assert lines[-1].endswith(
        " s: 21 hold as printed, 4 with a correction; 44 others (1 holds with a correction, 18 measured, "
        "9 does not hold here, 4 set-up kept by a recipe, 12 needs a GPU recipe; --list has them)."
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


def test_an_id_of_a_claim_about_networks_says_what_was_found():
    answer = run("mukhoti2020.fig1")
    assert answer.returncode == 0
    assert "  found: Share of training rows in the top bin at the start" in answer.stdout
    assert "  results: reproduction/results/cifar10-s-resnet8.json, " in answer.stdout
    assert "(6 runs, up to 3 seeds)\n  result: measured: seen here\n" in answer.stdout
    assert answer.stdout.endswith("\n1 claim (1 measured).\n")


def test_a_claim_that_needs_a_gpu_names_the_command(monkeypatch, capsys):
    code, printed = in_process(monkeypatch, capsys, "mukhoti2020.top5")
    assert code == 0
    assert "  recipe: focalcal lab run mukhoti2020/cifar100-resnet50\n  result: needs a GPU recipe\n" in printed


def test_show_explains_a_claim_with_its_equation_a_plot_and_a_table(monkeypatch, capsys):
    code, printed = in_process(monkeypatch, capsys, "show", "mukhoti2020.g.threshold")
    assert code == 0
    assert "  equation: g(p, γ) = (1 − p)^γ − γ p (1 − p)^(γ−1) log p\n            g ≥ 1 on [0, p₀]" in printed
    assert "  test: lab/tests/claims/test_checks.py::test_check_passes[mukhoti2020.g.threshold]\n" in printed
    assert "1: γ = 1   3: γ = 3   5: γ = 5   7: γ = 7" in printed
    assert "| 0.25258 |" in printed
    assert "1 exact claim checked in " in printed


def test_show_has_the_numbers_of_a_measured_claim_by_seed(monkeypatch, capsys):
    code, printed = in_process(monkeypatch, capsys, "show", "mukhoti2020.sec4.gamma-order")
    assert code == 0
    assert "cpu/cifar10-s-resnet8\n" in printed
    head = next(line for line in printed.splitlines() if line.startswith("| method"))
    assert [cell.strip() for cell in head.split("|")[1:-1]] == [
        "method",
        "number",
        "mean",
        "seed 0",
        "seed 1",
        "seed 2",
    ]
    first = next(line for line in printed.splitlines() if line.startswith("| FL-1 "))
    mean, *seeds = (float(cell) for cell in first.split("|")[3:7])
    assert mean == pytest.approx(10.88)
    assert mean == pytest.approx(sum(seeds) / 3, abs=0.01)
    code, printed = in_process(monkeypatch, capsys, "show", "mukhoti2020.sec4.gamma-order", "--json")
    (row,) = json.loads(printed)["rows"]
    assert [view["title"] for view in row["views"]] == row["recipes"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "`focalcal claims show` needs the id of a claim"),
        (("ghosh2022",), "must be the id of one claim; got the paper 'ghosh2022'"),
        (("ghosh2022.eq44",), "Nearest: ghosh2022.eq4"),
    ],
)
def test_show_refuses_what_is_no_claim(monkeypatch, capsys, names, said):
    monkeypatch.setattr(sys, "argv", ["focalcal", "claims", "show", *names])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 2
    assert said in capsys.readouterr().err


def test_figures_are_drawn_into_the_folder_and_nothing_is_run(monkeypatch, capsys, tmp_path):
    def save_figures(folder, names=None, formats=("svg",)):
        return [Path(folder) / f"mukhoti2020-fig4.{each}" for each in formats]

    module = types.ModuleType("reproduction.figures")
    module.save_figures = save_figures
    monkeypatch.setitem(sys.modules, "reproduction.figures", module)
    monkeypatch.setattr(papers, "run_check", None)
    code, printed = in_process(monkeypatch, capsys, "--figures", str(tmp_path))
    assert (code, printed) == (0, f"1 figure written to {tmp_path}.\n")
    code, printed = in_process(monkeypatch, capsys, "--figures", str(tmp_path), "--json")
    assert json.loads(printed)["figures"] == [str(tmp_path / "mukhoti2020-fig4.svg")]


def test_list_shows_all_231_and_runs_nothing(monkeypatch, capsys):
    answer = run("--list")
    assert (answer.returncode, answer.stderr) == (0, "")
    listed = [line.split("|")[1].strip() for line in answer.stdout.splitlines() if line.startswith("| ")]
    assert listed[listed.index("claim") + 1 :] == [row["id"] for row in papers.claims()]
    assert answer.stdout.count("measured: seen here") == 28
    assert answer.stdout.count("needs a GPU recipe") == 28 + 2  # in the counts and in the last line
    assert "\n105 exact claims, checked by running without --list; 126 others (" in answer.stdout
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
    _, table, *_ = text.split("╭")[1:]  # the first table has the counts
    table = table[: table.index("╯")]
    for check in papers.checks():
        assert (f"│ {check.id} " in table) == (check.paper == "ghosh2022")
