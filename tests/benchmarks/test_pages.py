"""The pages on speed and on other libraries are what their files say, and the table of features holds."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import features
import pages
import pytest
import speed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["results/speed.md", "results/post_hoc.md", "comparison.md"])
def test_the_tables_of_a_page_are_made_from_the_files(name):
    text = (pages.DOCS / name).read_text()
    assert text == pages.filled(text, pages.all_blocks()[name]), "run: python benchmarks/pages.py"


def test_a_page_without_a_mark_is_refused():
    with pytest.raises(SystemExit, match="marks of slower must be there once; found 0"):
        pages.filled("No marks.", {"slower": []})


def test_the_readme_and_the_tutorial_quote_the_files():
    rows = {(each.what, each.size, each.against): each for each in speed.ratios(speed.read())}
    readme, tutorial = (
        " ".join((ROOT / name).read_text().split()) for name in ("README.md", "docs/tutorials/hundred_gigabytes.md")
    )

    def ratio(*key: str) -> float:
        return rows[key].value

    small = rows["focal", "128 x 10", "cross-entropy"]
    right = [
        min(
            row.theirs
            for key, row in rows.items()
            if key[:2] == ("TemperatureScaling", size) and row.peer and " off " not in key[2]
        )
        / rows["TemperatureScaling", size, "scikit-learn"].ours
        for size in ("1,000,000 x 10", "25,000 x 1,000", "5,000 x 100")
    ]
    for quoted in (
        f"takes {ratio('focal', '2,048 x 32,000', 'cross-entropy'):.1f} of torch's cross-entropy at 2,048 x 32,000",
        f"and {ratio('focal', '1,024 x 1,000', 'cross-entropy'):.1f} at 1,024 x 1,000",
        f"but {small.value:.1f} at 128 x 10, {1e6 * small.ours:.0f} microseconds instead of {1e6 * small.theirs:.0f}.",
        f"takes {ratio('ece', '1,000,000 x 10', 'torchmetrics'):.2f} of torchmetrics' time",
        f"{ratio('evaluate, all measures', '1,000,000 x 10', 'torchmetrics, ece alone'):.1f} times as long as its one",
        f"is {right[0]:.0f} to {right[1]:.0f} times as fast as the fastest library that gets T right, {right[2]:.1f}",
    ):
        assert quoted in readme
    evaluate, calibrate = (
        rows[f"{command}, one pass", "20,000,000 x 100", "pyarrow, reading alone"]
        for command in ("evaluate", "calibrate")
    )
    for quoted in (
        f"take {evaluate.ours:.1f} s for `evaluate` and {2 * calibrate.ours:.1f} s for both passes",
        f"pyarrow took {evaluate.theirs:.1f} s",
    ):
        assert quoted in tutorial


def test_the_page_follows_the_files():
    found = speed.read()
    found["losses"]["seconds per step"]["128 x 10"]["focal"] = (
        10 * found["losses"]["seconds per step"]["128 x 10"]["cross-entropy"]
    )
    blocks = speed.blocks(found)
    assert "| focal | 128 x 10 | cross-entropy | 10.0 |" in blocks["slower"]
    assert "| focal | 128 x 10 | cross-entropy | 10.0 | 1.50 |" in blocks["missed"]


def test_ratios_are_ours_over_theirs_and_judged_by_what_was_asked():
    ratio = speed.Ratio("losses", "a", "b", "1 x 2", ours=3.0, theirs=2.0, asked=1.4)
    assert (ratio.value, ratio.missed, ratio.slower) == (1.5, True, True)
    limit = speed.Ratio("cli", "a", "b", "1 x 2", ours=3.0, theirs=2.0, asked=1.5, peer=False)
    assert (limit.missed, limit.slower) == (False, False)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0104, "0.010"), (0.4361, "0.44"), (2.675, "2.67"), (46.46, "46.5"), (305.1, "305")]
)
def test_numbers_have_two_or_three_digits(value, shown):
    assert speed.number(value) == shown


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


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, id=name, marks=[] if name == "focalcal" else [pytest.mark.slow])
        for place, name in enumerate(features.LIBRARIES)
    ],
)
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
