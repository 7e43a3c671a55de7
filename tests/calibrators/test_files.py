"""Calibrators as files: what is written comes back to the last bit, and nothing else is ever taken for one."""

from __future__ import annotations

import hashlib
import json
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import focalcal as fc
import focalcal.calibrators as c
from focalcal.calibrators.files import SCHEMA_VERSION
from focalcal.errors import FileFormatError, FocalCalError, InputError, NotFittedError
from tests.calibrators.cases import CASES, calibrators_that, every_calibrator, every_kind, same, state_of


def saved(case, folder, calibrator=None):
    path = folder / f"calibrator{case.suffix}"
    (calibrator or case.fitted()).save(path)
    return path


def refused(path, *words):
    """The file is refused by a FileFormatError that names it."""
    with pytest.raises(FileFormatError) as caught:
        fc.load_calibrator(path)
    message = str(caught.value)
    assert path.name in message
    assert all(word in message for word in words), message


def signed(document):
    """A JSON file with a fresh digest: what someone with bad intentions would write."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps({**document, "sha256": digest})


@pytest.fixture
def file(tmp_path):
    """A temperature of 2.885... in a JSON file."""
    path = tmp_path / "temperature.json"
    c.TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1]).save(path)
    return path


# ------------------------------------------------------------------------------------------------------ there and back


@every_calibrator
def test_what_was_saved_comes_back_to_the_last_bit(case, tmp_path):
    calibrator = case.fitted()
    loaded = fc.load_calibrator(saved(case, tmp_path))
    assert type(loaded) is type(calibrator)
    assert state_of(loaded) == state_of(calibrator)
    assert loaded.report_ == calibrator.report_
    assert loaded.num_classes_ == calibrator.num_classes_
    assert loaded.settings() == calibrator.settings()
    assert repr(loaded) == repr(calibrator)
    for dtype in (np.float32, np.float64):
        logits = case.data(seed=9)[0].astype(dtype)
        same(loaded(logits), calibrator(logits))
        same(loaded.predict_probs(logits), calibrator.predict_probs(logits))


@every_kind
def test_what_was_loaded_can_be_saved_and_fitted_again(case, tmp_path):
    first = saved(case, tmp_path)
    loaded = fc.load_calibrator(first)
    again = tmp_path / f"again{case.suffix}"
    loaded.save(again)
    assert again.read_bytes() == first.read_bytes()
    assert state_of(loaded.fit(*case.data(100, seed=5))) == state_of(case.make().fit(*case.data(100, seed=5)))


@every_kind
def test_a_kept_identity_is_kept_in_the_file(case, tmp_path):
    calibrator = case.fitted()
    object.__setattr__(calibrator._report, "kept_identity", True)
    loaded = fc.load_calibrator(saved(case, tmp_path, calibrator))
    logits = torch.tensor(case.data(seed=9)[0])
    same(loaded(logits), torch.log_softmax(logits, 1))


@calibrators_that("not arrays")
def test_numbers_are_saved_as_readable_json(case, tmp_path):
    document = json.loads(saved(case, tmp_path).read_text())
    assert document["format"] == "focalcal calibrator"
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["method"] == type(case.make()).__name__
    assert document["report"] == case.fitted().report_.to_dict()
    assert document["fitted"] == {name: getattr(case.fitted(), name) for name in case.fitted().FITTED}


@calibrators_that("arrays")
def test_arrays_are_saved_as_safetensors_that_others_can_read(case, tmp_path):
    from safetensors import safe_open

    with safe_open(saved(case, tmp_path), framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        document = json.loads(file.metadata()["focalcal"])
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["method"] == type(case.make()).__name__
    assert arrays
    buffers = {name.removeprefix("parts."): value for name, value in case.fitted().named_buffers() if value.dim()}
    assert arrays.keys() == buffers.keys()
    assert all(arrays[name].tobytes() == value.numpy().tobytes() for name, value in buffers.items())


@calibrators_that("ready")
def test_what_needs_no_fit_is_saved_without_one(case, tmp_path):
    loaded = fc.load_calibrator(saved(case, tmp_path, case.make()))
    assert state_of(loaded) == state_of(case.make())
    with pytest.raises(NotFittedError):
        loaded.report_  # noqa: B018


@every_calibrator
def test_fitted_ones_in_a_row_are_one_file(case, tmp_path):
    composed = c.Compose(case.fitted(), c.TemperatureScaling().fit(*case.data(50)))
    loaded = fc.load_calibrator(saved(case, tmp_path, composed))
    logits = case.data(seed=9)[0]
    assert state_of(loaded) == state_of(composed)
    same(loaded(logits), composed(logits))
    nested = c.Compose(composed, c.FocalCalibration(1.0))
    same(fc.load_calibrator(saved(case, tmp_path, nested))(logits), nested(logits))


def test_paths_may_be_strings_and_need_no_suffix(tmp_path):
    for case in CASES:
        path = str(tmp_path / "calibrator")
        case.fitted().save(path)
        assert state_of(fc.load_calibrator(path)) == state_of(case.fitted())


@every_calibrator
def test_the_suffix_may_not_promise_another_format(case, tmp_path):
    wrong = tmp_path / ("calibrator.json" if case.arrays else "calibrator.safetensors")
    wrong.write_text("as it was")
    with pytest.raises(InputError, match=r"^path: .*saved as \."):
        case.fitted().save(wrong)
    assert wrong.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [wrong]


# ---------------------------------------------------------------------------------------------------- whole or nothing


@pytest.mark.parametrize("step", ["fsync", "replace"])  # creation itself: tests/core/test_files.py
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    def fail(*_, **__):
        raise error

    for case in (next(case for case in CASES if case.arrays == arrays) for arrays in {case.arrays for case in CASES}):
        path = saved(case, tmp_path)
        old, other = path.read_bytes(), case.make().fit(*case.data(100, seed=5))
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(type(error)):
                other.save(path)
        assert path.read_bytes() == old
        assert list(tmp_path.iterdir()) == [path]
        path.unlink()


@calibrators_that("not ready")
def test_an_unfitted_one_leaves_the_old_file(case, tmp_path):
    path = saved(case, tmp_path)
    old = path.read_bytes()
    with pytest.raises(NotFittedError):
        case.make().save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_replaces_the_old_file(tmp_path):
    for case in CASES:
        path = saved(case, tmp_path)
        other = case.make().fit(*case.data(100, seed=5))
        other.save(path)
        assert state_of(fc.load_calibrator(path)) == state_of(other)
        path.unlink()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_has_the_permissions_of_any_new_file(file):
    plain = file.with_name("plain")
    plain.touch()
    assert file.stat().st_mode == plain.stat().st_mode


# ------------------------------------------------------------------------------------------------------ what is refused


@every_calibrator
def test_a_file_that_was_cut_is_refused(case, tmp_path):
    path = saved(case, tmp_path)
    whole = path.read_bytes()
    last = len(whole.rstrip(b"\n"))
    for length in {0, 1, 7, 8, 9, 100, last // 4, last // 2, last - 20, last - 1}:
        path.write_bytes(whole[:length])
        refused(path)


@every_calibrator
def test_a_file_that_was_extended_is_refused(case, tmp_path):
    path = saved(case, tmp_path)
    path.write_bytes(path.read_bytes() + b"{}")
    refused(path)


# Of each format one: what guards them does not depend on the method.
BY_FORMAT = {case.suffix: case for case in reversed(CASES)}


@pytest.mark.parametrize("case", BY_FORMAT.values(), ids=BY_FORMAT)
@given(data=st.data())
def test_a_changed_byte_is_noticed_or_harmless(case, data, tmp_path_factory):
    path = saved(case, tmp_path_factory.mktemp("changed"))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        loaded = fc.load_calibrator(path)
    except FileFormatError:
        return
    assert state_of(loaded) == state_of(case.fitted())  # white space between values


@given(content=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_other_bytes_are_refused(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("bytes") / "calibrator.json"
    path.write_bytes(content)
    refused(path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ).map(json.dumps)
)
def test_any_other_json_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("json") / "calibrator.json"
    path.write_text(content)
    refused(path)


def test_a_changed_number_is_noticed(file):
    document = json.loads(file.read_text())
    document["fitted"]["temperature_"] += 1e-9
    file.write_text(json.dumps(document))
    refused(file, "changed or damaged", "sha256")


def test_a_changed_array_is_noticed(tmp_path):
    for case in (case for case in CASES if case.arrays):
        path = saved(case, tmp_path)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1  # a sign, exponent or digit of the last value
        path.write_bytes(content)
        refused(path, "changed or damaged", "sha256")


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, 1.5])
def test_another_schema_version_is_refused_by_number(file, version):
    document = {**json.loads(file.read_text()), "schema_version": version}
    file.write_text(json.dumps(document))
    refused(file, f"schema version {version!r}", f"reads version {SCHEMA_VERSION}")
    file.write_text(signed(document))
    refused(file, f"schema version {version!r}")


@pytest.mark.parametrize("format", [None, "focalcal evaluation", 3, ["focalcal calibrator"]])
def test_another_format_is_refused(file, format):
    file.write_text(signed({**json.loads(file.read_text()), "format": format}))
    refused(file, "not a focalcal calibrator")


@pytest.mark.parametrize("name", ["format", "schema_version", "method", "settings", "fitted", "report", "num_classes"])
def test_a_missing_field_is_refused(file, name):
    document = json.loads(file.read_text())
    del document[name]
    file.write_text(signed(document))
    refused(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "Calibrator"),
        ("method", "load_calibrator"),
        ("method", "FitReport"),
        ("method", "os.system"),
        ("method", "__builtins__"),
        ("method", None),
        ("method", ["TemperatureScaling"]),
        ("settings", {"criterion": "no such criterion"}),
        ("settings", {"bounds": [2.0, 1.0]}),
        ("settings", {"bounds": []}),
        ("settings", {"bounds": None}),
        ("settings", {"no_such_setting": 1}),
        ("settings", []),
        ("settings", None),
        ("fitted", {}),
        ("fitted", []),
        ("fitted", None),
        ("fitted", {"temperature_": None}),
        ("fitted", {"temperature_": "2.0"}),
        ("fitted", {"temperature_": float("nan")}),
        ("fitted", {"temperature_": float("inf")}),
        ("fitted", {"temperature_": [1.0, 2.0]}),
        ("fitted", {"temperature_": {}}),
        ("report", {}),
        ("report", []),
        ("report", "fine"),
        ("report", {"criterion": "nll"}),
    ],
    ids=repr,
)
def test_signed_nonsense_is_refused(file, name, value):
    """The digest is no signature: a file that carries a right one is still read with care."""
    file.write_text(signed({**json.loads(file.read_text()), name: value}))
    refused(file)


def test_nesting_without_end_is_refused(file):
    file.write_text('{"format":' * 100_000)
    refused(file)
    part = {"method": "Compose", "settings": {}, "fitted": {}, "report": None, "num_classes": None, "parts": []}
    file.write_text(signed({**json.loads(file.read_text().replace('{"format":' * 100_000, "{}")), **part}))
    refused(file)


class _Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_and_never_run(tmp_path, protocol):
    path, mark = tmp_path / "calibrator.json", tmp_path / "mark"
    path.write_bytes(pickle.dumps(_Trap(mark), protocol))
    refused(path, *(["pickle", "never"] if protocol >= 2 else []))
    assert not mark.exists()


@pytest.mark.parametrize("new", [True, False])
def test_a_torch_archive_is_refused_and_never_run(tmp_path, new):
    path, mark = tmp_path / "calibrator.safetensors", tmp_path / "mark"
    torch.save({"trap": _Trap(mark)}, path, _use_new_zipfile_serialization=new)
    refused(path, "pickle", "never")
    assert not mark.exists()


@pytest.mark.parametrize("length", [0x680, 0x4B50, 0x7B20], ids=["pickle", "archive", "JSON"])
def test_a_safetensors_file_is_one_whatever_its_length(tmp_path, length):
    """It begins with the length of its header, whose bytes may be those by which other formats are known."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    case = BY_FORMAT[".safetensors"]
    path = saved(case, tmp_path)
    with safe_open(path, framework="pt") as file:
        arrays = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # written over below
        metadata = file.metadata()
    for missing in range(length):
        save_file(arrays, path, {**metadata, "note": "x" * (length - missing)})
        if int.from_bytes(path.read_bytes()[:8], "little") == length:
            break
    else:
        pytest.fail("no file of that length was made")
    assert state_of(fc.load_calibrator(path)) == state_of(case.fitted())


def test_nothing_of_a_pickle_is_written(tmp_path):
    for case in CASES:
        content = saved(case, tmp_path).read_bytes()
        assert content[:1] == b"{" or content[8:9] == b"{"


def test_safetensors_of_something_else_are_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"weight": torch.zeros(2)}, path)
    refused(path)
    save_file({"weight": torch.zeros(2)}, path, {"focalcal": "{}"})
    refused(path)
    save_file({"weight": torch.zeros(2)}, path, {"focalcal": "[1]"})
    refused(path)


def test_a_missing_file_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        fc.load_calibrator(tmp_path / "nothing.json")
    with pytest.raises(FileNotFoundError):
        next(iter(CASES)).fitted().save(tmp_path / "no" / "folder" / "calibrator")


def test_format_errors_are_value_errors_of_focalcal():
    assert issubclass(FileFormatError, ValueError)
    assert issubclass(FileFormatError, FocalCalError)
