"""Result files with hand-made numbers, for the tests of tables and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from focalcal_lab.catalog import catalog
from reproduction.measure import COMPARED
from reproduction.result_files import Evidence, RunEvidence

MEASURES = ("error", "nll", "brier", "ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "s99_fraction")
PHASES = ("pre", "post", "ts-nll", "ts-ada", "fts", "fts-line", "fts-nll", "ets", "spline")
OF_FOCAL = ("psi", "ts-fl", "ts-fl+psi")
EPOCHS = [0, 10, 20, 29]
SERIES = [
    "train_error",
    "train_nll",
    "train_confidence",
    "test_error",
    "test_nll",
    "test_nll_correct",
    "test_nll_wrong",
    "test_entropy_correct",
    "test_entropy_wrong",
    "test_ece",
    "test_ada_ece",
    "weight_norm",
    "feature_norm",
    "gradient_norm",
    "train_top_share",
    "train_true",
]

# The value of a measure: value(recipe, method, seed, phase, measure).
Value = Callable[[str, str, int, str, str], float]
# A series by epoch: series(recipe, method, seed, name).
Series = Callable[[str, str, int, str], list[float]]


def plain(recipe: str, method: str, seed: int, phase: str, measure: str) -> float:
    """0.2 as trained and 0.1 after any calibrator, a little more for each seed and for longer names."""
    return (0.2 if phase == "pre" else 0.1) + 0.001 * seed + 0.0001 * len(method)


def flat(recipe: str, method: str, seed: int, name: str) -> list[float]:
    return [0.5] * len(EPOCHS)


def evidence(
    recipe: str, *, value: Value = plain, series: Series = flat, seeds: int = 2, fits: Mapping[str, float] | None = None
) -> Evidence:
    """The result file of a recipe, with made-up numbers."""
    known = catalog()[recipe]
    runs = [
        run(recipe, method, seed, value, series, (fits or {}).get(method, 1.5))
        for method in known.methods
        for seed in range(seeds)
    ]
    values = known.model_dump(mode="json", exclude_defaults=True)
    return Evidence(values, {"torch": "2"}, 1, "made up", [4500, 500, 10_000], runs)


def run(recipe: str, method: str, seed: int, value: Value, series: Series, temperature: float) -> RunEvidence:
    if "translation" in recipe:
        return _translation(recipe, method, seed, value)
    phases = (*PHASES, *OF_FOCAL) if method.startswith("fl-") else PHASES
    measured = {phase: {name: value(recipe, method, seed, phase, name) for name in MEASURES} for phase in phases}
    images = "cifar10" in recipe
    return RunEvidence(
        method=method,
        seed=seed,
        seconds=60.0,
        phases={
            phase: {name: [at, at - 0.01, at + 0.01] for name, at in row.items()} for phase, row in measured.items()
        },
        fits={phase: {"temperature": temperature} for phase in phases if phase != "pre"},
        pairs={
            f"{after} - {before}": {
                name: _pair(measured[after][name] - measured[before][name])
                for name in ("nll", "ece_ew", "ece_em", "ece_debias", "ece_sweep_em")
            }
            for after, before in COMPARED
            if after in measured
        },
        human={phase: {"kl": 1.0, "ece": 0.1, "gap": 0.3, "agreement": 0.6} for phase in phases} if images else {},
        foreign=_foreign() if images else {},
        dynamics=_dynamics(recipe, method, seed, series),
        extra=_extra(method),
    )


def _pair(difference: float) -> list[float]:
    return [difference, difference - 0.002, difference + 0.002, 0.01]


def _foreign() -> dict[str, dict[str, dict[str, float]]]:
    at = {"auroc": 0.7, "fpr95": 0.9, "auroc_confidence": 0.69, "fpr95_confidence": 0.91}
    return {name: {"pre": at, "post": at} for name in ("cifar100", "mnist", "cifar10-noise")}


def _dynamics(recipe: str, method: str, seed: int, series: Series) -> dict[str, object]:
    bins = [[0.1 * (place + 1) for place in range(5)] for _ in EPOCHS]
    by_bin = {"val_confidence": bins, "val_accuracy": bins, "train_true": bins}
    if method.startswith("adafocal"):
        by_bin["gamma"] = [[5.0, 4.0, 3.0, 2.0, 1.0] for _ in EPOCHS]
    return {
        "epoch": EPOCHS,
        **{name: series(recipe, method, seed, name) for name in SERIES},
        "bins": by_bin,
        "edges": {"val": [0.0, 0.5, 1.0], "train": [0.0, 0.6, 1.0]},
        "learned": {"since": [0, 10, None], "rows": [10, 20, 5], "mean_max_logit": [4.0, 3.0, 2.0]},
    }


def _extra(method: str) -> dict[str, object]:
    if method != "ce" and not method.startswith("fl-"):
        return {}
    line: dict[str, object] = {"best_temperatures": [[gamma, 1 + 0.5 * gamma] for gamma in (-0.5, 0.0, 1.0, 2.0, 4.0)]}
    return {"suggested_gamma": 3.1, **line} if method == "ce" else line


def _translation(recipe: str, method: str, seed: int, value: Value) -> RunEvidence:
    curve = [{"temperature": t, "val_ece": abs(t - 1.2), "test_bleu": 50 - abs(t - 1.0)} for t in (0.8, 1.0, 1.2)]
    names = ("ece_ew", "nll", "bleu")
    return RunEvidence(
        method=method,
        seed=seed,
        seconds=60.0,
        phases={
            phase: {name: [value(recipe, method, seed, phase, name), None, None] for name in names}
            for phase in ("pre", "post")
        },
        fits={"post": {"temperature": 1.2}},
        extra={"curve": curve, "temperature": 1.2, "val_ece": {"1": 0.2, "1.2": 0.0}, "token_error": 0.3},
    )
