"""Damage to Arrow's own files, whose metadata are numbers at multiples of four and eight bytes."""

from __future__ import annotations

import random

from tests.files.fuzz.of_bytes import OF_BYTES, Mutation, little, number_near


def _arrow_number(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A number at a place where flatbuffers have them becomes another one."""
    size = rng.choice((4, 4, 8))
    start = size * rng.randrange(max(1, len(content) // size))
    value = number_near(rng, int.from_bytes(content[start : start + size], "little", signed=True))
    return content[:start] + little(value, size) + content[start + size :]


OF_ARROW: tuple[Mutation, ...] = (*(_arrow_number,) * 3, *OF_BYTES)
