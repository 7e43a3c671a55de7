"""Commands that other distributions add through the entry-point group `focalcal.commands`."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from focalcal.errors import MissingExtraError

GROUP = "focalcal.commands"
# Commands of distributions that need not be installed: what to say in their place.
_ELSEWHERE = {
    "lab": ("focalcal-lab", "Run the papers' experiments, and your own."),
    "claims": ("focalcal-lab", "List the papers' claims and check the exact ones."),
}


def add_commands(app: typer.Typer) -> None:
    """Add every command of the group to `app`; for a known one that is missing, a line that says what to install."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name, entry in sorted(found.items()):
        command = entry.load()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    for name, (distribution, help_text) in _ELSEWHERE.items():
        if name not in found:
            _add_pointer(app, name, distribution, help_text)


def _add_pointer(app: typer.Typer, name: str, distribution: str, help_text: str) -> None:
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

    @app.command(name, help=f"{help_text} Needs {distribution}.", context_settings=settings)
    def missing() -> None:
        raise MissingExtraError(f"`focalcal {name}` is part of {distribution}. Install it: pip install {distribution}")
