"""Calibration after training: every calibrator after every loss, and what the papers say about them.

`page` puts the sections together, each from the file of its subject; their numbers come from `numbers` and
`differences`, and are written by `formats`.
"""

from reproduction.pages.after_training.figures import figures
from reproduction.pages.after_training.page import TITLE, page

__all__ = ["TITLE", "figures", "page"]
