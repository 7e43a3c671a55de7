"""Gammas of AdaFocal by bin: the table and sentences of the last record, and the figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from focalcal.drawing import PALETTE
from reproduction.labels import bullets, how_many, spread, table
from reproduction.pages.dynamics.drawing import Drawing, Line
from reproduction.pages.dynamics.records import bin_at, bin_series, bins, monitored
from reproduction.pages.dynamics.section import Section
from reproduction.result_files import Evidence, RunEvidence

# Where the bins lie that are shown, as shares of all bins.
_SHARES = {0: "first bin", 0.25: "bin at a quarter", 0.5: "middle bin", 0.75: "bin at three quarters", 1: "last bin"}


def _tell(evidence: Evidence) -> Iterator[str]:
    runs = [records[-1] for run in monitored(evidence, "adafocal") if (records := _records(run))]
    if not runs:
        return
    shown = _some_bins(min(map(len, runs)))
    yield table(
        ["AdaFocal, last record", *(f"bin {place}" for place in shown)],
        [["gamma", *(spread([gammas[place] for gammas in runs]) for place in shown)]],
    )
    everything = [gamma for gammas in runs for gamma in gammas]
    yield bullets(
        [
            f"Gammas at the last record lie between {min(everything):.2f} and {max(everything):.2f}; below 0, which is "
            f"inverse focal loss, in {how_many([gamma < 0 for gamma in everything], 'bins')}.",
            "Gamma of the first bin is above that of the last in "
            f"{how_many([gammas[0] > gammas[-1] for gammas in runs])}.",
        ]
    )


def _records(run: RunEvidence) -> list[list[float]]:
    """The gammas of every record that has one in each bin."""
    return [gammas for gammas in bins(run, "gamma") if gammas and len(gammas) > 1 and None not in gammas]


def _some_bins(number: int) -> list[int]:
    """The first, the last, the middle bin, and those between.

    >>> _some_bins(15), _some_bins(2)
    ([0, 4, 7, 10, 14], [0, 1])
    """
    return sorted({bin_at(share, number) for share in _SHARES})


def gap(run: RunEvidence, share: float) -> dict[int, float]:
    """Validation confidence minus accuracy of the bin at a share of all bins."""
    confidence, accuracy = (bin_series(run, name, share) for name in ("val_confidence", "val_accuracy"))
    return {done: value - accuracy[done] for done, value in confidence.items() if done in accuracy}


def _lines(values: Callable[..., dict[int, float]]) -> list[Line]:
    looks = zip(PALETTE, ("-", "--", "-.", ":", (0, (6, 1.5))), "os^Dv", strict=False)
    made = zip(_SHARES.items(), looks, strict=True)
    return [Line("adafocal", partial(values, share=share), name, look) for (share, name), look in made]


SECTION = Section(
    "Gammas of AdaFocal",
    "ghosh2022 Fig. 5(a): on CIFAR-10, gamma settles near 1 in high bins and near 20 in low bins, and stays above 0.",
    _tell,
    (
        Drawing(
            "gamma",
            {"gap": _lines(gap), "gamma": _lines(partial(bin_series, name="gamma"))},
            "Validation confidence minus accuracy, and gamma, of five validation bins by epoch with AdaFocal",
            "AdaFocal: validation confidence minus accuracy, and the gamma that each epoch began with, after ghosh2022 "
            "Fig. 5.",
        ),
    ),
)
