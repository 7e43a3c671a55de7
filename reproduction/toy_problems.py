"""The papers' two toy problems as tables: `python -m reproduction.toy_problems` solves both and prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from focalcal_lab.data.synthetic import ClassMixture, four_clusters
from focalcal_lab.problems import (
    LinearProblem,
    OneDimensionalProblem,
    linear_limit,
    linear_problem,
    one_dimensional_problem,
    sure_mistakes,
)
from focalcal_lab.problems.one_dimensional import Step

_STEPS: dict[Step, str] = {"raw": "as trained", "temperature": "TS by NLL", "focal-map": "Ψ"}


def loss_name(gamma: float) -> str:
    """The loss of a gamma, as the papers call it.

    >>> loss_name(0.0), loss_name(5.0)
    ('CE', 'FL-5')
    """
    return "CE" if gamma == 0 else f"FL-{gamma:g}"


def step_name(step: Step) -> str:
    """What was done to the outputs, as figures and tables call it.

    >>> step_name("temperature")
    'TS by NLL'
    """
    return _STEPS[step]


# Flipped labels in training and at test, and the standard deviation of the clusters before they are mixed.
VARIANTS = ((0.1, 0.1, 1.0), (0.05, 0.05, 1.0), (0.05, 0.05, 0.5), (0.0, 0.0, 1.0), (0.0, 0.1, 1.0))


def linear_table(problem: LinearProblem) -> str:
    """What each loss came to after the last epoch, and in brackets what it tends to."""
    names = ("loss", "norm of weights", "logits, RMS", "test error", "mistakes over 90 %", "median mistake")
    rows = (
        (
            loss_name(run.gamma),
            f"{run.weight_norms[-1]:.3f} ({run.limit.weight_norm:.3f})",
            f"{run.logit_norms[-1]:.3f} ({run.limit.logit_norm:.3f})",
            f"{_percent(run.error, 1)} ({_percent(run.limit.error, 1)})",
            f"{_percent(run.sure_mistakes)} ({_percent(run.limit.sure_mistakes)})",
            f"{run.median_mistake:.3f}",
        )
        for run in problem.runs
    )
    return _markdown(names, rows)


def mistakes_table(gammas: Sequence[float] = (0.0, 1.0), *, distribution_seed: int = 0) -> str:
    """What it takes for mistakes to be made with over 90 % confidence: the limits of variants of the linear problem.

    >>> print(mistakes_table([0.0]).splitlines()[2])
    | 10 % | 10 % | 1 | 1.05 | 42 % |
    """
    names = ["flipped in training", "flipped at test", "std"]
    names += [f"{what}, {loss_name(gamma)}" for what in ("norm of weights", "mistakes over 90 %") for gamma in gammas]
    return _markdown(names, _variants(gammas, distribution_seed))


def _variants(gammas: Sequence[float], distribution_seed: int) -> Iterator[list[str]]:
    for train_flip, test_flip, scale in VARIANTS:
        train, test = (_mixture(flip, scale, distribution_seed) for flip in (train_flip, test_flip))
        limits = [linear_limit(train, gamma) for gamma in gammas]
        shares = [sure_mistakes(torch.tensor(limit.weights, dtype=torch.float64), test) for limit in limits]
        yield [
            _percent(train_flip),
            _percent(test_flip),
            f"{scale:g}",
            *(f"{limit.weight_norm:.2f}" for limit in limits),
            *map(_percent, shares),
        ]


def _mixture(flip: float, scale: float, distribution_seed: int) -> ClassMixture:
    data = four_clusters(
        flip=flip, scale=scale, distribution_seed=distribution_seed, train_size=1, val_size=1, test_size=1
    )
    mixture: ClassMixture = data.facts["mixture"]
    return mixture


def one_dimensional_table(problem: OneDimensionalProblem) -> str:
    """Every network as trained, after temperature scaling and after Ψ, and in brackets what it tends to."""
    names = ("loss", "outputs", "temperature", "error", "KL to the posterior", "ECE")
    rows = (
        (
            loss_name(one.gamma),
            step_name(one.step),
            "" if one.temperature is None else f"{one.temperature:.3f} ({limit.temperature:.3f})",
            f"{_percent(one.error, 2)} ({_percent(limit.error, 2)})",
            f"{one.kl:.4f} ({abs(limit.kl):.4f})",
            f"{_percent(one.ece, 2)} ({_percent(limit.ece, 2)})",
        )
        for one, limit in zip(problem.measured, problem.limits, strict=True)
    )
    return _markdown(names, rows)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _markdown(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Solve both problems and print the tables of docs/toy_problems.md."""
    torch.set_num_threads(1)  # the networks are so small that a second thread gains nothing
    linear = linear_problem()
    print(f"Linear problem, Bayes error {linear.bayes_error:.1%}, angle between the weights {linear.angle():.2f}°\n")
    print(linear_table(linear))
    print(mistakes_table())
    line = one_dimensional_problem()
    print(f"One-dimensional problem, Bayes error {line.bayes_error:.2%}\n")
    print(one_dimensional_table(line))


if __name__ == "__main__":
    main()
