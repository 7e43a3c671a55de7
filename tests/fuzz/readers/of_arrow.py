"""Damage to Arrow's own files, whose metadata are numbers at multiples of four and eight bytes."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.files import PredictionTable
from tests.fuzz.readers.examples import (
    CLASSES,
    Files,
    FuzzedFormat,
    Parts,
    dictionary_coded,
    labels_of,
    lists,
    scores_of,
    split_of,
    weights_of,
)
from tests.fuzz.readers.judge import parts_of_arrow
from tests.fuzz.readers.of_bytes import OF_BYTES, Mutation, little, number_near


def _arrow_number(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A number at a place where flatbuffers have them becomes another one."""
    size = rng.choice((4, 4, 8))
    start = size * rng.randrange(max(1, len(content) // size))
    value = number_near(rng, int.from_bytes(content[start : start + size], "little", signed=True))
    return content[:start] + little(value, size) + content[start + size :]


OF_ARROW: tuple[Mutation, ...] = (*(_arrow_number,) * 3, *OF_BYTES)


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
    full = {"label": labels_of(), "weight": weights_of(), "split": dictionary_coded(split_of())}
    return [
        arrow("arrow", pa.ipc.new_file, logits=lists(logits), **full),
        arrow("arrow", pa.ipc.new_stream, probs=lists(scores_of("probs", np.float16), large=True), label=labels_of()),
        arrow("feather", pa.ipc.new_file, "lz4", logits=fixed, split=split_of(), label=labels_of()),
        arrow("feather", pa.ipc.new_file, "zstd", **numbered, label=labels_of()),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    import pyarrow as pa

    content = paths[0].read_bytes()
    reader = pa.ipc.open_file(content) if content[:6] == b"ARROW1" else pa.ipc.open_stream(content)
    file = reader.read_all()
    file.validate(full=True)
    return parts_of_arrow(table, file)


FUZZED = FuzzedFormat({"arrow": _arrow_files}, OF_ARROW, read_elsewhere, may_ask_for_memory=True)
