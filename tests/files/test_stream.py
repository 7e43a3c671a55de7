"""A stream gives what its rows give in memory, wherever they lie; a bad shard is named and leaves nothing behind."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.errors import InputError
from focalcal.files import (
    Columns,
    PredictionStream,
    PredictionTable,
    read_predictions,
    rewrite_predictions,
    write_predictions,
)
from focalcal.files.datasets import _of_hugging_face
from focalcal.files.derived_streams import MappedStream, calibrated, share_of
from focalcal.files.read_ahead import read_ahead
from focalcal.files.source_file import SourceFile
from focalcal.files.table import FORMATS, FileFormat, format_of

pa = pytest.importorskip("pyarrow")
from pyarrow import (  # noqa: E402
    dataset as arrow_dataset,
    feather,
    parquet,
)

RNG = np.random.default_rng(0)
LOGITS = (3 * RNG.normal(size=(1200, 6))).astype(np.float32)
LABELS = (LOGITS / 1.7 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
WEIGHTS = RNG.random(1200)
LANGUAGES = RNG.choice(["de", "en", "fr"], 1200)
SPLITS = np.where(np.arange(1200) % 3 == 0, "val", "test")
WHOLE = PredictionTable("whole", LOGITS, "logits", LABELS, WEIGHTS, SPLITS)
PIECES = [slice(0, 500), slice(500, 501), slice(501, 1200)]
SUFFIXES = [suffix for each in FORMATS.values() if "labels" in each.holds for suffix in each.suffixes]


def same_numbers(one, other, near=1e-12):
    """Two evaluations agree in every number."""
    first, second = one.to_dict(), other.to_dict()
    for name, value in first.items():
        if isinstance(value, float):
            assert second[name] == pytest.approx(value, abs=near, rel=near), name
    assert one.n == other.n
    assert one.bins.count.tolist() == other.bins.count.tolist()


def write(table, path):
    """A table in any of the formats, those of Arrow with a column of languages."""
    if path.suffix not in (".arrow", ".feather", ".parquet"):
        write_predictions(table, path)
        return
    lists = pa.ListArray.from_arrays(np.arange(len(table.scores) + 1) * 6, pa.array(table.scores.reshape(-1)))
    columns = {"logits": lists, "label": table.labels, "weight": table.weights, "split": table.split}
    columns = {name: column for name, column in columns.items() if column is not None}
    if table.groups is not None:
        columns["language"] = table.groups
    arrow = pa.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(arrow, path, row_group_size=100)
    else:
        feather.write_feather(arrow, path, compression="uncompressed", chunksize=64)


@pytest.fixture(params=SUFFIXES)
def shards(request, tmp_path):
    """A folder with the rows in three shards of a format."""
    for place, rows in enumerate(PIECES):
        write(WHOLE.take(np.arange(1200)[rows]), tmp_path / f"part-{place}{request.param}")
    return tmp_path


def is_text(folder):
    """Whether shards are text, which is read in float64."""
    return format_of(next(folder.iterdir())).is_text


@pytest.fixture
def parquets(tmp_path):
    """Shards of Parquet with languages, without weights and splits."""
    for place, rows in enumerate(PIECES):
        table = PredictionTable("part", LOGITS[rows], "logits", LABELS[rows], groups=LANGUAGES[rows])
        write(table, tmp_path / f"part-{place}.parquet")
    return tmp_path


# ------------------------------------------------------------------------------------------------------- the same rows


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "npz"])
def test_logits_of_half_precision_give_what_they_give_as_float32(tmp_path, suffix):
    half = PredictionTable("half", LOGITS.astype(np.float16), "logits", LABELS)
    write(half, tmp_path / f"half.{suffix}")
    stream, wide = PredictionStream(tmp_path / f"half.{suffix}"), half.scores.astype(np.float32)
    same_numbers(fc.evaluate(stream), fc.evaluate(wide, LABELS))
    temperature = fc.TemperatureScaling().fit(wide, LABELS).temperature_
    assert fc.TemperatureScaling().fit(stream).temperature_ == pytest.approx(temperature, rel=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_score_that_is_not_finite_is_found_in_every_precision(tmp_path, dtype, value):
    logits = np.full((1200, 6), np.finfo(dtype).max, dtype=dtype)  # their sum overflows, and all of them are fine
    write(PredictionTable("part", logits, "logits", LABELS), tmp_path / "part.parquet")
    logits[1150, 2] = value
    assert sum(batch.predictions.num_rows for batch in PredictionStream(tmp_path).batches()) == 1200
    write(PredictionTable("part", logits, "logits", LABELS), tmp_path / "part.parquet")
    with pytest.raises(
        InputError, match=rf"part.parquet: every score must be finite; got {value} in row 1150, class 2"
    ):
        list(PredictionStream(tmp_path).batches())


def test_evaluate_of_shards_is_that_of_the_arrays(shards):
    streamed = fc.evaluate(PredictionStream(shards))
    near = 1e-7 if is_text(shards) else 1e-12
    same_numbers(streamed, fc.evaluate(LOGITS, LABELS, sample_weight=WEIGHTS), near)


def test_a_fit_to_shards_is_that_to_the_arrays(shards):
    streamed = fc.TemperatureScaling().fit(PredictionStream(shards, memory=0))
    whole = fc.TemperatureScaling().fit(LOGITS, LABELS, sample_weight=WEIGHTS)
    near = 1e-6 if is_text(shards) else 1e-9
    assert streamed.temperature_ == pytest.approx(whole.temperature_, rel=near)
    assert streamed.report_.passes == 3


def test_a_split_is_a_stream_of_its_own(shards):
    chosen = SPLITS == "val"
    streamed = fc.evaluate(PredictionStream(shards, split="val"))
    same_numbers(streamed, fc.evaluate(LOGITS[chosen], LABELS[chosen], sample_weight=WEIGHTS[chosen]), near=1e-7)
    with pytest.raises(InputError, match="no rows that count"):
        fc.evaluate(PredictionStream(shards, split="train"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: fc.TemperatureScaling(),
        lambda: fc.TemperatureScaling("ada_ece"),
        lambda: fc.FocalTemperatureScaling("nll", "continuous"),
        lambda: fc.FocalTemperatureScaling("ece", gammas=[0.5, 1.0], grid=[0.8, 1.2, 1.6, 2.0]),
        lambda: fc.EnsembleTemperatureScaling(),
        lambda: fc.VectorScaling(),
        lambda: fc.MatrixScaling(),
        lambda: fc.HistogramBinning(),
        lambda: fc.SplineCalibration(),
    ],
    ids=["temperature", "ada_ece", "focal", "focal grid", "ensemble", "vector", "matrix", "histogram", "spline"],
)
@pytest.mark.parametrize("memory", [1 << 28, 32 * 1200])
def test_every_fit_takes_a_stream(parquets, make, memory):
    streamed = make().fit(PredictionStream(parquets, memory=memory))
    whole = make().fit(LOGITS, LABELS)
    sketched = isinstance(whole, fc.HistogramBinning) and memory < 1 << 28
    apart = np.abs(streamed.predict_probs(LOGITS) - whole.predict_probs(LOGITS))
    if sketched:  # a row at a cut may fall to its other side: one of eighty in its bin
        assert apart.max() < 0.04
        assert apart.mean() < 1e-3
    else:
        assert apart.max() < 1e-7
    assert streamed.report_.after == pytest.approx(whole.report_.after, abs=1e-3 if sketched else 1e-9)
    assert streamed.report_.passes == (1 if memory == 1 << 28 else streamed.report_.passes)
    assert streamed.report_.num_rows == 1200


def test_groups_are_measured_in_the_same_pass(parquets):
    grouped = fc.evaluate(PredictionStream(parquets), by="language")
    assert list(grouped) == ["de", "en", "fr"]
    for name, evaluation in grouped.items():
        same_numbers(evaluation, fc.evaluate(LOGITS[name == LANGUAGES], LABELS[name == LANGUAGES]))
    same_numbers(grouped.overall, fc.evaluate(LOGITS, LABELS))
    same_numbers(fc.evaluate(LOGITS, LABELS, by=LANGUAGES)["en"], grouped["en"])
    assert "language" in str(grouped).splitlines()[0]
    assert str(grouped).splitlines()[-1].startswith("all")
    with pytest.raises(InputError, match=r"part-0\.parquet: has no column city"):
        fc.evaluate(PredictionStream(parquets), by="city")


def test_numbers_of_groups_are_names(tmp_path):
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=LABELS, device=np.arange(1200) % 2)
    grouped = fc.evaluate(PredictionStream(tmp_path / "a.npz"), by="device")
    assert list(grouped) == ["0", "1"]
    assert grouped["1"].n == 600


# ------------------------------------------------------------------------------------------------------------- sources


def test_npy_pairs_and_folders_are_streams(tmp_path):
    np.save(tmp_path / "logits.npy", LOGITS)
    np.save(tmp_path / "labels.npy", LABELS)
    whole = fc.evaluate(LOGITS, LABELS)
    same_numbers(fc.evaluate(PredictionStream([tmp_path / "logits.npy", tmp_path / "labels.npy"])), whole)
    same_numbers(fc.evaluate(PredictionStream(tmp_path)), whole)


def test_folders_that_are_columns(tmp_path):
    for language in ("de", "en", "fr"):
        folder = tmp_path / "split=test" / f"language={language}"
        folder.mkdir(parents=True)
        rows = language == LANGUAGES
        write(PredictionTable("part", LOGITS[rows], "logits", LABELS[rows]), folder / "part.parquet")
    stream = PredictionStream(tmp_path, split="test")
    grouped = fc.evaluate(stream, by="language")
    same_numbers(grouped["fr"], fc.evaluate(LOGITS[LANGUAGES == "fr"], LABELS[LANGUAGES == "fr"]))
    assert grouped.overall.n == 1200


def _in_folders(root, *, column=None):
    """A file of each of two languages, in folders that say which; perhaps with a column of that name as well."""
    for language in ("de", "en"):
        folder = root / f"language={language}"
        folder.mkdir(parents=True)
        groups = None if column is None else np.full(np.count_nonzero(language == LANGUAGES), column)
        rows = language == LANGUAGES
        write(PredictionTable("part", LOGITS[rows], "logits", LABELS[rows], groups=groups), folder / "part.parquet")


@pytest.mark.parametrize("named", ["", "language=*", "*", "*/part.parquet", "**/*.parquet", "language=[de][en]/part.*"])
def test_folders_below_the_named_one_are_columns(tmp_path, named):
    _in_folders(tmp_path / "split=val" / "runs")
    stream = PredictionStream(tmp_path / "split=val" / "runs" / named)
    assert stream.reader.like.split is None  # that folder lies above
    assert {name: each.n for name, each in fc.evaluate(stream, by="language").items()} == {
        name: np.count_nonzero(name == LANGUAGES) for name in ("de", "en")
    }


@pytest.mark.parametrize("named", ["language=de", "language=de/part.parquet", "language=de/*.parquet"])
def test_a_folder_that_is_named_itself_is_no_column(tmp_path, monkeypatch, named):
    _in_folders(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert fc.evaluate(PredictionStream(named)).n == np.count_nonzero(LANGUAGES == "de")
    with pytest.raises(InputError, match="no column language to group by"):
        fc.evaluate(PredictionStream(named), by="language")


def test_folders_above_a_file_leave_its_columns_alone(tmp_path):
    folder = tmp_path / "label=0" / "split=train" / "scores"
    folder.mkdir(parents=True)
    write(PredictionTable("part", LOGITS, "logits", LABELS, split=SPLITS), folder / "part.parquet")
    for named in (folder, folder / "part.parquet", folder / "*.parquet", f"file://{folder}/part.parquet"):
        stream = PredictionStream(named, split="val")
        same_numbers(fc.evaluate(stream), fc.evaluate(LOGITS[SPLITS == "val"], LABELS[SPLITS == "val"]))


@pytest.mark.parametrize("how", ["folder", "pattern", "address", "memory", "dataset"])
def test_a_column_and_a_folder_of_the_same_name_are_refused(tmp_path, how):
    _in_folders(tmp_path / "runs", column="fr")
    named = {"pattern": f"{tmp_path}/runs/*/*.parquet", "address": f"file://{tmp_path}/runs"}.get(
        how, tmp_path / "runs"
    )
    if how == "dataset":
        named = arrow_dataset.dataset(named, format="parquet", partitioning="hive")
    with pytest.raises(InputError, match=r"part.parquet: .*column language.*folder language=de"):
        read_predictions(named) if how == "memory" else fc.evaluate(PredictionStream(named))


def test_folders_of_the_same_name_within_each_other_are_refused(tmp_path):
    folder = tmp_path / "language=de" / "language=en"
    folder.mkdir(parents=True)
    write(PredictionTable("part", LOGITS, "logits", LABELS), folder / "part.parquet")
    with pytest.raises(InputError, match=r"part.parquet: .*language=de and language=en"):
        PredictionStream(tmp_path)


def test_a_dataset_of_pyarrow_with_folders_that_are_columns(tmp_path):
    _in_folders(tmp_path)
    stream = PredictionStream(arrow_dataset.dataset(tmp_path, format="parquet", partitioning="hive"))
    assert {name: each.n for name, each in fc.evaluate(stream, by="language").items()} == {
        name: np.count_nonzero(name == LANGUAGES) for name in ("de", "en")
    }


def test_addresses_of_other_file_systems(parquets):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for file in parquets.iterdir():
        memory.pipe(f"/bucket/scores/{file.name}", file.read_bytes())
    whole = fc.evaluate(LOGITS, LABELS)
    for address in (
        "memory://bucket/scores/*.parquet",
        "memory://bucket/scores",
        f"file://{parquets}/**/part-[012].parquet",
    ):
        same_numbers(fc.evaluate(PredictionStream(address)), whole)
    one = PredictionStream("memory://bucket/scores/part-1.parquet")
    assert fc.evaluate(one).n == 1
    for address in ("memory://bucket/none/*.parquet", "memory://bucket/none", "nothing://bucket/a.parquet"):
        with pytest.raises(InputError, match=address[:7]):
            PredictionStream(address)


def test_a_dataset_of_pyarrow(parquets):
    dataset = arrow_dataset.dataset(parquets, format="parquet")
    same_numbers(fc.evaluate(PredictionStream(dataset)), fc.evaluate(LOGITS, LABELS))
    assert fc.evaluate(PredictionStream(dataset), by="language")["de"].n == (LANGUAGES == "de").sum()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataset_of_hugging_face(streaming):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"logits": LOGITS.tolist(), "label": LABELS, "language": LANGUAGES})
    dataset = dataset.to_iterable_dataset(num_shards=3) if streaming else dataset
    stream = PredictionStream(dataset)
    same_numbers(fc.evaluate(stream), fc.evaluate(LOGITS, LABELS), near=1e-6)
    assert fc.evaluate(stream, by="language")["de"].n == (LANGUAGES == "de").sum()


def test_a_large_dataset_of_hugging_face_is_read_in_pieces_with_names():
    rows = 64 * 8192
    for pieces, names in ((1, ["dataset"]), (2, ["dataset, piece 1 of 2", "dataset, piece 2 of 2"])):
        dataset = SimpleNamespace(num_rows=pieces * rows, shard=lambda *place, contiguous: place)
        assert [part.name for part in _of_hugging_face(dataset)] == names


def batches(size=250):
    return [(LOGITS[start : start + size], LABELS[start : start + size]) for start in range(0, 1200, size)]


def test_batches_of_python():
    whole = fc.evaluate(LOGITS, LABELS)
    named = [{"logits": torch.tensor(x), "labels": torch.tensor(y), "language": ["en"] * len(y)} for x, y in batches()]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.tensor(LOGITS), torch.tensor(LABELS)), 100
    )
    for source in (
        batches(),
        batches,
        lambda: iter(batches()),
        named,
        loader,
        [PredictionTable("t", LOGITS, "logits", LABELS)],
    ):
        same_numbers(fc.evaluate(PredictionStream(source)), whole)
    assert list(fc.evaluate(PredictionStream(named), by="language")) == ["en"]
    weighted = [(LOGITS, LABELS, WEIGHTS)]
    same_numbers(fc.evaluate(PredictionStream(weighted)), fc.evaluate(LOGITS, LABELS, sample_weight=WEIGHTS))


def test_an_iterator_can_be_read_once():
    stream = PredictionStream(iter(batches()))
    assert stream.num_classes == 6
    same_numbers(fc.evaluate(stream), fc.evaluate(LOGITS, LABELS))
    with pytest.raises(InputError, match="cannot be read again"):
        fc.evaluate(stream)
    assert fc.TemperatureScaling().fit(PredictionStream(iter(batches()))).report_.passes == 1
    with pytest.raises(InputError, match="cannot be read again"):
        fc.TemperatureScaling().fit(PredictionStream(iter(batches()), memory=0))


def test_probabilities_are_read_as_what_they_are():
    probs = torch.softmax(torch.tensor(LOGITS), 1)
    stream = PredictionStream([(probs, LABELS)], Columns(kind="probs"))
    same_numbers(fc.evaluate(stream), fc.evaluate(probs, LABELS, kind="probs"))
    assert stream.kind == "probs"


def test_tokens_become_rows():
    logits, labels = LOGITS.reshape(100, 12, 6), LABELS.reshape(100, 12).copy()
    mask = np.arange(12) < RNG.integers(1, 13, size=(100, 1))
    labels[:, 0] = -100
    weights = RNG.random(100)
    stream = PredictionStream([{"logits": logits, "labels": labels, "mask": mask, "weights": weights}])
    counts = mask & (labels != -100)
    spread = np.broadcast_to(weights[:, None], counts.shape)[counts]
    same_numbers(fc.evaluate(stream), fc.evaluate(logits[counts], labels[counts], sample_weight=spread))
    with pytest.raises(InputError, match="labels of scores"):
        fc.evaluate(PredictionStream([(logits, labels[:, :5])]))
    with pytest.raises(InputError, match="mask must have"):
        fc.evaluate(PredictionStream([{"logits": logits, "labels": labels, "mask": mask[:, :5]}]))


@pytest.mark.parametrize("source", [3, {"logits": LOGITS}, b"bytes", None])
def test_what_is_no_source_is_refused(source):
    with pytest.raises(InputError, match=r"^source"):
        PredictionStream(source)


@pytest.mark.parametrize("batch", [LOGITS, (LOGITS,), None, 5])
def test_what_is_no_batch_is_refused(batch):
    with pytest.raises(InputError, match=r"^batches"):
        fc.evaluate(PredictionStream([batch]))


# ---------------------------------------------------------------------------------------------------------- bad shards


def broken(folder, how):
    """A fourth shard that cannot be what the others are."""
    path = folder / "part-9.parquet"
    if how == "cut":
        path.write_bytes((folder / "part-0.parquet").read_bytes()[:-900])
    elif how == "page":
        content = bytearray((folder / "part-0.parquet").read_bytes())
        content[200:3000] = bytes(2800)
        path.write_bytes(bytes(content))
    elif how == "classes":
        lists = pa.array(LOGITS[:50, :5].tolist())
        parquet.write_table(pa.table({"logits": lists, "label": np.zeros(50, int), "language": ["en"] * 50}), path)
    else:
        wrong = np.where(np.arange(300) == 299, np.nan, 1.0).astype(np.float32)[:, None] * LOGITS[:300]
        write(PredictionTable("part", wrong, "logits", LABELS[:300], groups=LANGUAGES[:300]), path)
    return path


@pytest.mark.parametrize("how", ["cut", "page", "classes", "nan"])
def test_a_bad_shard_is_named_or_left_out_as_a_whole(parquets, how):
    path = broken(parquets, how)
    with pytest.raises(InputError, match=r"part-9\.parquet"):
        fc.evaluate(PredictionStream(parquets))
    stream = PredictionStream(parquets, on_bad_shard="skip")
    same_numbers(fc.evaluate(stream), fc.evaluate(LOGITS, LABELS))
    assert list(stream.skipped) == [str(path)]
    assert "part-9.parquet" in stream.skipped[str(path)]
    fitted = fc.TemperatureScaling().fit(PredictionStream(parquets, on_bad_shard="skip", memory=0))
    assert fitted.temperature_ == pytest.approx(fc.TemperatureScaling().fit(LOGITS, LABELS).temperature_, rel=1e-9)


def test_a_first_shard_that_is_bad_does_not_speak_for_the_others(parquets):
    (parquets / "part-.parquet").write_bytes(b"PAR1 and nothing more")
    stream = PredictionStream(parquets, on_bad_shard="skip")
    assert stream.num_classes == 6
    assert fc.evaluate(stream).n == 1200


def test_if_all_are_bad_that_is_an_error(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="no shard can be read"):
        fc.evaluate(PredictionStream(tmp_path, on_bad_shard="skip"))


def test_changed_files_are_noticed_in_the_second_pass(parquets):
    stream = PredictionStream(parquets, memory=0)
    passes = []

    class Changing(type(stream)):
        def reduce(self, *args, **kwargs):
            passes.append(1)
            if len(passes) == 2:
                write(PredictionTable("part", LOGITS[:500], "logits", LABELS[::-1][:500]), parquets / "part-0.parquet")
            return super().reduce(*args, **kwargs)

    stream.__class__ = Changing
    with pytest.raises(InputError, match="the same data each time"):
        fc.TemperatureScaling().fit(stream)


# -------------------------------------------------------------------------------------------------------------- memory


def test_beyond_its_memory_a_histogram_stands_for_the_confidences(parquets):
    evaluation = fc.evaluate(PredictionStream(parquets, memory=32 * 1199))
    whole = fc.evaluate(LOGITS, LABELS)
    said = [warning for warning in evaluation.warnings if "histogram" in warning]
    assert len(said) == 1
    bound = float(said[0].split("within ")[1].split(" ")[0])
    assert 0 < bound < 0.01
    assert abs(evaluation.ada_ece - whole.ada_ece) <= bound * 1.05
    for exact in ("nll", "ece", "accuracy", "classwise_ece", "mce"):
        assert getattr(evaluation, exact) == pytest.approx(getattr(whole, exact), abs=1e-12)
    assert fc.evaluate(PredictionStream(parquets, memory=32 * 1200)).warnings == whole.warnings


def test_a_weighted_histogram_counts_rows_and_weights(shards):
    evaluation = fc.evaluate(PredictionStream(shards, memory=0))
    whole = fc.evaluate(LOGITS, LABELS, sample_weight=WEIGHTS)
    assert evaluation.n == 1200
    assert evaluation.ada_ece == pytest.approx(whole.ada_ece, abs=2e-3)
    assert evaluation.ece == pytest.approx(whole.ece, abs=1e-7)


def test_a_grid_beyond_memory_is_searched_where_a_sample_says(parquets):
    whole = fc.TemperatureScaling("ada_ece").fit(LOGITS, LABELS)
    streamed = fc.TemperatureScaling("ada_ece").fit(PredictionStream(parquets, memory=4 << 20))
    assert streamed.temperature_ == whole.temperature_
    little = fc.TemperatureScaling("ada_ece").fit(PredictionStream(parquets, memory=32 * 1000))
    assert little.report_.after == pytest.approx(whole.report_.after, abs=5e-3)
    assert little.report_.passes > 2


def test_what_needs_every_row_says_so(parquets):
    with pytest.raises(InputError, match="keeps a number of every row"):
        fc.IsotonicCalibration().fit(PredictionStream(parquets, memory=32 * 1000))


# ------------------------------------------------------------------------------------------------------------- changed


def test_a_calibrated_stream_is_what_the_calibrator_makes(parquets):
    calibrator = fc.TemperatureScaling().fit(LOGITS, LABELS)
    streamed = fc.evaluate(calibrated(PredictionStream(parquets), calibrator), by="language")
    log_probs = calibrator(torch.tensor(LOGITS))
    same_numbers(streamed.overall, fc.evaluate(log_probs, LABELS, kind="log_probs"))
    chosen = LANGUAGES == "en"
    same_numbers(streamed["en"], fc.evaluate(log_probs[torch.from_numpy(chosen)], LABELS[chosen], kind="log_probs"))


def test_a_share_and_the_rest_are_all_rows_and_always_the_same(parquets):
    stream = PredictionStream(parquets)
    some, rest = share_of(stream, 0.3, seed=1), share_of(stream, 0.3, seed=1, rest=True)
    first, second = fc.evaluate(some), fc.evaluate(rest)
    assert first.n + second.n == 1200
    assert 250 < first.n < 470
    same_numbers(fc.evaluate(share_of(PredictionStream(parquets), 0.3, seed=1)), first)
    assert fc.evaluate(share_of(stream, 0.3, seed=2)).ece != first.ece
    total = first.n * first.nll + second.n * second.nll
    assert total == pytest.approx(1200 * fc.evaluate(LOGITS, LABELS).nll, rel=1e-12)
    assert isinstance(some, MappedStream)


# ---------------------------------------------------------------------------------------------------- arguments, ahead


def test_a_stream_brings_its_own_labels(parquets):
    stream = PredictionStream(parquets)
    with pytest.raises(InputError, match=r"^labels"):
        fc.evaluate(stream, LABELS)
    with pytest.raises(InputError, match=r"^labels"):
        fc.TemperatureScaling().fit(stream, LABELS)
    with pytest.raises(InputError, match=r"^labels"):
        fc.TemperatureScaling().fit(LOGITS)
    with pytest.raises(InputError, match=r"^engine"):
        fc.evaluate(LOGITS, LABELS, engine="ray")
    with pytest.raises(InputError, match=r"^engine"):
        fc.evaluate(stream, engine="spark")
    with pytest.raises(InputError, match=r"^by"):
        fc.evaluate(stream, by=LANGUAGES)
    with pytest.raises(InputError, match=r"^by"):
        fc.evaluate(LOGITS, LABELS, by=LANGUAGES[:5])


def test_progress_counts_all_rows(parquets):
    told = []
    fc.evaluate(PredictionStream(parquets, progress=lambda rows, total, name: told.append((rows, name))))
    assert sum(rows for rows, _ in told) == 1200
    assert {name.split("/")[-1] for _, name in told} == {"part-0.parquet", "part-1.parquet", "part-2.parquet"}


def test_batches_can_be_looped_over(parquets):
    read = [batch.predictions.num_rows for batch in PredictionStream(parquets).batches()]
    assert sum(read) == 1200


def test_the_reader_ends_with_its_context():
    def endless():
        while True:
            yield 1

    before = threading.active_count()
    with read_ahead(endless) as pieces:
        assert next(pieces) == 1
    assert threading.active_count() == before


def test_an_error_of_the_reader_comes_where_its_piece_was_due():
    def failing():
        yield 1
        raise ConnectionError("gone")

    with read_ahead(failing) as pieces:
        assert next(pieces) == 1
        with pytest.raises(ConnectionError, match="gone"):
            next(pieces)


def test_shards_in_any_place_of_a_table_keep_their_rows():
    assert replace(WHOLE, groups=LANGUAGES).take(SPLITS == "val").groups.tolist() == LANGUAGES[SPLITS == "val"].tolist()


def test_arrow_files_are_read_but_not_written(tmp_path):
    write(WHOLE, tmp_path / "a.arrow")
    with pytest.raises(InputError, match="not written"):
        write_predictions(WHOLE, tmp_path / "b.feather")
    for source in (tmp_path / "a.arrow", tmp_path):
        with pytest.raises(InputError, match="not written"):
            rewrite_predictions(source, tmp_path / "out.arrow", lambda scores, kind: scores)


# ------------------------------------------------------------------------------------- memory that is used again


def _as_tuple(logits, labels, languages):
    return logits, labels


def _as_mapping(logits, labels, languages):
    return {"logits": logits, "label": labels, "language": languages}


def _as_table(logits, labels, languages):
    return PredictionTable("mine", np.asarray(logits), "logits", np.asarray(labels), groups=np.asarray(languages))


def in_one_buffer(make, of, *, rows=75):
    """The rows as a generator gives them that fills the same arrays or tensors for every batch."""
    buffers = of(np.zeros((rows, 6), np.float32)), of(np.zeros(rows, np.int64))
    languages = np.full(rows, "??")
    for start in range(0, 1200, rows):
        part = slice(start, start + rows)
        buffers[0][:], buffers[1][:], languages[:] = of(LOGITS[part]), of(LABELS[part]), LANGUAGES[part]
        yield make(*buffers, languages)


@pytest.mark.parametrize("make", [_as_tuple, _as_mapping, _as_table], ids=["tuple", "mapping", "table"])
@pytest.mark.parametrize("of", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
@pytest.mark.parametrize("once", [True, False], ids=["iterator", "function"])
def test_a_source_may_use_its_memory_again(make, of, once):
    batches = in_one_buffer(make, of) if once else lambda: in_one_buffer(make, of)
    by = None if make is _as_tuple else "language"
    found = fc.evaluate(PredictionStream(batches), by=by)
    same_numbers(found if by is None else found.overall, fc.evaluate(LOGITS, LABELS))
    if by is not None:
        assert {name: each.n for name, each in found.items()} == {
            name: int(np.count_nonzero(name == LANGUAGES)) for name in ("de", "en", "fr")
        }


@pytest.mark.parametrize("kind", ["lists", "memory map", "view"])
def test_memory_that_is_used_again_may_be_of_any_kind(tmp_path, kind):
    def batches():
        held = np.zeros((75, 12), np.float32)
        if kind == "memory map":
            held = np.memmap(tmp_path / "held", np.float32, "w+", shape=(75, 12))
        listed = []
        for start in range(0, 1200, 75):
            held[:, ::2] = LOGITS[start : start + 75]
            listed[:] = held[:, ::2].tolist()
            yield listed if kind == "lists" else held[:, ::2], LABELS[start : start + 75]

    same_numbers(fc.evaluate(PredictionStream(batches)), fc.evaluate(LOGITS, LABELS), near=1e-6)
    parts = list(PredictionStream(batches).batches())
    assert not any(np.shares_memory(one.predictions._scores, parts[0].predictions._scores) for one in parts[1:])


def test_a_format_of_ones_own_may_use_its_memory_again(tmp_path):
    FORMATS["mine"] = FileFormat(
        "mine", (".mine",), "One buffer", stream=lambda *_: in_one_buffer(_as_table, np.asarray)
    )
    try:
        (tmp_path / "a.mine").write_bytes(b"")
        same_numbers(fc.evaluate(PredictionStream(tmp_path / "a.mine")), fc.evaluate(LOGITS, LABELS))
    finally:
        del FORMATS["mine"]


def test_what_files_give_is_not_copied(shards, monkeypatch):
    monkeypatch.setattr(PredictionTable, "copy", None)
    assert fc.evaluate(PredictionStream(shards)).n == 1200


def test_a_stream_that_travels_to_another_process_finds_its_files_there(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.savez("val.npz", logits=np.eye(3), labels=[0, 1, 2])
    sent = pickle.dumps(SourceFile.of("val.npz"))
    monkeypatch.chdir(tmp_path)
    arrived = pickle.loads(sent)
    assert arrived.size == (tmp_path / "here" / "val.npz").stat().st_size
    assert arrived.name == "val.npz"


# -------------------------------------------------------------------------------------------------------- empty shards


@pytest.mark.parametrize("place", [0, 2], ids=["first", "last"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_shard_may_be_empty_wherever_it_stands(tmp_path, suffix, place):
    pieces = [slice(0, 500), slice(500, 1200)]
    pieces.insert(place, slice(0, 0))
    for number, rows in enumerate(pieces):
        write(WHOLE.take(np.arange(1200)[rows]), tmp_path / f"part-{number}{suffix}")
    whole, near = fc.evaluate(LOGITS, LABELS, sample_weight=WEIGHTS), 1e-7 if format_of(f"a{suffix}").is_text else 1e-12
    same_numbers(fc.evaluate(PredictionStream(tmp_path)), whole, near)
    table = read_predictions(tmp_path)
    assert table.num_rows == 1200
    assert table.name == str(tmp_path)


@pytest.mark.parametrize("read", [read_predictions, lambda path: fc.evaluate(PredictionStream(path))])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shards_that_are_all_empty_are_refused(tmp_path, suffix, read):
    for number in range(2):
        write(WHOLE.take(np.arange(0)), tmp_path / f"part-{number}{suffix}")
    with pytest.raises(InputError, match=rf"^{tmp_path}: none of its 2 shards has rows"):
        read(tmp_path)
    with pytest.raises(InputError, match=r"part-1\.\w+: has (a header line but )?no rows. Give a file that has some"):
        read(tmp_path / f"part-1{suffix}")


@pytest.mark.parametrize("suffix", [each for each in SUFFIXES if format_of(f"a{each}").can("rewrite")])
def test_empty_shards_are_rewritten_too(tmp_path, suffix):
    def softmax(logits, kind):
        return torch.softmax(torch.tensor(logits), 1).numpy()

    (tmp_path / "in").mkdir()
    for number, rows in enumerate([slice(0, 0), slice(0, 1200)]):
        write(WHOLE.take(np.arange(1200)[rows]), tmp_path / "in" / f"part-{number}{suffix}")
    assert rewrite_predictions(tmp_path / "in", tmp_path / "out", softmax) == 1200
    assert [each.name for each in sorted((tmp_path / "out").iterdir())] == [f"part-0{suffix}", f"part-1{suffix}"]
    assert read_predictions(tmp_path / "out").kind == "probs"
    with pytest.raises(InputError, match="no rows"):
        rewrite_predictions(tmp_path / "in" / f"part-0{suffix}", tmp_path / f"one{suffix}", softmax)
    assert not (tmp_path / f"one{suffix}").exists()


def test_empty_batches_may_come_first():
    parts = [(LOGITS[:0], LABELS[:0]), (LOGITS[:0], LABELS[:0]), (LOGITS, LABELS)]
    for source in (parts, iter(parts), lambda: parts):
        same_numbers(fc.evaluate(PredictionStream(source)), fc.evaluate(LOGITS, LABELS))
    with pytest.raises(InputError, match="batches: has no rows"):
        fc.evaluate(PredictionStream(parts[:2]))


def test_an_empty_shard_is_not_a_bad_one(parquets):
    write(PredictionTable("part", LOGITS[:0], "logits", LABELS[:0]), parquets / "part-.parquet")
    stream = PredictionStream(parquets, on_bad_shard="skip")
    assert fc.evaluate(stream).n == 1200
    assert not stream.skipped
