"""Every figure of the papers: drawn as committed, in colours that can be told apart, and shown on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.text import Text

from focalcal import drawing as look
from focalcal.drawing import bytes_of
from focalcal.errors import InputError
from reproduction.figures import PAPERS, all_figures, find_figures, save_figures
from reproduction.figures.__main__ import main

from .drawn import figure

DOCS = Path(__file__).resolve().parents[3] / "docs"
COLOURS = {colour.lower() for colour in (*look.PALETTE, look.PALE_BLUE, look.BLACK, look.GREY, look.GRID, "#ffffff")}
ONE = "charoenphakdee2021-fig1"


def test_figures_are_in_the_order_of_papers_and_numbers():
    names = [name.split("-fig") for name in all_figures()]
    places = [(PAPERS.index(paper), int(number)) for paper, number in names]
    assert places == sorted(places)
    assert len(places) == 31
    assert all(draw.__doc__ for draw in all_figures().values())


@pytest.mark.slow
@pytest.mark.parametrize("name", all_figures())
def test_a_figure_is_that_of_the_docs(name):
    """Bytes depend on the version of matplotlib: the committed ones were drawn with that of constraints.txt."""
    content = bytes_of(figure(name), "svg")
    there = (DOCS / f"images/figures/{name}.svg").read_bytes()
    assert there == content, "run: python -m reproduction.figures docs/images/figures"
    assert len(content) < 150_000


@pytest.mark.slow
@pytest.mark.parametrize("name", all_figures())
def test_a_figure_has_fonts_of_7_points_and_colours_of_the_palette(name):
    drawn = figure(name)
    assert all(text.get_fontsize() >= 7 for text in drawn.findobj(Text) if text.get_text() and text.get_visible())
    lines = [line for ax in drawn.axes for line in ax.findobj(Line2D) if line in ax.lines]
    assert {to_hex(line.get_color()) for line in lines} <= COLOURS
    assert drawn.get_size_inches()[0] <= 2 * look.COLUMN


def test_the_page_shows_every_figure_once_with_a_caption():
    text = (DOCS / "figures.md").read_text(encoding="utf-8")
    assert re.findall(r"!\[[^\]]+\]\(images/figures/([^)]+)\.svg\)\n\n.{40}", text) == list(all_figures())
    assert {path.stem for path in (DOCS / "images/figures").glob("*.svg")} == set(all_figures())
    for name in all_figures():
        paper, number = name.split("-fig")
        assert f"Drawn by [`reproduction.figures.{paper}.fig{number}`](../reproduction/figures/{paper}.py)" in text


@pytest.mark.slow
def test_a_figure_drawn_twice_gives_the_same_files_without_a_date(tmp_path):
    first, again = (
        [path.read_bytes() for path in save_figures(tmp_path / name, [ONE], ["svg", "pdf", "png"])]
        for name in ("first", "again")
    )
    assert first == again
    assert [content[:4] for content in first] == [b"<?xm", b"%PDF", b"\x89PNG"]
    assert b"<dc:date>" not in first[0]
    assert b"CreationDate" not in first[1]


@pytest.mark.parametrize(
    ("names", "formats", "said"),
    [
        (["komisarenko2024-fig33"], ["svg"], "must be names of figures or papers; got 'komisarenko2024-fig33'"),
        ([ONE], ["gif"], "formats: must be among png, svg, pdf; got ['gif']"),
        ([ONE], [], "got none"),
    ],
)
def test_wrong_names_and_formats_are_refused_and_nothing_is_written(tmp_path, names, formats, said):
    with pytest.raises(InputError) as caught:
        save_figures(tmp_path / "new", names, formats)
    assert said in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_paper_stands_for_all_of_its_figures():
    assert list(find_figures(["komisarenko2024"])) == [f"komisarenko2024-fig{number}" for number in range(1, 9)]
    assert find_figures() == all_figures()


def test_the_command_draws_lists_and_refuses(tmp_path, capsys):
    assert main([str(tmp_path), ONE, "--format", "png"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{ONE}.png")]
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(all_figures())
    assert main([str(tmp_path / "new"), "komisarenko2024-fig99"]) == 2
    assert capsys.readouterr().err.startswith("error: names: must be")
    assert not (tmp_path / "new").exists()
