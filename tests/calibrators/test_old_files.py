"""Files that version 0.1.0.dev0 wrote, in schema 1, load and give the probabilities that it gave."""

import json
from pathlib import Path

import numpy as np
import pytest

import focalcal as fc

FOLDER = Path(__file__).parent / "written_by_0_1_0_dev0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_the_first_version_gives_the_same_probabilities(name):
    expected = EXPECTED[name]
    loaded = fc.load_calibrator(FOLDER / name)
    assert type(loaded).__name__ == expected["class"]
    np.testing.assert_allclose(loaded.predict_probs(np.array(expected["logits"])), expected["probs"], rtol=1e-12)
    assert loaded.report_.to_dict() == expected["report"]


def test_every_file_and_all_fifteen_calibrators_of_that_version_are_read():
    assert {path.name for path in FOLDER.iterdir()} - {"expected.json"} == set(EXPECTED)
    assert len({each["class"] for each in EXPECTED.values()}) == 15
