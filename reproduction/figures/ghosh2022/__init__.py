"""Figures of ghosh2022, "AdaFocal: calibration-aware adaptive focal loss"."""

from reproduction.figures.catalogue import NOT_DRAWN
from reproduction.figures.ghosh2022.bins import fig1, fig2, fig5, fig14
from reproduction.figures.ghosh2022.foreign import fig6
from reproduction.figures.ghosh2022.losses import fig3
from reproduction.figures.ghosh2022.recipes import fig4, fig16

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig14", "fig16"]

# Why the others are not drawn, by their numbers.
_REASONS: dict[str, tuple[int, ...]] = {
    "It is Fig. 1 or 2 in all 15 bins, of which three are drawn there.": (7, 10),
    "Training confidences in the predicted class, or in bins of their own, are not in the recorded results.": (8, 9),
    "It needs networks on CIFAR-100, Tiny-ImageNet, ImageNet or SVHN, or BERT, which take days to train.": (
        *(11, 12, 13, 17, 18, 19, 20),
        *range(25, 31),
        *(32, 33),
        *range(41, 44),
        *range(47, 54),
        55,
    ),
    "The numbers of our networks are in docs/results as tables.": (15,),
    "It needs the large networks on CIFAR-10; Fig. 4 and 5 have our small ones.": (*range(21, 25), 44, 45, 46),
    "Single predictions, of which it is drawn, are not in the recorded results.": (31,),
    "Histograms of largest logits are not in the recorded results; docs/results/dynamics.md has their means.": (34,),
    "It needs many runs with other bounds of gamma.": tuple(range(35, 41)),
    "It is drawn as Fig. 5(b).": (54,),
    "It needs runs with both forms of CalFocal and several lambda.": (56,),
}
NOT_DRAWN.update({("ghosh2022", str(number)): why for why, numbers in _REASONS.items() for number in numbers})
