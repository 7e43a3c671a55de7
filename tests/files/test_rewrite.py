"""A file is rewritten in batches as it would be in memory; what is no score stays, and failures leave nothing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from focalcal.errors import FileFormatError, InputError
from focalcal.files import Columns, PredictionTable, read_predictions, rewrite_predictions, write_predictions
from focalcal.files.table import CSV
from tests.files.test_read import NAMES, SUFFIXES, WHOLE, held, make_table, of, parquet_columns, require_equal

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def softmax(scores, kind):
    assert kind == "logits"
    if scores.ndim == 1:
        return 1 / (1 + np.exp(-scores))
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def log_softmax(scores, kind):
    return np.log(softmax(scores, kind))


@pytest.fixture
def small_batches(monkeypatch):
    """Few values at a time, so that small files take many batches."""
    monkeypatch.setattr("focalcal.files.memory_limits.BATCH_VALUES", 64)
    monkeypatch.setattr("focalcal.files.parquet._GROUP_VALUES", 128)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("to", ["probs", "log_probs"])
def test_a_rewritten_file_is_what_memory_would_give(tmp_path, suffix, to):
    calibrate = {"probs": softmax, "log_probs": log_softmax}[to]
    for table in (held(make_table(n=100, dtype=dtype), suffix) for dtype in (np.float64, np.float32)):
        write_predictions(table, tmp_path / f"val{suffix}")
        calls = []
        rows = rewrite_predictions(
            tmp_path / f"val{suffix}",
            tmp_path / f"new{suffix}",
            calibrate,
            to=to,
            progress=lambda *call, calls=calls: calls.append(call),
        )
        again = read_predictions(tmp_path / f"new{suffix}")
        wide = table.scores.astype(again.scores.dtype)
        require_equal(again, replace(table, scores=calibrate(wide, "logits"), kind=to))
        assert rows == 100
        assert len(calls) > 3
        assert calls[-1] == (100, 0 if of(suffix).is_text else 100, str(tmp_path / f"val{suffix}"))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_binary_scores_without_labels_are_rewritten(tmp_path, suffix):
    table = PredictionTable("made", np.linspace(-3, 3, 200), "logits")
    write_predictions(table, tmp_path / f"val{suffix}")
    assert rewrite_predictions(tmp_path / f"val{suffix}", tmp_path / f"new{suffix}", softmax) == 200
    again = read_predictions(tmp_path / f"new{suffix}", need_labels=False)
    assert np.array_equal(again.scores, softmax(table.scores, "logits"))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_members_keep_their_bytes_their_order_and_their_compression(tmp_path, save):
    table = make_table(n=100)
    logits = np.asfortranarray(table.scores.astype(">f4"))
    other = np.array([{"any": "thing"}], dtype=object)  # copied as bytes, never opened
    save(tmp_path / "val.npz", labels=table.labels, logits=logits, embedding=np.ones((100, 7)), notes=other)
    rewrite_predictions(tmp_path / "val.npz", tmp_path / "new.npz", softmax)
    with zipfile.ZipFile(tmp_path / "val.npz") as old, zipfile.ZipFile(tmp_path / "new.npz") as new:
        assert [each.filename for each in new.infolist()] == ["labels.npy", "probs.npy", "embedding.npy", "notes.npy"]
        assert {each.compress_type for each in new.infolist()} == {each.compress_type for each in old.infolist()}
        for name in ("labels.npy", "embedding.npy", "notes.npy"):
            assert new.read(name) == old.read(name)
    with np.load(tmp_path / "new.npz") as file:
        assert file["probs"].dtype == np.dtype(">f4")
        assert np.allclose(file["probs"], softmax(table.scores, "logits"), atol=1e-6)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("form", ["list", "large_list", "fixed", "tensor", "columns"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_parquet_keeps_types_order_compression_and_metadata(tmp_path, form, dtype, codec):
    table = make_table(n=100, dtype=dtype)
    columns = parquet_columns(table, 5)[form]
    others = {
        "when": pa.array(np.arange(100), pa.timestamp("ms")),
        "tags": [["a", None]] * 50 + [None] * 50,
        "where": pa.array(["here", "there"] * 50).dictionary_encode(),
    }
    old = pa.table({"id": np.arange(100), **columns, "label": table.labels.astype(np.int16), **others})
    old = old.replace_schema_metadata({"class_names": json.dumps(NAMES), "made by": "hand"})
    pq.write_table(old, tmp_path / "val.parquet", row_group_size=40, compression=codec)
    assert rewrite_predictions(tmp_path / "val.parquet", tmp_path / "new.parquet", softmax) == 100
    new = pq.read_table(tmp_path / "new.parquet")
    names = [name.replace("logits", "probs").replace("logit_", "prob_") for name in old.schema.names]
    if form == "columns":  # their numbers stand for the names of the classes among the metadata
        assert [name for name in names if name.startswith("prob_")] == [f"prob_{k}" for k in range(5)]
    assert new.schema.names == names
    assert new.schema.types == old.schema.types
    assert new.schema.metadata == old.schema.metadata
    for name in ("id", "label", *others):
        assert new.column(name).combine_chunks().equals(old.column(name).combine_chunks())
    metadata = pq.read_metadata(tmp_path / "new.parquet")
    codecs = {metadata.row_group(0).column(k).compression for k in range(metadata.num_columns)}
    assert codecs == {"UNCOMPRESSED" if codec == "none" else "ZSTD"}
    wide = table.scores.astype(np.float32 if dtype == np.float16 else dtype)
    expected = softmax(wide, "logits")
    assert np.allclose(
        read_predictions(tmp_path / "new.parquet").scores, expected, rtol=1e-2 if dtype == np.float16 else 0
    )


def test_parquet_row_groups_stay_as_they_are_unless_they_are_very_large(tmp_path, monkeypatch):
    write = {"row_group_size": 40, "compression": {"logits.list.element": "gzip", "label": "snappy"}}
    table = make_table(n=100)
    data = pa.table({"logits": parquet_columns(table, 5)["list"]["logits"], "label": table.labels})
    pq.write_table(data, tmp_path / "val.parquet", **write)
    rewrite_predictions(tmp_path / "val.parquet", tmp_path / "new.parquet", softmax)
    metadata = pq.read_metadata(tmp_path / "new.parquet")
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [40, 40, 20]
    assert [metadata.row_group(0).column(k).compression for k in range(2)] == ["GZIP", "SNAPPY"]
    monkeypatch.setattr("focalcal.files.memory_limits.BATCH_VALUES", 50)
    monkeypatch.setattr("focalcal.files.parquet._GROUP_VALUES", 100)
    rewrite_predictions(tmp_path / "val.parquet", tmp_path / "new.parquet", softmax)
    metadata = pq.read_metadata(tmp_path / "new.parquet")
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [20, 20, 20, 20, 20]


@pytest.mark.usefixtures("small_batches")
def test_text_keeps_its_other_fields_its_dialect_and_its_ends_of_lines(tmp_path):
    old = '\ufeffid;"logits.a;b";note;logits.c\r\n007;0;"say ""no""";0\r\n 8 ;1.0;"two\nlines";1\r\n'
    (tmp_path / "val.csv").write_text(old, encoding="utf-8", newline="")
    rewrite_predictions(tmp_path / "val.csv", tmp_path / "new.csv", softmax)
    new = (tmp_path / "new.csv").read_bytes().decode()
    assert new == '\ufeffid;"prob_a;b";note;prob_c\r\n007;0.5;"say ""no""";0.5\r\n 8 ;0.5;"two\nlines";0.5\r\n'


@pytest.mark.usefixtures("small_batches")
def test_safetensors_keep_other_tensors_and_metadata(tmp_path):
    from safetensors import safe_open
    from safetensors.torch import save_file
    from torch import arange, bfloat16, float8_e4m3fn as float8, ones, randn

    others = {"a_first": ones(3, 3).to(float8), "halves": randn(50).to(bfloat16), "z_last": arange(200)}
    logits = randn(100, 3).to(bfloat16)
    save_file({"logits": logits, **others}, tmp_path / "val.safetensors", metadata={"made by": "hand"})
    rewrite_predictions(tmp_path / "val.safetensors", tmp_path / "new.safetensors", softmax)
    with safe_open(tmp_path / "new.safetensors", "pt") as file:
        assert file.metadata() == {"made by": "hand"}
        assert set(file.keys()) == {"probs", *others}
        for name, values in others.items():
            assert file.get_tensor(name).dtype == values.dtype
            assert file.get_tensor(name).float().equal(values.float())
        assert np.allclose(file.get_tensor("probs").numpy(), softmax(logits.float().numpy(), "logits"))


def test_an_npy_and_a_folder_of_npy_are_rewritten(tmp_path):
    table = make_table()
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "logits.npy", table.scores)
    np.save(tmp_path / "in" / "labels.npy", table.labels)
    expected = softmax(table.scores, "logits")
    rewrite_predictions(tmp_path / "in" / "logits.npy", tmp_path / "one.npy", softmax)
    assert np.array_equal(np.load(tmp_path / "one.npy"), expected)
    pair = [tmp_path / "in" / "logits.npy", tmp_path / "in" / "labels.npy"]
    rewrite_predictions(pair, tmp_path / "two.npy", softmax)
    assert np.array_equal(np.load(tmp_path / "two.npy"), expected)
    rewrite_predictions(tmp_path / "in", tmp_path / "out", softmax)
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["labels.npy", "probs.npy"]
    again = read_predictions(tmp_path / "out")
    assert np.array_equal(again.scores, expected)
    assert np.array_equal(again.labels, table.labels)


def test_shards_go_into_a_folder_under_their_names(tmp_path):
    for k in range(3):
        write_predictions(make_table(seed=k), tmp_path / f"part-{k}.npz")
    assert rewrite_predictions(str(tmp_path / "part-*.npz"), tmp_path / "out", softmax) == 120
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [f"part-{k}.npz" for k in range(3)]
    assert read_predictions(tmp_path / "out").num_rows == 120
    two = [tmp_path / "part-0.npz", tmp_path / "part-1.npz"]
    assert rewrite_predictions(two, tmp_path / "new" / "two", softmax) == 80
    assert rewrite_predictions([tmp_path / "part-0.npz"], tmp_path / "one.npz", softmax) == 40
    (tmp_path / "other").mkdir()
    write_predictions(make_table(), tmp_path / "other" / "part-0.npz")
    with pytest.raises(InputError, match="two of the files are named part-0"):
        rewrite_predictions([tmp_path / "part-0.npz", tmp_path / "other" / "part-0.npz"], tmp_path / "out", softmax)


def test_the_output_must_not_be_the_input_nor_of_an_unknown_format(tmp_path):
    path = tmp_path / "val.npz"
    write_predictions(make_table(), path)
    before = path.read_bytes()
    (tmp_path / "link.npz").symlink_to(path)
    for out in (path, tmp_path / "link.npz", tmp_path / "." / "val.npz"):
        with pytest.raises(InputError, match="is the input itself"):
            rewrite_predictions(path, out, softmax)
    with pytest.raises(InputError, match="is the input itself"):
        rewrite_predictions(tmp_path, tmp_path, softmax)
    pair = [tmp_path / "logits.npy", tmp_path / "labels.npy"]
    for each, values in zip(pair, (make_table().scores, make_table().labels), strict=True):
        np.save(each, values)
    with pytest.raises(InputError, match="is the input itself"):
        rewrite_predictions(pair, pair[1], softmax)
    for each in pair:
        each.unlink()
    (tmp_path / "link.csv").symlink_to(path)
    with pytest.raises(InputError, match="is the input itself"):
        rewrite_predictions(path, tmp_path / "link.csv", softmax)
    with pytest.raises(InputError, match=r"out\.xls: unrecognised file suffix \.xls"):
        rewrite_predictions(path, tmp_path / "out.xls", softmax)
    with pytest.raises(InputError, match="only text"):
        rewrite_predictions(path, "-", softmax)
    with pytest.raises(InputError, match="cannot be written"):
        rewrite_predictions(path, tmp_path / "nowhere" / "out.npz", softmax)
    with pytest.raises(InputError, match="must be a directory"):
        rewrite_predictions(str(tmp_path / "val*.npz"), path, softmax)
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_new_scores_do_not_take_the_name_of_old_ones(tmp_path, suffix):
    table = make_table(k=3)
    write_predictions(table, tmp_path / f"val{suffix}")
    rewrite_predictions(tmp_path / f"val{suffix}", tmp_path / f"probs{suffix}", softmax)
    again = tmp_path / f"again{suffix}"
    # Scores that are probabilities already are replaced, under the same name.
    rewrite_predictions(tmp_path / f"probs{suffix}", again, lambda scores, kind: scores)
    require_equal(read_predictions(again), read_predictions(tmp_path / f"probs{suffix}"))
    if suffix == ".npz":
        np.savez(tmp_path / "both.npz", logits=table.scores, probs=softmax(table.scores, "logits"))
        with pytest.raises(InputError, match="would be named probs"):
            rewrite_predictions(tmp_path / "both.npz", tmp_path / "new.npz", softmax, Columns(kind="logits"))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy"])
def test_a_failure_leaves_no_part_of_a_file_and_the_old_one_untouched(tmp_path, suffix, error):
    write_predictions(make_table(n=200), tmp_path / f"val_logits{suffix}")
    (tmp_path / f"new{suffix}").write_text("old")
    calls = []

    def fails(scores, kind):
        calls.append(len(scores))
        if len(calls) == 3:
            raise error
        return softmax(scores, kind)

    with pytest.raises(error):
        rewrite_predictions(tmp_path / f"val_logits{suffix}", tmp_path / f"new{suffix}", fails)
    assert (tmp_path / f"new{suffix}").read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"new{suffix}", f"val_logits{suffix}"]
    calls.clear()
    with pytest.raises(error):
        rewrite_predictions(str(tmp_path / f"val*{suffix}"), tmp_path / "folder", fails)
    assert not (tmp_path / "folder").exists()


@pytest.mark.usefixtures("small_batches")
def test_a_bad_row_is_named_by_its_number_in_the_file(tmp_path):
    scores = make_table(n=100).scores
    scores[77, 2] = np.nan
    np.savez(tmp_path / "val.npz", logits=scores)
    with pytest.raises(InputError, match="nan in row 77, class 2"):
        rewrite_predictions(tmp_path / "val.npz", tmp_path / "new.npz", softmax)


def test_damage_to_a_part_that_is_only_copied_is_found(tmp_path):
    table = make_table()
    np.savez(tmp_path / "val.npz", logits=table.scores, embedding=table.weights)
    content = (tmp_path / "val.npz").read_bytes()
    place = content.index(table.weights.tobytes())
    (tmp_path / "val.npz").write_bytes(content[:place] + bytes(8) + content[place + 8 :])
    with pytest.raises(FileFormatError, match=r"val.npz: embedding.npy is damaged or cut"):
        rewrite_predictions(tmp_path / "val.npz", tmp_path / "new.npz", softmax)
    assert not (tmp_path / "new.npz").exists()


def test_a_calibrator_that_changes_the_shape_is_refused(tmp_path):
    write_predictions(make_table(), tmp_path / "val.npz")
    with pytest.raises(InputError, match=r"must give scores of shape \(40, 5\); got \(40,\)"):
        rewrite_predictions(tmp_path / "val.npz", tmp_path / "new.npz", lambda scores, kind: scores[:, 0])


def test_text_goes_from_standard_input_to_standard_output(monkeypatch):
    given, out = io.BytesIO(b"id\tlogit_a\tlogit_b\n7\t1\t1\n"), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    assert rewrite_predictions("-", "-", softmax) == 1
    assert out.getvalue() == b"id\tprob_a\tprob_b\n7\t0.5\t0.5\n"
    assert not out.closed


def test_standard_input_of_any_format_goes_to_a_file(tmp_path, monkeypatch):
    for suffix in [each.suffixes[0] for each in WHOLE if each.magic or each is CSV]:
        write_predictions(make_table(), tmp_path / f"val{suffix}")
        content = (tmp_path / f"val{suffix}").read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert rewrite_predictions("-", tmp_path / f"new{suffix}", softmax) == 40
        assert read_predictions(tmp_path / f"new{suffix}").kind == "probs"


def test_a_new_file_has_the_permissions_that_others_have(tmp_path):
    write_predictions(make_table(), tmp_path / "val.npz")
    (tmp_path / "plain").touch()
    assert os.stat(tmp_path / "val.npz").st_mode == os.stat(tmp_path / "plain").st_mode


MEASURE = """
import sys
import numpy as np
from focalcal.files import rewrite_predictions

def halve(scores, kind):
    return np.full_like(scores, 1 / scores.shape[1])

def peak():  # of this process alone: ru_maxrss would begin with that of the process that started it
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024

tiny, large, new = sys.argv[1:]
rewrite_predictions(tiny, new, halve)  # what is imported on the way is not counted
before = peak()
print(rewrite_predictions(large, new, halve), peak() - before)
"""


def write_large(path, scores):
    if path.name.endswith(".parquet"):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(scores.reshape(-1)), scores.shape[1])
        rows = len(scores) if "one-group" in path.name else max(1, len(scores) // 20)
        pq.write_table(pa.table({"logits": lists}), path, row_group_size=rows, use_dictionary=False)
    elif path.name.endswith(".compressed.npz"):
        np.savez_compressed(path, logits=np.zeros_like(scores))
    else:
        write_predictions(PredictionTable("made", scores, "logits"), path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("suffix", "most"),
    [(".parquet", 150), (".one-group.parquet", 170), (".npz", 60), (".compressed.npz", 60), (".safetensors", 60)],
)
def test_large_files_are_rewritten_in_little_memory(tmp_path, suffix, most):
    rows, classes = 500_000, 100  # 191 MiB
    block = np.random.default_rng(0).normal(size=(rows // 10, classes)).astype(np.float32)
    tiny, large, new = (tmp_path / f"{name}{suffix}" for name in ("tiny", "large", "new"))
    write_large(tiny, block[:10])
    write_large(large, np.tile(block, (10, 1)))
    run = subprocess.run([sys.executable, "-c", MEASURE, tiny, large, new], capture_output=True, text=True, check=True)
    written, grown = map(int, run.stdout.split())
    assert written == rows
    assert grown < most, f"{grown} MiB for {rows * classes * 4 >> 20} MiB of scores"
