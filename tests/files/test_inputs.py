"""The forms in which prediction files come: names, text labels, decimal commas, vectors, compression, rounding."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import focalcal as fc
from focalcal.errors import FileFormatError, InputError, InputWarning
from focalcal.files import (
    Columns,
    PredictionStream,
    PredictionTable,
    read_predictions,
    rewrite_predictions,
    write_predictions,
)
from focalcal.files.table import FORMATS, format_of, is_known
from tests.cli.tools import call
from tests.files.test_read import make_table, require_equal

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 30
generator = np.random.default_rng(1)
LOGITS = generator.normal(size=(ROWS, 3))
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = generator.integers(0, 3, ROWS)
CLASSES = ("cat", "dog", "horse")
NAMES = np.array(CLASSES)[LABELS]


def csv_of(path, header, columns, separator=","):
    lines = [separator.join(header), *(separator.join(map(str, row)) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def halved(scores, kind):
    """Scores that are as good as any: equal probabilities."""
    return np.full_like(scores, 1 / scores.shape[1])


# ------------------------------------------------------------------------------------------------- names and labels


def test_score_columns_are_named_one_by_one(tmp_path):
    path = csv_of(tmp_path / "val.csv", ["id", *CLASSES, "label"], [range(ROWS), *PROBS.T, NAMES])
    table = read_predictions(path, Columns(scores="dog,cat, horse", kind="probs"))
    assert table.class_names == ("dog", "cat", "horse")
    assert np.array_equal(table.scores, PROBS[:, [1, 0, 2]])
    assert [table.class_names[k] for k in table.labels] == NAMES.tolist()
    answer = call("evaluate", path, "--scores", "cat,dog,horse", "--kind", "probs", "--json")
    assert answer.json()["before"]["measures"]["nll"]["value"] == pytest.approx(
        fc.metrics.nll(PROBS, LABELS, kind="probs")
    )
    with pytest.raises(InputError, match=r"has no column cow; it has id, cat, dog, horse, label"):
        read_predictions(path, Columns(scores="cat,cow", kind="probs"))
    with pytest.raises(InputError, match=r"cat, dog may be logits, log_probs or probs.*--kind"):
        read_predictions(path, Columns(scores="cat,dog"))
    with pytest.raises(InputError, match=r"--scores names a column twice"):
        read_predictions(path, Columns(scores="cat,cat", kind="probs"))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".npz"])
def test_text_labels_beside_lists_need_the_classes_in_order(tmp_path, suffix):
    path = tmp_path / f"val{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"logits": LOGITS.tolist(), "label": NAMES}), path)
    elif suffix == ".jsonl":
        rows = ({"logits": row, "label": name} for row, name in zip(LOGITS.tolist(), NAMES.tolist(), strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        np.savez(path, logits=LOGITS, labels=NAMES)
    with pytest.raises(InputError, match=r"labels are text.*Name the classes in order with --classes"):
        read_predictions(path)
    table = read_predictions(path, Columns(classes=CLASSES))
    assert np.array_equal(table.labels, LABELS)
    assert table.class_names == CLASSES
    streamed = fc.evaluate(PredictionStream(path, Columns(classes=CLASSES)))
    assert streamed.nll == pytest.approx(fc.metrics.nll(LOGITS, LABELS))
    assert call("evaluate", path, "--classes", "cat, dog,horse").code == 0
    with pytest.raises(InputError, match=r"has 4 class names for 3 classes"):
        read_predictions(path, Columns(classes=(*CLASSES, "cow")))


def test_classes_name_numbered_columns_and_agree_with_named_ones(tmp_path):
    numbered = csv_of(tmp_path / "a.csv", ["prob_0", "prob_1", "prob_2", "label"], [*PROBS.T, NAMES])
    assert np.array_equal(read_predictions(numbered, Columns(classes=CLASSES)).labels, LABELS)
    with pytest.raises(InputError, match=r"the label is 'cat'.*Name the classes in order with --classes"):
        read_predictions(numbered)
    named = csv_of(tmp_path / "b.csv", ["prob_dog", "prob_cat", "prob_horse", "label"], [*PROBS.T, NAMES])
    with pytest.raises(InputError, match=r"its scores are of the classes dog, cat, horse, in this order"):
        read_predictions(named, Columns(classes=CLASSES))
    for wrong in ("cat,dog", ("cat", "cat"), (1, 2), 3):
        with pytest.raises(InputError, match=r"^classes: must"):
            Columns(classes=wrong)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_a_positive_class_of_two_is_named(tmp_path, suffix):
    path, scores, truth = tmp_path / f"val{suffix}", PROBS[:, 0], np.where(LABELS == 0, "spam", "ham")
    if suffix == ".csv":
        csv_of(path, ["prob", "label"], [scores, truth])
    elif suffix == ".parquet":
        pq.write_table(pa.table({"prob": scores, "label": truth}), path)
    elif suffix == ".jsonl":
        rows = ({"prob": float(p), "label": str(name)} for p, name in zip(scores, truth, strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        np.savez(path, probs=scores, labels=truth)
    with pytest.raises(InputError, match=r"Name the class that is scored with --positive"):
        read_predictions(path)
    assert np.array_equal(read_predictions(path, Columns(positive="spam")).labels, LABELS == 0)
    assert np.array_equal(read_predictions(path, Columns(positive="ham")).labels, LABELS != 0)
    assert call("evaluate", path, "--positive", "spam").code == 0
    with pytest.raises(InputError, match=r"--positive Spam is for labels of two classes; they are ham, spam"):
        read_predictions(path, Columns(positive="Spam"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_rows_with_an_ignored_label_are_left_out(tmp_path, suffix):
    labels = np.where(np.arange(ROWS) % 5 == 2, -100, LABELS)
    path = tmp_path / f"val{suffix}"
    if suffix == ".csv":
        csv_of(path, ["logit_0", "logit_1", "logit_2", "label"], [*LOGITS.T, labels])
    else:
        write_predictions(PredictionTable("made", LOGITS, "logits", labels=labels), path)
    with pytest.raises(InputError, match="-100"):
        read_predictions(path)
    kept = LOGITS[labels != -100], LABELS[labels != -100]
    table = read_predictions(path, Columns(ignore_index=-100))
    assert np.array_equal(table.scores, kept[0])
    assert np.array_equal(table.labels, kept[1])
    assert fc.evaluate(PredictionStream(path, ignore_index=-100)).nll == pytest.approx(fc.metrics.nll(*kept))
    assert call("evaluate", path, "--ignore-index", "-100", "--json").json()["num_rows"] == len(kept[0])


# -------------------------------------------------------------------------------------------------- decimal commas


def test_numbers_with_decimal_commas_are_read_and_written_again(tmp_path):
    shown = [[str(value).replace(".", ",") for value in column] for column in LOGITS.T]
    path = csv_of(tmp_path / "val.csv", ["label", "logit_0", "logit_1", "logit_2"], [LABELS, *shown], ";")
    assert np.array_equal(read_predictions(path).scores, LOGITS)
    rewrite_predictions(path, tmp_path / "new.csv", halved)
    first = (tmp_path / "new.csv").read_text().splitlines()[1]
    assert first == f"{LABELS[0]};" + ";".join([str(1 / 3).replace(".", ",")] * 3)
    assert np.array_equal(read_predictions(tmp_path / "new.csv").scores, np.full((ROWS, 3), 1 / 3))


@pytest.mark.parametrize("field", ["1.234,5", "0,7x", "1,2,3", ","])
def test_what_is_no_number_is_refused_beside_decimal_commas(tmp_path, field):
    path = csv_of(tmp_path / "val.csv", ["label", "logit_0", "logit_1"], [[0, 1], ["0,5", "0,25"], ["1,5", field]], ";")
    with pytest.raises(InputError, match=r"is not a number"):
        read_predictions(path)


# ---------------------------------------------------------------------------------------------- vectors of Spark ML


def vectors(rows, sparse):
    """Rows as Spark ML writes them: dense, or sparse where `sparse` says so."""
    kind = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    made = [
        {"type": 0, "size": len(row), "indices": np.flatnonzero(row).tolist(), "values": row[row != 0].tolist()}
        if is_sparse
        else {"type": 1, "size": None, "indices": None, "values": row.tolist()}
        for row, is_sparse in zip(rows, sparse, strict=True)
    ]
    return pa.array(made, kind)


@pytest.mark.parametrize("sparse", [np.zeros(ROWS, bool), np.ones(ROWS, bool), np.arange(ROWS) % 2 == 0])
def test_vectors_of_spark_are_scores(tmp_path, sparse):
    probs = np.where(np.arange(ROWS)[:, None] % 4 == 0, np.eye(3)[LABELS], PROBS)
    path = tmp_path / "val.parquet"
    pq.write_table(
        pa.table({"id": range(ROWS), "probability": vectors(probs, sparse), "label": LABELS}), path, row_group_size=7
    )
    columns = Columns(scores="probability", kind="probs")
    assert np.array_equal(read_predictions(path, columns).scores, probs)
    assert fc.evaluate(PredictionStream(path, columns)).accuracy == fc.metrics.accuracy(probs, LABELS, kind="probs")
    rewrite_predictions(path, tmp_path / "new.parquet", halved, columns)
    new = pq.read_table(tmp_path / "new.parquet")
    assert new.column_names == ["id", "probs", "label"]
    assert new["probs"].type == vectors(probs, sparse).type
    assert np.array_equal(read_predictions(tmp_path / "new.parquet").scores, np.full((ROWS, 3), 1 / 3))


def test_vectors_that_contradict_themselves_are_refused(tmp_path):
    path, columns = tmp_path / "val.parquet", Columns(scores="v", kind="logits")
    good = {"type": 0, "size": 3, "indices": [0, 2], "values": [1.0, 2.0]}
    for change, words in (
        ({"size": 4}, "differ in length"),
        ({"size": -1}, "differ in length"),
        ({"indices": [0, 3]}, "has indices that do not belong to its values"),
        ({"indices": [0, -1]}, "has indices that do not belong to its values"),
        ({"indices": [0]}, "has indices that do not belong to its values"),
        ({"values": [1.0, None]}, "must be finite"),
    ):
        rows = pa.array([good, good | change], vectors(np.ones((1, 3)), [True]).type)
        pq.write_table(pa.table({"v": rows, "label": [0, 1]}), path)
        with pytest.raises(InputError, match=words):
            read_predictions(path, columns)


# -------------------------------------------------------------------------------------- JSON lines and compression


TEXT = [each for each in FORMATS.values() if each.compressible]
PACKED = [suffix + ending for each in TEXT for suffix in each.suffixes for ending in (".gz", ".zst")]


@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_text_is_read_streamed_written_and_rewritten(tmp_path, suffix):
    table, path = make_table(), tmp_path / f"val{suffix}"
    write_predictions(table, path)
    magic = b"\x1f\x8b" if suffix.endswith(".gz") else b"\x28\xb5\x2f\xfd"
    assert path.read_bytes().startswith(magic)
    require_equal(read_predictions(path), table)
    require_equal(read_predictions(tmp_path), table)  # as a directory of one file
    assert (
        fc.evaluate(PredictionStream(path)).n == fc.evaluate(table.scores, table.labels, sample_weight=table.weights).n
    )
    assert rewrite_predictions(path, tmp_path / f"new{suffix}", halved) == 40
    assert (tmp_path / f"new{suffix}").read_bytes().startswith(magic)
    assert (read_predictions(tmp_path / f"new{suffix}").scores == 0.2).all()
    for cut in (7, len(path.read_bytes()) // 2, -5):
        (tmp_path / f"cut{suffix}").write_bytes(path.read_bytes()[:cut])
        with pytest.raises(FileFormatError, match=r"cut"):
            read_predictions(tmp_path / f"cut{suffix}")


def test_only_text_is_read_compressed():
    assert format_of("val.CSV.GZ").name == "csv"
    assert format_of("val.jsonl.zst").name == "jsonl"
    assert not is_known("val.npz.gz")
    assert not is_known("val.gz")
    with pytest.raises(InputError, match=r"npz files are not read compressed\. Unpack it first"):
        format_of("val.npz.gz")
    with pytest.raises(InputError, match=r"unrecognised file suffix \.txt\.gz"):
        format_of("val.txt.gz")


def test_standard_input_may_be_compressed_or_json_lines(tmp_path):
    for suffix in (".csv.gz", ".jsonl", ".jsonl.gz", ".csv.zst"):
        write_predictions(make_table(), tmp_path / f"val{suffix}")
        content = (tmp_path / f"val{suffix}").read_bytes()
        assert call("evaluate", "-", "--split", "val", given=content).code == 0


def test_json_lines_keep_their_other_keys_when_they_are_rewritten(tmp_path):
    path = tmp_path / "val.jsonl"
    rows = [{"id": [1, {"a": "ü"}], "logits": [0.5, 1], "label": 0}, {"logits": [2, 0.0], "label": 1, "id": None}]
    path.write_text("\ufeff" + "\n\n".join(map(json.dumps, rows)))
    assert np.array_equal(read_predictions(path).scores, [[0.5, 1], [2, 0]])
    rewrite_predictions(path, tmp_path / "new.jsonl", halved)
    new = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert new == [
        {"id": [1, {"a": "ü"}], "probs": [0.5, 0.5], "label": 0},
        {"probs": [0.5, 0.5], "label": 1, "id": None},
    ]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"logits": [1.0], "label": 0}', "line 2 has another number of scores than line 1"),
        ('{"logits": 1.0, "label": 0}', "line 2 has another number of scores than line 1"),
        ('{"logits": [1.0, "x"], "label": 0}', "line 2: 'x' is not a number"),
        ('{"logits": [1.0, true], "label": 0}', "line 2: True is not a number"),
        ('{"logits": [1.0, NaN], "label": 0}', "must be finite; got nan in line 2"),
        ('{"label": 0}', "line 2 has no logits"),
        ('{"logits": [1.0, 0.0]}', "line 2 has no label"),
        ('{"logits": [1.0, 0.0], "label": "cat"}', "line 2: labels must be all class numbers or all names"),
        ('{"logits": [1.0, 0.0], "label": 2}', "labels must lie in 0..1; got 2 in row 1"),
        ('{"logits": [1.0, 0.0], "label": 0', "line 2 is not JSON"),
        ('{"label": 1, "logits": [1.0, 0.0], "label": 0}', "line 2 is not JSON .a key stands there twice"),
        ("[1, 2]", "line 2 is not a JSON object"),
        ('{"logits": [1.0, 0.0], "label": 0}, ', "line 2 is not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, second, words):
    path = tmp_path / "val.jsonl"
    path.write_text('{"logits": [0.5, 1.0], "label": 1}\n' + second + "\n")
    with pytest.raises(InputError, match=words):
        read_predictions(path)


def test_json_lines_without_rows_are_refused(tmp_path):
    (tmp_path / "val.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match="has no rows"):
        read_predictions(tmp_path / "val.jsonl")


# --------------------------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet", ".jsonl"])
@pytest.mark.parametrize("digits", [2, 3, 4])
def test_rounded_probabilities_are_accepted_with_a_warning(tmp_path, suffix, digits):
    rounded, path = PROBS.round(digits), tmp_path / f"val{suffix}"
    assert (abs(rounded.sum(1) - 1) > 1e-5).any()
    write_predictions(PredictionTable("made", rounded, "probs", labels=LABELS), path)
    with pytest.warns(InputWarning, match=rf"val{suffix}: the probabilities were rounded to {digits} digits"):
        table = read_predictions(path)
    assert table.scores == pytest.approx(rounded / rounded.sum(1, keepdims=True))
    answer = call("evaluate", path)
    assert answer.code == 0
    assert answer.err.count("were rounded to") == 1


def test_sums_that_no_rounding_explains_are_refused_without_a_word_of_logits(tmp_path):
    path = csv_of(tmp_path / "val.csv", ["prob_0", "prob_1", "label"], [[0.5, 0.7], [0.5, 0.2], [0, 1]])
    with pytest.raises(InputError, match=r"those of line 3 sum to 0\.9\. Save the scores of all classes") as caught:
        read_predictions(path)
    assert "logits" not in str(caught.value)


# ------------------------------------------------------------------------------------- bad shards, other formats


def test_bad_shards_are_left_out_by_every_engine(tmp_path):
    for name, k in (("a", 3), ("c", 3), ("d", 4)):
        np.savez(tmp_path / f"{name}.npz", logits=generator.normal(size=(200, k)), labels=generator.integers(0, 3, 200))
    (tmp_path / "b.npz").write_bytes(b"PK nothing")
    for engine in ("memory", "stream", "auto"):
        result = call("evaluate", tmp_path, "--on-bad-shard", "skip", "--engine", engine, "--json").json()
        assert sorted(name[-5:] for name in result["skipped"]) == ["b.npz", "d.npz"], engine
        assert result["num_rows"] == 400
        assert call("evaluate", tmp_path, "--engine", engine).code == 2
    answer = call("calibrate", tmp_path, "--holdout", "0.5", "--on-bad-shard", "skip", "--out", tmp_path / "c.json")
    assert answer.code == 0, answer.err
    assert answer.out.count("left out: ") == 2


@pytest.mark.parametrize("new", [".parquet", ".npz", ".jsonl", ".csv.gz", ".tsv", ".safetensors", ".npy"])
@pytest.mark.parametrize("old", [".csv", ".parquet", ".npz", ".jsonl"])
def test_apply_writes_another_format(tmp_path, old, new):
    table = make_table()
    write_predictions(table, tmp_path / f"val{old}")
    fc.TemperatureScaling().fit(table.scores, table.labels).save(tmp_path / "t.json")
    out = tmp_path / f"val-calibrated{new}"
    answer = call("apply", tmp_path / "t.json", tmp_path / f"val{old}", "-o", out)
    assert answer.code == 0, answer.err
    again = read_predictions(out, Columns(kind="probs"), need_labels=False)
    expected = fc.load_calibrator(tmp_path / "t.json").predict_probs(table.scores)
    assert again.scores == pytest.approx(expected, abs=1e-6)
    if new != ".npy":
        assert np.array_equal(again.labels, table.labels)
        assert again.class_names == table.class_names
        assert np.array_equal(again.split, table.split)


def test_apply_to_text_labels_and_unknown_suffixes(tmp_path):
    pq.write_table(pa.table({"logits": LOGITS.tolist(), "label": NAMES}), tmp_path / "val.parquet")
    fc.TemperatureScaling().fit(LOGITS, LABELS).save(tmp_path / "t.json")
    apply = ("apply", tmp_path / "t.json", tmp_path / "val.parquet")
    assert call(*apply, "--classes", "cat,dog,horse", "--out", tmp_path / "new.csv").code == 0
    assert (tmp_path / "new.csv").read_text().startswith("prob_cat,prob_dog,prob_horse,label\n")
    answer = call(*apply, "--out", tmp_path / "new.xls")
    assert answer.code == 2
    assert "unrecognised file suffix .xls" in answer.err
    answer = call(*apply, "--out", tmp_path / "new.arrow")
    assert "arrow files are read, but not written" in answer.err


def test_gzip_of_many_blocks_is_one_file(tmp_path):
    table = make_table(n=40_000, k=4, class_names=None, weights=None, split=None)
    for ending in ("csv.gz", "jsonl.zst"):
        write_predictions(table, tmp_path / f"val.{ending}")
        require_equal(read_predictions(tmp_path / f"val.{ending}"), table)
    assert gzip.decompress((tmp_path / "val.csv.gz").read_bytes()).startswith(b"logit_0,")
