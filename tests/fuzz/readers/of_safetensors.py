"""Damage to a .safetensors: to the length of its header, to the JSON that it is, and to its values."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.files import PredictionTable
from tests.fuzz.readers.examples import (
    NAMES,
    ROWS,
    Files,
    FuzzedFormat,
    Parts,
    history_of,
    labels_of,
    scores_of,
    weights_of,
)
from tests.fuzz.readers.judge import matters, parts_of
from tests.fuzz.readers.of_bytes import HUGE, NUMBERS, OF_BYTES, Mutation, little, number_near, odd_values, str_of

_ODD_JSON = (None, True, "", "F32", "BOOL", "F8_E4M3", "\ud800", -1, 0.5, [], {}, [0], [0, 0], [[1]], "x" * 3000, 1e300)


def take_tensors_apart(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the values."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), content[start:]


def put_tensors_together(header: Any, values: bytes) -> bytes:
    """A safetensors file with this header, which is JSON or to be made into it."""
    text = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + values


def places_of(tree: Any) -> list[tuple[Any, Any]]:
    """Everything in a tree of JSON, as container and key."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    return [(tree, key) for key in keys] + [place for key in keys for place in places_of(tree[key])]


def changed_json(rng: random.Random, tree: Any) -> None:
    there, key = rng.choice(places_of(tree))
    value = there[key]
    if isinstance(value, int) and rng.random() < 0.8:
        there[key] = rng.choice(HUGE[:4]) if rng.random() < 0.1 else number_near(rng, value)
    elif isinstance(value, str) and rng.random() < 0.6:
        there[key] = _changed_text(rng, value)
    elif isinstance(value, list) and rng.random() < 0.5:
        value.append(rng.choice((*NUMBERS, *value)))
    elif isinstance(there, dict) and rng.random() < 0.4:
        there[rng.choice((*there, "logits", "labels", "class_names", "history_a", "\udfff", ""))] = there.pop(key)
    else:
        there[key] = rng.choice(_ODD_JSON)


def _changed_text(rng: random.Random, text: str) -> str:
    """A text damaged; if it is JSON, it may be damaged as such."""
    try:
        tree = [json.loads(text)]
    except ValueError:
        tree = []
    if tree and rng.random() < 0.6:
        changed_json(rng, tree)
        return json.dumps(tree[0])
    return rng.choice(OF_BYTES)(rng, text.encode(errors="replace"), b"F64F16I8").decode(errors="replace")


def _tensors_json(rng: random.Random, content: bytes, other: bytes) -> bytes:
    header, values = take_tensors_apart(content)
    for _ in range(rng.choice((1, 1, 2))):
        changed_json(rng, header)
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
    return put_tensors_together(text, values)


def _tensors_text(rng: random.Random, content: bytes, other: bytes) -> bytes:
    header, values = take_tensors_apart(content)
    text = json.dumps(header).encode()
    numbers = list(re.finditer(rb"\d+", text))
    found = rng.choice(numbers)
    number = str_of(rng.choice((*NUMBERS, *HUGE))).encode()
    forms = (number, number + b".0", b"1e3", b"NaN", b"-Infinity", b"0x10", b"00", b"[" * 3000, b"[" * 200_000)
    replaced = text[: found.start()] + rng.choice(forms) + text[found.end() :]
    damaged = rng.choice(OF_BYTES)(rng, text, other)
    return put_tensors_together(rng.choice((replaced, damaged, text + text)), values)


def _tensors_length(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return little(number_near(rng, int.from_bytes(content[:8], "little")), 8) + content[8:]


def _tensors_shape(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A shape of as many values as before, or of none with sizes beyond measure."""
    header, values = take_tensors_apart(content)
    said = header[rng.choice([key for key in header if key != "__metadata__"])]
    shape = list(said["shape"])
    huge = rng.choice((*NUMBERS, *HUGE[:4]))
    new = (shape[::-1], [1, *shape], [*shape, 1], [huge, 0], [0, huge, huge], [*shape, *[1] * 70], [], [0])
    said["shape"] = rng.choice(new)
    if 0 in said["shape"]:
        start, end = said["data_offsets"]
        values = values[:start] + values[end:]
        for each in header.values():
            if "data_offsets" in each:
                each["data_offsets"] = [at - (end - start) if at >= end else at for at in each["data_offsets"]]
    return put_tensors_together(header, values)


def _tensors_values(rng: random.Random, content: bytes, other: bytes) -> bytes:
    header, values = take_tensors_apart(content)
    size = rng.choice((1, 2, 4, 8))
    place = size * rng.randrange(max(1, len(values) // size))
    values = values[:place] + rng.choice(odd_values(rng, size)) + values[place + size :]
    return put_tensors_together(header, values)


def _tensors_long_name(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Many rows, each of a split with a very long name."""
    rows, length = rng.choice(((4000, 6000), (10, 6000), (4000, 10)))
    offsets = [0, rows * 2 * 2, rows * 2 * 2 + rows, rows * 2 * 2 + 2 * rows]
    header = {
        "__metadata__": {"split_names": json.dumps(["x" * length])},
        "logits": {"dtype": "F16", "shape": [rows, 2], "data_offsets": offsets[:2]},
        "labels": {"dtype": "U8", "shape": [rows], "data_offsets": offsets[1:3]},
        "split": {"dtype": "I8", "shape": [rows], "data_offsets": offsets[2:]},
    }
    return put_tensors_together(header, bytes(offsets[-1]))


OF_TENSORS: tuple[Mutation, ...] = (
    *(_tensors_json,) * 4,
    *(_tensors_text, _tensors_length, _tensors_shape, _tensors_shape),
    *(_tensors_values,) * 4,
    _tensors_long_name,
)


def _tensors_files() -> list[Files]:
    from safetensors.numpy import save

    def tensors(metadata: dict[str, Any] | None = None, **arrays: Array) -> Files:
        said = None if metadata is None else {key: json.dumps(value) for key, value in metadata.items()}
        return Files({"val.safetensors": save(arrays, said)})

    full = {"labels": labels_of(), "split": (np.arange(ROWS) % 2).astype(np.uint8), "weights": weights_of()}
    upper_halves = (scores_of("logits").view(np.uint32) >> 16).astype(np.uint16)
    header, values = take_tensors_apart(save({"logits": upper_halves, "labels": labels_of()}))
    header["logits"]["dtype"] = "BF16"
    return [
        tensors({"split_names": ["test", "val"], "class_names": NAMES}, logits=scores_of("logits"), **full),
        tensors({"history_gamma": history_of().tolist()}, probs=scores_of("probs", np.float64), labels=labels_of()),
        tensors(log_probs=scores_of("log_probs", np.float16), label=labels_of().astype(np.int32)),
        tensors(probs=scores_of("probs", binary=True), labels=labels_of(2), history_gamma=history_of()),
        Files({"val.safetensors": put_tensors_together(header, values)}),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    from safetensors import deserialize

    content = paths[0].read_bytes()
    arrays = {key: _tensor(said) for key, said in deserialize(content) if matters(key, (table.kind,))}
    metadata = take_tensors_apart(content)[0].get("__metadata__", {})
    if "split" in arrays and "split_names" in metadata:
        names = json.loads(metadata["split_names"])
        arrays["split"] = np.array([names[code] for code in arrays["split"].tolist()])
    return parts_of(table, arrays, metadata)


def _tensor(said: dict[str, Any]) -> Array:
    sizes = {"F": "f", "I": "i", "U": "u"}
    tag, data = said["dtype"], bytes(said["data"])
    if tag in ("BF16", "BFLOAT16"):
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(said["shape"])
    code = "b1" if tag == "BOOL" else f"<{sizes[tag[0]]}{int(tag[1:]) // 8}"
    return np.frombuffer(data, code).reshape(said["shape"])


FUZZED = FuzzedFormat({"safetensors": _tensors_files}, OF_TENSORS, read_elsewhere)
