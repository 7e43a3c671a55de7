"""Files whose digest is right and whose numbers are not: refused, or a calibrator whose probabilities are such."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import focalcal as fc
import focalcal.calibrators as c
from focalcal.calibrators.files import _KEY, _digest, _parse
from focalcal.errors import FileFormatError, InputError
from tests.calibrators.cases import CASES

# Of each class one.
BY_NAME = {type(case.make()).__name__: case for case in CASES}
FITTED = {name: case.fitted() for name, case in BY_NAME.items()}


def opened(path):
    """The document and the arrays of a file."""
    return _parse(path.read_bytes(), str(path))


def forged(path, document, arrays):
    """Write a file with a fresh digest: what someone with bad intentions would do."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    document["sha256"] = _digest(document, arrays)
    if not arrays:
        path.write_text(json.dumps(document))
        return path
    from safetensors.torch import save_file

    save_file(arrays, path, {_KEY: json.dumps(document)})
    return path


def refused_or_sound(path, num_classes):
    """Refused, or probabilities that are finite and sum to 1."""
    try:
        calibrator = fc.load_calibrator(path)
    except FileFormatError:
        return False
    logits = 3 * torch.randn(20, num_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for rows in (logits, logits.float()):
        try:
            probs = calibrator.predict_probs(rows)
        except InputError:  # a forged number of classes
            return False
        assert bool(torch.isfinite(probs).all())
        assert float((probs.sum(1, dtype=torch.float64) - 1).abs().max()) < 1e-5
    return True


def numbers_of(document, place=()):
    """The places of all numbers in a document."""
    if not isinstance(document, (dict, list)):
        return
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if isinstance(value, (int, float)):
            yield (*place, key)
        else:
            yield from numbers_of(value, (*place, key))


def put(document, place, value):
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = value


ODD = [0, -1, -0.0, 1e-320, 1e-300, -1e300, 1e300, 10**400, -(10**400), math.nan, math.inf, -math.inf, 2**63, 1.5]
ODD += [None, True, "1", [1.0], {}]


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=30)
@given(data=st.data())
def test_any_number_may_be_forged(name, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / f"calibrator{BY_NAME[name].suffix}"
    FITTED[name].save(path)
    document, arrays = opened(path)
    num_classes = document["num_classes"]
    places = [place for place in numbers_of(document) if place != ("schema_version",)]
    array = data.draw(st.sampled_from([None, *sorted(arrays)]))
    if array is None:
        put(document, data.draw(st.sampled_from(places)), data.draw(st.sampled_from(ODD)))
    else:
        value = arrays[array].flatten()
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(
            st.sampled_from([-1.0, 2.0, 1e308, -1e308, math.nan])
        )
        arrays[array] = value.reshape(arrays[array].shape)
    refused_or_sound(forged(path, document, arrays), num_classes)


@pytest.mark.parametrize("name", [name for name, case in BY_NAME.items() if case.arrays])
@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:0],
        lambda value: value[:-1] if len(value) > 1 else torch.cat([value, value]),
        lambda value: value.unsqueeze(0),
        lambda value: value.flatten()[0],
        lambda value: value.long(),
        lambda value: torch.cat([value, value], -1),
    ],
    ids=["empty", "other rows", "more dimensions", "a number", "integers", "other columns"],
)
def test_arrays_of_another_shape_or_type_are_refused(name, change, tmp_path):
    path = tmp_path / "calibrator.safetensors"
    FITTED[name].save(path)
    document, arrays = opened(path)
    for each in arrays:
        changed = change(arrays[each]).clone().contiguous()
        assert not refused_or_sound(forged(path, document, {**arrays, each: changed}), document["num_classes"]), each


def saved(calibrator, path, num_classes=2):
    logits = np.random.default_rng(0).normal(size=(80, num_classes))
    calibrator.fit(logits, np.arange(80) % num_classes).save(path)
    return opened(path)


@pytest.mark.parametrize("value", [0, 0.0, -1.0, 10**400, math.nan, math.inf, 1e-320, True, None])
def test_a_temperature_is_a_positive_number(tmp_path, value):
    document, arrays = saved(c.TemperatureScaling(), tmp_path / "t.json")
    document["fitted"]["temperature_"] = value
    with pytest.raises(FileFormatError, match=r"t\.json: .*temperature_"):
        fc.load_calibrator(forged(tmp_path / "t.json", document, arrays))


@pytest.mark.parametrize(
    ("make", "num_classes", "name", "change", "words"),
    [
        (c.EnsembleTemperatureScaling, 3, "weights_", lambda w: w * torch.tensor([-1.0, 1, 1]), "at least 0"),
        (c.EnsembleTemperatureScaling, 3, "weights_", lambda w: w * 2, "sum to 1"),
        (c.HistogramBinning, 3, "values_", lambda v: v + 1, "at most 1"),
        (c.HistogramBinning, 3, "edges_", lambda e: e.flip(1), "not decrease"),
        (c.IsotonicCalibration, 3, "scores_", lambda s: s.flip(1), "not decrease"),
        (c.IsotonicCalibration, 3, "calibrated_", lambda s: s.flip(1), "not decrease"),
        (c.BayesianBinning, 2, "values_", lambda v: v - 1, "at least 0"),
        (c.SplineCalibration, 3, "scores_", lambda s: s.flip(0), "not decrease"),
        (c.VectorScaling, 3, "weight_", lambda w: w[:2], r"shape \(3,\)"),
        (c.MatrixScaling, 3, "weight_", lambda w: w[:, :2], r"shape \(3, 3\)"),
        (c.DirichletCalibration, 3, "bias_", lambda b: b.new_zeros(10**6), r"shape \(3,\)"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, make, num_classes, name, change, words):
    path = tmp_path / "c.safetensors"
    document, arrays = saved(make(), path, num_classes)
    arrays[name] = change(arrays[name]).contiguous()
    with pytest.raises(FileFormatError, match=rf"c\.safetensors: {name}: .*{words}"):
        fc.load_calibrator(forged(path, document, arrays))


@pytest.mark.parametrize("num_classes", [0, 1, -3, 2.0, True, "3", 4, 10**12, None])
def test_the_number_of_classes_must_fit(tmp_path, num_classes):
    path = tmp_path / "v.safetensors"
    document, arrays = saved(c.VectorScaling(), path, 3)
    with pytest.raises(FileFormatError, match=r"v\.safetensors"):
        fc.load_calibrator(forged(path, {**document, "num_classes": num_classes}, arrays))


def test_binary_calibrators_are_for_two_classes(tmp_path):
    document, arrays = saved(c.PlattScaling(), tmp_path / "p.json")
    with pytest.raises(FileFormatError, match="2 classes"):
        fc.load_calibrator(forged(tmp_path / "p.json", {**document, "num_classes": 3}, arrays))


def test_parts_must_be_for_the_same_classes(tmp_path):
    path = tmp_path / "both.safetensors"
    document, arrays = saved(c.Compose(c.VectorScaling(), c.VectorScaling()), path, 3)
    document["parts"][1]["num_classes"] = 2
    arrays |= {name: arrays[name][:2].clone() for name in ("1.weight_", "1.bias_")}
    with pytest.raises(FileFormatError, match=r"both\.safetensors: .*classes"):
        fc.load_calibrator(forged(path, document, arrays))


def test_what_nobody_asked_for_is_refused(tmp_path):
    path = tmp_path / "v.safetensors"
    document, arrays = saved(c.VectorScaling(), path, 3)
    with pytest.raises(FileFormatError, match="more_"):
        fc.load_calibrator(forged(path, document, {**arrays, "more_": torch.zeros(3)}))


@pytest.mark.parametrize("depth", [200, 400, 490, 1000, 100_000])
def test_parts_within_parts_have_an_end(tmp_path, depth):
    path = tmp_path / "deep.json"
    document, _ = saved(c.Compose(c.TemperatureScaling()), path)
    document["parts"] = ["PARTS"]
    deep = '{"method": "Compose", "parts": [' * depth + "{}" + "]}" * depth
    path.write_text(json.dumps(document).replace('"PARTS"', deep))
    with pytest.raises(FileFormatError, match=r"deep\.json"):
        fc.load_calibrator(path)
