"""All benchmarks one after the other, then the pages made from what they wrote.

python benchmarks/run.py            # what `make bench` calls
python benchmarks/run.py --quick    # seconds each, writes nothing
"""

from __future__ import annotations

import subprocess
import sys
import time

import speed
from harness import PEERS, QUICK, peer_versions
from post_hoc import DATA


def main() -> None:
    """Run every script in a process of its own; what fails is named at the end."""
    installed = peer_versions()
    for peer in PEERS:
        print(f"{peer} {installed.get(peer, 'is not installed and is left out')}")
    failed = []
    for name in (*speed.SCRIPTS, *speed.MORE_SCRIPTS, "post_hoc"):
        if name == "post_hoc" and not DATA.exists():
            print("\npost_hoc: the predictions of real networks are not beside the project; left out")
            continue
        print(f"\n=== {name}", flush=True)
        start = time.perf_counter()
        script = speed.ROOT / "benchmarks" / f"{name}.py"
        if subprocess.run([sys.executable, str(script), *(["--quick"] * QUICK)]).returncode:
            failed.append(name)
        print(f"=== {name} took {time.perf_counter() - start:.0f} s", flush=True)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. The pages were left as they are.")
    if not QUICK:
        subprocess.run([sys.executable, str(speed.ROOT / "benchmarks" / "pages.py")], check=True)


if __name__ == "__main__":
    main()
