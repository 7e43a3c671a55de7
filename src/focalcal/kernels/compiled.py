"""What the kernels of every family share: which scores the compiled ones can read, their layout, and threads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focalcal.core.checks import may_read_values
from focalcal.kernels.choice import compiled_kernels as compiled_kernels, kernels_in_use as kernels_in_use

# The numbers of the types in cpp/dispatch.h.
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}

# Below this many values, waking a second thread takes longer than the work.
_VALUES_PER_THREAD = 1 << 16


def kernels_for(scores: Tensor) -> Any | None:
    """The compiled kernels if they can read these scores (n, K): on the CPU, of a known type, and not being traced.

    >>> kernels_for(torch.zeros(2, 3, dtype=torch.int64)) is None
    True
    """
    if not scores.is_cpu or scores.dtype not in TYPES or not may_read_values():
        return None
    return compiled_kernels()


def row_layout(scores: Tensor) -> tuple[int, int, int, int, int]:
    """Address, type, rows, classes and the distance of rows of scores (n, K) whose classes lie next to each other.

    >>> row_layout(torch.zeros(2, 3))[1:]
    (0, 2, 3, 3)
    """
    rows, classes = scores.shape
    step, between = scores.stride()
    assert between == 1 or classes == 1, "classes must be adjacent in memory"
    return scores.data_ptr(), TYPES[scores.dtype], rows, classes, step


def with_adjacent_classes(scores: Tensor) -> Tensor:
    """The scores (n, K) with the classes of a row next to each other in memory; a copy only where they are not.

    >>> with_adjacent_classes(torch.zeros(3, 2).t()).stride()
    (3, 1)
    """
    step, between = scores.stride()
    # Rows may be repeated (0) or have gaps between them, but must not overlap or run backwards.
    return scores if between == 1 and (step == 0 or step >= scores.shape[1]) else scores.contiguous()


def threads_for(values: int) -> int:
    """How many threads to use for so many values: at most as many as torch does.

    >>> threads_for(1000)
    1
    """
    return max(1, min(torch.get_num_threads(), values // _VALUES_PER_THREAD))
