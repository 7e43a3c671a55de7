"""Tables of docs/results/translation.md."""

from __future__ import annotations

from reproduction.labels import TRANSLATION, method_name
from reproduction.markdown import MarkdownTable, spread, table
from reproduction.recipe_numbers import RecipeNumbers
from reproduction.result_files import RunEvidence

# mukhoti2020 Table 3: ECE before and after scaling in percent, temperature, BLEU before and after.
_PUBLISHED = {
    "ce": ("10.16", "2.59", "1.2", "26.31", "26.21"),
    "ls-0.1": ("3.25", "3.25", "1.0", "26.33", "26.33"),
    "fl-1": ("1.69", "1.69", "1.0", "26.39", "26.39"),
}


@table("translation.scaling", TRANSLATION)
def scaling(numbers: RecipeNumbers) -> MarkdownTable:
    """ECE and BLEU before and after scaling, beside those of the paper."""
    rows = []
    for method in numbers.methods:
        ece, bleu = ([numbers.values(method, name, phase) for phase in ("pre", "post")] for name in ("ece_ew", "bleu"))
        rows.append(["here", method_name(method), *map(spread, (*ece, numbers.temperatures(method), *bleu))])
    rows += [["WMT14", method_name(method), *values] for method, values in _PUBLISHED.items()]
    return MarkdownTable(["data", "loss", "ECE, %", "ECE after, %", "T", "BLEU", "BLEU after"], rows, words=2)


def curve_of(run: RunEvidence) -> dict[float, tuple[float, float]]:
    """Validation ECE in percent and test BLEU by temperature."""
    points = sorted(run.extra["curve"], key=lambda point: float(point["temperature"]))
    return {point["temperature"]: (100 * point["val_ece"], point["test_bleu"]) for point in points}


def _best(run: RunEvidence) -> list[float]:
    """The temperatures of the lowest ECE and of the highest BLEU, that BLEU, and what is lost at the first and at 1.

    Of equal ECEs the temperature nearest to 1 counts, of equal BLEUs the one nearest to that of the lowest ECE.
    """
    curve = curve_of(run)
    lowest = min(curve, key=lambda t: (curve[t][0], abs(t - 1)))
    highest = max(curve, key=lambda t: (curve[t][1], -abs(t - lowest)))
    bleu = curve[highest][1]
    return [lowest, highest, bleu, bleu - curve[lowest][1], bleu - curve[1.0][1]]


@table("translation.curve", TRANSLATION)
def curve(numbers: RecipeNumbers) -> MarkdownTable:
    """Where ECE is lowest and BLEU is highest."""
    headings = ["loss", "T, lowest ECE", "T, highest BLEU", "highest BLEU", "lost at lowest ECE", "lost at T = 1"]
    rows = [
        [method_name(method), *map(spread, map(list, zip(*map(_best, numbers.runs(method)), strict=True)))]
        for method in numbers.methods
    ]
    return MarkdownTable(headings, rows)


@table("translation.tokens", TRANSLATION)
def tokens(numbers: RecipeNumbers) -> MarkdownTable:
    """NLL and error of tokens."""
    rows = []
    for method in numbers.methods:
        nll = [spread(numbers.values(method, "nll", phase), 3) for phase in ("pre", "post")]
        rows.append(
            [method_name(method), *nll, spread([100 * run.extra["token_error"] for run in numbers.runs(method)])]
        )
    return MarkdownTable(["loss", "NLL", "NLL after", "wrong tokens, %"], rows)
