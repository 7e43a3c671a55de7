"""docs/figures.md, and the command that writes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reproduction.figures import all_figures, not_drawn
from reproduction.figures.__main__ import main
from reproduction.figures.page import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_code_says():
    there = (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    assert there == page(), "run: python -m reproduction.figures docs/images/figures --page docs/figures.md"


def test_the_page_shows_every_figure_once_and_links_to_files_that_exist():
    text = page()
    pictures = re.findall(r"!\[[^\]]+\]\(images/figures/([^)]+)\.svg\)", text)
    assert pictures == [each.name for each in all_figures()]
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / "docs" / target).resolve().exists(), target
    for _, number, reason in not_drawn():
        assert f"- Fig. {number}: {reason}" in text


def test_no_picture_is_left_over():
    there = {path.stem for path in (ROOT / "docs/images/figures").glob("*.svg")}
    assert there == {each.name for each in all_figures()}


def test_the_command_draws_what_is_named(tmp_path, capsys):
    assert main([str(tmp_path), "charoenphakdee2021-fig1", "--format", "png"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(tmp_path / "charoenphakdee2021-fig1.png")]
    assert err == ""  # nobody is watching


def test_the_command_says_what_it_draws_to_who_watches(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main([str(tmp_path), "charoenphakdee2021-fig1"]) == 0
    assert capsys.readouterr().err == "drawing charoenphakdee2021-fig1\n"


def test_the_command_lists_everything(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(all_figures())]] == [each.name for each in all_figures()]
    assert len(lines) == len(all_figures()) + len(not_drawn())


def test_the_command_writes_the_page_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--page", "gallery.md"]) == 0
    assert Path("gallery.md").read_text(encoding="utf-8") == page()
    assert [path.name for path in tmp_path.iterdir()] == ["gallery.md"]


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["new", "komisarenko2024-fig99"], "Nearest: komisarenko2024-fig", 2),
        (["new", "charoenphakdee2021-fig1", "--format", "gif"], "formats: must be among", 2),
        (["--page", "no/such/folder/page.md"], "No such file or directory", 1),
    ],
)
def test_the_command_explains_what_is_wrong(tmp_path, capsys, monkeypatch, arguments, said, code):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_the_command_has_help_and_refuses_unknown_options(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert "komisarenko2024-fig3" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main(["--unknown"])
    assert left.value.code == 2
