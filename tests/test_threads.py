"""What runs in several threads at once: the same numbers, and torch's number of threads as it was."""

from __future__ import annotations

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.files import PredictionStream
from focalcal.threads import torch_threads

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [path for folder in ("src", "lab/src") for path in sorted((ROOT / folder).rglob("*.py"))]
PROCESS_WIDE = {"set_num_threads", "set_num_interop_threads"}


@pytest.fixture
def two_threads():
    """Torch with two threads in every thread of the process, as on a machine with two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_no_source_changes_the_number_of_threads_of_the_process():
    assert len(SOURCES) > 100
    for path in SOURCES:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        used = {getattr(node, "attr", getattr(node, "id", None)) for node in nodes}
        assert not used & PROCESS_WIDE, path


def test_the_number_is_that_of_the_calling_thread(two_threads):
    with torch_threads(1), ThreadPoolExecutor(1) as other:
        assert torch.get_num_threads() == 1
        assert other.submit(torch.get_num_threads).result() == 2
    assert torch.get_num_threads() == 2


def batches(generator: np.random.Generator):
    return [(generator.normal(size=(500, 4)), generator.integers(0, 4, 500)) for _ in range(4)]


def test_evaluations_that_overlap_leave_each_other_alone(two_threads):
    given = [batches(np.random.default_rng(seed)) for seed in (0, 1)]
    expected = [fc.evaluate(PredictionStream(rows)) for rows in given]
    both_run, first_is_done = threading.Barrier(2, timeout=30), threading.Event()

    def read(which):
        """The first thread goes on as soon as the second has begun, and ends before it."""
        yield given[which][0]
        both_run.wait()
        if which == 1:
            assert first_is_done.wait(30)
        yield from given[which][1:]

    def measure(which):
        found = fc.evaluate(PredictionStream(lambda: read(which)))
        if which == 0:
            first_is_done.set()
        return found, torch.get_num_threads()

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(measure, (0, 1)))
    assert [found.values for found, _ in results] == [evaluation.values for evaluation in expected]
    assert [number for _, number in results] == [2, 2]
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as later:
        assert later.submit(torch.get_num_threads).result() == 2
