"""The table of formats: every format is recognised and does what its entry says, and one can be added."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import focalcal as fc
from focalcal.errors import FileFormatError, InputError
from focalcal.files import (
    FileFormat,
    PredictionStream,
    PredictionTable,
    read_predictions,
    register_format,
    rewrite_predictions,
    table_from_columns,
    write_predictions,
)
from focalcal.files.table import FORMATS, PARTS, SNIFFED, format_by_bytes, format_of, known_suffixes
from tests.cli.tools import call
from tests.files.test_read import make_table, require_equal
from tests.fuzz.readers.formats import VARIANTS, valid_files

ROOT = Path(__file__).resolve().parents[2]
# What the function for each task takes.
ARGUMENTS = {
    "stream": ("shard", "columns", "by"),
    "read": ("shard", "columns"),
    "write": ("table", "file"),
    "rewrite": ("shard", "job", "out"),
    "record_batches": ("shard", "columns", "num_rows"),
}


def formats_of(variant: str) -> set[str]:
    return {format_of(name).name for files in valid_files(variant) for name in files.contents}


@pytest.mark.parametrize("name", FORMATS)
def test_every_function_of_a_format_takes_what_its_task_gives(name):
    for task, arguments in ARGUMENTS.items():
        if getattr(FORMATS[name], task) is not None:
            assert tuple(inspect.signature(FORMATS[name].function(task)).parameters) == arguments


def test_no_two_formats_share_a_suffix_and_each_has_examples():
    suffixes = [suffix for each in FORMATS.values() for suffix in each.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    assert all(name == each.name and set(each.holds) <= set(PARTS) for name, each in FORMATS.items())
    assert {name for variant in VARIANTS for name in formats_of(variant)} == set(FORMATS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_file_is_recognised_by_its_first_bytes_or_not_at_all(variant):
    recognised = [
        (format_by_bytes(content[:SNIFFED]), format_of(name))
        for files in valid_files(variant)
        for name, content in files.contents.items()
    ]
    assert all(found in (None, expected) for found, expected in recognised)
    assert any(found for found, _ in recognised) or not recognised[0][1].magic


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_with_the_suffix_of_another_format_is_named_as_what_it_is(tmp_path, name):
    suffix = FORMATS[name].suffixes[0]
    for other in (each for each in FORMATS.values() if each.name != name and each.can("write") and each.magic):
        write_predictions(make_table(), tmp_path / f"val{other.suffixes[0]}")
        path = (tmp_path / f"val{other.suffixes[0]}").rename(tmp_path / f"val_logits{suffix}")
        with pytest.raises(FileFormatError) as caught:
            list(PredictionStream(path).batches())
        expected = f"{path}: is not a {name} file; it looks like {other.name}. Give it the suffix {other.suffixes[0]}."
        assert str(caught.value) == expected


def test_a_path_that_says_no_format_is_refused_with_those_that_are_known():
    with pytest.raises(InputError, match=r"^val\.xls: unrecognised file suffix \.xls; known are \.npz, \.npy, .* or "):
        format_of("val.xls")
    with pytest.raises(InputError, match=r"^val: has no suffix that says its format; known are"):
        format_of("val")
    with pytest.raises(InputError, match=r"^val\.pt: is a pickle by its suffix"):
        format_of("val.pt")
    assert format_of("VAL.Parquet").name == "parquet"


def test_what_is_only_read_is_not_written(tmp_path):
    with pytest.raises(InputError, match=r"val\.arrow: arrow files are read, but not written\. Use \.npz, .*\.parquet"):
        write_predictions(make_table(), tmp_path / "val.arrow")
    assert list(tmp_path.iterdir()) == []


def json_lines(shard, columns, by):
    with shard.source.open() as file:
        rows = [json.loads(line) for line in file]
    for start in range(0, len(rows), 16):
        some = rows[start : start + 16]
        yield table_from_columns(shard.name, {key: [row[key] for row in some] for key in some[0]}, columns, by)


def write_json_lines(table, file):
    for scores, label in zip(table.scores.tolist(), table.labels.tolist(), strict=True):
        file.write(json.dumps({table.kind: scores, "label": label}).encode() + b"\n")


def rewrite_json_lines(shard, job, out):
    for table in json_lines(shard, job.columns, None):
        calibrated = job.calibrated(shard.name, table.kind)
        write_json_lines(PredictionTable(shard.name, calibrated(table.scores), job.to, table.labels), out)


@pytest.fixture
def own_format():
    register_format(
        FileFormat(
            "own",
            (".own", ".mine"),
            "One JSON object per row",
            stream=json_lines,
            write="tests.files.test_table:write_json_lines",
            rewrite=rewrite_json_lines,
            holds=("labels",),
            is_text=True,
        )
    )
    yield FORMATS["own"]
    del FORMATS["own"]


@pytest.mark.usefixtures("own_format")
def test_a_format_of_ones_own_is_read_streamed_written_and_rewritten(tmp_path):
    table = make_table(weights=None, split=None, class_names=None)
    path = tmp_path / "val.own"
    write_predictions(table, path)
    require_equal(read_predictions(path), table)
    assert [batch.predictions.num_rows for batch in PredictionStream(path).batches()] == [16, 16, 8]
    expected = fc.evaluate(table.scores, table.labels)
    assert fc.evaluate(PredictionStream(tmp_path)).nll == pytest.approx(expected.nll, abs=1e-12)
    assert rewrite_predictions(path, tmp_path / "new.own", lambda scores, kind: np.full_like(scores, 0.2)) == 40
    assert (read_predictions(tmp_path / "new.own").scores == 0.2).all()
    assert rewrite_predictions(path, tmp_path / "new.npz", lambda scores, kind: np.full_like(scores, 0.2)) == 40
    assert np.array_equal(read_predictions(tmp_path / "new.npz").labels, table.labels)
    answer = call("evaluate", path, "--json")
    assert answer.json()["before"]["measures"]["nll"]["value"] == pytest.approx(expected.nll, abs=1e-12)
    assert ".own" in known_suffixes()


@pytest.mark.parametrize(
    ("name", "suffixes", "words"),
    [
        ("npz", (".zip",), "there is a format named npz already"),
        ("mine", (".zip", ".csv"), r"\.zip, \.csv belong to another format"),
        ("mine", ("zip",), "must be lower-case and begin with a dot; got zip"),
        ("mine", (".ZIP",), r"got \.ZIP"),
        ("mine", (), "got none"),
    ],
)
def test_a_format_that_cannot_be_told_from_others_is_refused(name, suffixes, words):
    before = dict(FORMATS)
    with pytest.raises(InputError, match=words):
        register_format(FileFormat(name, suffixes, "Mine", stream=json_lines))
    assert before == FORMATS


def test_the_page_of_formats_has_the_table(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(ROOT / "docs/hooks")
    hook = import_module("file_formats")
    text = (ROOT / "docs" / hook.PAGE).read_text(encoding="utf-8")
    assert text.count(hook.MARK) == 1
    _, _, *rows = hook.table()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == [each.about for each in FORMATS.values()]
    assert [row[1] for row in cells] == [
        ", ".join(f"`{suffix}`" for suffix in each.suffixes) for each in FORMATS.values()
    ]
    assert {row[1]: row[3] for row in cells}["`.arrow`, `.feather`"] == "no"
