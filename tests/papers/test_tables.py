from __future__ import annotations

from collections import Counter

from focalcal import papers


def test_every_claim_has_its_columns_and_a_name_of_its_own():
    rows = papers.claims()
    assert len({row["id"] for row in rows}) == len(rows) == 231
    assert Counter(row["checkable_on"] for row in rows) == {"cpu-exact": 105, "gpu-full": 105, "cpu-small-data": 21}
    assert all(row["id"].startswith(row["paper"] + ".") and row["claim"] for row in rows)


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
