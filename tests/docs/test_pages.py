"""Every line of shell and Python on every page runs, and prints what the page says. See tests/docs/markdown.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.files import put_files
from tests.docs.markdown import PageError, read_page
from tests.docs.runner import run_page

ROOT = Path(__file__).resolve().parents[2]
ALL = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def _is_slow(path: Path) -> bool:
    try:
        return read_page(path).slow
    except PageError:
        return False  # the test says what is wrong


def _parameter(path: Path) -> object:
    marks = [pytest.mark.slow] if _is_slow(path) else []
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=marks)


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A folder that all processes of pytest-xdist share: each has its own in a common one."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture
def no_cluster_left():
    """Ends the Ray cluster that a page may have started in this process, for other tests start their own."""
    yield
    if ray := sys.modules.get("ray"):
        ray.shutdown()


# Lightning's advice for a tiny run on a CPU, and torch's of Lightning's own calls
@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`tensorboardX` has been removed.*",
    "ignore:.*smaller than the logging interval.*",
    "ignore:.*LeafSpec.*",
)
@pytest.mark.usefixtures("no_cluster_left")
@pytest.mark.parametrize("path", [_parameter(path) for path in ALL])
def test_a_page_runs_and_prints_what_it_says(path, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    page = read_page(path)
    put_files(page.files, tmp_path, cache)
    run_page(page, tmp_path)
