"""Streaming measures under two gloo processes: the result of one call, on both of them."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path

import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from tests.ranks import ranked, run_ranks

pytestmark = [pytest.mark.slow, ranked]

CLASSES, ROWS, BATCH = 3, 203, 64
# What each rank has of the rows, and the precision of its logits (both: in turn).
CASES = {
    "uneven shares": ((0, 120, "float32"), (120, 203, "float32")),
    "uneven shares in float64": ((0, 80, "float64"), (80, 203, "float64")),
    "two rows on one rank": ((0, 201, "float32"), (201, 203, "float32")),
    "both precisions on each rank": ((0, 130, "both"), (130, 203, "both")),
    "no batch on the second rank": ((0, 203, "float32"), (0, 0, "float32")),
    "no batch on the first rank": ((0, 0, "float32"), (0, 203, "float32")),
    "no batch on the second rank in float64": ((0, 203, "float64"), (0, 0, "float64")),
    "no batch on the first rank in float64": ((0, 0, "float64"), (0, 203, "float64")),
    "another precision on each rank": ((0, 140, "float32"), (140, 203, "float64")),
}


def predictions(dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(3)
    logits = (3 * torch.randn(ROWS, CLASSES, generator=generator)).to(dtype)
    drawn = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    return logits, torch.where(torch.rand(ROWS, generator=generator) < 0.6, logits.argmax(1), drawn)


def batches_of(case: str, rank: int):
    start, end, precision = CASES[case][rank]
    for number, first in enumerate(range(start, end, BATCH)):
        dtype = ("float32", "float64")[number % 2] if precision == "both" else precision
        logits, labels = predictions(getattr(torch, dtype))
        yield logits[first : min(first + BATCH, end)], labels[first : min(first + BATCH, end)]


def families(streaming):
    return {
        "Scores": streaming.Scores(),
        "EqualWidth": streaming.EqualWidth(),
        "Classwise": streaming.Classwise(num_classes=CLASSES),
        "Sketch": streaming.Ranked("ada_ece", "ks_error", exact=False),
        "Ranked": streaming.Ranked(),
        "Everything": streaming.Everything(num_classes=CLASSES),
    }


def run_rank(rank: int, folder: str) -> None:
    """All cases one after the other: a file for each that came to its end."""
    from focalcal.metrics import streaming

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torchmetrics warns of a rank without batches
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    for number, case in enumerate(CASES):
        found = {}
        for family, metric in families(streaming).items():
            for batch in batches_of(case, rank):
                metric.update(*batch)
            own = [sum(len(keys) for keys in [*metric.keys, *metric.wide_keys])] if metric.lists else []
            found[family] = {name: float(value) for name, value in metric.compute().items()}
            if metric.lists:  # afterwards each rank has its own rows again
                own.append(sum(len(keys) for keys in [*metric.keys, *metric.wide_keys]))
                found[f"own rows of {family}"] = own
        found["evaluation"] = metric.evaluation().to_json()
        torch.save(found, f"{folder}/{number}.{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder in which both processes left what they found; processes that hang are ended."""
    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo backend")
    folder = tmp_path_factory.mktemp("ranks")
    # the cases that they did not come to say so
    (folder / "error.txt").write_text(run_ranks(run_rank, str(folder), world=2))
    return folder


def results(folder: Path, case: str) -> list[dict]:
    files = [folder / f"{list(CASES).index(case)}.{rank}.pt" for rank in range(2)]
    why = (folder / "error.txt").read_text()
    assert all(file.exists() for file in files), f"the processes did not come to the end of this case: {why}"
    return [torch.load(file, weights_only=True) for file in files]


@pytest.mark.parametrize("case", CASES)
def test_both_processes_get_the_result_of_one_call(finished, case):
    precisions = {precision for *_, precision in CASES[case]}
    pure = len(precisions) == 1 and "both" not in precisions
    logits, labels = predictions(getattr(torch, precisions.pop()) if pure else torch.float32)
    # With mixed precisions some confidences are rounded to float32, others not.
    close = 1e-12 if pure else 1e-6
    expected = fc.evaluate(logits, labels)
    first, second = results(finished, case)
    assert first["evaluation"] == second["evaluation"]
    for rank, found in enumerate((first, second)):
        evaluation = m.Evaluation.from_json(found["evaluation"])
        assert evaluation.n == ROWS
        assert torch.equal(evaluation.bins.count, expected.bins.count)
        assert torch.equal(evaluation.equal_mass_bins.count, expected.equal_mass_bins.count)
        assert evaluation.warnings == expected.warnings
        assert evaluation.definitions == expected.definitions
        numbers = {name: value for name, value in expected.to_dict().items() if isinstance(value, float)}
        if not pure:  # the number of bins of a sweep may jump
            numbers = {name: value for name, value in numbers.items() if "sweep" not in name}
        assert {name: getattr(evaluation, name) for name in numbers} == pytest.approx(numbers, abs=close, rel=0)
        for family in ("Scores", "EqualWidth", "Classwise", "Ranked"):
            named = {name: value for name, value in found[family].items() if name in numbers}
            if family == "EqualWidth":  # evaluate means the one with bins of equal mass
                named["ece_debiased"] = numbers["ece_debiased"]
            assert named == pytest.approx({name: numbers[name] for name in named}, abs=close, rel=0), family
            assert len(named) >= 1
        assert found["EqualWidth"]["ece_debiased"] == pytest.approx(
            m.ece_debiased(logits, labels, edges="equal_width"), abs=close, rel=0
        )
        assert found["Sketch"]["ada_ece"] == pytest.approx(expected.ada_ece, abs=1e-3)
        start, end, _ = CASES[case][rank]
        assert found["own rows of Ranked"] == found["own rows of Everything"] == [end - start] * 2
    assert first["Sketch"] == second["Sketch"]
