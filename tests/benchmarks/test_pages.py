"""The pages on speed and on other libraries are what their files say, and the table of features holds."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import comparison
import features
import page
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_on_speed_is_made_from_the_files():
    assert page.PAGE.read_text() == page.page(page.read())


def test_the_comparison_is_made_from_the_files_and_the_table_of_features():
    text = comparison.PAGE.read_text()
    assert text == comparison.filled(text, page.read())


def test_the_page_follows_the_files():
    found = page.read()
    found["losses"]["seconds per step"]["128 x 10"]["focal"] = (
        10 * found["losses"]["seconds per step"]["128 x 10"]["cross-entropy"]
    )
    text = page.page(found)
    assert "- focal at 128 x 10 takes 10.0 times as long as cross-entropy." in text
    assert "- focal at 128 x 10 takes 10.0 of cross-entropy; at most 2.00 was asked." in text


def test_ratios_are_ours_over_theirs_and_judged_by_what_was_asked():
    ratio = page.Ratio("losses", "a", "b", "1 x 2", ours=3.0, theirs=2.0, asked=1.4)
    assert (ratio.value, ratio.missed, ratio.slower) == (1.5, True, True)
    limit = page.Ratio("cli", "a", "b", "1 x 2", ours=3.0, theirs=2.0, asked=1.5, peer=False)
    assert (limit.missed, limit.slower) == (False, False)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0104, "0.010"), (0.4361, "0.44"), (2.675, "2.67"), (46.46, "46.5"), (305.1, "305")]
)
def test_numbers_have_two_or_three_digits(value, shown):
    assert page.number(value) == shown


def test_every_file_has_a_date_and_says_where_it_is_from():
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        place = json.loads(path.read_text())["environment"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", place["date"]), path.name
        assert place.get("date_from") == "commit" or "peers" in place, path.name


def test_every_row_of_features_has_a_cell_for_each_library_and_none_is_open():
    for feature, (cells, released) in features.FEATURES.items():
        assert len(cells) == len(features.LIBRARIES), feature
        assert all(cell.names or cell.lacks for cell in cells), feature
        assert "?" not in released + "".join(cell.words for cell in cells)


@pytest.mark.parametrize("place", range(len(features.LIBRARIES)), ids=features.LIBRARIES)
def test_cells_hold_in_the_files_of_the_library(place):
    library = features.LIBRARIES[place]
    if library == "focalcal":
        names = frozenset(features.defined_names(list((ROOT / "src" / "focalcal").rglob("*.py"))))
    else:
        try:
            names = features.names_of(library)
        except PackageNotFoundError:
            pytest.skip(f"{library} is not installed; `make bench` installs the peers")
    wrong = {feature: features.wrong(cells[place], names) for feature, (cells, _) in features.FEATURES.items()}
    assert {feature: found for feature, found in wrong.items() if found} == {}
