"""focalcal makes classifiers say how sure they are, truthfully.

Training losses, the theory behind them, calibrators, and every calibration measure. The public names stand in
`__init__.pyi`; each is loaded when it is first used, so that the command line answers at once.

>>> import torch, focalcal as fc
>>> loss = fc.FocalLoss(gamma=3.0)
>>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
tensor(0.0002)
"""

from functools import cache
from importlib import import_module

__version__ = "0.1.0.dev0"


@cache
def _read_stub() -> tuple[dict[str, str], list[str]]:
    """The public names with the modules that define them, and the packages all of whose names are public here."""
    import ast  # here, because the command line needs no public name
    from pathlib import Path

    homes, packages = {}, []
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            module = f"{__name__}.{statement.module}" if statement.module else __name__
            for name in (alias.name for alias in statement.names):
                if name == "*":
                    packages.append(module)
                else:
                    homes[name] = module
    return homes, packages


def __getattr__(name: str) -> object:
    if name == "__all__":
        homes, packages = _read_stub()
        return sorted({*homes, *(public for package in packages for public in import_module(package).__all__)})
    if name == "papers":
        raise AttributeError("focalcal.papers has moved to focalcal_lab.papers. pip install focalcal-lab brings it.")
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes, packages = _read_stub()
    home = homes.get(name) or next((each for each in packages if name in import_module(each).__all__), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    # Found at once the next time. `report` is a package, too, which its import has entered here, and can be called.
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), "__version__"])  # type: ignore[misc]
