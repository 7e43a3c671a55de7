"""Data that needs no file: noisy digits, and three problems whose true posterior is known.

The three are mixtures of Gaussian clusters (`ClassMixture`), so the posterior is exact: `facts["posterior"]` maps
inputs (N, d) to the probabilities (N, K) of the labels, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from focalcal import noisy_digits
from focalcal.core.checks import ArrayLike, require, require_distribution
from focalcal_lab.data.dataset import DataSplits, TensorRows

# The corners of a square of side 4 around the origin; the first two are class 0, so a vertical line parts the classes.
CORNERS = ((-2.0, -2.0), (-2.0, 2.0), (2.0, -2.0), (2.0, 2.0))


@dataclass(frozen=True)
class ClassMixture:
    r"""Gaussian clusters that belong to classes, with labels that may be flipped.

    A cluster $c$ is drawn with probability `weights` (C,), then $x = m_c + A_c z$ with $z$ standard normal, `means`
    (C, d) and `factors` (C, d, d). The label is `classes` (C,) of the cluster, turned into another with the
    probabilities `noise` (K, K): rows are the cluster's class, columns the label. Everything is float64.

    >>> one = ClassMixture(torch.tensor([0.5, 0.5]).double(), torch.tensor([[-1.0], [1.0]]).double(),
    ...                    torch.ones(2, 1, 1).double(), torch.tensor([0, 1]), torch.eye(2).double())
    >>> one.posterior(torch.tensor([[0.0], [0.5]]))
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]], dtype=torch.float64)
    """

    weights: Tensor
    means: Tensor
    factors: Tensor
    classes: Tensor
    noise: Tensor

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return len(self.noise)

    def sample(self, size: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Inputs (N, d) in float64 and labels (N,)."""
        clusters = torch.from_numpy(generator.choice(len(self.weights), size=size, p=self.weights.numpy()))
        normal = torch.from_numpy(generator.standard_normal((size, self.means.shape[1])))
        inputs = self.means[clusters] + torch.einsum("nij,nj->ni", self.factors[clusters], normal)
        # The label is the first whose share of [0, 1] reaches a uniform number; rounding must not lead past the last.
        shares = self.noise[self.classes[clusters]].cumsum(1)
        labels = (shares <= torch.from_numpy(generator.random((size, 1)))).sum(1).clamp(max=self.num_classes - 1)
        return inputs, labels

    def log_joint(self, inputs: ArrayLike) -> Tensor:
        r"""The densities $\log p(x, y)$ (N, K) of inputs (N, d), in float64."""
        points = torch.as_tensor(inputs).double().cpu()
        expected = self.means.shape[1]
        fits = points.dim() == 2 and points.shape[1] == expected
        require(fits, "inputs", f"must have shape (N, {expected})", tuple(points.shape))
        standard = torch.linalg.solve(self.factors, (points[:, None] - self.means).unsqueeze(-1)).squeeze(-1)
        log_volume = torch.linalg.slogdet(self.factors).logabsdet + expected / 2 * math.log(2 * math.pi)
        clusters = -standard.square().sum(-1) / 2 - log_volume + self.weights.log()
        # (N, C, K): cluster c gives label k with probability noise[class of c, k].
        return torch.logsumexp(clusters.unsqueeze(-1) + self.noise[self.classes].log(), dim=1)

    def posterior(self, inputs: ArrayLike) -> Tensor:
        r"""The true posterior $\eta_k(x) = p(x, k) / \sum_j p(x, j)$ (N, K), by Bayes' rule, in float64."""
        return torch.softmax(self.log_joint(inputs), dim=1)


def digits(folder: Path | None = None, *, seed: int = 0) -> DataSplits:
    """The noisy digits of `focalcal demo`, with its splits: 500, 400 and 897 images of 8 x 8 pixels.

    They ship with scikit-learn, so `folder` is not read. The true posterior is not known.

    >>> len(digits().test), digits().facts["size"]
    (897, 8)
    """
    train, val, test = (TensorRows(split.images, split.labels) for split in noisy_digits.load(seed))
    return DataSplits(
        name="digits",
        train=train,
        val=val,
        test=test,
        num_classes=10,
        class_names=tuple(str(digit) for digit in range(10)),
        facts={"channels": 1, "size": 8, "features": 64},
        about=f"scikit-learn's digits, Gaussian noise of standard deviation {noisy_digits.NOISE} on the pixels, "
        f"seed {seed}",
    )


def one_dimensional(
    folder: Path | None = None,
    *,
    seed: int = 0,
    train_size: int = 100_000,
    val_size: int = 20_000,
    test_size: int = 100_000,
    means: Sequence[float] = (-1.5, 0.0, 1.5),
    scales: Sequence[float] = (1.0, 1.25, 1.0),
    priors: Sequence[float] = (0.3, 0.4, 0.3),
) -> DataSplits:
    """Three overlapping classes on a line, one normal distribution each.

    The paper gives its densities only as a drawing, so `means`, `scales` and `priors` are our choice: smooth, with all
    three classes likely in the middle. There the focal map is far from every temperature; classes that meet only in
    pairs would hide that, because for two classes the two are within 0.0013 of each other.

    Source: [charoenphakdee2021, Sec. 5.2, Fig. 3a-b].

    >>> one_dimensional(train_size=10).facts["posterior"](torch.zeros(1, 1))
    tensor([[0.1892, 0.6216, 0.1892]], dtype=torch.float64)
    """
    same = len(means) == len(scales) == len(priors)
    require(same, "means", "must be as many as scales and priors", f"{len(means)}, {len(scales)}, {len(priors)}")
    require(all(0 < scale < math.inf for scale in scales), "scales", "must be greater than 0 and finite", _list(scales))
    mixture = ClassMixture(
        weights=_priors(priors),
        means=torch.tensor(means, dtype=torch.float64).reshape(-1, 1),
        factors=torch.tensor(scales, dtype=torch.float64).reshape(-1, 1, 1),
        classes=torch.arange(len(means)),
        noise=torch.eye(len(means), dtype=torch.float64),
    )
    about = f"normal distributions at {_list(means)}, standard deviations {_list(scales)}, priors {_list(priors)}"
    return _data("one-dimensional", mixture, seed, (train_size, val_size, test_size), about)


def four_clusters(
    folder: Path | None = None,
    *,
    seed: int = 0,
    train_size: int = 4000,
    val_size: int = 1000,
    test_size: int = 1000,
    flip: float = 0.1,
    scale: float = 1.0,
    distribution_seed: int = 0,
) -> DataSplits:
    """Two classes of two clusters each, on the corners of a square of side 4, with flipped labels.

    The classes lie left and right of a line through the origin. Normal samples of standard deviation `scale` are mixed
    within each cluster by a random matrix with entries between -1 and 1, as `sklearn.datasets.make_classification`
    does; the matrices come from `distribution_seed`, so that every `seed` is a new sample of one and the same problem.
    Each label is flipped with probability `flip`; scikit-learn's `flip_y` draws a label anew instead, which flips half
    as many. The paper has no validation split.

    Source: [mukhoti2020, App. B].

    >>> data = four_clusters()
    >>> len(data.train), len(data.test), data.facts["posterior"](torch.tensor([[-2.0, 2.0]]))
    (4000, 1000, tensor([[0.9000, 0.1000]], dtype=torch.float64))
    """
    require(0 <= flip <= 1, "flip", "must lie in [0, 1]", flip)
    require(0 < scale < math.inf, "scale", "must be greater than 0 and finite", scale)
    # Seeded by a pair: never the stream of a sample, whatever the two seeds are.
    mixing = np.random.default_rng((1, distribution_seed)).uniform(-1, 1, size=(4, 2, 2))
    mixture = ClassMixture(
        weights=torch.full((4,), 0.25, dtype=torch.float64),
        means=torch.tensor(CORNERS, dtype=torch.float64),
        factors=torch.from_numpy(scale * mixing),
        classes=torch.tensor([0, 0, 1, 1]),
        noise=torch.tensor([[1 - flip, flip], [flip, 1 - flip]], dtype=torch.float64),
    )
    about = f"four clusters on a square of side 4, {100 * flip:g} % of labels flipped, matrices {distribution_seed}"
    return _data("four-clusters", mixture, seed, (train_size, val_size, test_size), about)


def gaussian_mixture(
    folder: Path | None = None,
    *,
    seed: int = 0,
    num_classes: int = 10,
    features: int = 10,
    separation: float = 2.0,
    priors: Sequence[float] | None = None,
    train_size: int = 10_000,
    val_size: int = 5000,
    test_size: int = 10_000,
    distribution_seed: int = 0,
) -> DataSplits:
    """K classes in d dimensions: one standard normal cluster each, its mean `separation` from the origin.

    The directions of the means are random, from `distribution_seed`; the classes are equally likely without `priors`.

    >>> data = gaussian_mixture(num_classes=3, features=2, train_size=30)
    >>> data.num_classes, data.facts["features"], data.facts["posterior"](torch.zeros(1, 2)).sum().item()
    (3, 2, 1.0)
    """
    require(num_classes >= 2, "num_classes", "must be at least 2", num_classes)
    require(features >= 1, "features", "must be at least 1", features)
    require(0 <= separation < math.inf, "separation", "must be a number that is not negative", separation)
    chosen = _priors([1 / num_classes] * num_classes if priors is None else priors)
    require(len(chosen) == num_classes, "priors", f"must be {num_classes}, one per class", len(chosen))
    directions = torch.from_numpy(np.random.default_rng((1, distribution_seed)).normal(size=(num_classes, features)))
    mixture = ClassMixture(
        weights=chosen,
        means=separation * directions / directions.norm(dim=1, keepdim=True),
        factors=torch.eye(features, dtype=torch.float64).expand(num_classes, -1, -1),
        classes=torch.arange(num_classes),
        noise=torch.eye(num_classes, dtype=torch.float64),
    )
    about = f"{num_classes} standard normal classes in {features} dimensions, means {separation:g} from the origin"
    return _data("gaussian-mixture", mixture, seed, (train_size, val_size, test_size), about)


def _priors(priors: Sequence[float]) -> Tensor:
    require(len(priors) >= 2, "priors", "must be those of at least two classes", len(priors))
    chosen = torch.tensor(priors, dtype=torch.float64)
    require_distribution(chosen, "priors", 0)
    require(bool((chosen > 0).all()), "priors", "must be greater than 0", _list(priors))
    return chosen / chosen.sum()


def _data(name: str, mixture: ClassMixture, seed: int, sizes: tuple[int, int, int], about: str) -> DataSplits:
    for split, size in zip(("train_size", "val_size", "test_size"), sizes, strict=True):
        require(size >= 1, split, "must be at least 1", size)
    generator = np.random.default_rng(seed)
    parts = [mixture.sample(size, generator) for size in sizes]
    train, val, test = (TensorRows(inputs.float(), labels) for inputs, labels in parts)
    return DataSplits(
        name=name,
        train=train,
        val=val,
        test=test,
        num_classes=mixture.num_classes,
        class_names=tuple(str(number) for number in range(mixture.num_classes)),
        facts={"features": mixture.means.shape[1], "posterior": mixture.posterior, "mixture": mixture},
        about=f"{about}, seed {seed}",
    )


def _list(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
