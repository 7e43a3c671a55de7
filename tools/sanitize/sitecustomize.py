"""Imports the kernels from the folder that FOCALCAL_SANITIZED names, in this process and in those it starts.

Python imports this file when it starts, as long as its folder is on PYTHONPATH; `make sanitize` puts it there.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

_FOLDER = Path(os.environ["FOCALCAL_SANITIZED"]).resolve()
os.environ["FOCALCAL_SANITIZED"] = str(_FOLDER)  # processes of tests have other working folders


class SanitizedKernels:
    """Finds `focalcal._kernels` before the finder of the editable installation does."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The module of the sanitized build; nothing else is found here."""
        if name != "focalcal._kernels":
            return None
        (module,) = _FOLDER.glob("_kernels.*.so")
        return spec_from_file_location(name, module)


sys.meta_path.insert(0, SanitizedKernels)  # type: ignore[arg-type]
