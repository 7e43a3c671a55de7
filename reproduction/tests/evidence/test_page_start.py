"""The first page says what to choose, from the numbers alone."""

from __future__ import annotations

import re

from reproduction.labels import LITTLE, MORE, SST
from reproduction.pages import start

from .made import evidence


def trained(values):
    """Evidence in which losses have these ECEs as trained, 0.3 where none is said, and 0.02 after any calibrator."""

    def value(recipe, method, seed, phase, measure):
        if not measure.startswith("ece"):
            return 0.4 + (0.05 if method == "fl-3" else 0.0)
        return values[recipe].get(method, 0.3) if phase == "pre" else 0.02

    return value


def line(page, beginning):
    return next(each for each in page.splitlines() if each.startswith(f"- **{beginning}"))


def test_focal_loss_is_advised_by_the_temperature_of_cross_entropy():
    value = trained({LITTLE: {"ce": 0.2, "fl-3": 0.03}, SST: {"ce": 0.02, "fl-3": 0.12}})
    fits = {LITTLE: {"ce": 1.9, "fl-3": 1.1}, SST: {"ce": 1.05, "fl-3": 0.5}}
    page = start.page({name: evidence(name, value=value, fits=fits[name]) for name in fits})
    why = line(page, "Why that depends")
    assert "ResNet-8 on CIFAR10-s 1.90 and 1.10, AdaECE 20.0 and 3.0 %" in why
    assert "Tree-LSTM on SST 1.05 and 0.50, AdaECE 2.0 and 12.0 %" in why
    assert "FL-3 is the better one wherever cross-entropy needs 1.90 or more" in why
    assert "the worse one wherever it needs 1.05 or less" in why


def test_no_rule_is_made_of_what_temperatures_do_not_tell_apart():
    value = trained({LITTLE: {"ce": 0.2, "fl-3": 0.03}, SST: {"ce": 0.02, "fl-3": 0.12}})
    fits = {LITTLE: {"ce": 1.2, "fl-3": 1.1}, SST: {"ce": 1.3, "fl-3": 0.5}}
    why = line(start.page({name: evidence(name, value=value, fits=fits[name]) for name in fits}), "Why that depends")
    assert why.endswith("AdaECE 2.0 and 12.0 %.")


def test_the_loss_of_the_best_mean_rank_comes_with_what_it_costs():
    value = trained({LITTLE: {"ce": 0.2, "fl-3": 0.03}, SST: {"ce": 0.12, "fl-3": 0.02}})
    page = start.page({name: evidence(name, value=value) for name in (LITTLE, SST)})
    advice = line(page, "You can train again")
    assert "FL-3 has the best mean rank by AdaECE (1.0 of 7 losses; next cross-entropy, 2.0)" in advice
    assert "AdaECE goes from 20.0 to 3.0, 12.0 to 2.0 %" in advice
    assert advice.endswith("the error changes by +5.0, +5.0 points.")


def test_every_experiment_has_its_command_and_its_minutes():
    found = {name: evidence(name, seeds=3) for name in (LITTLE, MORE)}
    page = start.page(found)
    row = next(each for each in page.splitlines() if f"lab run {MORE} " in each)
    assert "`focalcal lab run cpu/cifar10-resnet8 --method all --seeds 3 --jobs 2 --data DIR`" in row
    assert re.search(r"\| 6 x 3 \| 9 \|$", row)  # 18 runs of a minute, two at a time


def test_without_results_nothing_is_advised():
    assert "**" not in start.page({})
