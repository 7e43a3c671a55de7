"""Beam search with a temperature inside: at each step the beam sees softmax(logits / T)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focalcal.core.checks import require
from focalcal_lab.models.transformer import Transformer
from focalcal_lab.translation.sentence_pairs import LONGER, TranslationInputs

# [vaswani2017, Sec. 6.1]
LENGTH_PENALTY = 0.6


class BeamTemperature:
    r"""What a beam adds up at temperature T: $\log \mathrm{softmax}(x / T)$, from log-probabilities or logits $x$.

    `generate` hands log-probabilities to its processors in beam search. Its own temperature would divide them and not
    normalise again: every hypothesis' score would be divided by T, and their order stay as it was. It leaves the
    temperature out of beam search altogether.

    >>> BeamTemperature(2.0)(torch.empty(0), torch.tensor([[0.0, -2.0]])).exp()
    tensor([[0.7311, 0.2689]])
    """

    def __init__(self, temperature: float) -> None:
        require(temperature > 0, "temperature", "must be positive", temperature)
        self.temperature = temperature

    def __call__(self, tokens: Tensor, scores: Tensor) -> Tensor:
        """The scores of the next token, one row per hypothesis."""
        return torch.log_softmax(scores / self.temperature, -1)


class TooLong:
    """Ends a hypothesis that is `LONGER` tokens longer than its own source, whatever else is in the batch."""

    def __init__(self, inputs: TranslationInputs) -> None:
        self.limits = inputs.source_mask.sum(1) - 1 + LONGER

    def __call__(self, tokens: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Which hypotheses end here."""
        limits = self.limits.repeat_interleave(len(tokens) // len(self.limits))
        return tokens.shape[1] - 1 >= limits  # the first token is the start of the sentence


@torch.no_grad()
def beam_search(
    network: Transformer,
    inputs: TranslationInputs,
    *,
    beams: int = 4,
    temperature: float = 1.0,
    length_penalty: float = LENGTH_PENALTY,
) -> list[list[int]]:
    r"""The best hypothesis for each source: its tokens without the start, with the end unless it was cut as too long.

    $$ \arg\max_y \frac{1}{|y|^{\alpha}} \sum_t \log \mathrm{softmax}(x_t / T)_{y_t} $$

    where $x_t$ are the logits at step $t$, $\alpha$ is `length_penalty`, and one beam is greedy decoding, which no
    temperature changes. The network should be in `eval` mode.

    Source: [mukhoti2020, Sec. 5.2]. Differs: [wu2016, Eq. 14], which Vaswani et al. use, penalises by
    $((5 + |y|) / 6)^\alpha$.
    """
    require(beams >= 1, "beams", "must be at least 1", beams)
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    config, limit = network.model.config, TooLong(inputs)
    settings = GenerationConfig(
        num_beams=beams,
        do_sample=False,
        length_penalty=length_penalty,
        early_stopping=False,
        max_length=int(limit.limits.max()) + 1,
        pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
    )
    found = network.model.generate(
        inputs=inputs.source,
        attention_mask=inputs.source_mask,
        generation_config=settings,
        logits_processor=LogitsProcessorList([BeamTemperature(temperature)]),
        stopping_criteria=StoppingCriteriaList([limit]),
    )
    rows = zip(found[:, 1:].tolist(), limit.limits.tolist(), strict=True)
    return [_sentence(tokens[:longest], config.eos_token_id) for tokens, longest in rows]


def _sentence(tokens: list[int], end: int) -> list[int]:
    """Tokens up to the first end; what comes behind it, or behind the longest allowed, is filling."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
