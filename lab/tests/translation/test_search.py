"""Beam search with a temperature inside, against every sentence there is and against a slow one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from focalcal.errors import InputError
from focalcal_lab.models import make_model
from focalcal_lab.translation.beam_search import beam_search
from focalcal_lab.translation.sentence_pairs import LONGER, Pairs
from focalcal_lab.translation.vocabulary import BOS, EOS

CLASSES = 7  # of which 3 are pad, bos and unknown, which a network may say as well
ENDING = 0.0
FACTS = {"pad": 0, "bos": 1, "eos": 2, "longest": 12}
TEMPERATURES = (0.3, 0.7, 1.0, 1.6, 3.0)


@pytest.fixture(scope="module")
def network():
    """Random weights; a head of its own, because one that is tied to the embeddings would repeat the last token."""
    torch.manual_seed(19)
    made = make_model("transformer", CLASSES, FACTS, layers=1, width=16, heads=2, inner=32)
    made.model.lm_head.weight = torch.nn.Parameter(0.4 * torch.randn(CLASSES, 16))
    made.model.final_logits_bias[0, EOS] = ENDING
    return made.eval()


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    sources = [rng.integers(4, CLASSES, size=length) for length in (1, 3, 2, 5, 4, 3)]
    return Pairs(sources, [np.array([4])] * len(sources))


def step_log_probs(network, inputs, prefixes, temperature):
    """log softmax(logits / T) of the next token after prefixes of equal length, without any cache."""
    with torch.no_grad():
        said = network.model(
            input_ids=inputs.source.expand(len(prefixes), -1),
            attention_mask=inputs.source_mask.expand(len(prefixes), -1),
            decoder_input_ids=torch.tensor([[BOS, *prefix] for prefix in prefixes]),
            use_cache=False,
        )
    return torch.log_softmax(said.logits[:, -1] / temperature, -1).tolist()


def score_of(network, inputs, sentence, temperature):
    return sum(
        step_log_probs(network, inputs, [sentence[:place]], temperature)[0][token]
        for place, token in enumerate(sentence)
    )


def best_of_all(network, inputs, temperature, longest):
    """The likeliest sentence of at most `longest` tokens; those that are not over by then count as they are."""
    open_, done = {(): 0.0}, {}
    for length in range(1, longest + 1):
        steps = zip(open_.items(), step_log_probs(network, inputs, list(open_), temperature), strict=True)
        grown = {(*p, token): s + step[token] for (p, s), step in steps for token in range(CLASSES)}
        done.update({p: s for p, s in grown.items() if p[-1] == EOS or length == longest})
        open_ = {p: s for p, s in grown.items() if p[-1] != EOS}
    return list(max(done, key=done.get))


def slow_beam_search(network, inputs, *, beams, temperature, alpha):
    """Beam search in lists: candidates by sum, the ended ones among the first `beams` kept by sum / length^alpha."""
    limit = int(inputs.source_mask.sum()) - 1 + LONGER
    running, done = [((), 0.0)], []
    for length in range(1, limit + 1):
        steps = step_log_probs(network, inputs, [prefix for prefix, _ in running], temperature)
        grown = [
            ((*prefix, token), score + step[token])
            for (prefix, score), step in zip(running, steps, strict=True)
            for token in range(CLASSES)
        ]
        best = sorted(grown, key=lambda each: -each[1])[: 2 * beams]
        ended = [(p, s / length**alpha) for p, s in best[:beams] if p[-1] == EOS or length == limit]
        done = sorted(done + ended, key=lambda each: -each[1])[:beams]
        running = [each for each in best if each[0][-1] != EOS][:beams]
        if len(done) == beams and running[0][1] / length**alpha <= done[-1][1]:
            break
    return list(done[0][0])


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_wide_beam_finds_the_best_of_all_sentences(network, pairs, temperature, monkeypatch):
    monkeypatch.setattr("focalcal_lab.translation.beam_search.LONGER", 1)  # sentences of up to 2 to 4 tokens
    for row in (0, 1, 2):
        inputs, _ = pairs.batch([row])
        longest = len(pairs.sources[row]) + 1
        found = beam_search(network, inputs, beams=CLASSES ** (longest - 1), temperature=temperature, length_penalty=0)
        assert found == [best_of_all(network, inputs, temperature, longest)]


@pytest.mark.parametrize(
    ("beams", "alpha"), [(2, 0.6), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((3, 0.0), (4, 1.0)))]
)
def test_it_finds_what_a_slow_beam_search_finds(network, pairs, beams, alpha):
    for row, temperature in itertools.product(range(pairs.num_pairs), (0.5, 1.0, 2.0)):
        inputs, _ = pairs.batch([row])
        found = beam_search(network, inputs, beams=beams, temperature=temperature, length_penalty=alpha)
        expected = slow_beam_search(network, inputs, beams=beams, temperature=temperature, alpha=alpha)
        assert found == [expected], (row, temperature)


def test_temperature_one_is_no_temperature(network, pairs):
    inputs, _ = pairs.batch(range(pairs.num_pairs))
    plain = network.model.generate(
        inputs=inputs.source,
        attention_mask=inputs.source_mask,
        num_beams=4,
        do_sample=False,
        length_penalty=0.6,
        max_length=int(inputs.source_mask.sum(1).max()) + LONGER,
        early_stopping=False,
    )
    expected = [row[: row.index(EOS) + 1] for row in plain[:, 1:].tolist()]
    assert max(map(len, expected)) > 2
    assert beam_search(network, inputs, beams=4, temperature=1.0) == expected


def test_the_temperature_changes_what_a_beam_finds_but_not_what_greed_does(network, pairs):
    inputs, _ = pairs.batch(range(pairs.num_pairs))
    found = {t: beam_search(network, inputs, beams=4, temperature=t) for t in TEMPERATURES}
    assert len({str(each) for each in found.values()}) >= 3
    greedy = {t: beam_search(network, inputs, beams=1, temperature=t) for t in TEMPERATURES}
    assert len({str(each) for each in greedy.values()}) == 1
    for row in range(pairs.num_pairs):
        alone, _ = pairs.batch([row])
        sentence = greedy[1.0][row]
        for place, token in enumerate(sentence):
            step = step_log_probs(network, alone, [sentence[:place]], 1.0)[0]
            assert step[token] == max(step)


@pytest.mark.slow
def test_a_beam_finds_better_scores_than_greed(network, pairs):
    for temperature in (1.0, 2.0):
        gains = []
        for row in range(pairs.num_pairs):
            inputs, _ = pairs.batch([row])
            wide, narrow = (
                beam_search(network, inputs, beams=beams, temperature=temperature, length_penalty=0)[0]
                for beams in (6, 1)
            )
            scores = [score_of(network, inputs, sentence, temperature) for sentence in (wide, narrow)]
            gains.append(scores[0] - scores[1])
        assert min(gains) > -1e-4
        assert max(gains) > 0.01


def test_a_sentence_does_not_depend_on_the_batch_it_is_in(network, pairs):
    together = beam_search(network, pairs.batch(range(pairs.num_pairs))[0], temperature=1.6)
    alone = [beam_search(network, pairs.batch([row])[0], temperature=1.6)[0] for row in range(pairs.num_pairs)]
    assert together == alone


def test_a_sentence_without_end_is_cut_at_its_own_length(network, pairs):
    rows = [0, 3]
    inputs, _ = pairs.batch(rows)
    network.model.final_logits_bias[0, EOS] = -1e4
    try:
        for beams in (1, 3):
            found = beam_search(network, inputs, beams=beams)
            assert [len(sentence) for sentence in found] == [len(pairs.sources[row]) + LONGER for row in rows]
            assert all(EOS not in sentence for sentence in found)
    finally:
        network.model.final_logits_bias[0, EOS] = ENDING


def test_what_makes_no_sense_is_refused(network, pairs):
    inputs, _ = pairs.batch([0])
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="temperature"):
            beam_search(network, inputs, temperature=temperature)
    with pytest.raises(InputError, match="beams"):
        beam_search(network, inputs, beams=0)
