"""The corpus: every case that was found, in a small file with a note, which `make test` tries again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import Case

FOLDER = Path(__file__).resolve().parent / "corpus"


@dataclass(frozen=True)
class Kept:
    """A case of the corpus: what it showed, and the outcome that it must have since; None for any good one."""

    note: str
    outcome: str | None
    case: Case


def corpus_files() -> list[Path]:
    """All files of the corpus; their folder is named after the target."""
    return sorted(FOLDER.glob("*/*.json"))


def read_case(path: Path) -> tuple[str, Kept]:
    """The target that a file belongs to, and the case."""
    return path.parent.name, Kept(**json.loads(path.read_text()))


def write_case(target: str, name: str, kept: Kept, folder: Path = FOLDER) -> Path:
    """Add a case to the corpus."""
    path = folder / target / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(vars(kept), indent=1) + "\n")
    return path


def name_of(case: Case) -> str:
    """A name for a case that nobody has named yet."""
    return "new-" + hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:10]
