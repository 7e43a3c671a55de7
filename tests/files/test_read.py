"""Every format gives back what was put in, whatever names, dtypes and orders it has."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch import bfloat16, float32 as torch_float32, tensor

from focalcal.errors import InputError, MissingExtraError
from focalcal.files import Columns, FileFormat, PredictionTable, read_predictions, write_predictions
from focalcal.files.arrow_rows import ArrowRows, sliced
from focalcal.files.column_names import ScoreColumns
from focalcal.files.table import CSV, FORMATS, format_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# Formats that can be written with all parts, those that keep the precision of scores, and those with AdaFocal's record.
WHOLE = [each for each in FORMATS.values() if each.can("write") and "labels" in each.holds]
SUFFIXES = [suffix for each in WHOLE for suffix in each.suffixes]
BINARY = [suffix for each in WHOLE if not each.is_text for suffix in each.suffixes]
WITH_HISTORY = [suffix for each in WHOLE if "history" in each.holds for suffix in each.suffixes]
NAMES = ("cat, tame", 'the "dog"', "two\nlines", "قطة צהובה", " [x] ")


def make_table(n=40, k=5, seed=0, dtype=np.float64, **changes) -> PredictionTable:
    rng = np.random.default_rng(seed)
    table = PredictionTable(
        "made",
        rng.normal(size=(n, k)).astype(dtype),
        "logits",
        labels=rng.integers(0, k, n),
        weights=rng.random(n),
        split=np.where(rng.random(n) < 0.5, "val", "test, held out"),
        class_names=NAMES if k == len(NAMES) else None,
    )
    return replace(table, **changes)


def held(table: PredictionTable, suffix: str) -> PredictionTable:
    """The table with the parts that a file with this suffix can hold."""
    return replace(
        table, **{part: None for part in ("weights", "split", "class_names") if part not in of(suffix).holds}
    )


def of(suffix: str) -> FileFormat:
    return format_of(f"val{suffix}")


def require_equal(one: PredictionTable, other: PredictionTable) -> None:
    assert one.kind == other.kind
    assert one.class_names == other.class_names
    assert one.history.keys() == other.history.keys()
    pairs = [(getattr(one, part), getattr(other, part)) for part in ("scores", "labels", "weights", "split")]
    for here, there in [*pairs, *((one.history[key], other.history[key]) for key in one.history)]:
        assert (here is None) == (there is None)
        assert here is None or np.array_equal(here, there)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read_again(tmp_path, suffix, dtype):
    table = held(make_table(dtype=dtype), suffix)
    write_predictions(table, tmp_path / f"val{suffix}")
    again = read_predictions(tmp_path / f"val{suffix}")
    require_equal(again, table)
    assert again.name == str(tmp_path / f"val{suffix}")
    assert again.scores.dtype == (np.float64 if of(suffix).is_text else dtype)
    assert again.labels.dtype == np.int64


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_of_nothing_but_scores_is_read_again(tmp_path, suffix):
    table = PredictionTable("made", make_table(k=3).scores, "logits")
    write_predictions(table, tmp_path / f"new{suffix}")
    require_equal(read_predictions(tmp_path / f"new{suffix}", need_labels=False), table)
    with pytest.raises(InputError, match="looked for labels and label"):
        read_predictions(tmp_path / f"new{suffix}")


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy"])
@pytest.mark.parametrize("kind", ["logits", "log_probs", "probs"])
def test_binary_scores_are_read_again(tmp_path, suffix, kind):
    scores = {"probs": [0.25, 0.5], "log_probs": [-0.5, -np.inf], "logits": [-3.0, 4.0]}[kind]
    table = PredictionTable("made", np.array(scores), kind, labels=None if suffix == ".npy" else np.array([0, 1]))
    write_predictions(table, tmp_path / f"val_{kind}{suffix}")
    require_equal(read_predictions(tmp_path / f"val_{kind}{suffix}", need_labels=False), table)


@pytest.mark.parametrize("suffix", WITH_HISTORY)
def test_the_record_of_an_adafocal_run_is_read_again(tmp_path, suffix):
    history = {"gamma": np.linspace(-2, 3, 6).reshape(2, 3), "lower_edge": np.zeros((2, 3))}
    table = make_table(history=history)
    write_predictions(table, tmp_path / f"val{suffix}")
    require_equal(read_predictions(tmp_path / f"val{suffix}"), table)
    with pytest.raises(InputError, match="text cannot hold"):
        write_predictions(table, tmp_path / "val.csv")


@pytest.mark.parametrize("suffix", BINARY)
def test_half_precision_is_widened_and_its_probabilities_sum_to_one(tmp_path, suffix):
    probs = np.random.default_rng(0).dirichlet(np.ones(50), 200).astype(np.float16)
    assert np.abs(probs.sum(1, dtype=float) - 1).max() > 1e-5
    write_predictions(PredictionTable("made", probs, "probs", labels=np.zeros(200, int)), tmp_path / f"val{suffix}")
    again = read_predictions(tmp_path / f"val{suffix}").scores
    assert again.dtype == np.float32
    assert np.abs(again.sum(1, dtype=float) - 1).max() < 1e-6
    assert np.allclose(again, probs.astype(np.float64), rtol=2e-3)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpy_arrays_of_any_order_are_read(tmp_path, save):
    table = make_table()
    names = np.array([name.encode() for name in NAMES])
    big, labels = np.asfortranarray(table.scores.astype(">f8")), table.labels.astype(">u2")
    save(tmp_path / "val.npz", logits=big, labels=labels, split=table.split, weights=table.weights, class_names=names)
    require_equal(read_predictions(tmp_path / "val.npz"), table)


def test_a_pair_of_npy_is_read_by_order_by_name_or_as_a_folder(tmp_path):
    table = make_table(weights=None, split=None, class_names=None)
    np.save(tmp_path / "logits.npy", np.asfortranarray(table.scores))
    np.save(tmp_path / "labels.npy", table.labels.astype(np.uint8))
    require_equal(read_predictions([tmp_path / "logits.npy", tmp_path / "labels.npy"]), table)
    require_equal(read_predictions(tmp_path / "logits.npy", Columns(labels=str(tmp_path / "labels.npy"))), table)
    require_equal(read_predictions(tmp_path / "logits.npy", Columns(labels="labels.npy")), table)
    require_equal(read_predictions(tmp_path), table)
    np.save(tmp_path / "split.npy", np.repeat(["a", "b"], 20))
    assert read_predictions(tmp_path).splits() == {"a": 20, "b": 20}


def test_two_pairs_of_npy_are_joined(tmp_path):
    tables = [make_table(seed=seed, n=5 + seed, weights=None, split=None, class_names=None) for seed in (0, 1)]
    paths = []
    for k, table in enumerate(tables):
        paths += [tmp_path / f"{k}.npy", tmp_path / f"{k}y.npy"]
        np.save(paths[-2], table.scores)
        np.save(paths[-1], table.labels)
    both = read_predictions(paths, Columns(kind="logits"))
    assert np.array_equal(both.scores, np.concatenate([table.scores for table in tables]))
    assert np.array_equal(both.labels, np.concatenate([table.labels for table in tables]))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shards_are_joined_in_the_order_of_their_names(tmp_path, suffix):
    table = held(make_table(), suffix)
    for k in range(4):
        write_predictions(table.take(np.arange(10 * k, 10 * k + 10)), tmp_path / f"part-{k}{suffix}")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / f".hidden{suffix}").touch()
    (tmp_path / "notes.md").touch()
    calls = []
    in_folder = read_predictions(tmp_path, progress=lambda *call: calls.append(call))
    require_equal(in_folder, table)
    require_equal(read_predictions(str(tmp_path / f"part-*{suffix}")), table)
    require_equal(read_predictions([tmp_path / f"part-{k}{suffix}" for k in range(4)]), table)
    backwards = read_predictions([tmp_path / f"part-{k}{suffix}" for k in (3, 2)])
    assert np.array_equal(backwards.labels[:10], table.labels[30:])
    assert in_folder.name == str(tmp_path)
    assert calls[-1] == (40, 40, str(tmp_path / f"part-3{suffix}"))


@pytest.mark.parametrize("part", ["labels", "weights", "split", "class_names"])
def test_shards_that_do_not_belong_together_are_refused(tmp_path, part):
    write_predictions(make_table(), tmp_path / "a.npz")
    write_predictions(make_table(**{part: None}), tmp_path / "b.npz")
    with pytest.raises(InputError, match=rf"b.npz: does not belong to the same set as .*{part.replace('_', ' ')}"):
        read_predictions(tmp_path, need_labels=False)


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    write_predictions(make_table(), tmp_path / "val[1].npz")
    require_equal(read_predictions(tmp_path / "val[1].npz"), make_table())


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if of(suffix).magic or of(suffix) is CSV])
def test_standard_input_is_read_by_its_first_bytes(tmp_path, suffix, monkeypatch):
    write_predictions(make_table(), tmp_path / f"val{suffix}")
    stdin = io.TextIOWrapper(io.BytesIO((tmp_path / f"val{suffix}").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    table = read_predictions("-")
    require_equal(table, make_table())
    assert table.name == "standard input"


def test_standard_input_is_named_when_it_is_wrong(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"label,a\n1,2\n")))
    with pytest.raises(InputError, match=r"^standard input: has no columns"):
        read_predictions("-")
    with pytest.raises(InputError, match="only once"):
        read_predictions(["-", "-"])


def read_text(tmp_path, text: str | bytes, suffix=".csv", **columns) -> PredictionTable:
    path = tmp_path / f"val{suffix}"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_predictions(path, Columns(**columns))


@pytest.mark.parametrize(
    "text",
    [
        "label,logit_0,logit_1\n1,0.5,-2e-1\n",
        "\ufefflabel,logit_0,logit_1\r\n1,0.5,-2e-1\r\n\r\n",
        "label;logit_0;logit_1\n1;0.5;-2e-1",
        "label\tlogits.0\tlogits.1\n 1 \t.5\t-0.20\n",
        'labels, logits[0], logits[1]\n1, "0.5", -0.2\n'.replace('"', ""),
        'logits_1,id,"logits_0",label\n-0.2,"a,\nb",0.5,1\n',
    ],
)
def test_text_may_look_many_ways(tmp_path, text):
    table = read_text(tmp_path, text)
    assert table.scores.tolist() == [[0.5, -0.2]]
    assert table.labels.tolist() == [1]
    assert table.class_names is None


def test_numbered_columns_are_put_in_the_order_of_their_numbers(tmp_path):
    order = sorted(range(12), key=str)  # 0, 1, 10, 11, 2, ...
    table = read_text(tmp_path, ",".join(f"logit_{k}" for k in order) + ",label\n" + ",".join(map(str, order)) + ",7\n")
    assert table.scores.tolist() == [[float(k) for k in range(12)]]
    assert table.labels.tolist() == [7]


def test_labels_are_names_or_numbers_of_classes(tmp_path):
    header = "label,prob_cat,prob_dog\n"
    assert read_text(tmp_path, header + "dog,0.5,0.5\ncat,0.5,0.5\n").labels.tolist() == [1, 0]
    assert read_text(tmp_path, header + "1,0.5,0.5\n0,0.5,0.5\n").labels.tolist() == [1, 0]
    # Columns numbered from 1: a label is the number of a column, never its place.
    assert read_text(tmp_path, "label,prob_1,prob_2\n2,0.5,0.5\n1,0.5,0.5\n").labels.tolist() == [1, 0]


def test_columns_of_other_names_are_read(tmp_path):
    text = "y,w,part,score_a,score_b,logit_0\n1,2.5,val,1,2,3\n"
    table = read_text(tmp_path, text, scores="score_", kind="logits", labels="y", weights="w", split="part")
    assert table.scores.tolist() == [[1.0, 2.0]]
    assert table.class_names == ("a", "b")
    assert (table.labels.tolist(), table.weights.tolist(), table.split.tolist()) == ([1], [2.5], ["val"])
    with pytest.raises(InputError, match=r"score_ may be logits.*--kind"):
        read_text(tmp_path, text, scores="score_", labels="y")
    np.savez(tmp_path / "val.npz", z=np.zeros((1, 2)), y=[1], names=["a", "b"])
    table = read_predictions(tmp_path / "val.npz", Columns(scores="z", kind="logits", labels="y", class_names="names"))
    assert table.class_names == ("a", "b")


def test_columns_that_are_a_prefix_and_a_number_are_scores(tmp_path):
    table = read_text(tmp_path, "l1,l0,y,last\n1.5,0.5,1,9\n2.5,0.25,0,9\n", scores="l", kind="logits", labels="y")
    assert table.scores.tolist() == [[0.5, 1.5], [0.25, 2.5]]
    assert table.class_names is None


def test_minus_infinity_is_the_logarithm_of_nothing(tmp_path):
    assert read_text(tmp_path, "label,log_prob_0,log_prob_1\n0,0,-inf\n").scores.tolist() == [[0.0, -np.inf]]


def parquet_columns(table: PredictionTable, width: int) -> dict:
    scores = table.scores
    flat = pa.array(scores.reshape(-1))
    ends = np.arange(len(scores) + 1) * scores.shape[1]
    tensors = pa.fixed_shape_tensor(flat.type, [scores.shape[1]])
    fixed = pa.FixedSizeListArray.from_arrays(flat, scores.shape[1])
    return {
        "list": {"logits": pa.ListArray.from_arrays(ends.astype(np.int32), flat)},
        "large_list": {"logits": pa.LargeListArray.from_arrays(ends, flat)},
        "fixed": {"logits": fixed},
        "tensor": {"logits": pa.ExtensionArray.from_storage(tensors, fixed)},
        "columns": {f"logit_{k}": scores[:, k] for k in range(width)},
    }


@pytest.mark.parametrize("form", ["list", "large_list", "fixed", "tensor", "columns"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_parquet_scores_may_be_lists_or_columns(tmp_path, form, dtype):
    table = make_table(n=300, dtype=dtype)
    columns = parquet_columns(table, 5)[form]
    split = pa.array(table.split.tolist()).dictionary_encode()
    data = pa.table({"id": np.arange(300), **columns, "label": table.labels.astype(np.int8), "split": split})
    pq.write_table(
        data.replace_schema_metadata({"class_names": json.dumps(NAMES)}), tmp_path / "val.parquet", row_group_size=77
    )
    again = read_predictions(tmp_path / "val.parquet")
    require_equal(again, replace(table, weights=None))
    assert again.scores.dtype == (np.float64 if dtype == np.float64 else np.float32)


def test_parquet_labels_may_be_names_and_numbered_columns_count_as_names(tmp_path):
    data = {"prob_cat": [0.5, 0.5], "prob_dog": [0.5, 0.5], "label": ["dog", "cat"]}
    pq.write_table(pa.table(data), tmp_path / "val.parquet")
    assert read_predictions(tmp_path / "val.parquet").labels.tolist() == [1, 0]
    data = {"prob_1": [0.5, 0.5], "prob_2": [0.5, 0.5], "label": [2, 1]}
    pq.write_table(pa.table(data), tmp_path / "val.parquet")
    assert read_predictions(tmp_path / "val.parquet").labels.tolist() == [1, 0]


def test_parquet_lists_of_a_slice_are_read(tmp_path):
    table = pa.table({"logits": [[9.0, 9.0, 9.0]] + [[1.0, 2.0]] * 3, "label": [0, 1, 0, 1]}).slice(1)
    pq.write_table(table, tmp_path / "val.parquet")
    assert read_predictions(tmp_path / "val.parquet").scores.tolist() == [[1.0, 2.0]] * 3


def test_safetensors_of_the_library_are_read(tmp_path):
    table = make_table(dtype=np.float32)
    arrays = {
        "logits": table.scores,
        "labels": table.labels.astype(np.int32),
        "split": np.arange(40, dtype=np.uint8) % 2,
    }
    names = {"split_names": '["val", "test"]', "class_names": json.dumps(NAMES), "history_gamma": "[[1.5], [2.5]]"}
    save_file(arrays, tmp_path / "val.safetensors", metadata=names)
    again = read_predictions(tmp_path / "val.safetensors")
    assert np.array_equal(again.scores, table.scores)
    assert again.splits() == {"val": 20, "test": 20}
    assert again.class_names == NAMES
    assert again.history["gamma"].tolist() == [[1.5], [2.5]]


def test_bfloat16_of_safetensors_is_widened(tmp_path):
    from safetensors.torch import save_file as save_tensors

    values = tensor([[1.5, -2.25], [0.1, 3e20]]).to(bfloat16)
    save_tensors({"logits": values, "labels": tensor([0, 1])}, tmp_path / "val.safetensors")
    assert np.array_equal(read_predictions(tmp_path / "val.safetensors").scores, values.to(torch_float32).numpy())


def test_what_is_written_to_safetensors_is_read_by_the_library(tmp_path):
    from safetensors.numpy import load_file

    table = make_table(dtype=np.float32)
    write_predictions(table, tmp_path / "val.safetensors")
    assert np.array_equal(load_file(tmp_path / "val.safetensors")["logits"], table.scores)


def test_what_is_written_to_npz_is_read_by_numpy_and_is_the_same_each_time(tmp_path):
    table = make_table()
    for name in ("a.npz", "b.npz"):
        write_predictions(table, tmp_path / name)
    with np.load(tmp_path / "a.npz") as file:
        assert np.array_equal(file["logits"], table.scores)
        assert tuple(file["class_names"]) == NAMES
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_text_of_two_classes_of_one_name_is_not_written(tmp_path):
    with pytest.raises(InputError, match="share a name"):
        write_predictions(make_table(class_names=("a", "a", "b", "c", "d")), tmp_path / "val.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    for place in (tmp_path / "nowhere" / "val.npz", tmp_path / "folder.npz"):
        with pytest.raises(InputError, match=r"npz: cannot be written: "):
            write_predictions(make_table(), place)


def test_formats_are_listed_without_torch_and_files_are_read_without_pyarrow():
    code = (
        "import sys, focalcal.files; from focalcal.files.table import FORMATS; print(*sys.modules)\n"
        "from focalcal.files import PredictionStream, read_predictions, rewrite_predictions; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    listing, reading = (set(line.split()) for line in done.splitlines())
    assert not {"torch", "numpy"} & listing
    assert not {"pyarrow", "pandas", "scipy", "sklearn"} & reading


def test_large_record_batches_are_read_in_slices_of_bounded_size(monkeypatch):
    monkeypatch.setattr("focalcal.files.arrow_rows.rows_per_batch", lambda width: 12 // width)
    batch = pa.record_batch({name: np.arange(10.0) for name in "abc"})
    rows = ArrowRows("val", ScoreColumns(("a", "b", "c"), "logits", single=False))
    slices = list(sliced(rows, iter([batch[:0], batch])))
    assert [each.num_rows for each in slices] == [4, 4, 2]
    assert pa.Table.from_batches(slices) == pa.Table.from_batches([batch])


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    write_predictions(make_table(), tmp_path / "val.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'focalcal\[files\]'"):
        read_predictions(tmp_path / "val.parquet")


def test_the_splits_of_real_predictions_can_be_taken(golden_predictions, tmp_path):
    probs, labels = golden_predictions("lenet-5-cifar-10")
    split = np.where(np.arange(len(labels)) % 2, "val", "test")
    write_predictions(PredictionTable("real", probs, "probs", labels=labels, split=split), tmp_path / "val.npz")
    half = read_predictions(tmp_path / "val.npz").of_split("val")
    assert half.num_rows == 5000
    assert np.array_equal(half.labels, labels[1::2])
