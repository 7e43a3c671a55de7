"""What can be fuzzed: a target draws cases and checks each of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

# A case is plain JSON, so that it can be kept as a small file and sent to another process.
Case = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A part of focalcal to be fuzzed.

    `check` gives the outcome of a case in a word, one of `outcomes`, and raises whatever is wrong with it. A run that
    does not have all `outcomes` is not worth much, and fails. `in_ci` is the number of cases that CI tries: a number
    and not a time, so that it is the same everywhere.

    A `guarded` target runs in a process of its own, which may crash, hang or fill its memory. Its cases are made of
    damaged bytes, which Hypothesis cannot make smaller: `smaller` proposes smaller cases instead.
    """

    name: str
    about: str
    cases: st.SearchStrategy[Case]
    check: Callable[[Case], str]
    outcomes: frozenset[str]
    in_ci: int
    guarded: bool = False
    smaller: Callable[[Case], Iterator[Case]] | None = None


def packed(content: bytes) -> dict[str, str]:
    """Bytes as JSON: text where they are that, so that people can read the case."""
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    return {"text": text} if "\0" not in text else {"base64": base64.b64encode(content).decode()}


def unpacked(content: dict[str, str]) -> bytes:
    """The bytes that `packed` packed."""
    return content["text"].encode() if "text" in content else base64.b64decode(content["base64"])


def smaller_bytes(content: bytes) -> Iterator[bytes]:
    """The content without a part of it: first halves, in the end single bytes."""
    size = len(content) // 2
    while size:
        for start in range(0, len(content), size):
            yield content[:start] + content[start + size :]
        size //= 2
