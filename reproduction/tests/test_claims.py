"""The rules that decide claims, on hand-made results whose verdicts are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproduction.claims import RULES
from reproduction.claims.rules import by_recipe, counted, rule, verdict_of
from reproduction.labels import LITTLE, LITTLE_20, MORE, NETWORKS, NEWS, SST, TRANSLATION
from reproduction.recipe_numbers import RecipeNumbers

from .made_results import EPOCHS, evidence

RECIPES = (LITTLE, LITTLE_20, MORE, NEWS, SST, TRANSLATION)


def results(**made):
    return {name: RecipeNumbers(evidence(name, **made)) for name in RECIPES}


def verdict(claim, **made):
    return RULES[claim].outcome(results(**made)).verdict


def test_a_claim_is_seen_everywhere_somewhere_or_nowhere():
    assert [verdict_of(held) for held in (True, [True, True], [True, False], [False], False)] == [
        "seen here",
        "seen here",
        "seen in part",
        "not seen",
        "not seen",
    ]


def test_a_rule_by_recipe_counts_every_part_and_names_every_recipe(monkeypatch):
    monkeypatch.setattr("reproduction.claims.rules.RULES", found := {})

    @by_recipe("made.up", "Mean error", LITTLE, MORE, note="So it is.")
    def decide(each):
        return [each.name == LITTLE, True], f"{each.mean('ce', 'error'):.1f} %"

    outcome = found["made.up"].outcome(results())
    assert outcome.verdict == "seen in part"
    said = "Mean error: ResNet-8 on CIFAR10-s: 20.1 %; ResNet-8 on half of CIFAR-10: 20.1 %. So it is."
    assert outcome.sentence == said
    assert (outcome.runs, outcome.seeds) == (4, 2)  # cross-entropy of two recipes, two seeds each


def test_a_claim_has_one_rule(monkeypatch):
    monkeypatch.setattr("reproduction.claims.rules.RULES", {})
    rule("made.up", LITTLE)(lambda each: (True, "Yes."))
    with pytest.raises(AssertionError, match=r"made\.up"):
        rule("made.up", MORE)(lambda each: (True, "No."))


def test_every_rule_gives_a_verdict_on_other_results_too():
    made = results()
    networks = replace(made[LITTLE].evidence, recipe={**made[LITTLE].evidence.recipe, "name": NETWORKS})
    made[NETWORKS] = RecipeNumbers(networks)
    for claim, each in RULES.items():
        outcome = each.outcome(made)
        assert outcome.sentence.endswith("."), claim
        assert "nan" not in outcome.sentence, claim
        assert 0 < outcome.seeds <= 2 <= outcome.runs, claim


def test_runs_are_counted_by_sign_and_by_interval():
    pairs = [[-0.1, -0.2, -0.05, 0.01], [-0.1, -0.3, 0.1, 0.3], [0.2, 0.1, 0.3, 0.01], [0.0, -0.1, 0.1, 1.0]]
    assert counted(pairs) == "lower in 2 of 4 runs (significantly in 1), higher in 1 (significantly in 1)"


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
    found = RecipeNumbers(evidence(LITTLE, value=lambda recipe, method, seed, phase, measure: 0.1 * (1 + seed)))
    assert found.mean("ce", "ece_ew") == pytest.approx(15.0)
    assert found.mean("ce", "nll") == pytest.approx(0.15)
    assert found.drop == 2  # the first record after the learning rate dropped at epoch 20
    assert list(found.gammas) == [0.0, 1.0, 2.0, 3.0, 3.5, 5.0, 7.0]


def test_a_paired_comparison_needs_the_sign_in_every_experiment():
    def value(recipe, method, seed, phase, measure):
        better = recipe in (LITTLE, NEWS)
        return 0.2 + ((-0.05 if better else 0.05) if phase == "post" else 0.0)

    assert verdict("mukhoti2020.ts.grid", value=value) == "seen in part"
    assert (
        verdict("mukhoti2020.ts.grid", value=lambda r, m, s, phase, n: 0.1 if phase == "post" else 0.2) == "seen here"
    )
    assert verdict("mukhoti2020.ts.grid", value=lambda r, m, s, phase, n: 0.3 if phase == "post" else 0.2) == "not seen"
