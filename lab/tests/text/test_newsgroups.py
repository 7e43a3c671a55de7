from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import load_data, newsgroups as ng

GROUPS = ("rec.autos", "sci.space")
HEADER = "From: someone@somewhere\nSubject: secretword\nLines: 1\n\n"
# Three documents a group for training, two for test; every one has a word of its own.
DOCUMENTS = [
    (HEADER + f"The {'car' if label == 0 else 'moon'} own{part}{number}x{label} naïve", label, part == "test")
    for part, numbers in (("train", 3), ("test", 2))
    for label in (0, 1)
    for number in range(numbers)
]


def _rows():
    return [
        {"text": text, "label": label, "split": "test" if is_test else "train", "group": GROUPS[label]}
        for text, label, is_test in DOCUMENTS
    ]


def _write_groups(folder, documents):
    for number, (text, label, _) in enumerate(documents):
        (folder / GROUPS[label]).mkdir(parents=True, exist_ok=True)
        (folder / GROUPS[label] / str(1000 + number)).write_text(text, encoding="latin-1")


def _bydate(folder):
    _write_groups(folder / "20news-bydate-train", [row for row in DOCUMENTS if not row[2]])
    _write_groups(folder / "20news-bydate-test", [row for row in DOCUMENTS if row[2]])


def _jsonl(folder):
    (folder / "20newsgroups.jsonl").write_text("\n".join(map(json.dumps, _rows())) + "\n\n")
    (folder / "README.md").write_text("not data")


def _jsonl_gz(folder):
    (folder / "20newsgroups.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, _rows())).encode()))


def _jsonl_pair(folder):
    for part in ("train", "test"):
        rows = [
            {"text": r["text"], "label": r["label"], "label_text": r["group"]} for r in _rows() if r["split"] == part
        ]
        (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def _parquet(folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    rows = _rows()
    (folder / "data").mkdir()
    for part in ("train", "test"):
        chosen = [{"text": row["text"], "label": row["group"]} for row in rows if row["split"] == part]
        parquet.write_table(pyarrow.Table.from_pylist(chosen), folder / "data" / f"{part}-00000.parquet")


FORMS = {"bydate": _bydate, "jsonl": _jsonl, "jsonl.gz": _jsonl_gz, "pair": _jsonl_pair, "parquet": _parquet}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_documents(tmp_path, form):
    FORMS[form](tmp_path)
    found = ng.read_documents(tmp_path)
    assert found.class_names == GROUPS
    rows = zip(found.texts, found.labels.tolist(), found.is_test.tolist(), strict=True)
    assert sorted(rows) == sorted(DOCUMENTS)


def test_one_folder_a_group_has_no_split_of_its_own(tmp_path):
    _write_groups(tmp_path / "20_newsgroups", DOCUMENTS)
    (tmp_path / "20_newsgroups" / "rec.autos" / ".DS_Store").write_text("x")
    found = ng.read_documents(tmp_path)
    assert found.is_test is None
    assert sorted(zip(found.texts, found.labels.tolist(), strict=True)) == sorted(row[:2] for row in DOCUMENTS)
    assert ng.read_documents(tmp_path / "20_newsgroups").texts == found.texts


def test_the_hub_is_asked_without_a_folder(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return datasets.Dataset.from_list([row for row in _rows() if row["split"] == split])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = ng.read_documents(None)
    assert asked == [("SetFit/20_newsgroups", "train"), ("SetFit/20_newsgroups", "test")]
    assert sorted(found.texts) == sorted(row[0] for row in DOCUMENTS)

    def offline(name, split):
        raise ConnectionError("no net")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(InputError, match=r"cannot be had from the Hugging Face hub \(ConnectionError\). Go online"):
        ng.read_documents(None)


def _many(count, num_test):
    is_test = None if num_test is None else np.arange(count) >= count - num_test
    return ng.Documents(["x"] * count, np.zeros(count, np.int64), is_test, ("a",), "made")


@pytest.mark.parametrize(
    ("count", "num_test", "sizes", "expected"),
    [
        (19_997, None, None, (15_098, 900, 3_999)),  # the papers'
        (19_997, 8_000, None, (15_098, 900, 3_999)),
        (18_846, 7_532, None, (10_414, 900, 7_532)),  # bydate
        (18_828, None, None, (18_828 - 900 - 3_765, 900, 3_765)),
        (100, 40, (20, 10, 5), (20, 10, 5)),
        (100, None, (20, 10, 5), (20, 10, 5)),
    ],
)
def test_split_sizes(count, num_test, sizes, expected):
    documents = _many(count, num_test)
    parts, about = ng.split_documents(documents, seed=1, sizes=sizes)
    assert tuple(map(len, parts)) == expected
    assert "/".join(map(str, expected)) in about
    assert "seed 1" in about
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    if num_test is not None and count < 19_997:
        assert documents.is_test[parts[2]].all()
        assert not documents.is_test[np.concatenate(parts[:2])].any()
    again, _ = ng.split_documents(documents, seed=1, sizes=sizes)
    other, _ = ng.split_documents(documents, seed=2, sizes=sizes)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not np.array_equal(parts[0], other[0])


@pytest.mark.parametrize("sizes", [None, (50, 11, 5), (5, 5), (0, 5, 5), (50, 10, 41)])
def test_too_few_documents_say_what_would_fit(sizes):
    with pytest.raises(InputError, match="sizes: "):
        ng.split_documents(_many(100, 40), seed=0, sizes=sizes)


def test_headers_are_removed_unless_they_are_kept(tmp_path):
    _jsonl(tmp_path)
    with_headers = load_data("20newsgroups", tmp_path, sizes=(4, 2, 4), headers="keep")
    without = load_data("20newsgroups", tmp_path, sizes=(4, 2, 4))
    # from, someone, somewhere, subject, secretword, lines and 1 are in every header and nowhere else.
    assert with_headers.facts["vocabulary"] - without.facts["vocabulary"] == 7
    assert with_headers.train.documents.lengths.max() == without.train.documents.lengths.max() + 7
    with pytest.raises(InputError, match="headers: must be remove or keep"):
        load_data("20newsgroups", tmp_path, sizes=(4, 2, 4), headers="drop")


def test_the_vocabulary_is_that_of_training_documents_and_unknown_words_can_be_dropped(tmp_path):
    _jsonl(tmp_path)
    data = load_data("20newsgroups", tmp_path, sizes=(4, 2, 4), max_length=6)
    assert data.facts["vocabulary"] == 2 + 4 + 4  # the, naïve, car, moon, and the own words of four documents
    tokens, labels = next(iter(DataLoader(data.test, batch_size=4, collate_fn=lambda batch: batch)))
    assert tokens.shape == (4, 6)
    assert (tokens[:, :2] == 0).all()
    assert (tokens[:, 4] == 1).all()  # the own word of a test document
    assert labels.tolist() == [0, 0, 1, 1]
    dropped = load_data("20newsgroups", tmp_path, sizes=(4, 2, 4), unknown="drop", max_length=6)
    assert torch.equal(dropped.test.__getitems__([0, 1, 2, 3])[0][:, 3:], tokens[:, [2, 3, 5]])
    assert data.class_names == GROUPS
    assert data.num_classes == 2
    assert "test split of the source, seed 0" in data.about


def test_vectors_lie_beside_the_data(tmp_path):
    _jsonl(tmp_path)
    (tmp_path / "glove.txt").write_text("car 1 2\nmoon 3 4\n")
    data = load_data("20newsgroups", tmp_path, sizes=(4, 2, 4), vectors="glove.txt")
    assert data.facts["vectors"].shape == (data.facts["vocabulary"], 2)
    assert [1.0, 2.0] in data.facts["vectors"].tolist()
    with pytest.raises(InputError, match="vectors: must be a file"):
        load_data("20newsgroups", tmp_path, sizes=(4, 2, 4), vectors="none.txt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("20news.jsonl", b'{"text": "a", "label": 0}\n{"text"', "line 2: each line must be a JSON object"),
        ("20news.jsonl", b'{"text": "a", "label": 0}\n{"label": 1}', "row 2: a column `text`"),
        ("20news.jsonl", b'{"text": "a", "label": -1}', "row 1: a column `label`"),
        ("20news.jsonl", b'{"text": "a", "label": 1.5}', "row 1: a column `label`"),
        ("20news.jsonl", b"[1]", "row 1: a column `text`"),
        ("20news.jsonl", b"", "it has no documents"),
        ("20news.jsonl", b'{"text": "\xff", "label": 1}', "line 0|line 1"),
        (
            "20news.jsonl.gz",
            gzip.compress(b'{"text": "a", "label": 0}' * 99, mtime=0)[:-12],
            "each line must be a JSON object",
        ),
        ("20news.parquet", b"PAR1 no", "not a readable Parquet file"),
    ],
)
def test_a_wrong_file_is_named_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        ng.read_documents(tmp_path)


def test_folders_with_nothing_or_with_too_much_are_refused(tmp_path):
    with pytest.raises(InputError, match="which has neither"):
        ng.read_documents(tmp_path)
    with pytest.raises(InputError, match="which is not there"):
        ng.read_documents(tmp_path / "no")
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=r"got a\.jsonl, b\.jsonl"):
        ng.read_documents(tmp_path)


def test_bert_tokens_are_shorter_in_training_than_in_test(tmp_path, tokenizer_folder):
    pytest.importorskip("transformers")
    rows = [
        {"text": "the cat sat . " * 9, "label": number % 2, "split": "test" if number > 5 else "train"}
        for number in range(10)
    ]
    (tmp_path / "news.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = load_data(
        "20newsgroups-bert", tmp_path, sizes=(4, 2, 4), tokenizer=str(tokenizer_folder), train_length=8, test_length=20
    )
    widths = [part.__getitems__([0])[0].input_ids.shape[1] for part in (data.train, data.val, data.test)]
    assert widths == [8, 20, 20]
    # [CLS] the ca ##t sat . the [SEP]
    assert data.train.__getitems__([1])[0].input_ids.tolist() == [[2, 5, 6, 7, 9, 11, 5, 3]]
    assert data.facts["vocabulary"] == 13
    with pytest.raises(InputError, match=r"tokenizer: must be .* or a folder; got './no-such-folder'"):
        load_data("20newsgroups-bert", tmp_path, sizes=(4, 2, 4), tokenizer="./no-such-folder")


@pytest.mark.slow
def test_the_real_20_newsgroups(real_data):
    data = load_data("20newsgroups", real_data, seed=5)
    assert [len(part) for part in (data.train, data.val, data.test)] == [10_414, 900, 7_532]
    assert (data.num_classes, data.facts["vocabulary"]) == (20, 20_000)
    assert data.class_names[0] == "alt.atheism"
    lengths = data.train.documents.lengths
    assert 150 < np.median(lengths) < 170
    tokens, _ = data.test.__getitems__(range(64))
    assert tokens.shape == (64, 1000)
    assert 0 < tokens.max() < 20_000
    assert torch.bincount(data.test.labels).min() > 200
