"""Damage to text: to its fields, its header line, its shape and its form."""

from __future__ import annotations

import csv
import io
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
from tests.fuzz.readers.of_bytes import HUGE, NUMBERS, Mutation, str_of, words

_ODD_FIELDS = (
    *words("nan inf -inf 1e999 -1e999 1e-999 0x10 1_0 ٣ １ 1.5.2 --1 +1 1e -1 4 99999999999999999999 cat None true"),
    *("", " ", " 1 ", "\0", "\ufeff", "\x1e", "\u2028", "\ud7ff", "1,5", "1;5", "1\t5", "a\nb"),
    *('"', "'", '"a', 'a"b', '"a"b', '"1"', '"1\n"'),
    *("1" * 5000, "0." + "3" * 5000, "x" * 5000, "x" * 200_000),
)
_ODD_NAMES = (
    *words("label labels weight weights split logit_0 logit_9 logit_ logits logit prob_0 prob log_prob_0 logits[0]"),
    *words("logit.0 probs:1 logit_00 logit_-1 logit_٣ logit_0_1 1 id"),
    *("", " "),
)


def _cells(content: bytes) -> tuple[list[list[str]], str, str]:
    """The lines of a text cut at its delimiter, quotes or not; the delimiter; and what ends a line."""
    text = content.decode("utf-8-sig", errors="replace")
    newline = "\r\n" if "\r\n" in text else "\n"
    delimiter = max(",;\t", key=text.count)
    return [line.split(delimiter) for line in text.split(newline)], delimiter, newline


def _text_of(rows: list[list[str]], delimiter: str, newline: str) -> bytes:
    return newline.join(map(delimiter.join, rows)).encode()


def _text_field(rng: random.Random, content: bytes, other: bytes) -> bytes:
    rows, *form = _cells(content)
    for _ in range(rng.choice((1, 1, 3))):
        row = rng.choice(rows)
        odd, number, from_elsewhere = (
            rng.choice(_ODD_FIELDS),
            str_of(rng.choice((*NUMBERS, *HUGE))),
            rng.choice(rows)[0],
        )
        row[rng.randrange(len(row))] = rng.choice((odd, number, from_elsewhere))
    return _text_of(rows, *form)


def _text_header(rng: random.Random, content: bytes, other: bytes) -> bytes:
    rows, *form = _cells(content)
    header = rows[0]
    place = rng.randrange(len(header))
    odd, other_of_header = rng.choice((*_ODD_NAMES, *_ODD_FIELDS)), rng.choice(header)
    header[place] = rng.choice((odd, odd, header[place] + "x", other_of_header))
    return _text_of(rows, *form)


def _text_line(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A line becomes shorter or longer, or is there twice or not at all."""
    rows, *form = _cells(content)
    place = rng.randrange(len(rows))
    row = rows[place]
    rows[place : place + 1] = rng.choice(([row[:-1]], [[*row, rng.choice(_ODD_FIELDS)]], [row, row], []))
    return _text_of(rows, *form)


def _text_columns(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A column is there twice or not at all, or the columns stand in another order."""
    rows, *form = _cells(content)
    places = list(range(len(rows[0])))
    order = rng.choice((rng.sample(places, len(places)), rng.sample(places, len(places) - 1), [*places, places[0]]))
    return _text_of([[row[place] for place in order if place < len(row)] for row in rows], *form)


def _text_form(rng: random.Random, content: bytes, other: bytes) -> bytes:
    text = content.decode("utf-8-sig", errors="replace")
    old = max(",;\t", key=text.count)
    forms = (
        text.encode("utf-16"),
        text.encode("latin1", errors="replace"),
        ("\ufeff" + text).encode(),
        text.replace(old, rng.choice(",;\t|")).encode(),
        text.replace("\r\n", "\n").replace("\n", rng.choice(("\r", "\r\n", "\n\n", "\n\r", "\x0b", "\u2028"))).encode(),
        text.replace("e", "E").replace("-", "\u2212").encode(),
        text.replace(".", ",").encode(),
    )
    return rng.choice(forms)


def _text_long_name(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Many short lines, one of which has a very long name of a split or of a label."""
    begin, line = rng.choice(
        ((b"label,logit_0,logit_1,split\n", b"0,1,2,"), (b"logit_0,logit_1,label\n", b"1,2,")),
    )
    lines = begin + (line + b"0\n") * 2000 + line + b"x" * rng.choice((10, 100_000)) + b"\n"
    return lines.replace(b",", b"\t") if b"\t" in content else lines


OF_TEXT: tuple[Mutation, ...] = (
    *(_text_field,) * 4,
    *(_text_header, _text_header, _text_line, _text_columns, _text_form, _text_long_name),
)


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
        text({"id": range(ROWS), **numbered, "label": labels_of(), "weight": weights_of(), "split": split_of()}),
        text({"label": names_of_labels(), **columns("prob_", NAMES, probs)}),
        text({**columns("log_prob_", NAMES, np.log(probs.clip(1e-9))), "label": names_of_labels()}, newline="\r\n"),
        text({"label": labels_of(), **columns("logits.", (3, 1, 0, 2), logits)}, delimiter=other, begin="\ufeff"),
        text({"prob": scores_of("probs", np.float64, binary=True), "labels": labels_of(2)}),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    with paths[0].open(encoding="utf-8-sig", newline="") as file:
        text = file.read()

    def rows(delimiter: str) -> list[list[str]]:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]

    delimiter = "\t" if paths[0].suffix == ".tsv" else max(",\t;", key=lambda sign: len(rows(sign)[0]))
    header, *lines = rows(delimiter)
    columns = dict(zip([name.lstrip() for name in header], map(list, zip(*lines, strict=True)), strict=True))
    if delimiter != ",":
        for keys in ([key for key in columns if key.startswith(("log", "prob"))], ["weight"], ["weights"]):
            _read_commas(columns, keys)
    return parts_of_columns(table, columns, {})


def _read_commas(columns: dict[str, list[str]], keys: list[str]) -> None:
    """Numbers of some columns that are written with decimal commas, and none with a point, get points."""
    text = "".join("".join(columns.get(key, ())) for key in keys)
    if "," in text and "." not in text:
        columns.update({key: [each.replace(",", ".") for each in columns[key]] for key in keys if key in columns})


FUZZED = FuzzedFormat(
    {"csv": lambda: _text_files(".csv", ",", ";"), "tsv": lambda: _text_files(".tsv", "\t", "\t")},
    OF_TEXT,
    read_elsewhere,
)
