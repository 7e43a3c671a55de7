"""Damage to an .npy: to its header, a dict in text, and to its values."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.files import PredictionTable
from tests.fuzz.readers.examples import (
    NAMES,
    Files,
    FuzzedFormat,
    Parts,
    history_of,
    labels_of,
    names_of_labels,
    npy,
    scores_of,
    split_of,
    weights_of,
)
from tests.fuzz.readers.judge import matters, parts_of
from tests.fuzz.readers.of_bytes import (
    HUGE,
    NUMBERS,
    OF_BYTES,
    Mutation,
    little,
    number_near,
    odd_values,
    str_of,
    words,
)

_DESCRS = (
    *words("<f4 <f8 <f2 >f4 <f16 <c8 <i8 <i4 |i1 <u8 |u1 |b1 |O <U1 <U9 <U0 >U3 |S1 |S4 |S0 <M8[ns] <M8 <m8[s]"),
    *words("|V4 |V0 (2,)<f4 <f4,<f4 T float128"),
    "",
)


def npy_header(content: bytes) -> tuple[int, str]:
    """Where the values begin, and the text of the header."""
    size = 2 if content[6] == 1 else 4
    start = 8 + size
    end = start + int.from_bytes(content[8:start], "little")
    return end, content[start:end].decode("latin1")


def with_npy_header(content: bytes, text: str, values: bytes) -> bytes:
    """An .npy with this text as its header, of the version that it had."""
    size = 2 if content[6] == 1 else 4
    header = text.rstrip().encode("latin1", "replace")
    header += b" " * (-(len(header) + 9 + size) % 64) + b"\n"
    return content[:8] + little(len(header), size) + header + values


def _npy_number(rng: random.Random, content: bytes, other: bytes) -> bytes:
    end, text = npy_header(content)
    found = rng.choice(list(re.finditer(r"\d+", text)))
    new = rng.choice(HUGE) if rng.random() < 0.1 else number_near(rng, int(found[0]))
    return with_npy_header(content, text[: found.start()] + str_of(new) + text[found.end() :], content[end:])


def _npy_shape(rng: random.Random, content: bytes, other: bytes) -> bytes:
    end, text = npy_header(content)
    sizes = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 48, rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(HUGE)]
    shape = [str_of(rng.choice(sizes)) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 4, 33, 65)))]
    said = rng.choice((f"({', '.join(shape)},)" if shape else "()", f"({', '.join(shape)})", f"[{', '.join(shape)}]"))
    text = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {said}", text)
    return with_npy_header(content, text, content[end:])


def _npy_dtype(rng: random.Random, content: bytes, other: bytes) -> bytes:
    end, text = npy_header(content)
    said = rng.choice([repr(each) for each in _DESCRS] + ["[('a', '<f4')]", "None", "('<f4', (3,))", "{}", "[]"])
    text = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {said}", text)
    return with_npy_header(content, text, content[end:])


def _npy_text(rng: random.Random, content: bytes, other: bytes) -> bytes:
    end, text = npy_header(content)
    changed = rng.choice(OF_BYTES)(rng, text.strip().encode("latin1"), other).decode("latin1")
    order = text.replace("False", "?").replace("True", "False").replace("?", "True")
    nested = text.replace("{", "{" + "(" * 3000, 1)
    return with_npy_header(content, rng.choice((changed, changed, order, nested)), content[end:])


def _npy_version(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return content[:6] + bytes(rng.choice((0, 1, 2, 3, 4, 255)) for _ in range(2)) + content[8:]


def _npy_header_length(rng: random.Random, content: bytes, other: bytes) -> bytes:
    length = int.from_bytes(content[8:10], "little")
    return content[:8] + little(number_near(rng, length), 2) + content[10:]


def _npy_values(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Values become such as no score, label or character should be; their number stays."""
    end, _ = npy_header(content)
    data = bytearray(content)
    size = rng.choice((1, 2, 4, 8))
    for _ in range(rng.choice((1, 1, 4))):
        place = end + size * rng.randrange(max(1, (len(data) - end) // size))
        data[place : place + size] = rng.choice(odd_values(rng, size))
    return bytes(data[: len(content)])


OF_NPY: tuple[Mutation, ...] = (
    *(_npy_number, _npy_number, _npy_shape, _npy_shape, _npy_dtype, _npy_text, _npy_version, _npy_header_length),
    *(_npy_values,) * 4,
)


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

    full = {"labels": labels_of(), "weights": weights_of(), "split": split_of(), "class_names": np.array(NAMES)}
    encoded_names = np.array([name.encode() for name in NAMES])
    return [
        folder(logits=scores_of("logits"), **full),
        folder(probs=scores_of("probs", np.float64), labels=names_of_labels(), class_names=NAMES),
        folder(log_probs=scores_of("log_probs", np.float16), label=labels_of(), class_names=encoded_names),
        folder(logits=scores_of("logits"), labels=labels_of(), weights=weights_of().astype(np.float16)),
        folder(probs=scores_of("probs", binary=True), labels=labels_of(2), history_gamma=history_of()),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    if paths[0].is_dir():
        files = {path.stem: path for path in paths[0].iterdir()}
    else:
        files = dict(zip((table.kind, "labels"), paths, strict=True))
    wanted = {key: path for key, path in files.items() if matters(key, (table.kind,))}
    return parts_of(table, {key: np.load(path, allow_pickle=False) for key, path in wanted.items()})


FUZZED = FuzzedFormat({"npy_pair": _npy_pairs, "npy_folder": _npy_folders}, OF_NPY, read_elsewhere)
