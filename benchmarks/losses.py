"""Forward and backward pass of the losses, as a ratio to cross-entropy in the same run.

    python benchmarks/losses.py            # prints ratios, writes benchmarks/results/losses.json
    python benchmarks/losses.py --quick    # small and once, writes nothing

Peers: torch's cross-entropy (the unit), a focal loss left to autograd, and a loop over samples as in the published
sample-dependent code. Then a batch of a segmentation, with the classes in the second of four dimensions; the update
of AdaFocal's gammas against one softmax of the same logits; and LinearFocalLoss against the unchunked loss: time, and
peak memory beyond the inputs and their gradients, which both must hold.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

import torch
from harness import QUICK, best_times, peak_memory, save, settle_allocator, turns
from torch import Tensor
from torch.nn import functional as F

import focalcal as fc

# rows, classes, turns, calls per turn
SIZES = [(128, 10, 40, 400), (1024, 1000, 40, 20), (2048, 32000, 7, 1)]
if QUICK:
    SIZES = [(rows, classes, 1, 1) for rows, classes, _, _ in SIZES[:2]]
GOALS = {
    f"{name} / cross-entropy": {(128, 10): 1.5, (1024, 1000): 0.5, (2048, 32000): 0.4}
    for name in ("focal", "flsd-53", "adafocal")
}
SEGMENTATION = (1, 21, 32, 32) if QUICK else (4, 21, 256, 256)
SEGMENTATION_GOAL = 1.0  # of cross-entropy's time
UPDATE = (500, 100) if QUICK else (5_000, 100)
UPDATE_GOAL = 1.2  # of one softmax


def naive_focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal loss with gamma 3, left to autograd."""
    cross_entropy = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - torch.exp(-cross_entropy)) ** 3 * cross_entropy).mean()


def looped_flsd(logits: Tensor, labels: Tensor) -> Tensor:
    """FLSD-53 with the gamma of each sample looked up in a Python loop."""
    log_p = F.log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1)
    gamma = torch.tensor([5.0 if p.item() < 0.2 else 3.0 for p in log_p.detach().exp()])
    return -((1 - log_p.exp()) ** gamma * log_p).mean()


def trained_adafocal(classes: int) -> fc.AdaFocalLoss:
    """An AdaFocal loss with gammas of both signs, as after some epochs."""
    loss = fc.AdaFocalLoss()
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1000, min(classes, 100), generator=generator)
    loss.update(logits, torch.where(torch.rand(1000, generator=generator) < 0.5, logits.argmax(1), 0))
    loss.gamma[::3] = -0.5
    return loss


def step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Callable[[], None]:
    def run() -> None:
        logits.grad = None
        loss(logits, labels).backward()

    return run


def compare_losses() -> dict[str, dict[str, float]]:
    table = {}
    for rows, classes, repeats, calls in SIZES:
        generator = torch.Generator().manual_seed(0)
        logits = (3 * torch.randn(rows, classes, generator=generator)).requires_grad_()
        labels = torch.randint(0, classes, (rows,), generator=generator)
        losses = {
            "cross-entropy": F.cross_entropy,
            "focal": fc.FocalLoss(3.0),
            "flsd-53": fc.FocalLoss("flsd-53"),
            "adafocal": trained_adafocal(classes),
            "naive autograd focal": naive_focal,
            "flsd-53, loop over samples": looped_flsd,
        }
        steps = {name: step(loss, logits, labels) for name, loss in losses.items()}
        seconds = best_times(steps, repeats=repeats, calls=calls)
        table[f"{rows} x {classes}"] = seconds
        print(f"\n{rows} x {classes}: cross-entropy takes {seconds['cross-entropy'] * 1e6:,.0f} us")
        for name, value in seconds.items():
            print(f"  {name:28s} {value / seconds['cross-entropy']:6.2f} x cross-entropy")
        for goal, bounds in GOALS.items():
            above, below = goal.split(" / ")
            ratio = seconds[above] / seconds[below]
            most = bounds[rows, classes]
            print(f"  {goal:28s} {ratio:6.2f}   goal {most:.2f}   {verdict(ratio, most)}")
    return table


def compare_segmentation() -> dict[str, float]:
    """Forward and backward pass over pixels, with contiguous labels and logits as a network gives them."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(SEGMENTATION, generator=generator)).requires_grad_()
    labels = torch.randint(0, SEGMENTATION[1], (SEGMENTATION[0], *SEGMENTATION[2:]), generator=generator)
    losses = {"cross-entropy": F.cross_entropy, "focal": fc.FocalLoss(3.0), "flsd-53": fc.FocalLoss("flsd-53")}
    steps = {name: step(loss, logits, labels) for name, loss in losses.items()}
    seconds = best_times(steps, repeats=15, calls=1)
    ratio = seconds["focal"] / seconds["cross-entropy"]
    print(f"\nSegmentation, {' x '.join(map(str, SEGMENTATION))}: ", end="")
    print(f"focal takes {ratio:.2f} x cross-entropy   goal {SEGMENTATION_GOAL}   {verdict(ratio, SEGMENTATION_GOAL)}")
    return seconds


def compare_update() -> dict[str, float]:
    """AdaFocal's new gammas from validation logits, beside one softmax of them."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(UPDATE, generator=generator)
    labels = torch.randint(0, UPDATE[1], UPDATE[:1], generator=generator)
    loss = fc.AdaFocalLoss()
    contestants = {"update": lambda: loss.update(logits, labels), "softmax": lambda: torch.softmax(logits, 1)}
    seconds = best_times(contestants, repeats=60, calls=5)
    ratio = seconds["update"] / seconds["softmax"]
    print(f"\nUpdate of AdaFocal's gammas, {UPDATE[0]:,} x {UPDATE[1]}: ", end="")
    print(f"{ratio:.2f} x one softmax   goal {UPDATE_GOAL}   {verdict(ratio, UPDATE_GOAL)}")
    return seconds


def verdict(figure: float, goal: float) -> str:
    return "met" if figure <= goal else "MISSED"


# The layer of a small language model: 2,048 tokens, vocabulary 128,000.
LAYER = {"rows": 2048, "width": 512, "vocabulary": 128_000}
if QUICK:
    LAYER = {"rows": 256, "width": 32, "vocabulary": 4_000}
LINEAR_GOALS = {"time ratio": 1.3, "memory ratio": 0.125}


def run_layer(chunked: bool, queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    """In a process of its own, because peak memory is a property of a process."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(LAYER["rows"], LAYER["width"], generator=generator).requires_grad_()
    weight = torch.randn(LAYER["vocabulary"], LAYER["width"], generator=generator).mul_(0.05).requires_grad_()
    labels = torch.randint(0, LAYER["vocabulary"], (LAYER["rows"],), generator=generator)
    linear, plain = fc.LinearFocalLoss(3.0), fc.FocalLoss(3.0)
    plain(hidden[:64] @ weight[:64].T, labels[:64] % 64).backward()  # wakes up the libraries
    hidden.grad = weight.grad = None
    before = peak_memory(reset=True)
    seconds = float("inf")
    for _ in range(turns(3)):
        start = time.perf_counter()
        loss = linear(hidden, weight, labels) if chunked else plain(hidden @ weight.T, labels)
        loss.backward()
        seconds = min(seconds, time.perf_counter() - start)
        hidden.grad = weight.grad = loss = None
    gradients = (hidden.numel() + weight.numel()) * 4 / 2**20  # what both ways must deliver
    queue.put((seconds, peak_memory() - before - gradients))


def compare_layers() -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    figures = {}
    for name, chunked in (("unchunked", False), ("chunked", True)):
        queue = context.Queue()
        process = context.Process(target=run_layer, args=(chunked, queue))
        process.start()
        figures[f"{name} seconds"], figures[f"{name} MiB"] = queue.get()
        process.join()
    figures["time ratio"] = figures["chunked seconds"] / figures["unchunked seconds"]
    figures["memory ratio"] = figures["chunked MiB"] / figures["unchunked MiB"]
    print(f"\nLinearFocalLoss, {LAYER}:")
    for name in ("unchunked", "chunked"):
        seconds, memory = figures[f"{name} seconds"], figures[f"{name} MiB"]
        print(f"  {name:10s} {seconds:6.2f} s, peak {memory:7.0f} MiB beyond inputs and gradients")
    for name, most in LINEAR_GOALS.items():
        print(f"  {name} {figures[name]:.3f}   goal {most}   {verdict(figures[name], most)}")
    return figures


if __name__ == "__main__":
    settle_allocator()
    steps, segmentation, update, layers = compare_losses(), compare_segmentation(), compare_update(), compare_layers()
    goals = {goal: {f"{r} x {k}": most for (r, k), most in bounds.items()} for goal, bounds in GOALS.items()}
    layer = " x ".join(map(str, LAYER.values()))
    goals |= {"linear": LINEAR_GOALS, "segmentation": SEGMENTATION_GOAL, "update": UPDATE_GOAL}
    result = {
        "seconds per step": steps,
        "segmentation": {"size": " x ".join(map(str, SEGMENTATION)), "seconds": segmentation},
        "update": {"size": " x ".join(map(str, UPDATE)), "seconds": update},
        "linear": layers,
        "layer": layer,
        "goals": goals,
    }
    save("losses", result)
