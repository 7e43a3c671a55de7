"""`focalcal lab list` and `focalcal lab table`."""

from __future__ import annotations

import json

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("yaml", reason="recipes are YAML; pip install focalcal-lab")

from focalcal.cli.results import json_schema
from focalcal.errors import InputError
from focalcal_lab.catalog import catalog, read_recipes
from focalcal_lab.cli.list import LabListResult, lab_list
from focalcal_lab.cli.table import lab_table
from focalcal_lab.published_numbers import numbers_of
from focalcal_lab.published_table import PublishedTable
from focalcal_lab.run_results import MeasuredNumber
from lab.tests.test_tables import RECIPE, result, write

app = typer.Typer()
app.command("list")(lab_list)
app.command("table")(lab_table)


def run(*arguments: str) -> str:
    answer = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]


def answer(kind: type, *arguments: str) -> dict:
    document = json.loads(run(*arguments, "--json"))
    jsonschema.validate(document, json_schema(kind), cls=jsonschema.Draft202012Validator)
    return document


def test_the_list_has_a_line_for_every_recipe_and_its_variants_on_it():
    text = run("list")
    heading, *lines = cells(text)
    assert heading == ["recipe", "data", "network", "epochs", "methods", "published"]
    assert [line[0].split()[0] for line in lines] == [name for name in catalog() if "+" not in name]
    (line,) = [line for line in lines if line[0].startswith(f"{RECIPE} ")]
    assert line == [f"{RECIPE} [+mean]", "cifar10", "resnet50", "350", "11", "Table 1: ece_ew pre 1.55-4.56, 10 more"]
    assert "…" not in text
    assert "Methods of komisarenko2024: ce, fl-1, fl-2, fl-3, fl-5, fl-7, flsd-53, adafocal." in text
    assert text.endswith(
        f"\n{len(catalog())} recipes. `focalcal lab list NAME` shows one in full, `focalcal lab run NAME` runs it.\n"
    )


def test_the_published_range_is_that_of_the_csv():
    listed = answer(LabListResult, "list")["recipes"]
    assert [each["name"] for each in listed] == list(catalog())
    (recipe,) = [each for each in listed if each["name"] == "ghosh2022/imagenet-resnet50"]
    assert recipe["published"][0] == {
        "table": "1", "metric": "ece_em", "phase": "pre", "against": "", "lowest": 1.87, "highest": 16.77
    }  # fmt: skip
    assert (recipe["numbers"], recipe["yaml"], recipe["header"]) == ([], "", [])
    assert recipe["digest"] == catalog()["ghosh2022/imagenet-resnet50"].digest()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--paper", "komisarenko2024"), ["komisarenko2024/"]),
        (("tiny-imagenet",), ["ghosh2022/tiny-imagenet", "komisarenko2024/tiny-imagenet", "mukhoti2020/tiny-imagenet"]),
        (("mukhoti2020/cifar100-*",), ["mukhoti2020/cifar100-"]),
        (("cifar10-", "--paper", "cpu"), ["cpu/cifar10-resnet8", "cpu/cifar10-s-resnet"]),
    ],
)
def test_patterns_and_papers_choose(arguments, expected):
    names = [each["name"] for each in answer(LabListResult, "list", *arguments)["recipes"]]
    assert names == [name for name in catalog() if any(name.startswith(each) for each in expected)]


@pytest.mark.parametrize("pattern", [RECIPE, "mukhoti2020/wmt", "ghosh2022/cifar10-w*"])
def test_one_recipe_is_shown_in_full(pattern):
    (listed,) = answer(LabListResult, "list", pattern)["recipes"]
    recipe = catalog()[listed["name"]]
    text = run("list", pattern)
    for part in (recipe.about, *recipe.notes, *listed["header"]):
        assert part in text
    again = read_recipes("recipe:\n  about: ''\n" + "".join(f"  {line}\n" for line in listed["yaml"].splitlines()))
    assert again[recipe.name].training == recipe.training
    assert listed["yaml"].rstrip() in text
    assert listed["numbers"]
    assert "…" not in text


def test_the_numbers_of_one_recipe_are_tables_of_methods():
    text = run("list", RECIPE)
    first = text[text.index("mukhoti2020, Table 1") :]
    assert cells(first)[:3] == [
        ["method", "ece_ew pre", "ece_ew post"],
        ["ce", "4.35", "1.35 (2.5)"],
        ["brier", "1.82", "1.08 (1.1)"],
    ]


def test_a_variant_by_its_whole_name_and_a_file_of_ones_own(tmp_path):
    (listed,) = answer(LabListResult, "list", f"{RECIPE}+mean")["recipes"]
    assert (listed["name"], len(listed["numbers"])) == (f"{RECIPE}+mean", len(numbers_of(catalog()[RECIPE])))
    path = tmp_path / "mine.yaml"
    path.write_text(
        "recipe:\n  about: mine\n"
        + "".join(f"  {line}\n" for line in listed["yaml"].splitlines()).replace(RECIPE, "mine")
    )
    assert run("list", str(path)).startswith("mine+mean: mine\n")


def test_what_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"got 'mukoti2020'. Nearest: mukhoti2020/"):
        run("list", "mukoti2020")
    with pytest.raises(InputError, match=r"--paper: must be one of charoenphakdee2021, cpu, .*; got 'lin2017'"):
        run("list", "--paper", "lin2017")
    with pytest.raises(InputError, match="paper: must be one with a table of results"):
        run("table", "charoenphakdee2021", "1")
    with pytest.raises(InputError, match="table: must be one of 1 of komisarenko2024; got '2'"):
        run("table", "komisarenko2024", "2")


def test_the_table_puts_measured_beside_published(tmp_path):
    write(
        tmp_path,
        result(0, MeasuredNumber("pre", "ece_ew", 0.015), MeasuredNumber("post", "ece_ew", 0.01, temperature=1.1)),
        result(1, MeasuredNumber("pre", "ece_ew", 0.019), MeasuredNumber("post", "ece_ew", 0.01, temperature=1.2)),
    )
    text = run("table", "mukhoti2020", "1", "--runs", str(tmp_path))
    rows = cells(text)
    assert text.startswith("mukhoti2020, Table 1\n")
    assert rows[0] == ["recipe", "method", "phase", "measure", "published", "measured", "difference", "seeds", "note"]
    assert len(rows) == 111
    assert rows[1] == ["cifar10-resnet50", "ce", "pre", "ece_ew", "4.35", "not run", "", "", ""]
    flsd = [row[2:] for row in rows[1:11] if row[1] == "flsd-53"]
    assert flsd == [
        ["pre", "ece_ew", "1.55", "1.70 ± 0.28", "+0.15", "2", ""],
        ["post", "ece_ew", "0.95 (1.10)", "1.00 ± 0.00 (1.15)", "+0.05", "2", ""],
    ]
    assert text.endswith(f"\n2 of 110 numbers measured, by 2 runs below {tmp_path}.\n")
    document = answer(PublishedTable, "table", "mukhoti2020", "1", "--runs", str(tmp_path))
    assert (document["command"], document["measured"], document["runs"], len(document["rows"])) == (
        "lab-table",
        2,
        2,
        110,
    )


def test_runs_that_do_not_belong_together_are_shown_below_the_table(tmp_path):
    row = MeasuredNumber("pre", "ece_ew", 0.015)
    write(tmp_path, result(0, row), result(1, row, epochs=3))
    text = run("table", "mukhoti2020", "1", "--runs", str(tmp_path))
    (line,) = [line for line in cells(text) if line[1:3] == ["flsd-53", "pre"] and line[5] != "not run"]
    assert line[5:] == ["not averaged", "", "", "[1]"]
    assert "\n[1] The runs differ in epochs (350: " in text
    assert "2 not averaged: the runs do not belong together." in text


def test_nothing_run_says_how_to_begin_and_doubtful_numbers_say_why(tmp_path):
    text = run("table", "mukhoti2020", "2", "--runs", str(tmp_path / "none"))
    assert text.endswith("Begin with: focalcal lab run mukhoti2020/cifar10-resnet50 --method ce\n")
    assert "[1] The printed number: check: " in text
    doubted = [line for line in cells(text)[1:] if line[-1]]
    assert len(doubted) == 10


def test_foreign_sets_are_named(tmp_path):
    text = run("table", "ghosh2022", "8", "--runs", str(tmp_path))
    names = [line[0] for line in cells(text)[1:] if line[0]]
    assert names == [
        f"cifar10-{model} against {foreign}"
        for foreign in ("svhn", "cifar10-c")
        for model in ("resnet110", "wrn-26-10")
    ]
