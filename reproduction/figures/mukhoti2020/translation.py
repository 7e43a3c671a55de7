"""Translation: BLEU and ECE against temperature."""

from __future__ import annotations

from typing import Any

from reproduction.figures.catalogue import figure
from reproduction.figures.recorded import lab_results
from reproduction.pages import translation


@figure(
    "BLEU and ECE against temperature",
    caption=(
        "Test BLEU (above) and validation ECE (below) of a translator, against the temperature of its softmax in beam "
        "search. Thin lines are seeds, thick ones means over seeds at the temperatures that all seeds have; large "
        "marks are the best of the means. ECE has a clear minimum, below 1 for label smoothing, near 1 for focal loss "
        "and above it for cross-entropy; BLEU hardly changes over the whole range."
    ),
    alt=(
        "Two panels against temperature: test BLEU, nearly flat for each loss, and validation ECE, U-shaped, for "
        "cross-entropy, label smoothing and focal loss with gamma 1"
    ),
    differs=(
        "A small Transformer on a made corpus of 4,000 sentence pairs with ambiguous words, two seeds, not the "
        "Transformer of WMT14 English to German; the losses share one figure."
    ),
    source="recorded",
)
def fig5() -> Any:
    """Both against temperature, as on the page of results."""
    (drawn,) = translation.figures(lab_results()).values()
    return drawn
