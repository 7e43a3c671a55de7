"""Run the tests against each mutant of a list: `python tools/mutants/run.py TESTS...`.

One process imports PyTorch and collects the tests. A first fork runs them all once and notes which lines of the
package each of them reaches and how long it takes. Then every mutant gets a fork of its own, in which the functions
concerned are given the mutated code and the tests that reach its lines are run until one fails: the quickest case of
each test first, then the other cases, and only then the slow tests. One line for each mutant is appended to
results.jsonl; a second run goes on where the first one stopped, with what was recorded about the tests.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from places import Place, Source, mutate  # noqa: E402
from table import read_lines, table  # noqa: E402

MEMORY = 12 << 30  # a mutant that asks for more has been noticed
LONGEST = 30  # seconds of one test that are recorded: by then it has reached what it will reach


def remembering(*packages: str) -> list[Any]:
    """The functions with an `lru_cache`: what they remember would hide a mutant."""
    cached = [found for found in gc.get_objects() if type(found) is functools._lru_cache_wrapper]
    return [found for found in cached if str(found.__module__).startswith(packages)]


def stop_test(*_: Any) -> None:
    """End a long test while recording."""
    raise TimeoutError("this test has run for long enough")


class Runner:
    """A plugin of pytest that takes the place of its loop over the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.package = options.package.resolve()
        self.reach_file, self.results = options.out / "reach.json", options.out / "results.jsonl"
        self.failed = False
        self.coverage: Any = None
        self.contexts: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """A failing example is enough: Hypothesis need not make it small."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", settings(), phases=(Phase.explicit, Phase.generate), print_blob=False)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember whether a test failed."""
        self.failed |= report.failed

    def run(self, item: pytest.Item, following: pytest.Item | None) -> tuple[bool, float]:
        """Run one test: whether it failed, and the processor's seconds it took."""
        self.failed, start = False, time.process_time()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return self.failed, time.process_time() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """What a shared fixture reaches counts for each test that uses it, not for the first one only."""
        if self.coverage is None or fixturedef.scope == "function":
            return (yield)
        self.contexts.append(f"fixture {id(fixturedef)}")
        self.coverage.switch_context(self.contexts[-1])
        try:
            return (yield)
        finally:
            self.contexts.pop()
            self.coverage.switch_context(self.contexts[-1])

    def record(self, items: list[pytest.Item]) -> None:
        """Run all tests once and write down what each of them reaches."""
        from coverage import Coverage

        self.coverage = Coverage(data_file=None, source=[str(self.package)], config_file=False)
        self.coverage.start()
        signal.signal(signal.SIGPROF, stop_test)
        seconds: dict[str, float] = {}
        broken: list[str] = []
        users: dict[str, list[str]] = {}
        caches = remembering(self.package.name, "tests")
        for item, following in zip(items, [*items[1:], None], strict=True):
            for cache in caches:
                cache.cache_clear()
            self.contexts = [item.nodeid]
            self.coverage.switch_context(item.nodeid)
            signal.setitimer(signal.ITIMER_PROF, LONGEST)
            failed, seconds[item.nodeid] = self.run(item, following)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if failed and seconds[item.nodeid] < 0.9 * LONGEST:
                broken.append(item.nodeid)
            fixtures = item._fixtureinfo.name2fixturedefs if hasattr(item, "_fixtureinfo") else {}
            for fixture in [f for several in fixtures.values() for f in several if f.scope != "function"]:
                users.setdefault(f"fixture {id(fixture)}", []).append(item.nodeid)
        self.coverage.stop()
        data = self.coverage.get_data()
        number = {name: i for i, name in enumerate(seconds)}
        reach: dict[str, dict[int, list[int]]] = {}
        for file in data.measured_files():
            lines = reach.setdefault(str(Path(file).relative_to(self.package)), {})
            for line, contexts in data.contexts_by_lineno(file).items():
                names = {name for context in contexts for name in users.get(context, [context]) if name in number}
                lines[line] = sorted(number[name] for name in names)
        self.reach_file.write_text(json.dumps({"seconds": seconds, "broken": broken, "reach": reach}))

    def order(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """The quickest case of each test, then the other cases file by file."""
        seconds = self.seconds
        quickest = {item.nodeid.partition("[")[0]: item for item in sorted(items, key=lambda i: -seconds[i.nodeid])}
        spent: Counter[Path] = Counter()
        for item in items:
            spent[item.path] += seconds[item.nodeid]
        first = sorted(quickest.values(), key=lambda i: seconds[i.nodeid])
        return first + sorted((item for item in items if item not in first), key=lambda i: spent[i.path])

    def attack(self, file: Path, place: Place, after: str, items: list[pytest.Item], cap: float, pipe: int) -> None:
        """In a fork: run tests against one mutant until one fails; each line in the pipe says what happens."""

        def say(*words: str) -> None:
            os.write(pipe, (json.dumps(words) + "\n").encode())

        for cache in remembering(self.package.name, "tests"):
            cache.cache_clear()
        if after != place.text and not mutate(file, place, after):
            return say("unchanged")
        start = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=True):
            if time.process_time() - start > cap:
                return say("capped")
            say("test", item.nodeid)
            if self.run(item, following)[0]:
                return say("killed")
        return say("survived")

    def judge(self, file: Path, place: Place, after: str, items: list[pytest.Item], cap: float) -> dict[str, Any]:
        """What the tests say about one mutant."""
        heard, test, ran, buffer, start = "died", "", 0, b"", time.monotonic()
        with forked(lambda pipe: self.attack(file, place, after, items, cap, pipe)) as pipe:
            while True:
                if not select.select([pipe], [], [], 60 + 20 * self.seconds.get(test, 1.0))[0]:
                    heard = "timeout"
                    break
                received = os.read(pipe, 1 << 16)
                if not received:
                    break
                *lines, buffer = (buffer + received).split(b"\n")
                for word, *rest in map(json.loads, lines):
                    if word == "test":
                        test, ran = rest[0], ran + 1
                    else:
                        heard = word
        killed = heard in ("killed", "died", "timeout")
        seconds = round(time.monotonic() - start, 1)
        result = {"outcome": "killed" if killed else heard, "how": heard, "by": test if killed else None}
        return result | {"tests": len(items), "ran": ran, "seconds": seconds}

    def result(self, mutant: dict[str, Any], source: Source, items: list[pytest.Item]) -> dict[str, Any]:
        """Look for a mutant in the code of today and run the tests that reach it: first the fast ones."""
        result: dict[str, Any] = {"id": mutant["id"], "area": mutant["area"]}
        found = source.find(mutant)
        if found is None:
            return result | {"outcome": "gone"}
        file, place = found
        relative = str(file.relative_to(self.package))
        import_module(".".join(file.relative_to(self.package.parent).with_suffix("").parts))  # it may be lazy
        lines = self.reach.get(relative, {})
        reached = {self.names[i] for line in place.lines for i in lines.get(str(line), [])}
        tests = [item for item in items if item.nodeid in reached]
        slow = [item for item in tests if item.get_closest_marker("slow")]
        fast = self.order([item for item in tests if item not in slow])
        result |= {"file": relative, "line": place.lines[0], "function": place.function, "outcome": "unreached"}
        after = place.text if self.options.control else mutant["after"]
        for stage, chosen, cap in (("fast", fast, self.options.cap), ("slow", slow, self.options.slow_cap)):
            if chosen and result["outcome"] != "killed" and stage in self.options.stages:
                result |= {"stage": stage} | self.judge(file, place, after, chosen, cap)
                result[f"{stage}_outcome"] = result["outcome"]
        return result

    def work(self, mutants: list[dict[str, Any]], source: Source, items: list[pytest.Item]) -> None:
        """Take one mutant after the other."""
        for mutant in mutants:
            line = json.dumps(self.result(mutant, source, items)) + "\n"
            with self.results.open("a") as out:
                out.write(line)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record if there is no record, then share the mutants among some processes."""
        import torch

        torch.set_num_threads(1)
        items = [item for item in session.items if not any(word in item.nodeid for word in self.options.without)]
        self.options.out.mkdir(parents=True, exist_ok=True)
        if not self.reach_file.exists():
            with forked(lambda pipe: self.record(items)) as pipe:
                os.read(pipe, 1)
        known = json.loads(self.reach_file.read_text())
        self.seconds, self.names, self.reach = known["seconds"], list(known["seconds"]), known["reach"]
        if known["broken"]:
            print("These tests fail without a mutant and are left out:", *known["broken"], sep="\n  ")
        items = [item for item in items if item.nodeid in self.seconds and item.nodeid not in known["broken"]]
        done = {result["id"] for result in read_lines(self.results)}
        mutants = [mutant for mutant in read_lines(self.options.list) if mutant["id"] not in done]
        source = Source(self.package)
        with ExitStack() as workers:
            shares = [mutants[i :: self.options.jobs] for i in range(self.options.jobs)]
            works = [functools.partial(lambda share, pipe: self.work(share, source, items), share) for share in shares]
            for pipe in [workers.enter_context(forked(work)) for work in works]:
                os.read(pipe, 1)  # nothing comes; the pipe is closed when the work is done
        print(table(read_lines(self.options.list), read_lines(self.results), read_lines(self.options.equivalent)))
        return True


@contextmanager
def forked(work: Callable[[int], None]) -> Iterator[int]:
    """A child that does some work in silence; gives the pipe it reports to."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        errors = os.dup(2)
        try:
            os.setpgid(0, 0)
            os.close(read)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            work(write)
        except BaseException:
            os.write(errors, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        yield read
    finally:
        os.close(read)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # the child is done, or has to be; what it started goes with it
        os.waitpid(child, 0)


def main() -> None:
    """Read the command line, and hand the rest to pytest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", type=Path, default=HERE / "mutants.jsonl", help="the mutants, as draw.py writes them")
    parser.add_argument("--equivalent", type=Path, default=HERE / "equivalent.jsonl", help="those no test can notice")
    parser.add_argument("--out", type=Path, default=Path("build/mutants"), help="the folder of record and results")
    parser.add_argument("--package", type=Path, default=Path("src/focalcal"))
    parser.add_argument("--jobs", type=int, default=2, help="processes that share the mutants")
    parser.add_argument("--control", action="store_true", help="change nothing: every mutant has to survive")
    parser.add_argument("--stages", default="fast,slow", help="`fast` leaves out the tests marked slow")
    parser.add_argument("--cap", type=float, default=300, help="seconds of the fast tests for each mutant")
    parser.add_argument("--slow-cap", type=float, default=120, help="seconds of the slow tests for each survivor")
    parser.add_argument("--without", action="append", default=[], help="part of the names of tests to leave out")
    options, arguments = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that forks are ended too
    pytest_options = ["-q", "-s", "-p", "no:cacheprovider"]
    sys.exit(pytest.main([*pytest_options, *arguments], plugins=[Runner(options)]))


if __name__ == "__main__":
    main()
