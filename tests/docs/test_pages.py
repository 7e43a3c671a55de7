"""Every line of shell and Python on every page runs, and prints what the page says. See tests/docs/markdown.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.files import put_files
from tests.docs.markdown import Page, PageError, read_page
from tests.docs.runner import run_page

ROOT = Path(__file__).resolve().parents[2]
ALL = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "lab/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def _read(path: Path) -> Page | str:
    """The page, or what is wrong with it."""
    try:
        return read_page(path)
    except PageError as error:
        return str(error)


READ = {path: _read(path) for path in ALL}
PAGES = [page for page in READ.values() if isinstance(page, Page) and page.blocks]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A folder that all processes of pytest-xdist share: each has its own in a common one."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


def _says(page: Page, text: str) -> bool:
    return any(text in f"\n{block.text}" for block in page.blocks)


def _marks(page: Page) -> list[pytest.MarkDecorator]:
    """Slow pages are marked. Those with a cluster run in one worker, which starts it once."""
    shares = _says(page, 'engine="ray"')
    return [pytest.mark.slow] * page.slow + [pytest.mark.xdist_group("shared")] * shares


def test_every_page_keeps_to_the_rules():
    wrong = [problem for problem in READ.values() if isinstance(problem, str)]
    assert not wrong, "\n".join(wrong)
    assert len(PAGES) > 30
    assert sum(len(page.blocks) for page in PAGES) > 100


# Lightning's advice for a tiny run on a CPU, and torch's of Lightning's own calls
@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`tensorboardX` has been removed.*",
    "ignore:.*smaller than the logging interval.*",
    "ignore:.*LeafSpec.*",
)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.path.relative_to(ROOT)), marks=_marks(page)) for page in PAGES],
)
def test_a_page_runs_and_prints_what_it_says(page, tmp_path, cache, monkeypatch, request):
    if _says(page, 'engine="ray"'):
        request.getfixturevalue("cluster")
    monkeypatch.setenv("MPLBACKEND", "agg")
    put_files(page.files, tmp_path, cache)
    problem = None
    try:
        run_page(page, tmp_path)
    except PageError as error:
        problem = str(error)
    if problem:
        pytest.fail(problem, pytrace=False)
