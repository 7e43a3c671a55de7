"""The Transformer of Vaswani et al. for translation, through `transformers`, with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from focalcal.core.checks import require
from focalcal_lab.translation.sentence_pairs import LONGER, TranslationInputs

# Sizes of [vaswani2017, Table 3], and one for the made-up corpus.
SIZES: dict[str, dict[str, Any]] = {
    "base": {"layers": 6, "width": 512, "heads": 8, "inner": 2048, "dropout": 0.1},
    "big": {"layers": 6, "width": 1024, "heads": 16, "inner": 4096, "dropout": 0.3},
    "tiny": {"layers": 2, "width": 96, "heads": 4, "inner": 192, "dropout": 0.1},
}


class Transformer(nn.Module):
    """Encoder and decoder; `forward` gives logits (B * T, V) of the next target token at each place of the target.

    The embeddings of both languages and the last layer share one matrix [vaswani2017, Sec. 3.4].
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def head(self) -> nn.Linear:
        """The last linear layer; its weights are the embeddings' as well."""
        head: nn.Linear = self.model.lm_head
        return head

    @property
    def num_positions(self) -> int:
        """How many tokens a sentence may have."""
        return int(self.model.config.max_position_embeddings)

    def forward(self, inputs: TranslationInputs) -> Tensor:
        """Logits (B * T, V): those of padding as well, whose labels are -100."""
        said = self.model(
            input_ids=inputs.source,
            attention_mask=inputs.source_mask,
            decoder_input_ids=inputs.decoder_inputs,
            use_cache=False,
        )
        return said.logits.flatten(0, 1)  # type: ignore[no-any-return]


def transformer(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    size: str = "base",
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    inner: int | None = None,
    dropout: float | None = None,
) -> Transformer:
    """A Transformer for a shared vocabulary of `num_classes` tokens: a named `size`, or parts of it chosen.

    As in the paper: sinusoidal positions, ReLU, layer norm behind each residual sum, dropout on sub-layers and
    embeddings. Weights start as in the authors' tensor2tensor: Glorot uniform, embeddings with deviation width^-1/2.

    Source: [vaswani2017, Sec. 3, Table 3].

    >>> facts = {"pad": 0, "bos": 1, "eos": 2, "longest": 20}
    >>> network = transformer(630, facts, size="tiny")
    >>> network.head
    Linear(in_features=96, out_features=630, bias=False)
    """
    require(size in SIZES, "size", f"must be one of {', '.join(SIZES)}", repr(size))
    given = {"layers": layers, "width": width, "heads": heads, "inner": inner, "dropout": dropout}
    chosen = SIZES[size] | {name: value for name, value in given.items() if value is not None}
    fits = chosen["width"] % chosen["heads"] == 0
    require(fits, "width", "must be a multiple of heads", f"{chosen['width']} and {chosen['heads']} heads")
    missing = [name for name in ("pad", "bos", "eos") if name not in facts]
    require(not missing, "facts", "must have pad, bos and eos", f"no {', '.join(missing)}", "Use translation data.")
    model = _marian(num_classes, facts, **chosen)
    _initialise(model)
    return Transformer(model)


def _marian(
    num_classes: int, facts: Mapping[str, Any], *, layers: int, width: int, heads: int, inner: int, dropout: float
) -> Any:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=num_classes,
        decoder_vocab_size=num_classes,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        dropout=dropout,
        activation_function="relu",
        scale_embedding=True,
        # A translation may be longer than its source, and every token has a position.
        max_position_embeddings=int(facts.get("longest", 256)) + LONGER + 1,
        pad_token_id=facts["pad"],
        bos_token_id=facts["bos"],
        eos_token_id=facts["eos"],
        decoder_start_token_id=facts["bos"],
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


@torch.no_grad()
def _initialise(model: Any) -> None:
    """Draw all weights anew; what the library's own start makes of the generator does not matter then."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.lm_head:
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    shared = model.model.shared
    nn.init.normal_(shared.weight, std=shared.embedding_dim**-0.5)
