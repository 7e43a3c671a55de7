"""Word vectors from a text file, as GloVe, fastText and word2vec publish them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import require
from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.tokens import PADDING, Ints
from focalcal_lab.path_below import check_name

Missing: TypeAlias = Literal["random", "zero"]

# Words without a vector are drawn from [-0.05, 0.05], as Tai et al.'s code draws them.
SCALE = 0.05


def find_vectors(name: str, folder: Path | None) -> Path:
    """The file of vectors: in the folder of the data, or in the current one.

    >>> find_vectors("glove.6B.100d.txt", None)
    Traceback (most recent call last):
    focalcal.errors.InputError: vectors: must be a file of word vectors; got glove.6B.100d.txt, which is not there.
    """
    check_name(name, "vectors", most_parts=3)
    for place in (folder or Path(), Path()):
        if (place / name).is_file():
            return place / name
    raise InputError(f"vectors: must be a file of word vectors; got {name}, which is not there.")


def read_vectors(path: str | Path, words: Sequence[str], *, seed: int, missing: Missing = "random") -> Tensor:
    """A matrix (words, dimension) of vectors for `words`, of which the first is the padding and gets zeros.

    The file is read as a stream and only the vectors of `words` are parsed, so that GloVe's 5 GB need no memory; of
    the other lines, the number of fields is checked. Words that the file lacks get random vectors, or zeros (as the
    released code of mukhoti2020 does for 20 Newsgroups).

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "glove.txt"
    >>> _ = file.write_text("the 0.5 1.0\\ncat -1 2\\n")
    >>> read_vectors(file, ["<padding>", "cat"], seed=0)
    tensor([[ 0.,  0.],
            [-1.,  2.]])
    """
    require(missing in ("random", "zero"), "missing", "must be random or zero", repr(missing))
    found = dict(_vectors_of(Path(path), set(words[PADDING + 1 :])))
    if not found:
        raise FileFormatError(f"{path}: it has a vector for none of the {len(words)} words. Is it of this language?")
    dimension = len(next(iter(found.values())))
    matrix = np.zeros((len(words), dimension), dtype=np.float32)
    if missing == "random":
        matrix[:] = np.random.default_rng(seed).uniform(-SCALE, SCALE, size=matrix.shape)
    matrix[PADDING] = 0
    for row, word in enumerate(words):
        if row != PADDING and word in found:
            matrix[row] = found[word]
    return torch.from_numpy(matrix)


def words_with_vectors(path: str | Path, words: Sequence[str]) -> set[str]:
    """Which of `words` a file of vectors has."""
    return {word for word, _ in _vectors_of(Path(path), set(words))}


def _vectors_of(path: Path, wanted: set[str]) -> Iterator[tuple[str, Ints]]:
    keys = {word.encode(): word for word in wanted}
    dimension = None
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(cast(BinaryIO, file), start=1):
                fields = line.rstrip().count(b" ")
                if dimension is None:
                    if number == 1 and fields == 1:  # word2vec's files begin with the number of words and the dimension
                        continue
                    dimension = fields
                word = line.split(b" ", 1)[0]
                if fields != dimension:
                    _require_spaced_word(path, number, line, dimension)
                elif word in keys:
                    yield keys[word], _numbers(path, number, line, dimension)
    except (OSError, EOFError) as error:
        raise FileFormatError(f"{path}: it cannot be read: {error}.") from error


def _require_spaced_word(path: Path, number: int, line: bytes, dimension: int) -> None:
    """Pass over a line only if it has more fields because its word has spaces in it: glove.840B has ". . ."."""
    parts = line.split()
    spaced = parts[1 : len(parts) - dimension]
    if not spaced or all(_is_number(part) for part in spaced):
        raise FileFormatError(
            f"{path}, line {number}: a word and {dimension} numbers were expected; got {len(parts)} fields."
        )


def _numbers(path: Path, number: int, line: bytes, dimension: int) -> Ints:
    parts = line.split()[-dimension:]
    if len(parts) != dimension or not all(_is_number(part) for part in parts):
        raise FileFormatError(f"{path}, line {number}: a word and {dimension} finite numbers were expected.")
    return np.array(parts, dtype=np.float32)


def _is_number(text: bytes) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
