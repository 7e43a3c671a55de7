"""BERT with a linear layer on top, through `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from focalcal.errors import InputError
from focalcal_lab.data.tokens import MaskedTokens


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

    `checkpoint` is a model on the hub, in its cache, or a local folder. With `config`, or `pretrained: false`, the
    network is a random one of that configuration (BERT base for what it does not name) and nothing is loaded.

    Source: [ghosh2022, App. D.2].

    >>> small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    >>> bert(20, {"vocabulary": 30}, config=small).head
    Linear(in_features=8, out_features=20, bias=True)
    """
    import transformers

    if config is not None or not pretrained:
        fields = {**({"vocab_size": facts["vocabulary"]} if "vocabulary" in facts else {}), **(config or {})}
        return BertClassifier(transformers.BertModel(transformers.BertConfig(**fields)), num_classes)
    try:
        encoder = transformers.BertModel.from_pretrained(checkpoint, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise InputError(
            f"checkpoint: must be a BERT in a folder, on the Hugging Face hub or in its cache; got {checkpoint}, which "
            "cannot be loaded. Go online, give a folder, or build a random one with `pretrained: false` and `config`."
        ) from error
    return BertClassifier(encoder, num_classes)
