"""Links that leave docs/ lead to the repository, as they do on GitHub; one that leads nowhere is a warning."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from version import ROOT, ref

log = logging.getLogger("mkdocs.hooks.links")

# Fenced blocks and code spans are left as they are: what looks like a link there is code.
_CODE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*~* *$|(?<!`)(`+)(?!`).*?(?<!`)\3(?!`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\(|\]: )(?!<|#|[a-z][a-z+.-]*:)([^)\s#]+)(#[^)\s]*)?")
_ELSEWHERE = {"CHANGELOG.md": "changelog.md"}  # made into a page by a hook


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, which are relative to its file."""
    return rewrite(
        markdown, folder=Path(config.docs_dir, page.file.src_uri).parent, page=page.file.src_uri, config=config
    )


def rewrite(markdown: str, *, folder: Path, page: str, config: MkDocsConfig) -> str:
    """The text with its links as the page `page` of the site needs them, where they were relative to `folder`."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    def lead(match: re.Match[str]) -> str:
        return match[1] + _target(match[2], match[3] or "", folder, page, config)

    text = _LINK.sub(lead, _CODE.sub(keep, markdown))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text)


def _target(link: str, anchor: str, folder: Path, page: str, config: MkDocsConfig) -> str:
    if link.startswith("/"):
        return link + anchor  # MkDocs warns about it
    docs = Path(config.docs_dir)
    target = Path(os.path.normpath(folder / unquote(link)))
    if not target.is_relative_to(ROOT) or not target.exists():
        if not target.is_relative_to(docs):  # inside docs/ MkDocs warns by itself
            log.warning("%s: the link %r leads to no file of the repository", page, link)
        return link + anchor
    inside = target.relative_to(ROOT).as_posix()
    if inside in _ELSEWHERE:
        target = docs / _ELSEWHERE[inside]
    if target.is_relative_to(docs) and not target.is_dir():
        return os.path.relpath(target, (docs / page).parent).replace(os.sep, "/") + anchor
    view = "tree" if target.is_dir() else "blob"
    return f"{(config.repo_url or '').rstrip('/')}/{view}/{ref()}/{inside}{anchor}"
