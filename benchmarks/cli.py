"""How long the command line takes, as processes: `focalcal evaluate` against `import torch`, and `focalcal --help`.

    python benchmarks/cli.py            # prints seconds and goals, writes benchmarks/results/cli.json

Every command of the library must import torch, so that is the unit: evaluating 10,000 x 100 float32 logits may take 1.3
times as long plus half a second, and the help text, which needs no torch, half a second.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import SHARE, best_times, save

ROWS, CLASSES = 10_000 // SHARE, 100
FACTOR, EXTRA, HELP = 1.3, 0.5, 0.5


def write_predictions(path: Path) -> None:
    """Logits that are too large by a factor of two."""
    generator = np.random.default_rng(0)
    logits = 3 * generator.normal(size=(ROWS, CLASSES)).astype(np.float32)
    noise = generator.gumbel(size=logits.shape)
    np.savez(path, logits=logits, labels=(logits / 2 + noise).argmax(1))


def measure(repeats: int = 7) -> dict[str, float]:
    """Seconds of each process, best of several turns."""
    script = Path(sys.executable).with_name("focalcal")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "predictions.npz"
        write_predictions(file)
        commands: dict[str, list[str | Path]] = {
            "import torch": [sys.executable, "-c", "import torch"],
            "focalcal evaluate": [script, "evaluate", file],
            "focalcal --help": [script, "--help"],
        }
        processes = {
            name: lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for name, command in commands.items()
        }
        return best_times(processes, repeats=repeats, calls=1)


def goals(seconds: dict[str, float]) -> dict[str, float]:
    """The most that each command may take."""
    return {"focalcal evaluate": FACTOR * seconds["import torch"] + EXTRA, "focalcal --help": HELP}


if __name__ == "__main__":
    seconds = measure()
    for name, value in seconds.items():
        goal = goals(seconds).get(name)
        verdict = "" if goal is None else f"   goal {goal:.2f}   {'met' if value <= goal else 'MISSED'}"
        print(f"  {name:20s} {value:6.2f} s{verdict}")
    ratio = seconds["focalcal evaluate"] / seconds["import torch"]
    save("cli", {"seconds": seconds, "evaluate / import torch": ratio, "goals": goals(seconds)})
