"""Data sets by name: the papers', synthetic ones, and your own."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from focalcal.errors import InputError
from focalcal_lab.data.dataset import Batch, Batched, DataSplits, LoadData, TensorRows

__all__ = ["DATA", "Batch", "Batched", "DataSplits", "LoadData", "TensorRows", "load_data"]

DATA: dict[str, str] = {
    "digits": "focalcal_lab.data.synthetic:digits",
    "one-dimensional": "focalcal_lab.data.synthetic:one_dimensional",
    "four-clusters": "focalcal_lab.data.synthetic:four_clusters",
    "gaussian-mixture": "focalcal_lab.data.synthetic:gaussian_mixture",
    "cifar10": "focalcal_lab.data.cifar:cifar10",
    "cifar10-s": "focalcal_lab.data.cifar:cifar10_s",
    "cifar100": "focalcal_lab.data.cifar:cifar100",
    "cifar10-c": "focalcal_lab.data.cifar:cifar10_c",
    "mnist": "focalcal_lab.data.mnist:mnist",
    "svhn": "focalcal_lab.data.svhn:svhn",
    "tiny-imagenet": "focalcal_lab.data.imagenet:tiny_imagenet",
    "imagenet": "focalcal_lab.data.imagenet:imagenet",
    "20newsgroups": "focalcal_lab.data.newsgroups:newsgroups",
    "20newsgroups-bert": "focalcal_lab.data.newsgroups:newsgroups_for_bert",
    "sst-binary": "focalcal_lab.data.sst:sst_binary",
    "toy-translation": "focalcal_lab.translation.corpora:toy_translation",
    "wmt14-en-de": "focalcal_lab.translation.corpora:wmt14_en_de",
    "own": "focalcal_lab.data.own_data:own",
}
"""Where each data set is loaded: "module:function", a `LoadData` that is imported when it is asked for."""


def load_data(name: str, folder: str | Path | None = None, *, seed: int = 0, **options: Any) -> DataSplits:
    """A data set by its name, split by the papers' sizes with a seed.

    >>> data = load_data("digits")
    >>> len(data.train), len(data.val), len(data.test), data.num_classes
    (500, 400, 897, 10)
    """
    if name not in DATA:
        raise InputError(f"data: must be one of {', '.join(DATA)}; got {name!r}.")
    module, function = DATA[name].split(":")
    load: LoadData = getattr(import_module(module), function)
    known = inspect.signature(load).parameters
    for option in options:
        if option not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            usual = ", ".join(each for each in known if each not in ("folder", "seed")) or "none"
            raise InputError(f"data: {name} has no option {option!r}; it has {usual}.")
    return load(Path(folder) if folder else None, seed=seed, **options)
