"""The page of the toy problems has the tables and figures that are computed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from focalcal_lab.problems import LinearProblem, OneDimensionalProblem, linear_problem, one_dimensional_problem
from reproduction.toy_problems import (
    draw_mistakes,
    draw_norms,
    draw_one_dimensional,
    linear_table,
    main,
    mistakes_table,
    one_dimensional_table,
    save_drawings,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "toy_problems.md"


@pytest.fixture(scope="module")
def linear() -> LinearProblem:
    return linear_problem()


@pytest.fixture(scope="module")
def line() -> OneDimensionalProblem:
    """Small networks on few rows: for what does not need good ones."""
    return one_dimensional_problem(epochs=1, train_size=5000, val_size=2000, test_size=5000)


def numbers(table: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.?\d*", table)]


def table_of_page(first_line: str) -> str:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(first_line)
    end = next(place for place in range(start, len(lines) + 1) if place == len(lines) or not lines[place])
    return "\n".join(lines[start:end]) + "\n"


def test_the_page_has_the_tables_of_the_linear_problem(linear):
    for made in (linear_table(linear), mistakes_table()):
        shown = table_of_page(made.splitlines()[0])
        assert numbers(shown) == pytest.approx(numbers(made), abs=0.11, rel=0.02)
        assert re.sub(r"[\d.]", "", shown) == re.sub(r"[\d.]", "", made)


@pytest.mark.slow
def test_the_page_has_the_table_of_the_one_dimensional_problem():
    made = one_dimensional_table(one_dimensional_problem())
    shown = table_of_page(made.splitlines()[0])
    # Another version of torch may train a slightly different network.
    assert numbers(shown) == pytest.approx(numbers(made), abs=0.4)
    assert re.sub(r"[\d.]", "", shown) == re.sub(r"[\d.]", "", made)


def test_figures_show_the_results(linear, line):
    left, right = draw_norms(linear).axes
    np.testing.assert_array_equal(left.lines[0].get_ydata(), linear.runs[0].logit_norms)
    np.testing.assert_array_equal(right.lines[2].get_ydata(), linear.runs[1].weight_norms)
    histogram, *regions = draw_mistakes(linear).axes
    assert sum(bar.get_height() for bar in histogram.patches[:20]) == len(linear.runs[0].mistakes)
    assert [ax.get_title() for ax in regions] == ["CE: |w| = 1.05", "FL-1: |w| = 0.58"]
    panels = draw_one_dimensional(line).axes
    assert len(panels) == 9
    mapped = line.of(5.0, "focal-map")
    assert f"KL {mapped.kl:.4f}" in panels[-1].get_title()
    np.testing.assert_array_equal(panels[-1].lines[3].get_ydata(), mapped.probs[:, 0])


def test_figures_do_without_cross_entropy():
    problem = one_dimensional_problem(gammas=[1.0], epochs=1, train_size=1000, val_size=500, test_size=500)
    visible = [ax.get_visible() for ax in draw_one_dimensional(problem).axes]
    assert visible == [True, True, False, True, True, True]


def test_files_are_small_and_those_of_the_page(linear, line, tmp_path):
    files = save_drawings(tmp_path / "new", linear, line)
    assert [path.name for path in files] == ["linear_norms.png", "linear_mistakes.png", "one_dimensional.png"]
    for path in files:
        assert path.stat().st_size < 80_000
        assert (PAGE.parent / "images" / path.name).exists()
        assert f"images/{path.name}" in PAGE.read_text(encoding="utf-8")


def test_the_command_needs_one_folder(capsys):
    assert main([]) == 2
    assert "FOLDER" in capsys.readouterr().err
