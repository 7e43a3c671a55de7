"""The commands `focalcal lab` and `focalcal claims`."""

import focalcal.cli  # noqa: F401  It loads these commands as plug-ins, and must have begun before them.
