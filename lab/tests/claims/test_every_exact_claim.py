"""Every claim that arithmetic can check has exactly one check."""

from __future__ import annotations

from focalcal_lab import papers
from focalcal_lab.papers import exact


def test_every_cpu_exact_claim_has_exactly_one_check_and_no_check_names_an_unknown_claim():
    wanted = {row["id"] for row in papers.claims() if row["checkable_on"] == "cpu-exact"}
    assert len(wanted) == 105
    assert set(exact.TIED) == wanted
    assert [check.id for check in papers.checks()] == [row["id"] for row in papers.claims() if row["id"] in wanted]
    assert len({check.name for check in papers.checks()}) == 105


def test_25_claims_need_a_correction_and_each_says_what_is_printed_and_what_is_true():
    corrected = [check for check in papers.checks() if not check.holds]
    assert len(corrected) == 25
    assert all(check.printed and check.true for check in corrected)
    assert not any(check.printed or check.true for check in papers.checks() if check.holds)


def test_every_check_is_in_the_file_of_its_paper_and_says_what_it_does():
    for check in papers.checks():
        assert exact.TIED[check.id].function is getattr(getattr(exact, check.paper), check.name)
        assert check.id.startswith(f"{check.paper}.")
        assert len(check.checked) > 30
