"""Small valid prediction files of every format, in all the ways in which they are written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from focalcal.core.ranking import Array

ROWS, CLASSES = 12, 4
NAMES = ("cat", "dog, tame", "größe", "cow")


@dataclass(frozen=True)
class Files:
    """What is given to the reader: files by name, as they are listed, or the folder that they lie in."""

    contents: dict[str, bytes]
    as_folder: bool = False


@cache
def valid_files(format_name: str) -> tuple[Files, ...]:
    """The valid files of a format, at most some kilobytes each."""
    makers: dict[str, Callable[[], list[Files]]] = {
        "npz": _npz_files,
        "npy_pair": _npy_pairs,
        "npy_folder": _npy_folders,
        "csv": lambda: _text_files(".csv", ",", ";"),
        "tsv": lambda: _text_files(".tsv", "\t", "\t"),
        "parquet_lists": _parquet_lists,
        "parquet_fixed": _parquet_fixed,
        "parquet_columns": _parquet_columns,
        "arrow": _arrow_files,
        "safetensors": _tensors_files,
    }
    return tuple(makers[format_name]())


FORMATS = (
    "npz",
    "npy_pair",
    "npy_folder",
    "csv",
    "tsv",
    "parquet_lists",
    "parquet_fixed",
    "parquet_columns",
    "arrow",
    "safetensors",
)


def scores_of(kind: str, dtype: Any = np.float32, *, binary: bool = False, seed: int = 0) -> Array:
    """Scores (ROWS, CLASSES) of a kind, or (ROWS,) of a positive class."""
    logits = np.random.default_rng(seed).normal(size=(ROWS, CLASSES))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    probs[0] = np.eye(CLASSES)[1]
    with np.errstate(divide="ignore"):
        scores = {"logits": logits, "probs": probs, "log_probs": np.log(probs)}[kind].astype(dtype)
    return scores[:, 0] if binary else scores


def labels_of(classes: int = CLASSES) -> Array:
    """A label for each row."""
    return np.arange(ROWS) * 7 % classes


def _weights() -> Array:
    return np.linspace(0, 2, ROWS)


def _split() -> Array:
    return np.where(np.arange(ROWS) % 3 == 0, "val", "test")


def _history() -> Array:
    return np.arange(6.0).reshape(2, 3)


def _names_of_labels() -> Array:
    return np.array(NAMES)[labels_of()]


def npy(values: Any, version: tuple[int, int] | None = None) -> bytes:
    """An array as an .npy."""
    stream = io.BytesIO()
    npy_format.write_array(stream, np.asarray(values), version=version, allow_pickle=False)
    return stream.getvalue()


def _npz(packed: bool = False, **arrays: Any) -> Files:
    stream = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(stream, **arrays)
    return Files({"val.npz": stream.getvalue()})


def _npz_files() -> list[Files]:
    full = {"labels": labels_of(), "weights": _weights(), "split": _split(), "class_names": np.array(NAMES)}
    encoded_names = np.array([name.encode() for name in NAMES])
    return [
        _npz(logits=scores_of("logits"), **full),
        _npz(packed=True, probs=scores_of("probs", np.float64), **full, history_gamma=_history()),
        _npz(log_probs=scores_of("log_probs", np.float16), labels=labels_of().astype(np.uint8)),
        _npz(packed=True, probs=scores_of("probs", np.float16), label=labels_of().astype(">i4")),
        _npz(logits=np.asfortranarray(scores_of("logits", ">f4")), labels=_names_of_labels(), class_names=NAMES),
        _npz(probs=scores_of("probs", binary=True), labels=labels_of(2), split=_split().astype("S")),
        _npz(packed=True, logits=scores_of("logits"), labels=encoded_names[labels_of()], class_names=encoded_names),
    ]


def _npy_pairs() -> list[Files]:
    def pair(kind: str, scores: Array, labels: Array, version: tuple[int, int] = (1, 0)) -> Files:
        return Files({f"val_{kind}.npy": npy(scores, version), "val_labels.npy": npy(labels, version)})

    return [
        pair("logits", scores_of("logits"), labels_of()),
        pair("probs", scores_of("probs", ">f8"), labels_of().astype(np.int8), (2, 0)),
        pair("log_probs", np.asfortranarray(scores_of("log_probs", np.float16)), labels_of().astype(np.uint16)),
        pair("logits", scores_of("logits", np.float64, binary=True), labels_of(2)),
    ]


def _npy_folders() -> list[Files]:
    def folder(**arrays: Any) -> Files:
        return Files({f"{key}.npy": npy(values) for key, values in arrays.items()}, as_folder=True)

    full = {"labels": labels_of(), "weights": _weights(), "split": _split(), "class_names": np.array(NAMES)}
    encoded_names = np.array([name.encode() for name in NAMES])
    return [
        folder(logits=scores_of("logits"), **full),
        folder(probs=scores_of("probs", np.float64), labels=_names_of_labels(), class_names=NAMES),
        folder(log_probs=scores_of("log_probs", np.float16), label=labels_of(), class_names=encoded_names),
        folder(logits=scores_of("logits"), labels=labels_of(), weights=_weights().astype(np.float16)),
        folder(probs=scores_of("probs", binary=True), labels=labels_of(2), history_gamma=_history()),
    ]


def _text_files(suffix: str, delimiter: str, other: str) -> list[Files]:
    def text(columns: dict[str, Any], delimiter: str = delimiter, newline: str = "\n", begin: str = "") -> Files:
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter=delimiter, lineterminator=newline)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(each).tolist() for each in columns.values()), strict=True))
        return Files({f"val{suffix}": (begin + stream.getvalue()).encode()})

    def columns(prefix: str, names: Any, scores: Array) -> dict[str, Any]:
        return {f"{prefix}{name}": scores[:, k] for k, name in enumerate(names)}

    logits, probs = scores_of("logits", np.float64), scores_of("probs", np.float64)
    numbered = columns("logit_", range(CLASSES), logits)
    return [
        text({"label": labels_of(), **numbered}),
        text({"id": range(ROWS), **numbered, "label": labels_of(), "weight": _weights(), "split": _split()}),
        text({"label": _names_of_labels(), **columns("prob_", NAMES, probs)}),
        text({**columns("log_prob_", NAMES, np.log(probs.clip(1e-9))), "label": _names_of_labels()}, newline="\r\n"),
        text({"label": labels_of(), **columns("logits.", (3, 1, 0, 2), logits)}, delimiter=other, begin="\ufeff"),
        text({"prob": scores_of("probs", np.float64, binary=True), "labels": labels_of(2)}),
    ]


def _parquet(columns: dict[str, Any], metadata: dict[str, str] | None = None, **options: Any) -> Files:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), stream, **options)
    return Files({"val.parquet": stream.getvalue()})


def _lists(scores: Array, large: bool = False) -> Any:
    import pyarrow as pa

    flat, ends = pa.array(scores.reshape(-1)), np.arange(ROWS + 1) * CLASSES
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(ends, flat)


def _coded(values: Any) -> Any:
    import pyarrow as pa

    return pa.array(np.asarray(values).tolist()).dictionary_encode()


def _parquet_lists() -> list[Files]:
    full = {"label": labels_of(), "weight": _weights(), "split": _coded(_split())}
    named = {"class_names": json.dumps(NAMES), "history_gamma": json.dumps(_history().tolist())}
    logits, half = _lists(scores_of("logits")), _lists(scores_of("probs", np.float16))
    return [
        _parquet({"logits": logits, **full}, named, compression="NONE"),
        _parquet({"logits": logits, **full}, compression="SNAPPY", row_group_size=5),
        _parquet({"probs": half, "labels": labels_of()}, compression="ZSTD", use_dictionary=False),
        _parquet(
            {"log_probs": _lists(scores_of("log_probs", np.float64), large=True), "labels": labels_of()},
            compression="GZIP",
            data_page_version="2.0",
        ),
        _parquet(
            {"logits": logits, "labels": _coded(_names_of_labels())},
            named,
            compression="LZ4",
            write_page_checksum=True,
        ),
        _parquet({"logits": logits, "labels": labels_of()}, compression="NONE", store_schema=False, data_page_size=64),
    ]


def _parquet_fixed() -> list[Files]:
    import pyarrow as pa

    def fixed(scores: Array) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(scores.reshape(-1)), CLASSES)

    logits, probs = fixed(scores_of("logits")), fixed(scores_of("probs", np.float64))
    half = fixed(scores_of("log_probs", np.float16))
    full = {"label": labels_of().astype(np.int8), "weight": _weights().astype(np.float32), "split": _split()}
    return [
        _parquet({"logits": logits, **full}, compression="NONE"),
        _parquet({"probs": probs, **full}, compression="BROTLI", row_group_size=4, data_page_version="2.0"),
        _parquet({"log_probs": half, "labels": labels_of()}, compression="SNAPPY"),
        _parquet({"logits": logits, "labels": labels_of()}, compression="GZIP", use_dictionary=["labels"]),
        _parquet({"log_probs": half, "labels": _names_of_labels()}, {"class_names": json.dumps(NAMES)}),
    ]


def _parquet_columns() -> list[Files]:
    import pyarrow as pa

    def columns(prefix: str, names: Any, scores: Array) -> dict[str, Any]:
        return {f"{prefix}{name}": scores[:, k] for k, name in enumerate(names)}

    numbered = columns("logit_", range(CLASSES), scores_of("logits"))
    coded = {key: _coded(values) for key, values in numbered.items()}
    named = columns("prob_", NAMES, scores_of("probs", np.float64))
    half = columns("log_prob_", range(CLASSES), scores_of("log_probs", np.float16))
    binary = {"prob": scores_of("probs", binary=True), "label": labels_of(2)}
    plain = {"column_encoding": "BYTE_STREAM_SPLIT", "use_dictionary": False}
    return [
        _parquet({**numbered, "label": labels_of()}, compression="NONE", row_group_size=5),
        _parquet({**coded, "label": labels_of()}, compression="SNAPPY"),
        _parquet({**named, "label": _coded(_names_of_labels())}, compression="ZSTD"),
        _parquet({**half, "label": labels_of(), "split": pa.array(_split().tolist())}, compression="LZ4"),
        _parquet(binary, compression="NONE", data_page_version="2.0"),
        _parquet({"logit_0": numbered["logit_0"], "logit_1": numbered["logit_1"], "label": labels_of(2)}, **plain),
    ]


def _arrow_files() -> list[Files]:
    import pyarrow as pa

    def arrow(suffix: str, new: Any, codec: str | None = None, **columns: Any) -> Files:
        table, stream = pa.table(columns), io.BytesIO()
        with new(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table, max_chunksize=5)
        return Files({f"val.{suffix}": stream.getvalue()})

    logits = scores_of("logits")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), CLASSES)
    numbered = {f"logit_{k}": logits[:, k] for k in range(CLASSES)}
    full = {"label": labels_of(), "weight": _weights(), "split": _coded(_split())}
    return [
        arrow("arrow", pa.ipc.new_file, logits=_lists(logits), **full),
        arrow("arrow", pa.ipc.new_stream, probs=_lists(scores_of("probs", np.float16), large=True), label=labels_of()),
        arrow("feather", pa.ipc.new_file, "lz4", logits=fixed, split=_split(), label=labels_of()),
        arrow("feather", pa.ipc.new_file, "zstd", **numbered, label=labels_of()),
    ]


def take_tensors_apart(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the values."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), content[start:]


def put_tensors_together(header: Any, values: bytes) -> bytes:
    """A safetensors file with this header, which is JSON or to be made into it."""
    text = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + values


def _tensors_files() -> list[Files]:
    from safetensors.numpy import save

    def tensors(metadata: dict[str, Any] | None = None, **arrays: Array) -> Files:
        said = None if metadata is None else {key: json.dumps(value) for key, value in metadata.items()}
        return Files({"val.safetensors": save(arrays, said)})

    full = {"labels": labels_of(), "split": (np.arange(ROWS) % 2).astype(np.uint8), "weights": _weights()}
    upper_halves = (scores_of("logits").view(np.uint32) >> 16).astype(np.uint16)
    header, values = take_tensors_apart(save({"logits": upper_halves, "labels": labels_of()}))
    header["logits"]["dtype"] = "BF16"
    return [
        tensors({"split_names": ["test", "val"], "class_names": NAMES}, logits=scores_of("logits"), **full),
        tensors({"history_gamma": _history().tolist()}, probs=scores_of("probs", np.float64), labels=labels_of()),
        tensors(log_probs=scores_of("log_probs", np.float16), label=labels_of().astype(np.int32)),
        tensors(probs=scores_of("probs", binary=True), labels=labels_of(2), history_gamma=_history()),
        Files({"val.safetensors": put_tensors_together(header, values)}),
    ]
