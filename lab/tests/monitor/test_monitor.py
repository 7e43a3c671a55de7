"""The monitor's records against recomputation, sample by sample, from logits that the module itself wrote down."""

from __future__ import annotations

import itertools
import json
import os

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import focalcal as fc
from focalcal.errors import FileFormatError, InputError
from focalcal.integrations.lightning import AdaFocalCallback, CalibratedClassifier
from focalcal_lab.monitor import MonitorCallback, read_monitor
from focalcal_lab.monitor.accumulators import LearnedEpochs, NormHistogram, PredictionTally, gradient_edges
from focalcal_lab.monitor.callback import find_head
from focalcal_lab.monitor.file import write_monitor
from tests.ranks import ranked, run_ranks

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches .* is smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
]

CLASSES, FEATURES, HIDDEN = 4, 6, 5


def rows(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, FEATURES, generator=generator)
    drawn = torch.randint(0, CLASSES, (count,), generator=generator)
    return TensorDataset(inputs, torch.where(inputs[:, 0] > 0, inputs[:, 1:5].argmax(1), drawn), torch.arange(count))


TRAIN, VAL, TEST = rows(70, 0), rows(41, 1), rows(33, 2)


class Own(pl.LightningModule):
    """A user's own module, which also writes down everything that the monitor may see."""

    def __init__(self, loss: nn.Module | None = None, *, bias: bool = True, ignore: bool = False) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.body = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Dropout(0.2))
        self.top = nn.Linear(HIDDEN, CLASSES, bias=bias)
        self.loss = loss or nn.CrossEntropyLoss()
        self.ignore = ignore
        self.seen: dict[str, list] = {
            "train": [],
            "val": [],
            "features": [],
            "gradients": [],
            "weights": [],
            "index": [],
        }

    def forward(self, inputs):
        return self.top(self.body(inputs))

    def training_step(self, batch, batch_idx):
        inputs, labels, index = batch
        if self.ignore:
            labels = torch.where(index % 5 == 0, -100, labels)
        hidden = self.body(inputs)
        logits = self.top(hidden)
        epoch = self.current_epoch
        counted = labels != -100
        self.seen["train"].append((epoch, logits.detach()[counted], labels[counted]))
        self.seen["index"].append((epoch, index[counted]))
        self.seen["features"].append((epoch, hidden.detach()[counted]))
        self.seen["gradients"].append((epoch, self.gradients(hidden.detach()[counted], labels[counted])))
        return {"loss": self.loss(logits, labels), "logits": logits, "labels": labels, "index": index}

    def gradients(self, hidden, labels):
        """The norm of each sample's own gradient, one backward pass a sample."""
        norms = []
        for row, label in zip(hidden, labels, strict=True):
            logits = functional.linear(row[None], self.top.weight, self.top.bias)  # the monitor does not see this
            loss = self.loss(logits, label[None])
            parts = torch.autograd.grad(loss, list(self.top.parameters()))
            norms.append(torch.cat([part.flatten() for part in parts]).double().norm().item())
        return norms

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        if not self.trainer.sanity_checking:
            self.seen["val"].append((self.current_epoch, logits, batch[1]))
        return {"logits": logits, "labels": batch[1]}

    def on_train_epoch_end(self):
        self.seen["weights"].append(self.top.weight.detach().clone())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.3)


def loader(data, batch_size=16, **options):
    return DataLoader(data, batch_size=batch_size, **options)


def pairs(data):
    return loader(TensorDataset(*data.tensors[:2]))


def fit(module, *callbacks, epochs=3, ckpt_path=None, train=None, **options):
    trainer = pl.Trainer(
        **{
            "max_epochs": epochs,
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_checkpointing": any(isinstance(each, ModelCheckpoint) for each in callbacks),
            "enable_progress_bar": False,
            "enable_model_summary": False,
            **options,
        },
        callbacks=list(callbacks),
    )
    torch.manual_seed(11)
    trainer.fit(module, train or loader(TRAIN), loader(VAL), ckpt_path=ckpt_path)
    return trainer


def of_epoch(seen, epoch):
    parts = [part[1:] for part in seen if part[0] == epoch]
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def slow_split(logits, labels, num_bins=15):
    """The numbers of a split, from loops over rows and bins."""
    logs = functional.log_softmax(logits.double(), 1).numpy()
    probs, labels = np.exp(logs), labels.numpy()
    confidence, correct = probs.max(1), probs.argmax(1) == labels
    nll, entropy = -logs[np.arange(len(labels)), labels], -(probs * logs).sum(1)

    def gaps(value, right):
        found = []
        for number in range(num_bins):
            inside = (value > number / num_bins) & (value <= (number + 1) / num_bins)
            if inside.any():
                found.append((inside.mean(), abs(value[inside].mean() - right[inside].mean())))
        return found

    order = np.argsort(confidence)
    # Rows of equal confidence share their correctness; a layer of dead units makes some.
    shared = np.array([correct[abs(confidence - value) < 1e-9].mean() for value in confidence])
    place = np.arange(len(order)) * num_bins // len(order)
    ada = sum(
        (place == number).mean()
        * abs(confidence[order][place == number].mean() - shared[order][place == number].mean())
        for number in range(num_bins)
    )
    by_class = [sum(w * gap for w, gap in gaps(probs[:, k], labels == k)) for k in range(probs.shape[1])]
    return {
        "rows": len(labels),
        "not_finite": 0,
        "error": 1 - correct.mean(),
        "confidence": confidence.mean(),
        "nll": nll.mean(),
        "nll_correct": nll[correct].mean(),
        "nll_wrong": nll[~correct].mean(),
        "entropy": entropy.mean(),
        "entropy_correct": entropy[correct].mean(),
        "entropy_wrong": entropy[~correct].mean(),
        "ece": sum(w * gap for w, gap in gaps(confidence, correct)),
        "ada_ece": ada,
        "classwise_ece": np.mean(by_class),
        "mce": max(gap for _, gap in gaps(confidence, correct)),
    }


def assert_split(record, logits, labels, num_bins=15):
    expected = slow_split(logits, labels, num_bins)
    assert {name: record[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert set(record) == {*expected, "feature_norm", "bins"}
    assert sum(record["bins"]["count"]) == len(labels)
    weight = np.array(record["bins"]["count"]) / len(labels)
    gap = np.array(record["bins"]["confidence"]) - record["bins"]["accuracy"]
    assert float(weight @ abs(gap)) == pytest.approx(record["ece"], abs=1e-12)


def test_every_split_is_recorded_as_loops_over_its_rows_find_it():
    module, monitor = Own(), MonitorCallback(test_loader=pairs(TEST))
    trainer = fit(module, monitor)
    assert [record["epoch"] for record in monitor.records] == [0, 1, 2]
    assert [record["step"] for record in monitor.records] == [5, 10, 15]
    for record in monitor.records:
        assert_split(record["train"], *of_epoch(module.seen["train"], record["epoch"]))
        assert_split(record["val"], *of_epoch(module.seen["val"], record["epoch"]))
        (hidden,) = of_epoch(module.seen["features"], record["epoch"])
        assert record["train"]["feature_norm"] == pytest.approx(hidden.norm(dim=1).mean().item(), rel=1e-6)
        weight = module.seen["weights"][record["epoch"]]
        assert record["head"]["weight_norm"] == pytest.approx(weight.norm().item(), rel=1e-6)
        assert record["gamma"] is None
        assert record["learned"] is None
    module.eval()
    logits, labels = module(TEST.tensors[0]).detach(), TEST.tensors[1]
    assert_split(monitor.records[-1]["test"], logits, labels)
    norm = module.body(TEST.tensors[0]).norm(dim=1).mean().item()
    assert monitor.records[-1]["test"]["feature_norm"] == pytest.approx(norm, rel=1e-5)
    norm = module.body(VAL.tensors[0]).norm(dim=1).mean().item()
    assert monitor.records[-1]["val"]["feature_norm"] == pytest.approx(norm, rel=1e-5)
    assert monitor.records[-1]["head"]["bias_norm"] == pytest.approx(module.top.bias.norm().item(), rel=1e-6)
    assert trainer.state.finished
    assert not module.top._forward_hooks


@pytest.mark.parametrize(
    ("loss", "options", "accumulate"),
    [
        (nn.CrossEntropyLoss(), {}, 1),
        (nn.CrossEntropyLoss(reduction="sum"), {}, 1),
        (fc.FocalLoss(3.0), {"ignore": True}, 1),
        (fc.FocalLoss(3.0, reduction="sum"), {"bias": False}, 1),
        (fc.BrierLoss(), {}, 2),
    ],
    ids=["mean", "sum", "ignored rows", "no bias", "accumulated"],
)
def test_gradient_norms_are_those_of_one_sample_at_a_time(loss, options, accumulate):
    module, monitor = Own(loss, **options), MonitorCallback()
    fit(module, monitor, epochs=2, accumulate_grad_batches=accumulate)
    for record in monitor.records:
        norms = [one for epoch, part in module.seen["gradients"] if epoch == record["epoch"] for one in part]
        found = record["gradient"]
        assert found["rows"] == len(norms)
        assert found["mean"] == pytest.approx(np.mean(norms), rel=1e-5)
        edges = [0.0, *gradient_edges(), np.inf]
        assert found["count"] == [sum(low <= norm < high for norm in norms) for low, high in itertools.pairwise(edges)]
        assert_split(record["train"], *of_epoch(module.seen["train"], record["epoch"]))


def test_the_scale_of_float16_training_does_not_show_in_gradient_norms():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)  # the scale changes every two steps
    module, monitor = Own(), MonitorCallback()
    fit(module, monitor, epochs=2, plugins=[MixedPrecision("16-mixed", "cpu", scaler=scaler)])
    assert scaler.get_scale() > 1024
    norms = [one for epoch, part in module.seen["gradients"] if epoch == 1 for one in part]
    assert monitor.records[1]["gradient"]["mean"] == pytest.approx(np.mean(norms), rel=0.02)


def test_training_confidence_is_binned_by_validation_edges_and_by_its_own():
    module, monitor = Own(), MonitorCallback(num_bins=5)
    fit(module, monitor, epochs=2)
    found = monitor.records[1]["correspondence"]
    (logits, labels), (val_logits, val_labels) = (of_epoch(module.seen[name], 1) for name in ("train", "val"))
    both = fc.metrics.train_val_bins(logits, labels, val_logits, val_labels, num_bins=5)
    for name, bins in (("val", both.val), ("common", both.train)):
        record = found["val"] if name == "val" else found["common"]["true"]
        assert record["edges"] == bins.edges.tolist()
        assert record["count"] == bins.count.tolist()
        assert record["confidence"] == pytest.approx(bins.confidence.tolist(), abs=1e-12)
        assert record["accuracy"] == pytest.approx(bins.accuracy.tolist(), abs=1e-12)
    probs = functional.softmax(logits.double(), 1)
    columns = {"true": probs.gather(1, labels[:, None]).squeeze(1).numpy(), "top": probs.amax(1).numpy()}
    edges = np.array(found["val"]["edges"])
    for name, values in columns.items():
        place = np.array([sum(value > edge for edge in edges[1:-1]) for value in values.astype(np.float32)])
        assert found["common"][name]["count"] == [int((place == number).sum()) for number in range(5)]
        means = [values[place == number].mean() if (place == number).any() else 0.0 for number in range(5)]
        assert found["common"][name]["confidence"] == pytest.approx(means, abs=1e-6)
        thirds = np.array_split(np.sort(values), 5)  # 70 rows: 14 in each
        assert found["independent"][name]["confidence"] == pytest.approx([part.mean() for part in thirds], abs=1e-6)


def test_gammas_are_those_the_epoch_used_and_those_the_next_one_will():
    network = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    module = CalibratedClassifier(network, fc.AdaFocalLoss(num_bins=4), learning_rate=0.05)
    monitor = MonitorCallback(num_bins=4, test_loader=lambda: pairs(TEST))
    fit_pairs(module, monitor)
    gammas = [record["gamma"] for record in monitor.records]
    history = module.loss.history
    assert gammas[0]["used"] == {"edges": [0.0, 0.25, 0.5, 0.75, 1.0], "gamma": [1.0] * 4, "updates": 0}
    for epoch, (before, after) in enumerate(itertools.pairwise(gammas)):
        assert before["next"]["gamma"] == history["gamma"][epoch].tolist()
        assert before["next"]["edges"][1:] == history["upper_edge"][epoch].tolist()
        assert before["next"]["updates"] == epoch + 1
        assert after["used"] == before["next"]
    assert gammas[-1]["next"]["gamma"] == module.loss.gamma.tolist()
    assert monitor.records[-1]["test"]["rows"] == len(TEST)
    norms = network[:2](TEST.tensors[0]).norm(dim=1).mean().item()
    assert monitor.records[-1]["test"]["feature_norm"] == pytest.approx(norms, rel=1e-5)


def fit_pairs(module, *callbacks, epochs=3):
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
    )
    trainer.fit(module, pairs(TRAIN), pairs(VAL))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flsc-531", [[5.0], [5.0], [3.0], [1.0]]),
        ("flsd-53", [[5.0, 3.0]] * 4),
        ("fl-2", [[2.0]] * 4),
        ("calfocal", [[1.0] * 15, None, None, None]),
    ],
)
def test_gammas_of_other_losses(name, expected):
    module = CalibratedClassifier(nn.Sequential(nn.Linear(FEATURES, CLASSES)), name)
    monitor = MonitorCallback()
    fit_pairs(module, monitor, epochs=4)
    for number, (record, gamma) in enumerate(zip(monitor.records, expected, strict=True)):
        found = record["gamma"]["used"]
        assert len(found["edges"]) == len(found["gamma"]) + 1
        last = module.loss.history["gamma"][number - 1].tolist() if gamma is None else gamma
        assert found["gamma"] == pytest.approx(last, rel=1e-12)


def test_learned_epochs_follow_each_sample_through_training():
    module, monitor = Own(), MonitorCallback(learned=(0, 2, 3), every=4)
    fit(module, monitor, epochs=5, train=loader(TRAIN, shuffle=True))
    assert [record["epoch"] for record in monitor.records] == [3, 4]
    right, largest = np.zeros((5, len(TRAIN)), dtype=bool), np.zeros(len(TRAIN))
    for (epoch, logits, labels), (_, index) in zip(module.seen["train"], module.seen["index"], strict=True):
        for row, label, number in zip(logits, labels, index.tolist(), strict=True):
            right[epoch, number], largest[number] = row.argmax() == label, row.max()
    groups: dict[int | None, list[float]] = {0: [], 2: [], 3: [], None: []}
    for number in range(len(TRAIN)):
        since = next((epoch for epoch in range(5) if right[epoch:, number].all()), None)
        groups[None if since is None else max(start for start in (0, 2, 3) if start <= since)].append(largest[number])
    found = monitor.records[-1]["learned"]
    assert found["since"] == list(groups)
    assert found["rows"] == [len(group) for group in groups.values()]
    assert all(found["rows"])
    assert found["mean_max_logit"] == pytest.approx([np.mean(group) for group in groups.values()], abs=1e-6)
    assert [sum(count) for count in found["count"]] == found["rows"]
    assert found["edges"][0] == pytest.approx(largest.min())
    assert found["edges"][-1] == pytest.approx(largest.max())


def test_a_sample_that_comes_twice_must_be_right_twice():
    learned = LearnedEpochs((0,))
    logits, labels = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 0])
    learned.add(torch.tensor([3, 3, 0]), logits, labels)
    learned.close(0)
    assert learned.since.tolist() == [-1, -2, -2, 0]
    learned.add(torch.tensor([3, 3, 0]), logits.flip(0), labels)
    learned.close(1)
    assert learned.since.tolist() == [1, -2, -2, -1]
    assert learned.max_logit.tolist() == [2.0, 0.0, 0.0, 2.5]
    assert learned.record()["rows"] == [1, 1]


class Resumable(DataLoader):
    """Batches in an order that is a function of the epoch, from any batch on."""

    def __init__(self, data) -> None:
        super().__init__(data, batch_size=None, sampler=None)
        self.epoch = self.position = 0

    def __len__(self):
        return 5

    def __iter__(self):
        order = torch.randperm(len(TRAIN), generator=torch.Generator().manual_seed(self.epoch))
        for part in list(order.split(16))[self.position :]:
            self.position += 1
            done = self.position == 5
            self.epoch, self.position = (self.epoch + 1, 0) if done else (self.epoch, self.position)
            yield TRAIN[part]

    def state_dict(self):
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state):
        self.epoch, self.position = state["epoch"], state["position"]


class SeededSteps(pl.Callback):
    """Batches that are a function of the epoch and dropout that is one of the step."""

    def on_train_epoch_start(self, trainer, pl_module):
        # Lightning gives a loader its state back within an epoch, not between two.
        trainer.train_dataloader.epoch = trainer.current_epoch

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        torch.manual_seed(1000 * trainer.current_epoch + batch_idx)


CHECKPOINTS = {
    "within an epoch": {"every_n_train_steps": 8},
    "after validation": {"every_n_epochs": 1, "save_on_train_epoch_end": False},
    "after the epoch": {"every_n_epochs": 1, "save_on_train_epoch_end": True},
}


@pytest.mark.parametrize(
    ("moment", "suffix"),
    [
        ("within an epoch", "parquet"),
        *(pytest.param(each, "json", marks=pytest.mark.slow) for each in ("after validation", "after the epoch")),
    ],
)
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_a_resumed_run_ends_with_the_same_file(moment, suffix, tmp_path, monkeypatch):
    # A small block, so that both whole blocks and waiting logits are in the checkpoint.
    monkeypatch.setattr("focalcal_lab.monitor.accumulators._BLOCK_LOGITS", 100)
    monkeypatch.setattr("focalcal_lab.monitor.accumulators._BLOCK_NORMS", 40)

    def run(name, ckpt_path=None):
        monitor = MonitorCallback(tmp_path / f"{name}.{suffix}", test_loader=pairs(TEST), learned=(0, 1, 2))
        saving = ModelCheckpoint(tmp_path / name, filename="{step}", save_top_k=-1, **CHECKPOINTS[moment])
        fit(Own(fc.FocalLoss("flsd-53")), monitor, SeededSteps(), saving, train=Resumable(TRAIN), ckpt_path=ckpt_path)
        return (tmp_path / f"{name}.{suffix}").read_bytes()

    whole = run("whole")
    saved = sorted((tmp_path / "whole").glob("*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
    state = torch.load(saved[0], weights_only=True)["callbacks"]["MonitorCallback"]
    assert len(state["records"]) == (0 if moment == "after validation" else 1)
    assert (state["open"] is None) == (moment == "after the epoch")
    if moment == "within an epoch":
        assert state["open"]["tallies"]["train"]["waiting"]
        assert len(state["open"]["tallies"]["train"]["rows"])
    assert run("resumed", saved[0]) == whole
    assert run("again") == whole
    assert [record["train"]["rows"] for record in read_monitor(tmp_path / f"resumed.{suffix}")] == [70] * 3


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_an_epoch_that_lightning_does_not_finish_is_recorded_without_validation(tmp_path):
    """A checkpoint of an epoch's last batch: Lightning goes on with the next epoch and validates no more."""

    def run(name, ckpt_path=None):
        monitor = MonitorCallback(learned=(0, 1))
        saving = ModelCheckpoint(tmp_path / name, filename="{step}", save_top_k=-1, every_n_train_steps=5)
        fit(Own(), monitor, SeededSteps(), saving, train=Resumable(TRAIN), ckpt_path=ckpt_path)
        return monitor.records

    whole, resumed = run("whole"), run("resumed", tmp_path / "whole" / "step=5.ckpt")
    assert [record["epoch"] for record in resumed] == [0, 1, 2]
    assert resumed[0]["val"] is None
    for name in ("train", "step", "head", "gradient", "learned"):
        assert resumed[0][name] == whole[0][name]
    assert resumed[1:] == whole[1:]


def test_json_and_parquet_hold_the_same(tmp_path):
    for suffix in ("json", "parquet"):
        monitor = MonitorCallback(tmp_path / f"monitor.{suffix}", learned=(0, 1))
        fit(Own(fc.AdaFocalLoss(num_bins=3)), monitor, epochs=2, check_val_every_n_epoch=2)
        assert monitor.records[0]["val"] is None
        assert monitor.records[1]["val"] is not None
        assert read_monitor(tmp_path / f"monitor.{suffix}") == monitor.records
    assert read_monitor(tmp_path / "monitor.json") == read_monitor(tmp_path / "monitor.parquet")
    assert json.loads((tmp_path / "monitor.json").read_text())["schema"] == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"[1, 2", "it is not JSON"),
        ("a.json", b"[]", "not the file of a monitor"),
        ("a.json", b'{"format": "focalcal monitor", "schema": 9, "epochs": []}', "it has schema 9"),
        ("a.parquet", b"PAR1", "it is not a Parquet file"),
    ],
)
def test_other_files_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        read_monitor(tmp_path / name)


def test_a_failed_write_leaves_the_file_of_the_epoch_before(tmp_path, monkeypatch):
    place = tmp_path / "monitor.json"
    write_monitor(place, [{"epoch": 0}])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_monitor(place, [{"epoch": 0}, {"epoch": 1}])
    assert read_monitor(place) == [{"epoch": 0}]
    assert [path.name for path in tmp_path.iterdir()] == ["monitor.json"]


def test_training_is_the_same_with_and_without_a_monitor():
    def trained(*callbacks):
        module = Own()
        module.body[1].requires_grad_(False)
        fit(module, *callbacks, train=loader(TRAIN, shuffle=True))
        return module

    plain, watched = trained(), trained(MonitorCallback(test_loader=loader(TEST, shuffle=True), forward=first_two))
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def first_two(module, batch):
    assert not module.training
    assert module.trainer.testing
    assert not torch.is_grad_enabled()
    return module(batch[0]), batch[1]


def test_modes_come_back_after_the_test_pass_also_after_an_error():
    class Frozen(Own):
        def on_train_epoch_start(self):
            self.body[1].eval()

    modes = []

    class Look(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 0:
                modes.append((pl_module.training, pl_module.body[1].training, trainer.training))

        def on_train_epoch_end(self, trainer, pl_module):
            modes.append((pl_module.training, pl_module.body[1].training, trainer.training))

    fit(Frozen(), MonitorCallback(test_loader=pairs(TEST)), Look(), epochs=2)
    assert modes == [(True, False, True)] * 4

    module = Own()

    def broken(module, batch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(module, MonitorCallback(test_loader=pairs(TEST), forward=broken))
    assert module.training
    assert not module.top._forward_hooks


def test_a_module_that_returns_other_things_says_how_to_read_them():
    class Bare(Own):
        def training_step(self, batch, batch_idx):
            outputs = super().training_step(batch, batch_idx)
            return {"loss": outputs["loss"], "scores": outputs["logits"].detach()}

        def validation_step(self, batch, batch_idx):
            return {"scores": super().validation_step(batch, batch_idx)["logits"]}

    with pytest.raises(InputError, match=r'must return "logits" and "labels".*got loss, scores'):
        fit(Bare(), MonitorCallback())
    module = Bare()
    monitor = MonitorCallback(
        outputs=lambda outputs, batch: (outputs["scores"], batch[1]),
        index=lambda outputs, batch: batch[2],
        learned=(0,),
    )
    fit(module, monitor, epochs=1)
    assert_split(monitor.records[0]["train"], *of_epoch(module.seen["train"], 0))
    assert sum(monitor.records[0]["learned"]["rows"]) == len(TRAIN)
    with pytest.raises(InputError, match="learned: needs the number of each training sample"):
        fit(Bare(), MonitorCallback(learned=(0,), outputs=lambda outputs, batch: (outputs["scores"], batch[1])))


@pytest.mark.parametrize("head", ["body.0", lambda module: module.body[0], None])
def test_any_linear_layer_can_be_the_head(head):
    module, monitor = Own(), MonitorCallback(head=head)
    fit(module, monitor, epochs=1)
    layer = module.top if head is None else module.body[0]
    assert monitor.records[0]["head"]["weight_norm"] == pytest.approx(layer.weight.norm().item(), rel=1e-6)
    if head is not None:
        expected = TRAIN.tensors[0].norm(dim=1).mean().item()
        assert monitor.records[0]["train"]["feature_norm"] == pytest.approx(expected, rel=1e-6)


def test_the_head_is_the_networks_before_it_is_the_last_linear_layer():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2)
            self.encoder = nn.Linear(5, 3)

    assert find_head(nn.Sequential(Network())).in_features == 5
    assert find_head(Network()).in_features == 3
    assert find_head(CalibratedClassifier(Network(), "ce")).in_features == 3
    assert find_head(nn.Sequential(nn.ReLU())) is None
    with pytest.raises(InputError, match=r"head: must be an nn.Linear; got ReLU"):
        find_head(nn.Sequential(nn.ReLU()), "0")


def test_a_module_without_a_linear_layer_is_monitored_without_norms():
    class Bias(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.offset = nn.Parameter(torch.zeros(FEATURES))

        def training_step(self, batch, batch_idx):
            logits = batch[0] + self.offset
            return {"loss": functional.cross_entropy(logits, batch[1]), "logits": logits.detach(), "labels": batch[1]}

        def validation_step(self, batch, batch_idx):
            return {"logits": batch[0] + self.offset, "labels": batch[1]}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    monitor = MonitorCallback()
    fit(Bias(), monitor, epochs=1)
    (record,) = monitor.records
    assert record["head"] is record["gradient"] is record["train"]["feature_norm"] is None
    assert record["train"]["rows"] == len(TRAIN)


def test_a_diverging_run_is_recorded_and_not_stopped(tmp_path):
    class Diverging(Own):
        def on_train_epoch_start(self):
            if self.current_epoch == 1:
                nn.init.constant_(self.top.weight, float("inf"))

    monitor = MonitorCallback(tmp_path / "monitor.json")
    fit(Diverging(), monitor, epochs=2)
    first, second = read_monitor(tmp_path / "monitor.json")
    assert first["train"]["not_finite"] == 0
    assert second["train"] is second["val"] is second["correspondence"] is None
    assert second["head"]["weight_norm"] is None
    assert second["gradient"]["not_finite"] > 0


def test_dense_predictions_count_every_place():
    tally = PredictionTally(num_bins=5)
    logits, labels = torch.randn(3, CLASSES, 7), torch.randint(0, CLASSES, (3, 7))
    labels[0, :2] = -100
    tally.add(logits.bfloat16(), labels)
    flat = logits.bfloat16().float().movedim(1, -1).reshape(-1, CLASSES)[2:]
    expected = fc.evaluate(flat, labels.reshape(-1)[2:], num_bins=5)
    rows = tally.seen().rows
    assert rows.num_rows == 19
    assert fc.metrics.ece(rows, num_bins=5) == expected.ece
    assert fc.metrics.nll(rows) == pytest.approx(expected.nll, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "monitor.csv"}, "path: must end in .json or .parquet"),
        ({"every": 0}, "every: must be a number of epochs"),
        ({"num_bins": 0}, "num_bins: must be at least 1"),
        ({"learned": (5, 10)}, "learned: must be epochs that rise from 0"),
        ({"reduction": "none"}, "reduction: must be mean or sum"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(InputError, match=message):
        MonitorCallback(**options)


# Two processes.

STARTS = (0, 1)


def watched_parts():
    return PredictionTally(num_bins=6), NormHistogram(), LearnedEpochs(STARTS)


def feed(parts, rank, world, batches, epoch):
    tally, norms, learned = parts
    generator = torch.Generator().manual_seed(epoch)
    logits, labels = 2 * torch.randn(60, CLASSES, generator=generator), torch.arange(60) % CLASSES
    order = torch.randperm(60, generator=generator)
    for number, part in enumerate(order.split(9)):
        if number in batches and (world == 1 or number % world == rank):
            tally.add(logits[part], labels[part])
            norms.add(logits[part].norm(dim=1))
            learned.add(part, logits[part], labels[part])


def found_in(parts, epoch):
    tally, norms, learned = parts
    learned.close(epoch)
    seen = tally.seen()
    rows = seen.rows
    numbers = [fc.metrics.ece(rows, num_bins=6), fc.metrics.ada_ece(rows), fc.metrics.nll(rows), fc.metrics.error(rows)]
    return {
        "numbers": [*map(float, numbers), float((seen.classes.gap.abs() * seen.classes.weight).sum())],
        "norms": norms.record(),
        "learned": learned.record(),
    }


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parts = watched_parts()
    feed(parts, rank, 2, range(7), epoch=0)
    first = found_in(parts, 0)
    monitor = MonitorCallback(num_bins=6, learned=STARTS)
    monitor._epoch = 1
    monitor._learned.load(parts[2].state(), None)
    mine = monitor._tallies["train"], monitor._norms["train"], monitor._learned
    feed(mine, rank, 2, range(4), epoch=1)
    state = monitor.state_dict()
    fresh = MonitorCallback(num_bins=6, learned=STARTS)
    fresh.load_state_dict(state)
    again = fresh._tallies["train"], fresh._norms["train"], fresh._learned
    feed(again, rank, 2, range(4, 7), epoch=1)
    torch.save([first, found_in(again, 1)], f"{folder}/{rank}.pt")
    # Lightning finds the processes that are there already.
    os.environ.update(
        TORCHELASTIC_RUN_ID="1", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"
    )
    train_shared(folder, rank, 2)
    torch.distributed.destroy_process_group()


class Linear(Own):
    """Nothing depends on a batch's other rows, so that halves of a batch train as the whole does."""

    def __init__(self):
        super().__init__()
        self.body = nn.Identity()

    def training_step(self, batch, batch_idx):
        inputs, labels, _ = batch
        logits = self(inputs)
        return {"loss": self.loss(logits, labels), "logits": logits.detach(), "labels": labels}

    def forward(self, inputs):
        return self.top(inputs[:, :HIDDEN])


def train_shared(folder: str, rank: int, world: int) -> None:
    """Batches of 16 in one process, or of 8 in each of two: the same rows in every step."""

    def shared(data, count, batch_size):
        some = TensorDataset(*(column[:count] for column in data.tensors))
        return loader(some, batch_size, sampler=DistributedSampler(some, world, rank, shuffle=False))

    monitor = MonitorCallback(f"{folder}/{world}.json", test_loader=pairs(TEST), num_bins=5)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=world,
        strategy="ddp" if world > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[monitor],
    )
    trainer.fit(Linear(), shared(TRAIN, 64, 16 // world), shared(VAL, 40, 8))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The folder in which two processes left what they found."""
    folder = tmp_path_factory.mktemp("ranks")
    wrong = run_ranks(run_rank, str(folder), world=2)
    assert not wrong, wrong
    return folder


@pytest.mark.slow
@ranked
def test_two_processes_record_what_one_does_also_after_a_checkpoint(ranks):
    both = [torch.load(ranks / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert both[0] == both[1]
    tally, norms, learned = watched_parts()
    for epoch in range(2):
        tally.reset(), norms.reset()
        feed((tally, norms, learned), 0, 1, range(7), epoch)
        expected, found = found_in((tally, norms, learned), epoch), both[0][epoch]
        assert found["numbers"] == pytest.approx(expected["numbers"], rel=1e-12)
        assert found["learned"] == expected["learned"]
        assert found["norms"].pop("mean") == pytest.approx(expected["norms"].pop("mean"), rel=1e-12)
        assert found["norms"] == expected["norms"]


@pytest.mark.slow
@ranked
def test_lightning_ddp_writes_what_one_process_writes(ranks, tmp_path):
    train_shared(str(tmp_path), 0, 1)
    one, two = read_monitor(tmp_path / "1.json"), read_monitor(ranks / "2.json")
    assert len(one) == len(two) == 2
    assert one[0]["test"]["rows"] == len(TEST)

    def compare(mine, other, where):
        if isinstance(mine, dict):
            assert mine.keys() == other.keys()
            for name in mine:
                compare(mine[name], other[name], f"{where}.{name}")
        elif isinstance(mine, list):
            assert len(mine) == len(other)
            for number, pair in enumerate(zip(mine, other, strict=True)):
                compare(*pair, f"{where}[{number}]")
        elif isinstance(mine, float):  # gradients are averaged in another order, in float32
            assert mine == pytest.approx(other, rel=1e-4, abs=1e-6), where
        else:
            assert mine == other, where

    compare(one, two, "")


def test_the_lab_classifier_is_monitored_with_a_summed_loss():
    network = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    loss = fc.FocalLoss(2.0, reduction="sum")
    norms = []

    class Compare(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            for row, label in zip(*batch, strict=True):
                parts = torch.autograd.grad(loss(network(row[None]), label[None]), list(network[2].parameters()))
                norms.append(torch.cat([part.flatten() for part in parts]).norm().item())

    monitor = MonitorCallback()
    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=1e-3)  # noqa: E731
    fit_pairs(CalibratedClassifier(network, loss, optimizer=optimizer), Compare(), monitor, epochs=1)
    assert monitor.records[0]["gradient"]["mean"] == pytest.approx(np.mean(norms), rel=1e-5)
    assert monitor.records[0]["gamma"]["used"]["gamma"] == [2.0]


def test_evaluation_passes_of_other_callbacks_do_not_count():
    module, monitor = CalibratedClassifier(nn.Linear(FEATURES, CLASSES), fc.AdaFocalLoss(num_bins=3)), MonitorCallback()
    fit_pairs(module, AdaFocalCallback(every=2), monitor, epochs=1)
    (record,) = monitor.records
    assert record["gamma"]["next"]["updates"] == 2
    expected = TRAIN.tensors[0].norm(dim=1).mean().item()
    assert record["train"]["feature_norm"] == pytest.approx(expected, rel=1e-6)
    assert record["train"]["rows"] == record["gradient"]["rows"] == len(TRAIN)


def test_logits_may_be_overwritten_once_they_are_taken_in():
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    tally = PredictionTally(num_bins=2)
    for _ in range(2):
        tally.add(logits, labels)
    logits.neg_(), labels.zero_()
    assert tally.seen().rows.column("correct").all()
