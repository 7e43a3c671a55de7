"""The table of calibrators: names, what it says of each, and calibrators of one's own."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.calibrators import table
from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.table import calibrator_entries, calibrator_label, find_calibrator, make_calibrator
from focalcal.errors import InputError
from focalcal.select.methods import suitable_methods
from tests.calibrators.cases import draw

ENTRIES = {entry.name: entry for entry in calibrator_entries() if entry.location.startswith("focalcal.")}


def test_the_table_has_every_public_calibrator():
    classes = {getattr(fc.calibrators, name) for name in fc.calibrators.__all__}
    public = {each.__name__ for each in classes if isinstance(each, type) and issubclass(each, Calibrator)}
    assert {entry.class_name for entry in ENTRIES.values()} == public - {"Calibrator", "Compose"}


@pytest.mark.parametrize("name", ENTRIES)
def test_what_the_table_says_is_so(name, tmp_path):
    entry = ENTRIES[name]
    assert entry.load() is getattr(fc.calibrators, entry.class_name)
    assert entry.two_classes == entry.load().BINARY
    logits, labels = draw(classes=2 if entry.two_classes else 4)
    calibrator = make_calibrator(name).fit(logits, labels)
    path = tmp_path / f"calibrator{entry.suffix}"
    calibrator.save(path)
    assert type(fc.load_calibrator(path)) is entry.load()
    probs = calibrator.predict_probs(logits)
    order = np.argsort(logits, 1, kind="stable")
    keeps_ranking = bool((np.diff(np.take_along_axis(probs, order, 1), axis=1) >= 0).all())
    assert keeps_ranking or entry.preserves != "ranking"
    assert bool((probs.argmax(1) == logits.argmax(1)).all()) or entry.preserves == "nothing"


@pytest.mark.parametrize("name", ENTRIES)
def test_all_names_of_a_calibrator_mean_it(name):
    entry = ENTRIES[name]
    for text in (name, name.upper(), f" {name} ", name.replace("-", "_"), entry.class_name, *entry.aliases):
        assert find_calibrator(text) is entry
    assert calibrator_label(make_calibrator(name)) == name


def test_the_settings_that_are_tried_have_labels_that_make_them_again():
    templates, _ = suitable_methods(num_classes=2, num_rows=1000)
    for label, calibrator in templates.items():
        made = make_calibrator(label)
        assert (type(made), made.settings()) == (type(calibrator), calibrator.settings())
    assert list(templates)[:5] == [
        "temperature",
        "temperature:ada_ece",
        "focal",
        "focal-temperature:nll:continuous",
        "focal-temperature",
    ]


def test_labels_name_the_settings_that_are_not_defaults():
    made = fc.FocalTemperatureScaling("brier", "line", num_bins=10)
    assert calibrator_label(made) == "focal-temperature:brier:line(num_bins=10)"
    assert calibrator_label(fc.Compose(fc.FocalCalibration(1.0), made)) == (
        "Compose(focal(gamma=1.0), focal-temperature:brier:line(num_bins=10))"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tempered", "method: must be one of identity, temperature, .*bbq; got 'tempered'"),
        ("temperature:nll:line:more", "must be NAME, NAME:CRITERION or NAME:CRITERION:SEARCH"),
        ("platt:nll", "criterion: is not an option of method platt"),
        ("temperature:nll:line", "search: is not an option of method temperature"),
        ("temperature:nlll", "criterion: must be one of nll"),
    ],
)
def test_what_is_no_calibrator_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        make_calibrator(text)


def test_names_are_known_without_a_tensor_library():
    code = "import sys, focalcal.calibrators.table as t; t.calibrator_names(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------- calibrators of one's own


class Powered(Calibrator):
    """Logits times a number that is the accuracy of the fit, for want of a better idea."""

    FITTED = ("factor_",)

    def __init__(self, floor: float = 0.0) -> None:
        super().__init__()
        self.floor, self.criterion = floor, fc.Identity().criterion

    def settings(self):
        return {"floor": self.floor}

    def _fit(self, data):
        right = data.mean(lambda block: block.mean_sum((block.logits.argmax(1) == block.labels).double()))
        self._set(factor_=max(right, self.floor))

    def _log_probs(self, logits):
        return torch.log_softmax(logits * self._value("factor_").to(logits), 1)


@pytest.fixture
def clean_table(monkeypatch):
    monkeypatch.setattr(table, "_ENTRIES", dict(table._ENTRIES))
    monkeypatch.setattr(table, "_REGISTERED", dict(table._REGISTERED))


def register():
    fc.calibrators.register_calibrator(Powered, "powered", aliases=("power",), preserves="ranking")


@pytest.mark.usefixtures("clean_table")
def test_a_registered_calibrator_is_named_selected_and_saved_like_any_other(tmp_path):
    register()
    register()  # a module may be loaded again
    logits, labels = draw()
    selection = fc.select_calibrator(logits, labels, methods=["Power", Powered(0.5)], nested=False, num_folds=2)
    assert {row.name for row in selection.table} == {"identity", "powered", "powered(floor=0.5)"}
    assert "powered" in suitable_methods(3, 100)[0]
    fitted = fc.Compose(fc.TemperatureScaling(), Powered(0.25)).fit(logits, labels)
    fitted.save(tmp_path / "both.json")
    loaded = fc.load_calibrator(tmp_path / "both.json")
    assert loaded.parts[1].settings() == {"floor": 0.25}
    np.testing.assert_array_equal(loaded.predict_probs(logits), fitted.predict_probs(logits))


@pytest.mark.usefixtures("clean_table")
def test_an_installed_distribution_registers_its_calibrators_when_one_is_asked_for(monkeypatch):
    class Plugin:
        load = staticmethod(register)

    monkeypatch.setattr(table, "entry_points", lambda group: [Plugin] if group == "focalcal.calibrators" else [])
    assert "powered" not in fc.calibrators.calibrator_names()
    assert type(make_calibrator("powered")) is Powered


@pytest.mark.usefixtures("clean_table")
def test_a_name_stands_for_one_calibrator():
    with pytest.raises(InputError, match="'ets' already stands for EnsembleTemperatureScaling"):
        fc.calibrators.register_calibrator(Powered, "powered", aliases=("ets",))
    with pytest.raises(InputError, match="must be lower case"):
        fc.calibrators.register_calibrator(Powered, "My:Own")
    assert "powered" not in fc.calibrators.calibrator_names()
