"""Reports: the verdict in words, figures, and a self-contained HTML page."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["plots"])
