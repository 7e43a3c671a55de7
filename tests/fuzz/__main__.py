"""`make fuzz`: try each target for some minutes, write what fails into the corpus, and say how it went."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.guard import Guard
from tests.fuzz.runner import checker, minimised, run
from tests.fuzz.table import NAMES, find_target


def main() -> int:
    """Fuzz the targets that the command line names, or try or minimise one file of the corpus."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"any of {', '.join(NAMES)}; all by default")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, help="try one file of the corpus, and show what happens")
    parser.add_argument("--minimise", type=Path, help="make the case of a file smaller as long as it fails")
    given = parser.parse_args()
    warnings.simplefilter("error")
    if given.again or given.minimise:
        return _again(given.again or given.minimise, minimise=given.minimise is not None)
    unknown = sorted(set(given.targets) - set(NAMES))
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(NAMES)}")
    failed = 0
    for name in given.targets or NAMES:
        failed += _fuzz(name, 60 * given.minutes, given.seed)
    return 1 if failed else 0


def _fuzz(name: str, seconds: float, seed: int) -> int:
    target, started = find_target(name), time.monotonic()
    done = run(target, seed=seed, seconds=seconds)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in done.outcomes.most_common())
    print(f"{name} ({target.about}): {done.outcomes.total():,} cases in {time.monotonic() - started:.0f} s: {counts}")
    for path, why in done.failures.items():
        print(f"\n{path}\n{why}", flush=True)
    return len(done.failures)


def _again(path: Path, *, minimise: bool) -> int:
    name, kept = corpus.read_case(path)
    target, guard = find_target(name), Guard()
    check = checker(target, guard)
    try:
        print(check(kept.case))
    except Exception as error:
        if minimise:
            small = minimised(target, check, kept.case, error)
            corpus.write_case(name, path.stem, corpus.Kept(kept.note, kept.outcome, small), path.resolve().parents[1])
        print(error)
        return 1
    finally:
        guard.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
