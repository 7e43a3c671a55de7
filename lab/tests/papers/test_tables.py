from __future__ import annotations

import re
from collections import Counter

import pytest

from focalcal.errors import InputError
from focalcal_lab import papers


def test_every_claim_has_its_columns_and_a_name_of_its_own():
    rows = papers.claims()
    assert len({row["id"] for row in rows}) == len(rows) == 231
    assert Counter(row["checkable_on"] for row in rows) == {"cpu-exact": 105, "gpu-full": 105, "cpu-small-data": 21}
    assert all(row["id"].startswith(row["paper"] + ".") and row["claim"] for row in rows)


def test_claims_are_chosen_by_id_and_by_paper_each_once_and_in_order():
    ids = [row["id"] for row in papers.claims("komisarenko2024.prop5", "mukhoti2020.eq1", "mukhoti2020.eq1")]
    assert ids == ["mukhoti2020.eq1", "komisarenko2024.prop5"]
    of_paper = papers.claims("mukhoti2020", "mukhoti2020.eq1")
    assert of_paper == [row for row in papers.claims() if row["paper"] == "mukhoti2020"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("mukoti2020", "mukhoti2020"),
        ("prop5", "komisarenko2024.prop5, komisarenko2024.prop5.lemma"),
        ("MUKHOTI2020.EQ1", "mukhoti2020.eq1"),
        ("", "--list"),
        ("zzzzzz", "--list"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_ones(name, nearest):
    with pytest.raises(InputError, match=re.escape(repr(name))) as refusal:
        papers.claims(name)
    assert nearest in str(refusal.value)


def test_every_published_number_is_a_number():
    rows = papers.published_results()
    assert len(rows) == 1976
    assert all(float(row["value"]) >= 0 for row in rows)
    assert {row["paper"] for row in rows} == {"mukhoti2020", "ghosh2022", "komisarenko2024"}


def test_a_known_row_is_found():
    """FLSD-53 on CIFAR-10, ResNet-50: 1.55 % before, 0.95 % after T = 1.1 (mukhoti2020, Table 1)."""
    rows = [
        row
        for row in papers.published_results()
        if (row["paper"], row["table"], row["dataset"], row["model"], row["method"])
        == ("mukhoti2020", "1", "cifar10", "resnet50", "flsd-53")
    ]
    assert {(row["phase"], float(row["value"])) for row in rows} == {("pre", 1.55), ("post", 0.95)}
