"""The benchmarks are scripts beside the package; tests import them by their folder."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
# At the end: `metrics` and others are names that nothing else may find here by chance.
sys.path.append(str(FOLDER))
