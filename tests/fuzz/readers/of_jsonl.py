"""Damage to JSON lines: to their values, their keys and their form."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.files import PredictionTable
from tests.fuzz.readers.examples import (
    CLASSES,
    NAMES,
    ROWS,
    Files,
    FuzzedFormat,
    Parts,
    labels_of,
    names_of_labels,
    scores_of,
    split_of,
    weights_of,
)
from tests.fuzz.readers.judge import parts_of_columns
from tests.fuzz.readers.of_bytes import Mutation, words

_ODD_VALUES = (
    *words('null true false NaN Infinity -Infinity 1e999 1e-999 -1 4 99999999999999999999 "" "cat" "0" [] {} [[]]'),
    *words('[0.5] [0.5,0.5] [0.25,0.25,0.25,null] ["a","b","c","d"] {"a":1} 1.0 "\\ud800" 0x10'),
    "1" * 5000,
    "[" * 5000,
)
_ODD_KEYS = words("label labels weight weights split logits logit_0 prob_0 prob log_probs id")


def _values(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A value of some line becomes another one."""
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    row = json.loads(lines[place])
    key = rng.choice(list(row))
    mark = "\x00here\x00"
    row[key] = mark
    lines[place] = json.dumps(row).replace(json.dumps(mark), rng.choice(_ODD_VALUES)).encode()
    return b"\n".join(lines)


def _keys(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A key of one line, or of all, gets another name, stands there twice, or is left out."""
    lines = content.decode().split("\n")
    old = rng.choice(list(json.loads(lines[0])))
    new = rng.choice(_ODD_KEYS)
    some = range(len(lines)) if rng.random() < 0.5 else [rng.randrange(len(lines))]
    for place in some:
        lines[place] = lines[place].replace(f'"{old}"', f'"{new}"')
    return "\n".join(lines).encode()


def _lines(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A line is there twice or not at all, is cut, or is something else than an object."""
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    line = lines[place]
    lines[place : place + 1] = rng.choice(([], [line, line], [line[: len(line) // 2]], [b"[1]"], [b""], [line + line]))
    return b"\n".join(lines)


def _form(rng: random.Random, content: bytes, other: bytes) -> bytes:
    text = content.decode()
    forms = (
        text.encode("utf-16"),
        ("\ufeff" + text).encode(),
        text.replace("\n", "\r\n").encode(),
        text.replace("\n", ",\n").encode(),
        f"[{text}]".encode(),
        gzip.compress(content),
        gzip.compress(content)[:-9],
        b"\x28\xb5\x2f\xfd" + content,
    )
    return rng.choice(forms)


OF_LINES: tuple[Mutation, ...] = (*(_values,) * 4, _keys, _keys, _lines, _form)


def _files() -> list[Files]:
    def lines(columns: dict[str, Any]) -> Files:
        rows = zip(*(np.asarray(each).tolist() for each in columns.values()), strict=True)
        text = "\n".join(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows)
        return Files({"val.jsonl": text.encode()})

    def by_class(prefix: str, scores: Array) -> dict[str, Any]:
        return {f"{prefix}{name}": scores[:, k] for k, name in enumerate(NAMES)}

    logits, probs = scores_of("logits", np.float64), scores_of("probs", np.float64)
    return [
        lines({"logits": logits, "label": labels_of()}),
        lines({"id": range(ROWS), "probs": probs, "labels": labels_of(), "weight": weights_of(), "split": split_of()}),
        lines({"label": names_of_labels(), **by_class("prob_", probs)}),
        lines({**{f"logit_{k}": logits[:, k] for k in range(CLASSES)}, "label": labels_of()}),
        lines({"prob": scores_of("probs", np.float64, binary=True), "labels": labels_of(2)}),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    content = paths[0].read_bytes()
    content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    rows = [json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    columns = {key: [row.get(key) for row in rows] for key in rows[0]}
    return parts_of_columns(table, columns, {})


FUZZED = FuzzedFormat({"jsonl": _files}, OF_LINES, read_elsewhere)
