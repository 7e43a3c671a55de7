from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import tokens as t
from focalcal_lab.data.word_vectors import SCALE, read_vectors, words_with_vectors

ROWS = st.lists(st.lists(st.integers(1, 99), max_size=7), min_size=1, max_size=6)


@given(rows=ROWS, width=st.integers(1, 9), data=st.data())
def test_padding_agrees_with_plain_lists(rows, width, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    ragged = t.Ragged.of(rows)
    left = [[0] * (width - len(rows[i])) + rows[i][-width:] for i in chosen]
    right = [rows[i][:width] + [0] * (width - len(rows[i])) for i in chosen]
    assert ragged.padded(chosen, width, side="left").tolist() == left
    assert ragged.padded(chosen, width, side="right").tolist() == right
    taken = ragged.take(chosen)
    assert [taken.values[a:b].tolist() for a, b in zip(taken.starts, taken.starts[1:], strict=False)] == [
        rows[i] for i in chosen
    ]


@given(rows=ROWS, unknown=st.sets(st.integers(1, 99)))
def test_dropping_unknown_words_agrees_with_plain_lists(rows, unknown):
    numbers = np.array([t.UNKNOWN if word in unknown else word + 100 for word in range(100)], np.int32)
    kept = t.renumber(t.Ragged.of(rows), numbers, drop_unknown=True)
    assert kept.lengths.tolist() == [sum(word not in unknown for word in row) for row in rows]
    assert kept.values.tolist() == [word + 100 for row in rows for word in row if word not in unknown]


def test_the_vocabulary_ignores_words_of_other_documents_and_orders_by_count_then_alphabet():
    rows, words = t.index_words(["b a b c", "z z z z z"])
    vocabulary, numbers = t.choose_vocabulary(rows.take([0]), words, size=10)
    assert vocabulary == (*t.SPECIAL, "b", "a", "c")
    assert t.renumber(rows, numbers).values.tolist() == [2, 3, 2, 4] + [t.UNKNOWN] * 5
    assert len(t.choose_vocabulary(rows, words, size=10, min_count=2)[0]) == 2 + 2
    with pytest.raises(InputError, match="vocabulary: must hold padding"):
        t.choose_vocabulary(rows, words, size=2)


def test_a_masked_batch_moves_to_a_device_as_lightning_moves_it():
    utilities = pytest.importorskip("lightning.fabric.utilities")
    rows = t.MaskedTokenRows(t.Ragged.of([[2, 9, 3], [2, 3]]), torch.tensor([0, 1]), padding=0)
    (batch, labels) = utilities.move_data_to_device(rows.__getitems__([0, 1]), torch.device("meta"))
    assert isinstance(batch, t.MaskedTokens)
    assert batch.input_ids.is_meta
    assert batch.attention_mask.is_meta
    assert labels.is_meta


WORDS = (*t.SPECIAL, "the", "cat", "unheard")


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("start", ["", "4 3\n"])
def test_vectors_are_those_of_the_file_and_random_for_other_words(tmp_path, zipped, start):
    text = f"{start}cat 1 2 3\nother 0 0 0\n. . . 7 8 9\nthe -1e-1 0.5 2\n"
    file = tmp_path / ("v.txt.gz" if zipped else "v.txt")
    file.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    found = read_vectors(file, WORDS, seed=3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[[2, 3]], torch.tensor([[-0.1, 0.5, 2.0], [1.0, 2.0, 3.0]]))
    assert (found[t.PADDING] == 0).all()
    assert (found[[1, 4]].abs() <= SCALE).all()
    assert found[[1, 4]].unique().numel() == 6
    assert torch.equal(found, read_vectors(file, WORDS, seed=3))
    assert not torch.equal(found, read_vectors(file, WORDS, seed=4))
    assert (read_vectors(file, WORDS, seed=3, missing="zero")[[0, 1, 4]] == 0).all()
    assert words_with_vectors(file, ["cat", "unheard"]) == {"cat"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nthe 1\n", "line 2: a word and 2 numbers were expected; got 2 fields"),
        ("a 1 2\nb 1 2\nthe 1 2 3\n", "line 3: a word and 2 numbers were expected; got 4 fields"),
        ("a 1 2\nthe 1 x\n", "line 2: a word and 2 finite numbers"),
        ("a 1 2\nthe 1 nan\n", "line 2: a word and 2 finite numbers"),
        ("a 1 2\n\nthe 1 2\n", "line 2"),
        ("a 1 2\nb 3 4\n", "a vector for none of the 5 words"),
        ("", "a vector for none"),
    ],
)
def test_a_wrong_line_of_vectors_is_named(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_vectors(tmp_path / "v.txt", WORDS, seed=0)


def test_a_truncated_gzip_of_vectors_is_no_traceback_of_gzip(tmp_path):
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(b"the 1 2\n" * 500)[:-9])
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_vectors(tmp_path / "v.txt.gz", WORDS, seed=0)
