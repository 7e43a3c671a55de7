"""Networks by name: those of the papers, and small ones.

Every network takes a batch's inputs, returns logits (N, K), and has its last linear layer as `head`, which the monitor
watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from focalcal.errors import InputError

__all__ = ["MODELS", "make_model"]

MODELS: dict[str, str] = {
    "linear": "focalcal_lab.models.mlp:linear",
    "mlp": "focalcal_lab.models.mlp:mlp",
    "digits-cnn": "focalcal_lab.models.mlp:digits_cnn",
    "resnet8": "focalcal_lab.models.resnet:resnet8",
    "resnet20": "focalcal_lab.models.resnet:resnet20",
    "resnet44": "focalcal_lab.models.resnet:resnet44",
    "resnet110": "focalcal_lab.models.resnet:resnet110",
    "resnet110-bottleneck": "focalcal_lab.models.resnet:resnet110_bottleneck",
    "resnet50": "focalcal_lab.models.resnet:resnet50",
    "wrn-26-10": "focalcal_lab.models.wide_resnet:wide_resnet",
    "densenet121": "focalcal_lab.models.densenet:densenet121",
    "imagenet": "focalcal_lab.models.imagenet:imagenet_model",
    "gp-cnn": "focalcal_lab.models.gp_cnn:gp_cnn",
    "tree-lstm": "focalcal_lab.models.tree_lstm:tree_lstm",
    "bert": "focalcal_lab.models.bert:bert",
    "transformer": "focalcal_lab.models.transformer:transformer",
}
"""Where each network is made, imported when it is asked for: "module:function", called as
`function(num_classes, facts, **options)`."""


def make_model(name: str, num_classes: int, facts: Mapping[str, Any] | None = None, **options: Any) -> nn.Module:
    """A fresh network by its name, for data with these `facts` (see `focalcal_lab.data.DataSplits`).

    >>> network = make_model("resnet8", 10, {"channels": 3, "size": 32})
    >>> sum(parameter.numel() for parameter in network.parameters())
    75290
    """
    if name not in MODELS:
        raise InputError(f"model: must be one of {', '.join(MODELS)}; got {name!r}.")
    module, function = MODELS[name].split(":")
    network: nn.Module = getattr(import_module(module), function)(num_classes, facts or {}, **options)
    return network
