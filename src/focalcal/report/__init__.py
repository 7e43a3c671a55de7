"""Reports: the verdict in words, figures, and a self-contained HTML page.

The package can be called: `focalcal.report(scores, labels, out="report.html")` writes the page, and is the same as
`focalcal.report.notebook.report`.

>>> import focalcal as fc, tempfile, torch
>>> logits = torch.randn(200, 3)
>>> with tempfile.TemporaryDirectory() as folder:
...     fc.report(logits, logits.argmax(1), f"{folder}/report.html", methods=[]).path.name
'report.html'
"""

import inspect
import sys
from types import ModuleType
from typing import Any

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["plots"])


class _CallablePackage(ModuleType):
    """A package whose name is also that of its function: importing one must not hide the other."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What `focalcal.report.notebook.report` does."""
        from focalcal.report.notebook import report

        return report(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from focalcal.report.notebook import report

        return inspect.signature(report)


sys.modules[__name__].__class__ = _CallablePackage
