"""The linear problem, whose two weights grow further with cross-entropy than with focal loss."""

from __future__ import annotations

from typing import Any

from reproduction.toy_problems import draw_mistakes, draw_norms
from reproduction.figures.catalogue import figure
from reproduction.figures.recorded import linear

_DIFFERS = (
    "The paper does not say how the clusters are drawn, the learning rate, the number of epochs or the start: ours are "
    "gradient descent on all 4,000 training points from w = 0, 500 steps of 0.05."
)


@figure(
    "Norms of logits and weights of a linear model",
    caption=(
        "Logistic regression on four Gaussian clusters, of which a tenth of the labels is flipped: the root mean "
        "square of the logits and the norm of the two weights, by epoch. Both are larger with cross-entropy than with "
        "focal loss (γ = 1). Dashed lines are what ever more data and epochs would give: the norms grow to a limit, "
        "they do not blow up, because the flipped labels cannot be separated."
    ),
    alt=(
        "Two panels over 500 epochs: root mean square of the logits, and norm of the weights; cross-entropy lies above "
        "focal loss with gamma 1 in both, and both come near their dashed limits"
    ),
    differs=_DIFFERS,
    source="recorded",
)
def fig7() -> Any:
    """Norms by epoch, and their limits."""
    return draw_norms(linear())


@figure(
    "Confidence of a linear model's mistakes, and its decision regions",
    caption=(
        "The same models on 1,000 test points. Left: confidences of the misclassified points, with a dotted line at 90 "
        "%. Middle and right: the probability of class 1 as shading, where it is one half as a line, and the first 250 "
        "points by their label. Both losses have the same decision regions; cross-entropy has the longer weights, and "
        "is surer of its mistakes."
    ),
    alt=(
        "Histogram of the confidences of mistakes, those of cross-entropy further to the right; and the planes of both "
        "models with the same boundary, shading steeper for cross-entropy"
    ),
    differs=_DIFFERS,
    source="recorded",
)
def fig8() -> Any:
    """Mistakes and regions."""
    return draw_mistakes(linear(), points=250)
