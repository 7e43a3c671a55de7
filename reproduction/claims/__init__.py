"""The rules that decide claims of the papers from the recorded results, one module for each paper."""

from reproduction.claims import charoenphakdee2021, ghosh2022, komisarenko2024, mukhoti2020
from reproduction.claims.rules import RULES, ClaimOutcome, ClaimRule

__all__ = ["RULES", "ClaimOutcome", "ClaimRule", "charoenphakdee2021", "ghosh2022", "komisarenko2024", "mukhoti2020"]
