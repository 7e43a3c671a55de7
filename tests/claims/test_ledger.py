"""Every claim that arithmetic can check has exactly one test, and docs/claims.md lists them all."""

import importlib
import re
from pathlib import Path

import pytest

from focalcal.papers import claims

PAPERS = ("mukhoti2020", "ghosh2022", "charoenphakdee2021", "komisarenko2024")
PAGE = Path(__file__).parents[2] / "docs" / "claims.md"


def tied_tests():
    """Claim id, test name, whether the claim holds as printed and paper of the file, of every tied test."""
    modules = {paper: importlib.import_module(f"tests.claims.test_{paper}") for paper in PAPERS}
    return [
        (test.claim_id, name, test.claim_holds, paper)
        for paper, module in modules.items()
        for name, test in vars(module).items()
        if hasattr(test, "claim_id")
    ]


def table_rows(heading):
    """{claim id: test name} of the table under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w.-]+)` \|(?:.*\|)? `(test_\w+)` \|$", section, flags=re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a claim is listed twice"
    return dict(rows)


def test_every_cpu_exact_claim_has_exactly_one_test_and_no_test_names_an_unknown_claim():
    wanted = sorted(row["id"] for row in claims() if row["checkable_on"] == "cpu-exact")
    assert len(wanted) == 105
    assert sorted(claim_id for claim_id, *_ in tied_tests()) == wanted


def test_every_claim_test_is_collected_from_the_file_of_its_paper():
    for claim_id, name, _, paper in tied_tests():
        assert claim_id.startswith(f"{paper}.")
        assert name.startswith("test_")


@pytest.mark.parametrize(("heading", "holds"), [("Claims that need a correction", False), ("All other claims", True)])
def test_claims_page_lists_every_claim_with_its_test(heading, holds):
    expected = {claim_id: name for claim_id, name, as_printed, _ in tied_tests() if as_printed == holds}
    assert table_rows(heading) == expected
