"""Measure a trained translation model: token-level ECE and NLL, and BLEU, at every temperature."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from focalcal.atomic import write_atomically
from focalcal.calibrators import TemperatureScaling
from focalcal.calibrators.base import FitReport
from focalcal.calibrators.search import Grid, temperatures_of
from focalcal.core.binning import Bins, bin_norm, bin_predictions, equal_width_edges
from focalcal.core.checks import require
from focalcal.errors import InputError
from focalcal_lab.data.dataset import DataSplits
from focalcal_lab.models.transformer import Transformer
from focalcal_lab.recipe import Calibration, Recipe
from focalcal_lab.run_folder import RunFolder
from focalcal_lab.run_results import MeasuredNumber
from focalcal_lab.translation.beam_search import LENGTH_PENALTY, beam_search
from focalcal_lab.translation.sentence_pairs import IGNORED, Pairs

Progress = Callable[[int, int, str], object]

SCHEMA = 1
# Logits that are worked on together on a CPU: they stay in the cache.
_BLOCK = {"cpu": 1 << 18}
_BLOCK_ON_ACCELERATORS = 1 << 26


class TemperedTokens:
    r"""Running sums of the tokens' calibration at many temperatures: no logits are kept.

    At temperature T a row's confidence is $1 / \sum_j e^{d_j / T}$ and its NLL $\log \sum_j e^{d_j / T} - d_y / T$,
    where $d$ are the distances of the logits to the largest one; whether it is right does not depend on T.

    >>> tokens = TemperedTokens((1.0, 2.0), num_bins=15)
    >>> tokens.update(torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 1, -100]))
    >>> tokens.num_tokens, [round(tokens.ece(T), 4) for T in (1.0, 2.0)], [round(tokens.nll(T), 4) for T in (1.0, 2.0)]
    (2, [0.3808, 0.2311], [1.1269, 0.8133])
    """

    def __init__(self, temperatures: Sequence[float], *, num_bins: int = 15) -> None:
        given = sorted(set(map(float, temperatures)))
        require(bool(given), "temperatures", "must have at least one", "none")
        wrong = [value for value in given if not 0 < value < math.inf]
        require(not wrong, "temperatures", "must be positive and finite", wrong[:1])
        self.temperatures, self.num_bins = tuple(given), num_bins
        self.bin_sums = torch.zeros(len(given), 4, num_bins, dtype=torch.float64)  # those of `Bins.sums`
        self.nll_sums = torch.zeros(len(given), dtype=torch.float64)

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Take in rows of logits (n, V) and their labels (n,); rows with the label -100 do not count."""
        rows = max(1, _BLOCK.get(logits.device.type, _BLOCK_ON_ACCELERATORS) // logits.shape[1])
        for some, wanted in zip(logits.split(rows), labels.split(rows), strict=True):
            kept = wanted != IGNORED
            if bool(kept.any()):
                self._add(some[kept], wanted[kept])

    def _add(self, logits: Tensor, labels: Tensor) -> None:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        largest, best = wide.max(1, keepdim=True)
        distance = wide - largest
        wanted = distance.gather(1, labels.unsqueeze(1)).squeeze(1)
        correct = best.squeeze(1) == labels
        for place, temperature in enumerate(self.temperatures):
            log_sum = (distance / temperature).exp_().sum(1).log()
            bins = bin_predictions((-log_sum).exp(), correct, num_bins=self.num_bins)
            self.bin_sums[place] += torch.stack(bins.sums())
            self.nll_sums[place] += float((log_sum - wanted / temperature).double().sum())

    def merge(self, other: TemperedTokens) -> TemperedTokens:
        """Take in what another one has seen; returns itself."""
        same = (self.temperatures, self.num_bins) == (other.temperatures, other.num_bins)
        require(same, "other", "must have the same temperatures and bins", "others")
        self.bin_sums += other.bin_sums
        self.nll_sums += other.nll_sums
        return self

    @property
    def num_tokens(self) -> int:
        """How many tokens were taken in."""
        return int(self.bin_sums[0, 0].sum())

    def bins(self, temperature: float) -> Bins:
        """The bins of confidence at one of the temperatures."""
        return Bins.of_sums(equal_width_edges(self.num_bins), *self.bin_sums[self._place(temperature)])

    def ece(self, temperature: float) -> float:
        """The expected calibration error of the tokens at one of the temperatures [mukhoti2020, Eq. 2]."""
        return float(bin_norm(self.bins(temperature), "l1"))

    def nll(self, temperature: float) -> float:
        """The mean NLL of the tokens at one of the temperatures."""
        return float(self.nll_sums[self._place(temperature)]) / self._counted()

    @property
    def error(self) -> float:
        """The share of tokens that are not the likeliest one."""
        return 1 - float(self.bin_sums[0, 3].sum()) / self._counted()

    def best_temperature(self, grid: Sequence[float]) -> float:
        """The temperature of a grid with the lowest ECE; of equals, the one nearest to 1."""
        values = {float(temperature): self.ece(temperature) for temperature in grid}
        least = min(values.values())
        equals = [temperature for temperature, value in values.items() if value <= least + 1e-12]
        return min(equals, key=lambda temperature: abs(math.log(temperature)))

    def _place(self, temperature: float) -> int:
        known = float(temperature) in self.temperatures
        require(known, "temperature", "must be one that was given at the start", temperature)
        return self.temperatures.index(float(temperature))

    def _counted(self) -> int:
        require(self.num_tokens > 0, "tokens", "must be taken in before they are measured", "none")
        return self.num_tokens


@torch.no_grad()
def measure_tokens(
    network: nn.Module,
    pairs: Pairs,
    temperatures: Sequence[float],
    *,
    num_bins: int = 15,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> TemperedTokens:
    """The tokens of a split's targets, each predicted from the true ones before it, at some temperatures."""
    tokens = TemperedTokens(temperatures, num_bins=num_bins)
    batches = list(pairs.by_length(batch_size))
    for done, rows in enumerate(batches, start=1):
        inputs, labels = pairs.batch(rows)
        tokens.update(network(inputs.to(device)), labels.to(device))
        progress(done, len(batches))
    return tokens


@dataclass(frozen=True)
class Translation:
    """A split in a network's words, in its order, and their BLEU (0 to 100) with sacrebleu's signature."""

    temperature: float
    hypotheses: list[str]
    bleu: float
    signature: str


def translate(
    network: Transformer,
    pairs: Pairs,
    decode: Callable[[list[int]], str],
    *,
    temperature: float,
    beams: int = 4,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> Translation:
    """Translate the sources of a split by beam search at a temperature, and compare with its target texts."""
    said: dict[int, str] = {}
    for rows in pairs.by_length(batch_size):
        inputs, _ = pairs.batch(rows)
        found = beam_search(network, inputs.to(device), beams=beams, temperature=temperature)
        said.update((row, decode(tokens)) for row, tokens in zip(rows, found, strict=True))
    hypotheses = [said[row] for row in range(pairs.num_pairs)]
    bleu, signature = corpus_bleu(hypotheses, [target for _, target in pairs.texts])
    return Translation(temperature, hypotheses, bleu, signature)


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU from 0 to 100 by sacrebleu, and the signature that says how.

    >>> corpus_bleu(["the dog is in the house"], ["the dog is in the house"])[0]
    100.0
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    # A perfect score comes out as 100.00000000000004.
    score = min(100.0, float(metric.corpus_score(list(hypotheses), [list(references)]).score))
    return score, str(metric.get_signature())


def conclude_translation(
    network: nn.Module,
    data: DataSplits,
    recipe: Recipe,
    folder: str | Path,
    device: torch.device | str,
    progress: Progress | None = None,
) -> tuple[list[MeasuredNumber], dict[str, Any]]:
    """Measure a trained translator as [mukhoti2020, Table 3, Fig. 5] do.

    The temperature with the lowest ECE of the validation split's tokens is fitted (of 0.1 to 10 in steps of 0.1, unless
    the recipe has another grid). ECE and NLL of the test split's tokens, as fractions and nats, and BLEU, from 0 to
    100, are measured without and with it, and along the recipe's `temperatures`, which with the validation ECE make
    Fig. 5. Tokens are those of the reference, each predicted from the true ones before it.

    Writes `translations.json` and `calibrators/temperature.json` into the folder.
    """
    calibration = _calibration(recipe)
    if not isinstance(network, Transformer):
        raise InputError(f"model: translation needs the model transformer; got {type(network).__name__}.")
    run = _Run(network, data, recipe, device, progress or (lambda done, total, what: None))
    training = network.training
    network.eval()
    try:
        return _concluded(run, calibration, RunFolder(folder))
    finally:
        network.train(training)


def _calibration(recipe: Recipe) -> Calibration:
    """The one calibrator that translation has, as the recipe calls it."""
    given = recipe.measurement.calibrators or [Calibration(phase="post", method="temperature", criterion="ece")]
    fine = all(each.method == "temperature" and each.criterion in (None, "ece") for each in given)
    got = ", ".join(f"{each.method} by {each.criterion}" for each in given)
    require(fine and len(given) == 1, "calibrators", "for translation must be one, temperature by ece", got)
    unknown = set(given[0].options) - {"grid"}
    require(not unknown, "options", "of translation's calibrator can only be grid", ", ".join(sorted(unknown)))
    return given[0]


@dataclass(frozen=True)
class _Run:
    network: Transformer
    data: DataSplits
    recipe: Recipe
    device: torch.device | str
    progress: Progress

    def tokens(self, split: str, temperatures: Sequence[float]) -> TemperedTokens:
        """The tokens of a split at some temperatures."""
        return measure_tokens(
            self.network,
            self.pairs(split),
            temperatures,
            num_bins=self.recipe.measurement.num_bins,
            batch_size=self.recipe.training.eval_batch_size,
            device=self.device,
            progress=lambda done, total: self.progress(done, total, f"{split} tokens"),
        )

    def translation(self, temperature: float) -> Translation:
        """The test split's translation at a temperature."""
        return translate(
            self.network,
            self.pairs("test"),
            self.data.facts["decode"],
            temperature=temperature,
            beams=self.recipe.measurement.beams,
            batch_size=self.recipe.training.eval_batch_size,
            device=self.device,
        )

    def pairs(self, split: str) -> Pairs:
        """A split, which must be sentence pairs."""
        pairs = getattr(self.data, split)
        if not isinstance(pairs, Pairs):
            raise InputError(f"data: must be sentence pairs, as of toy-translation; got {self.data.name}.")
        return pairs


def _concluded(run: _Run, calibration: Calibration, place: RunFolder) -> tuple[list[MeasuredNumber], dict[str, Any]]:
    measurement = run.recipe.measurement
    grid = calibration.options.get("grid", "mukhoti2020")
    temperatures = temperatures_of(grid)
    val = run.tokens("val", [1.0, *temperatures, *measurement.temperatures])
    best = val.best_temperature(temperatures)
    curve = sorted({1.0, best, *map(float, measurement.temperatures)})
    test, translations = run.tokens("test", curve), {}
    for done, temperature in enumerate(curve):
        run.progress(done, len(curve), f"translating at temperature {temperature:g}")
        translations[temperature] = run.translation(temperature)
    run.progress(len(curve), len(curve), "translated")
    _write_translations(run.pairs("test"), [translations[t] for t in dict.fromkeys((1.0, best))], place)
    _write_calibrator(val, best, grid, run.data.num_classes, place)
    rows = [
        MeasuredNumber(name, metric, value, temperature=fitted)
        for name, temperature, fitted in (("pre", 1.0, None), (calibration.phase, best, best))
        for metric, value in (
            ("ece_ew", test.ece(temperature)),
            ("nll", test.nll(temperature)),
            ("bleu", translations[temperature].bleu),
        )
    ]
    return rows, {
        "curve": [{"temperature": t, "val_ece": val.ece(t), "test_bleu": translations[t].bleu} for t in curve],
        "temperature": best,
        "val_ece": {f"{temperature:g}": val.ece(temperature) for temperature in temperatures},
        "token_error": test.error,
        "num_tokens": {"val": val.num_tokens, "test": test.num_tokens},
        "beams": measurement.beams,
        "length_penalty": LENGTH_PENALTY,
        "bleu": f"0 to 100, sacrebleu {translations[1.0].signature}",
    }


def _write_translations(pairs: Pairs, translations: list[Translation], place: RunFolder) -> None:
    document = {
        "schema": SCHEMA,
        "sources": [source for source, _ in pairs.texts],
        "references": [target for _, target in pairs.texts],
        "translations": [
            {"temperature": each.temperature, "bleu": each.bleu, "hypotheses": each.hypotheses} for each in translations
        ],
    }
    place.path.mkdir(parents=True, exist_ok=True)
    write_atomically(place.file("translations.json"), json.dumps(document, indent=1, ensure_ascii=False).encode())


def _write_calibrator(val: TemperedTokens, best: float, grid: Grid, num_classes: int, place: RunFolder) -> None:
    """The temperature as a calibrator's file, as a fit on all tokens' logits would have written it."""
    scaling, temperatures = TemperatureScaling("ece", grid=grid, num_bins=val.num_bins), temperatures_of(grid)
    report = FitReport(
        criterion="ece",
        before=val.ece(1.0),
        after=min(val.ece(best), val.ece(1.0)),
        iterations=len(temperatures),
        converged=True,
        at_boundary=best in (min(temperatures), max(temperatures)),
        kept_identity=val.ece(best) > val.ece(1.0) + 1e-12,
        num_rows=val.num_tokens,
    )
    state = {"num_classes": num_classes, "report": report.to_dict()}
    scaling.load_state_dict({"temperature_": torch.tensor(best, dtype=torch.float64), "_extra_state": state})
    place.file("calibrators").mkdir(parents=True, exist_ok=True)
    scaling.save(place.file("calibrators", "temperature.json"))
