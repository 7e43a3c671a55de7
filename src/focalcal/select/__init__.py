"""Selecting a calibrator: methods are compared by cross-validation, and differences are tested for significance.

`selection.py` has the function; `methods.py` says which calibrators take part, `folds.py` deals out the rows,
`contest.py` fits and scores, `resampling.py` finds the intervals of all methods, and `result.py` is what comes out.
"""

from __future__ import annotations

from focalcal.select.result import Selection
from focalcal.select.selection import select_calibrator

__all__ = ["Selection", "select_calibrator"]
