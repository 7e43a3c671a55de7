"""Published networks measured like the lab's own runs: their calibrators, and what people say about the same images.

    python -m reproduction.published_networks DATA OUT.json

`DATA` has `logits/*.npz` and `predictions/*.npz` of networks on CIFAR-10's test images, and `cifar10h.npz`. Nothing was
trained here: calibrators are fitted to the first 5,000 images and measured on the others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from focalcal.errors import InputError
from focalcal_lab.catalog import find_recipe
from focalcal_lab.data.array_files import read_npz
from focalcal_lab.measurement import SplitLogits
from focalcal_lab.recipe import Method
from focalcal_lab.run_folder import environment
from reproduction.collect import MeasurementPlan, collect_network
from reproduction.measure import HumanAnswers
from reproduction.result_files import Evidence, write_evidence

NAME = "cpu/cifar10h-networks"
# Network, and the file that has it; calibrators are fitted to images below HALF.
NETWORKS = {
    "LeNet-5": "predictions/cifar10_lenet5.npz",
    "ResNet-20": "logits/cifar10_resnet20.npz",
    "ResNet-32": "logits/cifar10_resnet32.npz",
    "ResNet-56": "logits/cifar10_resnet56.npz",
    "WRN-16-4": "predictions/cifar10_wideresnet16_4.npz",
}
HALF = 5_000


def collect_networks(folder: str | Path, *, num_resamples: int = 500) -> Evidence:
    """The published networks in a folder, with the calibrators of the image recipes that need no training gamma."""
    place = Path(folder)
    human = HumanAnswers.read(place / "cifar10h.npz")
    plan = MeasurementPlan(num_resamples, human.after(HALF))
    recipe = find_recipe("cpu/cifar10-s-resnet8")
    wishes = [wish for wish in recipe.measurement.calibrators if "trained" not in wish.options.values()]
    measurement = recipe.measurement.model_copy(update={"calibrators": wishes, "out_of_distribution": []})
    methods = {name: Method(loss="ce") for name in NETWORKS}
    about = "Published networks on CIFAR-10's test images; nothing is trained"
    recipe = recipe.model_copy(update={"name": NAME, "about": about, "methods": methods, "measurement": measurement})
    runs = [
        collect_network(name, *_halves(place / file, human.labels), recipe, plan) for name, file in NETWORKS.items()
    ]
    return Evidence(
        recipe=recipe.model_dump(
            mode="json", include={"name", "about", "methods", "measurement"}, exclude_defaults=True
        ),
        environment=environment(),
        threads=torch.get_num_threads(),
        data=f"CIFAR-10's test images: fitted to the first {HALF:,}, measured on the others",
        sizes=[0, HALF, len(human.counts) - HALF],
        runs=runs,
    )


def _halves(path: Path, labels: np.ndarray[Any, Any] | None) -> tuple[SplitLogits, SplitLogits]:
    """The logits of the first images and of the others, checked to be those of CIFAR-10's test images in order."""
    arrays = read_npz(path, ("val_logits", "test_logits", "val_labels", "test_labels", "probs", "labels"))
    if "probs" in arrays:
        logits, given = np.log(arrays["probs"]), arrays["labels"]
    else:
        logits, given = (
            np.concatenate([arrays[f"{split}_{part}"] for split in ("val", "test")]) for part in ("logits", "labels")
        )
    if labels is not None and not np.array_equal(given, labels):
        raise InputError(f"{path}: must have the test images of CIFAR-10 in their order; its labels are others.")
    rows = torch.from_numpy(logits), torch.from_numpy(given.astype(np.int64))
    first, other = ([each[part] for each in rows] for part in (slice(None, HALF), slice(HALF, None)))
    return SplitLogits(*first), SplitLogits(*other)


if __name__ == "__main__":
    write_evidence(collect_networks(sys.argv[1]), sys.argv[2])
