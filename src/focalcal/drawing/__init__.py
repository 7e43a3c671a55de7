"""What all figures share: axes of their own, one look, and names shown as they are.

Nothing here or in what uses it touches matplotlib's global state: no pyplot, no settings, no filter of warnings.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from typing import Any

from focalcal.errors import InputError, MissingExtraError

# Safe for the colour-blind (Okabe and Ito).
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
PALE_BLUE, BLACK, GREY, GRID = "#B3D9F2", "#222222", "#777777", "#EEEEEE"

# The width of a column in most journals, in inches.
COLUMN = 3.3
_TITLE, _LABEL, _SMALL = 8, 8, 7  # points
# The formats of files, and what each says about itself: no dates, so that the same figure gives the same bytes.
_METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_DPI = 200


def axes_or_new(ax: Any, *, width: float = COLUMN, height: float = COLUMN) -> Any:
    """The axes that were given, or those of a new figure (`axes.figure`) of this size in inches.

    >>> axes_or_new(None).figure.get_size_inches().tolist()
    [3.3, 3.3]
    """
    return new_figure(width, height).subplots() if ax is None else ax


def new_figure(width: float, height: float) -> Any:
    """An empty figure that pyplot does not know, and so need not be closed; a notebook shows it all the same."""
    require_matplotlib()
    from focalcal.drawing.in_notebooks import ShownFigure

    return ShownFigure(figsize=(width, height), layout="constrained", facecolor="white")


def require_matplotlib() -> None:
    """Refuse to go on without matplotlib, naming the extra."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Figures need matplotlib: pip install 'focalcal[plots]'.") from error


def formats_of(formats: str | Sequence[str]) -> tuple[str, ...]:
    """One or more formats of figures, refused if unknown.

    >>> formats_of("svg"), formats_of(["png", "pdf"])
    (('svg',), ('png', 'pdf'))
    """
    wanted = (formats,) if isinstance(formats, str) else tuple(formats)
    wrong = [name for name in wanted if name not in _METADATA]
    if wrong or not wanted:
        raise InputError(f"formats: must be among {', '.join(_METADATA)}; got {wrong or 'none'}.")
    return wanted


def bytes_of(figure: Any, form: str) -> bytes:
    """A figure as a file of a format (png, svg or pdf): the same figure always gives the same bytes.

    >>> bytes_of(new_figure(1, 1), "png")[1:4]
    b'PNG'
    """
    from matplotlib import rc_context

    file = BytesIO()
    # Names of parts in an SVG file are random without a salt, and there is no other way to give one.
    with rc_context({"svg.hashsalt": "focalcal"}):
        figure.savefig(file, format=form, dpi=_DPI, metadata=_METADATA[form])
    return file.getvalue()


def style(ax: Any, *, title: str = "", xlabel: str = "", ylabel: str = "", side: str = "center") -> None:
    """The look of all axes, their title and labels; called when everything else is drawn.

    Text is shown as it is: `$` and, where TeX is switched on, `%` and `_` stand for themselves. Where names take most
    of the width, text on the `side` "right" has room to the left.
    """
    heading = ax.set_title(title, loc=side, fontsize=_TITLE)
    ax.set_xlabel(xlabel, loc=side)
    ax.set_ylabel(ylabel)
    ax.tick_params(which="both", labelsize=_SMALL, length=2.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_fontsize(_LABEL)
    plain(heading, ax.xaxis.label, ax.yaxis.label, *ax.texts)


def plain(*texts: Any) -> None:
    """Take texts as they are, not as mathematics or TeX."""
    for text in texts:
        text.set_parse_math(False)
        text.set_usetex(False)


def legend(
    ax: Any,
    handles: Sequence[Any],
    names: Sequence[str],
    *,
    under: bool = False,
    loc: str = "upper left",
    columns: int = 2,
) -> Any:
    """A small legend; a name may begin with `_`, which matplotlib would leave out.

    It stands under the figure if that is ours (`under`), where it hides nothing, else inside the axes.
    """
    look = {"fontsize": _SMALL, "framealpha": 0.8, "edgecolor": "none", "facecolor": "white", "labelcolor": BLACK}
    place = {"loc": "outside lower center", "ncols": columns} if under else {"loc": loc}
    made = (ax.figure if under else ax).legend(handles, ["name"] * len(names), **look, **place)
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set_text(name)
    plain(*made.get_texts())
    return made


def rows_of_names(ax: Any, names: Sequence[str]) -> None:
    """One row for each name on the vertical axis, the first on top."""
    ax.set_yticks(range(len(names)), labels=names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    plain(*ax.get_yticklabels())


def percent(axis: Any, most: int = 6) -> None:
    """Shares on an axis as percentages, at about `most` round numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(_percentage))


def _percentage(share: float, place: int | None) -> str:
    return f"{100 * share:.4g}%"


def logarithmic(axis: Any) -> None:
    """Few plain numbers on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(_plain_number))
    axis.set_minor_formatter(NullFormatter())


def _plain_number(value: float, place: int | None) -> str:
    return f"{value:g}"


def shown(name: str, longest: int = 24) -> str:
    """A name as a figure can show it: one line, shortened in the middle, what the font cannot draw replaced.

    The font is that of the user's settings: with one for their script, names come out as written.

    >>> shown("a very long name of a class, indeed"), shown("two\\nlines")
    ('a very long …ass, indeed', 'two lines')
    """
    drawable = _drawable()
    line = " ".join(unicodedata.normalize("NFC", str(name)).split())
    kept = (sign for sign in line if unicodedata.category(sign)[0] != "C")  # no controls, which may turn text around
    line = "".join(sign if ord(sign) in drawable else "\N{REPLACEMENT CHARACTER}" for sign in kept)
    if len(line) > longest:
        tail = (longest - 1) // 2
        line = f"{line[: longest - 1 - tail]}…{line[-tail:]}"
    return line or "(no name)"


def arrow(source: str, end: str, longest: int = 14) -> str:
    """Two names with an arrow from the left one to the right one, in whatever direction they are written.

    >>> arrow("cat", "dog")
    'cat → dog'
    """
    source, end = shown(source, longest), shown(end, longest)
    if all(unicodedata.bidirectional(sign) not in ("R", "AL") for sign in source + end):
        return f"{source} → {end}"
    mark = "\N{LEFT-TO-RIGHT MARK}"
    return f"{mark}{source}{mark} → {mark}{end}{mark}"


def _drawable() -> frozenset[int]:
    """The signs that the fonts of the current settings have."""
    require_matplotlib()
    from matplotlib.font_manager import FontProperties, findfont

    families = FontProperties().get_family()
    return frozenset().union(*(_signs(findfont(FontProperties(family=[family]))) for family in families))


@cache
def _signs(font: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    return frozenset(get_font(font).get_charmap())
