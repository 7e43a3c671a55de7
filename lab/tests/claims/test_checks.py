"""Every check of a claim passes, and turns red when what it rests on is broken."""

from __future__ import annotations

import pytest

import focalcal as fc
from focalcal_lab import papers
from focalcal_lab.papers import exact

IDS = [check.id for check in papers.checks()]
# Quick ones of every paper and of every part of the library that claims rest on; `make check` runs them all.
QUICK = [
    "mukhoti2020.eq1",
    "mukhoti2020.eq3",
    "mukhoti2020.g.limits",
    "mukhoti2020.prop2.minimum",
    "mukhoti2020.flsd53.rule",
    "mukhoti2020.ls.rule",
    "ghosh2022.eq1",
    "ghosh2022.eq3",
    "ghosh2022.alg1.focal-step",
    "ghosh2022.hyper.lambda",
    "ghosh2022.ts.grid",
    "charoenphakdee2021.eq5",
    "charoenphakdee2021.cor10",
    "charoenphakdee2021.thm8.3",
    "komisarenko2024.prop5.lemma",
    "komisarenko2024.bounds.gamma4",
    "mukhoti2020.ts-identity",
]


def quick_or_slow(*values, id):
    """A case that is slow unless its claim, the last of the values, is a quick one."""
    return pytest.param(*values, id=id, marks=[] if values[-1] in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("claim_id", [quick_or_slow(each, id=each) for each in IDS])
def test_check_passes(claim_id):
    result = papers.run_check(claim_id)
    assert result.passed, result.message
    assert result.message == ""


def larger_gamma(true):
    """The function with 0.02 added to gamma, its second argument or its keyword."""

    def broken(first, *rest, **options):
        if "gamma" in options:
            return true(first, *rest, **{**options, "gamma": options["gamma"] + 0.02})
        return true(first, rest[0] + 0.02, *rest[1:], **options)

    return broken


def scaled(factor):
    """The function with its result, or each part of it, multiplied by a factor."""

    def wrap(true):
        def broken(*arguments, **options):
            result = true(*arguments, **options)
            return tuple(part * factor for part in result) if isinstance(result, tuple) else result * factor

        return broken

    return wrap


def raised(by):
    """The function with a number added to its result."""
    return lambda true: lambda *arguments, **options: true(*arguments, **options) + by


def with_default(**defaults):
    """The class with other default options."""
    return lambda true: lambda **options: true(**{**defaults, **options})


def other_policy(true):
    other = {"flsd-53": "flsd-532", "flsd-532": "flsd-53", "flsc-531": "flsc-532", "flsc-532": "flsc-531"}
    return lambda gamma, **options: true(other[gamma], **options)


def weaker_lambda(true):
    return lambda lam, **options: true(lam=0.5 * lam, **options)


def smoother_labels(true):
    return lambda alpha=0.06, **options: true(1.01 * alpha, **options)


def one_bin_more(true):
    return lambda *rows, num_bins=15, **options: true(*rows, num_bins=num_bins + 1, **options)


def surer(true):
    return lambda confidence, correct, **options: true(0.99 * confidence, correct, **options)


def bolder_step(true):
    return lambda gamma, gap, *, lam, **options: true(gamma, gap, lam=1.1 * lam, **options)


def misread(true):
    return lambda: [{**row, "value": str(float(row["value"]) + 0.1 * (i % 7))} for i, row in enumerate(true())]


def identity(true):
    return lambda probs, gamma, **options: probs


def concave(true):
    return lambda *arguments, **options: true(*arguments, **options) ** 0.1


def never_updated(true):
    class Broken(true):
        def update(self, *rows):
            return None

    return Broken


def scaled_forward(true):
    class Broken(true):
        def forward(self, *rows):
            return 1.01 * super().forward(*rows)

    return Broken


# What is broken, how, and the claims whose checks have to notice. Functions that a paper's file imports by name
# (the last ones) are broken there.
BROKEN = [
    (
        "gradient_ratio",
        larger_gamma,
        """mukhoti2020.prop1 mukhoti2020.prop1.norm mukhoti2020.g.limits mukhoti2020.eq8 mukhoti2020.eq10
        mukhoti2020.g.threshold mukhoti2020.g.p0-gamma1 mukhoti2020.g.steeper mukhoti2020.sec4.gamma7 mukhoti2020.prop2
        mukhoti2020.prop2.equality mukhoti2020.prop2.w0 mukhoti2020.schedule.values mukhoti2020.schedule.region
        ghosh2022.eq1 ghosh2022.fn2.gradient charoenphakdee2021.eq10 charoenphakdee2021.thm8.1 charoenphakdee2021.fig1
        komisarenko2024.prop5.lemma""",
    ),
    (
        "focal_map",
        larger_gamma,
        """charoenphakdee2021.fn2 charoenphakdee2021.fig2b charoenphakdee2021.thm11 charoenphakdee2021.thm11.onehot
        charoenphakdee2021.sec6.3.ts charoenphakdee2021.psi.unique komisarenko2024.ex062 komisarenko2024.prop2
        komisarenko2024.prop2.gradients komisarenko2024.prop2.negative komisarenko2024.prop3 komisarenko2024.prop3.tight
        komisarenko2024.bounds.gamma4-numeric komisarenko2024.fit2 komisarenko2024.fit2.error
        komisarenko2024.fig2.temperatures komisarenko2024.prop4 komisarenko2024.prop4.same-map komisarenko2024.prop5
        komisarenko2024.sharpening komisarenko2024.fit3 komisarenko2024.fit3.error komisarenko2024.fig7
        komisarenko2024.fit4 komisarenko2024.fts.def komisarenko2024.fts.grid komisarenko2024.binary-vs-multiclass""",
    ),
    (
        "focal_map",
        scaled(1.001),
        """charoenphakdee2021.prop6 charoenphakdee2021.thm8.2 charoenphakdee2021.sec4.large-k
        charoenphakdee2021.prop12""",
    ),
    (
        "focal_map",
        identity,
        "charoenphakdee2021.thm8.3 charoenphakdee2021.thm8.ambiguous charoenphakdee2021.cor9",
    ),
    (
        "focal_minimizer",
        larger_gamma,
        """mukhoti2020.fn1.improper mukhoti2020.fig6 charoenphakdee2021.thm3 charoenphakdee2021.thm5
        komisarenko2024.ex062.range""",
    ),
    ("focal_minimizer", scaled(1.001), "charoenphakdee2021.cor10 charoenphakdee2021.fig2a"),
    ("focal_minimizer", scaled(-1), "charoenphakdee2021.thm3.order"),
    (
        "focal_loss",
        larger_gamma,
        """mukhoti2020.ce-above-kl mukhoti2020.eq4 mukhoti2020.appA.stronger ghosh2022.hyper.gamma0
        charoenphakdee2021.eq5 komisarenko2024.prop1.quadratic komisarenko2024.prop2.proper-part""",
    ),
    ("focal_loss", raised(1e-9), "mukhoti2020.sec3.weights-infinite"),
    ("focal_loss", concave, "komisarenko2024.prop1"),
    ("proper_focal_loss", scaled(-1), "komisarenko2024.fig4"),
    ("gamma_star", raised(0.01), "mukhoti2020.prop2.minimum"),
    ("temperature_bounds", scaled(1.02), "komisarenko2024.bounds.gamma4"),
    ("nearest_temperature", scaled(1.02), "komisarenko2024.fig5.temperatures komisarenko2024.fit3.below-one"),
    ("FocalLoss", other_policy, "mukhoti2020.flsd53.rule mukhoti2020.flsd532.rule mukhoti2020.flsc.rule"),
    ("LabelSmoothingLoss", smoother_labels, "mukhoti2020.ls.rule"),
    ("CalFocalLoss", weaker_lambda, "ghosh2022.eq2 ghosh2022.eq3 ghosh2022.fig3a"),
    (
        "AdaFocalLoss",
        with_default(gamma_init=1.1),
        "ghosh2022.calfocal.limit1 ghosh2022.calfocal.limit2 ghosh2022.alg1.init ghosh2022.hyper.frequency",
    ),
    ("AdaFocalLoss", with_default(lam=1.1), "ghosh2022.alg1.rebin ghosh2022.hyper.lambda"),
    ("AdaFocalLoss", with_default(gamma_max=19.0), "ghosh2022.hyper.gamma-max"),
    ("AdaFocalLoss", with_default(switch_at=0.25), "ghosh2022.hyper.switch"),
    ("AdaFocalLoss", with_default(num_bins=14), "ghosh2022.hyper.bins"),
    ("AdaFocalLoss", never_updated, "ghosh2022.frequency.counts"),
    ("AdaFocalLoss", scaled_forward, "ghosh2022.eq5 ghosh2022.alg1.lookup"),
    ("bin_predictions", one_bin_more, "mukhoti2020.eq1 mukhoti2020.eq2 mukhoti2020.eq3"),
    ("bin_predictions", surer, "ghosh2022.ts.grid"),
    ("next_gamma", bolder_step, "ghosh2022.eq4 ghosh2022.alg1.focal-step ghosh2022.alg1.inverse-step"),
    ("next_gamma", raised(0.01), "ghosh2022.eq4.fixpoint"),
    ("published_results", misread, "mukhoti2020.ts-identity komisarenko2024.table1.accuracy"),
]
CASES = [(name, wrap, claim_id) for name, wrap, ids in BROKEN for claim_id in ids.split()]


@pytest.mark.parametrize(
    ("name", "wrap", "claim_id"), [quick_or_slow(*case, id=f"{case[2]}-{case[0]}") for case in CASES]
)
def test_check_fails_when_the_library_is_broken(monkeypatch, name, wrap, claim_id):
    place = fc if name in fc.__all__ else getattr(exact, claim_id.split(".")[0])
    monkeypatch.setattr(place, name, wrap(getattr(place, name)))
    result = papers.run_check(claim_id)
    assert not result.passed
    assert result.message.startswith("AssertionError")


def test_every_check_is_seen_to_fail():
    assert sorted(claim_id for _, _, claim_id in CASES) == sorted(IDS)
