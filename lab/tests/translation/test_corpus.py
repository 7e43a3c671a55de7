"""The made-up language pair: fixed by its numbers, uncertain by its probabilities, grammatical."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from focalcal.errors import InputError
from focalcal_lab.translation.toy_language import ADVERB_IN_FRONT, Language, Speaker, draw_pairs


@pytest.fixture(scope="module")
def language():
    return Language(0)


def test_the_numbers_fix_language_and_sentences(language):
    assert Language(0).words == language.words
    assert Language(1).words != language.words
    drawn = draw_pairs(50, seed=3, language=language, noise=0.02)
    assert drawn == draw_pairs(50, seed=3, language=Language(0), noise=0.02)
    assert drawn != draw_pairs(50, seed=4, language=language, noise=0.02)
    assert draw_pairs(20, seed=3, language=language, noise=0.02) == drawn[:20]


def test_every_word_is_in_the_vocabulary_and_has_one_meaning_there(language):
    source, target = language.source_forms(), language.target_forms()
    assert len(set(source + target)) == len(source) + len(target)
    for said, translated in draw_pairs(500, seed=0, language=language, noise=0.1):
        assert set(said.split()) <= set(source)
        assert set(translated.split()) <= set(target)


def test_senses_are_drawn_with_their_probabilities_and_context_moves_them(language):
    speaker = Speaker(language, np.random.default_rng(0), noise=0.0)
    word = next(word for word in language.words["noun"] if len(word.senses) == 3)
    for kind in (None, 0, 1, 2):
        count = Counter(speaker._sense("noun", word, kind)[0] for _ in range(4000))
        expected = np.array(language.sense_probs(word, kind))
        found = np.array([count[sense] / 4000 for sense in word.senses])
        assert np.abs(found - expected).max() < 4 * 0.5 / np.sqrt(4000)
        if kind is not None:
            assert expected[kind] > word.probs[kind]


def test_noise_replaces_so_many_words(language):
    word = language.words["noun"][0]
    speaker = Speaker(language, np.random.default_rng(0), noise=0.3)
    foreign = np.mean([speaker._sense("noun", word, None)[0] not in word.senses for _ in range(4000)])
    assert abs(foreign - 0.3 * 59 / 60) < 0.03


def test_an_adverb_in_front_pulls_the_verb_behind_it_as_often_as_stated(language):
    adverbs = {word.source: word.senses[0] for word in language.words["adverb"]}
    verbs = {sense for word in language.words["verb"] for sense in word.senses}
    in_front = []
    for source, target in draw_pairs(3000, seed=0, language=language, noise=0.0):
        words = target.split()
        conjunctions = {word.source for word in language.words["conjunction"]}
        if conjunctions & set(source.split()) or not (adverbs.keys() & set(source.split())):
            continue
        in_front.append(words[0] in adverbs.values())
        place = next(i for i, word in enumerate(words) if word in adverbs.values())
        verb = words[place + 1] if in_front[-1] else words[place - 1]
        assert verb.removesuffix("t") in verbs or verb.removesuffix("en") in verbs
    assert abs(np.mean(in_front) - ADVERB_IN_FRONT) < 4 * np.sqrt(0.25 / len(in_front))


def test_the_verb_of_a_subordinate_clause_comes_last_and_agrees(language):
    conjunctions = {word.source for word in language.words["conjunction"]}
    singular = {sense + "t" for word in language.words["verb"] for sense in word.senses}
    plural = {sense + "en" for word in language.words["verb"] for sense in word.senses}
    seen = 0
    for source, target in draw_pairs(400, seed=0, language=language, noise=0.0):
        words = source.split()
        if not conjunctions & set(words):
            continue
        seen += 1
        clause = words[next(i for i, word in enumerate(words) if word in conjunctions) + 1 :]
        verb_in_source = next(w for w in clause if w.removesuffix("s") in {v.source for v in language.words["verb"]})
        assert target.split()[-1] in (singular if verb_in_source.endswith("s") else plural)
    assert seen > 50


def test_no_source_is_drawn_twice(language):
    pairs = draw_pairs(3000, seed=0, language=language, noise=0.02)
    assert len({source for source, _ in pairs}) == 3000


def test_noise_outside_its_range_is_refused(language):
    with pytest.raises(InputError, match="noise"):
        draw_pairs(1, seed=0, language=language, noise=1.0)
