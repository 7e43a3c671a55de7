"""Tables: arithmetic over hand-made results, and runs that must not be averaged."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="recipes are YAML; pip install focalcal-lab")

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.catalog import catalog
from focalcal_lab.published_table import PublishedTableRow, published_table, read_runs
from focalcal_lab.run_results import MeasuredNumber, RunResult, write_result

RECIPE = "mukhoti2020/cifar10-resnet50"


def result(
    seed: int, *rows: MeasuredNumber, recipe: str = RECIPE, method: str = "flsd-53", **changes: object
) -> RunResult:
    known = catalog()[recipe]
    made = RunResult(
        recipe=recipe,
        method=method,
        seed=seed,
        epochs=known.training.epochs,
        digest=known.digest(method),
        data=f"cifar10, seed {seed}",
        num_train=45000,
        num_val=5000,
        num_test=10000,
        rows=list(rows),
    )
    return replace(made, **changes)


def write(folder: Path, *results: RunResult) -> None:
    for place, each in enumerate(results):
        path = folder / each.recipe / each.method / f"run-{place}" / "results.json"
        path.parent.mkdir(parents=True)
        write_result(each, path)


def cell(
    folder: Path, table: str = "1", *, paper: str = "mukhoti2020", variant: str | None = None, **wanted: str
) -> PublishedTableRow:
    wanted = {"dataset": "cifar10", "model": "resnet50", "method": "flsd-53", **wanted}
    rows = published_table(paper, table, folder, variant=variant).rows
    (row,) = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    return row


def test_mean_spread_and_difference_are_in_the_unit_of_the_table(tmp_path):
    values = [0.0150, 0.0170, 0.0145]
    runs = [result(seed, MeasuredNumber("pre", "ece_ew", value)) for seed, value in enumerate(values)]
    write(tmp_path, *runs)
    row = cell(tmp_path, phase="pre")
    assert (row.published, row.seeds, row.status, row.note) == (1.55, 3, "measured", "")
    assert row.measured == pytest.approx(1.55)
    assert row.std == pytest.approx(100 * statistics.stdev(values))
    assert row.difference == pytest.approx(0.0, abs=1e-12)


def test_one_seed_has_no_spread_and_a_temperature_is_shown(tmp_path):
    write(
        tmp_path,
        result(4, MeasuredNumber("post", "ece_ew", 0.02, temperature=1.3), MeasuredNumber("pre", "ece_ew", 0.5)),
    )
    row = cell(tmp_path, phase="post")
    assert (row.published, row.published_temperature, row.temperature) == (0.95, 1.1, 1.3)
    assert (row.measured, row.std, row.seeds) == (2.0, None, 1)
    assert row.difference == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("paper", "table", "measured", "wanted", "expected"),
    [
        ("mukhoti2020", "9", MeasuredNumber("pre", "nll", 0.1911), {"phase": "pre"}, 19.11),
        (
            "komisarenko2024",
            "1",
            MeasuredNumber("post", "log_loss", 0.25),
            {"phase": "post", "metric": "log_loss"},
            0.25,
        ),
        ("komisarenko2024", "1", MeasuredNumber("fts", "ece_em", 0.01), {"phase": "fts", "metric": "ece_em"}, 1.0),
        ("mukhoti2020", "4", MeasuredNumber("pre", "error", 0.05), {}, 5.0),
    ],
)
def test_units_of_other_measures(tmp_path, paper, table, measured, wanted, expected):
    write(tmp_path, result(0, measured, recipe=f"{paper}/cifar10-resnet50"))
    assert cell(tmp_path, table, paper=paper, **wanted).measured == pytest.approx(expected)


def test_bleu_is_compared_as_it_is(tmp_path):
    recipe = "mukhoti2020/wmt14-en-de-transformer"
    write(tmp_path, result(0, MeasuredNumber("pre", "bleu", 25.0), recipe=recipe, method="fl-1"))
    wanted = {"dataset": "wmt14-en-de", "model": "transformer", "method": "fl-1", "phase": "pre", "metric": "bleu"}
    assert cell(tmp_path, "3", **wanted).difference == pytest.approx(25.0 - 26.39)


def test_sets_out_of_distribution_are_told_apart(tmp_path):
    rows = [
        MeasuredNumber("pre", "auroc", 0.9, against="svhn"),
        MeasuredNumber("pre", "auroc", 0.7, against="cifar10-c"),
    ]
    write(tmp_path, result(0, *rows, recipe="ghosh2022/cifar10-wrn-26-10", method="ce"))
    for against, expected in (("svhn", 90.0), ("cifar10-c", 70.0)):
        wanted = {"dataset": against, "model": "wrn-26-10", "method": "ce", "phase": "pre"}
        row = cell(tmp_path, "8", paper="ghosh2022", **wanted)
        assert (row.measured, row.against) == (pytest.approx(expected), against)


def test_bins_of_adafocal_are_told_apart(tmp_path):
    recipe = "ghosh2022/cifar10-resnet50"
    write(tmp_path, result(0, MeasuredNumber("pre", "ece_debias_30", 0.01), recipe=recipe, method="adafocal-5bins"))
    row = cell(tmp_path, "7", paper="ghosh2022", method="adafocal-5bins", metric="ece_debias_30")
    assert (row.published, row.measured) == (0.73, 1.0)
    assert cell(tmp_path, "7", paper="ghosh2022", method="adafocal-5bins", metric="ece_debias").status == "not run"


def test_what_is_not_run_is_marked_and_unfinished_runs_are_ignored(tmp_path):
    write(tmp_path, result(0, MeasuredNumber("pre", "ece_ew", 0.02)))
    unfinished = tmp_path / RECIPE / "ce" / "seed-0"
    unfinished.mkdir(parents=True)
    (unfinished / "run.json").write_text("{}")
    found = published_table("mukhoti2020", "1", tmp_path)
    assert found.runs == 1
    assert [row.method for row in found.rows if row.status == "measured"] == ["flsd-53"]
    assert len(found.rows) == 110
    row = cell(tmp_path, method="ce", phase="pre")
    assert (row.status, row.measured, row.std, row.seeds, row.difference, row.note) == (
        "not run",
        None,
        None,
        0,
        None,
        "",
    )


def test_a_finished_run_without_the_number_says_so(tmp_path):
    write(tmp_path, result(0, MeasuredNumber("pre", "ece_ew", 0.02)))
    row = cell(tmp_path, phase="post")
    assert (row.status, row.note) == ("not run", "The runs did not measure ece_ew in phase post.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"digest": "0" * 16}, "the recipe"),
        ({"epochs": 2}, "epochs"),
        ({"num_train": 22500}, "the size of the splits"),
    ],
)
def test_runs_of_unlike_recipes_lengths_or_data_are_not_averaged(tmp_path, changes, words):
    row = MeasuredNumber("pre", "ece_ew", 0.02)
    write(tmp_path, result(0, row), result(1, row), result(2, row, **changes))
    found = cell(tmp_path, phase="pre")
    assert (found.status, found.measured, found.seeds, found.std) == ("not averaged", None, 0, None)
    assert f"differ in {words} (" in found.note
    for place in range(3):
        assert str(tmp_path / RECIPE / "flsd-53" / f"run-{place}") in found.note


def test_a_seed_that_was_run_twice_counts_once_if_it_agrees_and_is_refused_if_not(tmp_path):
    write(
        tmp_path / "a",
        result(0, MeasuredNumber("pre", "ece_ew", 0.02)),
        result(1, MeasuredNumber("pre", "ece_ew", 0.04)),
    )
    write(tmp_path / "b", result(0, MeasuredNumber("pre", "ece_ew", 0.02)))
    row = cell(tmp_path, phase="pre")
    assert (row.seeds, row.measured) == (2, pytest.approx(3.0))
    write(tmp_path / "c", result(1, MeasuredNumber("pre", "ece_ew", 0.05)))
    row = cell(tmp_path, phase="pre")
    assert row.status == "not averaged"
    assert row.note.startswith("Seed 1 was run twice with different results (")


def test_other_methods_of_the_recipe_do_not_matter(tmp_path):
    write(
        tmp_path,
        result(0, MeasuredNumber("pre", "ece_ew", 0.02)),
        result(0, MeasuredNumber("pre", "ece_ew", 0.9), method="ce", digest="1" * 16),
    )
    assert cell(tmp_path, phase="pre").measured == 2.0


def test_runs_of_a_changed_recipe_are_marked(tmp_path):
    write(tmp_path, result(0, MeasuredNumber("pre", "ece_ew", 0.02), digest="f" * 16, epochs=2))
    row = cell(tmp_path, phase="pre")
    assert row.status == "measured"
    assert "was changed (digest ffffffffffffffff, as it ships " in row.note
    assert row.note.endswith("Trained for 2 of 350 epochs.")


def test_a_variant_is_a_table_of_its_own(tmp_path):
    row = MeasuredNumber("pre", "ece_ew", 0.03)
    write(tmp_path, result(0, row, recipe=f"{RECIPE}+mean"))
    assert cell(tmp_path, phase="pre").status == "not run"
    assert cell(tmp_path, phase="pre", variant="mean").measured == pytest.approx(3.0)
    with pytest.raises(InputError, match="variant: must be one of a recipe of mukhoti2020 Table 1; got 'median'"):
        published_table("mukhoti2020", "1", tmp_path, variant="median")


def test_a_file_that_is_no_result_is_refused_by_its_name(tmp_path):
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"results.json: it is not the result of a run"):
        read_runs(tmp_path)


def test_runs_of_other_papers_do_not_count(tmp_path):
    write(tmp_path, result(0, MeasuredNumber("pre", "ece_ew", 0.02), recipe="komisarenko2024/cifar10-resnet50"))
    found = published_table("mukhoti2020", "1", tmp_path)
    assert (found.runs, {row.status for row in found.rows}) == (0, {"not run"})


def test_other_splits_than_the_paper_s_are_said(tmp_path):
    write(tmp_path, result(0, MeasuredNumber("pre", "ece_ew", 0.017), num_train=22500, num_val=2500))
    found = cell(tmp_path, method="flsd-53", phase="pre")
    assert found.status == "measured"
    assert found.note == "Splits of 22,500/2,500/10,000 rows, not the paper's 45,000/5,000/10,000."
