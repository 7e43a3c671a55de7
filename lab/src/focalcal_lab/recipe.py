"""A recipe: everything that decides how a network is trained, calibrated and measured, but the seed."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    field_validator,
    model_validator,
)

from focalcal.errors import InputError
from focalcal_lab.path_below import check_name

_PLAIN = TypeAdapter(dict[str, JsonValue])


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options of plain values: YAML also has dates, bytes and sets, of which a fingerprint cannot be made."""
    _PLAIN.validate_python(options, strict=True)
    return options


Options = Annotated[dict[str, Any], AfterValidator(_plain)]
# Names that become names of files and folders. That of a recipe may have a folder: cpu/digits.
FileName = Annotated[str, AfterValidator(check_name)]
RecipeName = Annotated[str, AfterValidator(partial(check_name, most_parts=2))]
# Lightning's, without those that another package would have to be imported for.
Precision: TypeAlias = 'Literal["32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed"]'

# When gammas are updated: at the end of each epoch, every n batches, or from some epoch on in some other way,
# as in ghosh2022 App. I and Fig. 53: [[0, "epoch"], [25, 100], [40, 1]].
Every: TypeAlias = 'Literal["epoch"] | int | list[tuple[int, Literal["epoch"] | int]]'


class RecipePart(BaseModel):
    """A part of a recipe: no field beyond those named, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataPart(RecipePart):
    """Which data: a name of `focalcal_lab.data.DATA` and options of its loader."""

    name: str
    options: Options = {}

    @field_validator("options")
    @classmethod
    def _no_code(cls, options: dict[str, Any]) -> dict[str, Any]:
        if "dataset" in options:
            raise ValueError(
                f"dataset: a recipe must not name code, since recipes are passed on; got {options['dataset']!r:.80}. "
                "Remove it, and name code that you trust on the command line: --dataset MODULE:NAME"
            )
        return options


class ModelPart(RecipePart):
    """Which network: a name of `focalcal_lab.models.MODELS` and options of its maker."""

    name: str
    options: Options = {}


class Optimizer(RecipePart):
    """The optimiser, with torch's defaults for what is not named."""

    name: Literal["sgd", "adam", "adamw", "adagrad"]
    lr: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)


class Training(RecipePart):
    """How a network is trained.

    The learning rate is multiplied by `lr_factor` at the epochs of `milestones`, after a linear rise over the first
    `warmup` of an epoch's batches (0.2: a fifth of the first epoch). `schedule: noam` is that of Vaswani et al. with
    `warmup_steps`. `select: best` takes the epoch with the lowest validation error instead of the last one.
    """

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    eval_batch_size: int = Field(default=256, ge=1)
    optimizer: Optimizer
    milestones: list[int] = []
    lr_factor: float = Field(default=0.1, gt=0)
    warmup: float = Field(default=0.0, ge=0)
    schedule: Literal["steps", "noam"] = "steps"
    warmup_steps: int = Field(default=0, ge=0)
    clip_norm: float | None = Field(default=None, gt=0)
    reduction: Literal["mean", "sum"] = "mean"
    select: Literal["last", "best"] = "last"
    precision: Precision = "32-true"
    workers: int = Field(default=0, ge=0)


class Method(RecipePart):
    """A row of a table: a loss by its name in `focalcal.losses.table`, its options, and when gammas are updated."""

    loss: str
    options: Options = {}
    every: Every = "epoch"


class Calibration(RecipePart):
    """A calibrator fitted to the validation split, and the `phase` that the published tables call it.

    `method` and `criterion` are those of `focalcal calibrate`. An option `gamma: trained` is the gamma of the loss,
    which only losses with one fixed gamma have: `method: focal` with it is Psi^gamma; other losses go without it.
    `after` names the phase whose output is calibrated (TS_FL, then Psi^gamma); with `metrics`, only those are measured.
    """

    phase: FileName
    method: str
    criterion: FileName | None = None
    options: Options = {}
    after: str | None = None
    metrics: list[str] = []


class OutOfDistribution(RecipePart):
    """A set that is out of distribution for the model: AUROC and FPR95 of telling it from the test split."""

    name: FileName
    data: DataPart


class Measurement(RecipePart):
    """How a trained network is measured: bins of the calibration errors, calibrators, sets out of distribution.

    For translation, `temperatures` is the grid of the BLEU-against-temperature curve and `beams` the width of the beam.
    """

    num_bins: int = Field(default=15, ge=1)
    calibrators: list[Calibration] = []
    out_of_distribution: list[OutOfDistribution] = []
    temperatures: list[float] = []
    beams: int = Field(default=4, ge=1)


class Recipe(RecipePart):
    """A training run but for its method and seed; `methods` are the rows of the table it reproduces.

    `published` names the dataset and model by which `published_results.csv` lists it; `notes` are the facts that the
    paper does not print. `monitor` is whether the monitor records, or every how many epochs it does. `minutes` is a
    rough time for one run, on two cores for `cpu/` recipes, else on one GPU.
    """

    name: RecipeName
    about: str
    task: Literal["classification", "translation"] = "classification"
    paper: str | None = None
    published: dict[str, str] = {}
    data: DataPart
    model: ModelPart
    methods: dict[FileName, Method]
    training: Training
    measurement: Measurement = Measurement()
    monitor: bool | Annotated[int, Field(ge=1)] = True
    notes: list[str] = []
    minutes: float | None = None

    @model_validator(mode="after")
    def _milestones_rise(self) -> Recipe:
        stones = self.training.milestones
        if stones != sorted(set(stones)) or any(not 0 < stone < self.training.epochs for stone in stones):
            raise ValueError(f"milestones must rise strictly between 0 and epochs={self.training.epochs}, not {stones}")
        return self

    def digest(self, method: str | None = None) -> str:
        """A fingerprint of what decides the runs of a method, or of all: by it a run knows whether it was changed."""
        values = self.model_dump(mode="json", exclude={"about", "notes", "minutes", "paper", "published"})
        if method is not None:
            values["methods"] = {name: each for name, each in values["methods"].items() if name == method}
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_method(recipe: Recipe, method: str) -> None:
    """Refuse a method that the recipe does not have."""
    if method not in recipe.methods:
        raise InputError(f"method: {recipe.name} has {', '.join(recipe.methods)}; got {method!r}.")
