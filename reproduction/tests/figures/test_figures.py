"""Every figure of the papers: it draws, always the same, as committed, in colours that can be told apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from focalcal import drawing as look
from focalcal.drawing import bytes_of
from focalcal.errors import InputError
from reproduction.figures import PAPERS, all_figures, find_figures, not_drawn, save_figures

IMAGES = Path(__file__).resolve().parents[2] / "docs/images/figures"
COLOURS = {colour.lower() for colour in (*look.PALETTE, look.PALE_BLUE, look.BLACK, look.GREY, look.GRID, "#ffffff")}
NAMES = [each.name for each in all_figures()]


@pytest.fixture(scope="module")
def drawn():
    """Figures by name, drawn once for all tests that need one of them."""
    made = {}

    def draw(name):
        if name not in made:
            made[name] = find_figures([name])[0].draw()
        return made[name]

    return draw


def test_all_figures_of_two_papers_are_drawn_or_have_a_reason():
    wanted = {"charoenphakdee2021": range(1, 7), "komisarenko2024": range(1, 9)}
    there = {(each.paper, each.number) for each in all_figures()} | {
        (paper, number) for paper, number, _ in not_drawn()
    }
    assert {(paper, str(number)) for paper, numbers in wanted.items() for number in numbers} <= there


def test_figures_are_in_the_order_of_papers_and_numbers():
    places = [(PAPERS.index(each.paper), int(each.number.rstrip("abcdefgh"))) for each in all_figures()]
    assert places == sorted(places)


@pytest.mark.parametrize("name", NAMES)
def test_words_about_a_figure_are_there(name):
    (each,) = find_figures([name])
    assert min(map(len, (each.title, each.caption, each.alt))) > 10
    assert not any(sign in each.alt for sign in "[]\n")  # it stands in the brackets of a Markdown image
    assert each.draw.__doc__
    assert each.source in ("exact", "recorded")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_gives_the_same_bytes_twice_and_they_are_those_of_the_docs(drawn, name):
    """Bytes depend on the version of matplotlib: the committed ones were drawn with that of constraints.txt."""
    first, again = bytes_of(drawn(name), "svg"), bytes_of(find_figures([name])[0].draw(), "svg")
    assert first == again
    there = (IMAGES / f"{name}.svg").read_bytes()
    assert _digest(there) == _digest(first), (
        "run: python -m reproduction.figures docs/images/figures --page docs/figures.md"
    )
    assert len(first) < 150_000


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_has_fonts_of_7_points_and_colours_of_the_palette(drawn, name):
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    figure = drawn(name)
    assert all(text.get_fontsize() >= 7 for text in figure.findobj(Text) if text.get_text() and text.get_visible())
    lines = [line for ax in figure.axes for line in ax.findobj(Line2D) if line in ax.lines]
    assert {to_hex(line.get_color()) for line in lines} <= COLOURS
    assert figure.get_size_inches()[0] <= 2 * look.COLUMN


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_save_figures_writes_the_wanted_ones(tmp_path):
    seen = []
    paths = save_figures(tmp_path / "new", "charoenphakdee2021-fig1", ("svg", "pdf", "png"), progress=seen.append)
    assert [path.name for path in paths] == [f"charoenphakdee2021-fig1.{form}" for form in ("svg", "pdf", "png")]
    assert [path.read_bytes()[:4] for path in paths] == [b"<?xm", b"%PDF", b"\x89PNG"]
    assert seen == ["charoenphakdee2021-fig1"]


def test_files_carry_no_date_and_do_not_change(tmp_path):
    first, again = (
        [
            path.read_bytes()
            for path in save_figures(tmp_path / name, ["charoenphakdee2021-fig1"], ["svg", "pdf", "png"])
        ]
        for name in ("first", "again")
    )
    assert first == again
    assert b"<dc:date>" not in first[0]
    assert b"CreationDate" not in first[1]


@pytest.mark.parametrize(
    ("names", "formats", "said"),
    [
        (["komisarenko2024-fig33"], "svg", "Nearest: komisarenko2024-fig"),
        (["komisarenko"], "svg", "Nearest: komisarenko2024,"),
        (["nothing like it"], "svg", "--list"),
        (["charoenphakdee2021-fig1"], "gif", "formats: must be among png, svg, pdf; got ['gif']"),
        (["charoenphakdee2021-fig1"], (), "got none"),
    ],
)
def test_wrong_names_and_formats_are_refused_and_nothing_is_written(tmp_path, names, formats, said):
    with pytest.raises(InputError) as caught:
        save_figures(tmp_path / "new", names, formats)
    assert said in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_nothing_is_written_unless_all_could_be_drawn(tmp_path, monkeypatch):
    from reproduction.figures import catalogue

    first, second = find_figures(["charoenphakdee2021-fig1"])[0], catalogue.FIGURES["komisarenko2024", "1"]
    broken = catalogue.PaperFigure(**{**vars(second), "draw": lambda: 1 / 0})
    monkeypatch.setitem(catalogue.FIGURES, ("komisarenko2024", "1"), broken)
    with pytest.raises(ZeroDivisionError):
        save_figures(tmp_path / "new", [first.name, second.name])
    assert not (tmp_path / "new").exists()


def test_a_figure_that_is_not_drawn_is_refused_with_its_reason(monkeypatch):
    from reproduction.figures import catalogue

    monkeypatch.setitem(catalogue.NOT_DRAWN, ("komisarenko2024", "99"), "It needs a telescope.")
    with pytest.raises(InputError, match="It is not drawn: It needs a telescope"):
        find_figures(["komisarenko2024-fig99"])
    assert ("komisarenko2024", "99", "It needs a telescope.") in not_drawn()
