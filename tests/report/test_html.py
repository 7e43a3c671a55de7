from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from focalcal.calibrators import FocalTemperatureScaling, TemperatureScaling
from focalcal.errors import MissingExtraError
from focalcal.report.build import build_contents
from focalcal.report.contents import Contents
from focalcal.report.html import render, to_json, write_report
from tests.report.cases import model_of, sharp_table

pytest.importorskip("plotly")

LIMIT = 6_000_000
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "{{js}} {{contents}}",
    "&lt;b&gt; \u2028 \u2029 \" ' \\ \x00",
    "\u202eright to left \ud800",
)


@lru_cache(maxsize=1)
def hostile() -> Contents:
    table = sharp_table(200, 5, class_names=HOSTILE)
    ready = TemperatureScaling().fit(table.scores, table.labels)
    given = model_of(table, name="<img src=x onerror=alert(2)>", calibrators={"<b>bold</b>": ready}, same_data=True)
    return build_contents([given], title="A </title> & <b>B</b> {{js}}", num_resamples=100)


class _Page(HTMLParser):
    """Collects elements, and the text of scripts and of everything else."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.text += data


def page_of(contents: Contents) -> _Page:
    return _Page(render(contents))


def data_of(page: _Page) -> Any:
    places = [attrs for tag, attrs in page.elements if tag == "script"]
    place = next(i for i, attrs in enumerate(places) if attrs.get("id") == "contents")
    return json.loads(page.scripts[place])


def test_data_comes_out_as_it_went_in_to_five_digits() -> None:
    contents = hostile()
    data, plain = data_of(page_of(contents)), contents.to_dict()

    def same(here: Any, there: Any) -> None:
        if isinstance(there, dict):
            assert list(here) == list(there)
            for key in there:
                same(here[key], there[key])
        elif isinstance(there, list):
            assert len(here) == len(there)
            for one, other in zip(here, there, strict=True):
                same(one, other)
        elif isinstance(there, float):
            assert here == pytest.approx(there, rel=5e-5)
        elif isinstance(there, str):
            assert here == there.replace("\ud800", "?")
        else:
            assert here == there

    same(data, plain)


def test_no_name_can_leave_its_place() -> None:
    page, harmless = page_of(hostile()), page_of(build_contents([model_of(sharp_table(50))], num_resamples=100))
    assert [tag for tag, _ in page.elements].count("script") == [tag for tag, _ in harmless.elements].count("script")
    assert not any(tag in ("img", "b") for tag, _ in page.elements)
    assert "<img src=x onerror=alert(2)>" in page.text  # shown as text
    assert "A </title> & <b>B</b> {{js}}" in page.text


def test_names_are_written_without_the_characters_that_end_a_script() -> None:
    text = to_json(hostile())
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text)["models"][0]["classes"]["name"]


def test_placeholders_are_replaced_once_and_not_inside_what_was_put_in() -> None:
    page = page_of(hostile())
    names = data_of(page)["models"][0]["classes"]["name"]
    assert "{{js}} {{contents}}" in names
    assert len([script for script in page.scripts if "focalcalReport" in script]) == 1


def test_page_is_one_file_that_may_not_use_the_network() -> None:
    page = page_of(hostile())
    metas = [attrs for tag, attrs in page.elements if tag == "meta"]
    policy = next(meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert any(meta.get("charset") == "utf-8" for meta in metas)
    for _, attrs in page.elements:
        assert attrs.get("src") is None
        assert (attrs.get("href") or "#").startswith(("#", "data:"))


def test_summary_can_be_read_without_javascript() -> None:
    contents = hostile()
    text = page_of(contents).text
    model = contents.models[0]
    assert model.verdict[1:] in text
    assert "too good to be true" in text
    assert "<b>bold</b>" in text
    assert model.versions[1].settings in text
    accuracy = model.versions[0].numbers["accuracy"]
    assert accuracy.value is not None
    assert f"{100 * accuracy.value:.1f} %" in text
    quiet = replace(contents, models=[replace(model, same_data=False)])
    assert "too good to be true" not in page_of(quiet).text


def test_numbers_that_json_does_not_have_become_null() -> None:
    contents = hostile()
    model = contents.models[0]
    numbers = model.versions[0].numbers
    broken = replace(model.versions[0], numbers=numbers | {"nll": replace(numbers["nll"], value=float("inf"))})
    text = to_json(replace(contents, models=[replace(model, versions=[broken])]))
    assert json.loads(text)["models"][0]["versions"][0]["numbers"]["nll"]["value"] is None


def test_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "report.html"
    contents = hostile()
    assert write_report(contents, place) == place.stat().st_size
    assert place.read_bytes().decode("utf-8") == render(contents)
    place.write_text("before")
    monkeypatch.setattr("focalcal.atomic.os.replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(contents, place)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert place.read_text() == "before"


def test_missing_plotly_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingExtraError, match=r"focalcal\[report\]"):
        render(hostile())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_classes", "num_models", "sampled"),
    [(10, 1, 4000), (100, 1, 1000), (1000, 1, 2500), (10, 8, 500)],
)
def test_report_stays_below_six_megabytes(
    num_classes: int, num_models: int, sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("focalcal.report.measure_version._CHANCE_DRAWS", 100)  # the page does not grow with them
    names = tuple(f"a class with a name of some length, number {k}" for k in range(num_classes))
    tables = [
        sharp_table(20_000 // num_models, num_classes, seed=seed, class_names=names) for seed in range(num_models)
    ]
    models = [model_of(table, table.take(np.arange(1000)), name=f"m{i}") for i, table in enumerate(tables)]
    methods = {"temperature": TemperatureScaling(), "focal": FocalTemperatureScaling("nll", search="continuous")}
    contents = build_contents(models, methods=methods, num_resamples=100)
    assert len(render(contents).encode()) < LIMIT
    assert all(model.explorer and model.explorer.num_rows >= sampled for model in contents.models)
