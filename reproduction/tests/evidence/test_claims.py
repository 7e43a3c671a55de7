"""The papers' trends: every claim has one answer, and the answer follows from the numbers."""

from __future__ import annotations

import re

import pytest

from focalcal_lab.papers import claims
from reproduction.claims import findings
from reproduction.claims.tools import ELSEWHERE, TRENDS, UNTESTABLE, Numbers, counted, judged
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, SST, TRANSLATION

from .made import EPOCHS, evidence

RECIPES = (LITTLE, LITTLE_20, MORE, NEWS, SST, TRANSLATION)


def all_of(**made):
    return {name: evidence(name, **made) for name in RECIPES}


def verdict(claim, **made):
    return TRENDS[claim].of(all_of(**made)).verdict


def test_every_claim_about_trained_networks_has_exactly_one_answer():
    wanted = {
        row["id"]
        for row in claims()
        if row["kind"] in ("empirical-trend", "table") and row["checkable_on"] != "cpu-exact"
    }
    parts = [set(TRENDS), set(UNTESTABLE), set(ELSEWHERE)]
    assert set.union(*parts) == wanted
    assert sum(map(len, parts)) == len(wanted)


def test_every_trend_gives_numbers_and_a_sentence():
    for found in findings(all_of()):
        assert found.sentence.endswith("."), found.id
        if found.recipes:
            assert re.search(r"\d", found.sentence), found.id
            assert "nan" not in found.sentence, found.id


def test_without_results_a_trend_is_not_decided():
    for found in findings({}):
        assert not found.recipes or found.verdict == "not testable at this scale"


def test_all_some_and_none():
    assert [judged(held, "").verdict for held in ([True], [True, False], [False], [])] == [
        "seen here",
        "seen in part",
        "not seen",
        "not seen",
    ]


def test_runs_are_counted_by_sign_and_by_interval():
    pairs = [[-0.1, -0.2, -0.05, 0.01], [-0.1, -0.3, 0.1, 0.3], [0.2, 0.1, 0.3, 0.01], [0.0, -0.1, 0.1, 1.0]]
    assert counted(pairs) == "lower in 2 of 4 runs (surely in 1), higher in 1 (surely in 1)"


def overfits(recipe, method, seed, name):
    """Test NLL rises from epoch 10 on through its wrong rows, training NLL falls."""
    return {
        "test_nll": [2.0, 1.0, 1.1, 1.2],
        "train_nll": [2.0, 1.5, 1.0, 0.1],
        "test_nll_correct": [1.0, 0.8, 0.5, 0.4],
        "test_nll_wrong": [2.0, 2.5, 2.6, 3.0],
        "test_ece": [0.05, 0.1, 0.15, 0.2],
    }.get(name, [0.5] * len(EPOCHS))


@pytest.mark.parametrize("claim", ["sec3.nll-overfit", "sec3.wrong-only", "sec3.ece-rises"])
def test_overfitting_is_seen_where_it_is(claim):
    assert verdict(f"mukhoti2020.{claim}", series=overfits) == "seen here"
    assert verdict(f"mukhoti2020.{claim}") == "not seen"

    def only_little(recipe, method, seed, name):
        return overfits(recipe, method, seed, name) if recipe == LITTLE else [0.5] * len(EPOCHS)

    assert verdict(f"mukhoti2020.{claim}", series=only_little) == "seen in part"


def by_gamma(start, step):
    """A measure that changes with gamma, and only in the phase before any calibrator."""

    def value(recipe, method, seed, phase, measure):
        gamma = float(method[3:]) if method.startswith("fl-") else 0.0
        return start + step * gamma if phase == "pre" else 0.05

    return value


def test_the_order_of_gammas():
    assert verdict("mukhoti2020.sec4.gamma-order", value=by_gamma(0.5, -0.05)) == "seen here"
    assert verdict("mukhoti2020.sec4.gamma-order", value=by_gamma(0.1, 0.05)) == "not seen"
    assert verdict("mukhoti2020.appE.fixed", value=by_gamma(0.5, -0.05)) == "seen here"
    assert verdict("mukhoti2020.appE.fixed", value=by_gamma(0.1, 0.05)) == "not seen"


def lowest(winner, phases=("pre", "post", "ets", "spline")):
    return lambda recipe, method, seed, phase, measure: 0.01 if method == winner and phase in phases else 0.1


@pytest.mark.parametrize(
    ("claim", "winner"),
    [("mukhoti2020.table1", "flsd-53"), ("mukhoti2020.table2", "flsd-53"), ("ghosh2022.table1.pre", "adafocal")],
)
def test_the_lowest_loss_of_a_table(claim, winner):
    assert verdict(claim, value=lowest(winner)) == "seen here"
    assert verdict(claim, value=lowest("brier")) == "not seen"


def test_the_focal_map_helps_less_with_little_data():
    def value(recipe, method, seed, phase, measure):
        gain = {MORE: -0.05, LITTLE: 0.02, LITTLE_20: 0.05}.get(recipe, 0.0)
        return 0.2 + (gain if phase == "psi" else 0.0)

    assert verdict("charoenphakdee2021.sec6.2.size", value=value) == "seen here"
    assert verdict("charoenphakdee2021.sec6.2.size") == "not seen"


def test_the_best_gamma_grows_as_data_shrink():
    def value(recipe, method, seed, phase, measure):
        gamma = float(method[3:]) if method.startswith("fl-") else 0.0
        return 0.1 + abs(gamma - {MORE: 1.0, LITTLE: 3.0, LITTLE_20: 3.0}.get(recipe, 0.0)) / 100

    assert verdict("charoenphakdee2021.sec6.2.best-gamma", value=value) == "seen here"


def test_temperatures_of_cross_entropy():
    assert verdict("komisarenko2024.log-t-range", fits={"ce": 2.0}) == "seen here"
    assert verdict("komisarenko2024.log-t-range", fits={"ce": 1.1}) == "not seen"


def test_a_temperature_that_undoes_the_map_is_seen():
    from focalcal.core.temperature import nearest_temperature

    fits = {"ce": 2.0} | {f"fl-{gamma}": 2.0 * nearest_temperature(gamma, 10) for gamma in (1, 2, 3, 3.5, 5, 7)}
    assert verdict("komisarenko2024.sec4.compensation", fits=fits) == "seen here"
    assert (
        verdict("komisarenko2024.sec4.compensation", fits={"ce": 2.0} | dict.fromkeys(fits.keys() - {"ce"}, 2.0))
        == "not seen"
    )


def test_numbers_are_means_over_seeds_in_percent():
    found = Numbers(evidence(LITTLE, value=lambda recipe, method, seed, phase, measure: 0.1 * (1 + seed)))
    assert found.mean("ce", "ece_ew") == pytest.approx(15.0)
    assert found.mean("ce", "nll") == pytest.approx(0.15)
    assert found.drop == 2  # the first record after the learning rate dropped at epoch 20
    assert list(found.gammas) == [0.0, 1.0, 2.0, 3.0, 3.5, 5.0, 7.0]
