"""Files that must be refused, each for one reason, with words that the message must have."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.files import Columns
from tests.fuzz.readers import thrift
from tests.fuzz.readers.of_parquet import footer_of, with_footer

ROWS, CLASSES = 6, 3


@dataclass(frozen=True)
class Case:
    """What is given, what the message must say, and the file with whose name it begins."""

    name: str
    paths: tuple[Path, ...]
    words: str
    begins_with: str
    columns: Columns = field(default_factory=Columns)


class _Maker:
    """Makes cases in a folder, each under its own name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cases = folder, []

    def add(self, name: str, suffix: str, write: Callable[[Path], object], words: str, **columns: Any) -> None:
        path = self.folder / f"{name}{suffix}"
        write(path)
        self.cases.append(Case(name, (path,), words, str(path), Columns(**columns)))

    def content(self, name: str, suffix: str, content: bytes | str, words: str, **columns: Any) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.add(name, suffix, lambda path: path.write_bytes(data), words, **columns)

    def npz(self, name: str, words: str, /, **arrays: Any) -> None:
        self.add(name, ".npz", lambda path: np.savez(path, **arrays), words)

    def zipped(self, name: str, members: list[tuple[str, bytes]], words: str) -> None:
        def write(path: Path) -> None:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
                for member, content in members:
                    file.writestr(member, content)

        self.add(name, ".npz", write, words)


def make_all(folder: Path) -> list[Case]:
    """Every malformed input, written under `folder`."""
    make = _Maker(folder)
    _paths(make)
    _values(make)
    _archives(make)
    _arrays(make)
    _text(make)
    _tensors(make)
    _parquet(make)
    assert len({case.name for case in make.cases}) == len(make.cases)
    return make.cases


def good() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"logits": rng.normal(size=(ROWS, CLASSES)).astype(np.float32), "labels": np.arange(ROWS) % CLASSES}


def good_probs() -> dict[str, Any]:
    return {"probs": np.tile(np.float32([0.5, 0.25, 0.25]), (ROWS, 1)), "labels": np.arange(ROWS) % CLASSES}


def _npy(values: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, **options)
    return stream.getvalue()


def _npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _declared(shape: str, descr: str = "<f4", version: bytes = b"\x01\x00", count: int = 72) -> bytes:
    """An .npy whose header says a shape, with so many bytes of values."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + bytes(count)


def _paths(make: _Maker) -> None:
    def case(name: str, path: Path, words: str) -> None:
        make.cases.append(Case(name, (path,), words, str(path)))

    case("missing_file", make.folder / "nowhere.npz", "no such file")
    case("missing_folder", make.folder / "nowhere" / "val.npz", "no such file")
    (make.folder / "a_file.npz").write_bytes(_npz(**good()))
    case("path_through_a_file", make.folder / "a_file.npz" / "val.npz", "no such file")
    case("pattern_without_match", make.folder / "nothing-*.npz", "no file matches")
    empty = make.folder / "empty_folder"
    empty.mkdir()
    case("folder_without_files", empty, "without prediction files")
    other = make.folder / "folder_of_other_files"
    other.mkdir()
    (other / "readme.md").write_text("hello")
    case("folder_of_other_files", other, "without prediction files")
    mixed = make.folder / "mixed_folder"
    mixed.mkdir()
    (mixed / "a.npz").write_bytes(_npz(**good()))
    (mixed / "b.csv").write_text("label,logit_0,logit_1\n0,1,2\n")
    case("mixed_folder", mixed, "several formats")
    shards = make.folder / "shards_of_two_widths"
    shards.mkdir()
    (shards / "a.npz").write_bytes(_npz(**good()))
    (shards / "b.npz").write_bytes(_npz(logits=np.zeros((2, 5), np.float32), labels=np.array([0, 4])))
    make.cases.append(Case("shards_of_two_widths", (shards,), "number of classes", str(shards / "b.npz")))
    kinds = make.folder / "shards_of_two_kinds"
    kinds.mkdir()
    (kinds / "a.npz").write_bytes(_npz(**good()))
    (kinds / "b.npz").write_bytes(_npz(**good_probs()))
    make.cases.append(Case("shards_of_two_kinds", (kinds,), "of kind probs", str(kinds / "b.npz")))
    fake = make.folder / "folder_named_as_a_file.npz"
    fake.mkdir()
    case("folder_named_as_a_file", fake, "without prediction files")
    pair = make.folder / "pair_without_labels"
    pair.mkdir()
    np.save(pair / "logits.npy", good()["logits"])
    case("pair_without_labels", pair, "has no labels")
    make.content("unknown_suffix", ".txt", "label,logit_0,logit_1\n0,1,2\n", "suffix .txt")
    make.content("no_suffix", "", "label,logit_0,logit_1\n0,1,2\n", "no suffix")
    make.content("a_pickle", ".pkl", pickle.dumps([1, 2]), "never reads pickles")
    make.content("a_torch_file", ".pt", b"PK\x03\x04", "never reads pickles")


def _values(make: _Maker) -> None:
    arrays = good()
    logits, labels, probs = arrays["logits"], arrays["labels"], good_probs()["probs"]

    def changed(values: Any, place: Any, value: Any) -> Any:
        copy = values.copy()
        copy[place] = value
        return copy

    make.npz("nan", "nan in row 2", logits=changed(logits, (2, 1), np.nan), labels=labels)
    make.npz("infinity", "inf in row 5", logits=changed(logits, (5, 0), np.inf), labels=labels)
    make.npz("minus_infinity", "every class is masked in row 0", logits=changed(logits, 0, -np.inf), labels=labels)
    make.npz(
        "label_out_of_range", "must lie in 0..2; got 3 in row 1. Check", logits=logits, labels=changed(labels, 1, 3)
    )
    make.npz("negative_label", "got -1 in row 4", logits=logits, labels=changed(labels, 4, -1))
    make.npz("float_labels", "whole numbers", logits=logits, labels=labels.astype(np.float64))
    make.npz("bool_labels", "whole numbers", logits=logits, labels=labels > 0)
    make.npz("one_hot_labels", "one entry for each", logits=logits, labels=np.eye(3, dtype=int)[labels])
    make.npz("text_labels_without_names", "have no names", logits=logits, labels=np.array(["a"] * ROWS))
    make.npz(
        "unknown_label_name",
        "'bird' is not one of",
        logits=logits,
        labels=np.array(["cat"] * 5 + ["bird"]),
        class_names=np.array(["cat", "dog", "cow"]),
    )
    make.npz("too_few_labels", "got shape (5,)", logits=logits, labels=labels[:5])
    make.npz("no_labels", "has no labels", logits=logits)
    make.npz("too_few_weights", "weights must have one entry", logits=logits, labels=labels, weights=np.ones(5))
    make.npz("negative_weight", "not negative", logits=logits, labels=labels, weights=-np.ones(ROWS))
    make.npz("nan_weight", "finite", logits=logits, labels=labels, weights=np.full(ROWS, np.nan))
    signalling = np.full(ROWS, 0x7F800001, np.uint32).view(np.float32)  # to convert it is a warning of numpy's
    make.npz("signalling_nan_weight", "finite", logits=logits, labels=labels, weights=signalling)
    make.npz("text_weights", "weights must be numbers", logits=logits, labels=labels, weights=np.array(["1"] * ROWS))
    make.npz("too_few_splits", "split must have one entry", logits=logits, labels=labels, split=np.array(["val"]))
    make.npz("float_split", "split must be a list of strings", logits=logits, labels=labels, split=np.ones(ROWS))
    make.npz("too_few_names", "2 class names for 3", logits=logits, labels=labels, class_names=np.array(["a", "b"]))
    make.npz("names_not_utf8", "not UTF-8", logits=logits, labels=labels, class_names=np.array([b"\xff", b"b", b"c"]))
    signs = np.array([0x110000, 97, 98], np.uint32).view("<U1")
    make.npz("names_of_no_characters", "characters that do not exist", logits=logits, labels=labels, class_names=signs)
    make.npz("half_a_character_for_a_label", "do not exist", logits=logits, labels=np.array(["\ud800"] * ROWS))
    encoded = {"labels": np.array([b"\xff"] * ROWS), "class_names": np.array(["a", "b", "c"])}
    make.npz("labels_not_utf8", "not UTF-8", logits=logits, **encoded)
    make.npz("one_dimension", "are of two classes", logits=logits[:, 0], labels=labels)
    make.npz("three_dimensions", "must have shape (rows, classes)", logits=logits[:, :, None], labels=labels)
    make.npz("a_number", "must have shape (rows, classes)", logits=np.float32(1), labels=labels)
    make.npz("no_rows", "has no rows", logits=logits[:0], labels=labels[:0])
    make.npz("one_class", "at least two classes", logits=logits[:, :1], labels=labels * 0)
    make.npz("no_class", "at least two classes", logits=logits[:, :0], labels=labels * 0)
    make.npz("integer_scores", "must be floating point", logits=logits.astype(np.int64), labels=labels)
    make.npz("complex_scores", "must be floating point", logits=logits.astype(np.complex64), labels=labels)
    make.npz("probs_do_not_sum", "row 3 sum to 1.25", probs=changed(probs, (3, 0), 0.75), labels=labels)
    make.npz("probs_are_logits", "must lie in [0, 1]", probs=logits, labels=labels)
    make.npz("log_probs_above_0", "must not be above 0", log_probs=changed(np.log(probs), (1, 1), 2), labels=labels)
    make.npz(
        "log_probs_beyond_exp", "must not be above 0", log_probs=changed(np.log(probs), (1, 1), 1e4), labels=labels
    )
    make.npz("log_probs_of_plus_infinity", "finite", log_probs=changed(np.log(probs), (1, 1), np.inf), labels=labels)


def _archives(make: _Maker) -> None:
    logits, labels = _npy(good()["logits"]), _npy(good()["labels"])
    whole = _npz(**good())
    make.npz("wrong_key", "it has scores, y", scores=good()["logits"], y=good()["labels"])
    make.npz("misspelt_key", "it has logit, labels", logit=good()["logits"], labels=good()["labels"])
    make.npz("two_score_keys", "logits, probs", logits=good()["logits"], **good_probs())
    make.npz("two_label_keys", "both labels and label", **good(), label=good()["labels"])
    make.add("named_key_is_missing", ".npz", lambda path: np.savez(path, **good()), "has no key z", scores="z")
    make.add("named_labels_are_missing", ".npz", lambda path: np.savez(path, **good()), "has no y", labels="y")
    make.add(
        "named_scores_of_no_kind",
        ".npz",
        lambda path: np.savez(path, z=good()["logits"], labels=[0]),
        "--kind",
        scores="z",
    )
    make.npz("empty_archive", "it has nothing")
    make.content("empty_npz", ".npz", b"", "is not an .npz archive")
    make.content("text_as_npz", ".npz", "label,logit_0\n", "is not an .npz archive")
    make.content("parquet_as_npz", ".npz", b"PAR1" + bytes(50), "looks like parquet")
    make.content("npy_as_npz", ".npz", logits, "looks like npy")
    make.content("cut_npz", ".npz", whole[: len(whole) // 2], "damaged or cut")
    make.content("cut_end_of_npz", ".npz", whole[:-10], "damaged or cut")
    place = whole.index(good()["logits"].tobytes())
    make.content("wrong_checksum", ".npz", whole[:place] + b"\0\0\0\0" + whole[place + 4 :], "damaged or cut")
    objects = np.array([[1.0, 2.0]] * ROWS, dtype=object)
    make.npz("pickled_scores", "never reads pickles", logits=objects, labels=good()["labels"])
    make.npz(
        "pickled_labels", "never reads pickles", logits=good()["logits"], labels=np.array([0] * ROWS, dtype=object)
    )
    record = np.zeros(ROWS, dtype=[("a", "<f4"), ("b", "<f4")])
    make.npz("records", "plain array", logits=record, labels=good()["labels"])
    make.zipped("path_traversal", [("../../logits.npy", logits), ("labels.npy", labels)], "outside of the archive")
    make.zipped("absolute_member", [("/tmp/logits.npy", logits), ("labels.npy", labels)], "outside of the archive")
    make.zipped("backslash_member", [("a\\logits.npy", logits), ("labels.npy", labels)], "outside of the archive")
    make.zipped("huge_shape", [("logits.npy", _declared("(1000000000000, 1000)")), ("labels.npy", labels)], "declares")
    make.zipped("overflowing_shape", [("logits.npy", _declared("(9223372036854775807, 8)"))], "declares")
    make.zipped("shape_of_400_digits", [("logits.npy", _declared(f"(1{'0' * 400}, 8)"))], "more than 1,024 EiB")
    make.zipped("no_bytes_of_a_huge_shape", [("logits.npy", _declared(f"(0, {2**62})", count=0))], "no array has")
    make.zipped("seventy_dimensions", [("logits.npy", _declared(f"(18, {'1, ' * 70})"))], "no array has")
    make.zipped("strings_of_no_bytes", [("logits.npy", _declared(f"({10**17},)", "|S0", count=0))], "a plain array")
    make.zipped("negative_shape", [("logits.npy", _declared("(-6, -3)")), ("labels.npy", labels)], "shape (-6, -3)")
    make.zipped("header_of_nonsense", [("logits.npy", _declared("__import__('os')"))], "cannot be read")
    make.zipped("header_too_long", [("logits.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + bytes(64))], "npy header of")
    make.zipped("unknown_npy_version", [("logits.npy", _declared("(6, 3)", version=b"\x09\x00"))], "npy version")
    make.zipped("member_is_not_npy", [("logits.npy", b"hello, world, this is text")], "not in npy format")
    make.zipped("cut_member", [("logits.npy", logits[:-8]), ("labels.npy", labels)], "declares")
    make.content("encrypted", ".npz", _flagged(whole), "encrypted")
    make.content("zip_bomb", ".npz", _inflated(logits, labels, 3 << 30), "as no real scores do")
    lie = _declared(f"({10**7}, 3)")
    make.content(
        "deflated_size_lies", ".npz", _inflated(lie, labels, 12 * 10**7 + len(lie) - 72), "declares more bytes"
    )
    make.content("stored_size_lies", ".npz", _larger(whole), "declares more bytes")
    make.zipped("same_key_twice", [("logits.npy", logits), ("logits", logits), ("labels.npy", labels)], "two members")
    make.content("duplicate_members", ".npz", _twins(logits, labels), "two members logits.npy")


def _flagged(archive: bytes) -> bytes:
    """The archive with its members marked as encrypted."""
    data = bytearray(archive)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := archive.find(signature, place + 1)) >= 0:
            data[place + offset] |= 1
    return bytes(data)


def _inflated(logits: bytes, labels: bytes, size: int) -> bytes:
    """An archive whose directory says that a small member unpacks to so many bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("logits.npy", logits)
        file.writestr("labels.npy", labels)
    data = bytearray(stream.getvalue())
    place = data.index(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<I", size)
    return bytes(data)


def _larger(archive: bytes) -> bytes:
    data = bytearray(archive)
    place = data.index(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<I", 500 << 20)
    return bytes(data)


def _twins(logits: bytes, labels: bytes) -> bytes:
    """Two members of one name: zipfile would warn, so that one is renamed afterwards."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in (("logits.npy", logits), ("logitz.npy", logits), ("labels.npy", labels)):
            file.writestr(name, content)
    return stream.getvalue().replace(b"logitz.npy", b"logits.npy")


def _arrays(make: _Maker) -> None:
    logits = good()["logits"]
    make.content("npy_without_labels", "_logits.npy", _npy(logits), "has no labels")
    make.content("npy_of_unknown_kind", ".npy", _npy(logits), "its name does not say which")
    make.content("empty_npy", "_logits.npy", b"", "not in npy format")
    make.content("cut_npy", "_logits.npy", _npy(logits)[:-4], "declares")
    make.content("huge_npy", "_logits.npy", _declared("(100000000, 100000)"), "declares")
    make.content("pickled_npy", "_logits.npy", _npy(np.array([1, "a"], dtype=object)), "never reads pickles")
    scores, labels = make.folder / "pair_logits.npy", make.folder / "pair_labels.npy"
    np.save(scores, logits)
    np.save(labels, np.arange(ROWS) / 2)
    make.cases.append(Case("npy_pair_of_float_labels", (scores, labels), "whole numbers", str(scores)))
    short = make.folder / "short_labels.npy"
    np.save(short, np.zeros(4, int))
    make.cases.append(Case("npy_pair_of_two_lengths", (scores, short), "got shape (4,)", str(scores)))


def _text(make: _Maker) -> None:
    begin = "label,logit_0,logit_1\n"

    def text(name: str, content: bytes | str, words: str, **columns: Any) -> None:
        make.content(f"text_{name}", ".csv", content, words, **columns)

    text("empty", "", "is empty")
    text("blank", " \n\n", "is empty")
    text("header_only", begin, "no rows")
    text("without_header", "0,1.5,2.5\n1,0.5,2.5\n", "no header line")
    text("without_scores", "label,a,b\n0,1,2\n", "no columns logit_*")
    text("without_labels", "logit_0,logit_1\n1,2\n", "has no labels")
    text("ragged_short", begin + "0,1,2\n1,2\n", "line 3 has 2 fields")
    text("ragged_long", begin + "0,1,2\n\n1,2,3,4\n", "line 4 has 4 fields")
    text("word_for_a_number", begin + "0,1,2\n1,many,3\n", "line 3, column logit_0: 'many' is not a number")
    text("empty_number", begin + "0,1,\n", "line 2, column logit_1: is empty")
    text("decimal_comma", 'label;logit_0;logit_1\n0;"1,5";2.5\n', "'1,5' is not a number")
    text("underscore_in_number", begin + "0,1_0,2\n", "'1_0' is not a number")
    text("control_sign_in_number", begin + "0,1\x1e,2\n", "is not a number")
    text("nan", begin + "0,1,2\n1,nan,3\n", "nan in line 3")
    text("infinity", begin + "0,inf,2\n", "inf in line 2")
    text("float_label", begin + "1.0,1,2\n", "the label is '1.0'")
    text("empty_label", begin + "0,1,2\n,1,2\n", "line 3: the label is empty")
    text("label_out_of_range", begin + "2,1,2\n", "line 2: the label is '2'; it must be a class number from 0 to 1")
    text("label_of_many_digits", begin + "99999999999999999999999,1,2\n", "the label is")
    text(
        "unknown_label",
        "label,prob_cat,prob_dog\ncat,0.5,0.5\ncow,0.5,0.5\n",
        "line 3: the label is 'cow'; it must be one of the classes cat, dog",
    )
    text(
        "label_of_no_column",
        "label,logit_1,logit_2\n1,0.5,0.5\n0,0.5,0.5\n",
        "line 3: the label is '0'; it must be one of the classes 1, 2",
    )
    text("label_beyond_measure", begin + "0,1,2\n" + "x" * 1001 + ",1,2\n", "an entry of 1,001 characters")
    text("split_beyond_measure", f"split,{begin}{'x' * 1001},0,1,2\n", "an entry of 1,001 characters")
    text("duplicate_columns", "label,logit_0,logit_0\n0,1,2\n", "two columns named logit_0")
    text("duplicates_without_number", "a," * 100_000 + "b\n", "two columns named a")  # in time that does not explode
    text("same_class_twice", "label,logit_0,logits_0\n0,1,2\n", "of the same class")
    text("two_kinds", "label,logit_0,logit_1,prob_0,prob_1\n0,1,2,0.5,0.5\n", "more than one set of scores")
    text("one_class", "label,logit_0\n0,1\n", "at least two classes")
    text("not_utf8", begin.encode() + b"0,1,2\n\xe9,1,2\n", "line 3 is not UTF-8")
    text("utf16", begin.encode("utf-16"), "not UTF-8")
    text("null_bytes", begin.encode() + bytes(20), "null bytes")
    text("open_quote", begin + '0,"1,2\n', "cannot be read")
    text("text_after_a_quote", begin + '0,"1"x,2\n', "cannot be read")
    text("negative_weight", "label,weight,logit_0,logit_1\n0,-1,1,2\n", "not negative")
    text("word_for_a_weight", "label,weight,logit_0,logit_1\n0,much,1,2\n", "column weight: 'much'")
    text("missing_prefix", begin + "0,1,2\n", "none whose name begins with it", scores="score_")
    text("is_parquet", b"PAR1" + bytes(20), "looks like parquet")
    text("probs_too_small", "label,prob_0,prob_1\n0,0.33,0.6\n", "divide each row by its sum")
    make.content("tsv_with_an_open_quote", ".tsv", begin.replace(",", "\t") + '0\t"1"x\t2\n', "expected after")
    make.content("tsv_with_commas", ".tsv", begin + "0,1,2\n", "no columns logit_*")


def _tensors(make: _Maker) -> None:
    logits, labels = good()["logits"], good()["labels"]

    def file(header: Any, data: bytes, length: int | None = None) -> bytes:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return (len(text) if length is None else length).to_bytes(8, "little") + text + data

    data = logits.tobytes() + labels.tobytes()
    middle, end = logits.nbytes, len(data)
    header = {
        "logits": {"dtype": "F32", "shape": [ROWS, CLASSES], "data_offsets": [0, middle]},
        "labels": {"dtype": "I64", "shape": [ROWS], "data_offsets": [middle, end]},
    }

    def tensors(name: str, content: bytes, words: str) -> None:
        make.content(f"tensors_{name}", ".safetensors", content, words)

    tensors("empty", b"", "not a complete safetensors file")
    tensors("cut", file(header, data)[:-5], "are there")
    tensors("cut_header", file(header, b"")[:40], "not a complete safetensors file")
    tensors("with_something_after", file(header, data + b"more"), "are there")
    tensors("header_of_wrong_length", file(header, data, length=1 << 50), "not a complete safetensors file")
    tensors("header_is_not_json", file(b"{logits: 1}", data), "not JSON")
    tensors("header_is_a_list", file([1, 2], data), "not a JSON object")
    tensors("header_says_nothing", file({"logits": {}}, data), "does not say dtype")
    wrong = {**header, "logits": {**header["logits"], "shape": [10**12, CLASSES]}}
    tensors("huge_shape", file(wrong, data), "declares shape")
    wrong = {**header, "logits": {**header["logits"], "shape": [-ROWS, -CLASSES]}}
    tensors("negative_shape", file(wrong, data), "does not say dtype")
    wrong = {**header, "labels": {**header["labels"], "data_offsets": [0, end - middle]}}
    tensors("overlapping", file(wrong, data), "does not begin where")
    wrong = {**header, "labels": {**header["labels"], "data_offsets": [middle + 8, end + 8]}}
    tensors("hole", file(wrong, data + bytes(8)), "does not begin where")
    twins = json.dumps(header).encode()[:-1] + b"," + json.dumps({"logits": header["logits"]}).encode()[1:]
    tensors("same_name_twice", file(twins, data), "twice")
    tensors(
        "wrong_key", file({"y": {**header["labels"], "data_offsets": [0, end - middle]}}, labels.tobytes()), "it has y"
    )
    wrong = {**header, "__metadata__": {"class_names": "cat, dog"}}
    tensors("names_are_not_json", file(wrong, data), "not JSON")
    wrong = {**header, "__metadata__": {"class_names": "{}"}}
    tensors("names_are_not_a_list", file(wrong, data), "JSON list of strings")
    wrong = {**header, "__metadata__": {"class_names": '["a", "b", "\\ud800"]'}}
    tensors("half_a_character_among_names", file(wrong, data), "JSON list of strings")
    wrong = {**header, "__metadata__": {"history_gamma": f"[1{'0' * 400}]"}}
    tensors("history_names_beyond_floats", file(wrong, data), "list of lists of numbers")
    wrong = {**header, "\udfff": {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}}
    tensors("half_a_character_for_a_key", file(wrong, data), "is not text")
    wrong = {**header, "labels": {**header["labels"], "shape": [1] * 70 + [ROWS]}}
    tensors("seventy_dimensions", file(wrong, data), "no array has")
    wrong = {**header, "labels": {**header["labels"], "data_offsets": [middle, 10**4000]}}
    tensors("offset_of_4000_digits", file(wrong, data), "000,00... bytes")
    split = {"dtype": "F8_E4M3", "shape": [ROWS], "data_offsets": [end, end + ROWS]}
    wrong = {**header, "split": split, "__metadata__": {"split_names": '["a"]'}}
    tensors("split_of_floats", file(wrong, data + bytes(ROWS)), "must hold numbers from 0 to 0")
    wide = {"dtype": "U8", "shape": [2**60, 0], "data_offsets": [end, end]}
    tensors("split_of_a_huge_shape", file({**wrong, "split": wide}, data), "split must be a list of strings")
    wrong = {**header, "split": {**split, "dtype": "U8"}, "__metadata__": {"split_names": json.dumps(["x" * 1001])}}
    tensors("split_beyond_measure", file(wrong, data + bytes(ROWS)), "an entry of 1,001 characters")
    odd = {**header, "logits": {"dtype": "F8_E4M3", "shape": [middle], "data_offsets": [0, middle]}}
    tensors("scores_of_8_bits", file(odd, data), "must be floating point")


def _parquet(make: _Maker) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    logits, labels = good()["logits"].tolist(), good()["labels"].tolist()

    def parquet(name: str, words: str, /, metadata: dict[str, str] | None = None, **columns: Any) -> None:
        table = pa.table(columns).replace_schema_metadata(metadata)
        make.add(f"parquet_{name}", ".parquet", lambda path: pq.write_table(table, path), words)

    parquet("wrong_column", "it has z, label", z=logits, label=labels)
    parquet("no_labels", "has no labels", logits=logits)
    parquet("no_rows", "has no rows", logits=pa.array([], pa.list_(pa.float32())), label=pa.array([], pa.int64()))
    parquet("null_scores", "column logits has nulls", logits=[*logits[:-1], None], label=labels)
    parquet("null_in_a_list", "nulls in its lists", logits=[*logits[:-1], [1.0, None, 2.0]], label=labels)
    parquet("null_label", "column label has nulls", logits=logits, label=[*labels[:-1], None])
    parquet("ragged_lists", "differ in length", logits=[*logits[:-1], [1.0, 2.0]], label=labels)
    parquet("ragged_lists_of_right_sum", "differ in length", logits=[[1.0] * 2, [1.0] * 4], label=[0, 1])
    parquet("integer_lists", "floating point", logits=[[1, 2, 3]] * ROWS, label=labels)
    parquet("text_lists", "floating point", logits=[["1", "2"]] * ROWS, label=labels)
    parquet("float_labels", "whole numbers", logits=logits, label=[float(each) for each in labels])
    parquet("bool_labels", "numbers or strings; got bool", logits=logits, label=[each > 0 for each in labels])
    parquet("label_out_of_range", "must lie in 0..2; got 7", logits=logits, label=[*labels[:-1], 7])
    parquet("nan", "nan in row 5", logits=[*logits[:-1], [1.0, float("nan"), 2.0]], label=labels)
    parquet("names_are_not_json", "not JSON", {"class_names": "cat, dog"}, logits=logits, label=labels)
    parquet("two_kinds", "more than one set of scores", logits=logits, probs=logits, label=labels)
    parquet("list_and_columns", "more than one set of logits", logits=logits, logit_0=labels, label=labels)
    stream = io.BytesIO()
    pq.write_table(pa.table({"logits": logits, "label": labels}), stream)
    whole = stream.getvalue()
    make.content("parquet_rows_lie", ".parquet", _counted(whole, 7, 6), "7 rows, and 6 in its row groups")
    make.content("parquet_row_group_lies", ".parquet", _counted(whole, 7, 7), "damaged Parquet file")
    make.content("parquet_row_group_is_negative", ".parquet", _counted(whole, -1, -1), "damaged Parquet file")
    parquet("split_beyond_measure", "an entry of 1,001 characters", logits=logits, label=labels, split=["x" * 1001] * 6)
    parquet("control_sign_in_a_name", "nulls", **{"logit_\x1b": [1.0, None], "logit_b": [1.0, 2.0]}, label=[0, 1])
    make.content("parquet_cut", ".parquet", whole[:-20], "damaged Parquet file")
    make.content("parquet_overwritten", ".parquet", whole[:4] + bytes(60) + whole[64:], "damaged Parquet file")
    make.content("parquet_empty", ".parquet", b"", "not a Parquet file")
    make.content("parquet_is_text", ".parquet", "label,logit_0\n", "not a Parquet file")
    make.content("parquet_is_npz", ".parquet", _npz(**good()), "looks like npz")
    stream = io.BytesIO()
    twins = pa.Table.from_arrays([pa.array(logits), pa.array(labels), pa.array(labels)], ["logits", "label", "label"])
    with pa.ipc.new_file(stream, twins.schema) as writer:
        writer.write_table(twins)
    make.content("arrow_duplicate_columns", ".arrow", stream.getvalue(), "two columns named label")


def _counted(parquet: bytes, rows: int, rows_of_group: int) -> bytes:
    """A file of one row group whose metadata say other numbers of rows."""
    tree, start = footer_of(parquet)
    thrift.change(tree, 3, rows)
    thrift.change(thrift.field(tree, 4).values[0], 3, rows_of_group)
    return with_footer(parquet[:start], thrift.encoded(tree))
