"""The `focalcal` command: one file per command, no mathematics, and nothing heavy imported before it is needed.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input; 130 after Ctrl-C and 143 after SIGTERM, as shells expect.
"""

import sys  # and nothing more: what `main` imports can be interrupted without a traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from focalcal.cli.application import app as app


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from focalcal.cli.application import app

    return app


def main() -> None:
    """The console script."""
    try:
        from focalcal.cli.process import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
