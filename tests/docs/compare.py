"""Whether printed output is what a page says.

Whole numbers must be equal. Other numbers may differ by one unit in the last place that the page prints, or by a given
share. `...` matches any lines on a line of its own, and any text within a line. Spaces and the rules of tables may be
longer or shorter, because a number of another length moves them.
"""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_PIECE = re.compile(rf"(?P<dots>\.\.\.)|(?P<number>{_NUMBER})")
_RULE = re.compile(r"([-─━═=])\1{2,}")


def agrees(expected: str, got: str, within: float | None = None) -> bool:
    """Whether `got` is what a page printed as `expected`."""
    return _lines_agree(_clean(expected), _clean(got), within)


def _clean(text: str) -> list[str]:
    lines = [re.sub(r"\s+", " ", _RULE.sub(r"\1\1\1", line)).rstrip() for line in text.strip().splitlines()]
    return lines or [""]


def _lines_agree(expected: list[str], got: list[str], within: float | None) -> bool:
    reached = {0}  # how many lines of `got` the lines of `expected` so far can have used up
    for line in expected:
        if line.strip() == "...":
            reached = set(range(min(reached), len(got) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(got) and _line_agrees(line, got[at], within)}
        if not reached:
            return False
    return len(got) in reached


def _line_agrees(expected: str, got: str, within: float | None) -> bool:
    pattern, numbers, at = "", [], 0
    for piece in _PIECE.finditer(expected):
        pattern += re.escape(expected[at : piece.start()])
        at = piece.end()
        if piece["dots"]:
            pattern += ".*?"
        elif _is_whole(piece["number"]) and within is None:
            pattern += rf"{re.escape(piece['number'])}(?![\d]|\.\d)"
        else:
            numbers.append(piece["number"])
            pattern += rf"({_NUMBER})"
    found = re.fullmatch(pattern + re.escape(expected[at:]), got)
    return bool(found) and all(map(_near, numbers, found.groups(), [within] * len(numbers)))


def _is_whole(number: str) -> bool:
    return re.search(r"[.eE]", number) is None


def _near(expected: str, got: str, within: float | None) -> bool:
    one, other = _decimal(expected), _decimal(got)
    unit = Decimal(1).scaleb(int(one.as_tuple().exponent))
    if within is None:
        return abs(one - other) <= unit
    allowed = abs(one) * Decimal(str(within))
    return abs(one - other) <= (allowed if _is_whole(expected) else max(unit, allowed))


def _decimal(number: str) -> Decimal:
    return Decimal(number.replace(",", "").replace("−", "-"))
