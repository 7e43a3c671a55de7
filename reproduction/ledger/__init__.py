"""The ledger of the papers' claims: every one of them, where it stands, and the test or result file behind it.

`ledger()` is made by code from the checks of `focalcal_lab.papers`, the verdicts of `reproduction.claims` on the
recorded results, and small tables for what neither covers. `python -m reproduction.ledger docs/claims.md` writes its
page, and `focalcal claims` prints it.
"""

from reproduction.ledger.build import build, decided_by, entry, ledger
from reproduction.ledger.entry import STANDINGS, Entry, Standing

__all__ = ["STANDINGS", "Entry", "Standing", "build", "decided_by", "entry", "ledger"]
