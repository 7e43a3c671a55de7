"""`select_calibrator` with all methods, against the code before the compiled kernels.

    python benchmarks/selection.py            # writes benchmarks/results/selection.json
    python benchmarks/selection.py --quick    # few rows and methods, once, writes nothing

The earlier code is taken from the history of the repository into a temporary folder. Both run in processes of their
own, in turns, on the same predictions; the best turn of each counts, without the time of imports.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "91c217a"  # the last commit without compiled kernels
GOAL = 5.0  # times as fast
CLASSES = (2, 10)
# Of a quick run.
FEW = ["temperature", "focal"]

WORK = """
import json, sys, time
source, rows, classes, methods = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
if source:
    # The finder of an editable installation would lead to the code of today.
    sys.meta_path = [each for each in sys.meta_path if "editable" not in type(each).__module__]
    sys.path.insert(0, source)
import numpy as np, focalcal as fc
assert not source or fc.__file__.startswith(source), fc.__file__
generator = np.random.default_rng(0)
logits = (4 * generator.normal(size=(rows, classes))).astype(np.float32)
labels = (logits / 2 + generator.gumbel(size=logits.shape)).argmax(1)
fc.select_calibrator(logits[:200], labels[:200], methods=["temperature"])  # wakes up the libraries
start = time.perf_counter()
found = fc.select_calibrator(logits, labels, methods=methods)
print(json.dumps([time.perf_counter() - start, found.table[0].name, found.table[0].score]))
"""


@contextmanager
def earlier_code() -> Iterator[str | None]:
    """The folder of the code before; None where there is no history to take it from."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "before"
        tree = ["git", "-C", str(ROOT), "worktree"]
        if subprocess.run([*tree, "add", "--detach", str(place), BEFORE], capture_output=True).returncode:
            yield None
            return
        try:
            yield str(place / "src")
        finally:
            subprocess.run([*tree, "remove", "--force", str(place)], capture_output=True)


def run(source: str, rows: int, classes: int, methods: list[str] | None) -> tuple[float, str, float]:
    """Seconds, the best method and its score, in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", WORK, source, str(rows), str(classes), json.dumps(methods)]
    with tempfile.TemporaryDirectory() as folder:  # away from the sources of today
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds, name, score = json.loads(done.stdout)
    return seconds, name, score


def main() -> None:
    from harness import QUICK, save, turns

    rows, methods = (300, FEW) if QUICK else (5_000, None)
    with earlier_code() as source:
        if source is None:
            print(f"Commit {BEFORE} is not in this copy of the repository; left out.")
            return
        sizes = {}
        for classes in CLASSES:
            seconds = {"now": float("inf"), "before": float("inf")}
            for _ in range(turns(2)):
                for name, place in (("now", ""), ("before", source)):
                    taken, best, score = run(place, rows, classes, methods)
                    seconds[name] = min(seconds[name], taken)
            faster = seconds["before"] / seconds["now"]
            sizes[f"{rows:,} x {classes}"] = seconds
            print(f"{rows:,} x {classes}: {seconds['now']:.2f} s, before {seconds['before']:.2f} s; ", end="")
            print(f"{faster:.1f} times as fast   goal {GOAL:.0f}   {'met' if faster >= GOAL else 'MISSED'}")
            print(f"  the best method is {best} with {score:.4f}", flush=True)
    save("selection", {"sizes": sizes, "goal": GOAL, "before": BEFORE})


if __name__ == "__main__":
    main()
