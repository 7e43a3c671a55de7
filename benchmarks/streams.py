"""Predictions past memory: `focalcal evaluate` and `calibrate` on Parquet shards, against pyarrow reading them.

    python benchmarks/streams.py                    # 20,000,000 x 100 float16 logits, about 4 GB, in a temporary folder
    python benchmarks/streams.py --rows 2000000     # less
    python benchmarks/streams.py --memory           # only the memory of 20,000,000 x 10, 0.5 GB; writes nothing
    python benchmarks/streams.py --quick            # 100,000 rows, once, writes nothing

Each size is measured in processes of their own: seconds, and by how much the resident memory grows beyond what the
imports take. Writes benchmarks/results/streams.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import QUICK, save, turns

CLASSES, SHARD, GROUP = 100, 20_000 if QUICK else 1_000_000, 65_536
CLASS_COUNTS = (10, 100) if QUICK else (10, 100, 1_000, 10_000, 100_000)
MEMORY_GOAL, LINEAR_GOAL = 500, 0.15
SPEED_GOALS = {"evaluate": 0.8, "calibrate": 0.5}  # of the speed at which pyarrow reads, a pass


def write_shard(path: Path, rows: int, seed: int, classes: int) -> None:
    """Logits that are too large by a factor of two, with labels drawn from what they should be."""
    import pyarrow as pa
    from pyarrow import parquet

    generator = np.random.default_rng(seed)
    schema = pa.schema({"logits": pa.list_(pa.float16()), "label": pa.int32()})
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, GROUP):
            n = min(GROUP, rows - start)
            logits = (3 * generator.standard_normal((n, classes), dtype=np.float32)).astype(np.float16)
            shares = np.exp(logits.astype(np.float32) / 2).cumsum(1)
            label = (shares < generator.random((n, 1), dtype=np.float32) * shares[:, -1:]).sum(1).astype(np.int32)
            offsets = np.arange(0, (n + 1) * classes, classes, dtype=np.int32)
            lists = pa.ListArray.from_arrays(offsets, pa.array(logits.reshape(-1)))
            writer.write_table(pa.table({"logits": lists, "label": label}, schema=schema))


def write_shards(folder: Path, rows: int, classes: int = CLASSES) -> list[Path]:
    """Shards of a million rows; those that are there stay."""
    size, paths = rows * (2 * classes + 4), []
    if shutil.disk_usage(folder).free < 2 * size:
        raise SystemExit(f"{folder}: has no room for shards of {size / 1e9:.1f} GB. Name another with --folder.")
    for place in range(-(-rows // SHARD)):
        path = folder / f"part-{place:03d}.parquet"
        paths.append(path)
        if not path.exists():
            write_shard(path.with_suffix(".new"), min(SHARD, rows - place * SHARD), place, classes)
            path.with_suffix(".new").rename(path)
    return paths


def read_by_pyarrow(paths: list[str]) -> None:
    """The columns into numpy, a row group at a time, as pyarrow does it best."""
    from pyarrow import parquet

    rows = 0
    for path in paths:
        for batch in parquet.ParquetFile(path).iter_batches(GROUP):
            logits = batch.column(0).flatten().to_numpy(zero_copy_only=False).reshape(len(batch), CLASSES)
            labels = batch.column(1).to_numpy()
            rows += len(logits) + 0 * len(labels)


def work(what: str, paths: list[str]) -> dict[str, float]:
    """Do one thing in this process: its seconds, and by how much memory grows, in MiB."""
    from harness import give_back_memory, peak_memory
    from typer.testing import CliRunner

    from focalcal import cli, files

    files.PredictionStream(paths[:1]).reader  # noqa: B018  # imports pyarrow and what else there is
    run = CliRunner()
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "evaluate": ["evaluate", *paths, "--engine", "stream", "--json"],
            "calibrate": ["calibrate", "--method", "temperature", "--engine", "stream", "--json"]
            + [part for path in paths for part in ("--fit", path)]
            + ["--out", f"{folder}/calibrator.json"],
        }
        run.invoke(cli.app, ["evaluate", "--help"])
        give_back_memory()
        before = peak_memory(reset=True)
        start = time.perf_counter()
        answer = read_by_pyarrow(paths) if what == "pyarrow" else run.invoke(cli.app, commands[what])
        seconds = time.perf_counter() - start
    passes = json.loads(answer.stdout)["fit"]["passes"] if what == "calibrate" else 1
    return {"seconds": seconds, "growth": peak_memory() - before, "passes": passes}


def throughput(num_classes: int, values: int = 1 << 22 if QUICK else 1 << 25) -> dict[str, float]:
    """Values that one core takes in a second: by `evaluate`, and by a pass of the temperature's fit."""
    import torch

    from focalcal import TemperatureScaling, evaluate, files

    torch.set_num_threads(1)
    rows = 1 << 20 if num_classes <= 16 else max(64, (1 << 21) // num_classes)
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, num_classes, generator=generator)
    batch = (logits, torch.randint(num_classes, (rows,), generator=generator))
    again = max(1, values // logits.numel())
    found = {}
    for name, job in (("evaluate", evaluate), ("temperature", TemperatureScaling().fit)):
        stream = files.PredictionStream([batch] * again, memory=0)
        start = time.perf_counter()
        done = job(stream)
        passes = 1 if name == "evaluate" else done.report_.passes
        found[name] = passes * again * logits.numel() / (time.perf_counter() - start)
    return found


def in_process(what: str, paths: list[Path]) -> dict[str, float]:
    """One job in a process of its own."""
    command = [sys.executable, __file__, *(["--quick"] * QUICK), "--work", what, *map(str, paths)]
    done: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return done


def measure(paths: list[Path], repeats: int) -> dict[str, dict[str, float]]:
    """Every job in processes of their own, in turn; the best time and the largest growth of each."""
    found: dict[str, dict[str, float]] = {}
    for _ in range(turns(repeats)):
        for what in ("pyarrow", "evaluate", "calibrate"):
            answer = in_process(what, paths)
            earlier = found.setdefault(what, answer)
            earlier["seconds"] = min(earlier["seconds"], answer["seconds"])
            earlier["growth"] = max(earlier["growth"], answer["growth"])
    return found


def main() -> None:
    """Make the shards, measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5 * SHARD if QUICK else 20_000_000)
    parser.add_argument("--folder", type=Path, help="where the shards are or go; a temporary folder if not given")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--memory", action="store_true", help="only the memory that 10 classes take, writes nothing")
    parser.add_argument("--quick", action="store_true", help="small and once, writes nothing")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        print(json.dumps(work(asked.work[0], asked.work[1:])))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        if asked.memory:
            paths = write_shards(folder, asked.rows, classes=10)
            for what in ("evaluate", "calibrate"):
                growth = in_process(what, paths)["growth"]
                print(f"{asked.rows:,} rows of 10 classes: {what} grows by {growth:.0f} MiB")
            return
        paths = write_shards(folder, asked.rows)
        counts = sorted({max(1, len(paths) * part // 20) for part in (1, 5, 10, 20)})
        sizes: dict[str, Any] = {str(count * SHARD): measure(paths[:count], asked.repeats) for count in counts}
    cores = {str(classes): throughput(classes) for classes in CLASS_COUNTS}
    for rows, found in sizes.items():
        read = found["pyarrow"]["seconds"]
        print(f"{int(rows):,} rows: pyarrow takes {read:.1f} s")
        for what in ("evaluate", "calibrate"):
            ours = found[what]
            a_pass = ours["seconds"] / ours["passes"] / read
            most = 1 / SPEED_GOALS[what]
            print(f"  {what:10s} {a_pass:5.2f} x pyarrow a pass", end="   ")
            print(
                f"goal {most:.2f}   {'met' if a_pass <= most else 'MISSED'}; memory grows by {ours['growth']:.0f} MiB"
            )
    goals = {"speed": SPEED_GOALS, "growth": MEMORY_GOAL, "linear": LINEAR_GOAL}
    save("streams", {"sizes": sizes, "cores": cores, "goals": goals})


if __name__ == "__main__":
    main()
