"""Insert the tables that the result files give into the pages of docs/, and draw the figures of docs/results.

    python -m reproduction.build            # from the root of the repository
    python -m reproduction.build --check    # writes nothing; exit code 3 if a page or a number is not up to date

Pages are written by hand. A table stands between two marks and is replaced at each build:

    <!-- table: losses.trained.cifar10-s-resnet8 -->
    ...
    <!-- end -->

A number in a sentence is followed by the cell of a table that it quotes, and by which number of that cell if it is not
the first: `1.99<!--= losses.trained.cifar10-s-resnet8 | AdaFocal | ECE -->`. The build refuses a number that differs
from its cell; the sentence is for a person to mend.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from focalcal.atomic import write_atomically
from focalcal.drawing import bytes_of
from reproduction import ledger, tables
from reproduction.markdown import TABLES
from reproduction.recipe_numbers import Results, recorded_numbers
from reproduction.result_figures import result_figures

__all__ = ["DOCS", "build_page", "main", "pages", "unequal_numbers"]

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Importing these modules registers their tables.
_SOURCES = (ledger, tables)
_PLACE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->", re.DOTALL)
_QUOTED = re.compile(r"([-+]?\d[\d,]*(?:\.\d+)?)<!--= (.+?) -->")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def pages() -> list[Path]:
    """The pages of docs/ that have generated tables."""
    return [path for path in sorted(DOCS.rglob("*.md")) if "\n<!-- table: " in path.read_text(encoding="utf-8")]


def build_page(text: str, results: Results) -> str:
    """The text of a page with every table at its place made anew."""

    def made(place: re.Match[str]) -> str:
        return f"<!-- table: {place[1]} -->\n\n{TABLES[place[1]](results)}\n\n<!-- end -->"

    return _PLACE.sub(made, text)


def unequal_numbers(text: str, results: Results) -> Iterator[str]:
    """What is wrong with the quoted numbers of a page: those that are not, as rounded, what their cell says."""
    for quoted, source in _QUOTED.findall(text):
        name, row, column, *which = (part.strip() for part in source.split("|"))
        try:
            cell = TABLES[name](results).cell(row, column)
            found = _NUMBER.findall(cell)[int(which[0]) - 1 if which else 0]
        except (KeyError, IndexError) as error:
            yield f"{quoted}: {source} is no cell: {error}"
            continue
        if abs(_value(quoted) - _value(found)) > _half_unit(quoted) + 1e-9:
            yield f"{quoted}: {source} is {cell}"


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _half_unit(number: str) -> float:
    """Half of the last digit of a number as it is written.

    >>> _half_unit("17.5")
    0.05
    """
    return 0.5 * 10.0 ** -len(number.partition(".")[2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Build all pages and figures, or check them."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.build", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something is not up to date")
    check = parser.parse_args(arguments).check
    results = recorded_numbers()
    wrong, files = [], [(ledger.FILE, ledger.file_content(results))]
    for path in pages():
        text = build_page(path.read_text(encoding="utf-8"), results)
        wrong += [f"{path.relative_to(DOCS)}: {each}" for each in unequal_numbers(text, results)]
        files.append((path, text.encode()))
    for name, draw in result_figures().items():
        files.append((DOCS / "results" / "images" / f"{name}.svg", bytes_of(draw(results), "svg")))
    changed = [(path, content) for path, content in files if not path.exists() or path.read_bytes() != content]
    for path, content in changed:
        print(f"{'not up to date' if check else 'written'}: {path}")
        if not check:
            write_atomically(path, content)
    for line in wrong:
        print(line, file=sys.stderr)
    return 3 if wrong or (check and changed) else 0


if __name__ == "__main__":
    sys.exit(main())
