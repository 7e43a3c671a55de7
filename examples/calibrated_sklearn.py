"""Calibrated probabilities of scikit-learn models: any classifier, any focalcal calibrator.

    python examples/calibrated_sklearn.py

XGBoost and skorch classifiers go where the forest is.
"""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB

import focalcal as fc
from focalcal.integrations.sklearn import CalibratedModel


def main(num_trees: int = 100) -> dict[str, tuple[float, float]]:
    """Print NLL and ECE on held-out digits before and after calibration; the NLLs of each model are returned."""
    images, labels = load_digits(return_X_y=True)
    images, test_images, labels, test_labels = train_test_split(images, labels, test_size=0.5, random_state=0)

    def measure(model: object) -> tuple[float, float]:
        probs = model.predict_proba(test_images)  # type: ignore[attr-defined]
        return fc.metrics.nll(probs, test_labels, kind="probs"), fc.metrics.ece(probs, test_labels, kind="probs")

    found = {}
    for estimator in (RandomForestClassifier(num_trees, random_state=0), GaussianNB(var_smoothing=1e-2)):
        model = CalibratedModel(estimator, fc.TemperatureScaling(), cv=5).fit(images, labels)
        before, after = measure(model.estimator_), measure(model)
        name, temperature = type(estimator).__name__, model.calibrator_.temperature_
        print(f"{name}, temperature {temperature:.2f}")
        print(f"  raw         NLL {before[0]:.3f}  ECE {before[1]:.3f}")
        print(f"  calibrated  NLL {after[0]:.3f}  ECE {after[1]:.3f}")
        found[name] = (float(before[0]), float(after[0]))

    # Which calibrator? Let cross-validation say.
    choices = {"calibrator": [fc.TemperatureScaling(), fc.FocalCalibration()]}
    search = GridSearchCV(CalibratedModel(estimator), choices, scoring="neg_log_loss", cv=3).fit(images, labels)
    print(f"best for {name}: {type(search.best_params_['calibrator']).__name__}, NLL {measure(search)[0]:.3f}")
    return found


if __name__ == "__main__":
    main()
