"""Text from files, file names and options, made safe to print: what would steer a terminal is shown as an escape."""

from __future__ import annotations

import re
from collections.abc import Callable

# Control characters but for line breaks and tabs, signs that change the direction of text, and lone surrogates, which
# stand for bytes of a file name that are no UTF-8 and cannot be encoded.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with everything escaped that a terminal would obey or that cannot be encoded.

    >>> printable("red\x1b[31m.npz"), printable("caf\udce9.npz"), printable("größe\n")
    ('red\\x1b[31m.npz', 'caf\\udce9.npz', 'größe\n')
    """
    return _escaped(text, lambda sign: sign.encode("unicode_escape").decode())


def printable_json(document: str) -> str:
    r"""The same for a JSON document, which stays one with the same meaning.

    >>> printable_json('"caf\udce9\x9b"')
    '"caf\\udce9\\u009b"'
    """
    return _escaped(document, lambda sign: f"\\u{ord(sign):04x}")


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    return _UNSAFE.sub(lambda found: escape(found[0]), text)


def shown(text: object, longest: int = 60) -> str:
    """Format text for a message: on one line, of bounded length, without control characters.

    >>> shown("two\\nlines"), shown("a long one", longest=8)
    ('two lines', 'a lon...')
    """
    line = printable(str(text).replace("\n", " ").replace("\t", " "))
    return line if len(line) <= longest else line[: longest - 3] + "..."
