"""20 Newsgroups, from local files in their usual forms or from the Hugging Face hub, as words or as BERT's tokens."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from focalcal.core.checks import require
from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.dataset import DataSplits
from focalcal_lab.data.huggingface import pretrained_bert
from focalcal_lab.data.tokens import (
    Ints,
    MaskedTokenRows,
    Ragged,
    TokenRows,
    choose_vocabulary,
    index_words,
    renumber,
)
from focalcal_lab.data.word_vectors import Missing, find_vectors, read_vectors

Headers: TypeAlias = Literal["remove", "keep"]
Sizes: TypeAlias = "Sequence[int] | None"

# Train, validation and test documents of the 19,997. Source: [mukhoti2020, App. D; ghosh2022, App. D.1].
PAPERS_SIZES = (15_098, 900, 3_999)
HUB = "SetFit/20_newsgroups"
_TABLES = (".jsonl", ".jsonl.gz", ".parquet")
_GROUP_NAMES = ("group", "label_text", "label_name")
_HEADER = re.compile(r"^(from|subject|organization|newsgroups|message-id|lines|date):", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Documents:
    """Texts with their groups, and which of them the source calls its test split (None: it has no splits)."""

    texts: list[str]
    labels: Ints
    is_test: Ints | None
    class_names: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Message:
    """A document as a file has it."""

    text: str
    label: int | str
    name: str | None = None
    is_test: bool | None = None


def newsgroups(
    folder: Path | None,
    *,
    seed: int,
    headers: Headers = "remove",
    sizes: Sizes = None,
    vocabulary: int = 20_000,
    min_count: int = 1,
    max_length: int = 1_000,
    unknown: Literal["keep", "drop"] = "keep",
    vectors: str | None = None,
    missing: Missing = "random",
) -> DataSplits:
    """20 Newsgroups as word numbers, for the global-pooling CNN.

    `folder` is a file or a folder in one of the usual forms (see `read_documents`); without one, the hub is asked.
    The vocabulary comes from the training documents alone. `vectors` is a file of word vectors.

    As in the code that mukhoti2020 adapts: headers are removed, a long document loses its beginning and a short one is
    padded there. That code counts the vocabulary over all documents, leaves out unknown words (`unknown: drop`) and
    gives zeros to words without a vector (`missing: zero`).

    Source: [mukhoti2020, App. D].
    """
    require(unknown in ("keep", "drop"), "unknown", "must be keep or drop", repr(unknown))
    require(max_length >= 1, "max_length", "must be at least 1", max_length)
    documents = read_documents(folder)
    rows, split = split_documents(documents, seed=seed, sizes=sizes)
    indexed, words = index_words(body_of(text, headers) for text in documents.texts)
    known, numbers = choose_vocabulary(indexed.take(rows[0]), words, size=vocabulary, min_count=min_count)
    tokens, labels = renumber(indexed, numbers, drop_unknown=unknown == "drop"), torch.from_numpy(documents.labels)
    train, val, test = (TokenRows(tokens.take(part), labels[part], max_length=max_length) for part in rows)
    matrix = None
    if vectors is not None:
        matrix = read_vectors(find_vectors(vectors, folder), known, seed=seed, missing=missing)
    return DataSplits(
        "20newsgroups",
        train,
        val,
        test,
        num_classes=_num_classes(documents),
        class_names=documents.class_names,
        facts={"vocabulary": len(known), "vectors": matrix},
        about=f"{documents.source}; {split}; headers: {headers}",
    )


def newsgroups_for_bert(
    folder: Path | None,
    *,
    seed: int,
    headers: Headers = "remove",
    sizes: Sizes = None,
    tokenizer: str = "bert-base-uncased",
    train_length: int = 128,
    test_length: int = 512,
) -> DataSplits:
    """20 Newsgroups as the tokens of a Transformer, at most 128 in training and 512 in validation and test.

    `tokenizer` is one of `focalcal_lab.data.huggingface.BERTS`, or a folder with such a tokenizer.

    Source: [ghosh2022, App. D.2].
    """
    documents = read_documents(folder)
    parts, split = split_documents(documents, seed=seed, sizes=sizes)
    tokens = _load_tokenizer(tokenizer)
    labels = torch.from_numpy(documents.labels)

    def rows(part: Ints, length: int) -> MaskedTokenRows:
        texts = [body_of(documents.texts[row], headers) for row in part]
        # An empty list of texts is no batch to the tokenizer.
        ids = tokens(texts, truncation=True, max_length=length)["input_ids"] if texts else []
        return MaskedTokenRows(Ragged.of(ids), labels[part], padding=int(tokens.pad_token_id))

    return DataSplits(
        "20newsgroups-bert",
        rows(parts[0], train_length),
        rows(parts[1], test_length),
        rows(parts[2], test_length),
        num_classes=_num_classes(documents),
        class_names=documents.class_names,
        facts={"vocabulary": len(tokens)},
        about=f"{documents.source}; {split}; headers: {headers}; tokens of {tokenizer}",
    )


def body_of(text: str, headers: Headers = "remove") -> str:
    """A message without its header lines, which name senders and organisations and so give the group away.

    Only a first paragraph that has a header line (From, Subject, ...) is removed: some sources come without headers.

    >>> body_of("From: a@b.c\\nSubject: cars\\n\\nIt runs.\\n\\nBye"), body_of("It runs.\\n\\nBye")
    ('It runs.\\n\\nBye', 'It runs.\\n\\nBye')
    """
    require(headers in ("remove", "keep"), "headers", "must be remove or keep", repr(headers))
    first, blank, rest = text.partition("\n\n")
    return rest if headers == "remove" and blank and _HEADER.search(first) else text


def split_documents(documents: Documents, *, seed: int, sizes: Sizes = None) -> tuple[tuple[Ints, Ints, Ints], str]:
    """Which documents are for training, validation and test, and that in words.

    With the 19,997 documents of the papers, their 15,098/900/3,999, drawn at random. The sorted "bydate" release has
    only 18,846: there its own test split stays and 900 documents for validation are drawn from the rest; a source
    without splits gives a fifth to the test, as the papers' code does. `sizes` asks for other numbers.
    """
    total, own = len(documents.texts), documents.is_test
    order = np.random.default_rng(seed).permutation(total)
    if sizes is None and total >= sum(PAPERS_SIZES):
        sizes, own = PAPERS_SIZES, None
    in_test = own[order] if own is not None else np.arange(total) < (sizes[2] if sizes else total // 5)
    test, rest = order[in_test], order[~in_test]
    wanted = tuple(sizes) if sizes else (max(len(rest) - PAPERS_SIZES[1], 0), PAPERS_SIZES[1], len(test))
    require(len(wanted) == 3 and min(wanted) >= 0, "sizes", "must be three numbers: train, val, test", list(wanted))
    if wanted[0] < 1 or wanted[0] + wanted[1] > len(rest) or wanted[2] > len(test):
        raise InputError(
            f"sizes: train + val must fit into {len(rest)} documents and test into {len(test)}, with at least one for "
            f"training; got {'/'.join(map(str, wanted))}. Give other `sizes`: [train, val, test]."
        )
    val, train = rest[: wanted[1]], rest[wanted[1] : wanted[1] + wanted[0]]
    kind = "test split of the source" if own is not None else "test drawn at random"
    found = (np.sort(train), np.sort(val), np.sort(test[: wanted[2]]))
    return found, f"split {'/'.join(str(len(part)) for part in found)} ({kind}, seed {seed})"


def read_documents(folder: Path | None) -> Documents:
    """Documents from a file or folder, or from the hub if there is none.

    Understood are: `.jsonl`, `.jsonl.gz` and `.parquet` files with the columns `text` and `label` (a class number or a
    name) and, if there, `split` and `group`, or a pair of files named train and test; the text folders
    `20news-bydate-train/<group>/<message>` and `20news-bydate-test` (or `train` and `test`); and one folder per group.
    """
    if folder is None:
        return _collect(_from_hub(HUB), f"{HUB} from the Hugging Face hub")
    if folder.is_file():
        return _collect(_read_table(folder, None), folder.name)
    if not folder.is_dir():
        raise InputError(f"data: must be a folder or file of 20 Newsgroups; got {folder}, which is not there.")
    pair = _split_folders(folder)
    if pair is not None:
        records = [*_read_groups(pair[0], False), *_read_groups(pair[1], True)]
        return _collect(records, f"{pair[0].name} and {pair[1].name}")
    tables = _tables(folder)
    if tables:
        records = [record for path, is_test in tables for record in _read_table(path, is_test)]
        return _collect(records, " and ".join(path.name for path, _ in tables))
    groups = _group_folder(folder)
    if groups is not None:
        return _collect(_read_groups(groups, None), f"text folders of {groups.name}")
    raise InputError(
        f"data: must hold 20 Newsgroups as {', '.join(_TABLES)} files or as one folder per group; got {folder}, which "
        "has neither."
    )


def _num_classes(documents: Documents) -> int:
    return max(len(documents.class_names), int(documents.labels.max()) + 1)


def _collect(records: Iterable[Message], source: str) -> Documents:
    """Records as documents; group names become class numbers in the order of the alphabet."""
    rows = list(records)
    if not rows:
        raise FileFormatError(f"{source}: it has no documents.")
    by_name = sorted({str(row.label) for row in rows if isinstance(row.label, str)})
    names = {row.label: row.name for row in rows if isinstance(row.label, int) and row.name is not None}
    numbers = {name: number for number, name in enumerate(by_name)}
    labels = [numbers[row.label] if isinstance(row.label, str) else row.label for row in rows]
    class_names = tuple(by_name) or tuple(names.get(label) or str(label) for label in range(max(labels) + 1))
    splits = [row.is_test for row in rows]
    is_test = None if None in splits else np.array(splits, dtype=bool)
    return Documents([row.text for row in rows], np.array(labels, dtype=np.int64), is_test, class_names, source)


def _split_folders(folder: Path) -> tuple[Path, Path] | None:
    for train in sorted(path for path in folder.iterdir() if path.is_dir() and path.name.endswith("train")):
        test = train.with_name(train.name.removesuffix("train") + "test")
        if test.is_dir():
            return train, test
    return None


def _group_folder(folder: Path) -> Path | None:
    """The folder whose folders hold messages: this one, or the only one in it that is called after the data set."""
    for place in (folder, *sorted(folder.glob("20*news*"))):
        inner = [path for path in place.iterdir() if path.is_dir()] if place.is_dir() else []
        if sum(any(file.is_file() for file in path.iterdir()) for path in inner) >= 2:
            return place
    return None


def _read_groups(folder: Path, is_test: bool | None) -> Iterator[Message]:
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        for message in sorted(path for path in group.iterdir() if path.is_file() and path.name[0] != "."):
            # The messages are from 1993, before UTF-8; every byte is a character of Latin-1.
            yield Message(message.read_text(encoding="latin-1"), group.name, is_test=is_test)


def _tables(folder: Path) -> list[tuple[Path, bool | None]]:
    """The files of a folder with documents, and whether each is a test split; one file alone says so in a column."""
    places = [folder, folder / "data"]
    files = [path for place in places if place.is_dir() for path in sorted(place.iterdir()) if _is_table(path)]
    splits: list[tuple[Path, bool | None]] = [
        (path, "test" in path.name) for path in files if "test" in path.name or "train" in path.name
    ]
    if {is_test for _, is_test in splits} == {True, False}:
        return splits
    named = [path for path in files if "news" in path.name.lower()] or files
    if len(named) > 1:
        raise InputError(
            f"data: which file holds 20 Newsgroups must be plain; got {', '.join(path.name for path in named)}. "
            "Give the path of one file."
        )
    return [(path, None) for path in named]


def _is_table(path: Path) -> bool:
    return path.is_file() and path.name.endswith(_TABLES)


def _read_table(path: Path, is_test: bool | None) -> Iterator[Message]:
    if not _is_table(path):
        raise InputError(f"data: must be a {', '.join(_TABLES)} file; got {path}.")
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
    for number, row in enumerate(rows, start=1):
        yield _record(row, is_test, f"{path}, row {number}")


def _json_rows(path: Path) -> Iterator[Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                number += 1
                if line.strip():
                    yield json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError, EOFError, OSError) as error:
        raise FileFormatError(f"{path}, line {number}: each line must be a JSON object: {error}.") from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise FileFormatError(f"{path}: it is not a readable Parquet file: {error}.") from error


def _record(row: Any, is_test: bool | None, place: str) -> Message:
    """A row of a table as a record; its class number, or the name where there is none, is the label."""
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise FileFormatError(f"{place}: a column `text` with a string was expected.")
    name = next((row[key] for key in _GROUP_NAMES if isinstance(row.get(key), str)), None)
    label = row.get("label", name)
    if isinstance(label, bool) or not isinstance(label, int | str) or (isinstance(label, int) and label < 0):
        raise FileFormatError(f"{place}: a column `label` with a class number or a name was expected; got {label!r}.")
    if is_test is None and "split" in row:
        is_test = row["split"] == "test"
    return Message(row["text"], label, name, is_test)


def _from_hub(name: str) -> Iterator[Message]:
    import datasets

    try:
        splits = {split: datasets.load_dataset(name, split=split) for split in ("train", "test")}
    except (OSError, ValueError, RuntimeError) as error:  # what it raises offline, or for a name that is not there
        raise InputError(
            f"data: {name} cannot be had from the Hugging Face hub ({type(error).__name__}). Go online, or give a "
            "folder with 20 Newsgroups."
        ) from error
    for split, rows in splits.items():
        for number, row in enumerate(rows, start=1):
            yield _record(row, split == "test", f"{name}, {split}, row {number}")


def _load_tokenizer(name: str) -> Any:
    import transformers

    known = pretrained_bert(name, "tokenizer")
    try:
        # Not AutoTokenizer, which lets a folder choose any class, or code of its own.
        return transformers.BertTokenizer.from_pretrained(known, trust_remote_code=False)
    except Exception as error:  # what damaged files make of the reader
        raise InputError(
            f"tokenizer: {name} cannot be loaded ({type(error).__name__}: {error}). Go online, or give a folder."
        ) from error
