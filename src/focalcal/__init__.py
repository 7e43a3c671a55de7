"""focalcal makes classifiers say how sure they are, truthfully.

Training losses, the theory behind them, calibrators, and every calibration measure. The public names stand in
`__init__.pyi`; each is loaded when it is first used, so that the command line answers at once.

>>> import torch, focalcal as fc
>>> loss = fc.FocalLoss(gamma=3.0)
>>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
tensor(0.0002)
"""

import lazy_loader

__version__ = "0.1.0.dev0"

_load, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "papers":
        raise AttributeError("focalcal.papers has moved to focalcal_lab.papers. pip install focalcal-lab brings it.")
    return _load(name)


def __dir__() -> list[str]:
    return sorted([*_names(), "__version__"])
