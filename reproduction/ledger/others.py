"""What neither a check nor a recorded result covers: which recipe would decide a claim, set-ups, and toy problems.

Each claim is in one table only; the build refuses a claim that is in none, or that another source covers as well.
"""

from __future__ import annotations

from typing import NamedTuple

from reproduction.claims.tools import Numbers, Outcome, Trend, counted, judged, paired
from reproduction.labels import LITTLE, LITTLE_20, MORE, NETWORKS, NEWS, SST


class Recipe(NamedTuple):
    """The recipe that would decide a claim, and why it cannot be decided here."""

    name: str
    why: str


class SetUp(NamedTuple):
    """The recipe that a set-up is written into, the tests that hold it to the paper, and a remark."""

    recipe: str
    tests: str
    remark: str


class Toy(NamedTuple):
    """The tests that hold what a toy problem shows."""

    tests: tuple[str, ...]


class Corrected(NamedTuple):
    """A claim that a simulation corrects: what is printed, what is true, the function and the test of it."""

    printed: str
    true: str
    check: str
    test: str


_HOURS = "Hours on a GPU for each run: the numbers belong to the paper's own networks and data."
_TABLE = "The numbers belong to the paper's own networks and data."
_CIFAR, _CIFAR_100 = "mukhoti2020/cifar10-resnet50", "mukhoti2020/cifar100-resnet50"
_ADAFOCAL, _IMAGENET = "ghosh2022/cifar10-resnet50", "ghosh2022/imagenet-resnet50"

# Also of every claim that the evidence pages call "not testable at this scale".
GPU: dict[str, Recipe] = {
    "mukhoti2020.ls.alpha": Recipe(
        _CIFAR, "Only alpha 0.05 was run here; a copy of the recipe with ls-0.1 decides it."
    ),
    "mukhoti2020.sec5.ece-adaece": Recipe("mukhoti2020/cifar10-wrn-26-10", _HOURS),
    "mukhoti2020.table5": Recipe(_CIFAR, _HOURS),
    "mukhoti2020.table6": Recipe(_CIFAR, _HOURS),
    "mukhoti2020.table7": Recipe(_CIFAR, _HOURS),
    "mukhoti2020.top5": Recipe(_CIFAR_100, "It needs 100 classes, and hours on a GPU for each run."),
    "mukhoti2020.table11": Recipe(
        _CIFAR, f"The maximum over 15 bins, some of a few rows, is mostly noise here. {_TABLE}"
    ),
    "mukhoti2020.table12": Recipe(
        _CIFAR, f"The maximum over 15 bins, some of a few rows, is mostly noise here. {_TABLE}"
    ),
    "mukhoti2020.fig9": Recipe(_CIFAR, "It is about eight images and one network."),
    "mukhoti2020.ood": Recipe(
        "ghosh2022/cifar10-resnet110", "The table is not in this version of the paper; the recipe measures its numbers."
    ),
    "mukhoti2020.bleu.max": Recipe("mukhoti2020/wmt14-en-de-transformer", _HOURS),
    "ghosh2022.appP": Recipe(_ADAFOCAL, "Only the first case was run in the experiments here; the recipe has both."),
    "ghosh2022.hyper.gamma-min": Recipe(
        _IMAGENET, "Gammas come near -2 on ImageNet only; a copy of the recipe with gamma_min -3 decides it."
    ),
    "ghosh2022.bins.best": Recipe(_ADAFOCAL, "AdaFocal was run with 15 bins only; the recipe has 5 to 50."),
    "ghosh2022.table7": Recipe(_ADAFOCAL, _HOURS),
    "ghosh2022.fig5.imagenet": Recipe(_IMAGENET, "It needs ImageNet, and days on a GPU."),
    "ghosh2022.switch.early": Recipe(_IMAGENET, "It needs ImageNet, and days on a GPU."),
    "ghosh2022.ood.unreproduced": Recipe("ghosh2022/cifar10-resnet110", _HOURS),
    "ghosh2022.appN.20": Recipe(_ADAFOCAL, "It compares nine long runs; gamma_max 20 alone was run here."),
    "ghosh2022.appN.50": Recipe(_ADAFOCAL, "AdaFocal was run with gamma_max 20 only; the recipe has 50 as well."),
    "ghosh2022.appN.inf": Recipe(
        _ADAFOCAL, "AdaFocal was run with gamma_max 20 only; the recipe has no bound as well."
    ),
    "ghosh2022.fig18-22": Recipe(_IMAGENET, "Numbers of single runs on ImageNet and CIFAR-10, days on a GPU."),
    "ghosh2022.overhead": Recipe(
        _ADAFOCAL,
        "The seconds are those of a Titan X. Of them, 350 x (2.886 + 0.008) s are 16.9 minutes, 3.66 % of 7.7 h.",
    ),
    "charoenphakdee2021.fig4.ls": Recipe(
        "charoenphakdee2021/cifar10-resnet110", "Focal loss with label smoothing was not run here; the recipe has it."
    ),
    "charoenphakdee2021.fig4.underconfident": Recipe(
        "charoenphakdee2021/svhn-resnet110", "It is about SVHN and label smoothing, which were not run here."
    ),
    "komisarenko2024.table1": Recipe("komisarenko2024/cifar10-resnet50", _HOURS),
    "komisarenko2024.table1.adafocal": Recipe("komisarenko2024/cifar100-resnet50", _HOURS),
    "komisarenko2024.table1.flsd-sign": Recipe("komisarenko2024/cifar10-resnet50", _HOURS),
}

_SET_UPS = "lab/tests/claims/test_setups.py::test_"
_TINY = (
    "lab/tests/data/test_imagenet.py::test_tiny_imagenet_keeps_a_tenth_of_each_class_and_tests_on_the_validation_folder"
)
_RECIPES = "lab/tests/test_recipes.py::test_"
SET_UPS: dict[str, SetUp] = {
    "mukhoti2020.sec3.setup": SetUp(
        _CIFAR, f"{_SET_UPS}cifar_of_mukhoti2020", "The third rate is printed 0001 and is 0.001; the decay is 5e-4."
    ),
    "mukhoti2020.appB.setup": SetUp(
        "mukhoti2020/four-clusters-linear",
        "lab/tests/test_synthetic.py::test_four_clusters_have_the_papers_sizes_and_flip_a_tenth_of_the_labels",
        "A tenth of the labels is flipped; scikit-learn's make_classification(flip_y=0.1) would flip half as many.",
    ),
    "mukhoti2020.appD.splits": SetUp(
        "mukhoti2020/20newsgroups-gp-cnn",
        f"{_SET_UPS}splits_of_mukhoti2020 {_TINY}",
        "The copy of 20 Newsgroups used here has other splits (10,414/900/7,532); SST has the printed ones.",
    ),
    "mukhoti2020.appD.cifar": SetUp(
        _CIFAR, f"{_SET_UPS}cifar_of_mukhoti2020", "Crops and flips are the loader's default."
    ),
    "mukhoti2020.appD.tiny": SetUp(
        "mukhoti2020/tiny-imagenet-resnet50", f"{_SET_UPS}tiny_imagenet_of_mukhoti2020", "40, 20 and 40 epochs."
    ),
    "mukhoti2020.appD.text": SetUp(
        "mukhoti2020/20newsgroups-gp-cnn+glove",
        f"{_SET_UPS}text_of_mukhoti2020",
        "SST is mukhoti2020/sst-binary-tree-lstm+glove.",
    ),
    "mukhoti2020.appD.mmce": SetUp(_CIFAR, f"{_SET_UPS}mmce_of_mukhoti2020", "The weight is 8 in the recipes of text."),
    "ghosh2022.appD.recipes": SetUp(
        _IMAGENET,
        f"{_SET_UPS}recipes_of_ghosh2022",
        "Weight decay on CIFAR is not printed; 5e-4 is that of the released code.",
    ),
    "ghosh2022.appD.splits": SetUp(
        _IMAGENET,
        "lab/tests/data/test_imagenet.py::test_imagenet_s_validation_images_are_split_in_halves",
        "The loader halves the validation images.",
    ),
    "ghosh2022.appD.selection": SetUp(
        "ghosh2022/tiny-imagenet-resnet50",
        f"{_SET_UPS}selection_of_ghosh2022",
        "`select: best` or `last` in each recipe.",
    ),
    "ghosh2022.fig53": SetUp(
        "ghosh2022/svhn-resnet110",
        f"{_RECIPES}updates_of_gamma_follow_the_appendices",
        "It is the method adafocal-schedule.",
    ),
    "charoenphakdee2021.fig3.data": SetUp(
        "charoenphakdee2021/one-dimensional-mlp",
        f"{_SET_UPS}one_dimensional_of_charoenphakdee2021",
        "The paper only draws its densities; ours are three normal distributions (docs/toy_problems.md).",
    ),
    "charoenphakdee2021.sec6.setup": SetUp(
        "charoenphakdee2021/cifar10-resnet110",
        f"{_SET_UPS}images_of_charoenphakdee2021",
        "Twelve recipes, one a network and data set.",
    ),
    "charoenphakdee2021.tsfl.def": SetUp(
        "charoenphakdee2021/cifar10-resnet20",
        f"{_SET_UPS}ts_fl_has_the_lowest_focal_loss_on_validation_data",
        "It is the phase ts-fl: TemperatureScaling by the focal loss of the gamma of training.",
    ),
    "komisarenko2024.sec5.setup": SetUp(
        "komisarenko2024/cifar10-resnet50", f"{_SET_UPS}recipes_of_komisarenko2024", "Five seeds are --seeds 5."
    ),
}

_PROBLEMS = "lab/tests/test_problems.py::test_"
_LINE = (f"{_PROBLEMS}fig3_only_psi_recovers_the_posterior", f"{_PROBLEMS}limits_are_integrals_over_the_line[1.0]")
# The tests of the claims that the evidence pages call "shown elsewhere", or looked for there and not seen.
TOYS: dict[str, Toy] = {
    "mukhoti2020.appB.norms": Toy(
        (f"{_PROBLEMS}fig7_norms_of_cross_entropy_are_above_those_of_focal_loss_at_every_epoch_and_grow",)
    ),
    "mukhoti2020.appB.boundary": Toy((f"{_PROBLEMS}fig8_both_losses_have_the_same_decision_regions",)),
    "mukhoti2020.appB.confidence": Toy(
        (f"{_PROBLEMS}fig8_almost_always_over_90_percent_does_not_hold_with_a_tenth_of_labels_flipped",)
    ),
    "charoenphakdee2021.fig3.err": Toy(_LINE),
    "charoenphakdee2021.fig3.uc": Toy(_LINE),
    "charoenphakdee2021.fig3.ts": Toy(_LINE),
    "charoenphakdee2021.fig3.psi": Toy(_LINE),
}

SIMULATED: dict[str, Corrected] = {
    "ghosh2022.appF.bias": Corrected(
        "Equal-mass ECE has lower statistical bias than equal-width ECE.",
        (
            "It depends on the confidences. Where nearly all are close to 1 (0.1 + 0.9 Beta(2.77, 0.04)), 1,000 "
            "calibrated rows have a mean ECE of 0.3 % by equal mass and 0.7 % by equal width; where they are spread "
            "out (0.1 + 0.9 Beta(5, 1)), 3.1 % and 2.5 %: more."
        ),
        "reproduction.ledger.bias.ece_bias",
        "reproduction/tests/test_ledger.py::test_equal_mass_ece_has_the_lower_bias_only_where_confidences_crowd_at_1",
    )
}


def _line_search(*found: Numbers) -> Outcome:
    """AdaECE after the search along a line against that after the full grid."""
    pairs = paired(found, "fts-line - fts", "ece_em")
    means = [
        100 * sum(each[0] for each in row) / len(row)
        for row in ([*paired([one], "fts-line - fts", "ece_em")] for one in found)
    ]
    parts = [f"{one.title} {mean:+.2f}" for one, mean in zip(found, means, strict=True)]
    sentence = (
        f"With the line's 3m trials instead of the full grid AdaECE is {counted(pairs)}; by experiment, points: "
        f"{', '.join(parts)}. That the trials are at most 3m is tested."
    )
    return judged([mean <= 0 for mean in means], sentence)


# Claims that are neither trend nor table, yet the result files say something about them; and a further test of each.
MEASURED: dict[str, tuple[Trend, str]] = {
    "komisarenko2024.search-3m": (
        Trend(_line_search, (LITTLE, LITTLE_20, MORE, NEWS, SST, NETWORKS)),
        "tests/calibrators/test_focal.py::test_the_line_passes_through_the_optima_of_gamma_zero_and_one",
    )
}
