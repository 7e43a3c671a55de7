"""The runner of pages, on made pages: it must turn red where a page is wrong."""

from __future__ import annotations

import re

import pytest

from tests.docs.compare import agrees
from tests.docs.files import put_files
from tests.docs.markdown import Block, PageError, read_page
from tests.docs.runner import commands_of, run_page


@pytest.fixture
def run(tmp_path):
    """Runs a page given as text; a tilde stands for a backtick."""

    def run(text):
        path = tmp_path / "page.md"
        path.write_text(text.replace("~", "`"))
        page = read_page(path)
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        put_files(page.files, folder, tmp_path)
        run_page(page, folder)
        return page

    return run


def fails(run, text, match):
    with pytest.raises(PageError, match=match) as found:
        run(text)
    return str(found.value)


# ---------------------------------------------------------------------- what is on a page


def test_a_page_is_its_blocks_with_what_comments_say(run):
    page = run(
        "<!-- slow -->\n\n<!-- setup\nx = 2\n-->\n\n~~~python\nx + 1\n~~~\n\n<!-- numbers within 5 % -->\n"
        "~~~text\n3\n~~~\n\nText.\n\n~~~\nnot an output\n~~~\n\n- item\n\n"
        "  ~~~sh\n  echo hi\n  ~~~\n\n  ~~~\n  hi\n  ~~~\n"
    )
    python, shell = page.blocks
    assert page.slow
    assert (python.language, python.text, python.line, python.setup) == ("python", "x + 1", 8, [(3, "\nx = 2\n")])
    assert (python.output.text, python.output.within) == ("3", 0.05)
    assert (shell.text, shell.output.text) == ("echo hi", "hi")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("~~~\nfocalcal claims\n~~~", r"page.md:2: commands in a block without a language"),
        ("~~~text\n$ ls\n~~~", r"page.md:2: commands in a block without a language"),
        ("~~~shell\nls\n~~~", r"page.md:2: nobody runs shell"),
        ("~~~sh\nls", r"page.md:1: a block without an end"),
        ("<!-- setup\nx = 1", r"page.md:1: a comment without an end"),
        ("<!-- not run: CI runs it -->\n\nText.\n\n~~~sh\nls\n~~~", r"page.md:3: text between a comment"),
        ("<!-- setup x = 1 -->\n\nText.", r"page.md:3: a comment with no block"),
        ("<!-- numbers within five % -->", r"page.md:1: what is numbers within five %"),
        ("<!-- numbers within 5 % -->\n~~~python\n1\n~~~", r"page.md:3: `numbers within` belongs before an output"),
        ("<!-- not run: CI runs it -->\n~~~yaml\na: 1\n~~~", r"page.md:3: this block is not run in any case"),
        ("~~~sh\n# nothing\n~~~", r"page.md:2: no command in this block"),
    ],
)
def test_a_page_that_would_hide_something_is_refused(run, text, match):
    fails(run, text, match)


# ---------------------------------------------------------------------- Python


def test_blocks_share_their_names_and_print_as_a_notebook_does(run, tmp_path):
    run(
        "~~~python\nx = 2\nprint('a')\nx\n~~~\n\n~~~text\na\n2\n~~~\n\n~~~py\nopen('made', 'w').close()\nx + 1\n~~~\n\n"
        "~~~\n3\n~~~\n"
    )
    assert (tmp_path / "folder/made").exists()


def test_a_wrong_output_is_shown_beside_what_came(run):
    text = "# Title\n\n~~~python\nprint('one')\n'two'\n~~~\n\n~~~text\none\n'three'\n~~~\n"
    message = fails(run, text, r"page.md:9: the block at line 4 prints something else")
    assert re.search(r"expected:\n +one\n +'three'\n +got:\n +one\n +'two'", message)


def test_an_error_has_the_line_of_the_page(run):
    fails(run, "Text.\n\n~~~python\nx = 1\ny = 0\n\nx / y\n~~~\n", r"page.md:7: ZeroDivisionError: division by zero")
    fails(run, "<!-- setup\nx = 1\nz\n-->\n~~~python\nx\n~~~\n", r"page.md:3: NameError: name 'z'")
    fails(run, "~~~python\nx = (\n~~~\n", r"page.md:2: no Python")


# ---------------------------------------------------------------------- the shell


def test_a_session_has_its_outputs_in_it(run):
    run("~~~console\n$ echo one | tr o 0\n0ne\n$ echo \\\n> two\ntwo\n$ true\n~~~\n")
    message = fails(run, "~~~console\n$ echo one\none\n$ echo two\n2\n~~~\n", r"page.md:5: the block at line 4")
    assert "two" in message
    loose = "<!-- numbers within 10 % -->\n~~~console\n$ echo {}\n2.0\n~~~\n"
    run(loose.format("2.2"))
    fails(run, loose.format("2.3"), "prints something else")


def test_lines_run_one_by_one_and_a_script_as_a_whole():
    lines = Block("sh", "focalcal claims  # the papers' claims\n\nls \\\n  -l\n# nothing\necho '#'  # a hash", 5)
    assert [(each.text, each.line) for each in commands_of(lines)] == [
        ("focalcal claims", 5),
        ("ls   -l", 7),
        ("echo '#'", 10),
    ]
    script = Block("sh", "for i in 1 2; do\n  echo $i\ndone", 5)
    assert [each.text for each in commands_of(script)] == [script.text]


def test_a_command_that_fails_is_named(run):
    fails(run, "~~~sh\ntrue\nfalse\n~~~\n", r"page.md:3: exit code 1 instead of 0: false")
    fails(run, "~~~sh\nfalse | true\n~~~\n", r"page.md:2: exit code 1 instead of 0")
    fails(
        run, "~~~sh\nfocalcal evaluate none.npz\n~~~\n", r"page.md:2: exit code 2 instead of 0: focalcal(.|\n)*none.npz"
    )


def test_a_failure_that_the_page_means_must_come(run):
    run("<!-- exits with 2 -->\n~~~sh\nfocalcal evaluate none.npz\n~~~\n\n~~~\nfocalcal: none.npz: ...\n~~~\n")
    fails(run, "<!-- exits with 2 -->\n~~~sh\ntrue\n~~~\n", r"page.md:3: exit code 0 instead of 2")


def test_focalcal_reads_the_files_of_the_page(run):
    text = "focalcal evaluate {} --quiet\n~~~\n\n~~~text\noverconfident: on average {} points too sure; ECE ...\n~~~\n"
    run("<!-- files: predictions -->\n~~~sh\n" + text.format("test.npz", "14.6"))
    fails(run, "~~~sh\n" + text.format("test.npz", "24.6"), "prints something else")


# ---------------------------------------------------------------------- what is not run


def test_a_block_that_is_left_out_must_say_why(run):
    block = "~~~sh\nmake nothing-of-this-name\n~~~\n"
    run(f"<!-- not run: CI runs it -->\n{block}\n~~~text\nwhatever\n~~~\n")
    fails(run, block, r"page.md:2: exit code 2 instead of 0: make")
    fails(run, f"<!-- not run: too dear -->\n{block}", r"page.md:3: 'too dear' is no reason")
    fails(run, f"<!-- not run: reads an address -->\n{block}", r"page.md:3: 'reads an address' does not hold")


def test_one_excused_line_does_not_excuse_the_others(run):
    fails(run, "<!-- not run: CI runs it -->\n~~~sh\nmake test\nls\n~~~\n", r"page.md:3: 'CI runs it' does not hold")


@pytest.mark.slow
def test_training_is_at_least_tried(run, tmp_path):
    excused = "<!-- not run: trains for long -->\n~~~sh\nfocalcal lab run {} --method ce\necho > other\n~~~\n"
    run(excused.format("cpu/digits"))
    assert (tmp_path / "folder/other").exists()
    assert not (tmp_path / "folder/runs").exists()
    fails(run, excused.format("cpu/digit"), r"page.md:3: exit code 2 .*--dry-run")


# ---------------------------------------------------------------------- comparing


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("12 rows", "12 rows", True),
        ("12 rows", "13 rows", False),
        ("12 rows", "12.5 rows", False),
        ("12 rows", "123 rows", False),
        ("T = 1.52", "T = 1.53", True),
        ("T = 1.52", "T = 1.54", False),
        ("T = 1.52", "T = 1.5249", True),
        ("-0.31", "0.31", False),
        ("1e-05", "1.5e-05", True),
        ("1e-05", "1e-04", False),
        ("1,234.5", "1,234.6", True),
        ("FLSD-53", "FLSD-54", False),
        ("[1.0, 2.0]", "[1.1, 2.0]", True),
        ("[1.0, 2.0]", "[1.0, 2.2]", False),
        ("a ... c", "a bb c", True),
        ("a ... c", "a bb d", False),
        ("x ... 1.52", "x 7 1.53", True),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("a\n...\nc", "a\nc", True),
        ("a\n...\nc", "a\nb\nd", False),
        ("a\n...", "a\nb\nc", True),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
        ("+-----+\n| 1.5 |", "+------+\n|  1.5 |", True),
        ("| a  b", "| a b", True),
        ("ab", "a b", False),
        ("", "a", False),
    ],
)
def test_outputs_agree_up_to_the_last_place(expected, got, same):
    assert agrees(expected, got) is same


def test_a_share_loosens_all_numbers():
    assert agrees("2.00 s for 100", "2.09 s for 104", within=0.05)
    assert not agrees("2.00 s", "2.11 s", within=0.05)
    assert not agrees("100 rows", "106 rows", within=0.05)
    assert not agrees("2.00 s", "2.00 ms", within=0.05)
