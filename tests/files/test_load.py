"""Many at once and many in a row: processes on one directory, evaluations in one process, rows of a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from focalcal.files import PredictionTable, write_predictions
from tests.cli.tools import ENVIRONMENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads memory from /proc"),
]

ONE_THREAD = ENVIRONMENT | {"OMP_NUM_THREADS": "1"}
PATIENCE = 300

# Imports once, then forks; all children wait for the last one to be there. An alarm ends those that hang.
MANY = """
import json, os, signal, sys
import pyarrow.parquet
from focalcal import evaluate
from focalcal.files import PredictionStream

folder, number = sys.argv[1], int(sys.argv[2])
evaluate([[2.0, 0.0], [0.0, 1.0]], [0, 1])
start, begin = os.pipe()
children = {}
for _ in range(number):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(240)
        os.close(begin)
        os.read(start, 1)  # returns when the parent closes the other end
        try:
            answer = json.dumps(evaluate(PredictionStream(folder)).to_dict())
        except BaseException as error:
            answer = repr(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    children[child] = read
os.close(begin)
answers = [os.fdopen(read, "rb").read().decode() for read in children.values()]
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(json.dumps({"answers": sorted(set(answers)), "number": len(answers), "codes": sorted(set(codes))}))
"""

# Memory in MB, open files and threads, before and after.
SOAK = """
import gc, json, os, sys, threading
from pathlib import Path
from focalcal import evaluate
from focalcal.files import PredictionStream, read_predictions

def held():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return memory, len(os.listdir("/proc/self/fd")), threading.active_count()

folder, times = sys.argv[1], int(sys.argv[2])
table = read_predictions(folder)
def once():
    evaluate(PredictionStream(folder))
    evaluate(table.scores, table.labels, kind=table.kind, by=table.labels)

for _ in range(20):
    once()
before = held()
for _ in range(times // 2):
    once()
print(json.dumps([before, held()]))
"""

# The peak of memory in MB after a stream of some rows, and after one of four times as many.
GROWING = """
import json
from pathlib import Path
import numpy as np
from focalcal import TemperatureScaling, evaluate
from focalcal.files import PredictionStream

generator = np.random.default_rng(0)
logits = generator.normal(size=(1 << 15, 10)).astype(np.float32)
labels = generator.integers(0, 10, 1 << 15)

def peak(batches):
    opened = lambda: ((logits, labels) for _ in range(batches))
    evaluate(PredictionStream(opened, memory=16 << 20))
    TemperatureScaling().fit(PredictionStream(opened, memory=16 << 20))
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

print(json.dumps([peak(25), peak(100)]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three small shards."""
    place, generator = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)
    for number in range(3):
        scores = generator.normal(size=(400, 5))
        table = PredictionTable("shard", scores, "logits", labels=generator.integers(0, 5, 400))
        write_predictions(table, place / f"part-{number}.parquet")
    return place


def printed_by(*command):
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ONE_THREAD, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_twenty_processes_evaluate_one_directory_at_once(folder):
    command = (sys.executable, "-m", "focalcal", "evaluate", folder, "--engine", "stream", "--json")
    with ThreadPoolExecutor(2) as threads:
        others = [threads.submit(printed_by, *command) for _ in range(2)]
        found = json.loads(printed_by(sys.executable, "-c", MANY, folder, 18))
        printed = [json.loads(other.result()) for other in others]
    assert (found["number"], found["codes"], len(found["answers"])) == (18, [0], 1)
    evaluation = json.loads(found["answers"][0])
    assert evaluation["n"] == 1200
    for result in printed:
        measures = result["before"]["measures"]
        assert {name: measures[name]["value"] for name in ("nll", "ece", "ada_ece")} == {
            name: evaluation[name] for name in ("nll", "ece", "ada_ece")
        }


def test_two_hundred_evaluations_take_no_more_memory_than_twenty(folder):
    before, after = json.loads(printed_by(sys.executable, "-c", SOAK, folder, 200))
    assert after[0] - before[0] < 16  # MB: less than 100 kB for each
    assert after[1:] == before[1:]


def test_the_memory_of_a_stream_does_not_grow_with_its_rows():
    """At 20 million rows it is measured by `benchmarks/streams.py --memory`; here at 0.8 and 3.3 million."""
    some, more = json.loads(printed_by(sys.executable, "-c", GROWING))
    assert more - some < 16  # MB; a number per row would take 20 with float64
