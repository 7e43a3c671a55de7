"""The report as one HTML text: the page, its style, its scripts and its data in a single file that needs no network."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from focalcal.atomic import write_atomically
from focalcal.errors import MissingExtraError
from focalcal.metrics import Estimate
from focalcal.report.contents import Contents, Model, ModelVersion
from focalcal.report.verdict import KEY_MEASURES

# Digits of the numbers in the file: more than any chart can show.
_DIGITS = 5
# What ends a script, starts a comment or breaks a line of JavaScript, in a spelling that only JSON understands.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_PLACE = re.compile(r"\{\{(title|css|plotly|contents|js|summary)\}\}")


def render(contents: Contents) -> str:
    """The report as HTML. Needs plotly, whose JavaScript is put into the file: `pip install 'focalcal[report]'`."""
    page = resources.files("focalcal.report") / "page"
    parts = {
        "title": escape(contents.title),
        "css": (page / "report.css").read_text("utf-8"),
        "js": (page / "report.js").read_text("utf-8"),
        "plotly": plotly_script(),
        "contents": to_json(contents),
        "summary": "".join(_summary(contents)),
    }
    # In one pass, so that nothing is replaced inside what was put in.
    return _PLACE.sub(lambda place: parts[place[1]], (page / "report.html").read_text("utf-8"))


def write_report(contents: Contents, path: str | Path) -> int:
    """Write the report to a file, which is complete or not there at all; the number of its bytes."""
    text = render(contents).encode("utf-8")
    write_atomically(path, text)
    return len(text)


def to_json(contents: Contents) -> str:
    r"""The contents as JSON that can stand inside a script element: five digits, and no character that could end it.

    >>> to_json(Contents("</script>", "1", 0.95, 15, 0, []))[:36]
    '{"title":"\\u003c/script\\u003e","vers'
    """
    text = json.dumps(_rounded(contents.to_dict()), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _encodable(text).translate(_ESCAPED)


def _rounded(value: Any) -> Any:
    """Floats with so many digits as the page can use; those that JSON does not have become null."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{_DIGITS}g}")
        return int(short) if short.is_integer() else short
    return value


def _encodable(text: str) -> str:
    """The text with half characters, which some files hold, replaced: no encoding has them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plotly_script() -> str:
    """Plotly's JavaScript, as its Python package brings it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError("The HTML report needs plotly: pip install 'focalcal[report]'.") from error
    script: str = get_plotlyjs()
    return script


# ---------------------------------------------------------------------- what can be read without JavaScript


def _summary(contents: Contents) -> Iterator[str]:
    """Verdict and key numbers of every model."""
    for model in contents.models:
        yield f'<section class="summary"><h2><bdi>{_text(model.name)}</bdi></h2>'
        yield f'<p class="verdict">{_text(_sentence(model.verdict))}</p>'
        if model.same_data:
            yield '<p class="warning" role="note">Calibrators were fitted to the rows that are measured here: '
            yield "what they seem to gain is too good to be true.</p>"
        yield f"<p>{_text(_facts(model))}</p>"
        yield from _table(model, contents)
        yield "</section>"


def _sentence(verdict: str) -> str:
    return verdict[:1].upper() + verdict[1:] + "."


def _facts(model: Model) -> str:
    """The data in one line."""
    said = f"{model.num_rows:,} rows, {model.num_classes:,} classes"
    if model.num_missing:
        said += f", {model.num_missing:,} of them without rows"
    if model.num_duplicates:
        said += f", {model.num_duplicates:,} rows with the scores of an earlier one"
    return f"{said}. {_sentence(model.split)}".replace("..", ".")


def _table(model: Model, contents: Contents) -> Iterator[str]:
    caption = f"Key numbers, with {100 * contents.level:g} % intervals"
    yield f'<div class="table"><table><caption>{caption}</caption><thead><tr><th scope="col">version</th>'
    yield from (f'<th scope="col">{contents.measures[name].label}</th>' for name in KEY_MEASURES)
    yield "</tr></thead><tbody>"
    for version in model.versions:
        yield f'<tr><th scope="row">{_called(version)}</th>'
        yield from (f"<td>{_said(version.numbers[name], contents.measures[name].unit)}</td>" for name in KEY_MEASURES)
        yield "</tr>"
    yield "</tbody></table></div>"


def _called(version: ModelVersion) -> str:
    """The name of a version, and its settings below."""
    name = f"<bdi>{_text(version.name)}</bdi>"
    return f"{name}<br><small>{_text(version.settings)}</small>" if version.settings else name


def _said(number: Estimate, unit: str) -> str:
    """A number with its interval."""
    if number.value is None:
        return "–"
    factor, digits, sign = (100, 1, " %") if unit == "%" else (1, 3, "")
    value, low, high = (_fixed(end, factor, digits) for end in (number.value, number.low, number.high))
    interval = "" if number.low is None or number.high is None else f"<br><small>[{low}, {high}]</small>"
    return f"{value}{sign}{interval}"


def _fixed(value: float | None, factor: float, digits: int) -> str:
    """The digits of a number; a negative one that rounds to 0 is 0."""
    return f"{round(factor * (value or 0.0), digits) + 0.0:.{digits}f}"


def _text(value: str) -> str:
    return escape(_encodable(value))
