"""Forged and damaged calibrator files: refused, or a calibrator that gives finite probabilities that sum to one.

A digest stops accidents only: most of these files carry a fresh one, as someone with bad intentions would write it.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import focalcal as fc
from focalcal.calibrators.base import Calibrator
from focalcal.core.checks import Array
from tests.fuzz.limits import Refused, watched
from tests.fuzz.readers.of_bytes import HUGE, NUMBERS, OF_BYTES
from tests.fuzz.readers.of_safetensors import changed_json, places_of, put_tensors_together, take_tensors_apart
from tests.fuzz.target import Case, Target, packed, smaller_bytes, unpacked

Arrays = dict[str, Array]

_EXAMPLES = Path(__file__).resolve().parents[1] / "calibrators" / "written_by_0_1_0_dev0"
_NUMBERS = (0.0, -0.0, -1.0, 1e-300, 1e300, -1e300, 5e-324, float("nan"), float("inf"), -float("inf"), 10**400, 2**63)
_DTYPES = ("float64", "float32", "float16", "int64", "uint8", "bool")
_METHODS = (
    *(each.class_name for each in fc.calibrators.calibrator_entries()),
    "Compose",
    "os.system",
    "",
    "Calibrator",
)
_KEYS = ("settings", "fitted", "report", "num_classes", "parts", "class_names", "kind", "method", "schema_version")
_CLASSES, _MOST_CLASSES = 3, 1000  # of the rows that a calibrator is applied to


# --------------------------------------------------------------------------------------------------------- the forgery


@cache
def examples() -> tuple[bytes, ...]:
    """Valid files of all methods."""
    return tuple(path.read_bytes() for path in sorted(_EXAMPLES.iterdir()) if path.stem != "expected")


def forged(seed: int) -> Case:
    """A calibrator file with one to three things done to it; the same for the same seed."""
    rng = random.Random(seed)
    content = rng.choice(examples())
    if rng.random() < 0.15:
        return {"file": packed(rng.choice(OF_BYTES)(rng, content, rng.choice(examples())))}
    document, arrays = _apart(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _changed_arrays(rng, arrays) if arrays and rng.random() < 0.5 else _changed_document(rng, document)
    levels = rng.choice((0,) * 15 + (1, 2, 50, 300))
    plain = {name: _plain(array) for name, array in arrays.items()}
    return {"document": document, "arrays": plain, **({"levels": levels} if levels else {})}


def _apart(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The document of a file, and its arrays."""
    if content[:1] == b"{":
        return json.loads(content), {}
    header, values = take_tensors_apart(content)
    document = json.loads(header.pop("__metadata__")["focalcal"])
    arrays = {name: np.frombuffer(values[slice(*said["data_offsets"])]) for name, said in header.items()}
    return document, {name: arrays[name].reshape(said["shape"]) for name, said in header.items()}


def _together(document: dict[str, Any], arrays: Arrays) -> bytes:
    """A file with a digest that is right."""
    text = json.dumps({**document, "sha256": _digest(document, arrays)})
    if not arrays:
        return text.encode()
    header: dict[str, Any] = {"__metadata__": {"focalcal": text}}
    values = b""
    for name, array in arrays.items():
        place = [len(values), len(values) + array.nbytes]
        header[name] = {"dtype": _tag(array), "shape": list(array.shape), "data_offsets": place}
        values += array.tobytes()
    return put_tensors_together(header, values)


def _plain(array: Array) -> dict[str, Any]:
    """An array as JSON; one value stands for all where they are equal."""
    values = array.reshape(-1).tolist()
    same = len(values) > 16 and len(set(values)) == 1
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values[:1] if same else values}


def _array(plain: dict[str, Any]) -> Array:
    values = np.array(plain["values"], dtype=plain["dtype"])
    return np.resize(values, plain["shape"]) if values.size else values.reshape(plain["shape"])


def _tag(array: Array) -> str:
    kind = {"f": "F", "i": "I", "u": "U", "b": "BOOL"}[array.dtype.kind]
    return kind if kind == "BOOL" else f"{kind}{8 * array.itemsize}"


def _digest(document: dict[str, Any], arrays: Arrays) -> str:
    """The digest as the format defines it."""
    plain = {name: value for name, value in document.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} torch.{arrays[name].dtype} {tuple(arrays[name].shape)}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _changed_document(rng: random.Random, document: dict[str, Any]) -> None:
    fitted = [place for place in places_of(document) if isinstance(place[0][place[1]], (int, float))]
    choice = rng.random()
    if choice < 0.35 and fitted:
        there, key = rng.choice(fitted)
        there[key] = rng.choice((*_NUMBERS, *NUMBERS, *HUGE[:3], -there[key], there[key] * 1000, str(there[key]), True))
    elif choice < 0.45:
        document["method"] = rng.choice(_METHODS)
    elif choice < 0.55:
        document[rng.choice(_KEYS)] = rng.choice((None, {}, [], 0, -1, 2, 10**9, "x", [dict(document)], {"gamma": 1.0}))
    else:
        changed_json(rng, document)


def _changed_arrays(rng: random.Random, arrays: Arrays) -> None:
    name = rng.choice(list(arrays))
    array = arrays[name]
    flat = array.reshape(-1).astype(np.float64)
    choice = rng.randrange(7)
    if choice <= 1 and flat.size:
        for _ in range(rng.choice((1, 1, 3))):
            flat[rng.randrange(flat.size)] = float(min(rng.choice(_NUMBERS), 1e308))
        arrays[name] = flat.reshape(array.shape)
    elif choice == 2:
        arrays[name] = rng.choice((flat, flat[:-1], np.concatenate([flat, flat]), flat[:0], flat[:1], array[None]))
    elif choice == 3:
        arrays[name] = array.T.copy() if array.ndim == 2 else flat[::-1].copy()
    elif choice == 4:
        arrays[name] = np.nan_to_num(array, posinf=0, neginf=0).clip(-100, 100).astype(rng.choice(_DTYPES))
    elif choice == 5:
        arrays[rng.choice(("extra", "temperature_", "0.weight_", ""))] = arrays.pop(name)
    else:
        arrays[name] = np.full(rng.choice(((100_000,), (300, 300), (3, 3), (2,))), rng.choice((0.0, 0.5, -1.0)))


# ----------------------------------------------------------------------------------------------------------- the check


def check(case: Case) -> str:
    """Load the file and apply what it holds, with limits on time and memory."""
    _warm_up()
    return _check(_content(case))


def _content(case: Case) -> bytes:
    """The file: as it is, or put together and signed."""
    if "file" in case:
        return unpacked(case["file"])
    document = case["document"]
    for _ in range(case.get("levels", 0)):  # a calibrator of one part, which is one of one part, and so on
        document = {**document, "method": "Compose", "settings": {}, "fitted": {}, "parts": [document]}
    return _together(document, {name: _array(plain) for name, plain in case["arrays"].items()})


@cache
def _warm_up() -> None:
    for content in examples():
        assert _check(content) == "works"


def _check(content: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="focalcal-fuzz-") as place:
        path = Path(place) / "calibrator"
        path.write_bytes(content)
        calibrator = watched(lambda: fc.load_calibrator(path), str(path))
    if isinstance(calibrator, Refused):
        return "refused"
    applied = [watched(lambda kind=kind: _applied(calibrator, kind), "") for kind in ("logits", "probs")]
    repr(calibrator)
    return "does not apply" if any(isinstance(each, Refused) for each in applied) else "works"


def _applied(calibrator: Calibrator, kind: str) -> None:
    """The probabilities of some rows, sure ones and undecided ones among them, are probabilities."""
    said = calibrator.num_classes_
    classes = said if isinstance(said, int) and 2 <= said <= _MOST_CLASSES else _CLASSES
    wide = np.random.default_rng(0).normal(size=(8, classes))
    wide[1], wide[2, 0], wide[3, 0] = 0.0, 50.0, -50.0
    odds = np.exp(wide - wide.max(1, keepdims=True))
    scores = odds / odds.sum(1, keepdims=True) if kind == "probs" else wide
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-5)):
        probs = calibrator.predict_probs(scores.astype(dtype), kind=kind)
        assert np.isfinite(probs).all(), f"{calibrator} gives {probs}"
        assert (probs >= 0).all(), f"{calibrator} gives {probs}"
        assert abs(probs.sum(1) - 1).max() < tolerance, f"{calibrator} gives rows that sum to {probs.sum(1)}"


def _smaller(case: Case) -> Iterator[Case]:
    if "file" not in case:
        return  # a document can be read, and what is wrong with it seen
    for less in smaller_bytes(unpacked(case["file"])):
        yield {"file": packed(less)}


TARGET = Target(
    "calibrator-files",
    "forged and damaged calibrator files, loaded and applied",
    st.builds(forged, st.integers(0, 2**32)),
    check,
    frozenset({"refused", "works"}),
    in_ci=600,
    guarded=True,
    smaller=_smaller,
)
