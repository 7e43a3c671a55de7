"""All that `evaluate` needs of any number of rows, added up batch by batch and merged."""

from __future__ import annotations

import math

import numpy as np
import torch

from focalcal.core.binning import Bins, bin_norm
from focalcal.core.ranking import Array
from focalcal.core.reader import ChunkReader
from focalcal.metrics import calibration, ranked
from focalcal.metrics import scores as score_measures
from focalcal.metrics.classes import ClassBinSums
from focalcal.metrics.evaluation import Evaluation
from focalcal.metrics.rows import COLUMNS, Measured
from focalcal.metrics.summary import SCORES, Summary
from focalcal.predictions.arrays import Chunk, Kind

# With fewer rows, the accuracy of a bin is uncertain by more than 10 points or so.
_FEW_ROWS = 50


class Tally:
    """Sums, bins and confidences of rows; beyond `most_rows` a histogram takes the place of confidences.

    >>> one, two = Tally(2, "logits"), Tally(2, "logits")
    >>> one.add(Chunk(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), None))
    >>> two.add(Chunk(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), None))
    >>> one.merge(two).evaluation().accuracy
    0.5
    """

    def __init__(
        self, num_classes: int, kind: Kind, *, num_bins: int = 15, classwise: bool = True, most_rows: int | None = None
    ) -> None:
        self.num_classes, self.kind, self.num_bins = num_classes, kind, num_bins
        self.summary = Summary(num_classes, num_bins=num_bins, scores=SCORES, most_rows=most_rows)
        self.classes = ClassBinSums(num_classes, num_bins) if classwise else None
        self.label_counts = np.zeros(num_classes)

    def add(self, chunk: Chunk) -> None:
        """Take in some rows."""
        reader = ChunkReader(chunk, self.kind)
        self.summary.add(reader.columns(COLUMNS), chunk.weight)
        self.label_counts += torch.bincount(chunk.labels, minlength=self.num_classes).cpu().numpy()
        if self.classes is not None:
            weight = None if chunk.weight is None else torch.from_numpy(chunk.weight)
            self.classes.add(reader.probs, chunk.labels, weight)

    def merge(self, other: Tally) -> Tally:
        """The tally of both sets of rows."""
        merged = Tally(self.num_classes, self.kind, num_bins=self.num_bins, classwise=False)
        merged.summary = self.summary.merge(other.summary)
        merged.label_counts = self.label_counts + other.label_counts
        if self.classes is not None and other.classes is not None:
            merged.classes = self.classes.merge(other.classes)
        return merged

    def evaluation(self) -> Evaluation:
        """Every measure of the rows so far."""
        class_bins = None if self.classes is None else self.classes.bins()
        return _evaluation(self.summary, kind=self.kind, class_bins=class_bins, present=self.label_counts > 0)


def _evaluation(summary: Summary, *, kind: str, class_bins: Bins | None, present: Array) -> Evaluation:
    """Every public measure, called on the summary."""
    num_bins = summary.num_bins
    fewer = min(num_bins, summary.num_rows)  # bins of equal mass hold a row each
    parts = calibration.brier_decomposition(summary, num_bins=num_bins)
    entropies, sure = score_measures.entropy(summary), score_measures.s99(summary)
    measured: dict[str, Measured | None] = {
        "accuracy": score_measures.accuracy(summary),
        "error": score_measures.error(summary),
        "nll": score_measures.nll(summary),
        "brier": score_measures.brier(summary),
        "brier_calibration": parts.calibration,
        "brier_refinement": parts.refinement,
        "mean_confidence": score_measures.mean_confidence(summary),
        "entropy": entropies.overall,
        "entropy_correct": entropies.correct,
        "entropy_wrong": entropies.wrong,
        "ece": calibration.ece(summary, num_bins=num_bins),
        "rms_ce": calibration.ece(summary, num_bins=num_bins, norm="l2"),
        "mce": calibration.mce(summary, num_bins=num_bins),
        "ada_ece": calibration.ada_ece(summary, num_bins=fewer),
        "classwise_ece": None if class_bins is None else _classwise(class_bins),
        "ece_debiased": calibration.ece_debiased(summary, num_bins=fewer),
        "ece_debiased_l1": calibration.ece_debiased(summary, num_bins=fewer, norm="l1"),
        "ece_sweep": calibration.ece_sweep(summary),
        "ece_sweep_equal_width": calibration.ece_sweep(summary, edges="equal_width"),
        "smooth_ece": ranked.smooth_ece(summary),
        "ks_error": ranked.ks_error(summary),
        "mmce": ranked.mmce(summary),
        "top_5_accuracy": score_measures.top_k_accuracy(summary, k=5) if summary.num_classes >= 5 else None,
        "s99": sure.share,
        "s99_accuracy": sure.accuracy,
        "aurc": ranked.aurc(summary),
        "auroc_correctness": ranked.auroc_correctness(summary),
    }
    values = {name: None if value is None or math.isnan(value) else float(value) for name, value in measured.items()}
    bins, equal_mass = summary.bins(num_bins, "equal_width"), summary.bins(fewer, "equal_mass")
    return Evaluation(
        n=summary.num_rows,
        num_classes=summary.num_classes,
        num_bins=num_bins,
        kind=kind,
        bins=bins,
        equal_mass_bins=equal_mass,
        warnings=(*_warnings(bins, equal_mass, num_bins, present, values["nll"]), *_of_histogram(summary, fewer)),
        definitions={name: value.definition for name, value in measured.items() if value is not None},
        **values,  # type: ignore[arg-type]
    )


def _classwise(bins: Bins) -> Measured:
    num_bins = bins.count.shape[-1]
    value = float(bin_norm(bins, "l1").mean())
    return Measured(value, f"ECE, mean over classes, {num_bins} equal-width bins, l1")


def _warnings(bins: Bins, equal_mass: Bins, num_bins: int, present: Array, nll: float | None) -> tuple[str, ...]:
    """What a reader should know before trusting the numbers."""
    found = []
    thin = int(((bins.count > 0) & (bins.count < _FEW_ROWS)).sum())
    if thin:
        found.append(f"{thin} of {num_bins} equal-width bins hold fewer than {_FEW_ROWS} rows: mce rests on few rows.")
    if float(equal_mass.count.min()) < _FEW_ROWS:
        found.append(f"Bins of equal mass hold fewer than {_FEW_ROWS} rows each: ada_ece is biased upwards.")
    if len(equal_mass.count) < num_bins:
        found.append(
            f"There are only {len(equal_mass.count)} rows: that many bins of equal mass instead of {num_bins}."
        )
    absent = np.flatnonzero(~present)
    if len(absent):
        named = ", ".join(map(str, absent[:5])) + (", ..." if len(absent) > 5 else "")
        found.append(f"{len(absent)} of {len(present)} classes do not occur in the labels: {named}.")
    if nll is not None and math.isinf(nll):
        found.append("Some label has probability 0: nll is infinite.")
    return tuple(found)


def _of_histogram(summary: Summary, num_bins: int) -> list[str]:
    """What a histogram of confidences means for the measures that need their order."""
    kept = summary.confidences
    if kept is None or kept.exact:
        return []
    bound = kept.error_bound(num_bins)
    return [
        f"Confidences of {kept.num_rows:,} rows are kept as a histogram of 65,536 cells: ada_ece is within {bound:.1g} "
        "of exact; ece_debiased, ece_sweep, smooth_ece, ks_error, mmce, aurc and auroc_correctness rest on it, too."
    ]
