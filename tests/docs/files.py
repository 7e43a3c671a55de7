"""Files that pages take for granted: `<!-- files: predictions runs -->` puts them into the page's folder."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import focalcal as fc
from focalcal.files import PredictionTable, write_predictions
from lab.tests.tiny import arrays, write_data
from tests.cli.tools import Answer, call, halves, predictions

ROOT = Path(__file__).resolve().parents[2]
_LANGUAGES = np.array(["de", "en", "fr"])


def put_files(names: list[str], folder: Path, cache: Path) -> None:
    """Make the files of these names in a folder; what is dear is made once and kept in `cache`."""
    for name in names:
        assert name in FILES, f"no files are called {name}; there are {', '.join(FILES)}"
        FILES[name](folder, cache)


def _predictions(folder: Path, _: Path) -> None:
    """Logits twice as large as they should be, in every format, whole and in shards, and a calibrator for them."""
    val, test = predictions(400, seed=0), predictions(600, seed=1)
    both = predictions(400, seed=2, split=halves(400))
    write_predictions(val, folder / "val.npz")
    write_predictions(test, folder / "test.npz")
    write_predictions(both, folder / "predictions.npz")
    np.save(folder / "val_logits.npy", val.scores)
    np.save(folder / "val_labels.npy", val.labels)
    for name in ("val.csv", "val.parquet", "val.safetensors"):
        write_predictions(val, folder / name)
    for name in ("new.csv", "new.parquet", "big.parquet"):
        write_predictions(test, folder / name)
    for name in ("scores", "val", "test", "new", "shards"):
        _shards(folder / name, test if name in ("test", "new") else val)
    fc.TemperatureScaling().fit(val.scores, val.labels).save(folder / "calibrator.json")


def _shards(folder: Path, table: PredictionTable, parts: int = 4) -> None:
    """Parquet files part-0.parquet, ... with a column of languages."""
    folder.mkdir()
    language = _LANGUAGES[np.arange(len(table.scores)) % 3]
    whole = pa.table({"logits": list(table.scores), "label": table.labels, "language": language})
    size = len(whole) // parts
    for part in range(parts):
        pq.write_table(whole.slice(part * size, size), folder / f"part-{part}.parquet")


def _tokens(folder: Path, _: Path) -> None:
    """The five most likely of 50,257 tokens, as inference servers export them."""
    generator = np.random.default_rng(0)
    ids = [generator.choice(50_257, 5, replace=False) for _ in range(200)]
    labels = [row[place] for row, place in zip(ids, generator.integers(0, 5, 200), strict=True)]
    probs = -np.sort(-generator.dirichlet(np.ones(6), size=200)[:, :5])  # the sixth is that of all other tokens
    rows = {"top_ids": ids, "top_log_probs": list(np.log(probs)), "label": labels}
    (folder / "tokens").mkdir()
    pq.write_table(pa.table(rows), folder / "tokens/part-0.parquet")


def _images(folder: Path, _: Path) -> None:
    """One folder of images a class, by the names that pages have for it."""
    for name in ("FOLDER", "FOLDER_OF_IMAGES"):
        write_data("own", folder / name)


def _cifar10(folder: Path, _: Path) -> None:
    """Very few images in DIR, so that a step of a large network takes seconds; with the sets out of distribution."""
    (folder / "DIR").mkdir()
    arrays(folder / "DIR/cifar10.npz", classes=10, each=2)
    arrays(folder / "DIR/cifar100.npz", classes=100, each=1)
    write_data("mnist", folder / "DIR")


def _demo(folder: Path, _: Path) -> None:
    """Two files that `focalcal demo` wrote once: training makes much of how a processor rounds."""
    shutil.copytree(Path(__file__).parent / "demo", folder / "focalcal-demo")


def _runs(folder: Path, cache: Path) -> None:
    """Finished runs of the lab, of one epoch: runs/cpu/digits with two methods."""
    options = ("--method", "ce", "--method", "adafocal", "--epochs", "1", "--quiet")
    _copy(lambda into: call("lab", "run", "cpu/digits", *options, "--out", into / "runs"), "runs", folder, cache)


def _examples(folder: Path, _: Path) -> None:
    """The scripts of the repository."""
    (folder / "examples").symlink_to(ROOT / "examples")


def _copy(make: Callable[[Path], Answer], name: str, folder: Path, cache: Path) -> None:
    """Copy what `make` makes, which the first test that wants it calls, in whichever process that is."""
    kept = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            unfinished = cache / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            answer = make(unfinished)
            assert answer.code == 0, answer.err
            unfinished.rename(kept)
    shutil.copytree(kept, folder, dirs_exist_ok=True)


FILES: dict[str, Callable[[Path, Path], None]] = {
    "predictions": _predictions,
    "tokens": _tokens,
    "images": _images,
    "cifar10": _cifar10,
    "demo": _demo,
    "runs": _runs,
    "examples": _examples,
}
