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
# In MathML: a function's name that carries no index, the space beside it, and what a sign may follow.
_FUNCTION = r"((?<!<msub>)(?<!<msup>)(?<!<munder>)<mi>[A-Za-z]{2,}</mi>)"
_THIN = '<mspace width="0.167em"></mspace>'
_BEFORE_A_SIGN = r"<mo[^>]*>(?:&#x0003D;|=|&#x00028;|,|&#x02264;|&#x02265;|&#x0003C;|&#x0003E;|&lt;|&gt;)</mo>"
_IN_TITLE = re.compile(r"\\\((.*?)\\\)")


def mathml(tex: str, *, display: str = "inline", where: str = "") -> str:
    """The MathML of an equation; a command that has none is a warning, which names the page."""
    if "$" in tex:
        log.warning("%s: a dollar within an equation; is an empty line missing before the next? %s", where, tex.strip())
    known = re.sub(r"\\[A-Za-z]+", lambda match: _WORDS.get(match[0], match[0]), tex.strip())
    made = convert(known, display=display)
    made = _spaced(made)
    if unknown := re.findall(r"\\[A-Za-z]+", html.unescape(made)):
        log.warning("%s: no MathML for %s in %s", where, ", ".join(unknown), tex.strip())
    return made


def _spaced(made: str) -> str:
    """A thin space around the names of functions, as TeX has it, and a minus that is a sign close to what follows."""
    made = re.sub(r"<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>", made)  # words are no operators, which stand apart
    made = re.sub(rf"{_FUNCTION}(?=<m(?!o\b))", rf"\1{_THIN}", made)
    made = re.sub(rf"(</m(?:i|n|sub|sup|subsup|frac)>){_FUNCTION}", rf"\1{_THIN}\2", made)
    return re.sub(
        rf"(<math[^>]*><mrow>|{_BEFORE_A_SIGN})<mo>&#x02212;</mo>", r'\1<mo form="prefix">&#x02212;</mo>', made
    )


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
