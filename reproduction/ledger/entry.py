"""One claim of the papers and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Standing: TypeAlias = Literal[
    "holds with a correction",
    "proved numerically",
    "measured",
    "does not hold here",
    "shown on a toy problem",
    "set-up kept by a recipe",
    "needs a GPU recipe",
]

# In the order of the page, with what each means.
STANDINGS: dict[Standing, str] = {
    "holds with a correction": (
        "not true as printed, or only on a loose reading; its check shows a counterexample and proves what is true"
    ),
    "proved numerically": (
        "a check computes it, over grids and against slow formulas; one test runs the check, and another breaks the "
        "library to see it fail"
    ),
    "measured": "looked for in networks trained here on small data, and seen, everywhere or in part",
    "does not hold here": "looked for in the same way, and not seen",
    "shown on a toy problem": "seen on data whose distribution is known, and held by a test",
    "set-up kept by a recipe": "says how the authors trained; a test holds the recipe to it, only they know the rest",
    "needs a GPU recipe": "cannot be decided at this scale; the named recipe would decide it",
}


@dataclass(frozen=True)
class Entry:
    """A claim of `claims.csv`, its standing, and what stands behind it.

    `sentence` says what was found, or why nothing could be. `printed` and `true` belong to corrections, `check` to
    claims with a function that checks them (its dotted name), `verdict` to those that were looked for in results.
    `tests` are pytest's node ids, `results` the paths of result files; both begin at the root of the repository.
    `recipes` are those whose runs decided, or would decide; `runs` and `seeds` count the runs that were read.
    """

    id: str
    paper: str
    where: str
    claim: str
    kind: str
    note: str
    standing: Standing
    sentence: str
    verdict: str = ""
    printed: str = ""
    true: str = ""
    check: str = ""
    tests: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()
    runs: int = 0
    seeds: int = 0
