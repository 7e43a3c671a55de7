"""Insert the tables of the benchmarks into the pages of docs/ that show them, at their marks.

    python benchmarks/pages.py            # writes docs/results/speed.md, docs/results/post_hoc.md, docs/comparison.md
    python benchmarks/pages.py --check    # says whether they are up to date

The pages are written by hand; between `<!-- NAME -->` and `<!-- end of NAME -->` stands what the files of
benchmarks/results give.
"""

from __future__ import annotations

import json
import re
import sys

import comparison
import post_hoc
import speed

DOCS = speed.ROOT / "docs"


def all_blocks() -> dict[str, dict[str, list[str]]]:
    """The tables of every page, by the path of the page and the names of their marks."""
    found = speed.read()
    measured = json.loads((speed.RESULTS / "post_hoc.json").read_text())["measured"]
    return {
        "results/speed.md": speed.blocks(found),
        "results/post_hoc.md": post_hoc.blocks(measured),
        "comparison.md": comparison.blocks(found),
    }


def filled(text: str, blocks: dict[str, list[str]]) -> str:
    """A page with its tables made anew."""
    for name, lines in blocks.items():
        block = "\n".join([f"<!-- {name} -->", "", *lines, "", f"<!-- end of {name} -->"])
        mark = re.escape(name)
        text, times = re.subn(rf"<!-- {mark} -->.*?<!-- end of {mark} -->", lambda _, new=block: new, text, flags=re.S)
        if times != 1:
            raise SystemExit(f"The marks of {name} must be there once; found {times}.")
    return text


def main() -> None:
    """Fill every page, or say which is not up to date."""
    changed = []
    for name, blocks in all_blocks().items():
        text = (DOCS / name).read_text()
        new = filled(text, blocks)
        if new != text:
            changed.append(name)
            if "--check" not in sys.argv[1:]:
                (DOCS / name).write_text(new)
    if changed and "--check" in sys.argv[1:]:
        sys.exit(f"Not up to date: {', '.join(changed)}. Run python benchmarks/pages.py.")
    print("\n".join(f"written: docs/{name}" for name in changed) or "All pages are up to date.")


if __name__ == "__main__":
    main()
