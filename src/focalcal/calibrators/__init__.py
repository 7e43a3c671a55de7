"""Post-hoc calibrators: fitted to held-out logits and labels, they turn logits into log-probabilities one can trust.

The classes of the table in `focalcal.calibrators.table` are names of this package; each is imported when it is first
used.

>>> from focalcal import TemperatureScaling
>>> calibrator = TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1])
>>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
[0.6667, 0.3333]
"""

import lazy_loader

from focalcal.calibrators.table import calibrator_entries

_names = {
    "base": ["Calibrator", "FitReport"],
    "compose": ["Compose"],
    "files": ["load_calibrator"],
    "table": ["calibrator_names", "make_calibrator", "register_calibrator"],
}
for _entry in calibrator_entries():
    _names.setdefault(_entry.location.removeprefix(f"{__name__}.").partition(":")[0], []).append(_entry.class_name)

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_names)
