"""A real Chromium, and reports that were built and written as a user's are."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from focalcal.files.prediction_table import PredictionTable
from focalcal.report.build import ModelInput, build_contents
from focalcal.report.contents import Contents
from focalcal.report.html import write_report

HOSTILE = ("<script>alert(1)</script>", "שלום " * 12, "", "🦊 " + "x" * 200 + "<img src=x onerror=alert(2)>")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass(frozen=True)
class Report:
    """A report on disk and what it was made of."""

    path: Path
    contents: Contents


@dataclass
class Opened:
    """An open page and everything it should not have done."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, or playwright's own; one for a module."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="browser tests need playwright: pip install playwright"
    )
    with playwright.sync_playwright() as driver:
        found = next(filter(None, map(shutil.which, _BROWSERS)), driver.chromium.executable_path)
        if not Path(found).exists():
            pytest.skip("browser tests need Chromium on the system: apt-get install chromium")
        chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a report from disk in a window of its own, with the network cut off."""
    with _windows(browser) as opening:
        yield opening


@pytest.fixture(scope="module")
def untouched(browser: Any) -> Iterator[Callable[[Report], Any]]:
    """The page of a report as it opens, one for all tests that only read it: opening takes seconds."""
    with _windows(browser) as opening:
        pages: dict[Path, Any] = {}

        def page(report: Report) -> Any:
            if report.path not in pages:
                pages[report.path] = opening(report).page
            return pages[report.path]

        yield page


@contextmanager
def _windows(browser: Any) -> Iterator[Callable[..., Opened]]:
    """What opens windows, and closes them all at the end."""
    contexts = []

    def opening(report: Report, *, width: int = 1280, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(180_000)  # the machine may be busy
        context.route(
            "**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort()
        )
        opened = Opened(context.new_page())
        page = opened.page
        page.on(
            "console",
            lambda message: opened.errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: opened.errors.append(str(error)))
        page.on("dialog", lambda dialog: (opened.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(report.path.as_uri())
        return opened

    yield opening
    for context in contexts:
        context.close()


def predictions(num_rows: int, num_classes: int, *, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are `scale` times too large, and labels."""
    generator = np.random.default_rng(seed)
    logits = 1.5 * generator.normal(size=(num_rows, num_classes))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(1)
    return scale * logits, labels


def _history(updates: int = 12, bins: int = 5) -> dict[str, np.ndarray]:
    gamma = 1 + np.random.default_rng(0).normal(size=(updates, bins)).cumsum(0) / 5
    edges = np.tile(np.linspace(0, 1, bins + 1), (updates, 1))
    return {"gamma": gamma, "lower_edge": edges[:, :-1], "upper_edge": edges[:, 1:]}


def _fitted(name: str, scale: float, seed: int, *, same_data: bool, history: dict[str, np.ndarray]) -> ModelInput:
    logits, labels = predictions(1200, 4, scale=scale, seed=seed)
    table = PredictionTable(name, logits, "logits", labels=labels, class_names=HOSTILE, history=history)
    fit, score = table.take(np.arange(600)), table.take(np.arange(600, 1200))
    return ModelInput(name, score, score if same_data else fit, "fitted to 600 rows, measured on 600", same_data)


@pytest.fixture(scope="session")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Two models of four classes with hostile names, calibrators, landscapes and AdaFocal's history."""
    first = _fitted("cross-entropy <b>bold</b>", 2.0, 0, same_data=False, history={})
    second = _fitted("adafocal", 0.7, 1, same_data=True, history=_history())
    contents = build_contents([first, second], title="Report <i>one</i> & two", num_resamples=100)
    return _written(contents, tmp_path_factory.mktemp("report") / "two models.html")


@pytest.fixture(scope="session")
def many_forms(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Samples of every form: reduced, large, with weights of both kinds, sure, and full of equal confidences."""
    wide, wide_labels = predictions(300, 300, scale=1.7, seed=2)
    large, large_labels = predictions(4000, 10, scale=2.4, seed=3)
    few, few_labels = predictions(200, 3, scale=1.5, seed=4)
    generator = np.random.default_rng(5)
    shares, counts = generator.uniform(0.1, 3, size=200), generator.integers(1, 4, size=200)
    tied = np.repeat([[0.7, 0.3], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]], 20, axis=0)
    tables = [
        PredictionTable("reduced", wide, "logits", labels=wide_labels),
        PredictionTable("large", large, "logits", labels=large_labels),
        PredictionTable("shares", few, "logits", labels=few_labels, weights=shares),
        PredictionTable("counts", few, "logits", labels=few_labels, weights=counts.astype(float)),
        PredictionTable("sure", 400 * few, "logits", labels=few_labels),
        PredictionTable("tied", tied, "probs", labels=np.where(tied[:, 1] == 0, 0, generator.integers(0, 2, size=80))),
        PredictionTable("seven rows", few[:7], "logits", labels=few_labels[:7]),
    ]
    models = [ModelInput(table.name, table, None, "all rows measured") for table in tables]
    return _written(build_contents(models, num_resamples=100), tmp_path_factory.mktemp("report") / "forms.html")


def _written(contents: Contents, path: Path) -> Report:
    write_report(contents, path)
    return Report(path, contents)
