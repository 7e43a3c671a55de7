"""Every format of the table of formats with what it takes to fuzz it, and seeded damage to its valid files.

A format is fuzzed by a module `of_<its name>` in this package, which defines `FUZZED`.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import cache
from importlib import import_module

from focalcal.files.table import FORMATS
from tests.fuzz.readers.examples import Files, FuzzedFormat
from tests.fuzz.readers.of_bytes import OF_BYTES

_FORMATS: list[FuzzedFormat] = [import_module(f"tests.fuzz.readers.of_{name}").FUZZED for name in FORMATS]
# The format that each variant belongs to.
VARIANTS: dict[str, FuzzedFormat] = {name: each for each in _FORMATS for name in each.examples}


@cache
def valid_files(variant: str) -> tuple[Files, ...]:
    """The valid files of a variant of a format."""
    return tuple(VARIANTS[variant].examples[variant]())


def mutated_files(variant: str, seed: int) -> Files:
    """A valid file of a variant with one to three things done to it; the same for the same seed."""
    rng = random.Random(f"{variant} {seed}")
    files = rng.choice(valid_files(variant))
    while True:
        damaged = _mutated_once(rng, variant, files)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            # What is damaged already may be such that it cannot be taken apart any more, for whatever reason.
            with suppress(Exception):
                damaged = _mutated_once(rng, variant, damaged)
        if damaged.contents != files.contents:
            return damaged


def _mutated_once(rng: random.Random, variant: str, files: Files) -> Files:
    name = rng.choice(list(files.contents))
    other = rng.choice(list(rng.choice(valid_files(variant)).contents.values()))
    mutate = rng.choice(OF_BYTES if rng.random() < 0.25 else VARIANTS[variant].mutations)
    return Files({**files.contents, name: mutate(rng, files.contents[name], other)}, files.as_folder)
