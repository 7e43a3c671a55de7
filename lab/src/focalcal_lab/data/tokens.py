"""Documents as numbers: words, vocabularies, rows of different lengths, and the batches that text networks take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from focalcal.core.checks import require

Ints: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# The first two rows of every vocabulary.
PADDING, UNKNOWN = 0, 1
SPECIAL = ("<padding>", "<unknown>")

# Letters and digits, with apostrophes inside a word: "don't" is one word, "'quoted'" is "quoted".
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case.

    >>> words_of("It DOESN'T run: 'core_dump' in 3.1!")
    ['it', "doesn't", 'run', 'core', 'dump', 'in', '3', '1']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, end to end: row i is `values[starts[i]:starts[i + 1]]`.

    >>> rows = Ragged.of([[5, 6, 7], [], [8]])
    >>> len(rows), rows.lengths.tolist(), rows.take([2, 0]).values.tolist()
    (3, [3, 0, 1], [8, 5, 6, 7])
    >>> rows.padded([0, 2], 2, side="left"), rows.padded([0, 2], 4, side="right")
    (array([[6, 7],
           [0, 8]], dtype=int32), array([[5, 6, 7, 0],
           [8, 0, 0, 0]], dtype=int32))
    """

    values: Ints
    starts: Ints

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | Ints]) -> Ragged:
        """Rows put end to end."""
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        lengths = [len(row) for row in arrays]
        values = np.concatenate(arrays) if arrays else np.zeros(0, np.int32)
        return cls(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> Ints:
        return self.values[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> Ints:
        """How long each row is."""
        return np.diff(self.starts)

    def places(self, rows: Sequence[int] | Ints) -> tuple[Ints, Ints]:
        """Where in `values` the entries of some rows lie, row after row, and the rows' lengths."""
        first, lengths = self.starts[:-1][rows], self.lengths[rows]
        ends = np.cumsum(lengths)
        return np.arange(lengths.sum()) + np.repeat(first - (ends - lengths), lengths), lengths

    def take(self, rows: Sequence[int] | Ints) -> Ragged:
        """Some of the rows."""
        places, lengths = self.places(np.asarray(rows, dtype=np.int64))
        return Ragged(self.values[places], np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def padded(self, rows: Sequence[int] | Ints, width: int, *, side: str) -> Ints:
        """Some rows as an array (rows, width), filled with 0 at one side.

        What is too long loses its beginning if the padding is at the left (as Keras does), else its end.
        """
        index = np.asarray(rows, dtype=np.int64)
        first, last = self.starts[index][:, None], self.starts[index + 1][:, None]
        places = np.arange(width) + (last - width if side == "left" else first)
        inside = (places >= first) & (places < last)
        filled = np.zeros(inside.shape, dtype=self.values.dtype)
        filled[inside] = self.values[places[inside]]
        return filled


def index_words(texts: Iterable[str]) -> tuple[Ragged, list[str]]:
    """Every text as numbers of words in order of their first occurrence, and those words.

    >>> rows, words = index_words(["a b a", "c b"])
    >>> rows.values.tolist(), words
    ([0, 1, 0, 2, 1], ['a', 'b', 'c'])
    """
    number: dict[str, int] = {}
    rows = Ragged.of([[number.setdefault(word, len(number)) for word in words_of(text)] for text in texts])
    return rows, list(number)


def choose_vocabulary(
    rows: Ragged, words: Sequence[str], *, size: int, min_count: int = 1
) -> tuple[tuple[str, ...], Ints]:
    """The vocabulary: the commonest words of `rows` (training documents), and each word's number in it.

    Number 0 is padding and 1 any word that is not in the vocabulary.

    Words that occur equally often are ordered by the alphabet, so that the order of the documents does not matter.
    `size` counts the two special rows.

    >>> rows, words = index_words(["the cat the dog the cat", "a"])
    >>> vocabulary, numbers = choose_vocabulary(rows.take([0]), words, size=4)
    >>> vocabulary, numbers.tolist()
    (('<padding>', '<unknown>', 'the', 'cat'), [2, 3, 1, 1])
    """
    require(size >= 3, "vocabulary", "must hold padding, unknown and at least one word", size)
    counts = np.bincount(rows.values, minlength=len(words))
    allowed = np.flatnonzero(counts >= max(min_count, 1)).tolist()
    chosen = sorted(allowed, key=lambda word: (-counts[word], words[word]))[: size - len(SPECIAL)]
    numbers = np.full(len(words), UNKNOWN, dtype=np.int32)
    numbers[chosen] = np.arange(len(SPECIAL), len(SPECIAL) + len(chosen))
    return (*SPECIAL, *(words[word] for word in chosen)), numbers


def renumber(rows: Ragged, numbers: Ints, *, drop_unknown: bool = False) -> Ragged:
    """Rows in the numbers of a vocabulary, with or without the words that it lacks.

    >>> renumber(Ragged.of([[0, 1], [1]]), np.array([7, UNKNOWN], np.int32), drop_unknown=True).lengths.tolist()
    [1, 0]
    """
    values = numbers[rows.values]
    if not drop_unknown:
        return Ragged(values, rows.starts)
    known = values != UNKNOWN
    kept_before = np.concatenate([[0], np.cumsum(known, dtype=np.int64)])
    return Ragged(values[known], kept_before[rows.starts])


class TokenRows(Dataset[Any]):
    """Documents as word numbers (N, max_length), padded at the left.

    >>> rows = TokenRows(Ragged.of([[5, 6, 7], [8]]), torch.tensor([0, 1]), max_length=4)
    >>> rows.__getitems__([1, 0])
    (tensor([[0, 0, 0, 8], [0, 5, 6, 7]]), tensor([1, 0]))
    """

    def __init__(self, documents: Ragged, labels: Tensor, *, max_length: int) -> None:
        self.documents, self.labels, self.max_length = documents, labels, max_length

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The rows of `indices` as one batch."""
        tokens = self.documents.padded(indices, self.max_length, side="left")
        return torch.from_numpy(tokens).long(), self.labels[torch.as_tensor(indices)]


@dataclass(frozen=True)
class MaskedTokens:
    """Token numbers (N, width), padded at the right, and a mask that is 1 where there is a token."""

    input_ids: Tensor
    attention_mask: Tensor

    def __len__(self) -> int:
        return len(self.input_ids)

    def to(self, device: Any, non_blocking: bool = False) -> MaskedTokens:
        """The same on a device."""
        ids = self.input_ids.to(device, non_blocking=non_blocking)
        return MaskedTokens(ids, self.attention_mask.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> MaskedTokens:
        """The same in pinned memory, as torch's loader asks for."""
        return MaskedTokens(self.input_ids.pin_memory(), self.attention_mask.pin_memory())


class MaskedTokenRows(Dataset[Any]):
    """Documents as token numbers with a mask, for a Transformer; a batch is as wide as its longest document.

    >>> rows = MaskedTokenRows(Ragged.of([[2, 9, 3], [2, 3]]), torch.tensor([0, 1]), padding=4)
    >>> batch, labels = rows.__getitems__([1, 0])
    >>> batch.input_ids, batch.attention_mask
    (tensor([[2, 3, 4], [2, 9, 3]]), tensor([[1, 1, 0], [1, 1, 1]]))
    """

    def __init__(self, documents: Ragged, labels: Tensor, *, padding: int) -> None:
        self.documents, self.labels, self.padding = documents, labels, padding

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: Sequence[int]) -> tuple[MaskedTokens, Tensor]:
        """The rows of `indices` as one batch."""
        lengths = self.documents.lengths[np.asarray(indices, dtype=np.int64)]
        width = int(lengths.max(initial=1))
        tokens = torch.from_numpy(self.documents.padded(indices, width, side="right")).long()
        mask = torch.arange(width) < torch.from_numpy(lengths)[:, None]
        batch = MaskedTokens(tokens.masked_fill(~mask, self.padding), mask.long())
        return batch, self.labels[torch.as_tensor(indices)]
