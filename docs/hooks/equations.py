r"""Equations become MathML while the site is built, so that pages need no script to show them.

Pages and docstrings write `$...$` and `$$...$$`, which GitHub reads, too.
"""

from __future__ import annotations

import html
import logging
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

log = logging.getLogger("mkdocs.hooks.equations")

# What the Markdown extension arithmatex leaves: \(...\) in a span, \[...\] in a div.
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
# Commands that the converter does not know, by others.
_WORDS = {r"\arg": r"\operatorname{arg}"}
_IN_TITLE = re.compile(r"\\\((.*?)\\\)")


def mathml(tex: str, *, display: str = "inline", where: str = "") -> str:
    """The MathML of an equation; a command that has none is a warning, which names the page."""
    known = re.sub(r"\\[A-Za-z]+", lambda match: _WORDS.get(match[0], match[0]), tex.strip())
    made = convert(known, display=display)
    if unknown := re.findall(r"\\[A-Za-z]+", html.unescape(made)):
        log.warning("%s: no MathML for %s in %s", where, ", ".join(unknown), tex.strip())
    return made


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the equations of a page and of its table of contents."""
    where = page.file.src_uri

    def block(match: re.Match[str]) -> str:
        return f'<div class="equation">{mathml(html.unescape(match[1]), display="block", where=where)}</div>'

    def inline(match: re.Match[str]) -> str:
        return mathml(html.unescape(match[1]), where=where)

    for item in page.toc:
        _title(item, where)
    return _INLINE.sub(inline, _BLOCK.sub(block, content))


def _title(item: AnchorLink, where: str) -> None:
    item.title = _IN_TITLE.sub(lambda match: mathml(html.unescape(match[1]), where=where), item.title)
    for child in item.children:
        _title(child, where)
