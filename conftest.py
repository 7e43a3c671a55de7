"""For the tests of the library, the lab and the evidence: one thread each, slow ones first, and where the time goes.

`make test` runs the quick tests of the library, `make check` those first and then, by `--rest`, all others.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

# The library's tests; `make test` names the same folders.
LIBRARY = ("tests/", "src/", "lab/tests/claims/")
# Two workers share two cores; a test's own processes inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--times` shows the seconds that each folder takes, `--rest` leaves out what `make test` runs."""
    parser.addoption("--rest", action="store_true", help="leave out what `make test` runs")
    parser.addoption("--times", action="store_true", help="show the seconds and the number of tests of each folder")


def pytest_configure(config: pytest.Config) -> None:
    """Count times only where they are wanted."""
    if config.getoption("--times"):
        config.pluginmanager.register(_Times())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of the library that says nothing of slow tests has none: `--rest` need not import it."""
    if not config.getoption("--rest") or collection_path.suffix != ".py":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    return True if name.startswith(LIBRARY) and "slow" not in collection_path.read_text("utf-8") else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests first: what ends a run is short, and both workers are busy to the end."""
    if config.getoption("--rest"):
        config.hook.pytest_deselected(items=[item for item in items if _is_quick(item)])
        items[:] = [item for item in items if not _is_quick(item)]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _is_quick(item: pytest.Item) -> bool:
    """Whether `make test` runs it."""
    return item.nodeid.startswith(LIBRARY) and item.get_closest_marker("slow") is None


class _Times:
    """The seconds of all tests, by the folder they are in."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        parts = report.nodeid.partition("::")[0].split("/")
        folder = "/".join(parts[:3] if parts[0] in ("src", "lab") else parts[:2])
        self.seconds[folder] += report.duration
        self.tests[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds by folder")
        for folder, seconds in self.seconds.most_common():
            terminalreporter.write_line(f"{seconds:8.1f}  {self.tests[folder]:6}  {folder}")
        terminalreporter.write_line(f"{self.seconds.total():8.1f}  {self.tests.total():6}  in all")
