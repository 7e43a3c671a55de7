"""The pages of docs/: their tables and numbers are what the result files give."""

from __future__ import annotations

import re

import pytest

from focalcal.drawing import bytes_of
from reproduction import build
from reproduction.build import DOCS, build_page, pages, unequal_numbers
from reproduction.labels import LITTLE
from reproduction.markdown import TABLES, MarkdownTable, best_in_bold
from reproduction.recipe_numbers import RecipeNumbers, recorded_numbers
from reproduction.result_figures import result_figures

from .made_results import evidence

# Decimals in sentences that quote no table: definitions and what the papers print.
QUOTED = {
    "after_training.md": {"0.95", "-0.5", "0.1", "0.01"},
    "out_of_distribution.md": {"2.4"},
    "translation.md": {"0.1"},
    "gamma.md": {"3.5"},
}


@pytest.fixture(scope="module")
def results():
    return recorded_numbers()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_has_the_tables_and_numbers_that_the_files_give(page, results):
    text = page.read_text(encoding="utf-8")
    assert build_page(text, results) == text, "run: python -m reproduction.build"
    assert list(unequal_numbers(text, results)) == []


def test_every_table_stands_on_a_page_once():
    places = re.findall(r"\n<!-- table: (\S+) -->", "".join(page.read_text(encoding="utf-8") for page in pages()))
    assert sorted(places) == sorted(TABLES)


@pytest.mark.parametrize(
    "page", [page for page in pages() if page.parent.name == "results"], ids=lambda page: page.name
)
def test_a_decimal_in_a_sentence_names_the_cell_that_it_quotes(page):
    text = re.sub(r"<!-- table: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(
        r"[-+]?[\d.,]+<!--= .*? -->|`[^`]*`|\]\([^)]*\)|(Sec\.|Thm\.|App\.|LS-|FL-|[Tt]ables?) ?[\d.]+", "", text
    )
    assert set(re.findall(r"-?\d+\.\d+", text)) <= QUOTED.get(page.name, set())


def test_a_number_that_is_not_its_cell_is_found(results):
    cell = "losses.trained.cifar10-s-resnet8 | AdaFocal | ECE"
    assert list(unequal_numbers(f"It is 1.99<!--= {cell} -->, or 2.0<!--= {cell} --> %.", results)) == []
    assert list(unequal_numbers(f"It ends at 0.38<!--= {cell} | 2 --> %.", results)) == []
    (wrong,) = unequal_numbers(f"It is 2.1<!--= {cell} --> %.", results)
    assert wrong.startswith("2.1: ")
    assert "1.99" in wrong
    (missing,) = unequal_numbers("It is 2.1<!--= losses.trained.cifar10-s-resnet8 | AdaFocus | ECE -->.", results)
    assert "is no cell" in missing


def test_a_table_is_put_between_its_marks(monkeypatch):
    monkeypatch.setitem(TABLES, "made.up", lambda results: MarkdownTable(["a", "b"], [["x", "1"]]))
    page = "Before.\n\n<!-- table: made.up -->\nold\n<!-- end -->\n\nAfter.\n"
    made = build_page(page, {})
    assert made == (
        "Before.\n\n<!-- table: made.up -->\n\n| a | b |\n|---|---:|\n| x | 1 |\n\n<!-- end -->\n\nAfter.\n"
    )
    assert build_page(made, {}) == made


def test_tables_of_hand_made_results():
    """Errors of 0.2 + 0.001 for each seed, and 0.0001 for each letter of the name of the loss."""
    numbers = RecipeNumbers(evidence(LITTLE))
    table = TABLES["losses.trained.cifar10-s-resnet8"]({LITTLE: numbers})
    assert table.cell("cross-entropy", "ECE") == "**20.07** ± 0.07"
    assert table.cell("FLSD-53", "ECE") == "20.12 ± 0.07"
    assert table.cell("FLSD-53", "over 99 % sure") == "20.1 ± 0.1"
    scaled = TABLES["losses.scaled.cifar10-s-resnet8"]({LITTLE: numbers})
    assert scaled.cell("cross-entropy", "T by NLL") == "1.50 ± 0.00"
    maps = TABLES["gamma.maps.cifar10-s-resnet8"]({LITTLE: numbers})
    assert maps.cell("2", "Psi^gamma - as trained, points") == "-10.00"
    assert maps.cell("2", "better, worse") == "2, 0 of 2"


def test_the_lowest_mean_is_bold_as_rounded():
    assert best_in_bold([[1.481], [1.519], [], [3.0]], 1) == ["**1.5**", "**1.5**", "", "3.0"]
    assert best_in_bold([[1.0], [2.0]], 0, best=max) == ["1", "**2**"]


@pytest.mark.slow
def test_the_figures_are_those_of_the_docs(results):
    """Bytes depend on the version of matplotlib: the committed ones were drawn with that of constraints.txt."""
    figures = result_figures()
    assert {path.stem for path in (DOCS / "results/images").glob("*.svg")} == set(figures)
    for name, draw in figures.items():
        there = (DOCS / "results/images" / f"{name}.svg").read_bytes()
        assert there == bytes_of(draw(results), "svg"), f"{name}: run python -m reproduction.build"


def test_the_command_checks_and_writes(tmp_path, monkeypatch, capsys):
    (tmp_path / "results" / "images").mkdir(parents=True)
    page = tmp_path / "page.md"
    page.write_text("5<!--= made.up | x | b -->\n\n<!-- table: made.up -->\n<!-- end -->\n")
    monkeypatch.setattr(build, "DOCS", tmp_path)
    monkeypatch.setattr(build, "result_figures", dict)
    monkeypatch.setattr(build.ledger, "FILE", tmp_path / "ledger.json")
    monkeypatch.setattr(build.ledger, "file_content", lambda results: b"[]")
    monkeypatch.setitem(TABLES, "made.up", lambda results: MarkdownTable(["a", "b"], [["x", "1"]]))
    assert build.main(["--check"]) == 3
    assert "| x | 1 |" not in page.read_text()
    assert build.main([]) == 3  # the number is not that of the table
    assert "5: made.up | x | b is 1" in capsys.readouterr().err
    assert "| x | 1 |" in page.read_text()
    page.write_text(page.read_text().replace("5<!--", "1<!--"))
    assert build.main(["--check"]) == 0
