"""Data sets by name: the papers', synthetic ones, and your own."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from focalcal.errors import InputError
from focalcal.lab.data.base import Batch, Batched, Data, Load, Rows

__all__ = ["DATA", "Batch", "Batched", "Data", "Load", "Rows", "load_data"]

DATA: dict[str, str] = {
    "digits": "focalcal.lab.data.synthetic:digits",
    "one-dimensional": "focalcal.lab.data.synthetic:one_dimensional",
    "four-clusters": "focalcal.lab.data.synthetic:four_clusters",
    "gaussian-mixture": "focalcal.lab.data.synthetic:gaussian_mixture",
    "cifar10": "focalcal.lab.data.cifar:cifar10",
    "cifar10-s": "focalcal.lab.data.cifar:cifar10_s",
    "cifar100": "focalcal.lab.data.cifar:cifar100",
    "cifar10-c": "focalcal.lab.data.cifar:cifar10_c",
    "mnist": "focalcal.lab.data.mnist:mnist",
    "svhn": "focalcal.lab.data.svhn:svhn",
    "tiny-imagenet": "focalcal.lab.data.imagenet:tiny_imagenet",
    "imagenet": "focalcal.lab.data.imagenet:imagenet",
    "20newsgroups": "focalcal.lab.data.newsgroups:newsgroups",
    "20newsgroups-bert": "focalcal.lab.data.newsgroups:newsgroups_for_bert",
    "sst-binary": "focalcal.lab.data.sst:sst_binary",
    "toy-translation": "focalcal.lab.translation.data:toy_translation",
    "wmt14-en-de": "focalcal.lab.translation.data:wmt14_en_de",
    "own": "focalcal.lab.data.own:own",
}
"""Where each data set is loaded, imported when it is asked for: "module:function", a `focalcal.lab.data.base.Load`."""


def load_data(name: str, folder: str | Path | None = None, *, seed: int = 0, **options: Any) -> Data:
    """A data set by its name, split by the papers' sizes with a seed.

    >>> data = load_data("digits")
    >>> len(data.train), len(data.val), len(data.test), data.num_classes
    (500, 400, 897, 10)
    """
    if name not in DATA:
        raise InputError(f"data: must be one of {', '.join(DATA)}; got {name!r}.")
    module, function = DATA[name].split(":")
    load: Load = getattr(import_module(module), function)
    known = inspect.signature(load).parameters
    for option in options:
        if option not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            usual = ", ".join(each for each in known if each not in ("folder", "seed")) or "none"
            raise InputError(f"data: {name} has no option {option!r}; it has {usual}.")
    return load(Path(folder) if folder else None, seed=seed, **options)
