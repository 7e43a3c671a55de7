from __future__ import annotations

import collections
import io
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from focalcal.errors import FileFormatError
from focalcal_lab.data.cifar_pickles import opened_members, read_batch, read_pickled
from lab.tests.data.formats import pickle_of_python_2, write_tar


class Payload:
    """Runs a command of the shell when it is unpickled the usual way."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_whatever_the_protocol(protocol: int, dtype: str, order: Any) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype).copy(order=order)
    result = read_pickled(pickle.dumps({"data": array, "text": "ä", "labels": [1, None, 2.5]}, protocol), "batch")
    np.testing.assert_array_equal(result["data"], array)
    assert result["labels"] == [1, None, 2.5]


def test_python_2_s_pickles_are_read_as_pickle_itself_reads_them() -> None:
    values = {"data": np.random.default_rng(0).integers(0, 256, (7, 3072), dtype=np.uint8), "labels": [3] * 7}
    written = pickle_of_python_2(values)
    trusted = pickle.loads(written, encoding="latin1")  # the writer of this test is right
    np.testing.assert_array_equal(trusted["data"], values["data"])
    images, labels = read_batch(written, "data_batch_1", "labels")
    np.testing.assert_array_equal(images.reshape(7, -1), values["data"])
    assert labels.tolist() == [3] * 7


def test_no_code_of_a_pickle_runs(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    payloads = [
        Payload(os.system, f"touch {mark}"),
        Payload(eval, f"open({str(mark)!r}, 'w')"),
        Payload(exec, f"open({str(mark)!r}, 'w')"),
        Payload(open, str(mark), "w"),
        Payload(getattr, "text", "upper"),
        Payload(np.load, str(mark)),
        Payload(np.fromfile, str(mark)),
    ]
    for payload in payloads:
        for protocol in range(6):
            for value in (payload, {"data": payload, "labels": []}, [[payload]]):
                with pytest.raises(FileFormatError, match=r"batch: its pickle asks for \S+, which .* It was not run"):
                    read_pickled(pickle.dumps(value, protocol), "batch")
    assert not mark.exists()
    try:  # the same payload does run when nothing guards it, so the test can fail
        pickle.loads(pickle.dumps(payloads[0]))
    finally:
        assert mark.exists()


def test_a_pickle_cannot_change_how_the_next_one_is_read() -> None:
    def text(value: bytes) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value

    # BUILD sets attributes: here the defaults of the function that stands in for numpy's, so that a call without a
    # shape would give an array of three bytes.
    function = b"\x80\x03cnumpy.core.numeric\n_frombuffer\n"
    attack = function + b"N}(" + text(b"__defaults__") + b"K\x03\x85" + text(b"C") + b"\x86u\x86b."
    call = function + b"C\x03abccnumpy\ndtype\n" + text(b"u1") + b"\x85R\x86R."
    pickletools.dis(attack, out=io.StringIO())
    pickletools.dis(call, out=io.StringIO())
    with pytest.raises(FileFormatError, match="a function"):
        read_pickled(attack, "batch")
    with pytest.raises(FileFormatError, match="missing 2 required"):
        read_pickled(call, "batch")


def _array_of(code: str, shape: tuple[int, ...], content: bytes) -> bytes:
    good = pickle_of_python_2({"data": np.frombuffer(content, np.uint8)})
    inner = b"J" + len(content).to_bytes(4, "little")
    outer = b"".join(b"J" + side.to_bytes(4, "little", signed=True) for side in shape)
    return good.replace(b"(" + inner + b"t", b"(" + outer + b"t").replace(b"U\x02u1", b"U\x02" + code.encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"not a pickle",
        pickle.dumps({"data": [1]})[:-3],
        pickle.dumps(collections.OrderedDict(data=1)),
        pickle.dumps({1, 2}),
        pickle.dumps(np.array([{}], dtype=object), protocol=2),
        pickle.dumps(np.array(["a"]), protocol=2),
        pickle.dumps(np.array([1.5]), protocol=2),
        pickle.dumps(np.float64(1.0), protocol=2),
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # an array that never gets values
        _array_of("u1", (9,), b"12345678"),
        _array_of("u1", (-8, -1), b"12345678"),
        _array_of("O8", (1,), b"12345678"),
        b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x02PX\n.",
    ],
)
def test_what_is_not_a_batch_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(FileFormatError, match=r"^folder/data_batch_1: "):
        read_batch(content, "folder/data_batch_1", "labels")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"labels": [1]}, "must have data and labels"),
        ({"data": np.zeros((1, 3072), np.uint8)}, "must have data and labels"),
        ({"data": np.zeros((1, 3071), np.uint8), "labels": [1]}, r"shape \(N, 3072\); got uint8 \(1, 3071\)"),
        ({"data": np.zeros((1, 3072), np.int64), "labels": [1]}, "must be bytes"),
        ({"data": [1], "labels": [1]}, "got list"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "one for each of the 2 images"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}, "must be class numbers"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [10**30]}, "must be class numbers"),
    ],
)
def test_batches_of_another_shape_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(FileFormatError, match=said):
        read_batch(pickle.dumps(values), "batch", "labels")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "cifar.tar.gz", "cifar", {"test_batch": os.urandom(100_000)})
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(FileFormatError, match=r"cifar\.tar\.gz: is damaged or cut"), opened_members(path) as read:
        read("test_batch")
