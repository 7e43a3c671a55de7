"""Commands of other distributions: found by their entry points, loaded when they run, and never in the way."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import typer

from focalcal.cli import plugins
from tests.cli.tools import call

LOADED: list[str] = []


def greet(name: str = "nobody") -> None:
    """Greet somebody."""
    print(f"hello {name}")


group = typer.Typer(help="A group of two commands.")
group.command("greet")(greet)
group.command("other")(greet)


@dataclass
class Installed:
    """An entry point as `importlib.metadata` gives it."""

    name: str
    value: str
    distribution: str = "some-package"

    @property
    def dist(self):
        return SimpleNamespace(name=self.distribution)

    def load(self):
        LOADED.append(self.name)
        return EntryPoint(self.name, self.value, plugins.GROUP).load()


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """What is installed: nothing, until a test adds an entry."""
    entries: list[Installed] = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == "focalcal.commands" else [])
    LOADED.clear()
    return entries


@pytest.mark.parametrize("command", ["lab", "claims"])
@pytest.mark.parametrize("arguments", [(), ("run", "x"), ("--help",), ("--json", "-q")])
def test_without_the_lab_its_commands_say_in_one_line_what_to_install(command, arguments):
    answer = call(command, *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        f"focalcal: `focalcal {command}` is part of focalcal-lab. Install it: pip install focalcal-lab\n"
    )


def test_help_lists_commands_that_are_not_installed_and_what_they_need():
    shown = " ".join(call("--help", COLUMNS="200").out.split())
    assert "Run the papers' experiments, and your own. Needs focalcal-lab." in shown


def test_functions_and_groups_become_commands(installed):
    installed += [Installed("greet", f"{__name__}:greet"), Installed("lab", f"{__name__}:group")]
    assert call("greet", "--name", "you").out == "hello you\n"
    assert call("lab", "other").out == "hello nobody\n"
    shown = call("lab", "-h").out
    assert "A group of two commands." in shown
    assert "greet" in shown


def test_a_plugin_is_loaded_only_when_it_is_needed(installed):
    installed.append(Installed("greet", f"{__name__}:greet"))
    call("--version")
    call("evaluate", "--help")
    assert "Part of some-package." in call("--help").out
    assert LOADED == []
    call("greet")
    assert LOADED == ["greet"]


def test_a_broken_plugin_names_its_distribution_and_breaks_nothing_else(installed):
    installed += [Installed("broken", "no_such_module:app"), Installed("greet", f"{__name__}:greet")]
    answer = call("broken", "--anything")
    assert (answer.code, answer.out) == (1, "")
    assert "`focalcal broken` is part of some-package, which cannot be loaded (ModuleNotFoundError" in answer.err
    assert len(answer.err.splitlines()) == 1
    assert call("--help").code == 0
    assert call("greet").code == 0


def test_a_plugin_does_not_replace_a_command_of_the_library(installed):
    installed.append(Installed("evaluate", f"{__name__}:greet"))
    assert "hello" not in call("evaluate", "nothing.npz").out
    assert LOADED == []
