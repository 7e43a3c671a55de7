"""Damage to an .npz: to the records of the archive, and to what lies beneath its checksums."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.files import PredictionTable
from tests.fuzz.readers.examples import (
    NAMES,
    Files,
    FuzzedFormat,
    Parts,
    history_of,
    labels_of,
    names_of_labels,
    scores_of,
    split_of,
    weights_of,
)
from tests.fuzz.readers.judge import matters, parts_of
from tests.fuzz.readers.of_bytes import OF_BYTES, Mutation, little, number_near, words
from tests.fuzz.readers.of_npy import OF_NPY, npy_header, with_npy_header

# The fields of the three records of an archive, as place and size after the record's first byte.
_RECORDS = {
    b"PK\x03\x04": ((4, 2), (6, 2), (8, 2), (10, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
    b"PK\x01\x02": (
        *((4, 2), (6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4)),
        *((28, 2), (30, 2), (32, 2), (34, 2), (38, 4), (42, 4)),
    ),
    b"PK\x05\x06": ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
}


def _zip_field(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A number in one of the records becomes another one."""
    signature = rng.choice(list(_RECORDS))
    place = rng.choice([found.start() for found in re.finditer(re.escape(signature), content)])
    offset, size = rng.choice(_RECORDS[signature])
    start = place + offset
    value = number_near(rng, int.from_bytes(content[start : start + size], "little"))
    return content[:start] + little(value, size) + content[start + size :]


def _members(content: bytes) -> list[tuple[str, int, bytes]]:
    """Names, ways of packing and contents."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return [(info.filename, info.compress_type, file.read(info)) for info in file.infolist()]


def _zipped(members: Sequence[tuple[str, int, bytes]]) -> bytes:
    """An archive. Its members get their names at the end, since zipfile warns of twins."""
    stream = io.BytesIO()
    stands_for = [f"{k:#>{len(name)}}" for k, (name, _, _) in enumerate(members)]
    with zipfile.ZipFile(stream, "w") as file:
        for name, (_, packing, content) in zip(stands_for, members, strict=True):
            file.writestr(zipfile.ZipInfo(name), content, compress_type=packing)
    data = stream.getvalue()
    for old, (name, _, _) in zip(stands_for, members, strict=True):
        data = data.replace(old.encode(), name.encode("ascii", "replace"))
    return data


def _zip_member(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A member damaged as an .npy is, and packed again with the checksum that it then has."""
    members = _members(content)
    place = rng.randrange(len(members))
    name, packing, npy = members[place]
    members[place] = name, packing, rng.choice((*OF_NPY, *OF_BYTES))(rng, npy, members[0][2])
    return _zipped(members)


def _zip_lie(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A member whose own header and whose archive agree on a size that is not there."""
    members = _members(content)
    place = rng.randrange(len(members))
    name, _, npy = members[place]
    end, text = npy_header(npy)
    rows = re.search(r"'shape': \((\d+)", text)
    assert rows is not None
    count = rng.choice((10**3, 10**5, 10**7, 10**8))
    lie = with_npy_header(npy, text[: rows.start(1)] + str(count) + text[rows.end(1) :], b"")
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    members[place] = name, packing, lie + npy[end:]
    data = _zipped(members)
    at = [found.start() for found in re.finditer(b"PK\x01\x02", data)][place] + 24
    return data[:at] + little(len(lie) + (len(npy) - end) // int(rows[1]) * count, 4) + data[at + 4 :]


def _zip_names(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Members under other names, packed in other ways, there twice or not at all."""
    names = words("logits.npy label.npy probs.npy history_a.npy a/b.npy ../x.npy .npy logits")
    packings = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    members = _members(content)
    place = rng.randrange(len(members))
    name, _, data = members[place]
    chosen = rng.choice((name, rng.choice(names), "x" * 999, rng.choice(members)[0]))
    members[place] = (chosen, rng.choice(packings), data)
    if rng.random() < 0.3:
        members.insert(rng.randrange(len(members) + 1), rng.choice(members))
    if rng.random() < 0.2:
        members.pop(rng.randrange(len(members)))
    return _zipped(members)


OF_NPZ: tuple[Mutation, ...] = (_zip_field, _zip_field, _zip_member, _zip_member, _zip_member, _zip_lie, _zip_names)


def _npz(packed: bool = False, **arrays: Any) -> Files:
    stream = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(stream, **arrays)
    return Files({"val.npz": stream.getvalue()})


def _npz_files() -> list[Files]:
    full = {"labels": labels_of(), "weights": weights_of(), "split": split_of(), "class_names": np.array(NAMES)}
    encoded_names = np.array([name.encode() for name in NAMES])
    return [
        _npz(logits=scores_of("logits"), **full),
        _npz(packed=True, probs=scores_of("probs", np.float64), **full, history_gamma=history_of()),
        _npz(log_probs=scores_of("log_probs", np.float16), labels=labels_of().astype(np.uint8)),
        _npz(packed=True, probs=scores_of("probs", np.float16), label=labels_of().astype(">i4")),
        _npz(logits=np.asfortranarray(scores_of("logits", ">f4")), labels=names_of_labels(), class_names=NAMES),
        _npz(probs=scores_of("probs", binary=True), labels=labels_of(2), split=split_of().astype("S")),
        _npz(packed=True, logits=scores_of("logits"), labels=encoded_names[labels_of()], class_names=encoded_names),
    ]


def read_elsewhere(table: PredictionTable, paths: list[Path]) -> Parts:
    """The parts of a table without focalcal."""
    with np.load(paths[0], allow_pickle=False) as file:
        there = [name.removesuffix(".npy") for name in file.zip.namelist() if name.endswith(".npy")]
        return parts_of(table, {key: file[key] for key in there if matters(key, (table.kind,))})


FUZZED = FuzzedFormat({"npz": _npz_files}, OF_NPZ, read_elsewhere)
