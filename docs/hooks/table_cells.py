r"""A bar within a table's code is written `\|`, as GitHub wants it; Markdown's Python would keep the backslash."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take the backslashes away."""
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), content)
