"""Instructions of one call of each compiled kernel, counted by valgrind, which a busy machine does not change.

    python benchmarks/instructions.py            # writes benchmarks/results/instructions.json
    python benchmarks/instructions.py --quick    # small arrays, writes nothing

A process under `valgrind --tool=callgrind` calls every kernel through its Python function on one thread. Counting is
switched on around each call only, so that imports take seconds and not minutes, and what switching itself costs is
counted by a call that does nothing, and subtracted. valgrind does not know AVX-512: the kernels are those of AVX2,
or the baseline where there is no AVX2. Without valgrind the script says so and writes nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# rows, classes: few classes have a row in every lane, many have one row in all lanes
SIZES = ((500, 10), (50, 100)) if "--quick" in sys.argv else ((50_000, 10), (5_000, 100))
WORK = "--work"

Run = Callable[[], object]


def rows(logits: Any, labels: Any) -> Run:
    from focalcal.kernels.rows import read_rows

    names = ["confidence", "correct", "nll", "brier", "entropy", "rank"]
    return lambda: read_rows(logits, labels, "logits", names)


def confidences(logits: Any, labels: Any) -> Run:
    from focalcal.kernels.rows import read_rows

    return lambda: read_rows(logits, labels, "logits", ["confidence", "correct"])


def extremes(logits: Any, labels: Any) -> Run:
    from focalcal.kernels import extremes as module

    return lambda: module.extremes(logits)


def temperature(logits: Any, labels: Any) -> Run:
    from focalcal.kernels.temperature import tempered_sums

    return lambda: tempered_sums(logits, labels, None, {1.0: 2})


def focal_loss(logits: Any, labels: Any) -> Run:
    from focalcal.kernels.focal_loss import focal_rows

    leaf = logits.clone().requires_grad_()
    return lambda: focal_rows(leaf, labels, 3.0).backward()


def focal_grid(logits: Any, labels: Any) -> Run:
    from focalcal.kernels.focal_grid import prepare_rows

    prepared = prepare_rows(logits, labels)
    return lambda: prepared.confidences([(1.5, (0.0, 1.0, 3.0))])


# What is printed, the module that must be there, and what makes the call.
KERNELS = {
    "rows, six columns": ("rows", rows),
    "rows, confidence": ("rows", confidences),
    "extremes": ("extremes", extremes),
    "temperature, two derivatives": ("temperature", temperature),
    "focal loss, forward and backward": ("focal_loss", focal_loss),
    "focal grid, three points": ("focal_grid", focal_grid),
}


# ---------------------------------------------------------------------- under valgrind


def control(option: str) -> None:
    """Tell valgrind what to do with this process."""
    subprocess.run(["callgrind_control", option, str(os.getpid())], check=True, capture_output=True)


def count(name: str, run: Run) -> None:
    """Let valgrind count what a call executes; the dump carries the name."""
    run()  # the first call allocates and starts what later ones find
    control("--instr=on")
    control("--zero")
    run()
    control(f"--dump={name}")
    control("--instr=off")


def work() -> None:
    """Count every kernel at every size; the last line says which instruction set was in use."""
    import torch

    from focalcal.kernels.compiled import kernels_in_use

    torch.set_num_threads(1)
    for _ in range(2):  # the first dump also counts what switching on translates
        count("nothing", lambda: None)
    for num_rows, classes in SIZES:
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(num_rows, classes, generator=generator)
        labels = torch.randint(0, classes, (num_rows,), generator=generator)
        for name, (module, make) in KERNELS.items():
            if find_spec(f"focalcal.kernels.{module}"):
                count(f"{name}/{num_rows}/{classes}", make(logits, labels))
    print(kernels_in_use())


# ---------------------------------------------------------------------- outside of it


def counted(folder: Path) -> dict[str, int]:
    """The instructions of each dump by its name; of several with one name the last."""
    found = {}
    for path in sorted(folder.glob("count.*"), key=lambda path: int(path.suffix[1:] or 0)):
        lines = path.read_text().splitlines()
        trigger = next((line for line in lines if line.startswith("desc: Trigger: ")), "")
        total = next((line for line in reversed(lines) if line.startswith("totals: ")), None)
        name = trigger.removeprefix("desc: Trigger: ").removeprefix("dump ").strip()
        if total is not None and (name == "nothing" or "/" in name):
            found[name] = int(total.split()[1])
    return found


def run_under_valgrind(instructions: str) -> tuple[dict[str, int], str]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/count"]
        quick = [each for each in sys.argv[1:] if each == "--quick"]
        done = subprocess.run(
            [*command, sys.executable, __file__, WORK, *quick],
            capture_output=True,
            text=True,
            env=os.environ | {"FOCALCAL_KERNELS": instructions, "OMP_NUM_THREADS": "1"},
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return counted(Path(folder)), done.stdout.splitlines()[-1]


def main() -> None:
    if WORK in sys.argv:
        work()
        return
    from harness import save

    if shutil.which("valgrind") is None:
        print("valgrind is not installed; nothing is counted.")
        return
    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    found, used = run_under_valgrind("avx2" if on_x86 else "baseline")
    nothing = found.pop("nothing")
    print(f"{used}; switching alone takes {nothing:,} instructions")
    table = {}
    for key, total in found.items():
        name, num_rows, classes = key.split("/")
        values, size = int(num_rows) * int(classes), f"{int(num_rows):,} x {int(classes):,}"
        own = total - nothing
        table[key] = {"kernel": name, "size": size, "instructions": own, "per value": own / values}
        print(f"  {name:34s} {size:>14s} {own:>14,} {own / values:8.2f} per value")
    save("instructions", {"kernels": table, "in use": used, "valgrind": valgrind_version()})


def valgrind_version() -> str:
    return subprocess.run(["valgrind", "--version"], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
