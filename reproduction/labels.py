"""The names under which tables and figures show recipes, losses, calibrators and measures."""

from __future__ import annotations

# The recipes of the experiments.
LITTLE, LITTLE_20, MORE = "cpu/cifar10-s-resnet8", "cpu/cifar10-s-resnet20", "cpu/cifar10-resnet8"
NEWS, SST, TRANSLATION = "cpu/20newsgroups-gp-cnn", "cpu/sst-binary-tree-lstm", "cpu/toy-translation"
NETWORKS = "cpu/cifar10h-networks"
TITLES = {
    LITTLE: "ResNet-8 on CIFAR10-s",
    LITTLE_20: "ResNet-20 on CIFAR10-s",
    MORE: "ResNet-8 on half of CIFAR-10",
    NEWS: "GP-CNN on 20 Newsgroups",
    SST: "Tree-LSTM on SST",
    TRANSLATION: "toy translation",
    NETWORKS: "published CIFAR-10 networks",
}
IMAGES, TEXT = (LITTLE, LITTLE_20, MORE), (NEWS, SST)
TRAINED = (*IMAGES, *TEXT)
METHODS = {
    "ce": "cross-entropy",
    "brier": "Brier",
    "mmce": "MMCE",
    "ls-0.05": "LS-0.05",
    "ls-0.1": "LS-0.1",
    "fl-1": "FL-1",
    "fl-2": "FL-2",
    "fl-3": "FL-3",
    "fl-4": "FL-4",
    "fl-5": "FL-5",
    "fl-7": "FL-7",
    "flsc-531": "FLSc-531",
    "flsd-53": "FLSD-53",
    "calfocal": "CalFocal",
    "adafocal": "AdaFocal",
    "adafocal-10": "AdaFocal, every 10 batches",
}
# "pre" is the network as trained; the other phases are calibrators.
PHASES = {
    "pre": "as trained",
    "post": "TS by ECE",
    "ts-nll": "TS by NLL",
    "ts-ada": "TS by AdaECE",
    "fts": "FTS, full grid",
    "fts-line": "FTS, line",
    "fts-nll": "FTS by NLL",
    "ets": "ETS",
    "spline": "spline",
    "psi": "Psi^gamma",
    "ts-fl": "TS_FL",
    "ts-fl+psi": "TS_FL, then Psi^gamma",
}
# Measures by the names of result files: heading, factor to the unit of tables, digits.
MEASURES = {
    "error": ("error, %", 100, 2),
    "nll": ("NLL", 1, 3),
    "brier": ("Brier", 1, 3),
    "ece_ew": ("ECE, %", 100, 2),
    "ece_em": ("AdaECE, %", 100, 2),
    "ece_debias": ("debiased ECE, %", 100, 2),
    "ece_sweep_em": ("sweep ECE, %", 100, 2),
    "s99_fraction": ("over 99 % sure, %", 100, 1),
    "bleu": ("BLEU", 1, 2),
}


def method_name(method: str) -> str:
    """The name of a method in tables; published networks keep theirs.

    >>> method_name("flsd-53"), method_name("fl-3.1"), method_name("LeNet-5")
    ('FLSD-53', 'FL-3.1', 'LeNet-5')
    """
    return METHODS.get(method, method.upper() if method.startswith("fl-") else method)


def short_name(recipe: str) -> str:
    """The name of a recipe without its folder.

    >>> short_name("cpu/cifar10-s-resnet8")
    'cifar10-s-resnet8'
    """
    return recipe.rpartition("/")[2]


def measure_name(measure: str) -> str:
    """The name of a measure without its unit.

    >>> measure_name("ece_em")
    'AdaECE'
    """
    return MEASURES[measure][0].removesuffix(", %")


def listed(words: list[str]) -> str:
    """Words as a list within a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
