"""All figures of a report, written to a folder."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from focalcal import drawing
from focalcal.atomic import write_atomically
from focalcal.drawing import bytes_of
from focalcal.drawing.reliability import draw_reliability
from focalcal.report.contents import Contents, Diagram, Model, ModelVersion
from focalcal.report.plots.bars import compare_versions, confusions, per_class
from focalcal.report.plots.curves import gamma_dynamics, risk_coverage
from focalcal.report.plots.landscape import criterion_landscape
from focalcal.report.plots.reliability import of_diagram

_LONGEST = 60


def save_figures(contents: Contents, folder: str | Path, *, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write every figure of a report, for each of its models; returns the files.

    where `formats` are among png, svg and pdf, and `folder` is made if it is not there. Files are named like
    `reliability_<model>_<version>.png`. Nothing is written unless everything could be drawn, the same contents give the
    same bytes, and files of the same name are replaced.

    >>> save_figures(Contents("empty", "0.1", 0.95, 15, 0, models=[]), "figures")
    []
    """
    wanted = drawing.formats_of(formats)
    place, taken = Path(folder), set[str]()
    drawn = []
    for parts, ax in _all(contents):
        name = _unused("_".join(map(_safe, parts)), taken)
        drawn += [(place / f"{name}.{each}", bytes_of(ax.figure, each)) for each in wanted]
    if drawn:
        place.mkdir(parents=True, exist_ok=True)
    for path, content in drawn:
        write_atomically(path, content)
    return [path for path, _ in drawn]


def _all(contents: Contents) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The parts of each figure's file name, and its axes."""
    if sum(len(model.versions) for model in contents.models) > 1:
        for measure in ("ece", "ada_ece", "nll"):
            yield ("compare", measure), compare_versions(contents, measure=measure)
    for model in contents.models:
        yield from _of_model(model, contents)


def _of_model(model: Model, contents: Contents) -> Iterator[tuple[tuple[str, ...], Any]]:
    name = drawing.shown(model.name, 40)
    for version in model.versions:
        wide, even = (_diagram(version, scheme, contents.num_bins) for scheme in ("equal_width", "equal_mass"))
        for prefix, diagram in (("reliability", wide), ("reliability_equal_mass", even)):
            found = of_diagram(diagram, wide)
            title = f"{name}, {drawing.shown(version.name)}\n{found.error_name} {found.error:.1%}"
            ax = draw_reliability(found.bars, histogram=found.histogram, level=contents.level, title=title)
            yield (prefix, model.name, version.name), ax
    curves = {_curve_name(version): version.risk_coverage for version in model.versions}
    yield ("risk_coverage", model.name), risk_coverage(curves, title=name)
    for landscape in model.landscapes:
        yield ("landscape", model.name, landscape.criterion), criterion_landscape(landscape, title=name)
    yield ("per_class", model.name), per_class(model.classes, title=name)
    yield ("confusions", model.name), confusions(model.confusions, title=name)
    if model.dynamics is not None:
        yield ("gamma_dynamics", model.name), gamma_dynamics(model.dynamics, title=name)


def _diagram(version: ModelVersion, scheme: str, num_bins: int) -> Diagram:
    """The diagram of these bins, or of the nearest number of them that the report has."""
    some = [diagram for diagram in version.diagrams if diagram.scheme == scheme]
    return min(some, key=lambda diagram: abs(diagram.num_bins - num_bins))


def _curve_name(version: ModelVersion) -> str:
    area = version.numbers.get("aurc")
    return version.name if area is None or area.value is None else f"{version.name}: AURC {area.value:.3f}"


def _safe(part: str) -> str:
    """A part of a file name that every system takes.

    >>> _safe("../Größe: 5 $"), _safe("模型")
    ('Grosse-5', 'x6a21-x578b')
    """
    plain = unicodedata.normalize("NFKD", part.replace("ß", "ss"))
    plain = "".join(sign for sign in plain if not unicodedata.combining(sign))
    spelt = "".join(sign if sign.isascii() else f"-x{ord(sign):x}-" for sign in plain)
    return re.sub(r"[^A-Za-z0-9_]+", "-", spelt)[:_LONGEST].strip("-") or "unnamed"


def _unused(name: str, taken: set[str]) -> str:
    """The name, numbered if it is taken; some systems do not tell capitals from small letters."""
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.lower())
    return free
