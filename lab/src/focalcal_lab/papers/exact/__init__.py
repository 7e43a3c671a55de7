"""One function for every claim that arithmetic alone can check, in the file of its paper.

A check takes no arguments, and raises an AssertionError if its claim, or the correction it is tied to, does not hold.
"""

from __future__ import annotations

import linecache
import time
import traceback
from collections.abc import Callable
from types import FrameType

from focalcal.threads import torch_threads
from focalcal_lab.papers.exact import charoenphakdee2021, ghosh2022, komisarenko2024, mukhoti2020
from focalcal_lab.papers.exact.tools import TIED

__all__ = ["TIED", "charoenphakdee2021", "ghosh2022", "komisarenko2024", "mukhoti2020", "run"]


def run(check: Callable[[], None]) -> tuple[float, str]:
    """The seconds a check took, and what went wrong: nothing, if the string is empty.

    >>> run(mukhoti2020.sec4_g_is_nearly_0_at_one_half_from_gamma_7_on)[1]
    ''
    """
    start = time.perf_counter()
    message = ""
    with torch_threads(1):  # small tensors gain nothing from many, and the times of several runs can be compared
        try:
            check()
        except Exception as error:
            message = explain(error)
    return time.perf_counter() - start, message


def explain(error: Exception) -> str:
    """One line about a failed check: the error, the statement of the check, and the numbers it failed for.

    >>> try:
    ...     gamma = 3.0
    ...     assert gamma < 1
    ... except AssertionError as failed:
    ...     said = explain(failed)
    >>> said.startswith("AssertionError at line 3 of")
    True
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    # The innermost frame of a check or of a helper in its file; `close` and the library below say nothing of the claim.
    papers = [(frame, line) for frame, line in frames if _paper_of(frame)]
    frame, line = (papers or frames)[-1]
    statement = linecache.getline(frame.f_code.co_filename, line).strip()
    name = frame.f_code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    numbers = {key: value for key, value in frame.f_locals.items() if type(value) in (int, float, str) and key != "_"}
    shown = ", ".join(f"{key} = {value!r}" for key, value in numbers.items())
    said = " ".join(f"{type(error).__name__}{f': {error}' if str(error) else ''}".split())
    return f"{said} at line {line} of {name}: {statement}" + (f" (with {shown})" if shown else "")


def _paper_of(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(f"{__name__}.") and not module.endswith(".tools")
