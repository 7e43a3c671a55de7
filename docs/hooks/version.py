"""The version of focalcal, and the place in the repository that belongs to it."""

from __future__ import annotations

import ast
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[2]


def version() -> str:
    """`focalcal.__version__`, read without importing what it needs."""
    for line in (ROOT / "src/focalcal/__init__.py").read_text(encoding="utf-8").splitlines():
        if line.startswith("__version__"):
            return str(ast.literal_eval(line.partition("=")[2].strip()))
    raise LookupError("src/focalcal/__init__.py has no __version__")


def ref() -> str:
    """The tag of a release; the branch, between releases."""
    return "main" if "dev" in version() else f"v{version()}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version at the foot of every page."""
    config.copyright = f"focalcal {version()}, Apache-2.0"
    return config
