"""Build the contents of a report from predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.focal import FocalTemperatureScaling
from focalcal.calibrators.temperature import TemperatureScaling
from focalcal.core.checks import require
from focalcal.errors import FocalCalError
from focalcal.files.prediction_table import PredictionTable
from focalcal.metrics.intervals import usual_resamples
from focalcal.report import classes, explorer
from focalcal.report.contents import Contents, Dynamics, Explorer, Landscape, Model, ModelVersion
from focalcal.report.criterion_landscape import landscapes
from focalcal.report.duplicates import count_duplicates
from focalcal.report.measure_version import calibrated, fit_warnings, measure_version, settings_of
from focalcal.report.verdict import MeasureSettings

Progress: TypeAlias = Callable[[int, int, str], object]

TITLE = "Calibration report"
_NAMED_MISSING = 20
# What the page's data may take beside its scripts, in bytes: six megabytes in all. Figures and tables come first, and
# the samples of the explorer share what is left, but each has its least: from twelve models on a report is larger.
_DATA = 1_080_000
_OF_VERSION, _OF_MODEL, _OF_CLASS = 22_000, 25_000, 62
_LEAST_SAMPLE = 6_000


@dataclass(frozen=True, eq=False)
class ModelInput:
    """The predictions of one model, and what is done with them.

    `score` are the labelled rows that everything is measured on, `fit` those that calibrators are fitted to: with None
    nothing is fitted, and only the given `calibrators` are shown. `split` says in words which rows are which;
    `same_data` that both are the same ones.
    """

    name: str
    score: PredictionTable
    fit: PredictionTable | None
    split: str
    same_data: bool = False
    calibrators: Mapping[str, Calibrator] = field(default_factory=dict)


def default_methods(num_bins: int = 15) -> dict[str, Calibrator]:
    """What a report fits unless told otherwise: a temperature by NLL, and a focal temperature by AdaECE.

    >>> list(default_methods())
    ['temperature', 'focal-temperature']
    """
    return {
        "temperature": TemperatureScaling("nll"),
        "focal-temperature": FocalTemperatureScaling("ada_ece", num_bins=num_bins),
    }


def build_contents(
    models: Sequence[ModelInput],
    *,
    methods: Mapping[str, Calibrator] | None = None,
    title: str = TITLE,
    num_bins: int = 15,
    level: float = 0.95,
    num_resamples: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Contents:
    """Measure models and put together what the report shows.

    where `methods` are unfitted calibrators by name, `default_methods()` if None; copies of them are fitted to the
    `fit` rows of each model. What fails is left out, and a warning of the model as it is says so.
    `progress(done, total, what)` is called before each step and at the end. The same input and seed give the same
    contents.

    >>> logits = np.random.default_rng(0).normal(size=(200, 3))
    >>> table = PredictionTable("t", logits, "logits", labels=(logits + 1).argmax(1))
    >>> contents = build_contents([ModelInput("a", table.take(np.arange(100)), None, "all")], num_resamples=100)
    >>> contents.models[0].versions[0].name
    'as it is'
    """
    require(len(models) >= 1, "models", "must be at least one", 0)
    resamples = num_resamples or usual_resamples(max(model.score.num_rows for model in models))
    how = MeasureSettings(num_bins, level, resamples, seed)
    templates = default_methods(num_bins) if methods is None else methods
    steps = _Steps(models, len(templates), progress)
    page = _Page.of(models, len(templates))
    built = [_Builder(model, templates, how, steps).model(page) for model in models]
    steps.finish()
    return Contents(title=title, version=_version(), level=level, num_bins=num_bins, seed=seed, models=built)


def _version() -> str:
    import focalcal

    return focalcal.__version__


@dataclass(frozen=True)
class _Page:
    """What each model may take of the page: classes that are listed, and bytes of the explorer's sample."""

    classes: int
    budget: int

    @staticmethod
    def of(models: Sequence[ModelInput], num_methods: int) -> _Page:
        listed_classes, taken = max(100, classes.MOST_CLASSES // len(models)), 0
        for model in models:
            versions = 1 + len(model.calibrators) + (0 if model.fit is None else num_methods)
            listed = min(listed_classes, model.score.num_classes)
            letters = sum(len(name) for name in model.score.class_names or ()) / model.score.num_classes
            taken += versions * _OF_VERSION + _OF_MODEL + round(listed * (_OF_CLASS + letters))
        left = (_DATA - taken) * 3 // 4  # base64 makes four bytes of three
        return _Page(listed_classes, max(min(left, explorer.BUDGET) // len(models), _LEAST_SAMPLE))


class _Steps:
    """Counts the steps of all models."""

    def __init__(self, models: Sequence[ModelInput], num_methods: int, progress: Progress | None) -> None:
        self._progress = progress or (lambda done, total, what: None)
        self._done, self._several = 0, len(models) > 1
        # The model as it is, each calibrator, and the page's sample; the landscapes where something is fitted.
        fits = [0 if model.fit is None else num_methods + 1 for model in models]
        self._total = sum(2 + len(model.calibrators) + fit for model, fit in zip(models, fits, strict=True))

    def start(self, model: str, what: str) -> None:
        """Say what comes next."""
        self._progress(self._done, self._total, f"{model}: {what}" if self._several else what)
        self._done += 1

    def finish(self) -> None:
        """Say that everything is done."""
        self._progress(self._total, self._total, "done")


class _Builder:
    """Puts together what the report says about one model."""

    def __init__(
        self, given: ModelInput, templates: Mapping[str, Calibrator], how: MeasureSettings, steps: _Steps
    ) -> None:
        self.given, self.how = given, how
        self._templates: Mapping[str, Calibrator] = {} if given.fit is None else templates
        self._start = lambda what: steps.start(given.name, what)
        self._fitted: list[Calibrator] = []
        self._failures: list[str] = []
        classes.labels_of(given.score)
        if given.fit is not None:
            classes.labels_of(given.fit)
            same = given.fit.num_classes == given.score.num_classes
            rule = f"must have the classes of the measured rows, {given.score.num_classes}"
            require(same, given.fit.name, rule, given.fit.num_classes)

    def model(self, page: _Page) -> Model:
        """The whole model."""
        given, score, how = self.given, self.given.score, self.how
        names = classes.class_names(score)
        self._start("measuring the model as it is")
        plain, rows = measure_version(score, how, warnings=self._notes())
        decisions = classes.Decisions.of(score)
        missing = classes.missing_classes(decisions, names)
        worst_classes = classes.class_table(score, decisions, names, how.num_bins, page.classes)
        versions, maps = self._versions(), self._landscapes()
        plain = replace(plain, warnings=[*plain.warnings, *self._failures])
        return Model(
            name=given.name,
            num_rows=rows.num_rows,
            num_fit_rows=0 if given.fit is None else given.fit.num_rows,
            num_classes=score.num_classes,
            kind=score.kind,
            weighted=score.weights is not None,
            split=given.split,
            same_data=given.same_data,
            missing_classes=missing[:_NAMED_MISSING],
            num_missing=len(missing),
            num_duplicates=count_duplicates(score.scores),
            verdict=plain.verdict,
            versions=[plain, *versions],
            classes=worst_classes,
            confusions=classes.confusions(decisions, rows.column("confidence"), names),
            landscapes=maps,
            explorer=self._explorer(maps, page.budget),
            dynamics=_dynamics(score),
        )

    def _notes(self) -> list[str]:
        if self.given.score.weights is None:
            return []
        return ["Rows are weighted: the bands of the diagrams count rows, not their weights."]

    def _versions(self) -> list[ModelVersion]:
        """The given calibrators and the fitted methods, without those that fail."""
        versions = []
        for name, calibrator in [*self.given.calibrators.items(), *self._templates.items()]:
            fits = name in self._templates and calibrator is self._templates[name]
            self._start(f"{name}: fitting and measuring" if fits else f"{name}: measuring")
            try:
                ready = self._fit(calibrator) if fits else calibrator
                table = calibrated(self.given.score, ready)
                settings, notes = settings_of(ready), [*self._notes(), *fit_warnings(ready)]
                version, _ = measure_version(table, self.how, name=name, settings=settings, warnings=notes)
            except Exception as error:  # one method that cannot cope must not cost the others
                self._failures.append(f"{name} is left out: {error}")
                continue
            self._fitted.append(ready)
            versions.append(version)
        return versions

    def _fit(self, template: Calibrator) -> Calibrator:
        table = self.given.fit
        assert table is not None
        labels = classes.labels_of(table)
        return deepcopy(template).fit(table.scores, labels, kind=table.kind, sample_weight=table.weights)

    def _landscapes(self) -> list[Landscape]:
        if self.given.fit is None:
            return []
        self._start("mapping the criteria")
        try:
            return landscapes(self.given.fit, fitted=self._fitted, num_bins=self.how.num_bins, seed=self.how.seed)
        except FocalCalError as error:  # too few rows to fit anything to
            self._failures.append(f"The criterion landscape is left out: {error}")
            return []

    def _explorer(self, maps: list[Landscape], budget: int) -> Explorer | None:
        """A sample of the scored rows; None with so many classes that the page could not count them."""
        self._start("sampling rows for the page")
        if self.given.score.num_classes > explorer.MOST_CLASSES:
            return None
        temperature, gamma, focal_temperature = self._optima(maps)
        return explorer.explorer_of(
            self.given.score,
            seed=self.how.seed,
            budget=budget,
            temperature=temperature,
            focal_gamma=gamma,
            focal_temperature=focal_temperature,
        )

    def _optima(self, maps: list[Landscape]) -> tuple[float, float, float]:
        """Where the sliders start: at calibrators of the report, else at optima of the landscapes, else at 1."""
        best = {each.criterion: each for each in maps}
        temperature = best["nll"].best_temperature.temperature if best else 1.0
        gamma, focal = (
            (best["ada_ece"].best_focal.gamma, best["ada_ece"].best_focal.temperature) if best else (0.0, 1.0)
        )
        for calibrator in reversed(self._fitted):  # the first one has the last word
            if isinstance(calibrator, TemperatureScaling) and calibrator.criterion.name == "nll":
                temperature = calibrator.temperature_
            if isinstance(calibrator, FocalTemperatureScaling):
                gamma, focal = calibrator.gamma_, calibrator.temperature_
        return temperature, gamma, focal


def _dynamics(table: PredictionTable) -> Dynamics | None:
    """AdaFocal's gammas, where the file has the record of a run."""
    if not all(len(table.history.get(name, ())) for name in ("gamma", "lower_edge", "upper_edge")):
        return None
    gamma, lower, upper = (np.asarray(table.history[name]) for name in ("gamma", "lower_edge", "upper_edge"))
    return Dynamics(gamma=gamma.tolist(), lower=lower[-1].tolist(), upper=upper[-1].tolist())
