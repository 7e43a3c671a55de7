"""Vector and matrix scaling of four real networks against Newton's method elsewhere, to a gradient of 1e-15.

Published code stops above our NLL, by the 2e-9 to 8e-6 that its optimiser leaves.
"""

from __future__ import annotations

import numpy as np
import pytest

from focalcal import metrics as m
from focalcal.calibrators import MatrixScaling, VectorScaling
from tests.golden.test_losses import MODELS

pytestmark = pytest.mark.slow

HALF = 5000


@pytest.fixture(scope="module")
def halves(golden_predictions):
    def read(model):
        probs, labels = golden_predictions(model)
        logits = np.log(np.maximum(probs, 1e-38))
        return (logits[:HALF], labels[:HALF]), (logits[HALF:], labels[HALF:])

    return read


def same_scores(calibrator, evaluation, expected):
    logits, labels = evaluation
    log_probs = calibrator(logits)
    for name in ("nll", "brier", "accuracy"):
        value = float(getattr(m, name)(log_probs, labels, kind="log_probs"))
        assert value == pytest.approx(expected[name], abs=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_vector_scaling_is_the_exact_minimum(model, golden, halves):
    calibration, evaluation = halves(model)
    entries = golden("calibrators.json")["models"][model]["vector_scaling"]
    expected = entries[0]["definition_value"]
    calibrator = VectorScaling().fit(*calibration)
    assert calibrator.report_.converged
    assert calibrator.report_.after == pytest.approx(expected["nll_calibration"], abs=1e-13)
    np.testing.assert_allclose(calibrator.weight_, expected["weights"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(calibrator.bias_, expected["bias_centred"], rtol=0, atol=1e-9)
    same_scores(calibrator, evaluation, expected["evaluation"])
    for entry in entries:
        assert calibrator.report_.after < entry["value"]["nll_calibration"]


@pytest.mark.parametrize("model", MODELS)
def test_matrix_scaling_is_the_exact_minimum(model, golden, halves):
    calibration, evaluation = halves(model)
    (entry,) = golden("calibrators.json")["models"][model]["matrix_scaling"]
    calibrator = MatrixScaling(off_diagonal=0.0, intercept=0.0).fit(*calibration)
    assert calibrator.report_.converged
    assert calibrator.report_.after == pytest.approx(entry["definition_value"]["nll_calibration"], abs=1e-13)
    assert calibrator.report_.after < entry["value"]["nll_calibration"]
    same_scores(calibrator, evaluation, entry["definition_value"]["evaluation"])


@pytest.mark.parametrize("model", MODELS)
def test_the_usual_penalty_costs_little_and_generalises(model, halves):
    (logits, labels), (others, truth) = halves(model)
    free, usual = (make.fit(logits, labels) for make in (MatrixScaling(0.0, 0.0), MatrixScaling()))
    assert free.report_.after < usual.report_.after < free.report_.after + 0.005
    assert m.nll(usual(others), truth, kind="log_probs") < m.nll(free(others), truth, kind="log_probs")
