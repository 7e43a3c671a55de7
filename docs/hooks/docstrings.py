"""What the reference reads from the sources: docstrings, with examples set as code, and names loaded on first use."""

from __future__ import annotations

import re
from typing import Any

import griffe

# A prompt at the start of a paragraph, and all lines of that paragraph.
_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))((?: *)>>> .*?)(?=\n[ \t]*\n(?! *>>> )|\Z)", re.DOTALL)


class Examples(griffe.Extension):
    """Puts the examples of every docstring into fenced blocks, and finds names that only type checkers import."""

    def on_alias_instance(self, *, alias: griffe.Alias, **kwargs: Any) -> None:
        """Names that are imported for type checkers are names of the package: it loads them when they are used."""
        alias.runtime = True

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """What `focalcal` has from other packages by a star, each name where it is defined."""
        if pkg.path != "focalcal":
            return
        import focalcal

        for name in focalcal.__all__:
            thing = getattr(focalcal, name)
            if name not in pkg.members and hasattr(thing, "__qualname__"):
                pkg[name] = griffe.Alias(name, f"{thing.__module__}.{thing.__qualname__}")

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change one docstring; empty lines between two examples stay within the block."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    r"""The docstring with its examples in fenced blocks.

    >>> print(fenced("Adds.\n\n>>> 1 + 1\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    apart = re.sub(r"\$\$\n( *)\$\$", r"$$\n\n\1$$", docstring)  # one equation under another: each a block of its own
    return _EXAMPLE.sub(r"```pycon\n\1\n```", apart)
