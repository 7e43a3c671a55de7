"""Predictions in files and datasets: read whole, rewritten or streamed in bounded memory, here or on a cluster.

The public names stand in `__init__.pyi`; each is loaded when it is first used. The table of formats is in
`table.py`, and each format has a module of its own.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
