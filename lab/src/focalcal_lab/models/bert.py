"""BERT with a linear layer on top, through `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from focalcal.core.checks import require
from focalcal.errors import InputError
from focalcal_lab.data.huggingface import pretrained_bert
from focalcal_lab.data.tokens import MaskedTokens

# Of a configuration, what a network is made of. Other fields may name kernels, adapters or code to be loaded.
_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)


@final
class BertClassifier(nn.Module):
    """A linear layer on BERT's pooled output, after its dropout."""

    def __init__(self, encoder: Any, num_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        config = encoder.config
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.head = nn.Linear(config.hidden_size, num_classes)
        # As the encoder's own layers are initialised.
        nn.init.normal_(self.head.weight, std=config.initializer_range)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: MaskedTokens) -> Tensor:
        """Logits (N, K) of token numbers with their mask."""
        pooled = self.encoder(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).pooler_output
        logits: Tensor = self.head(self.dropout(pooled))
        return logits


def bert(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    checkpoint: str = "bert-base-uncased",
    pretrained: bool = True,
    config: Mapping[str, Any] | None = None,
) -> BertClassifier:
    """BERT for classification, with one linear layer on top of the pooled output.

    `checkpoint` is one of `focalcal_lab.data.huggingface.BERTS`, or a folder with config.json and model.safetensors.
    Of a configuration only sizes and rates are read: it makes nothing else load, be it code, a kernel or another
    network. With `config`, or `pretrained: false`, the network is a random one of that configuration (BERT base for
    what it does not name) and nothing is loaded.

    Source: [ghosh2022, App. D.2].

    >>> small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    >>> bert(20, {"vocabulary": 30}, config=small).head
    Linear(in_features=8, out_features=20, bias=True)
    """
    import transformers

    if config is not None or not pretrained:
        unknown = [name for name in config or {} if name not in _FIELDS]
        require(not unknown, "config", f"must have no fields but {', '.join(_FIELDS)}", ", ".join(unknown))
        fields = {**({"vocab_size": facts["vocabulary"]} if "vocabulary" in facts else {}), **(config or {})}
        return BertClassifier(transformers.BertModel(transformers.BertConfig(**fields)), num_classes)
    known = pretrained_bert(checkpoint, "checkpoint")
    try:
        theirs = transformers.BertConfig.from_pretrained(known)
        ours = transformers.BertConfig(**{name: getattr(theirs, name) for name in _FIELDS})
        encoder = transformers.BertModel.from_pretrained(known, config=ours, dtype=torch.float32, use_safetensors=True)
    except Exception as error:  # what damaged files make of the reader, and what it raises offline
        raise InputError(
            f"checkpoint: {checkpoint} cannot be loaded ({type(error).__name__}). Go online, give a folder with "
            "config.json and model.safetensors, or build a random one with `pretrained: false` and `config`."
        ) from error
    return BertClassifier(encoder, num_classes)
