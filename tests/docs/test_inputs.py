"""Every row of the tables of docs/inputs.md is run: it works, or is refused with the words that stand there."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import focalcal as fc
from focalcal.errors import InputError, InputWarning
from focalcal.files import PredictionStream
from tests.cli.tools import call

PAGE = Path(__file__).resolve().parents[2] / "docs/inputs.md"
CLASSES = ("cat", "cow", "dog")


class Row(NamedTuple):
    have: str
    example: str
    words: str | None  # with which it is refused, if it is


def rows() -> list[Row]:
    found, refused = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| you have"):
            refused = line.endswith("| words |")
        elif match := re.fullmatch(r"\| (.*?) \| `(.*?)` \| (.*) \|", line):
            have, example, last = match.groups()
            found.append(Row(have, example, last.strip("`") if refused else None))
    return found


ROWS = rows()
PYTHON = [row for row in ROWS if row.example.startswith("fc.")]
SHELL = [row for row in ROWS if row.example.startswith("focalcal ")]


def test_the_page_has_rows_of_both_kinds_and_no_others():
    assert len(PYTHON) > 25
    assert len(SHELL) > 12
    assert len(PYTHON) + len(SHELL) == len(ROWS)


def data():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(60, 3))
    labels = generator.integers(0, 3, 60)
    labels[:3], labels[3:9] = (0, 1, 2), 0
    images = generator.normal(size=(2, 3, 4, 5))
    return {
        "fc": fc,
        "pd": pd,
        "PredictionStream": PredictionStream,
        "logits": logits,
        "labels": labels,
        "probs": np.exp(logits) / np.exp(logits).sum(1, keepdims=True),
        "names": np.array(CLASSES)[labels],
        "frame": pd.DataFrame(logits, columns=list(CLASSES), index=generator.permutation(60)),
        "images": images,
        "image_labels": generator.integers(0, 3, (2, 4, 5)),
        "tokens": np.moveaxis(images[:, :, 0], 1, -1),
        "token_labels": generator.integers(0, 3, (2, 5)),
    }


@pytest.mark.parametrize("row", PYTHON, ids=[row.have for row in PYTHON])
def test_python(row):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        if row.words is None:
            assert eval(row.example, data()) is not None
            return
        with pytest.raises(InputError) as caught:
            eval(row.example, data())
    assert row.words in str(caught.value)


def write_files(folder: Path) -> None:
    """The files that the page names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = data()
    logits, probs, labels, names = given["logits"], given["probs"], given["labels"], given["names"]
    frame = pd.DataFrame(probs, columns=list(CLASSES))
    frame["label"] = names
    frame.to_csv(folder / "bare.csv", index=False)
    frame.rename(columns={name: f"prob_{name}" for name in CLASSES}).to_csv(folder / "named.csv", index=False)
    rounded = frame.rename(columns={name: f"prob_{name}" for name in CLASSES}).round(2)
    rounded.to_csv(folder / "rounded.csv", index=False)
    commas = pd.DataFrame(logits, columns=[f"logit_{k}" for k in range(3)]).assign(label=labels)
    commas.to_csv(folder / "commas.csv", index=False, sep=";", decimal=",")
    lines = [
        json.dumps({"logits": row, "label": int(label)}) for row, label in zip(logits.tolist(), labels, strict=True)
    ]
    (folder / "lines.jsonl").write_text("\n".join(lines))
    (folder / "lines.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    pq.write_table(pa.table({"logits": logits.tolist(), "label": names}), folder / "lists.parquet")
    kind = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    vectors = pa.array([{"type": 1, "size": None, "indices": None, "values": row} for row in probs.tolist()], kind)
    pq.write_table(pa.table({"probability": vectors, "label": labels}), folder / "spark.parquet")
    spam = pd.DataFrame({"prob": probs[:, 0], "label": np.where(labels == 0, "spam", "ham")})
    spam.to_csv(folder / "spam.csv", index=False)
    np.savez(folder / "ignored.npz", logits=logits, labels=np.where(np.arange(60) < 5, -100, labels))
    (folder / "shards").mkdir()
    np.savez(folder / "shards/a.npz", logits=logits, labels=labels)
    (folder / "shards/b.npz").write_bytes(b"PK damaged")
    fc.TemperatureScaling().fit(logits, labels).save(folder / "calibrator.json")
    (folder / "notes.txt").write_text("nothing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("pyarrow")
    place = tmp_path_factory.mktemp("inputs")
    write_files(place)
    return place


@pytest.mark.parametrize("row", SHELL, ids=[row.have for row in SHELL])
def test_shell(row, folder, monkeypatch):
    monkeypatch.chdir(folder)
    answer = call(*row.example.split()[1:])
    if row.words is None:
        assert answer.code == 0, answer.err
    else:
        assert answer.code == 2
        assert row.words in answer.err
