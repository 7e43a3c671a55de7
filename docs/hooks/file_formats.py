"""The table of file formats, made from the library's own."""

from __future__ import annotations

from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PAGE = "files.md"
MARK = "<!-- the table of formats -->"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the table where the page marks its place."""
    return markdown.replace(MARK, "\n".join(table())) if page.file.src_uri == PAGE else markdown


def table() -> Iterator[str]:
    """The lines of the table in Markdown."""
    from focalcal.files.table import FORMATS

    yield "| format | suffix | streamed | written | parts beside the scores | needs |"
    yield "|---|---|---|---|---|---|"
    for each in FORMATS.values():
        suffixes = ", ".join(f"`{suffix}`" for suffix in each.suffixes)
        streamed = "by rows" if each.by_rows else "a file at a time"
        written = "yes" if each.can("write") and each.can("rewrite") else "no"
        parts = ", ".join(part.replace("_", " ") for part in each.holds) or "in files beside it"
        needs = f"`focalcal[{each.extra}]`" if each.extra else ""
        yield f"| {each.about} | {suffixes} | {streamed} | {written} | {parts} | {needs} |"
