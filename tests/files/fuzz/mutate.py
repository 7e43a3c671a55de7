"""Seeded damage to valid files: to their bytes, and to what the bytes of each format mean.

Bytes alone reach little: an archive refuses them by its checksum. So the numbers of headers are replaced where they
stand, and what lies beneath a checksum or a compression is damaged and then packed again.
"""

from __future__ import annotations

import random
from contextlib import suppress

from tests.files.fuzz.of_arrow import OF_ARROW
from tests.files.fuzz.of_bytes import OF_BYTES
from tests.files.fuzz.of_npy import OF_NPY
from tests.files.fuzz.of_npz import OF_NPZ
from tests.files.fuzz.of_parquet import OF_PARQUET
from tests.files.fuzz.of_tensors import OF_TENSORS
from tests.files.fuzz.of_text import OF_TEXT
from tests.files.fuzz.valid import Files, valid_files


def mutated_files(format_name: str, seed: int) -> Files:
    """A valid file of a format with one to three things done to it; the same for the same seed."""
    rng = random.Random(f"{format_name} {seed}")
    files = rng.choice(valid_files(format_name))
    while True:
        damaged = _mutated_once(rng, format_name, files)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            # What is damaged already may be such that it cannot be taken apart any more, for whatever reason.
            with suppress(Exception):
                damaged = _mutated_once(rng, format_name, damaged)
        if damaged.contents != files.contents:
            return damaged


def _mutated_once(rng: random.Random, format_name: str, files: Files) -> Files:
    name = rng.choice(list(files.contents))
    other = rng.choice(list(rng.choice(valid_files(format_name)).contents.values()))
    of_format = _OF_FORMAT[format_name.split("_")[0]]
    mutate = rng.choice(OF_BYTES if rng.random() < 0.25 else of_format)
    return Files({**files.contents, name: mutate(rng, files.contents[name], other)}, files.as_folder)


# By what the names of formats begin with.
_OF_FORMAT = {
    "npz": OF_NPZ,
    "npy": OF_NPY,
    "csv": OF_TEXT,
    "tsv": OF_TEXT,
    "parquet": OF_PARQUET,
    "arrow": OF_ARROW,
    "safetensors": OF_TENSORS,
}
