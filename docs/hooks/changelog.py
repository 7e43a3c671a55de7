"""CHANGELOG.md, which stands beside docs/, is a page of the site."""

from __future__ import annotations

from links import rewrite
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from version import ROOT


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    text = rewrite(text, folder=ROOT, page="changelog.md", config=config)
    files.append(File.generated(config, "changelog.md", content=text))
    return files
