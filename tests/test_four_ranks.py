"""Four gloo processes: the results of one, and what goes wrong on one rank is the same error on all, at once.

All cases run one after another in one group of processes, which a module-wide fixture starts.
"""

from __future__ import annotations

import datetime
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import focalcal as fc
from tests.ranks import ranked, run_ranks

pytestmark = [pytest.mark.slow, ranked]

WORLD, CLASSES, ROWS = 4, 5, 301
SHARES = (0, 40, 50, 150, ROWS)  # unequal


def validation(epoch: int = 0):
    generator = torch.Generator().manual_seed(epoch)
    logits = 4 * torch.randn(ROWS, CLASSES, generator=generator)
    return logits, torch.where(torch.rand(ROWS, generator=generator) < 0.6, logits.argmax(1), 0)


def share(rank: int, epoch: int = 0):
    return tuple(values[SHARES[rank] : SHARES[rank + 1]] for values in validation(epoch))


def spoiled(rank: int, on: int):
    """The share of a rank, with a NaN in that of one of them."""
    logits, labels = share(rank)
    if rank == on:
        logits = logits.clone()
        logits[3, 2] = torch.nan
    return logits, labels


# Losses --------------------------------------------------------------------------------------------------------------


def five_updates(rank: int) -> list[Any]:
    loss = fc.AdaFocalLoss(lam=3.0)
    for epoch in range(5):
        logits, labels = share(rank, epoch)
        if epoch < 4:
            loss.update(logits, labels)
            continue
        # a rank may have nothing to give
        if rank == 0:
            loss.accumulate(*(values[: SHARES[2]] for values in validation(epoch)))
        elif rank > 1:
            loss.accumulate(logits, labels)
        loss.step()
    return [loss.gamma.tolist(), loss.edges.tolist(), loss.get_extra_state().tolist()]


def nan_in_update(rank: int) -> None:
    loss = fc.AdaFocalLoss()
    try:
        loss.update(*spoiled(rank, on=2))
    finally:
        assert loss.gamma.tolist() == [1.0] * 15
        loss.update(*share(rank))  # the next one is none the worse for it
        assert len(loss.history["gamma"]) == 1


def nan_in_one_batch_of_many(rank: int) -> None:
    loss = fc.CalFocalLoss()
    for some in spoiled(rank, on=3), share(rank):
        loss.accumulate(*some)
    loss.step()


def a_label_too_large_on_the_first_rank(rank: int) -> None:
    logits, labels = share(rank)
    fc.AdaFocalLoss().update(logits, labels + 9 * (rank == 0))


def no_tensor_at_all(rank: int) -> None:
    fc.AdaFocalLoss().update(*(share(rank) if rank != 1 else (None, None)))


def a_loader_that_fails(rank: int) -> None:
    def batches():
        yield share(rank)
        if rank == 3:
            raise OSError("the disk is gone")

    fc.AdaFocalLoss().update_from(batches(), lambda inputs: inputs)


def rows_too_few(rank: int) -> None:
    logits, labels = share(rank)
    fc.AdaFocalLoss().update(logits[:3], labels[:3])


def differing(kind: type, name: str, usual: Any, other: Any) -> Callable[[int], None]:
    def case(rank: int) -> None:
        kind(**{name: other if rank == 2 else usual}).update(*share(rank))

    return case


SETTINGS = {
    "num_bins": (fc.AdaFocalLoss, 15, 10),
    "lam": (fc.AdaFocalLoss, 1.0, 1.5),
    "gamma_init": (fc.AdaFocalLoss, 1.0, 2.0),
    "gamma_max": (fc.AdaFocalLoss, 20.0, 50.0),
    "gamma_min": (fc.AdaFocalLoss, -2.0, -1.0),
    "switch_at": (fc.AdaFocalLoss, 0.2, 0.5),
    "ignore_index": (fc.AdaFocalLoss, -100, 0),
    "reduction": (fc.AdaFocalLoss, "mean", "sum"),
    "label_smoothing": (fc.CalFocalLoss, 0.0, 0.1),
    "per_sample": (fc.CalFocalLoss, False, True),
}


def another_loss(rank: int) -> None:
    (fc.CalFocalLoss() if rank == 1 else fc.AdaFocalLoss()).update(*share(rank))


def a_checkpoint_on_one_rank_only(rank: int) -> None:
    loss = fc.AdaFocalLoss()
    if rank == 0:
        other = fc.AdaFocalLoss()
        other._history = [torch.zeros(15, 6, dtype=torch.float64)]
        loss.load_state_dict(other.state_dict())
    loss.update(*share(rank))


# Metrics -------------------------------------------------------------------------------------------------------------

FAMILIES = ("Scores", "EqualWidth", "Classwise", "Ranked", "Everything")


def family(name: str, **options: Any) -> Any:
    from focalcal.metrics import streaming

    classes = {"num_classes": CLASSES} if name in ("Classwise", "Everything") else {}
    return getattr(streaming, name)(**classes, **options)


def streamed(name: str, how: str) -> Callable[[int], Any]:
    """A NaN on one rank by `update` or `forward`; after a reset the metric is as good as new."""

    def case(rank: int) -> Any:
        metric = family(name)
        value = getattr(metric, how)(*spoiled(rank, on=2))
        if how == "forward":
            assert all(torch.isnan(each) == (rank == 2) for each in value.values())
        try:
            return metric.compute()
        finally:
            metric.reset()
            metric.update(*share(rank))
            metric.compute()

    return case


def every_step(rank: int) -> None:
    family("Scores", dist_sync_on_step=True)(*spoiled(rank, on=2))


def differing_bins(rank: int) -> None:
    metric = family("EqualWidth", num_bins=10 + rank // 3)
    metric.update(*share(rank))
    metric.compute()


def everything_streamed(rank: int) -> dict[str, float]:
    metric = family("Everything")
    metric.update(*share(rank))
    return {name: float(value) for name, value in metric.compute().items()}


NAN = "val_logits: .*nan.* This is on rank {} of 4\\."
RESULTS = {"five updates": five_updates, "everything streamed": everything_streamed}
# What each case must raise on all ranks.
FAILURES: dict[str, tuple[Callable[[int], Any], str]] = {
    "NaN in an update": (nan_in_update, NAN.format(2)),
    "NaN in one batch of many": (nan_in_one_batch_of_many, NAN.format(3)),
    "a label too large": (a_label_too_large_on_the_first_rank, "labels.* This is on rank 0 of 4"),
    "no tensor": (no_tensor_at_all, "This is on rank 1 of 4"),
    "a loader that fails": (a_loader_that_fails, "OSError: the disk is gone. This is on rank 3 of 4"),
    "too few rows": (rows_too_few, "at least as many validation rows as bins"),
    "another loss": (another_loss, "loss: must be the same on all ranks; got 'AdaFocalLoss' on rank 0 and 'CalFocal"),
    "a checkpoint on one rank": (a_checkpoint_on_one_rank_only, "updates: must be the same on all ranks; got 1 on ran"),
    **{
        f"another {name}": (
            differing(kind, name, usual, other),
            f"^{name}: must be the same on all ranks; got {usual!r} on rank 0 and {other!r} on rank 2.",
        )
        for name, (kind, usual, other) in SETTINGS.items()
    },
    **{
        f"NaN in {how} of {name}": (streamed(name, how), "scores: .*nan.* This is on rank 2 of 4")
        for name in FAMILIES
        for how in ("update", "forward")
    },
    "NaN where every step is exchanged": (every_step, "scores: .*nan.* This is on rank 2 of 4"),
    "another number of bins of a metric": (differing_bins, "num_bins: must be the same on all ranks; got 10 on rank 0"),
}


def run_rank(rank: int, folder: str) -> None:
    """All cases one after the other; a line for each that came to its end."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torchmetrics warns of a rank without batches
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=30),
    )
    with open(f"{folder}/{rank}.jsonl", "w", encoding="utf-8") as file:
        for name, case in {**RESULTS, **{name: case for name, (case, _) in FAILURES.items()}}.items():
            try:
                found = {"result": case(rank)}
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps([name, found], default=str), file=file, flush=True)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Any]]:
    """What each rank found, by case; processes that hang are ended, and the cases they did not come to are missing."""
    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo backend")
    folder = Path(tmp_path_factory.mktemp("ranks"))
    run_ranks(run_rank, str(folder), world=WORLD)
    files = [folder / f"{rank}.jsonl" for rank in range(WORLD)]
    return [dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {} for file in files]


def agreed(ranks: list[dict[str, Any]], case: str) -> dict[str, Any]:
    found = [rank.get(case, "did not come to its end") for rank in ranks]
    assert all(each == found[0] for each in found), found
    return found[0]


def test_four_processes_get_the_bits_of_one(ranks):
    alone = fc.AdaFocalLoss(lam=3.0)
    for epoch in range(5):
        alone.update(*validation(epoch))
    expected = [alone.gamma.tolist(), alone.edges.tolist(), alone.get_extra_state().tolist()]
    assert agreed(ranks, "five updates") == {"result": expected}
    assert (alone.gamma != 1).all()


def test_four_processes_measure_what_one_does(ranks):
    expected = fc.evaluate(*validation())
    found = agreed(ranks, "everything streamed")["result"]
    assert found["ece"] == pytest.approx(expected.ece, abs=1e-12)
    assert found["nll"] == pytest.approx(expected.nll, abs=1e-12)


@pytest.mark.parametrize("case", FAILURES)
def test_what_goes_wrong_on_one_rank_is_the_same_error_on_all(ranks, case):
    found = agreed(ranks, case)
    assert "error" in found, found
    kind, _, said = found["error"].partition(": ")
    assert kind in ("InputError", "FocalCalError")
    assert re.search(FAILURES[case][1], said), said
