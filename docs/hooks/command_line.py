"""The reference of the command line, made from the help of every command."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PAGE = "reference/command_line.md"
MARK = "<!-- the commands -->"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the commands where the page marks their place."""
    return markdown.replace(MARK, "\n".join(reference())) if page.file.src_uri == PAGE else markdown


def reference() -> Iterator[str]:
    """The Markdown of all commands."""
    for name, command in commands():
        yield from _command(name, command)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name, in the order of `focalcal --help`, with those of its groups."""
    from focalcal.cli import app

    yield from _walk("focalcal", typer.main.get_command(app))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    if not hasattr(command, "list_commands"):
        return
    context = command.context_class(command, info_name=name)
    for inner in command.list_commands(context):
        yield from _walk(f"{name} {inner}", command.get_command(context, inner))


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name)
    usage = re.sub(r"[{}]", "", command.get_usage(context).removeprefix("Usage: "))
    usage = usage.replace("......", "...").replace("...]...", "...]").replace("[[", "[").replace("]]", "]")
    yield from ("", f"## {name}", "", "```text", usage, "```", "")
    yield _prose(command.help or "")
    yield from ("", "| | |", "|---|---|")
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            yield f"| {_names(record[0])} | {_cell(record[1])} |"


def _names(record: str) -> str:
    """`-q, --quiet`; `--engine auto|memory|stream|ray`; of arguments the name alone, since its type says nothing."""
    names, _, kind = record.partition(" <")
    kind = kind.rstrip(">").removesuffix(" range") if names.startswith("-") else ""
    kind = "" if kind.startswith("list[") else kind
    return f"`{' '.join([names, *([kind.upper() if '|' not in kind else kind] if kind else [])])}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _prose(text: str) -> str:
    """The paragraphs as they are; examples, one a line, as code."""
    return "\n\n".join(_code(each) if each.startswith("Examples:") else _plain(each) for each in _paragraphs(text))


def _paragraphs(text: str) -> list[str]:
    return [each.strip() for each in re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\b", ""))]


def _code(paragraph: str) -> str:
    title, _, lines = paragraph.partition("\n")
    return f"{title}\n\n```text\n{textwrap.dedent(lines)}\n```"


def _plain(text: str) -> str:
    """Words with signs that Markdown would take for its own, as code: options, globs, names with underscores."""
    return re.sub(r"(?<![`\w-])(--?[a-z][\w-]*|[\w/.-]*[*_][\w/.*-]*(?<![.]))(?![`\w])", r"`\1`", text)
