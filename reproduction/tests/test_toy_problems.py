"""The page of the toy problems has the tables that are computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from focalcal_lab.problems import linear_problem
from lab.tests.toy_networks import toy, trained
from reproduction.toy_problems import linear_table, mistakes_table, one_dimensional_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "toy_problems.md"


def numbers(table: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.?\d*", table)]


def table_of_page(first_line: str) -> str:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(first_line)
    end = next(place for place in range(start, len(lines) + 1) if place == len(lines) or not lines[place])
    return "\n".join(lines[start:end]) + "\n"


def test_the_page_has_the_tables_of_the_linear_problem():
    for made in (linear_table(linear_problem()), mistakes_table()):
        shown = table_of_page(made.splitlines()[0])
        assert numbers(shown) == pytest.approx(numbers(made), abs=0.11, rel=0.02)
        assert re.sub(r"[\d.]", "", shown) == re.sub(r"[\d.]", "", made)


@pytest.mark.slow
@toy
def test_the_page_has_the_table_of_the_one_dimensional_problem():
    made = one_dimensional_table(trained())
    shown = table_of_page(made.splitlines()[0])
    # Another version of torch may train a slightly different network.
    assert numbers(shown) == pytest.approx(numbers(made), abs=0.4)
    assert re.sub(r"[\d.]", "", shown) == re.sub(r"[\d.]", "", made)
