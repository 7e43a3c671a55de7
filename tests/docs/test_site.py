"""The documentation site builds without a warning, needs no other host, and every link and picture is there."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import focalcal
from tests.docs.conftest import ROOT, Site

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

# The attributes by which a page makes the browser load something.
_LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
_LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload", "manifest"}


def _loaded(site: Site) -> list[tuple[str, str]]:
    found = []
    for page, html in site.pages.items():
        for tag, values in html.elements:
            if tag in _LOADS and values.get(_LOADS[tag]):
                found.append((page, values[_LOADS[tag]]))
            if tag == "link" and _LOADING_LINKS & set(values.get("rel", "").split()):
                found.append((page, values["href"]))
    return found


def _file(site: Site, page: str, address: str) -> Path:
    if page == "404.html":  # may be shown at any depth, so its addresses start at the root
        return site.folder / unquote(urlsplit(address).path).lstrip("/")
    return (site.folder / page).parent / unquote(urlsplit(address).path)


def test_every_page_of_the_navigation_is_built_and_has_a_title_of_its_own(site):
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {path.with_name("index.html") if path.name == "README.html" else path for path in written}
    assert {path.as_posix() for path in expected} | {"changelog.html", "404.html"} == set(site.pages)
    titles = [html.title for page, html in site.pages.items() if page != "404.html"]
    assert all(title.strip() for title in titles)


def test_no_page_loads_anything_from_another_host(site):
    loaded = _loaded(site)
    assert len(loaded) > 100
    assert [(page, address) for page, address in loaded if urlsplit(address).netloc or urlsplit(address).scheme] == []
    for path in site.folder.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path
    # With this attribute the theme's script asks the repository's host for its stars.
    assert not any(
        values.get("data-md-component") == "source" for html in site.pages.values() for _, values in html.elements
    )


def test_all_that_pages_load_is_in_the_site(site):
    assert [(page, address) for page, address in _loaded(site) if not _file(site, page, address).is_file()] == []


def test_every_link_within_the_site_leads_to_a_page_and_an_anchor(site):
    for page, html in site.pages.items():
        for address in [values["href"] for tag, values in html.elements if tag == "a" and "href" in values]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or page == "404.html":
                continue
            target = _file(site, page, address).resolve() if parts.path else html.path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (page, address)
            if parts.fragment and target.suffix == ".html":
                ids = site.pages[target.relative_to(site.folder.resolve()).as_posix()].ids if parts.path else html.ids
                assert unquote(parts.fragment) in ids or parts.fragment == "__toc", (page, address)


def test_equations_are_mathml_and_no_dollar_is_left(site):
    theory = site.pages["reference/theory.html"]
    assert sum(tag == "math" for tag, _ in theory.elements) > 20
    for page, html in site.pages.items():
        assert not any("arithmatex" in values.get("class", "") for _, values in html.elements), page
        assert not re.search(r"\\\(|\\\[|\$\$", "".join(html.prose)), page


def test_a_source_that_a_docstring_names_is_a_link_to_the_references(site):
    cited = [
        values["href"]
        for tag, values in site.pages["reference/losses.html"].elements
        if tag == "a" and "href" in values
    ]
    assert "../references.html#mukhoti2020" in cited
    assert {"mukhoti2020", "ghosh2022", "charoenphakdee2021", "komisarenko2024"} <= site.pages["references.html"].ids


def test_links_out_of_the_docs_lead_to_the_repository(site):
    links = [values.get("href") for _, values in site.pages["results/index.html"].elements]
    results = "https://github.com/focalcal/focalcal/blob/main/reproduction/results"
    assert any(link and link.startswith(results) for link in links)


def test_the_version_is_on_every_page(site):
    assert all(
        f"focalcal {focalcal.__version__}" in " ".join("".join(html.prose).split()) for html in site.pages.values()
    )


def test_every_command_is_in_the_reference_with_its_options(site):
    ids = site.pages["reference/command_line.html"].ids
    assert {
        "focalcal-evaluate",
        "focalcal-calibrate",
        "focalcal-apply",
        "focalcal-lab-run",
        "focalcal-lab-resume",
    } <= ids
    assert "--on-bad-shard raise|skip" in site.pages["reference/command_line.html"].path.read_text(encoding="utf-8")
