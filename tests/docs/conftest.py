"""The documentation site, built once for all tests of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Html(HTMLParser):
    """What a built page has: its title, its elements with their attributes, all ids, and its text outside code."""

    path: Path
    title: str = ""
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    prose: list[str] = field(default_factory=list)
    _inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, values))
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag in ("code", "pre", "script", "style", "title", "math"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_data(self, data: str) -> None:
        if "title" in self._inside:
            self.title += data
        elif not self._inside:
            self.prose.append(data)


@dataclass
class Site:
    """The folder of a built site, and its pages by their path in it."""

    folder: Path
    pages: dict[str, Html]


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Site:
    """Built strictly: a page that is missing, a link that leads nowhere or a bad equation fails every test here."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    paths = sorted(folder.rglob("*.html"))
    return Site(folder, {path.relative_to(folder).as_posix(): Html(path) for path in paths})
