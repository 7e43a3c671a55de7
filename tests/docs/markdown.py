"""A page of documentation as the blocks of code on it, with what invisible comments say about each.

Fenced blocks of shell and Python run in order. A block of text directly after one is its expected output. Comments:

    <!-- files: predictions -->     files for the page, made by tests/docs/files.py
    <!-- slow -->                   anywhere: the page takes more than a few seconds
    <!-- setup ... -->              Python that runs before the next block, for names that a snippet presupposes
    <!-- not run: REASON -->        right before a block: one of the reasons of tests/docs/exempt.py
    <!-- exits with 2 -->           right before a shell block: its last command does; standard error is output too
    <!-- numbers within 5 % -->     right before an output, or a console block: how far its numbers may be off
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

SHELL = ("sh", "bash", "console")
PYTHON = ("python", "py")
OUTPUT = ("", "text")
# Blocks that are shown, and are neither code to run nor its output.
SHOWN = ("yaml", "json", "csv", "toml", "html", "ini", "mermaid", "bibtex", "diff", "markdown", "latex")

_FENCE = re.compile(r"^( *)(```+|~~~+)\s*([^\s`]*)")
_COMMAND = re.compile(r"^(\$ |focalcal |python3? |pip |make |torchrun |pytest |git )", re.MULTILINE)


class PageError(AssertionError):
    """What is wrong with a page, and where."""


@dataclass
class Output:
    """What a block should print, and how exactly its numbers are known."""

    text: str
    line: int
    within: float | None = None


@dataclass
class Block:
    """Code on a page; `line` is that of its first line of code."""

    language: str
    text: str
    line: int
    setup: list[tuple[int, str]] = field(default_factory=list)
    not_run: str | None = None
    exit_code: int = 0
    within: float | None = None
    output: Output | None = None

    @property
    def runs(self) -> bool:
        return self.language in (*SHELL, *PYTHON)


@dataclass
class Page:
    """The blocks of a page, the files that it wants, and whether it is slow."""

    path: Path
    blocks: list[Block]
    files: list[str]
    slow: bool


def read_page(path: Path) -> Page:
    """The page, or a `PageError` where it does not keep to the rules above."""
    lines = path.read_text(encoding="utf-8").splitlines()
    page = Page(path, [], [], slow=False)
    pending = _Pending()
    last: Block | None = None  # the block whose output may come next
    at = 0
    while at < len(lines):
        if fence := _FENCE.match(lines[at]):
            end = _end_of_fence(lines, at, fence, path)
            text = textwrap.dedent("\n".join(lines[at + 1 : end]))
            last = _take_block(page, Block(fence[3].lower(), text, at + 2), pending, last)
            pending, at = _Pending(), end
        elif lines[at].lstrip().startswith("<!--"):
            end = next((i for i in range(at, len(lines)) if "-->" in lines[i]), None)
            _require(end is not None, path, at + 1, "a comment without an end")
            assert end is not None
            _take_comment(page, "\n".join(lines[at : end + 1]), at + 1, pending)
            at = end
        elif lines[at].strip():
            _require(not pending.beside, path, at + 1, "text between a comment and the block that it is about")
            last = None
        at += 1
    _require(not (pending.beside or pending.setup), path, len(lines), "a comment with no block after it")
    return page


@dataclass
class _Pending:
    """Comments that wait for their block."""

    setup: list[tuple[int, str]] = field(default_factory=list)
    not_run: str | None = None
    exit_code: int | None = None
    within: float | None = None

    @property
    def beside(self) -> bool:
        return any(each is not None for each in (self.not_run, self.exit_code, self.within))


def _end_of_fence(lines: list[str], at: int, fence: re.Match[str], path: Path) -> int:
    for end in range(at + 1, len(lines)):
        if lines[end].strip() == fence[2]:
            return end
    raise PageError(f"{path}:{at + 1}: a block without an end")


def _take_comment(page: Page, text: str, line: int, pending: _Pending) -> None:
    content = text.strip().removeprefix("<!--").partition("-->")[0]
    words = content.strip()
    if words.startswith("setup") and words[5:6] in ("", "\n", " "):
        skipped = text.partition("setup")[0].count("\n")
        code = content.partition("setup")[2]
        pending.setup.append((line + skipped, textwrap.dedent(code.strip(" "))))
    elif words == "slow":
        page.slow = True
    elif words.startswith("files:"):
        page.files += words.removeprefix("files:").replace(",", " ").split()
    elif words.startswith("not run:"):
        pending.not_run = words.removeprefix("not run:").strip()
    elif found := re.fullmatch(r"exits with (\d+)", words):
        pending.exit_code = int(found[1])
    elif found := re.fullmatch(r"numbers within ([\d.]+) ?%", words):
        pending.within = float(found[1]) / 100
    else:  # a word misspelt would silently check less
        _require(
            not re.match(r"(setup|slow|files|not.run|exits?|numbers)\b", words), page.path, line, f"what is {words}?"
        )


def _take_block(page: Page, block: Block, pending: _Pending, last: Block | None) -> Block | None:
    path, line = page.path, block.line
    if block.runs:
        block.setup, block.not_run, block.exit_code = pending.setup, pending.not_run, pending.exit_code or 0
        block.within = pending.within
        has_output = block.language == "console" or block.within is None
        _require(has_output, path, line, "`numbers within` belongs before an output")
        page.blocks.append(block)
        return block
    _require(block.language in (*OUTPUT, *SHOWN), path, line, f"nobody runs {block.language}; say sh or python")
    _require(pending.not_run is None and pending.exit_code is None, path, line, "this block is not run in any case")
    _require(not pending.setup, path, line, "a setup before a block that is not run")
    if block.language not in OUTPUT:
        return None
    hidden = last is None and _COMMAND.search(block.text)
    _require(not hidden, path, line, "commands in a block without a language: label it sh, or console for $ lines")
    _require(pending.within is None or last is not None, path, line, "`numbers within` belongs before an output")
    if last is not None:
        last.output = Output(block.text, line, pending.within)
    return None


def _require(condition: object, path: Path, line: int, problem: str) -> None:
    if not condition:
        raise PageError(f"{path}:{line}: {problem}")
