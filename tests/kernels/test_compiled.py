"""The choice of kernels, layouts and threads; Ctrl-C, forks and two calls at once in a process that uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch

import focalcal
from focalcal.errors import FocalCalError
from focalcal.kernels import compiled
from focalcal.kernels.choice import compiled_kernels, kernels_in_use

try:
    from focalcal import _kernels
except ImportError:
    _kernels = None

needs_compiled = pytest.mark.skipif(_kernels is None, reason="focalcal was installed without its compiled kernels")
not_windows = pytest.mark.skipif(os.name == "nt", reason="the signals and forks of POSIX")

# ---------------------------------------------------------------------- the choice


@pytest.fixture
def choose(monkeypatch):
    """Choose kernels as a new process with this value of FOCALCAL_KERNELS would; afterwards all is as it was."""

    def new_process(value: str | None) -> str:
        monkeypatch.delenv("FOCALCAL_KERNELS", raising=False)
        if value is not None:
            monkeypatch.setenv("FOCALCAL_KERNELS", value)
        compiled_kernels.cache_clear()
        return kernels_in_use()

    before = compiled_kernels()
    held = before and before.in_use()
    yield new_process
    compiled_kernels.cache_clear()
    if before:
        before.choose(held)


@pytest.mark.parametrize("value", ["torch", "TORCH", "  torch "])
def test_torch_stands_for_the_definitions(choose, value):
    assert choose(value) == "torch"
    assert compiled_kernels() is None
    assert compiled.kernels_for(torch.zeros(2, 3)) is None


@needs_compiled
def test_every_instruction_set_of_the_machine_can_be_chosen_by_name(choose):
    choose("compiled")
    names = compiled_kernels().available()
    assert names[0] == "baseline"
    for name in names:
        assert choose(name) == choose(name.upper()) == f"compiled ({name})"


@needs_compiled
@pytest.mark.parametrize("value", [None, "", " ", "compiled"])
def test_without_a_name_the_fastest_set_is_taken(value):
    environment = {name: each for name, each in os.environ.items() if name != "FOCALCAL_KERNELS"}
    code = "from focalcal.kernels.choice import *; print(kernels_in_use(), compiled_kernels().available()[-1])"
    given = environment if value is None else environment | {"FOCALCAL_KERNELS": value}
    said = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True).stdout
    chosen, fastest = said.rsplit(maxsplit=1)
    assert chosen == f"compiled ({fastest})"


@needs_compiled
def test_a_name_that_is_not_known_is_an_error_with_the_names_that_are(choose):
    with pytest.raises(FocalCalError) as error:
        choose("sse9")
    names = ", ".join(["torch", "compiled", *_kernels.available()])
    assert str(error.value) == f"FOCALCAL_KERNELS=sse9: must be one of {names} on this machine."


def test_without_the_extension_torch_is_used_and_asking_for_more_is_an_error(choose, monkeypatch):
    monkeypatch.delattr(focalcal, "_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "focalcal._kernels", None)
    assert choose(None) == choose("torch") == "torch"
    for name in ("compiled", "avx2"):
        with pytest.raises(FocalCalError, match=f"FOCALCAL_KERNELS={name}: this installation has no compiled kernels"):
            choose(name)
    with pytest.raises(FocalCalError, match=r"Install focalcal where a C\+\+ compiler is at hand\.$"):
        choose("compiled")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_scores_of_four_types_on_the_cpu_can_be_read(dtype):
    assert compiled.kernels_for(torch.zeros(2, 3, dtype=dtype)) is compiled_kernels()


def test_other_scores_are_left_to_torch():
    assert compiled.kernels_for(torch.zeros(2, 3, dtype=torch.int32)) is None
    assert compiled.kernels_for(torch.zeros(2, 3, dtype=torch.complex64)) is None
    assert compiled.kernels_for(torch.zeros(2, 3, device="meta")) is None
    seen = []
    torch.func.vmap(lambda row: seen.append(compiled.kernels_for(row[None])) or row)(torch.zeros(2, 3))
    assert seen == [None]


# ---------------------------------------------------------------------- layouts and threads

BASE = torch.arange(60.0).reshape(6, 10)
LAYOUTS = {
    "adjacent": (BASE, True),
    "some rows": (BASE[::2], True),
    "later rows": (BASE[3:], True),
    "some classes": (BASE[:, 2:7], True),
    "every other class": (BASE[:, ::2], False),
    "turned": (BASE.t(), False),
    "one row for all": (BASE[:1].expand(4, 10), True),
    "one class for all": (BASE[:, :1].expand(6, 4), False),
    "one number for all": (BASE[:1, :1].expand(4, 3), False),
    "rows that overlap": (BASE.reshape(-1).unfold(0, 10, 3), False),
    "one class": (BASE[:, 3:4], True),
    "one class, turned": (BASE[3:4].t(), True),
    "one row": (BASE[2:3], True),
    "one row, turned": (BASE[:, 2:3].t(), False),
    "no rows": (BASE[:0], True),
    "backwards": (BASE.flip(1), True),
    "a part of three dimensions": (torch.arange(120.0).reshape(2, 6, 10)[1], True),
    "images": (torch.arange(120.0).reshape(2, 6, 10).permute(0, 2, 1).reshape(20, 6), True),
    "imaginary parts": (torch.complex(BASE, 1 + BASE).conj().imag, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_classes_are_made_adjacent_and_copied_only_where_they_are_not(name):
    scores, kept = LAYOUTS[name]
    found = compiled.with_adjacent_classes(scores)
    assert torch.equal(found, scores)
    assert (found.data_ptr() == scores.data_ptr()) == kept
    address, kind, rows, classes, step = compiled.row_layout(found)
    assert (address, kind, (rows, classes)) == (found.data_ptr(), 0, tuple(scores.shape))
    assert step == 0 or step >= classes or rows <= 1
    assert not found.is_neg()  # the pointer leads to what is there


@needs_compiled
@pytest.mark.parametrize("name", [name for name, (scores, _) in LAYOUTS.items() if len(scores)])
def test_the_kernels_read_every_layout(name):
    scores = LAYOUTS[name][0]
    adjacent = compiled.with_adjacent_classes(scores)  # held by a name until the kernel is done with its memory
    found = _kernels.extremes(*compiled.row_layout(adjacent), 1)
    assert found == (scores.min(), scores.max(), False)


def test_classes_that_are_not_adjacent_have_no_layout():
    with pytest.raises(AssertionError, match="adjacent"):
        compiled.row_layout(BASE.t())


def test_threads_are_one_for_little_work_and_at_most_those_of_torch(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    sizes = [0, 1, 1 << 16, (2 << 16) - 1, 2 << 16, 3 << 16, 100 << 16, 1 << 60]
    assert [compiled.threads_for(size) for size in sizes] == [1, 1, 1, 1, 2, 3, 3, 3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert compiled.threads_for(1 << 60) == 1


# ---------------------------------------------------------------------- the process

# Without torch, which takes seconds to import: the kernels need an address and a layout only.
CALL = """
import os
import numpy as np
from focalcal import _kernels

FLOAT32, ROWS, CLASSES = 0, 1 << 14, 64
scores = np.arange(ROWS * CLASSES, dtype=np.float32)

def is_right(threads):
    return _kernels.extremes(scores.ctypes.data, FLOAT32, ROWS, CLASSES, CLASSES, threads) == (0, scores.max(), False)
"""

# A row that stands for ten thousand million: minutes of work, and no memory.
LONG = """
print("ready", flush=True)
try:
    _kernels.extremes(scores.ctypes.data, FLOAT32, 10**10, CLASSES, 0, THREADS)
except KeyboardInterrupt:
    print("stopped", is_right(THREADS), flush=True)
    raise
"""


@needs_compiled
@not_windows
@pytest.mark.parametrize("threads", [1, 4])
def test_ctrl_c_ends_a_long_call_and_the_pool_works_on(threads):
    code = CALL + LONG.replace("THREADS", str(threads))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell that starts the tests in the background has told its children to ignore Ctrl-C.
    restore = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = subprocess.Popen([sys.executable, "-c", restore + code], text=True, **pipes)
    try:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)  # it has begun, and is not done
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert out == "stopped True\n"
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT


FORK = """
assert is_right(4)
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if is_right(4) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert is_right(4)
print("done")
"""


@needs_compiled
@not_windows
def test_a_forked_child_has_a_pool_of_its_own():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CALL + FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr


@needs_compiled
def test_two_python_threads_may_call_at_once():
    wrong = []

    def call_often(start: float) -> None:
        scores = start + torch.arange(1 << 20).float().reshape(-1, 64)
        layout = compiled.row_layout(scores)
        expected = (start, start + (1 << 20) - 1, False)
        wrong.extend(found for _ in range(50) if (found := _kernels.extremes(*layout, 4)) != expected)

    callers = [threading.Thread(target=call_often, args=(start,)) for start in (0.0, 7.0)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


@needs_compiled
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_the_number_of_threads_changes_nothing(threads):
    scores = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    scores[-1, -1] = float("nan")
    layout = compiled.row_layout(scores)
    assert _kernels.extremes(*layout, threads) == _kernels.extremes(*layout, 1)
