"""Numbers over seeds as tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import TypeAlias

from reproduction.result_files import Evidence, RunEvidence

All: TypeAlias = "Mapping[str, Evidence]"

# The recipes of the experiments, and what pages call them.
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
# What tables call the losses.
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
# What tables call the phases.
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
# Measures by the names of result files: their headings, what they are multiplied by, and the digits to show.
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
    """What tables call a method.

    >>> method_name("flsd-53"), method_name("fl-3.1")
    ('FLSD-53', 'FL-3.1')
    """
    return METHODS.get(method, method.upper() if method.startswith("fl-") else method)


def over_seeds(evidence: Evidence, method: str, phase: str, measure: str) -> list[float]:
    """A measure of every seed of a method, in the units of tables."""
    factor = MEASURES[measure][1]
    found = (run.phases.get(phase, {}).get(measure) for run in evidence.of(method))
    return [factor * each[0] for each in found if each is not None and each[0] is not None]


def each_run(evidence: Iterable[Evidence], value: Callable[[RunEvidence], float | None]) -> list[float]:
    """A number of every run that has it."""
    found = (value(run) for each in evidence for run in each.runs)
    return [number for number in found if number is not None]


def spread(values: Sequence[float], digits: int = 2, *, bold: bool = False) -> str:
    """The mean over seeds and their standard deviation.

    >>> spread([1.0, 2.0, 3.0]), spread([1.25], 1), spread([])
    ('2.00 ± 1.00', '1.2', '')
    """
    if not values:
        return ""
    mean = f"{fmean(values):.{digits}f}"
    mean = f"**{mean}**" if bold else mean
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean


def cells(evidence: Evidence, methods: Sequence[str], phase: str, measure: str) -> list[str]:
    """A column of a table: a measure of each method over seeds, the lowest mean in bold."""
    values = [over_seeds(evidence, method, phase, measure) for method in methods]
    digits = MEASURES[measure][2]
    means = [round(fmean(each), digits) for each in values if each]
    return [spread(each, digits, bold=bool(each) and round(fmean(each), digits) == min(means)) for each in values]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """A Markdown table; the first `words` columns are words, the others numbers.

    >>> print(table(["loss", "ECE, %"], [["FL-1", "3.2"]]))
    | loss | ECE, % |
    |---|---:|
    | FL-1 | 3.2 |
    <BLANKLINE>
    """
    lines = [" | ".join(headings), None, *(" | ".join(row) for row in rows)]
    rule = "|" + "|".join("---" if place < words else "---:" for place in range(len(headings))) + "|"
    return "".join(f"{rule}\n" if line is None else f"| {line} |\n" for line in lines)


def minutes(evidence: Evidence) -> float:
    """The time of all runs, one after another on the threads that they had, in minutes."""
    return sum(run.seconds for run in evidence.runs) / 60


def seeds_of(evidence: Evidence) -> int:
    """The number of seeds that every method has at least."""
    return min(len(evidence.of(method)) for method in evidence.methods)


def found_of(evidence: All, names: Iterable[str]) -> tuple[list[Evidence], list[str]]:
    """The result files of some recipes that have runs, and a sentence about those that do not."""
    names = list(names)
    there = [evidence[name] for name in names if name in evidence and evidence[name].methods]
    missing = [f"`{name}`" for name in names if name not in {each.name for each in there}]
    return there, [f"There are no results of {listed(missing)}: left out."] if missing else []


def listed(words: Sequence[str]) -> str:
    """Words as a list within a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def joined(parts: Iterable[str]) -> str:
    """The parts of a page, those left out that are empty."""
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(sentences: Iterable[str]) -> str:
    """Sentences as a list, one a line; those that have nothing to say are empty and left out."""
    return "\n".join(f"- {sentence}" for sentence in sentences if sentence)


def title_of(evidence: Evidence) -> str:
    """What pages call a recipe."""
    return TITLES.get(evidence.name, evidence.name)


def capital(words: str) -> str:
    """Words at the beginning of a sentence.

    >>> capital("cross-entropy")
    'Cross-entropy'
    """
    return words[:1].upper() + words[1:]


def spoken(method: str) -> str:
    """What sentences call a method: without a comma.

    >>> spoken("adafocal-10")
    'AdaFocal every 10 batches'
    """
    return method_name(method).replace(", ", " ")


def how_many(flags: Sequence[bool], noun: str = "runs") -> str:
    """How many of some runs.

    >>> how_many([True, True]), how_many([True, False, False]), how_many([False, False]), how_many([True])
    ('all 2 runs', '1 of 3 runs', 'none of 2 runs', '1 of 1 run')
    """
    total, held = len(flags), sum(flags)
    if total == 1:
        return f"{held} of 1 {noun.removesuffix('s')}"
    return f"all {total} {noun}" if held == total else f"{held or 'none'} of {total} {noun}"


def gamma_of(method: str) -> float | None:
    """The training gamma of a method with a fixed one.

    >>> gamma_of("ce"), gamma_of("fl-3.1"), gamma_of("flsd-53")
    (0.0, 3.1, None)
    """
    if method == "ce":
        return 0.0
    try:
        return float(method.removeprefix("fl-")) if method.startswith("fl-") else None
    except ValueError:
        return None
