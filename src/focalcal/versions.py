"""The versions of focalcal and of the packages it works with, as a bug report should state them."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

# What each extra brings; `pip install focalcal[NAME]` installs it.
EXTRAS = {
    "lightning": ("lightning",),
    "metrics": ("torchmetrics",),
    "files": ("pyarrow",),
    "ray": ("ray",),
    "huggingface": ("transformers", "accelerate"),
    "plots": ("matplotlib",),
    "report": ("plotly",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}


def show_versions() -> None:
    """Print the versions of focalcal, Python, torch, NumPy and the installed extras, and which kernels are in use.

    `compiled` kernels are the fast ones, with the instruction set that was chosen for this processor. `torch` means
    that the same loops run in PyTorch: the kernels were not compiled when focalcal was installed, or
    `FOCALCAL_KERNELS=torch` is set in the environment.

    >>> import focalcal as fc
    >>> fc.show_versions()  # doctest: +ELLIPSIS
    focalcal: ...
    kernels: ...
    Python: ...
    platform: ...
    torch: ...
    numpy: ...
    """
    for name, value in find_versions().items():
        print(f"{name}: {value}")


def find_versions() -> dict[str, str]:
    """What `show_versions` prints, by name. Nothing is imported for it but the kernels.

    >>> list(find_versions())[:6]
    ['focalcal', 'kernels', 'Python', 'platform', 'torch', 'numpy']
    """
    from focalcal import __version__
    from focalcal.kernels.choice import kernels_in_use

    extras = {name: found for names in EXTRAS.values() for name in names if (found := _installed(name))}
    return {
        "focalcal": __version__,
        "kernels": kernels_in_use(),
        "Python": platform.python_version(),
        "platform": platform.platform(),
        "torch": _installed("torch") or "not installed",
        "numpy": _installed("numpy") or "not installed",
        **extras,
    }


def _installed(name: str) -> str | None:
    """The version of a distribution, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
