"""Batches of sentence pairs: what a Transformer reads, and the tokens that it should have said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from focalcal.core.checks import Array, require
from focalcal_lab.data.dataset import Batch
from focalcal_lab.data.tokens import Ragged
from focalcal_lab.translation.vocabulary import BOS, EOS, PAD

IGNORED = -100
# How many tokens a translation may be longer than its source [vaswani2017, Sec. 6.1].
LONGER = 50


@dataclass
class TranslationInputs:
    """Source tokens (B, S) that end with the end of sentence, where they are no padding, and decoder inputs (B, T).

    Decoder inputs are the target one step late: the start of a sentence, then the target without its end.
    """

    source: Tensor
    source_mask: Tensor
    decoder_inputs: Tensor

    def to(self, device: torch.device | str, **options: Any) -> TranslationInputs:
        """The same on another device."""
        return TranslationInputs(*(part.to(device, **options) for part in self._parts()))

    def pin_memory(self) -> TranslationInputs:
        """The same in memory that a GPU reads fast."""
        return TranslationInputs(*(part.pin_memory() for part in self._parts()))

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source, self.source_mask, self.decoder_inputs


class Pairs(Dataset[Any]):
    """Sentence pairs as batches: inputs, and the target's tokens with the end of sentence (B * T,), -100 for padding.

    With `tokens`, a row of the set is a whole group of pairs of similar length with about so many target tokens, as in
    [vaswani2017, Sec. 5.1]; then a batch of one row is a full batch. Groups stay together: an epoch mixes their order.

    >>> pairs = Pairs([np.array([4]), np.array([4, 5])], [np.array([6, 7]), np.array([8])])
    >>> inputs, labels = pairs.__getitems__([0, 1])
    >>> inputs.source.tolist(), inputs.decoder_inputs.tolist(), labels.tolist()
    ([[4, 2, 0], [4, 5, 2]], [[1, 6, 7], [1, 8, 0]], [6, 7, 2, 8, 2, -100])
    """

    def __init__(
        self,
        sources: Sequence[Array],
        targets: Sequence[Array],
        *,
        texts: Sequence[tuple[str, str]] = (),
        tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        require(len(sources) == len(targets), "targets", f"must be {len(sources)}, one for each source", len(targets))
        require(len(sources) > 0, "sources", "must have at least one sentence", 0)
        require(tokens is None or tokens >= 1, "tokens", "must be at least 1", tokens)
        self.sources, self.targets, self.texts = Ragged.of(sources), Ragged.of(targets), list(texts)
        self.groups = None if tokens is None else self._grouped(tokens, seed)

    @property
    def num_pairs(self) -> int:
        """The number of sentence pairs."""
        return len(self.sources)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence of either language, with its end."""
        return int(max(self.sources.lengths.max(), self.targets.lengths.max())) + 1

    def __len__(self) -> int:
        return self.num_pairs if self.groups is None else len(self.groups)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The pairs, or groups of pairs, of `indices` as one batch."""
        if self.groups is None:
            return self.batch(indices)
        return self.batch([pair for index in indices for pair in self.groups[index]])

    def batch(self, pairs: Sequence[int]) -> Batch:
        """Sentence pairs by their number as one batch."""
        source = _padded([[*self.sources[pair], EOS] for pair in pairs], PAD)
        decoder_inputs = _padded([[BOS, *self.targets[pair]] for pair in pairs], PAD)
        labels = _padded([[*self.targets[pair], EOS] for pair in pairs], IGNORED)
        lengths = torch.from_numpy(self.sources.lengths[np.asarray(pairs)]) + 1
        mask = torch.arange(source.shape[1]) < lengths.unsqueeze(1)
        return TranslationInputs(source, mask, decoder_inputs), labels.reshape(-1)

    def by_length(self, batch_size: int) -> Iterator[list[int]]:
        """The numbers of all pairs in batches of similar length, the longest first, so that memory runs out at once."""
        order = np.lexsort((self.targets.lengths, self.sources.lengths))[::-1]
        for start in range(0, len(order), batch_size):
            yield order[start : start + batch_size].tolist()

    def _grouped(self, tokens: int, seed: int) -> list[list[int]]:
        """Groups of pairs of similar length; pairs of equal length are mixed by the seed."""
        mixed = np.random.default_rng(seed).permutation(self.num_pairs)
        order = mixed[np.lexsort((self.sources.lengths[mixed], self.targets.lengths[mixed]))]
        groups: list[list[int]] = [[]]
        for pair in order.tolist():
            width = max(int(self.targets.lengths[pair]), int(self.sources.lengths[pair])) + 1
            if groups[-1] and width * (len(groups[-1]) + 1) > tokens:  # what it would take with padding
                groups.append([])
            groups[-1].append(pair)
        return groups


def _padded(rows: list[list[int]], padding: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [padding] * (width - len(row)) for row in rows], dtype=torch.int64)
