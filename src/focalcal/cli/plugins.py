"""Commands that other distributions add through the entry-point group `focalcal.commands`.

An entry point is a Typer application or a function that Typer can make a command of. It is imported only when its
command is called. One that cannot be imported says so then, and every other command works.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from focalcal.errors import FocalCalError, MissingExtraError
from focalcal.printable import printable

GROUP = "focalcal.commands"
# Commands of a distribution that need not be installed: where they come from, and what they do.
_OPTIONAL = {
    "lab": ("focalcal-lab", "Run the papers' experiments, and your own."),
    "claims": ("focalcal-lab", "List the papers' claims and check the exact ones."),
}


class CommandGroup(TyperGroup):
    """The commands of focalcal, followed by those of other distributions."""

    _lists_only = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, which lists all commands and imports none."""
        self._lists_only = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists_only = False

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what was typed and is none of its arguments is named in escapes, whatever Typer does."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(said := getattr(error, "message", None), str):
                error.message = printable(said)  # type: ignore[attr-defined]
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands; nothing is imported for them."""
        own = super().list_commands(ctx)
        return [*own, *sorted({*_OPTIONAL, *_installed()} - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name, or None."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        entry = _installed().get(cmd_name)
        if entry is not None:
            return _placeholder(entry) if self._lists_only else _loaded(entry)
        return _not_installed(cmd_name) if cmd_name in _OPTIONAL else None


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _source(entry: EntryPoint) -> str:
    """The distribution that an entry point belongs to."""
    return entry.dist.name if entry.dist is not None else entry.value


def _placeholder(entry: EntryPoint) -> Any:
    """What a list of commands shows of an entry point."""
    said = _OPTIONAL[entry.name][1] if entry.name in _OPTIONAL else f"Part of {_source(entry)}."
    return _command(entry.name, lambda: None, help=said)


def _loaded(entry: EntryPoint) -> Any:
    """The command of an entry point; where it cannot be imported, a command that says so."""
    source = _source(entry)
    try:
        return _command(entry.name, entry.load())
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        message = f"`focalcal {entry.name}` is part of {source}, which cannot be loaded ({why}). Reinstall {source}."
        return _failing_command(entry.name, FocalCalError(message))


def _not_installed(name: str) -> Any:
    source, what_it_does = _OPTIONAL[name]
    message = f"`focalcal {name}` is part of {source}. Install it: pip install {source}"
    return _failing_command(name, MissingExtraError(message), f"{what_it_does} Needs {source}.")


def _command(name: str, plugin: typer.Typer | Callable[..., Any], **settings: Any) -> Any:
    """A Typer application or a function as a command of this name."""
    if not isinstance(plugin, typer.Typer):
        function, plugin = plugin, typer.Typer(add_completion=False)
        plugin.command(name, **settings)(function)
    command = typer.main.get_command(plugin)
    command.name = name
    return command


def _failing_command(name: str, error: FocalCalError, help_text: str = "") -> Any:
    """A command that raises an error, whatever its arguments are."""

    def fail() -> None:
        raise error

    context = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    return _command(name, fail, help=help_text, context_settings=context)
