"""A made-up language pair, whose translations are uncertain by known probabilities.

The source has English's order of words; the target has three genders, cases, verbs in second place and, after a
conjunction, at the end. What cannot be known from the source is drawn:

- an ambiguous word has up to three senses, each with its probability; after a verb of some kind one of them is more
  likely, so that context helps but does not decide;
- an adverb stands in front or behind the verb;
- a few words are plain noise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from focalcal.core.checks import require

# How many words of each class there are.
SIZES = {"noun": 60, "adjective": 20, "verb": 30, "adverb": 10, "preposition": 6, "conjunction": 3}
# The share of the words that have one, two and three senses, for the classes that are ambiguous at all.
SENSES = {"noun": (0.5, 0.3, 0.2), "adjective": (0.5, 0.4, 0.1), "verb": (0.6, 0.3, 0.1)}
# Among the senses of an ambiguous word the one that suits the verb's kind is so many times as likely as without it.
SUITS = 4.0
NUM_KINDS, NUM_GENDERS = 3, 3
ADVERB_IN_FRONT = 0.35
# Cases: 0 of a subject, 1 of an object, 2 of some prepositions. Determiners and adjectives end by case and gender,
# in the plural (gender 3) by case alone; as in German, forms coincide.
ARTICLE_ENDS = (("er", "ie", "as", "ie"), ("en", "ie", "as", "ie"), ("em", "er", "em", "en"))
ADJECTIVE_ENDS = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
PLURAL = 3


@dataclass(frozen=True)
class Word:
    """A source word: its senses in the target, their probabilities, and what grammar must know of it."""

    source: str
    senses: tuple[str, ...]
    probs: tuple[float, ...]
    genders: tuple[int, ...] = ()  # one a sense: a noun's gender goes with its sense
    kind: int = 0  # of verbs: which sense of their subject and object they suit; of prepositions: the case
    transitive: bool = True


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, perhaps an adjective, in the singular or plural."""

    definite: bool
    adjective: Word | None
    noun: Word
    plural: bool


@dataclass(frozen=True)
class Clause:
    """What is said: who does what, perhaps how, to whom, where, and a clause that follows a conjunction."""

    subject: NounPhrase
    verb: Word
    adverb: Word | None
    object: NounPhrase | None
    place: tuple[Word, NounPhrase] | None
    rest: tuple[Word, Clause] | None


class Language:
    """The words of the language pair: a number fixes them.

    >>> language = Language(0)
    >>> len(language.words["noun"]), len(language.source_forms()) + len(language.target_forms())
    (60, 626)
    """

    def __init__(self, number: int = 0) -> None:
        self._rng = np.random.default_rng([number, 0])
        self._taken: set[str] = set()
        self.words = {name: [self._word(name, rank) for rank in range(size)] for name, size in SIZES.items()}
        # Zipf's law: the word of rank r is drawn with a probability in proportion to 1 / (r + 3).
        self.ranks = {name: list(accumulate(1 / (r + 3) for r in range(size))) for name, size in SIZES.items()}

    def _stem(self, onsets: str, vowels: str, ends: str) -> str:
        """A stem that no other word has."""
        while True:
            syllables = 1 + int(self._rng.integers(1, 3))
            letters = [str(self._rng.choice(list(part))) for _ in range(syllables) for part in (onsets, vowels)]
            stem = "".join(letters) + str(self._rng.choice(list(ends)))
            if stem not in self._taken:
                self._taken.add(stem)
                return stem

    def _word(self, name: str, rank: int) -> Word:
        shares = SENSES.get(name, (1.0,))
        count = 1 + int(self._rng.choice(len(shares), p=shares))
        weights = self._rng.uniform(0.5, 2.0, size=count)
        return Word(
            source=self._stem("bcdfglmprst", "aeiou", "bkmprt"),
            senses=tuple(self._stem("bdfghklmrwz", "aeouy", "fhklnz") for _ in range(count)),
            probs=tuple((weights / weights.sum()).tolist()),
            genders=tuple(self._rng.integers(NUM_GENDERS, size=count).tolist()) if name == "noun" else (),
            kind=(1 + rank % 2) if name == "preposition" else rank % NUM_KINDS,
            transitive=rank % 3 != 2,
        )

    def source_forms(self) -> list[str]:
        """Every word that can stand in a source sentence."""
        plain = [word.source for words in self.words.values() for word in words]
        return [
            "the",
            "a",
            "some",
            *plain,
            *(word.source + "s" for name in ("noun", "verb") for word in self.words[name]),
        ]

    def target_forms(self) -> list[str]:
        """Every word that can stand in a target sentence."""
        ends = {"noun": ("", "en"), "verb": ("t", "en"), "adjective": ("e", "en")}
        articles = sorted({stem + end for stem in ("d", "ein", "welch") for row in ARTICLE_ENDS for end in row})
        senses = [
            sense + end
            for name, words in self.words.items()
            for word in words
            for sense in word.senses
            for end in ends.get(name, ("",))
        ]
        return [*articles, *senses]

    def sense_probs(self, word: Word, kind: int | None) -> tuple[float, ...]:
        """The probabilities of a word's senses beside a verb of some kind, or, with None, without one.

        >>> language = Language(0)
        >>> word = next(word for word in language.words["noun"] if len(word.senses) == 2)
        >>> [round(sum(language.sense_probs(word, kind)), 9) for kind in (None, 0, 1)]
        [1.0, 1.0, 1.0]
        >>> language.sense_probs(word, 0)[0] > word.probs[0] > language.sense_probs(word, 1)[0]
        True
        """
        weights = [p * (SUITS if sense == kind else 1.0) for sense, p in enumerate(word.probs)]
        return tuple(weight / sum(weights) for weight in weights)


class Speaker:
    """Draws sentences of a language and their translations."""

    def __init__(self, language: Language, rng: np.random.Generator, *, noise: float = 0.02) -> None:
        require(0 <= noise < 1, "noise", "must lie in [0, 1)", noise)
        self.language, self.rng, self.noise = language, rng, noise

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Endless pairs of a source sentence and its translation."""
        while True:
            said = self._clause(may_continue=True)
            yield " ".join(self._source(said)), " ".join(self._target(said, main=True))

    # ------------------------------------------------------------------ what is said

    def _happens(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def _pick(self, name: str) -> Word:
        ranks = self.language.ranks[name]
        return self.language.words[name][bisect_right(ranks, self.rng.random() * ranks[-1])]

    def _noun_phrase(self) -> NounPhrase:
        adjective = self._pick("adjective") if self._happens(0.4) else None
        return NounPhrase(self._happens(0.5), adjective, self._pick("noun"), self._happens(0.3))

    def _clause(self, *, may_continue: bool) -> Clause:
        subject, verb = self._noun_phrase(), self._pick("verb")
        adverb = self._pick("adverb") if self._happens(0.4) else None
        object_ = self._noun_phrase() if verb.transitive else None
        place = (self._pick("preposition"), self._noun_phrase()) if self._happens(0.3) else None
        rest = None
        if may_continue and self._happens(0.25):
            rest = self._pick("conjunction"), self._clause(may_continue=False)
        return Clause(subject, verb, adverb, object_, place, rest)

    # ------------------------------------------------------------------ in the source

    def _source(self, said: Clause) -> Iterator[str]:
        yield from self._source_phrase(said.subject)
        if said.adverb:
            yield said.adverb.source
        yield said.verb.source + ("" if said.subject.plural else "s")
        if said.object:
            yield from self._source_phrase(said.object)
        if said.place:
            yield said.place[0].source
            yield from self._source_phrase(said.place[1])
        if said.rest:
            yield said.rest[0].source
            yield from self._source(said.rest[1])

    def _source_phrase(self, phrase: NounPhrase) -> Iterator[str]:
        yield "the" if phrase.definite else "some" if phrase.plural else "a"
        if phrase.adjective:
            yield phrase.adjective.source
        yield phrase.noun.source + ("s" if phrase.plural else "")

    # ------------------------------------------------------------------ in the target

    def _target(self, said: Clause, *, main: bool) -> list[str]:
        kind = said.verb.kind
        subject = self._target_phrase(said.subject, kind, case=0)
        verb = [self._sense("verb", said.verb, None)[0] + ("en" if said.subject.plural else "t")]
        adverb = [said.adverb.senses[0]] if said.adverb else []
        after = self._target_phrase(said.object, kind, case=1) if said.object else []
        if said.place:
            preposition, phrase = said.place
            after += [preposition.senses[0], *self._target_phrase(phrase, None, case=preposition.kind)]
        if not main:
            words = [*subject, *adverb, *after, *verb]
        elif adverb and self._happens(ADVERB_IN_FRONT):
            words = [*adverb, *verb, *subject, *after]
        else:
            words = [*subject, *verb, *adverb, *after]
        if said.rest:
            words += [said.rest[0].senses[0], *self._target(said.rest[1], main=False)]
        return words

    def _target_phrase(self, phrase: NounPhrase, kind: int | None, *, case: int) -> list[str]:
        noun, gender = self._sense("noun", phrase.noun, kind)
        form = PLURAL if phrase.plural else gender
        words = [("d" if phrase.definite else "welch" if phrase.plural else "ein") + ARTICLE_ENDS[case][form]]
        if phrase.adjective:
            words.append(self._sense("adjective", phrase.adjective, kind)[0] + ADJECTIVE_ENDS[case][form])
        return [*words, noun + ("en" if phrase.plural else "")]

    def _sense(self, name: str, word: Word, kind: int | None) -> tuple[str, int]:
        """A sense of a word, or of another one if there is noise, and the gender that the sense has, if any."""
        if self._happens(self.noise):
            words = self.language.words[name]
            word = words[int(self.rng.integers(len(words)))]
        probs = list(accumulate(self.language.sense_probs(word, kind)))
        chosen = min(bisect_right(probs, self.rng.random()), len(probs) - 1)  # they sum to 1 but for rounding
        return word.senses[chosen], word.genders[chosen] if word.genders else 0


def draw_pairs(count: int, *, seed: int, language: Language, noise: float) -> list[tuple[str, str]]:
    """Pairs with sources that all differ, so that no sentence of the test split was seen in training.

    >>> pairs = draw_pairs(3, seed=0, language=Language(0), noise=0.02)
    >>> len({source for source, _ in pairs})
    3
    """
    found: dict[str, str] = {}
    for source, target in Speaker(language, np.random.default_rng([seed, 1]), noise=noise).pairs():
        if len(found) == count:
            break
        found.setdefault(source, target)
    return list(found.items())
