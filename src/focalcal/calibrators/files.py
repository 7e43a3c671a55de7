"""Calibrators as small safe files: JSON for numbers, safetensors for arrays; nothing in them is ever run.

A file says its format, its schema version, the method with its settings, the fitted values and the report of the fit,
and carries a digest of all that, so that a file that was cut or changed by accident is refused. The digest is no
signature: anyone can compute it. What a file may do in bad hands is limited by what is checked: every value must be one
that a fit could have set.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focalcal.atomic import write_atomically
from focalcal.calibrators.base import Calibrator, FitReport
from focalcal.calibrators.compose import Compose
from focalcal.calibrators.fitted_values import require_probabilities, require_values
from focalcal.calibrators.table import find_calibrator
from focalcal.core.checks import require
from focalcal.errors import FileFormatError, FocalCalError
from focalcal.printable import shown

FORMAT = "focalcal calibrator"
SCHEMA_VERSION = 1
_KEY = "focalcal"  # of the document among the safetensors metadata
_DEEPEST = 20  # levels of calibrators made of calibrators; nobody needs three
_LONGEST = 300  # characters of another message in ours, which may repeat what the file says


def save_calibrator(calibrator: Calibrator, path: str | Path) -> None:
    """Write a fitted calibrator; see `Calibrator.save`."""
    calibrator.require_fitted()
    arrays: dict[str, Tensor] = {}
    document = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **_describe(calibrator, "", arrays)}
    document["sha256"] = _digest(document, arrays)
    suffix = Path(path).suffix.lower()
    if not arrays:
        require(suffix != ".safetensors", "path", f"{_name(calibrator)} has no arrays and is saved as .json", str(path))
        write_atomically(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
        return
    from safetensors.torch import save

    require(suffix != ".json", "path", f"{_name(calibrator)} has arrays and is saved as .safetensors", str(path))
    write_atomically(path, save(arrays, {_KEY: json.dumps(document, allow_nan=False)}))


def file_suffix(calibrator: Calibrator) -> str:
    """The suffix of a fitted calibrator's file: `.safetensors` if it has arrays, else `.json`."""
    arrays: dict[str, Tensor] = {}
    _describe(calibrator, "", arrays)
    return ".safetensors" if arrays else ".json"


def load_calibrator(path: str | Path) -> Calibrator:
    """Read a calibrator that `save` wrote.

    Refuses files of another schema version, files that were cut or changed, values that no fit could have set, and
    pickles, which are never read.

    >>> import pathlib, tempfile
    >>> from focalcal import TemperatureScaling
    >>> fitted = TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1])
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "temperature.json"
    >>> fitted.save(file)
    >>> round(load_calibrator(file).temperature_, 4)
    2.8854
    """
    content = Path(path).read_bytes()
    document, arrays = _parse(content, str(path))
    if document.get("format") != FORMAT:
        said = shown(repr(document.get("format")))
        raise FileFormatError(f"{path}: not a focalcal calibrator (its format is {said}).")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise FileFormatError(
            f"{path}: has schema version {shown(repr(version))}; this focalcal reads version {SCHEMA_VERSION}. "
            "Install the focalcal that wrote it, or fit and save again."
        )
    stated = document.pop("sha256", None)
    try:
        if stated != _digest(document, arrays):
            raise FileFormatError("was changed or damaged after it was saved: its sha256 does not match.")
        calibrator = _build(document, "", arrays)
        require(not arrays, "arrays", "must belong to the calibrator", ", ".join(arrays))
        require_probabilities(calibrator)
    except FocalCalError as error:
        raise FileFormatError(f"{path}: {shown(error, 2 * _LONGEST)}") from error
    except Exception as error:  # whatever forged values make of a constructor
        said = f"{type(error).__name__}: {shown(error, _LONGEST)}"
        raise FileFormatError(f"{path}: is not a calibrator that focalcal can rebuild ({said}).") from error
    return calibrator


def _name(calibrator: Calibrator) -> str:
    return type(calibrator).__name__


def _describe(calibrator: Calibrator, prefix: str, arrays: dict[str, Tensor]) -> dict[str, Any]:
    """The document of a calibrator; its arrays are put into `arrays` under their names with the prefix."""
    fitted = {}
    for name in calibrator.FITTED:
        value = calibrator._value(name).detach().cpu().contiguous()
        if value.dim() == 0:
            fitted[name] = value.item()
        else:
            arrays[prefix + name] = value
    state = calibrator.get_extra_state()
    described = {"method": _name(calibrator), "settings": calibrator.settings(), "fitted": fitted, **state}
    if isinstance(calibrator, Compose):
        described["parts"] = [_describe(part, f"{prefix}{i}.", arrays) for i, part in enumerate(calibrator.parts)]
    return described


def _build(document: dict[str, Any], prefix: str, arrays: dict[str, Tensor]) -> Calibrator:
    if document["method"] == Compose.__name__:
        depth = prefix.count(".")
        require(depth < _DEEPEST, "parts", f"must not be nested more than {_DEEPEST} deep", "more")
        parts = [_build(part, f"{prefix}{i}.", arrays) for i, part in enumerate(document["parts"])]
        calibrator: Calibrator = Compose(*parts)
    else:
        calibrator = find_calibrator(str(document["method"])).load()(**document["settings"])
    for name in calibrator.FITTED:
        value = arrays.pop(prefix + name, None)
        if value is None:
            value = torch.tensor(_number(name, document["fitted"][name]), dtype=torch.float64)
        require(value.is_floating_point(), name, "must be floating point", value.dtype)
        calibrator._set(**{name: value})
    report = document["report"]
    calibrator.num_classes_ = document["num_classes"]
    calibrator._report = None if report is None else FitReport.from_dict(report)
    calibrator.class_names = _class_names(document)
    require_values(calibrator)
    return calibrator


def _class_names(document: dict[str, Any]) -> tuple[str, ...] | None:
    names = document.get("class_names")
    if names is None:
        return None
    fine = isinstance(names, list) and len(names) == document["num_classes"] and all(isinstance(n, str) for n in names)
    require(fine, "class_names", "must be a list of strings, one for each class", shown(repr(names), _LONGEST))
    return tuple(names)


def _number(name: str, value: object) -> float:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    require(plain, name, "must be a finite number", shown(repr(value)))
    return float(value)  # type: ignore[arg-type]


def _parse(content: bytes, path: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document and the arrays of a file, told apart by their first bytes."""
    length = int.from_bytes(content[:8], "little")
    is_safetensors = content[7:9] == b"\0{"  # the end of the length of its header, and the header
    if not is_safetensors and (content[:1] == b"\x80" or content[:2] == b"PK"):
        raise FileFormatError(
            f"{path}: is a pickle or a torch archive. focalcal never reads those, because they can run any code; "
            "save with calibrator.save."
        )
    try:
        if not is_safetensors and content.lstrip()[:1] == b"{":
            document, arrays = json.loads(content), {}
        else:
            from safetensors.torch import load

            arrays = load(content)
            document = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_KEY])
    except Exception as error:  # whatever a broken file makes of a parser
        said = shown(error, _LONGEST)
        raise FileFormatError(f"{path}: is neither complete JSON nor a complete safetensors file ({said}).") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"{path}: holds {type(document).__name__}, not a calibrator.")
    return document, arrays


def _digest(document: dict[str, Any], arrays: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {tuple(arrays[name].shape)}".encode())
        digest.update(arrays[name].numpy().tobytes())
    return digest.hexdigest()
