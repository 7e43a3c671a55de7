"""Formatting text from files for error messages: on one line, of bounded length, without control characters."""

from __future__ import annotations

from collections.abc import Sequence

from focalcal.printable import shown

_SHOWN = 12


def listed(names: Sequence[str]) -> str:
    """Format a list of names for a message, at most the first twelve.

    >>> listed(["a", "b"]), listed([])
    ('a, b', 'nothing')
    """
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(shown, names[:_SHOWN])) + more or "nothing"


def is_text(text: str) -> bool:
    """Whether a string can be encoded; JSON can contain lone surrogates, which cannot.

    >>> is_text("größe"), is_text("\\ud800")
    (True, False)
    """
    return not any("\ud800" <= sign <= "\udfff" for sign in text)
