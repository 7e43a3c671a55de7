"""Small texts in every form that the lab reads, and where the real ones lie."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not DATA.is_dir():
        pytest.skip("reference material data/ is not beside the project; this test reads its real texts")
    return DATA


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "ca", "##t", "dog", "sat", "ran", ".", "car"]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory) -> Path:
    """A WordPiece tokenizer of thirteen pieces."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder
