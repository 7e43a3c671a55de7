"""From text to token numbers and back: whole words, or byte pairs learnt from the training text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np

from focalcal.atomic import write_atomically
from focalcal.core.checks import Array, require
from focalcal.errors import FileFormatError, InputError

# The tokens that are no text, with the numbers that they have in every vocabulary.
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNKNOWN = range(4)


class Vocabulary(Protocol):
    """What both kinds do; source and target share one."""

    @property
    def size(self) -> int:
        """The number of tokens, special ones included."""
        ...

    def encode(self, texts: Sequence[str]) -> list[Array]:
        """The tokens of each text, without special ones."""
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens up to the first end of sentence; special ones are left out."""
        ...


def text_tokens(tokens: Iterable[int]) -> list[int]:
    """The tokens that are text: up to the first end of sentence, without special ones.

    >>> text_tokens([BOS, 7, 8, PAD, 9, EOS, 5])
    [7, 8, 9]
    """
    kept: list[int] = []
    for token in tokens:
        if token == EOS:
            break
        if token >= len(SPECIAL):
            kept.append(token)
    return kept


@final
class Words:
    """A vocabulary of whole words, divided by spaces.

    >>> words = Words(["the", "dog"])
    >>> words.size, words.encode(["the dog", "a dog"]), words.decode([5, 4, EOS, 4])
    (6, [array([4, 5], dtype=int32), array([3, 5], dtype=int32)], 'dog the')
    """

    def __init__(self, words: Sequence[str]) -> None:
        require(len(set(words)) == len(words), "words", "must differ", f"{len(words) - len(set(words))} repeated")
        self._tokens = [*SPECIAL, *words]
        self._number = {token: number for number, token in enumerate(self._tokens)}

    @property
    def size(self) -> int:
        """The number of tokens, special ones included."""
        return len(self._tokens)

    def encode(self, texts: Sequence[str]) -> list[Array]:
        """The tokens of each text, without special ones."""
        return [np.array([self._number.get(word, UNKNOWN) for word in text.split()], dtype=np.int32) for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens up to the first end of sentence; special ones are left out."""
        return " ".join(self._tokens[token] for token in text_tokens(tokens))


@final
class BytePairs:
    """Byte-pair encoding with one vocabulary for both languages [vaswani2017, Sec. 5.1], on bytes: no text is unknown.

    >>> pairs = BytePairs.learn(["the lower tower", "low and slow"] * 20, size=270)
    >>> pairs.size, pairs.decode(pairs.encode(["slower, während"])[0].tolist())
    (270, 'slower, während')
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @staticmethod
    def learn(texts: Iterable[str], *, size: int) -> BytePairs:
        """A vocabulary of at most `size` tokens from training text."""
        import tokenizers as library

        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = library.decoders.ByteLevel()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        require(size >= len(SPECIAL) + len(alphabet), "size", f"must be at least {len(SPECIAL) + len(alphabet)}", size)
        trainer = library.trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=sorted(alphabet), show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
        return BytePairs(tokenizer)

    @staticmethod
    def read(path: str | Path) -> BytePairs:
        """A vocabulary that `write` wrote, or a tokenizer file with the same special tokens."""
        from tokenizers import Tokenizer

        if not Path(path).is_file():
            raise InputError(f"vocabulary_file: must be a file that exists; got {path}.")
        text = Path(path).read_bytes()
        try:
            tokenizer = Tokenizer.from_str(text.decode())
        except Exception as error:  # the library raises plain exceptions
            raise FileFormatError(f"{path}: it is not the file of a tokenizer: {error}.") from error
        numbers = [tokenizer.token_to_id(token) for token in SPECIAL]
        if numbers != list(range(len(SPECIAL))):
            raise FileFormatError(f"{path}: {', '.join(SPECIAL)} must be its tokens 0 to 3; they are {numbers}.")
        return BytePairs(tokenizer)

    def write(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_atomically(path, self._tokenizer.to_str().encode())

    @property
    def size(self) -> int:
        """The number of tokens, special ones included."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str]) -> list[Array]:
        """The tokens of each text, without special ones."""
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        # Text that spells out "<eos>" must not end a sentence.
        return [np.array([max(token, UNKNOWN) for token in each.ids], dtype=np.int32) for each in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens up to the first end of sentence; special ones are left out."""
        return str(self._tokenizer.decode(text_tokens(tokens))).removeprefix(" ")
