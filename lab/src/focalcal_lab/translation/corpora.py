"""Parallel corpora as the lab's data: the made-up language pair, WMT14, and your own parallel text files."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from focalcal.core.checks import require
from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.dataset import DataSplits
from focalcal_lab.path_below import check_name
from focalcal_lab.translation.sentence_pairs import Pairs
from focalcal_lab.translation.toy_language import Language, draw_pairs
from focalcal_lab.translation.vocabulary import BOS, EOS, PAD, BytePairs, Vocabulary, Words

# By which names a split's files are known, the first one being that of the lab.
SPLITS = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
_TEXTS_AT_ONCE = 1 << 16

TextPairs = Sequence[tuple[str, str]]


def toy_translation(
    folder: Path | None,
    *,
    seed: int,
    num_train: int = 4000,
    num_val: int = 500,
    num_test: int = 500,
    noise: float = 0.02,
    language: int = 0,
    tokens: int | None = None,
) -> DataSplits:
    """The made-up language pair of `toy_language`; `seed` draws the sentences, `language` the words.

    >>> data = toy_translation(None, seed=0, num_train=8, num_val=4, num_test=4)
    >>> data.num_classes, len(data.train), data.test.texts[0]
    (630, 8, ('the bepalors fudur some bemofup lafims', 'die hokyfofen ludylen welchie fefelen meluhozen'))
    """
    require(folder is None, "folder", "toy-translation is made, not read", folder, "Leave it out.")
    for name, size in {"num_train": num_train, "num_val": num_val, "num_test": num_test}.items():
        require(size >= 1, name, "must be at least 1", size)
    words = Language(language)
    pairs = draw_pairs(num_train + num_val + num_test, seed=seed, language=words, noise=noise)
    splits = pairs[:num_train], pairs[num_train : num_train + num_val], pairs[num_train + num_val :]
    about = f"made-up language pair {language}, {noise:.3g} noise; sentences that all differ, drawn with seed {seed}"
    vocabulary = Words([*words.source_forms(), *words.target_forms()])
    return _data("toy-translation", splits, vocabulary, about=about, tokens=tokens, seed=seed)


def wmt14_en_de(folder: Path | None, *, seed: int, **options: Any) -> DataSplits:
    """WMT 2014 English to German: newstest2013 to validate on, newstest2014 to test on. Options: `parallel_text`'s.

    Without a folder it comes from Hugging Face; a folder holds train.en, train.de and so on.
    """
    if folder is not None:
        return parallel_text(folder, seed=seed, name="wmt14-en-de", **options)
    splits = _from_hugging_face("wmt/wmt14", "de-en", "en", "de")
    rule = "is the name of a file in the folder of the data"
    require("vocabulary_file" not in options, "vocabulary_file", rule, "no folder", "Give --data DIR.")
    about = "WMT14 from Hugging Face; newstest2013 to validate, newstest2014 to test"
    return _of_texts(splits, name="wmt14-en-de", about=about, seed=seed, **options)


def parallel_text(
    folder: Path, *, seed: int, source: str = "en", target: str = "de", name: str = "parallel-text", **options: Any
) -> DataSplits:
    """Parallel text files, one sentence per line: train.en and train.de, val.en and val.de, test.en and test.de.

    They may be gzipped (train.en.gz). Options: `vocabulary_size` (32,000), `vocabulary_file` (instead of learning one,
    read the file of this name in the folder, which `BytePairs.write` wrote), `max_tokens` (longer training pairs are
    left out), `tokens` (see `Pairs`).
    """
    for option, value in (("source", source), ("target", target)):
        check_name(value, option)
    if (file := options.get("vocabulary_file")) is not None:
        options["vocabulary_file"] = folder / check_name(file, "vocabulary_file")
    splits = tuple(_read_split(folder, split, source, target) for split in SPLITS)
    about = f"parallel text of {folder.name}: {', '.join(f'{len(pairs):,}' for pairs in splits)} pairs as its files say"
    return _of_texts(splits, name=name, about=about, seed=seed, **options)


def _of_texts(
    splits: tuple[TextPairs, ...],
    *,
    name: str,
    about: str,
    seed: int,
    vocabulary_size: int = 32_000,
    vocabulary_file: Path | None = None,
    max_tokens: int = 256,
    tokens: int | None = None,
    num_train: int | None = None,
) -> DataSplits:
    """Data of text with a vocabulary of byte pairs from its training split; the first `num_train` pairs of it."""
    train = [pair for pair in splits[0][:num_train] if all(pair)]
    if vocabulary_file is not None:
        vocabulary = BytePairs.read(vocabulary_file)
    else:
        vocabulary = BytePairs.learn((text for pair in train for text in pair), size=vocabulary_size)
    about = f"{about}; {vocabulary.size:,} byte pairs; training pairs of at most {max_tokens} tokens"
    return _data(name, (train, *splits[1:]), vocabulary, about=about, tokens=tokens, seed=seed, max_tokens=max_tokens)


def _data(
    name: str,
    splits: Sequence[TextPairs],
    vocabulary: Vocabulary,
    *,
    about: str,
    tokens: int | None,
    seed: int,
    max_tokens: int | None = None,
) -> DataSplits:
    train = _encoded(splits[0], vocabulary, max_tokens=max_tokens, tokens=tokens, seed=seed)
    val, test = (_encoded(pairs, vocabulary, texts=pairs) for pairs in splits[1:])
    return DataSplits(
        name=name,
        train=train,
        val=val,
        test=test,
        num_classes=vocabulary.size,
        one_row_a_sample=False,
        facts={
            "vocabulary": vocabulary.size,
            "pad": PAD,
            "bos": BOS,
            "eos": EOS,
            "longest": max(split.longest for split in (train, val, test)),
            "decode": vocabulary.decode,
        },
        about=about,
    )


def _encoded(
    pairs: TextPairs,
    vocabulary: Vocabulary,
    *,
    max_tokens: int | None = None,
    tokens: int | None = None,
    seed: int = 0,
    texts: TextPairs = (),
) -> Pairs:
    sides: list[list[Any]] = [[], []]
    for start in range(0, len(pairs), _TEXTS_AT_ONCE):
        some = pairs[start : start + _TEXTS_AT_ONCE]
        encoded = [vocabulary.encode([pair[side] for pair in some]) for side in (0, 1)]
        for source, target in zip(*encoded, strict=True):
            if max_tokens is None or max(len(source), len(target)) <= max_tokens:
                sides[0].append(source)
                sides[1].append(target)
    require(len(sides[0]) > 0, "max_tokens", "must leave some training pairs", max_tokens, "Take a larger one.")
    return Pairs(*sides, texts=texts, tokens=tokens, seed=seed)


def _read_split(folder: Path, split: str, source: str, target: str) -> TextPairs:
    sides = [_read_lines(folder, split, language) for language in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise FileFormatError(
            f"{folder}: the {split} files must have a line for each other's; {source} has {len(sides[0])}, "
            f"{target} has {len(sides[1])}."
        )
    return list(zip(*sides, strict=True))


def _read_lines(folder: Path, split: str, language: str) -> list[str]:
    names = [f"{name}.{language}{end}" for name in SPLITS[split] for end in ("", ".gz")]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise InputError(f"folder: must hold one of {', '.join(names)}; got {folder} without it.")
    content = found.read_bytes()
    try:
        text = (gzip.decompress(content) if found.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{found}: it is not UTF-8 text: {error}.") from error
    # Only line feeds end a line: corpora have other separators inside sentences, which would shift the rest.
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def _from_hugging_face(path: str, name: str, source: str, target: str) -> tuple[TextPairs, ...]:
    import datasets

    try:
        loaded = datasets.load_dataset(path, name)
    except (OSError, ValueError) as error:  # no network, or no such set there any more
        raise InputError(
            f"data: {path} could not be had from Hugging Face ({type(error).__name__}: {error}). "
            f"Put train.{source}, train.{target} and so on into a folder and name it."
        ) from error
    return tuple(_TranslationColumn(loaded[split], source, target) for split in ("train", "validation", "test"))


class _TranslationColumn(Sequence[tuple[str, str]]):
    """The pairs of a Hugging Face split, read when they are asked for: millions of dictionaries would not fit."""

    def __init__(self, rows: Any, source: str, target: str) -> None:
        self._rows, self._languages = rows, (source, target)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self._pairs(self._rows[place]["translation"])
        return self._pairs([self._rows[place]["translation"]])[0]

    def _pairs(self, translations: Iterable[dict[str, str]]) -> list[tuple[str, str]]:
        first, second = self._languages
        return [(each[first].strip(), each[second].strip()) for each in translations]
