"""AdaFocal with DistributedDataParallel: every process has its share of the rows, all have the same gammas.

    torchrun --nproc-per-node 2 examples/ddp_adafocal.py
    python examples/ddp_adafocal.py

The lines that a loop with cross-entropy does not have are marked with (*).

One process or several give the same results:

- Exactly: the rows of each global batch, the counts of AdaFocal's bins, the number of test rows; and between the
  processes of a run all gammas and edges, bit by bit.
- Up to rounding: gradients, because sums have another order. With `--double` everything printed agrees to 1e-9. In
  float32 rounding leads the networks apart within some epochs: a row that crosses the edge of a bin moves its gamma.

That takes a mean loss over shares of equal size, as DDP averages the gradients of processes whatever their number of
rows, and a network without batch normalisation or dropout, which depend on the share.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import focalcal as fc
from focalcal import noisy_digits
from focalcal.metrics import streaming

BATCH_SIZE = 48  # of all processes together, so that it does not depend on their number
SHOWN = ("accuracy", "nll", "brier", "ece", "ada_ece", "smooth_ece")


def join() -> torch.device:
    """Join the other processes, if a launcher started any; returns this one's device."""
    local_rank, local_world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    device = torch.device("cpu")
    if torch.cuda.device_count() >= local_world:  # NCCL wants a GPU for each process
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    options: dict[str, Any] = {"timeout": datetime.timedelta(minutes=5)}  # for one that hangs; the default is longer
    if "RANK" not in os.environ:  # a group of one, so that nothing below needs to ask
        options |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **options)
    return device


def say(*words: object) -> None:
    """Print, on rank 0 only."""
    if dist.get_rank() == 0:
        print(*words)


def of_all_ranks(mine: Any) -> list[Any]:
    """What each process gives, in the order of ranks; all must call it."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def train_loader(dataset: TensorDataset) -> DataLoader[Any]:
    """Batches of this process; those of all processes together are the batches that one process would have.

    Both `drop_last` matter: without them the sampler may repeat rows, and last batches differ in size.
    """
    world = dist.get_world_size()
    if BATCH_SIZE % world:
        raise SystemExit(f"A batch of {BATCH_SIZE} rows cannot be shared evenly by {world} processes.")
    sampler = DistributedSampler(dataset, shuffle=True, seed=0, drop_last=True)
    return DataLoader(dataset, batch_size=BATCH_SIZE // world, sampler=sampler, drop_last=True)


def share_loader(dataset: TensorDataset) -> DataLoader[Any]:
    """This process's rows, to measure: each row is with exactly one process.

    No DistributedSampler here: it would repeat rows, or drop some, to make the shares equal.
    """
    return DataLoader(Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size())), batch_size=200)


@torch.no_grad()
def predict(network: nn.Module, share: DataLoader[Any], device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits and labels of this process's rows.

    Give it the network, not the DDP around it, which may wait for processes that have fewer batches.
    """
    network.eval()
    logits, labels = zip(*((network(images.to(device)), labels.to(device)) for images, labels in share), strict=True)
    network.train()
    return torch.cat(logits), torch.cat(labels)


def measure(scores: Tensor, labels: Tensor, kind: Any = "logits") -> fc.Evaluation:
    """The evaluation of the rows of all processes, on each of them."""
    everything = streaming.Everything(num_classes=scores.shape[1], kind=kind).to(scores.device)
    everything.update(scores, labels)
    return everything.evaluation()


def require_same_gammas(loss: fc.AdaFocalLoss) -> list[list[float]]:
    """The gammas of each process, once it is certain that they and the edges are the same on all."""
    states = of_all_ranks((loss.gamma.tolist(), loss.edges.tolist()))
    assert all(state == states[0] for state in states), f"the processes have different gammas or edges: {states}"
    return [gamma for gamma, _ in states]


def train(
    network: nn.Module, loss: fc.AdaFocalLoss, batches: DataLoader[Any], val: DataLoader[Any], epochs: int
) -> list[dict[str, Any]]:
    """Train the network, and the loss after each epoch; returns the table that it prints."""
    device = loss.gamma.device
    model = DistributedDataParallel(network)  # averages gradients, and starts all processes with rank 0's weights
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    table = []
    say("epoch    NLL  ECE %  gamma by bin, the least sure first")
    for epoch in range(epochs):
        batches.sampler.set_epoch(epoch)  # else every epoch has the same order
        for images, labels in batches:
            optimizer.zero_grad()
            loss(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        logits, labels = predict(network, val, device)
        loss.update(logits, labels)  # (*) with this process's rows: the loss itself puts those of all together
        gamma, *_ = require_same_gammas(loss)  # (*)
        found = measure(logits, labels)
        table.append({"epoch": epoch, "n": found.n, "nll": found.nll, "ece": found.ece, "gamma": gamma})
        say(f"{epoch:5d} {found.nll:6.3f} {100 * found.ece:6.2f} ", *(f"{value:5.2f}" for value in gamma))
    return table


def fit_temperature(logits: Tensor, labels: Tensor) -> fc.TemperatureScaling:
    """The temperature of the rows of all processes; each fits it to all of them, so none needs to be told."""
    all_logits, all_labels = zip(*of_all_ranks((logits.cpu(), labels.cpu())), strict=True)
    return fc.TemperatureScaling().fit(torch.cat(all_logits), torch.cat(all_labels))


def save(path: Path, **parts: nn.Module) -> None:
    """Rank 0 writes the checkpoint: the others know nothing else."""
    if dist.get_rank() == 0:
        torch.save({name: part.state_dict() for name, part in parts.items()}, path)


def load(path: Path, **parts: nn.Module) -> None:
    """Rank 0 reads the checkpoint and tells the others, whose machines need not have the file."""
    found = [torch.load(path, map_location="cpu", weights_only=True) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    for name, part in parts.items():
        part.load_state_dict(found[0][name])


def run(epochs: int, dtype: torch.dtype, path: Path) -> dict[str, Any]:
    """Train, save, reload, evaluate; returns what was found."""
    device = join()
    train_rows, val_rows, test_rows = (
        TensorDataset(rows.images.to(dtype), rows.labels) for rows in noisy_digits.load()
    )
    val, test = share_loader(val_rows), share_loader(test_rows)
    torch.manual_seed(0)
    network = noisy_digits.make_network().to(device, dtype)
    loss = fc.AdaFocalLoss().to(device)  # (*) outside DDP, which has nothing to do here: gammas have no gradient
    table = train(network, loss, train_loader(train_rows), val, epochs)
    calibrator = fit_temperature(*predict(network, val, device))
    save(path, network=network, loss=loss, calibrator=calibrator)  # (*) the gammas too

    # As a later script would: new objects, and all they know is in the file.
    network, calibrator = noisy_digits.make_network().to(device, dtype), fc.TemperatureScaling()
    loaded = fc.AdaFocalLoss().to(device)
    load(path, network=network, loss=loaded, calibrator=calibrator)
    assert torch.equal(loaded.gamma, loss.gamma), "the checkpoint has other gammas"
    gamma_by_rank = require_same_gammas(loaded)
    logits, labels = predict(network, test, device)
    before = measure(logits, labels)
    after = measure(calibrator.to(device).predict_probs(logits), labels, "probs")
    say(f"\n{before.n} test rows   as trained   T = {calibrator.temperature_:.3f}")
    for name in SHOWN:
        say(f"{name:15s} {getattr(before, name):10.4f} {getattr(after, name):11.4f}")
    return {
        "world_size": dist.get_world_size(),
        "epochs": table,
        "bin_counts": loaded.history["count"].tolist(),
        "gamma_by_rank": gamma_by_rank,
        "temperature": calibrator.temperature_,
        "test": before.to_dict(),
        "test_calibrated": after.to_dict(),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Read the options, run, and write the JSON file if one was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--double", action="store_true", help="compute in float64")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--json", type=Path, help="a file for all results")
    given = parser.parse_args(arguments)
    try:
        results = run(given.epochs, torch.float64 if given.double else torch.float32, given.checkpoint)
        if given.json and dist.get_rank() == 0:
            given.json.write_text(json.dumps(results, indent=2) + "\n")
        return results
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
