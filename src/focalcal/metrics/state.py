"""The part of torchmetrics' Metric that the streaming measures use, for where it is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from focalcal.core.checks import require
from focalcal.predictions.distributed import gather_rows, sum_over_ranks


class PlainMetric(nn.Module):
    """State that batches update and that is put together over processes when a value is asked for.

    Names and their meaning are torchmetrics', so that the same class can stand on either base. A state is a tensor,
    which is summed, or a list of tensors, which are strung together. It lies on the CPU and goes into `state_dict`.

    >>> class Count(PlainMetric):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")
    ...     def update(self, batch):
    ...         self.rows = self.rows + len(batch)
    ...     def local_value(self):
    ...         return self.rows
    >>> count = Count()
    >>> count([1, 2]), count([3]), count.compute(), count.reset(), count.compute()
    (tensor(2), tensor(1), tensor(3), None, tensor(0))
    """

    lists: Mapping[str, torch.dtype] = MappingProxyType({})  # what the tensors of list states are
    device = torch.device("cpu")

    def __init__(self, **options: Any) -> None:
        super().__init__()
        fix = "Install focalcal[metrics]."
        require(not options, "options", "are torchmetrics' and need it installed", ", ".join(options), fix)
        self._defaults: dict[str, Any] = {}

    def add_state(self, name: str, default: Any, dist_reduce_fx: str | None = None, persistent: bool = True) -> None:
        """Declare a state and what it is before the first batch."""
        self._defaults[name] = default
        setattr(self, name, _fresh(default))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take in a batch."""
        raise NotImplementedError

    def local_value(self) -> Any:
        """The value of the state as it is."""
        raise NotImplementedError

    def compute(self) -> Any:
        """The value of everything so far, over all processes."""
        mine = self._state()
        try:
            for name, state in mine.items():
                setattr(self, name, self._over_ranks(name, state))
            return self.local_value()
        finally:
            self._restore(mine)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Take in a batch and give its own value."""
        earlier = self._state()
        self.reset()
        self.update(*args, **kwargs)
        value = self.local_value()
        self._restore({name: state + getattr(self, name) for name, state in earlier.items()})
        return value

    def reset(self) -> None:
        """Forget everything."""
        self._restore({name: _fresh(default) for name, default in self._defaults.items()})

    def _over_ranks(self, name: str, state: Any) -> Any:
        if not isinstance(state, list):
            return sum_over_ranks(state)
        return [gather_rows(torch.cat([torch.empty(0, dtype=self.lists[name]), *state]))]

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._defaults}

    def _restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def get_extra_state(self) -> dict[str, Any]:
        """The state, for `state_dict`."""
        return self._state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` gave."""
        self._restore(state)


def _fresh(default: Any) -> Any:
    return [] if isinstance(default, list) else default.clone()
