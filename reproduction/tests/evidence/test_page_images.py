"""The page about images says what its result files say, and no more."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from reproduction.labels import LITTLE, LITTLE_20, MORE, TITLES
from reproduction.pages import images, losses
from reproduction.result_files import Evidence, RunEvidence

MEASURES = ("error", "nll", "ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "s99_fraction")


def measured(ece: float, **others: float) -> dict[str, list[float | None]]:
    values = {**dict.fromkeys(MEASURES, ece), "error": 0.3, "nll": 1.0, **others}
    return {name: [value, value - 0.01, value + 0.01] for name, value in values.items()}


def run(method: str, seed: int, pre: float, post: float, psi: float | None = None, **others: float) -> RunEvidence:
    """A run with these ECEs; Psi^gamma is surely better or worse if it moves ECE by more than 0.02."""
    phases = {"pre": measured(pre, **others), "ts-nll": measured(post), "post": measured(post / 2)}
    pairs: dict[str, dict[str, list[float]]] = {}
    if psi is not None:
        phases["psi"] = measured(psi)
        pairs["psi - pre"] = {"ece_ew": [psi - pre, psi - pre - 0.02, psi - pre + 0.02, 0.5]}
    fits = {"ts-nll": {"temperature": 1 + pre}, "post": {"temperature": 1 + 10 * pre}}
    return RunEvidence(method, seed, 60.0, phases, fits, pairs)


def evidence(name: str, runs: list[RunEvidence], *, epochs: int = 2, **training: Any) -> Evidence:
    methods = {each.method: {"loss": each.method} for each in runs}
    training = {"epochs": epochs, "batch_size": 10, **training}
    return Evidence({"name": name, "methods": methods, "training": training}, {}, 1, "", [95, 20, 100], runs)


def little() -> Evidence:
    """FL-3 is the lowest of three as trained, in two of three seeds; after scaling the order is turned round."""
    runs = [run("ce", seed, pre, post) for seed, (pre, post) in enumerate([(0.20, 0.01), (0.22, 0.02), (0.04, 0.03)])]
    runs += [run("fl-1", seed, 0.10, 0.03, psi=0.15) for seed in range(3)]
    runs += [run("fl-3", seed, 0.05, 0.04, psi=0.04, error=0.32) for seed in range(3)]
    return evidence(LITTLE, runs)


def more() -> Evidence:
    """Cross-entropy is the lowest, and Psi^gamma harms nowhere."""
    runs = [run("ce", seed, 0.02, 0.01) for seed in range(2)]
    runs += [run("fl-1", seed, 0.06, 0.01, psi=0.02) for seed in range(2)]
    runs += [run("fl-3", seed, 0.09, 0.01, psi=0.05) for seed in range(2)]
    return evidence(MORE, runs, epochs=1)


def line(page: str, *parts: str) -> str:
    """The one line of a page that has all parts in it."""
    found = [each for each in page.splitlines() if all(part in each for part in parts)]
    assert len(found) == 1, (parts, found)
    return found[0]


def test_tables_have_means_and_spreads_with_the_lowest_in_bold() -> None:
    table = losses.before_table(little())
    # ECEs of 20, 22 and 4 %: their mean is 46 / 3, their variance (14^2 + 20^2 + 34^2) / 9 / 2 = 97.33
    assert "| cross-entropy | **30.00** ± 0.00 | **1.000** ± 0.000 | 15.33 ± 9.87 |" in table
    assert "| FL-3 | 32.00 ± 0.00 | **1.000** ± 0.000 | **5.00** ± 0.00 |" in table
    assert "**5.0**" not in table  # to be seldom sure is neither good nor bad
    assert "| FL-1 | 3.00 ± 0.00 | 1.10 ± 0.00 | 1.50 ± 0.00 | 2.00 ± 0.00 |" in losses.after_table(little())


def test_sentences_name_the_lowest_and_its_distance_from_cross_entropy() -> None:
    said = "\n".join(losses.findings(little()))
    assert "FL-3 has the lowest ECE as trained, 5.00 %, 10.33 points below the 15.33 % of cross-entropy" in said
    assert "below it in 2 of 3 seeds, and the lowest of all losses in 2 of 3 seeds" in said
    assert "Test errors lie between 30.00 % (cross-entropy) and 32.00 % (FL-3)" in said
    assert "that of FL-3 is 2.00 points above that of cross-entropy" in said
    assert "Cross-entropy has the lowest ECE as trained, 2.00 %; it is the lowest" in losses.findings(more())[0]


def test_sentences_say_whether_the_order_survives_scaling() -> None:
    said = [each for each in losses.findings(little()) if each.startswith("After temperature scaling by NLL")]
    assert len(said) == 1
    assert "span 2.00 to 4.00 % instead of 5.00 to 15.33 %" in said[0]
    assert "is turned round (rank correlation -1.00)" in said[0]
    assert "the lowest is cross-entropy (2.00 %), and FL-3 is number 3 of 3 (4.00 %)" in said[0]


@pytest.mark.parametrize(
    ("correlation", "words"),
    [
        (0.8, "is mostly kept"),
        (0.79, "is kept in part"),
        (0.39, "is lost"),
        (-0.39, "is lost"),
        (-0.4, "is turned round"),
    ],
)
def test_words_for_a_correlation_follow_its_size(correlation: float, words: str) -> None:
    assert losses._kept(correlation) == words


def test_rank_correlation_is_that_of_ranks_and_needs_three() -> None:
    # ranks 1 2 3 4 and 2 1 3 4: 1 - 6 * 2 / (4 * 15)
    first, second = {"a": 1.0, "b": 2.0, "c": 30.0, "d": 40.0}, {"a": 2.0, "b": 1.0, "c": 3.0, "d": 9.0}
    assert losses.rank_correlation(first, second) == pytest.approx(0.8)
    assert losses.rank_correlation({"a": 1, "b": 2}, {"a": 1, "b": 2}) is None
    assert losses.rank_correlation(first, dict.fromkeys("abcd", 1.0)) is None


def test_temperatures_are_counted_within_the_papers_ranges() -> None:
    # T by ECE is 1 + 10 ECE: 3.0, 3.2 and 1.4 here, 1.2 there, against 2.0 to 2.8
    page = images.page({each.name: each for each in (little(), more())})
    assert "| cross-entropy, MMCE | 2.53 (1.40 to 3.20) | 1.20 (1.20 to 1.20) | 2 to 2.8 | 0 of 5 |" in page
    runs = [run("flsd-53", seed, ece, 0.01) for seed, ece in enumerate((0.0, 0.005, 0.05))]  # T of 1.0, 1.05 and 1.5
    assert "| FLSD-53 | 1.18 (1.00 to 1.50) | 0.9 to 1.1 | 2 of 3 |" in images.page({LITTLE: evidence(LITTLE, runs)})


def test_share_of_sure_rows_tells_whether_the_order_turns() -> None:
    runs = [run("ce", 0, 0.2, 0.01), run("flsd-53", 0, 0.1, 0.03)]
    said = losses._sure(evidence(LITTLE, runs))
    assert "gives 20.0 % of the test rows" in said
    assert "FLSD-53 10.0 %" in said
    assert "it is 1.0 and 3.0 %" in said
    assert "The order turns" in said
    runs[1] = run("flsd-53", 0, 0.1, 0.005)
    assert "The order does not turn" in losses._sure(evidence(LITTLE, runs))


def test_measures_that_rank_otherwise_are_found_out() -> None:
    runs = [run("ce", 0, 0.1, 0.1, ece_debias=0.3), run("fl-1", 0, 0.2, 0.2), run("fl-2", 0, 0.3, 0.3, ece_debias=0.1)]
    row = losses._agreement_row(evidence(LITTLE, runs), "pre")
    assert row == [TITLES[LITTLE], "as trained", "1.00", "-1.00", "1.00", "no"]
    assert "is 1.00 for AdaECE, -1.00 for debiased ECE" in "\n".join(losses.agreement([evidence(LITTLE, runs)]))


def test_sweep_counts_what_psi_makes_significantly_better_and_worse() -> None:
    page = images.page({each.name: each for each in (little(), more())})
    swept = page[page.index(f"### {TITLES[LITTLE]}") :]
    assert "| 0 | 15.33 ± 9.87 | 15.33 ± 9.87 |" in swept  # Psi^0 is the identity
    assert "| 1 | 10.00 ± 0.00 | 15.00 ± 0.00 |  |  | +5.00 | 0, 3 of 3 |" in swept
    assert "| 3 | **5.00** ± 0.00 | **4.00** ± 0.00 |  |  | -1.00 | 0, 0 of 3 |" in swept
    assert f"| {TITLES[MORE]} | Psi^gamma | -4.00 | 4 | 0 | 4 |" in swept
    assert "lower in 4 and significantly higher in 3 of all 10 runs" in line(page, "Psi^gamma: ECE is")
    assert "lower in 4 and significantly higher in 3 of 10 runs" in line(page, "Psi^gamma makes")


def test_best_gamma_is_compared_over_the_gammas_that_all_recipes_have() -> None:
    wider = little()
    wider.recipe["methods"]["fl-7"] = {"loss": "fl-7"}
    wider.runs.extend(run("fl-7", seed, 0.01, 0.01, psi=0.2) for seed in range(3))
    page = images.page({each.name: each for each in (wider, more())})
    # 95 rows in batches of 10 are 10 steps an epoch; seed 2 of cross-entropy has the lowest ECE
    assert f"| {TITLES[LITTLE]} | 2, 20 | 3 | 3, 3, 0 | 7 of 0 to 7 | 3 | +2.00 |" in page
    assert f"| {TITLES[MORE]} | 1, 10 | 0 | 0, 0 | 0 of 0 to 3 | 0 | -4.00 |" in page
    assert "the best gamma grows from 0 to 3; in the paper it grows" in line(page, "With less data (from ")
    assert "at 2 of 2 gammas: it changes ECE by +2.00 instead of -4.00 points" in line(page, "With less data Psi^gamma")
    assert "differ in how long they train" in page
    assert "larger network (" not in page


def test_best_gamma_at_the_end_of_the_sweep_is_called_so() -> None:
    larger = evidence(LITTLE_20, little().runs)
    page = images.page({LITTLE: little(), LITTLE_20: larger})
    assert "the best gamma stays at 3, the largest that both have;" in line(page, "With the larger network (from")
    assert "at 0 of 2 gammas" in line(page, "With the larger network Psi^gamma")
    assert "differ in how long they train" not in page
    falls = evidence(LITTLE_20, more().runs)
    assert "the best gamma falls from 3 to 0;" in images.page({LITTLE: little(), LITTLE_20: falls})


def test_what_is_missing_is_left_out_and_said() -> None:
    assert images.page({}).endswith(f"no results of `{LITTLE}`, `{LITTLE_20}` and `{MORE}`: left out.\n")
    assert images.figures({}) == {}
    short = evidence(LITTLE, [*little().runs[:4], RunEvidence("brier", 0, 1.0, {}), run("fl-2", 0, 0.1, 0.1)])
    short.recipe["methods"]["mmce"] = {"loss": "mmce"}
    page = images.page({LITTLE: short})
    assert "Not run: MMCE." in page
    assert "With fewer seeds: FL-1 (1), Brier (1) and FL-2 (1)." in page
    assert "\nWithout a number for this table: Brier." in page
    assert "| Brier |" not in page
    assert "Without a comparison with Psi^gamma: gamma 2." in page
    alone = images.page({LITTLE: evidence(LITTLE, [RunEvidence("brier", 0, 1.0, {})])})
    assert alone.count("left out") == 4


def test_pages_begin_with_the_title_and_show_the_figures_that_are_drawn() -> None:
    for there in ([], [little()], [little(), more()], [evidence(MORE, more().runs[:2])]):
        given = {each.name: each for each in there}
        page = images.page(given)
        assert page.startswith(f"# {images.TITLE}\n\n")
        assert page.endswith("\n")
        assert "\n\n\n" not in page
        assert set(re.findall(r"\(images/(\w+)\.svg\)", page)) == set(images.figures(given))
        assert page == images.page(given)


def test_figures_hold_every_dot_and_draw_without_warnings() -> None:
    # the second panel has the larger ECEs: the shared axis must reach them
    drawn = images.figures({LITTLE: more_as(LITTLE), MORE: little_as(MORE)})
    for figure in drawn.values():
        figure.draw_without_rendering()
    panels = drawn["image_losses"].axes
    dots = [value for ax in panels for each in ax.lines for value in each.get_xdata()]
    assert max(dots) == pytest.approx(0.22)
    assert all(ax.get_xlim()[0] == 0 and ax.get_xlim()[1] > 0.22 for ax in panels)
    names = [each.get_text() for each in panels[0].get_yticklabels()]
    assert names == ["cross-entropy", "FL-1", "FL-3"]
    raw, mapped = drawn["image_gammas"].axes[1].lines
    assert list(raw.get_xdata()) == [0, 1, 3] == list(mapped.get_xdata())
    assert list(raw.get_ydata()) == pytest.approx([0.46 / 3, 0.10, 0.05])
    assert list(mapped.get_ydata()) == pytest.approx([0.46 / 3, 0.15, 0.04])


def little_as(name: str) -> Evidence:
    return evidence(name, little().runs)


def more_as(name: str) -> Evidence:
    return evidence(name, more().runs)
