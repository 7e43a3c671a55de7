from __future__ import annotations

import pytest

from focalcal.kernels.compiled import compiled_kernels

SETS = ["torch"] if compiled_kernels() is None else ["torch", *compiled_kernels().available()]


@pytest.fixture(params=SETS)
def kernels(request, monkeypatch):
    """Each of the kernels that run here in turn: the definitions in torch, and every compiled instruction set."""
    module = compiled_kernels()
    if request.param == "torch":
        for name in ("focal_loss", "rows"):
            monkeypatch.setattr(f"focalcal.kernels.{name}.kernels_for", lambda scores: None)
        yield request.param
        return
    before = module.in_use()
    assert module.choose(request.param)
    yield request.param
    module.choose(before)
