"""What the lab's commands answer with `--json`, and their JSON Schema documents."""

from __future__ import annotations

import sys


def result_types() -> dict[str, type]:
    """The results of the lab's commands by the commands' names."""
    from focalcal_lab.cli.claims import ClaimsResult
    from focalcal_lab.cli.list import LabListResult
    from focalcal_lab.published_table import PublishedTable
    from focalcal_lab.run_results import DryRunResult, RunsResult

    return {
        "claims": ClaimsResult,
        "lab-list": LabListResult,
        "lab-run": RunsResult,
        "lab-dry-run": DryRunResult,
        "lab-table": PublishedTable,
    }


if __name__ == "__main__":
    from focalcal.cli.results import write_schemas

    write_schemas(sys.argv[1], result_types())
