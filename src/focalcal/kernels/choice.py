"""Which kernels are in use: the compiled ones, or their definitions in torch. Nothing here imports torch.

`FOCALCAL_KERNELS` in the environment chooses: `torch` for the definitions, `compiled` for the C++ kernels or an error,
or one of their instruction sets by name (`baseline`, `avx2`, `avx512`). Without it the fastest that works is taken.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from focalcal.errors import FocalCalError


@functools.cache
def compiled_kernels() -> Any | None:
    """The compiled module, or None where the definitions in torch are used.

    >>> compiled_kernels() is compiled_kernels()
    True
    """
    wanted = os.environ.get("FOCALCAL_KERNELS", "").strip().lower()
    if wanted == "torch":
        return None
    try:
        from focalcal import _kernels  # type: ignore[attr-defined]
    except ImportError as error:
        if wanted:
            raise FocalCalError(
                f"FOCALCAL_KERNELS={wanted}: this installation has no compiled kernels ({error}). "
                "Install focalcal where a C++ compiler is at hand."
            ) from error
        return None
    if wanted not in ("", "compiled") and not _kernels.choose(wanted):
        names = ", ".join(["torch", "compiled", *_kernels.available()])
        raise FocalCalError(f"FOCALCAL_KERNELS={wanted}: must be one of {names} on this machine.")
    return _kernels


def kernels_in_use() -> str:
    """The kernels that this process uses, in words.

    >>> kernels_in_use() in ("torch", "compiled (baseline)", "compiled (avx2)", "compiled (avx512)")
    True
    """
    kernels = compiled_kernels()
    return "torch" if kernels is None else f"compiled ({kernels.in_use()})"
