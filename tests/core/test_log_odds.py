from __future__ import annotations

import torch
from torch.testing import assert_close

from focalcal.core.log_odds import all_log_odds, log_odds


def test_log_odds_of_all_classes_are_those_of_each_class():
    logits = 8 * torch.randn(40, 5, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    every = all_log_odds(logits)
    for k in range(logits.shape[1]):
        assert_close(every[:, k : k + 1], log_odds(logits, torch.full((len(logits),), k)), rtol=1e-13, atol=1e-13)
    assert_close(torch.sigmoid(every), torch.softmax(logits, 1), rtol=1e-13, atol=0)
