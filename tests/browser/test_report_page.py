"""The report in a real browser: what it shows, computes, and leaves alone."""

from __future__ import annotations

import math
import re
import time
from importlib import resources
from itertools import pairwise, product
from typing import Any

import pytest

from focalcal.report.explorer import measures
from tests.browser.conftest import Report

# One worker runs them all: one browser, and each report is built once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

MEASURES = ("ece", "ada_ece", "nll")
GAMMAS = (-0.9, -0.5, 0.0, 0.7, 2.0, 5.0)
TEMPERATURES = (0.1, 0.4, 1.0, 2.7, 10.0)

# Visible blocks that must not lie on one another, a block and what is inside it aside.
OVERLAPS = """() => {
  const chosen = ['h1, h2, h3, p, .plot, .controls, .slider, .buttons button, .choices label, .readout > div, .scroll',
    '.facts > div, .legend li, .terms > div, .meters > *, #theme, #sections li'].join();
  const boxes = [...document.querySelectorAll(chosen)]
    .filter((node) => node.checkVisibility() && !node.parentElement.closest('.scroll'))
    .map((node) => ({ node, box: node.getBoundingClientRect() })).filter(({ box }) => box.width && box.height);
  const found = [];
  for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1)) {
    if (a.node.contains(b.node) || b.node.contains(a.node)) continue;
    const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
    const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
    if (across > 1 && down > 1) found.push(`${a.node.outerHTML.slice(0, 80)} and ${b.node.outerHTML.slice(0, 80)}`);
  }
  return found;
}"""

# Text that does not fit into its control, and blocks that stick out of the window.
CUT_OFF = """() => [...document.querySelectorAll('button, .choices label, h1, h2, h3, p, .plot, dd')]
  .filter((node) => node.checkVisibility() && !node.closest('.scroll'))
  .filter((node) => node.scrollWidth > node.clientWidth + 1 || node.getBoundingClientRect().right > innerWidth + 1)
  .map((node) => node.outerHTML.slice(0, 120))"""


def settle(page: Any) -> None:
    """Two frames: the explorer computes at most once a frame."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_until(page: Any, condition: str) -> None:
    """Playwright's own waiting evaluates text in the page, which the page's policy forbids."""
    deadline = time.monotonic() + 180  # the machine may be busy
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never became true: {condition}"
        page.wait_for_timeout(20)


def shown_measures(page: Any) -> dict[str, float]:
    settle(page)
    return {name: float(page.locator(f"#explorer-{name}").get_attribute("data-value")) for name in MEASURES}


def position(page: Any) -> tuple[float, float]:
    """(gamma, T) as the number boxes show them."""
    return tuple(float(page.locator(f"#{name}-box").input_value()) for name in ("gamma", "temperature"))  # type: ignore[return-value]


def assert_close(found: dict[str, float], expected: dict[str, float], tolerance: float = 1e-6) -> None:
    for name in MEASURES:
        assert math.isclose(found[name], expected[name], abs_tol=tolerance), (name, found, expected)


# ---- loading


@pytest.mark.parametrize("which", ["two_models", "many_forms"])
def test_the_report_opens_from_disk_without_an_error_or_a_request(which, request, open_page):
    report = request.getfixturevalue(which)
    opened = open_page(report)
    for index in range(len(report.contents.models)):
        opened.page.locator("input[name=model]").nth(index).check()
        settle(opened.page)
    assert opened.errors == []
    assert {url.split(":")[0] for url in opened.requests} <= {"file", "data", "blob"}
    assert len([url for url in opened.requests if url.startswith("file:")]) == 1


def test_the_only_global_name_is_the_one_for_tests(two_models, open_page, untouched, tmp_path):
    script = (resources.files("focalcal.report") / "page" / "report.js").read_text("utf-8")
    without = Report(tmp_path / "without.html", two_models.contents)
    without.path.write_text(two_models.path.read_text("utf-8").replace(script, ""), "utf-8")
    usual, found = (
        set(page.evaluate("Object.keys(window)")) for page in (open_page(without).page, untouched(two_models))
    )
    assert found - usual == {"focalcalReport"}


def test_without_javascript_the_verdict_and_the_numbers_are_readable(two_models, open_page):
    page = open_page(two_models, java_script_enabled=False, width=360).page
    text = page.locator("main").inner_text()
    for model in two_models.contents.models:
        assert model.verdict[1:] in text  # the first letter is a capital
    assert page.locator("main table").count() == 2
    assert not page.locator("#theme").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


# ---- the explorer


def test_the_page_computes_what_python_computes_everywhere(many_forms, untouched):
    page = untouched(many_forms)
    for index, model in enumerate(many_forms.contents.models):
        for gamma, temperature in product(GAMMAS, TEMPERATURES):
            arguments = [index, gamma, temperature]
            found = page.evaluate("(given) => window.focalcalReport.measures(...given)", arguments)
            assert_close(found, measures(model.explorer, gamma, temperature))


def test_the_explorer_starts_at_the_fitted_optimum(two_models, untouched):
    page = untouched(two_models)
    explorer = two_models.contents.models[0].explorer
    assert position(page) == pytest.approx((explorer.focal_gamma, explorer.focal_temperature), rel=1e-3, abs=1e-6)
    assert_close(shown_measures(page), measures(explorer, explorer.focal_gamma, explorer.focal_temperature), 1e-3)
    assert page.locator("#best-focal").get_attribute("aria-pressed") == "true"


def test_arrow_keys_on_the_sliders_move_the_numbers(two_models, open_page):
    page = open_page(two_models).page
    explorer = two_models.contents.models[0].explorer
    before = shown_measures(page)
    for slider, key in (("gamma", "ArrowRight"), ("temperature", "ArrowLeft")):
        page.locator(f"#{slider}").focus()
        for _ in range(8):
            page.keyboard.press(key)
    power = float(page.locator("#temperature").input_value())
    gamma = float(page.locator("#gamma").input_value())
    found = shown_measures(page)
    assert_close(found, measures(explorer, gamma, 10**power))
    assert all(found[name] != before[name] for name in MEASURES)


def test_setting_the_sliders_gives_the_measures_of_that_point(two_models, open_page):
    page = open_page(two_models).page
    set_value = "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', { bubbles: true })); }"
    for gamma, power in ((-0.9, -1), (-0.9, 1), (5, -1), (5, 1), (0, 0), (1.3, 0.4)):
        page.locator("#gamma").evaluate(set_value, str(gamma))
        page.locator("#temperature").evaluate(set_value, str(power))
        found = shown_measures(page)
        assert_close(found, measures(two_models.contents.models[0].explorer, gamma, 10**power))
        assert page.locator("#explorer-nll").inner_text() == f"{found['nll']:.4f}"
        assert page.locator("#explorer-ece").inner_text().split()[0] == f"{100 * found['ece']:.2f}"


def test_numbers_typed_beside_the_sliders_count_and_nonsense_is_refused(two_models, open_page):
    page = open_page(two_models).page
    explorer = two_models.contents.models[0].explorer
    page.locator("#temperature-box").fill("1.25")
    page.locator("#gamma-box").fill("0.5")
    expected = measures(explorer, 0.5, 1.25)
    assert_close(shown_measures(page), expected)
    for nonsense in ("-3", "0", ""):
        page.locator("#temperature-box").fill(nonsense)
        assert_close(shown_measures(page), expected)
        assert page.locator("#temperature-box").get_attribute("aria-invalid") == "true"


def test_the_three_buttons_go_to_their_points(two_models, open_page):
    page = open_page(two_models).page
    explorer = two_models.contents.models[0].explorer
    points = {
        "identity": (0.0, 1.0),
        "best-temperature": (0.0, explorer.temperature),
        "best-focal": (explorer.focal_gamma, explorer.focal_temperature),
    }
    for button, point in points.items():
        page.locator(f"#{button}").click()
        assert position(page) == pytest.approx(point, rel=1e-3, abs=1e-6)
        assert_close(shown_measures(page), measures(explorer, *point), 1e-3)


def test_the_numbers_are_announced_when_the_slider_rests(two_models, open_page):
    page = open_page(two_models).page
    before = shown_measures(page)["nll"]
    page.locator("#identity").click()
    after = shown_measures(page)["nll"]
    assert after != before
    # on a busy machine what was there before may still be announced first
    wait_until(page, f"document.getElementById('explorer-spoken').textContent.includes('{after:.4f}')")
    assert page.locator("#explorer-spoken").get_attribute("aria-live") == "polite"


def test_a_move_takes_well_under_a_twentieth_of_a_second(many_forms, open_page):
    page = open_page(many_forms).page
    timed = """() => { const times = [];
      for (let i = 0; i < 15; i++) {
        const start = performance.now();
        window.focalcalReport.measures(1, 0.1 * i, 1.5);
        times.push(performance.now() - start);
      }
      return times.sort((a, b) => a - b)[7]; }"""
    assert page.evaluate(timed) < 25  # the other half is for the chart


# ---- figures and tables


def test_the_switches_change_the_diagrams_and_their_ece_is_that_of_the_contents(two_models, open_page):
    page = open_page(two_models).page
    points = "() => document.querySelector('#reliability .plot').data.find((trace) => trace.mode === 'lines+markers').x"
    for scheme in ("equal_mass", "equal_width"):
        page.locator(f"input[name=scheme][value={scheme}]").check()
        for num_bins in two_models.contents.bin_counts:
            page.locator("#num-bins").select_option(str(num_bins))
            for index, version in enumerate(two_models.contents.models[0].versions):
                (diagram,) = [each for each in version.diagrams if (each.scheme, each.num_bins) == (scheme, num_bins)]
                error = page.locator("#reliability .shown-error").nth(index).inner_text()
                assert error == f"ECE {100 * diagram.error:.2f}\u00a0%"
            first = [each for each in two_models.contents.models[0].versions[0].diagrams if each.num_bins == num_bins]
            (shown,) = [each for each in first if each.scheme == scheme]
            assert page.evaluate(points) == pytest.approx(shown.confidence, rel=1e-4)


def test_every_chart_is_drawn_and_says_in_words_what_it_shows(two_models, open_page):
    page = open_page(two_models).page
    page.locator("input[name=model]").nth(1).check()
    charts = page.locator(".plot")
    # Two small multiples, three versions, explorer, landscape, risk, dynamics.
    assert charts.count() == 9
    for chart in charts.all():
        assert chart.get_attribute("role") == "img"
        assert re.search(r"\d", chart.get_attribute("aria-label"))
        assert chart.locator("svg.main-svg").count() >= 1


def test_a_chart_can_be_downloaded_as_a_picture(two_models, open_page):
    opened = open_page(two_models)
    chart = opened.page.locator("#explorer .plot")
    chart.hover()
    with opened.page.expect_download() as download:
        chart.locator(".modebar-btn").click()
    assert download.value.suggested_filename == "explorer.png"
    assert download.value.path().read_bytes()[:4] == b"\x89PNG"
    assert chart.locator(".modebar-btn").count() == 1
    assert opened.errors == []


def test_the_landscape_switches_its_criterion(two_models, open_page):
    page = open_page(two_models).page
    for landscape in two_models.contents.models[0].landscapes:
        page.locator(f"input[name=criterion][value={landscape.criterion}]").check()
        settle(page)
        shown = page.evaluate("document.querySelector('#landscape .plot').data[0].z")
        assert (len(shown), len(shown[0])) == (len(landscape.temperatures), len(landscape.gammas))
        assert shown[3][5] == pytest.approx(landscape.values[5][3], rel=1e-4)
        assert f"{landscape.best_temperature.temperature:.4g}" in page.locator("#landscape-words").inner_text()


def test_a_click_on_the_landscape_sends_the_explorer_there(two_models, open_page):
    page = open_page(two_models).page
    landscape = two_models.contents.models[0].landscapes[1]
    gamma, temperature = landscape.gammas[-4], landscape.temperatures[6]
    page.locator("#landscape").scroll_into_view_if_needed()
    place = page.evaluate(
        """([gamma, temperature]) => {
          const chart = document.querySelector('#landscape .plot'), box = chart.getBoundingClientRect();
          const { xaxis, yaxis } = chart._fullLayout;
          return [box.left + xaxis._offset + xaxis.d2p(gamma), box.top + yaxis._offset + yaxis.d2p(temperature)]; }""",
        [gamma, temperature],
    )
    page.mouse.move(*place)
    page.mouse.click(*place)
    assert position(page) == pytest.approx((gamma, temperature), rel=1e-3)
    assert_close(shown_measures(page), measures(two_models.contents.models[0].explorer, gamma, temperature), 2e-3)


def test_classes_come_worst_first_and_every_heading_sorts(many_forms, open_page):
    page = open_page(many_forms).page
    classes = many_forms.contents.models[0].classes
    names = page.locator("#classes tbody th")
    assert names.all_inner_texts() == classes.name[:20]
    assert page.locator("#classes th[aria-sort]").get_attribute("data-column") == "ece"
    assert page.locator("#classes th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#all-classes").click()
    for key in ("count", "frequency", "mean_probability", "gap", "ece"):
        directions = set()
        for _ in range(2):
            page.locator(f"#classes th[data-column={key}] button").click()
            head = page.locator("#classes th[aria-sort]")
            assert head.get_attribute("data-column") == key
            falling = head.get_attribute("aria-sort") == "descending"
            directions.add(falling)
            column = dict(zip(classes.name, getattr(classes, key), strict=True))
            values = [float(f"{column[name]:.5g}") for name in names.all_inner_texts()]
            assert values == sorted(values, reverse=falling)
        assert directions == {True, False}


def test_classes_without_a_recall_stay_last(many_forms, open_page):
    page = open_page(many_forms).page
    assert None in many_forms.contents.models[0].classes.recall
    page.locator("#all-classes").click()
    for _ in range(2):
        page.locator("#classes th[data-column=recall] button").click()
        assert page.locator("#classes tbody tr").last.locator("td").last.inner_text() == "–"


def test_many_classes_can_be_searched(many_forms, two_models, open_page, untouched):
    page = open_page(many_forms).page
    name = many_forms.contents.models[0].classes.name[-1]
    page.locator("#class-filter").fill(name.upper())
    assert name in page.locator("#classes tbody th").all_inner_texts()
    assert all(name in found for found in page.locator("#classes tbody th").all_inner_texts())
    page.locator("#class-filter").fill("no such class")
    assert page.locator("#classes tbody tr").count() == 0
    assert untouched(two_models).locator("#class-filter").count() == 0


def test_the_model_switch_shows_the_other_model_and_its_warning(two_models, open_page):
    page = open_page(two_models).page
    first, second = two_models.contents.models
    assert first.verdict.split(":")[0] in page.locator("#verdict").inner_text().lower()
    assert page.locator(".banner").count() == 0
    assert page.locator("#dynamics").count() == 0
    page.locator("input[name=model]").nth(1).check()
    assert second.verdict.split(":")[0] in page.locator("#verdict").inner_text().lower()
    assert "same rows" in page.locator(".banner").inner_text()
    assert page.evaluate("document.querySelector('#dynamics .plot').data.length") == 5
    assert_close(
        shown_measures(page),
        measures(second.explorer, second.explorer.focal_gamma, second.explorer.focal_temperature),
        1e-3,
    )


def test_key_numbers_are_those_of_the_contents(two_models, untouched):
    page = untouched(two_models)
    for row, version in enumerate(two_models.contents.models[0].versions):
        cells = page.locator("#numbers .scroll").first.locator("tbody tr").nth(row).locator("td").all_inner_texts()
        assert cells[0].startswith(f"{100 * version.numbers['accuracy'].value:.1f}")
        assert cells[3].startswith(f"{100 * version.numbers['ece'].value:.1f}")
        assert f"[{100 * version.numbers['ece'].low:.1f}, {100 * version.numbers['ece'].high:.1f}]" in cells[3]
        assert cells[5].startswith(f"{version.numbers['nll'].value:.3f}")


def test_the_plain_words_say_what_the_bins_say(two_models, untouched):
    page = untouched(two_models)
    raw = two_models.contents.models[0].versions[0]
    (diagram,) = [each for each in raw.diagrams if (each.scheme, each.num_bins) == ("equal_width", 10)]
    believed = [i for i, count in enumerate(diagram.count) if count >= 30]
    near = min(believed, key=lambda i: abs(diagram.confidence[i] - 0.9))
    says, right = (f"{100 * column[near]:.0f}\u00a0%" for column in (diagram.confidence, diagram.accuracy))
    words = page.locator(".plain").inner_text()
    assert words.startswith(f"When this model says {says}, it is right {right} of the time.")


# ---- hostile names


def test_hostile_names_are_text(two_models, open_page):
    opened = open_page(two_models)
    page = opened.page
    page.locator("input[name=model]").nth(1).check()
    settle(page)
    assert opened.errors == []
    assert page.locator("main script, main img, main b, main i").count() == 0
    assert page.locator("script").filter(has_text=re.compile(r"^alert\(1\)$")).count() == 0
    names = page.locator("#classes tbody th")
    for name in two_models.contents.models[0].classes.name:
        shown = name.strip() or "(empty name)"
        assert names.filter(has_text=shown).count() == 1
    assert page.locator("h1").inner_text() == "Report <i>one</i> & two"
    assert "cross-entropy <b>bold</b>" in page.locator("#models tbody th").first.inner_text()


def test_names_are_isolated_from_the_direction_around_them_and_long_ones_are_in_the_tooltip(two_models, untouched):
    page = untouched(two_models)
    long = next(name for name in two_models.contents.models[0].classes.name if len(name) > 200)
    isolated = page.locator("#classes tbody bdi")
    assert isolated.count() == 3
    assert long in [node.get_attribute("title") for node in isolated.all()]
    assert (
        page.locator("#classes tbody th").evaluate_all("(nodes) => Math.max(...nodes.map((node) => node.offsetHeight))")
        < 100
    )


# ---- themes, paper, sizes, keys


def test_dark_mode_follows_the_system_and_the_button_and_charts_follow_both(two_models, open_page):
    page = open_page(two_models, color_scheme="dark").page
    look = """() => [getComputedStyle(document.body).backgroundColor,
                     document.querySelector('#reliability .plot').layout.font.color]"""
    dark = page.evaluate(look)
    page.locator("#theme").click()
    light = page.evaluate(look)
    assert page.locator("#theme").get_attribute("aria-pressed") == "false"
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    page.emulate_media(color_scheme="light")
    page.locator("#theme").click()
    assert page.evaluate(look) == dark
    fresh = open_page(two_models, color_scheme="light").page
    assert fresh.evaluate(look) == light
    fresh.emulate_media(color_scheme="dark")
    wait_until(fresh, "document.documentElement.dataset.theme === 'dark'")
    assert fresh.evaluate(look) == dark


def test_on_paper_controls_are_hidden_and_colours_are_light(two_models, open_page):
    page = open_page(two_models, color_scheme="dark").page
    page.emulate_media(media="print")
    wait_until(page, "document.documentElement.hasAttribute('data-paper')")
    for control in ("#theme", "#sections", "#gamma", "#num-bins", "input[name=model]", "#best-focal"):
        assert not page.locator(control).first.is_visible(), control
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
    assert page.locator("#reliability .plot").first.is_visible()
    assert page.evaluate("document.querySelector('.page').scrollWidth") <= 680
    page.emulate_media(media="screen")
    wait_until(page, "!document.documentElement.hasAttribute('data-paper')")


def test_printing_makes_a_file_and_leaves_the_page_as_it_was(two_models, open_page):
    opened = open_page(two_models)
    width = "() => document.querySelector('#explorer .main-svg').clientWidth"
    before = opened.page.evaluate(width)
    opened.page.evaluate(f"() => {{ window.onbeforeprint = () => {{ window.onPaper = ({width})(); }}; }}")
    assert opened.page.pdf(format="A4")[:5] == b"%PDF-"
    assert opened.page.evaluate("window.onPaper") == 480
    assert opened.page.evaluate(width) == before
    assert opened.errors == []


@pytest.mark.parametrize(("which", "first"), [("two_models", 320), ("two_models", 1440), ("many_forms", 320)])
def test_nothing_overlaps_or_sticks_out(which, first, request, open_page):
    page = open_page(request.getfixturevalue(which), width=first).page
    page.locator("input[name=model]").nth(1).check()
    for width in (first, 360, 768, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")  # the model switch stays in view on purpose
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CUT_OFF) == []


def test_charts_follow_the_width_of_the_window(two_models, open_page):
    page = open_page(two_models, width=1280).page
    page.set_viewport_size({"width": 360, "height": 800})
    wait_until(page, "document.querySelector('#explorer .main-svg').clientWidth < 360")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_tab_reaches_every_control(two_models, open_page):
    page = open_page(two_models).page
    # Of a group of radio buttons Tab reaches one; arrows do the rest.
    key = """(node) => node.type === 'radio' ? `radio ${node.name}`
             : node.id || node.textContent || node.getAttribute('aria-label')"""
    controls = "a[href], button, input, select, summary, [tabindex='0']"
    wanted = page.evaluate(
        f"""() => [...document.querySelectorAll("{controls}")].filter((node) => node.checkVisibility()).map({key})"""
    )
    reached = set()
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"() => ({key})(document.activeElement)"))
    assert set(wanted) <= reached


def test_the_focus_is_visible_and_the_skip_link_comes_first(two_models, open_page):
    page = open_page(two_models).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("#gamma").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_headings_are_in_order_and_controls_have_names(two_models, untouched):
    page = untouched(two_models)
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((node) => Number(node.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    named = "(nodes) => nodes.filter((node) => !node.labels.length && !node.ariaLabel).length"
    unnamed = page.locator("input, select").evaluate_all(named)
    assert unnamed == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len([each for each in ids if ids.count(each) > 1 and not each.startswith(("clip", "top", "legend"))]) == 0
    assert (
        page.locator("main").count() == page.locator("body header.top").count() == page.locator("footer").count() == 1
    )
