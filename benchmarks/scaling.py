"""The cost of `evaluate` and of a temperature's fit against the number of rows and of classes.

    python benchmarks/scaling.py            # writes benchmarks/results/scaling.json
    python benchmarks/scaling.py --quick    # small sizes, writes nothing

Rows go from a thousand to ten million at 10 classes, classes from 2 to 100,000 at a thousand rows; the largest arrays
have 400 MB. The slope is that of the logarithm of the time over the larger half of the sizes, where fixed costs no
longer count: 1 is proportional.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from harness import QUICK, best_times, give_back_memory, save, settle_allocator

import focalcal as fc
from metrics import network_output

MOST_VALUES = 10**5 if QUICK else 10**8
FIXED_CLASSES, FIXED_ROWS = 10, 1_000
SERIES = {
    "rows": [(10**n, FIXED_CLASSES) for n in range(3, 8)],
    "classes": [(FIXED_ROWS, classes) for classes in (2, 10, 100, 1_000, 10_000, 100_000)],
}
JOBS = ("evaluate", "temperature")


def measure(rows: int, classes: int) -> dict[str, float]:
    """Best seconds of both jobs at one size."""
    logits, labels = network_output(rows, classes)
    jobs = {
        "evaluate": lambda: fc.evaluate(logits, labels),
        "temperature": lambda: fc.TemperatureScaling().fit(logits, labels),
    }
    values = rows * classes
    repeats, calls = (31, 10) if values <= 10**5 else (15, 1) if values <= 10**7 else (5, 1)
    return best_times(jobs, repeats=repeats, calls=calls)  # type: ignore[arg-type]


def slope(sizes: list[int], seconds: list[float]) -> float:
    """The power of the size that the time grows with, by least squares over the larger half."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])


def measure_series(name: str) -> dict[str, Any]:
    """All sizes of a series that fit, and the slope of each job."""
    points: list[dict[str, Any]] = []
    print(f"\nAgainst {name}:")
    for rows, classes in SERIES[name]:
        if rows * classes > MOST_VALUES:
            continue
        seconds = measure(rows, classes)
        give_back_memory()
        points.append({"rows": rows, "classes": classes, **seconds})
        each = ", ".join(f"{job} {1e3 * seconds[job]:,.2f} ms" for job in JOBS)
        print(f"  {rows:>10,} x {classes:>7,}   {each}", flush=True)
    sizes = [math.prod((point["rows"], point["classes"])) for point in points]
    slopes = {job: slope(sizes, [point[job] for point in points]) for job in JOBS}
    print("  time grows with a power of " + ", ".join(f"{slopes[job]:.2f} ({job})" for job in JOBS))
    return {"points": points, "slopes": slopes}


if __name__ == "__main__":
    settle_allocator()
    save("scaling", {"series": {name: measure_series(name) for name in SERIES}})
