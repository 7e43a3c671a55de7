"""Error and ECE of training, on several recipes."""

from __future__ import annotations

from typing import Any

from focalcal import drawing as figures
from reproduction.figures.catalogue import figure
from reproduction.figures.recorded import lab_results
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, TITLES, method_name
from reproduction.pages.dynamics.drawing import LOOKS, Look, by_loss, draw_panel, line_of

_RECIPES = (LITTLE, LITTLE_20, MORE, NEWS)
_LOSSES = ("ce", "flsd-53", "adafocal")


@figure(
    "Error and ECE of cross-entropy, FLSD-53 and AdaFocal while networks train",
    caption=(
        "Test error (above) and test ECE in 15 bins of equal mass (below), by epoch, for four networks. Lines are "
        "means over seeds, bands reach from the lowest to the highest, dotted vertical lines are drops of the learning "
        "rate. Errors are much alike. On a tenth of CIFAR-10 cross-entropy overfits, and both focal losses end far "
        "below its ECE. On half of it training is too short for that: cross-entropy ends calibrated, FLSD-53 is not "
        "sure enough, and AdaFocal lies between them. On 20 Newsgroups AdaFocal has had five updates, and ends between "
        "the others, too."
    ),
    alt=(
        "Two rows of four panels, one a network: test error and test ECE by epoch, with a line each for cross-entropy, "
        "FLSD-53 and AdaFocal"
    ),
    differs=(
        "Small networks, and little data: ResNet-8 and ResNet-20 on a tenth of CIFAR-10 (30 and 14 epochs, three "
        "seeds), ResNet-8 on half of it (10 epochs, two seeds), and a convolutional network on 20 Newsgroups (6 "
        "epochs, two seeds), not ResNet-50 on CIFAR-10, CIFAR-100, Tiny-ImageNet and ImageNet with five seeds."
    ),
    source="recorded",
)
def fig4() -> Any:
    """Error and ECE by epoch, a column for each recipe."""
    made = figures.new_figure(2 * figures.COLUMN, 3.7)
    panels = made.subplots(2, len(_RECIPES), sharex="col")
    for (error, ece), recipe in zip(panels.T, _RECIPES, strict=True):
        evidence, first = lab_results()[recipe], recipe == _RECIPES[0]
        handles = draw_panel(error, "error", by_loss(_LOSSES, "test_error"), evidence)
        draw_panel(ece, "ECE", by_loss(_LOSSES, "test_ada_ece"), evidence)
        figures.percent(error.yaxis, 4)
        ece.set_ylim(bottom=0)
        title = TITLES[recipe].replace(" on ", "\non ")
        figures.style(error, title=title, ylabel="test error" if first else "")
        figures.style(ece, xlabel="epochs trained", ylabel="test ECE" if first else "")
    made.align_ylabels(panels[:, 0])
    figures.legend(panels[1, 0], list(handles.values()), list(handles), under=True, columns=3)
    return made


@figure(
    "How often AdaFocal updates its gammas",
    caption=(
        "Test error (left) and test ECE in 15 bins of equal mass (right) of a convolutional network on 20 Newsgroups, "
        "by epoch. AdaFocal updates its γ after every epoch, or every 10 batches. Lines are means over two seeds, "
        "bands reach from the lower to the higher. With few epochs, the more frequent updates end with the lower ECE."
    ),
    alt="Test error and test ECE over 6 epochs for cross-entropy, FLSD-53, AdaFocal and AdaFocal every 10 batches",
    differs=(
        "6 epochs, and updates after every epoch or 10 batches, not also after 50 and 1; the dynamics of γ are in Fig. "
        "5(b)."
    ),
    source="recorded",
)
def fig16() -> Any:
    """Error and ECE by epoch on 20 Newsgroups."""
    made = figures.new_figure(2 * figures.COLUMN, 2.5)
    axes = made.subplots(1, 2)
    looks: dict[str, Look] = {method: LOOKS[method] for method in _LOSSES}
    looks["adafocal-10"] = (figures.BLUE, ":", "s")
    for ax, name, label in zip(axes, ("test_error", "test_ada_ece"), ("error", "ECE"), strict=True):
        lines = [line_of(method, name, method_name(method), look) for method, look in looks.items()]
        handles = draw_panel(ax, label, lines, lab_results()[NEWS])
        figures.percent(ax.yaxis, 5)
        figures.style(ax, xlabel="epochs trained", ylabel=f"test {label}")
    figures.legend(axes[0], list(handles.values()), list(handles), under=True, columns=4)
    return made
