"""Damage to a .parquet: to its metadata, to the headers of its pages, and to what the pages hold when unpacked."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.files import PredictionTable
from tests.fuzz.readers import thrift
from tests.fuzz.readers.examples import (
    CLASSES,
    NAMES,
    Files,
    FuzzedFormat,
    Parts,
    dictionary_coded,
    history_of,
    labels_of,
    lists,
    names_of_labels,
    scores_of,
    split_of,
    weights_of,
)
from tests.fuzz.readers.judge import PREFIXES, matters, parts_of_arrow
from tests.fuzz.readers.of_bytes import NUMBERS, OF_BYTES, Mutation, flipped_bits, little, number_near, other_bytes

# Numbers of fields in parquet.thrift.
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS, _COLUMN_METADATA = 1, 3, 3
_CODEC, _NUM_VALUES, _COMPRESSED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = 4, 5, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


def footer_of(content: bytes) -> tuple[thrift.Struct, int]:
    """The metadata of a file, and where they begin."""
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if start < 4:
        raise ValueError("there is no footer")
    return thrift.Reader(content, start).struct(), start


def with_footer(content: bytes, footer: bytes) -> bytes:
    """A file that ends with these metadata."""
    return content + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _slots(value: Any) -> list[tuple[Any, Any, int]]:
    """Everything in a tree of thrift: where it stands, as container and key, and its type."""
    found: list[tuple[Any, Any, int]] = []
    if isinstance(value, thrift.Items):
        for k, each in enumerate(value.values):
            found += [(value.values, k, value.type), *_slots(each)]
    elif isinstance(value, list):
        for each in value:
            found += [(each, "value", each.type), *_slots(each.value)]
    return [each for each in found if not isinstance(_at(*each[:2]), thrift.Raw)]


def _at(there: Any, key: Any) -> Any:
    return there[key] if isinstance(there, list) else there.value


def _changed_thrift(rng: random.Random, tree: thrift.Struct) -> None:
    """One number, string, list or struct of a tree becomes another one."""
    there, key, kind = rng.choice(_slots(tree))
    value = new = _at(there, key)
    if kind in (thrift.TRUE, thrift.FALSE):
        new = not value
    elif kind in (thrift.I8, thrift.I16, thrift.I32, thrift.I64):
        new = number_near(rng, value)
    elif kind == thrift.DOUBLE:
        new = rng.choice((0.0, -1.0, float("nan"), 1e300))
    elif kind == thrift.BINARY:
        lie = thrift.Raw(thrift.varint(rng.choice((2**16, 2**27, 2**31 - 1, 2**32 - 1, 2**63))) + value)
        new = rng.choice((lie, *(rng.choice(OF_BYTES)(rng, value, b"logits label split prob_0") for _ in range(3))))
    elif kind in (thrift.LIST, thrift.SET):
        new = _changed_items(rng, value)
    elif kind == thrift.STRUCT:
        new = _changed_struct(rng, value)
    if isinstance(there, list):
        there[key] = new
    else:
        there.value = new


def _changed_items(rng: random.Random, items: thrift.Items) -> Any:
    values = list(items.values)
    kind = rng.randrange(4)
    if kind == 0 or not values:
        count = rng.choice((len(values) + 1, 1000, 10**6, 2**24, 2**31 - 1, 2**32 - 1))
        whole = thrift.encoded([thrift.Field(1, thrift.LIST, items)])
        return thrift.Raw(bytes([0xF0 | items.type]) + thrift.varint(count) + whole[2:-1])
    if kind == 1:
        values.pop(rng.randrange(len(values)))
    elif kind == 2:
        values.insert(rng.randrange(len(values)), rng.choice(values))
    else:
        rng.shuffle(values)
    return thrift.Items(items.type, values)


def _changed_struct(rng: random.Random, fields: thrift.Struct) -> thrift.Struct:
    fields = list(fields)
    if fields and rng.random() < 0.5:
        fields.pop(rng.randrange(len(fields)))
    elif fields:
        each = rng.choice(fields)
        number, kind = rng.choice(((each.id, rng.randint(1, 12)), (rng.randrange(20), each.type)))
        coded = thrift.Raw(thrift.encoded([each])[1:-1])
        fields[fields.index(each)] = thrift.Field(number, kind, coded)
    return fields


def _parquet_footer(rng: random.Random, content: bytes, other: bytes) -> bytes:
    tree, start = footer_of(content)
    for _ in range(rng.choice((1, 1, 1, 2))):
        _changed_thrift(rng, tree)
    return with_footer(content[:start], thrift.encoded(tree))


def _parquet_footer_bytes(rng: random.Random, content: bytes, other: bytes) -> bytes:
    _, start = footer_of(content)
    footer = content[start:-8]
    others = other[footer_of(other)[1] : -8]
    return with_footer(content[:start], rng.choice((rng.choice(OF_BYTES)(rng, footer, others), others)))


def _parquet_footer_length(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return content[:-8] + little(number_near(rng, int.from_bytes(content[-8:-4], "little")), 4) + content[-4:]


def _chunks(tree: thrift.Struct) -> list[thrift.Struct]:
    """The metadata of all columns of all row groups."""
    groups = thrift.field(tree, _ROW_GROUPS).values
    return [thrift.field(each, _COLUMN_METADATA) for group in groups for each in thrift.field(group, _COLUMNS).values]


def _pages(content: bytes, chunk: thrift.Struct) -> list[tuple[int, int, int]]:
    """Where the header of each page begins, where its values do, and where they end."""
    starts = [thrift.field(chunk, _DICTIONARY_OFFSET), thrift.field(chunk, _DATA_OFFSET)]
    at = min(each for each in starts if each is not None)
    end, pages = at + thrift.field(chunk, _COMPRESSED_SIZE), []
    while at < end:
        reader = thrift.Reader(content, at)
        after = thrift.field(reader.struct(), _PAGE_PACKED)
        if after < 0:
            raise ValueError("a page goes backwards")
        pages.append((at, reader.at, reader.at + after))
        at = reader.at + after
    return pages


def _moved(tree: thrift.Struct, place: int, by: int) -> None:
    """Correct what the metadata say, after the page at a place has grown by so many bytes."""
    for chunk in _chunks(tree):
        starts = [thrift.field(chunk, number) for number in (_DICTIONARY_OFFSET, _DATA_OFFSET)]
        start, size = min(each for each in starts if each is not None), thrift.field(chunk, _COMPRESSED_SIZE)
        if start <= place < start + size:
            thrift.change(chunk, _COMPRESSED_SIZE, size + by)
        for number, at in zip((_DICTIONARY_OFFSET, _DATA_OFFSET), starts, strict=True):
            if at is not None and at > place:
                thrift.change(chunk, number, at + by)


def _page_replaced(rng: random.Random, content: bytes, change: Callable[[thrift.Struct, bytes, int], bytes]) -> bytes:
    """The file with a page that `change` makes of its header, its values and its codec; all offsets fit again."""
    tree, footer = footer_of(content)
    chunk = rng.choice(_chunks(tree))
    start, middle, end = rng.choice(_pages(content, chunk))
    header = thrift.Reader(content, start).struct()
    page = change(header, content[middle:end], thrift.field(chunk, _CODEC))
    _moved(tree, start, len(page) - (end - start))
    return with_footer(content[:start] + page + content[end:footer], thrift.encoded(tree))


def _parquet_page_header(rng: random.Random, content: bytes, other: bytes) -> bytes:
    def change(header: thrift.Struct, values: bytes, codec: int) -> bytes:
        _changed_thrift(rng, header)
        return thrift.encoded(header) + values

    return _page_replaced(rng, content, change)


def _parquet_page_values(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """The levels, indices or numbers of a page damaged beneath its compression."""

    def change(header: thrift.Struct, values: bytes, codec: int) -> bytes:
        values = _unpacked(codec, values, thrift.field(header, _PAGE_UNPACKED))
        values = rng.choice((flipped_bits, other_bytes, *OF_BYTES))(rng, values, values[::-1])
        packed = _packed(codec, values)
        thrift.change(header, _PAGE_UNPACKED, len(values))
        thrift.change(header, _PAGE_PACKED, len(packed))
        return thrift.encoded(header) + packed

    return _page_replaced(rng, content, change)


def _unpacked(codec: int, values: bytes, size: int) -> bytes:
    import pyarrow as pa

    if codec not in _CODECS or not 0 < size < 1 << 16:
        return values
    try:
        return bytes(pa.decompress(values, size, codec=_CODECS[codec], asbytes=True))
    except (pa.ArrowException, OSError, ValueError):  # levels of version 2 lie before what is packed
        return values


def _packed(codec: int, values: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(values, _CODECS[codec], asbytes=True)) if codec in _CODECS else values


def _parquet_page_bytes(rng: random.Random, content: bytes, other: bytes) -> bytes:
    tree, _ = footer_of(content)
    start, middle, end = rng.choice(_pages(content, rng.choice(_chunks(tree))))
    start, end = rng.choice(((start, middle), (middle, end)))
    return content[:start] + rng.choice(OF_BYTES)(rng, content[start:end], other) + content[end:]


def _parquet_rows(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """All counts of rows and values in the metadata become the same other number."""
    tree, start = footer_of(content)
    count = rng.choice(NUMBERS)
    groups = thrift.field(tree, _ROW_GROUPS).values
    thrift.change(tree, _NUM_ROWS, count * len(groups))
    for group in groups:
        thrift.change(group, _GROUP_ROWS, count)
    if rng.random() < 0.7:
        for chunk in _chunks(tree):
            thrift.change(chunk, _NUM_VALUES, count)
    return with_footer(content[:start], thrift.encoded(tree))


@cache
def _with_long_names(rows: int, length: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    logits = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0] * rows), 2)
    table, stream = pa.table({"logits": logits, "label": [0] * rows, "split": ["x" * length] * rows}), io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def _parquet_long_name(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Many rows of a split with a very long name, which is there once."""
    return _with_long_names(*rng.choice(((2500, 4000), (10, 6000), (4000, 10))))


OF_PARQUET: tuple[Mutation, ...] = (
    *(_parquet_footer,) * 5,
    *(_parquet_page_header, _parquet_page_header, _parquet_page_values, _parquet_page_values, _parquet_page_values),
    *(_parquet_footer_bytes, _parquet_footer_length, _parquet_page_bytes, _parquet_rows, _parquet_long_name),
)


def _parquet(columns: dict[str, Any], metadata: dict[str, str] | None = None, **options: Any) -> Files:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), stream, **options)
    return Files({"val.parquet": stream.getvalue()})


def _parquet_lists() -> list[Files]:
    full = {"label": labels_of(), "weight": weights_of(), "split": dictionary_coded(split_of())}
    named = {"class_names": json.dumps(NAMES), "history_gamma": json.dumps(history_of().tolist())}
    logits, half = lists(scores_of("logits")), lists(scores_of("probs", np.float16))
    return [
        _parquet({"logits": logits, **full}, named, compression="NONE"),
        _parquet({"logits": logits, **full}, compression="SNAPPY", row_group_size=5),
        _parquet({"probs": half, "labels": labels_of()}, compression="ZSTD", use_dictionary=False),
        _parquet(
            {"log_probs": lists(scores_of("log_probs", np.float64), large=True), "labels": labels_of()},
            compression="GZIP",
            data_page_version="2.0",
        ),
        _parquet(
            {"logits": logits, "labels": dictionary_coded(names_of_labels())},
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
    full = {"label": labels_of().astype(np.int8), "weight": weights_of().astype(np.float32), "split": split_of()}
    return [
        _parquet({"logits": logits, **full}, compression="NONE"),
        _parquet({"probs": probs, **full}, compression="BROTLI", row_group_size=4, data_page_version="2.0"),
        _parquet({"log_probs": half, "labels": labels_of()}, compression="SNAPPY"),
        _parquet({"logits": logits, "labels": labels_of()}, compression="GZIP", use_dictionary=["labels"]),
        _parquet({"log_probs": half, "labels": names_of_labels()}, {"class_names": json.dumps(NAMES)}),
    ]


def _parquet_columns() -> list[Files]:
    import pyarrow as pa

    def columns(prefix: str, names: Any, scores: Array) -> dict[str, Any]:
        return {f"{prefix}{name}": scores[:, k] for k, name in enumerate(names)}

    numbered = columns("logit_", range(CLASSES), scores_of("logits"))
    coded = {key: dictionary_coded(values) for key, values in numbered.items()}
    named = columns("prob_", NAMES, scores_of("probs", np.float64))
    half = columns("log_prob_", range(CLASSES), scores_of("log_probs", np.float16))
    binary = {"prob": scores_of("probs", binary=True), "label": labels_of(2)}
    plain = {"column_encoding": "BYTE_STREAM_SPLIT", "use_dictionary": False}
    return [
        _parquet({**numbered, "label": labels_of()}, compression="NONE", row_group_size=5),
        _parquet({**coded, "label": labels_of()}, compression="SNAPPY"),
        _parquet({**named, "label": dictionary_coded(names_of_labels())}, compression="ZSTD"),
        _parquet({**half, "label": labels_of(), "split": pa.array(split_of().tolist())}, compression="LZ4"),
        _parquet(binary, compression="NONE", data_page_version="2.0"),
        _parquet({"logit_0": numbered["logit_0"], "logit_1": numbered["logit_1"], "label": labels_of(2)}, **plain),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    import pyarrow.parquet as pq

    there = pq.read_schema(paths[0]).names
    wanted = [name for name in there if matters(name, ()) or name.startswith(PREFIXES[table.kind])]
    file = pq.read_table(paths[0], columns=wanted, use_threads=False)
    return parts_of_arrow(table, file)


FUZZED = FuzzedFormat(
    {"parquet_lists": _parquet_lists, "parquet_fixed": _parquet_fixed, "parquet_columns": _parquet_columns},
    OF_PARQUET,
    read_elsewhere,
    may_ask_for_memory=True,
)
