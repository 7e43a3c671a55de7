"""The definitions, slowly and exactly: mpmath at 50 digits. Arguments are the floats as given, taken as exact."""

from __future__ import annotations

from collections.abc import Sequence

import mpmath as mp

DIGITS = 50


def probabilities(logits: Sequence[float]) -> list[mp.mpf]:
    exact = [mp.mpf(x) for x in logits]
    total = mp.fsum(mp.exp(x - max(exact)) for x in exact)
    return [mp.exp(x - max(exact)) / total for x in exact]


def loss(logits: Sequence[float], label: int, gamma: float) -> mp.mpf:
    """-(1-p)^gamma log p, or -(1+p)^|gamma| log p for negative gamma, from the odds against the label."""
    with mp.workdps(DIGITS):
        others = mp.fsum(mp.exp(mp.mpf(x) - mp.mpf(logits[label])) for k, x in enumerate(logits) if k != label)
        minus_log_p, p = mp.log1p(others), 1 / (1 + others)
        base = others * p if gamma >= 0 else 1 + p
        return base ** abs(mp.mpf(gamma)) * minus_log_p


def gradient_ratio(p: float, gamma: float) -> mp.mpf:
    with mp.workdps(DIGITS):
        p, gamma = mp.mpf(p), mp.mpf(gamma)
        if gamma >= 0:
            return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * mp.log(p)
        return (1 + p) ** -gamma - gamma * p * (1 + p) ** (-gamma - 1) * mp.log(p)


def gradient(logits: Sequence[float], label: int, gamma: float) -> list[mp.mpf]:
    """g (softmax - onehot)."""
    with mp.workdps(DIGITS):
        p = probabilities(logits)
        rest = mp.fsum(v for k, v in enumerate(p) if k != label)
        base = rest if gamma >= 0 else 1 + p[label]
        gamma = mp.mpf(gamma)
        g = base ** abs(gamma) * (1 + gamma * p[label] * loss(logits, label, 0.0) / base)
        return [g * (v if k != label else -rest) for k, v in enumerate(p)]


def h(v: mp.mpf, gamma: float) -> mp.mpf:
    return v / ((1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * mp.log(v))


def focal_map(probs: Sequence[mp.mpf], gamma: float) -> list[mp.mpf]:
    """Psi^gamma of a row of exact probabilities that add up to 1."""
    with mp.workdps(400):
        values = [h(mp.mpf(v), mp.mpf(gamma)) for v in probs]
        return [value / mp.fsum(values) for value in values]


def focal_map_inverse(probs: Sequence[mp.mpf], gamma: float, start: Sequence[float]) -> list[mp.mpf]:
    """The row whose image is `probs`, by high-precision Newton from a nearby start (the solution is unique).

    Unknowns are the log-ratios to the last class.
    """
    with mp.workdps(400):
        gamma = mp.mpf(gamma)
        target = [mp.log(mp.mpf(p) / mp.mpf(probs[-1])) for p in probs[:-1]]

        def row(*ratios: mp.mpf) -> list[mp.mpf]:
            odds = [mp.exp(r) for r in ratios] + [mp.mpf(1)]
            return [o / mp.fsum(odds) for o in odds]

        def residual(*ratios: mp.mpf) -> list[mp.mpf]:
            values = [h(v, gamma) for v in row(*ratios)]
            return [mp.log(values[k] / values[-1]) - target[k] for k in range(len(target))]

        first = [mp.log(mp.mpf(v) / mp.mpf(start[-1])) for v in start[:-1]]
        if len(first) == 1:
            return row(mp.findroot(lambda ratio: residual(ratio)[0], first[0], tol=mp.mpf(10) ** -80))
        return row(*mp.findroot(residual, first, tol=mp.mpf(10) ** -80, maxsteps=60))


def relative_error(value: float, exact: mp.mpf, least: float) -> float:
    """Relative error, where results below the smallest normal number `least` may be anything as small."""
    with mp.workdps(DIGITS):
        if abs(exact) < least:
            return 0.0 if abs(value) <= 2 * least else float("inf")
        return float(abs(mp.mpf(value) - exact) / abs(exact))
