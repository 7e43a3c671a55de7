"""Damage that knows no format: bytes flipped, cut, repeated, moved; and the odd numbers that others use."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes, bytes], bytes]

# Numbers at which sizes, signs and types break.
NUMBERS = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 12, 13, 48, 63, 64, 65, 100, 127, 128, 255, 256, 1000, 4095, 4096, 65_535, 65_536),
    *(10**6, 2**24, 2**28, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    *(-1, -2, -4, -12, -128, -(2**31), -(2**63)),
)
HUGE = (2**64, 10**30, 10**400, 10**4000, 10**5000)


def number_near(rng: random.Random, value: int) -> int:
    """Another number: one of the odd ones, or one that has to do with the number that is there."""
    near = (value + 1, value - 1, value * 2, value // 2, -value, value * 1000, value << 20)
    return rng.choice(NUMBERS if rng.random() < 0.6 else (*near, value ^ (1 << rng.randrange(40))))


def words(text: str) -> list[str]:
    """A list of odd strings, written as one."""
    return text.split()


def str_of(number: int) -> str:
    """A number in digits, however many; str gives up at 4,300."""
    return str(number) if abs(number) < 10**4299 else "1" + "0" * 5000


def odd_values(rng: random.Random, size: int) -> list[bytes]:
    """Some odd values of so many bytes: numbers, noise, floats, a signalling NaN, a surrogate, a sign too high."""
    odd = (1, -1, 0) if size == 1 else (float("nan"), float("inf"), -float("inf"), -0.0, 1.0, 60_000.0, -1.0, 1e-7)
    packed = struct.pack("<" + {1: "b", 2: "e", 4: "f", 8: "d"}[size], rng.choice(odd))
    signalling = little({1: 0x80, 2: 0x7C01, 4: 0x7F800001, 8: 0x7FF0000000000001}[size], size)
    signs = b"\x00\xd8\x00\x00\x00\x00\x11\x00"[:size]
    return [little(rng.choice(NUMBERS), size), rng.randbytes(size), packed, packed[::-1], signalling, signs]


def little(value: int, size: int) -> bytes:
    """A number in so many bytes, little end first; what does not fit is cut off."""
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _slice(rng: random.Random, content: bytes, longest: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.randint(1, longest))


def flipped_bits(rng: random.Random, content: bytes, other: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(min(len(data), rng.choice((1, 1, 2, 8)))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def other_bytes(rng: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(rng, content, 8)
    filling = rng.choice((bytes(8), b"\xff" * 8, rng.randbytes(8), b"\x7f" * 8, b"{[\",\n)' "))
    return content[:start] + filling[: end - start] + content[end:]


def _truncated(rng: random.Random, content: bytes, other: bytes) -> bytes:
    near_the_end = max(0, len(content) - rng.randint(1, 16))
    return content[: rng.choice((rng.randrange(len(content) + 1), near_the_end))]


def _beginning_cut(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return content[rng.randint(1, 16) :]


def _longer(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return content + rng.choice((bytes(rng.randint(1, 64)), rng.randbytes(rng.randint(1, 64)), content, other))


def _slice_twice(rng: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(rng, content)
    return content[:end] + content[start:end] * rng.choice((1, 1, 3, 50)) + content[end:]


def _slice_deleted(rng: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(rng, content)
    return content[:start] + content[end:]


def _slice_of_other(rng: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(rng, content, 200)
    return content[:start] + other[start:end] + content[end:]


def _header_of_other(rng: random.Random, content: bytes, other: bytes) -> bytes:
    middle = rng.choice((8, 64, 80, 128, len(content) // 2))
    return rng.choice((other[:middle] + content[middle:], content[:-middle] + other[-middle:]))


def _number_of_bytes(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """A number of two, four or eight bytes somewhere becomes another one."""
    size = rng.choice((2, 4, 8))
    start = rng.randrange(max(1, len(content) - size))
    value = number_near(rng, int.from_bytes(content[start : start + size], "little"))
    return content[:start] + little(value, size) + content[start + size :]


OF_BYTES: tuple[Mutation, ...] = (
    flipped_bits,
    other_bytes,
    _truncated,
    _beginning_cut,
    _longer,
    _slice_twice,
    _slice_deleted,
    _slice_of_other,
    _header_of_other,
    _number_of_bytes,
)
