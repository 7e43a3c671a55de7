"""Runs the code of a page as a reader would, top to bottom in one folder, and compares what it prints."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.cli.tools import ENVIRONMENT, SCRIPT, Answer, call
from tests.docs import exempt
from tests.docs.compare import agrees
from tests.docs.markdown import PYTHON, Block, Output, Page, PageError

# With these in it, a block is one script; else each of its lines is run by itself, so that a failure has a line.
_SCRIPT = re.compile(r"<<|^\s*(for|while|if|function|cd|export|set|source|\.)\b|^\w+=\S*\s*$|\(\)\s*\{", re.MULTILINE)
_SECONDS = 300


@dataclass
class Command:
    """A command of a shell block, and what the block itself says that it prints."""

    text: str
    line: int
    output: Output | None = None


def run_page(page: Page, folder: Path) -> None:
    """Run a page in a folder; a `PageError` says what is not as the page says."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with _chdir(folder), _as_before():
        for block in page.blocks:
            for line, code in block.setup:
                _run_python(page.path, code, line, names)
            run = _python_block if block.language in PYTHON else _shell_block
            run(page.path, block, names)


@contextlib.contextmanager
def _chdir(folder: Path) -> Iterator[None]:
    """contextlib's own came with Python 3.11."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """A page starts from a seed, and leaves neither figures nor another default behind."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")


# ---------------------------------------------------------------------- Python


def _python_block(path: Path, block: Block, names: dict[str, Any]) -> None:
    if block.not_run is not None:
        _require_reason(path, block, block.text.splitlines())
        _compile(path, block.text, block.line)  # at least it is Python
        return
    got = _run_python(path, block.text, block.line, names)
    _require_output(path, block.line, block.output, got)


def _run_python(path: Path, code: str, line: int, names: dict[str, Any]) -> str:
    """Run code in the namespace of its page; a last expression is printed as in a notebook."""
    tree = _compile(path, code, line)
    body = tree.body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(tree, str(path), "exec"), names)
            if last is not None:
                value = eval(compile(last, str(path), "eval"), names)
                if value is not None:
                    print(repr(value))
    except Exception as error:
        at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        problem = "".join(traceback.format_exception_only(error)).strip()
        raise PageError(f"{path}:{at[-1] if at else line}: {problem}") from error
    return out.getvalue()


def _compile(path: Path, code: str, line: int) -> ast.Module:
    """With the page's own line numbers, so that a traceback shows the page."""
    try:
        return ast.parse("\n" * (line - 1) + code, str(path))
    except SyntaxError as error:
        raise PageError(f"{path}:{error.lineno}: no Python: {error.msg}") from error


# ---------------------------------------------------------------------- the shell


def _shell_block(path: Path, block: Block, _: dict[str, Any]) -> None:
    commands = list(commands_of(block))
    if not commands:
        raise PageError(f"{path}:{block.line}: no command in this block")
    if block.not_run is not None:
        _require_reason(path, block, [each.text for each in commands])
    printed = ""
    for command in commands:
        code = block.exit_code if command is commands[-1] else 0
        got = _run_command(path, command, block.not_run, code)
        printed += got
        _require_output(path, command.line, command.output, got)
    if block.not_run is None:
        _require_output(path, block.line, block.output, printed)


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a block: its lines, those that begin with $ where some do, or all of it as one script."""
    lines = block.text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        yield from _console(block, lines)
    elif _SCRIPT.search(block.text):
        yield Command(block.text, block.line)
    else:
        yield from _joined(lines, block.line)


def _joined(lines: list[str], line: int) -> Iterator[Command]:
    """Lines, with those that a backslash continues; without comments."""
    text, start = "", line
    for number, each in enumerate(lines, line):
        start = start if text else number
        text += each
        if text.endswith("\\"):
            text = text[:-1]
        elif _words(text):
            yield Command(_without_comment(text), start)
            text = ""
        else:
            text = ""


def _console(block: Block, lines: list[str]) -> Iterator[Command]:
    """A session: what follows a line with $ is what it prints."""
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        here = [lines[start][2:]]
        while here[-1].endswith("\\"):
            here.append(lines[start + len(here)].removeprefix("> "))
        (command,) = _joined(here, block.line + start)
        printed = lines[start + len(here) : end]
        if any(line.strip() for line in printed):
            command.output = Output("\n".join(printed), block.line + start + len(here), block.within)
        yield command


def _words(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def _without_comment(line: str) -> str:
    """The line without a comment at its end, quotes as they were."""
    for at in [found.start() for found in re.finditer(r"(^|\s)#", line)]:
        with contextlib.suppress(ValueError):
            if shlex.split(line[:at]) == _words(line):
                return line[:at].rstrip()
    return line.rstrip()


def _run_command(path: Path, command: Command, reason: str | None, code: int) -> str:
    """What a command prints; with standard error if it should fail."""
    text: str | None = command.text
    assert text is not None
    if exempt.is_left_out(reason, text):
        assert reason is not None
        text = exempt.instead(reason, text)
        if text is None:
            return ""
    returned, out, err = _in_this_process(text) if _is_plain(text) else _in_bash(text)
    if returned != code:
        problem = f"exit code {returned} instead of {code}"
        raise PageError(f"{path}:{command.line}: {problem}: {text}\n{_indent(out)}\n{_indent(err)}")
    return out + err if code else out


def _is_plain(text: str) -> bool:
    """A call of focalcal or of a module with nothing in it for a shell to do: torch need not be imported again."""
    if not text.startswith(("focalcal ", "python -m ")) or "\n" in text or "$" in text:
        return False
    words = shlex.shlex(text, posix=False, punctuation_chars=True)
    words.whitespace_split = True
    return not any(word[0] not in "'\"" and re.search(r"[|<>;&*?~`\\]", word) for word in words)


# All checks, or those of a paper, take half a minute and are run one by one by lab/tests/claims.
_MANY_CHECKS = re.compile(r"focalcal claims( [a-z]+\d+)?$")
# These give the same everywhere, stand on several pages, and some of them take long: each is run once.
_SAME_EVERYWHERE = re.compile(r"focalcal (claims|lab list|lab table)\b|focalcal lab run .* --dry-run$")


def _in_this_process(text: str) -> tuple[int, str, str]:
    if text.startswith("python -m "):
        answer = _run_module(*shlex.split(text)[2:])
    else:
        answer = _once(text) if _SAME_EVERYWHERE.match(text) else call(*shlex.split(text)[1:])
    return answer.code, answer.out, answer.err


def _run_module(name: str, *arguments: str) -> Answer:
    """`python -m name ...` in this process."""
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = [name, *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            # A test of the same process may have imported the module before; a process of its own would not have.
            warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    finally:
        sys.argv = before
    return Answer(code, out.getvalue(), err.getvalue())


@functools.cache
def _once(text: str) -> Answer:
    with _passed() if _MANY_CHECKS.match(text) else contextlib.nullcontext():
        return call(*shlex.split(text)[1:])


def _passed() -> contextlib.AbstractContextManager[Any]:
    """Every check of a claim passes at once."""
    from focalcal_lab import papers

    return mock.patch.object(papers, "run_check", lambda name: papers.CheckResult(name, True, 0.0, ""))


def _in_bash(text: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env=ENVIRONMENT | {"PATH": f"{SCRIPT.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# ---------------------------------------------------------------------- what is wrong


def _require_reason(path: Path, block: Block, lines: list[str]) -> None:
    assert block.not_run is not None
    wrong = exempt.problem(block.not_run, lines, python=block.language in PYTHON)
    if wrong:
        raise PageError(f"{path}:{block.line}: {wrong}")


def _require_output(path: Path, line: int, expected: Output | None, got: str) -> None:
    if expected is None or agrees(expected.text, got, expected.within):
        return
    raise PageError(
        f"{path}:{expected.line}: the block at line {line} prints something else\n"
        f"  expected:\n{_indent(expected.text)}\n  got:\n{_indent(got)}"
    )


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
