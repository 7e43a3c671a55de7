from __future__ import annotations

import pytest
import torch

from focalcal.predictions.distributed import gather_rows, sum_over_ranks


@pytest.fixture
def one_rank():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("rows", [torch.arange(6.0).reshape(3, 2), torch.zeros(0, 2)])
def test_a_single_rank_gathers_its_own_rows(rows):
    assert torch.equal(gather_rows(rows), rows)
    assert torch.equal(sum_over_ranks(rows), rows)
