"""A console that shows what would steer the terminal as escapes, wherever it stands in a text or a table."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from focalcal.printable import printable


class SafeConsole(Console):
    """rich's console, whose own colours are the only ones; file names and class names bring none."""

    def render_str(self, text: str, **how: Any) -> Text:
        """What becomes of every string that is printed, also of the headings and cells of tables."""
        return super().render_str(printable(text), **how)
