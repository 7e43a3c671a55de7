"""Which views a claim has."""

from __future__ import annotations

from collections.abc import Callable

from reproduction.ledger.entry import Entry
from reproduction.ledger.views import recorded, theory, training
from reproduction.ledger.views.view import View

# By family, the claims (without what precedes the first dot where a line names one paper) that it illustrates.
_FAMILIES: list[tuple[Callable[[], list[View]], str, str]] = [
    (
        theory.gradient_ratio,
        "mukhoti2020",
        "prop1 prop1.norm g.limits eq8 eq10 g.threshold g.p0-gamma1 g.steeper sec4.gamma7",
    ),
    (theory.gradient_ratio, "ghosh2022", "fn2.gradient"),
    (theory.gamma_star, "mukhoti2020", "prop2 prop2.equality prop2.w0 prop2.minimum"),
    (theory.schedule, "mukhoti2020", "schedule.values schedule.region flsd53.rule flsd532.rule"),
    (theory.epochs, "mukhoti2020", "flsc.rule"),
    (theory.thresholds, "charoenphakdee2021", "eq10 thm8.1 fig1"),
    (
        theory.overconfidence,
        "charoenphakdee2021",
        "thm8.2 thm8.3 thm8.ambiguous cor9 fn2 sec4.large-k fig2b",
    ),
    (theory.overconfidence, "komisarenko2024", "prop5 prop5.lemma"),
    (theory.minimizer, "mukhoti2020", "fn1.improper fig6"),
    (theory.minimizer, "charoenphakdee2021", "thm3 thm3.order thm5 prop6 cor10 fig2a"),
    (theory.minimizer, "komisarenko2024", "ex062 ex062.range"),
    (theory.focal_map, "charoenphakdee2021", "thm11 thm11.onehot prop12 psi.unique"),
    (
        theory.focal_map,
        "komisarenko2024",
        "prop2 prop2.gradients prop2.negative prop2.proper-part prop4 prop4.same-map fig4 sharpening",
    ),
    (theory.bounds, "komisarenko2024", "prop3 prop3.tight bounds.gamma4 bounds.gamma4-numeric"),
    (
        theory.temperatures,
        "komisarenko2024",
        """fit2 fit2.error fig2.temperatures fig5.temperatures fit3 fit3.error fit3.below-one fig7 fit4
        binary-vs-multiclass""",
    ),
    (theory.losses, "charoenphakdee2021", "eq5"),
    (theory.losses, "komisarenko2024", "prop1 prop1.quadratic"),
    (theory.losses, "ghosh2022", "eq1 eq5"),
    (theory.bounded, "mukhoti2020", "ce-above-kl eq4 appA.stronger"),
    (training.bins, "mukhoti2020", "eq1 eq2 eq3"),
    (training.weights, "mukhoti2020", "sec3.weights-infinite"),
    (training.smoothing, "mukhoti2020", "ls.rule"),
    (
        training.adafocal,
        "ghosh2022",
        """eq4 eq4.fixpoint alg1.init alg1.lookup alg1.rebin alg1.focal-step alg1.inverse-step hyper.lambda
        hyper.gamma-max hyper.switch hyper.bins hyper.frequency hyper.gamma0 frequency.counts""",
    ),
    (training.calfocal, "ghosh2022", "eq2 fig3a eq3 calfocal.limit1 calfocal.limit2"),
    (training.bias, "ghosh2022", "appF.bias"),
    (training.scaled, "komisarenko2024", "fts.def fts.grid table1.accuracy"),
    (training.bins, "ghosh2022", "ts.grid"),
    (training.scaled, "charoenphakdee2021", "sec6.3.ts"),
    (recorded.linear, "mukhoti2020", "appB.norms appB.boundary appB.confidence appB.setup"),
    (recorded.one_dimensional, "charoenphakdee2021", "fig3.data fig3.err fig3.uc fig3.ts fig3.psi"),
]
FAMILIES = {f"{paper}.{name}": make for make, paper, names in _FAMILIES for name in names.split()}


def views_of(entry: Entry) -> list[View]:
    """The tables and plots of a claim; none where there is nothing to compute."""
    if entry.id in FAMILIES:
        return FAMILIES[entry.id]()
    if entry.results:
        return recorded.readings(entry)
    if entry.standing == "set-up kept by a recipe":
        return recorded.settings(entry)
    return [*recorded.published(entry), *(recorded.settings(entry) if entry.recipes else [])]
