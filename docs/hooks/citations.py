"""What is cited as [mukhoti2020, Prop. 1], in docstrings and on pages, links to its line in references.md."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from version import ROOT

KEYS = frozenset(re.findall(r'<a id="(\w+\d{4})">', (ROOT / "docs/references.md").read_text(encoding="utf-8")))

# Code, equations and links stay as they are; so does every tag.
_APART = re.compile(r"(<(pre|code|math|a|script|style)\b.*?</\2>|<[^>]*>)", re.DOTALL)
_CITED = re.compile(r"\[([a-z]+\d{4}[^\[\]]*)\]")
_KEY = re.compile(r"[a-z]+\d{4}")


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the citations of a page."""
    references = files.get_file_from_path("references.md")
    if references is None or page.file.src_uri == references.src_uri:
        return content
    address = get_relative_url(references.url, page.url)

    def key(match: re.Match[str]) -> str:
        return f'<a href="{address}#{match[0]}">{match[0]}</a>' if match[0] in KEYS else match[0]

    def cited(match: re.Match[str]) -> str:
        return f"[{_KEY.sub(key, match[1])}]"

    # A citation may be broken over lines but not over tags, so each piece of text is enough.
    pieces = _APART.split(content)
    texts, apart = pieces[::3], [*pieces[1::3], ""]
    return "".join(_CITED.sub(cited, text) + kept for text, kept in zip(texts, apart, strict=True))
