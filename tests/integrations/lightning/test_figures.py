"""The callback that logs reliability diagrams, with loggers that stand for TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
from lightning.pytorch.loggers import CSVLogger, Logger
from torch.utils.data import DataLoader

import focalcal as fc
from focalcal.integrations.lightning import CalibratedClassifier, ReliabilityFigureCallback
from tests.integrations.lightning.test_classifier import make_data, network

pytest.importorskip("matplotlib")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
]


class Fake(Logger):
    """A logger that keeps what it is given."""

    name, version = "fake", 0

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple] = []

    experiment = SimpleNamespace()

    def log_metrics(self, metrics, step=None): ...

    def log_hyperparams(self, params, *args, **kwargs): ...


class LikeTensorBoard(Fake):
    @property
    def experiment(self):
        return SimpleNamespace(
            add_figure=lambda name, figure, global_step: self.kept.append((name, figure, global_step))
        )


class LikeWandb(Fake):
    def log_image(self, key, images, step=None):
        self.kept.append((key, images[0], step))


class LikeMLflow(Fake):
    run_id = "run"

    @property
    def experiment(self):
        return SimpleNamespace(log_figure=lambda run, figure, file: self.kept.append((run, figure, file)))


def fit(*loggers: Logger, epochs: int = 2, **options) -> CalibratedClassifier:
    module = CalibratedClassifier(network(), "fl-3")
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=list(loggers) or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ReliabilityFigureCallback(**options)],
        num_sanity_val_steps=2,
    )
    trainer.fit(module, DataLoader(make_data(60, 1), batch_size=20), DataLoader(make_data(45, 2), batch_size=15))
    return module


def test_every_logger_gets_the_figure_of_all_rows_in_its_own_way():
    board, wandb, mlflow = LikeTensorBoard(), LikeWandb(), LikeMLflow()
    module = fit(board, wandb, mlflow)
    inputs, labels = make_data(45, 2).tensors
    title = fc.evaluate(module(inputs).detach(), labels).plot().get_title()
    assert [(name, step) for name, _, step in board.kept] == [("val/reliability", 3), ("val/reliability", 6)]
    assert board.kept[-1][1].axes[0].get_title() == title
    assert [(name, step) for name, _, step in wandb.kept] == [("val/reliability", 3), ("val/reliability", 6)]
    image = wandb.kept[0][1]
    assert image.dtype == np.uint8
    assert image.shape[2] == 3
    assert len(np.unique(image)) > 10
    assert [(run, file) for run, _, file in mlflow.kept] == [
        ("run", "val/reliability/step_00000003.png"),
        ("run", "val/reliability/step_00000006.png"),
    ]


def test_it_is_logged_as_often_as_asked_under_the_name_that_it_was_given():
    board = LikeTensorBoard()
    fit(board, epochs=5, every=2, name="calibration")
    assert [(name, step) for name, _, step in board.kept] == [
        ("calibration", 3),
        ("calibration", 9),
        ("calibration", 15),
    ]
    with pytest.raises(fc.InputError, match="every: must be a number of epochs from 1; got 0"):
        ReliabilityFigureCallback(every=0)


def test_loggers_without_figures_are_left_out_and_none_at_all_is_said(tmp_path):
    board = LikeTensorBoard()
    fit(CSVLogger(tmp_path), board, epochs=1)
    assert len(board.kept) == 1
    with pytest.warns(fc.InputWarning, match="no logger of the trainer can show figures; it has CSVLogger"):
        fit(CSVLogger(tmp_path), epochs=1)


@pytest.mark.slow
def test_tensorboard_itself_keeps_the_image(tmp_path):
    pytest.importorskip("tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path)
    fit(logger, epochs=1)
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir).Reload()
    (image,) = events.Images("val/reliability")
    assert image.encoded_image_string[1:4] == b"PNG"
