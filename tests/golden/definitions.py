"""The quantities of the recorded values from their definitions, with loops and high precision, without focalcal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import erf

from tests import oracles

Pairs = list[tuple[float, float]]
"""Confidence and correctness of each row; rows of equal confidence share their correctness where a rule parts them."""


def probabilities(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def top_pairs(logits: np.ndarray, labels: np.ndarray) -> Pairs:
    probs = probabilities(logits)
    return list(zip(probs.max(1).tolist(), (probs.argmax(1) == labels).astype(float).tolist(), strict=True))


def class_pairs(logits: np.ndarray, labels: np.ndarray) -> list[Pairs]:
    probs = probabilities(logits)
    return [list(zip(p.tolist(), (labels == k).astype(float).tolist(), strict=True)) for k, p in enumerate(probs.T)]


# ---------------------------------------------------------------------- bins


def ranked(pairs: Pairs) -> Pairs:
    """Sorted by confidence, equal confidences with the mean of their correctness."""
    found = []
    for confidence, group in itertools.groupby(sorted(pairs), key=lambda pair: pair[0]):
        correct = [pair[1] for pair in group]
        found += [(confidence, sum(correct) / len(correct))] * len(correct)
    return found


def cut(pairs: Pairs, scheme: str, num_bins: int) -> list[Pairs]:
    if scheme == "equal_width":
        edges = [b / num_bins for b in range(num_bins + 1)]
        inside = [[p for p in pairs if low < p[0] <= high] for low, high in itertools.pairwise(edges)]
        return [[p for p in pairs if p[0] == 0] + inside[0], *inside[1:]]
    rows, n = ranked(pairs), len(pairs)
    if scheme == "equal_mass":
        return [[row for i, row in enumerate(rows) if num_bins * i // n == b] for b in range(num_bins)]
    sizes = [n // num_bins + (b < n % num_bins) for b in range(num_bins)]  # array_split
    return [rows[sum(sizes[:b]) : sum(sizes[: b + 1])] for b in range(num_bins)]


def table(bins: Sequence[Pairs]) -> list[tuple[int, float, float]]:
    """Count, mean confidence and accuracy of each filled bin."""
    columns = [(len(b), *(math.fsum(column) / len(b) for column in zip(*b, strict=True))) for b in bins if b]
    return [(count, confidence, accuracy) for count, confidence, accuracy in columns]


def binned(bins: Sequence[Pairs], norm: str) -> float:
    rows = table(bins)
    n = sum(count for count, _, _ in rows)
    if norm == "max":
        return max(abs(c - a) for _, c, a in rows)
    if norm == "l2":
        return math.sqrt(math.fsum(count / n * (c - a) ** 2 for count, c, a in rows))
    return math.fsum(count / n * abs(c - a) for count, c, a in rows)


def debiased(bins: Sequence[Pairs], norm: str) -> float:
    rows = table(bins)
    n = sum(count for count, _, _ in rows)
    if norm == "l2":
        terms = [count / n * ((c - a) ** 2 - a * (1 - a) / (count - 1)) for count, c, a in rows if count > 1]
        return math.sqrt(max(math.fsum(terms), 0.0))
    redrawn = math.fsum(count / n * folded_normal(c - a, math.sqrt(a * (1 - a) / count)) for count, c, a in rows)
    return 2 * binned(bins, "l1") - redrawn


def folded_normal(mean: float, spread: float) -> float:
    """The mean of |x| for a normal x."""
    if spread == 0:
        return abs(mean)
    z = mean / spread
    return spread * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(z / math.sqrt(2))


def sweep(pairs: Pairs, scheme: str, norm: str) -> float:
    """The error with the most bins, counted up from two, before accuracies fall somewhere."""
    best = cut(pairs, scheme, 1)
    for num_bins in range(2, len(pairs) + 1):
        bins = cut(pairs, scheme, num_bins)
        accuracies = [a for _, _, a in table(bins)]
        if any(low > high + 1e-12 for low, high in itertools.pairwise(accuracies)):
            break
        best = bins
    return binned(best, norm)


# ---------------------------------------------------------------------- other measures


def smooth_ece(pairs: Pairs, sigma: float | None = None) -> float:
    """The integral of |mean (confidence - correct) K(t, confidence)|; without a sigma, that which equals the result."""
    if sigma is None:
        return float(brentq(lambda each: smooth_ece(pairs, each) - each, 1e-3, 0.5, xtol=1e-15, rtol=1e-14))
    confidence, correct = np.array(pairs).T
    residual = (confidence - correct) / len(pairs)
    images = np.concatenate([sign * confidence + 2 * shift for shift in range(-3, 4) for sign in (1, -1)])
    heights = np.tile(residual, 14)

    def density(t: float) -> float:
        return float(heights @ np.exp(-(((t - images) / sigma) ** 2) / 2))

    def integral(t: float) -> float:
        return math.fsum(heights * erf((t - images) / (sigma * math.sqrt(2))) / 2)

    grid = np.linspace(0, 1, 801)
    values = [density(t) for t in grid]
    changes = [i for i in range(800) if values[i] * values[i + 1] < 0]
    ends = [0.0, *(brentq(density, grid[i], grid[i + 1], xtol=1e-15) for i in changes), 1.0]
    return math.fsum(abs(integral(high) - integral(low)) for low, high in itertools.pairwise(ends))


def ks_error(pairs: Pairs) -> float:
    """The largest cumulative drift at a threshold, which never parts equal confidences."""
    drift, worst = [], 0.0
    for _, group in itertools.groupby(sorted(pairs), key=lambda pair: pair[0]):
        drift += [confidence - correct for confidence, correct in group]
        worst = max(worst, abs(math.fsum(drift)))
    return worst / len(pairs)


def mmce(pairs: Pairs, *, weighted: bool = False) -> float:
    return math.sqrt(math.fsum(_mmce_terms(*np.array(pairs).T, weighted=weighted)[0].ravel()))


def _mmce_terms(confidence: np.ndarray, correct: np.ndarray, *, weighted: bool) -> tuple[np.ndarray, np.ndarray]:
    """The terms of the double sum, and its slope by each confidence."""
    n, right = len(correct), correct.sum()
    share = np.where(correct == 1, 1 / max(right, 1), 1 / max(n - right, 1)) if weighted else np.full(n, 1 / n)
    gap = (correct - confidence) * share
    distance = confidence[:, None] - confidence
    kernel = np.exp(-np.abs(distance) / 0.4)
    slope = 2 * (-share * (kernel @ gap) - gap * ((np.sign(distance) * kernel) @ gap) / 0.4)
    return gap[:, None] * gap * kernel, slope


def auroc(score: Sequence[float], correct: Sequence[float]) -> float:
    """The share of pairs in which the correct row scores higher; a tie counts half."""
    right = np.array([s for s, c in zip(score, correct, strict=True) if c])
    wrong = np.array([s for s, c in zip(score, correct, strict=True) if not c])
    wins = 2 * (right[:, None] > wrong).sum() + (right[:, None] == wrong).sum()
    return float(wins / (2 * len(right) * len(wrong)))


def measures(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Every measure by the name that the test has for it."""
    probs, pairs, per_class = probabilities(logits), top_pairs(logits, labels), class_pairs(logits, labels)
    hot = np.eye(logits.shape[1])[labels]
    log_total = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
    # Rows that repeat have one entropy, and a digit that a sum in another order may change must not part them.
    entropy = [round(-math.fsum(v * math.log(v) for v in p if v > 0), 13) for p in probs.tolist()]
    correct = [c for _, c in pairs]

    def over_classes(error: Callable[[Pairs], float], mean: Callable[[list[float]], float]) -> float:
        return mean([error(each) for each in per_class])

    def root(values: list[float]) -> float:
        return math.sqrt(math.fsum(v * v for v in values) / len(values))

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    split = cut(pairs, "array_split", 15)
    return {
        "ece_15": binned(cut(pairs, "equal_width", 15), "l1"),
        "ece_10": binned(cut(pairs, "equal_width", 10), "l1"),
        "ece_15_l2": binned(cut(pairs, "equal_width", 15), "l2"),
        "mce_15": binned(cut(pairs, "equal_width", 15), "max"),
        "ada_ece_15": binned(cut(pairs, "equal_mass", 15), "l1"),
        "array_split_ece_15_l2": binned(split, "l2"),
        "classwise_ece_15": over_classes(lambda each: binned(cut(each, "equal_width", 15), "l1"), mean),
        "debiased_15_l2": debiased(split, "l2"),
        "debiased_15_l1": debiased(split, "l1"),
        "debiased_15_l2_equal_width": debiased(cut(pairs, "equal_width", 15), "l2"),
        "debiased_15_l2_classwise": over_classes(lambda each: debiased(cut(each, "array_split", 15), "l2"), root),
        "sweep_equal_mass_l1": sweep(pairs, "equal_mass", "l1"),
        "sweep_equal_mass_l2": sweep(pairs, "equal_mass", "l2"),
        "sweep_equal_width_l1": sweep(pairs, "equal_width", "l1"),
        "smooth_ece": smooth_ece(pairs),
        "smooth_ece_0.05": smooth_ece(pairs, 0.05),
        "ks_error": ks_error(pairs),
        "mmce": mmce(pairs[:256]),
        "mmce_weighted": mmce(pairs[:256], weighted=True),
        "brier": mean(((probs - hot) ** 2).sum(1).tolist()),
        "nll": mean((log_total - (logits * hot).sum(1)).tolist()),
        "accuracy": mean(correct),
        "top_3_accuracy": mean([float(y in np.argsort(-p)[:3]) for p, y in zip(probs, labels, strict=True)]),
        "mean_confidence": mean([c for c, _ in pairs]),
        "entropy": mean(entropy),
        "auroc_by_confidence": auroc([round(c, 14) for c, _ in pairs], correct),
        "auroc_by_entropy": auroc([-e for e in entropy], correct),
    }


# ---------------------------------------------------------------------- losses, by mpmath


def focal(gamma: float | Callable[[mp.mpf], float]) -> Callable[[list[float], int], tuple[mp.mpf, list[mp.mpf]]]:
    """The loss of a row and its gradient; gamma may depend on the probability of the label."""

    def row(logits: list[float], label: int) -> tuple[mp.mpf, list[mp.mpf]]:
        each = gamma(oracles.probabilities(logits)[label]) if callable(gamma) else gamma
        return oracles.loss(logits, label, each), oracles.gradient(logits, label, each)

    return row


def brier(logits: list[float], label: int) -> tuple[mp.mpf, list[mp.mpf]]:
    with mp.workdps(oracles.DIGITS):
        p = oracles.probabilities(logits)
        rest = mp.fsum(v for k, v in enumerate(p) if k != label)
        gap = [v if k != label else -rest for k, v in enumerate(p)]
        inner = mp.fdot(p, gap)
        return mp.fdot(gap, gap), [2 * v * (g - inner) for v, g in zip(p, gap, strict=True)]


def label_smoothing(logits: list[float], label: int, share: str = "0.05") -> tuple[mp.mpf, list[mp.mpf]]:
    with mp.workdps(oracles.DIGITS):
        p, a = oracles.probabilities(logits), mp.mpf(share)
        target = [1 - a if k == label else a / (len(p) - 1) for k in range(len(p))]
        return -mp.fdot(target, map(mp.log, p)), [v - t for v, t in zip(p, target, strict=True)]


def flsd_53(p: mp.mpf) -> float:
    return 5.0 if p < mp.mpf("0.2") else 3.0


ROW_LOSSES = {
    **{f"focal {gamma:g}": focal(gamma) for gamma in (0.0, 0.5, 1.0, 3.0, -0.5, -2.0)},
    "flsd-53": focal(flsd_53),
    "brier": brier,
    "label smoothing": label_smoothing,
}


def summed(row: Callable[[list[float], int], tuple[mp.mpf, list[mp.mpf]]], logits: np.ndarray, labels: np.ndarray):
    """The sum over rows of a loss, and its gradient."""
    found = [row(x, y) for x, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    return float(mp.fsum(value for value, _ in found)), np.array([[float(v) for v in slope] for _, slope in found])


def mmce_loss(logits: np.ndarray, labels: np.ndarray, *, weighted: bool):
    """MMCE of a batch, and its gradient."""
    probs = probabilities(logits)
    top = np.eye(probs.shape[1])[probs.argmax(1)]
    confidence, correct = probs.max(1), (probs.argmax(1) == labels).astype(float)
    terms, slope = _mmce_terms(confidence, correct, weighted=weighted)
    value = math.sqrt(math.fsum(terms.ravel()))
    return value, (slope * confidence)[:, None] * (top - probs) / (2 * value)


# ---------------------------------------------------------------------- calibrators


def temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature of the least NLL, by Newton's method in its inverse with 30 digits."""
    with mp.workdps(30):
        inverse = mp.mpf(1)
        for _ in range(60):
            slope, curvature = mp.mpf(0), mp.mpf(0)
            for x, y in zip(logits.tolist(), labels.tolist(), strict=True):
                weight = [mp.exp(inverse * (v - max(x))) for v in x]
                total = mp.fsum(weight)
                mean = mp.fdot(weight, x) / total
                slope += mean - x[y]
                curvature += mp.fdot(weight, [v * v for v in x]) / total - mean**2
            step = slope / curvature
            inverse = max(inverse - step, inverse / 2)
            if abs(step) < mp.mpf(10) ** -20:
                return float(1 / inverse)
    raise ArithmeticError("Newton's method did not converge")


def focal_nll(logits: np.ndarray, labels: np.ndarray, gamma: float, temperature: float) -> float:
    mapped = focal_probabilities(logits, gamma, temperature)
    return float(-np.log(mapped[np.arange(len(labels)), labels]).mean())


def focal_probabilities(logits: np.ndarray, gamma: float, temperature: float) -> np.ndarray:
    """Temperature, then the focal map; 1 - p is the sum of the others, so that it does not cancel."""
    scaled = (logits - logits.max(1, keepdims=True)) / temperature
    odds = np.exp(scaled)
    total = odds.sum(1, keepdims=True)
    p, log_p = odds / total, scaled - np.log(total)
    others = np.stack([np.delete(odds, k, 1).sum(1) for k in range(odds.shape[1])], 1) / total
    log_h = log_p - gamma * np.log(others) - np.log1p(-gamma * p * log_p / others)
    h = np.exp(log_h - log_h.max(1, keepdims=True))
    return h / h.sum(1, keepdims=True)


def focal_grid(logits: np.ndarray, labels: np.ndarray, gammas: Sequence[float], grid: Sequence[float]) -> list[float]:
    """Gamma, temperature and NLL at the best point of a grid."""
    nll, gamma, temp = min((focal_nll(logits, labels, g, t), g, t) for g in gammas for t in grid)
    return [gamma, temp, nll]


def focal_optimum(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The gamma, from 0 on, of the least NLL over gammas and temperatures, and that NLL."""

    def nll(at: tuple[float, float]) -> float:
        return focal_nll(logits, labels, at[0], math.exp(at[1])) if at[0] >= 0 else math.inf

    options = {"xatol": 1e-9, "fatol": 1e-15, "maxiter": 4000, "maxfev": 4000}
    starts = [(gamma, math.log(t)) for gamma in (0.0, 1.0, 4.0) for t in (0.5, 1.5, 4.0)]
    found = [minimize(nll, start, method="Nelder-Mead", options=options) for start in starts]
    best = min(found, key=lambda each: each.fun)
    return float(best.x[0]), float(best.fun)


def error_grid(logits: np.ndarray, labels: np.ndarray, scheme: str) -> tuple[float, float]:
    """The temperature of 0.1, 0.2, ... 10 with the least ECE, and that error."""
    grid = [i / 10 for i in range(1, 101)]
    errors = [binned(cut(top_pairs(logits / t, labels), scheme, 15), "l1") for t in grid]
    return grid[errors.index(min(errors))], min(errors)


def brier_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature of the least Brier score: the root of its slope by the inverse temperature."""
    hot = np.eye(logits.shape[1])[labels]

    def slope(inverse: float) -> float:
        p = probabilities(inverse * logits)
        return float(((p - hot) * p * (logits - (p * logits).sum(1, keepdims=True))).sum())

    return 1 / float(brentq(slope, 0.05, 20, xtol=1e-15, rtol=1e-14))


def ensemble(logits: np.ndarray, labels: np.ndarray, *, criterion: str) -> list[float]:
    """The best temperature, and the objective at the best weights of scaled, original and uniform probabilities."""
    best = (temperature if criterion == "nll" else brier_temperature)(logits, labels)
    uniform = np.full_like(logits, 1 / logits.shape[1])
    parts = [probabilities(logits / best), probabilities(logits), uniform]
    hot = np.eye(logits.shape[1])[labels]
    of_label = np.stack([(part * hot).sum(1) for part in parts], 1)
    if criterion == "nll":
        weights = np.full(3, 1 / 3)
        for _ in range(200_000):  # expectation-maximisation of a mixture: the likelihood never falls
            shares = weights * of_label
            new = (shares / shares.sum(1, keepdims=True)).mean(0)
            if np.abs(new - weights).max() < 1e-15:
                break
            weights = new
        return [best, float(-np.log(of_label @ weights).mean())]
    flat = np.stack([(part - hot).ravel() for part in parts], 1)  # weights add up to 1
    gram = flat.T @ flat / len(labels)
    return [best, min(_on_face(gram, face) for size in (1, 2, 3) for face in itertools.combinations(range(3), size))]


def _on_face(gram: np.ndarray, face: tuple[int, ...]) -> float:
    """The least w' G w over weights of one face of the simplex, or infinity if it lies outside."""
    part = gram[np.ix_(face, face)]
    weights = np.linalg.solve(part, np.ones(len(face)))
    weights /= weights.sum()
    return float(weights @ part @ weights) if (weights >= 0).all() else math.inf


def linear(logits: np.ndarray, labels: np.ndarray, *, matrix: bool) -> dict[str, object]:
    """Vector or matrix scaling without penalty by Newton's method: the least NLL, and for vectors the weights."""
    n, k = logits.shape
    hot = np.eye(k)[labels]
    theta = np.concatenate([np.eye(k) if matrix else np.ones((1, k)), np.zeros((1, k))])

    def scores(theta: np.ndarray) -> np.ndarray:
        return logits @ theta[:-1] + theta[-1] if matrix else logits * theta[0] + theta[-1]

    def nll(theta: np.ndarray) -> float:
        z = scores(theta)
        return float((np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - (z * hot).sum(1)).mean())

    for _ in range(100):
        p = probabilities(scores(theta))
        spread = np.einsum("na,ab->nab", p, np.eye(k)) - p[:, :, None] * p[:, None]
        if matrix:
            design = np.concatenate([logits, np.ones((n, 1))], 1)
            slope = design.T @ (p - hot) / n
            hessian = np.einsum("ni,nj,nab->iajb", design, design, spread).reshape(theta.size, theta.size) / n
        else:
            columns = np.stack([logits, np.ones_like(logits)])
            slope = (columns * (p - hot)).mean(1)
            hessian = np.einsum("ina,jnb,nab->iajb", columns, columns, spread).reshape(theta.size, theta.size) / n
        step = np.linalg.lstsq(hessian, slope.ravel(), rcond=1e-13)[0].reshape(theta.shape)
        size = 1.0
        while nll(theta - size * step) > nll(theta) + 1e-15 and size > 1e-6:
            size /= 2
        theta = theta - size * step
        if np.abs(step).max() < 1e-13:
            break
    found: dict[str, object] = {"nll": nll(theta)}
    if not matrix:
        found |= {"weight": theta[0].tolist(), "bias": (theta[1] - theta[1].mean()).tolist()}
    return found


# ---------------------------------------------------------------------- AdaFocal


def adafocal(
    logits: np.ndarray, labels: np.ndarray, *, updates: int, lam: float, num_bins: int = 15
) -> tuple[list[float], list[float]]:
    """Edges and gammas after updates on the same validation rows, from gamma 1, with the paper's bounds."""
    pairs = sorted(top_pairs(logits, labels))
    confidence = np.array([c for c, _ in pairs])
    correct = np.array([c for _, c in pairs])
    edges = np.interp(np.linspace(0, len(pairs), num_bins + 1), np.arange(len(pairs)), confidence)
    gamma = np.ones(num_bins)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, num_bins - 1)  # (low, high], first closed
    for _ in range(updates):
        for b in range(num_bins):
            inside = place == b
            if not inside.any():
                continue
            sign = 1 if gamma[b] >= 0 else -1
            gap = confidence[inside].mean() - correct[inside].mean()
            gamma[b] = min(max(gamma[b] * math.exp(sign * lam * gap), -2.0), 20.0)
            if abs(gamma[b]) < 0.2:
                gamma[b] = -sign * 0.2
    return edges.tolist(), gamma.tolist()
