"""A model and a loader together: how batches are read, `fc.collect`, and `fc.calibrate`."""

from __future__ import annotations

import io
import sys
from collections import UserDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import focalcal as fc
from focalcal.predictions.model_outputs import BatchForward

INPUTS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(50) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))


class Named(nn.Module):
    """A model in the way of Hugging Face."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, *, pixels, scale):
        return SimpleNamespace(logits=self.inner(pixels) * scale.unsqueeze(1), hidden_states=None)


# ---------------------------------------------------------------------- fc.collect


def test_all_batches_come_out_in_order_and_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Dropout(0.5)).train()
    model[2].eval()
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16)
    logits, labels = fc.collect(model, loader)
    assert model.training
    assert not model[2].training  # each part keeps its own mode
    assert not logits.requires_grad
    assert torch.equal(labels, LABELS)
    assert_close(logits, model.eval()(INPUTS).detach())


def test_the_mode_is_restored_after_an_error():
    model = network().train()
    with pytest.raises(RuntimeError):
        fc.collect(model, [(INPUTS[:, :2], LABELS)])
    assert model.training


def test_a_dictionary_is_keyword_arguments_and_labels():
    model = Named()
    batch = {"pixels": INPUTS, "scale": torch.full((50,), 2.0)}
    expected = 2 * model.inner.eval()(INPUTS).detach()
    for name in ("labels", "label"):
        logits, labels = fc.collect(model, [UserDict({**batch, name: LABELS})])
        assert_close(logits, expected)
        assert torch.equal(labels, LABELS)


def test_of_a_tuple_the_last_one_is_the_labels():
    logits, labels = fc.collect(lambda a, b, c: a + b + c, [[INPUTS[:, :3]] * 3 + [LABELS]])
    assert_close(logits, 3 * INPUTS[:, :3])
    assert torch.equal(labels, LABELS)


@pytest.mark.parametrize(
    "read",
    [
        lambda batch: ({"x": batch.image}, batch.target),
        lambda batch: (batch.image, batch.target),
        lambda batch: ((batch.image,), batch.target),
        lambda batch: ((), {"x": batch.image}, batch.target),
        lambda batch: ([batch.image], {}, batch.target),
    ],
)
def test_read_says_how_any_other_batch_is_read(read):
    batch = namedtuple("Batch", "target image")(LABELS, INPUTS[:, :3])
    logits, labels = fc.collect(lambda x: x, [batch], read=read)
    assert torch.equal(logits, INPUTS[:, :3])
    assert torch.equal(labels, LABELS)


def test_a_dataset_is_read_in_batches():
    many = TensorDataset(INPUTS.repeat(3, 1), LABELS.repeat(3))
    sizes = []
    model = network()
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    logits, labels = fc.collect(model, many)
    assert sizes == [128, 22]
    assert logits.shape == (150, 3)
    assert torch.equal(labels, LABELS.repeat(3))


def test_tensors_anywhere_in_a_batch_move_to_the_device_of_the_model():
    forward, seen = BatchForward(lambda *args, **kwargs: seen.append((args, kwargs)) or INPUTS), []
    forward.device = torch.device("meta")
    pair = namedtuple("Pair", "a b")(INPUTS, "text")
    forward(({"ids": [INPUTS, 3]}, pair, LABELS))
    (((mapping, moved), _),) = seen
    assert mapping["ids"][0].is_meta
    assert mapping["ids"][1] == 3
    assert moved.a.is_meta
    assert moved.b == "text"
    assert BatchForward(network().to("meta")).device == torch.device("meta")


class TokenClassifierOutput(UserDict):
    """Named as that of transformers, which goes by the name."""


class CausalLMOutput(TokenClassifierOutput):
    pass


def test_positions_of_token_models_become_rows_with_the_label_that_belongs_to_them():
    logits = torch.randn(2, 4, 3)
    labels = torch.tensor([[0, 1, -100, 2], [2, -100, 1, 0]])
    rows, found = fc.collect(lambda **_: TokenClassifierOutput(logits=logits), [{"labels": labels}] * 2)
    kept = labels != -100
    assert torch.equal(rows, torch.cat([logits[kept]] * 2))
    assert torch.equal(found, torch.cat([labels[kept]] * 2))
    rows, found = fc.collect(lambda **_: CausalLMOutput(logits=logits), [{"labels": labels}])
    kept = labels[:, 1:] != -100
    assert torch.equal(rows, logits[:, :-1][kept])
    assert torch.equal(found, labels[:, 1:][kept])
    with pytest.raises(fc.InputError, match="shift: must be given for logits"):
        fc.collect(lambda **_: {"logits": logits}, [{"labels": labels}])


@pytest.mark.parametrize(
    ("batch", "read", "says"),
    [
        ({"x": INPUTS}, None, 'batch: must have "labels" or "label"; got x. read=lambda'),
        (INPUTS, None, r"batch: must be \(inputs, ..., labels\) or a dictionary; got Tensor. read=lambda"),
        ((INPUTS,), None, r"batch: must be .* got tuple of 1"),
        ((INPUTS, "cat"), None, "labels: must be a tensor; got str"),
        (INPUTS, lambda batch: batch, r"read: must return \(inputs, labels\) or \(args, kwargs, labels\); got Tensor"),
        (INPUTS, lambda batch: (1, 2, 3, 4), "read: must return .* got 4 parts"),
    ],
)
def test_a_batch_that_cannot_be_read_says_what_to_do(batch, read, says):
    with pytest.raises(fc.InputError, match=says):
        fc.collect(network(), [batch], read=read)


def test_a_loader_without_batches_and_logits_of_several_shapes_are_refused():
    with pytest.raises(fc.InputError, match="loader: must give at least one batch"):
        fc.collect(network(), iter(()))
    with pytest.raises(
        fc.InputError, match=r"model: must give logits of one shape in all batches; got \(3,\) and \(4,"
    ):
        fc.collect(lambda x: x, [(INPUTS, LABELS), (INPUTS[:, :3], LABELS)])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "progress", "shown"), [(Terminal, True, True), (Terminal, False, False)])
def test_a_bar_is_shown_on_a_terminal_only(monkeypatch, stream, progress, shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream())
    fc.collect(network(), [(INPUTS, LABELS)] * 2, progress=progress)
    assert ("Collecting logits" in sys.stderr.getvalue()) == shown


def test_nothing_is_printed_to_a_pipe(capsys):
    fc.collect(network(), [(INPUTS, LABELS)])
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------- fc.calibrate


def sure_network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight *= 20
    return model


def noisy(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 4, generator=generator)
    best = sure_network()(inputs).argmax(1)
    other = torch.randint(0, 3, (count,), generator=generator)
    return inputs, torch.where(torch.rand(count, generator=generator) < 0.5, other, best)


@pytest.mark.parametrize("method", ["temperature", "vector", fc.VectorScaling(), "temperature:brier"], ids=str)
def test_a_network_and_its_calibrator_are_one_module(method):
    model, (inputs, labels) = sure_network().train(), noisy(300)
    calibrated = fc.calibrate(model, [(inputs, labels)], method)
    kind = type(method) if isinstance(method, fc.Calibrator) else type(fc.calibrators.make_calibrator(method))
    logits = model(inputs).detach()
    expected = kind(**calibrated.calibrator.settings()).fit(logits, labels)
    assert isinstance(calibrated, nn.Module)
    assert model.training
    assert_close(calibrated(inputs), expected(logits))
    assert_close(calibrated(inputs).exp().sum(1), torch.ones(300))
    raw, after = fc.metrics.nll(logits, labels), fc.metrics.nll(calibrated(inputs).detach(), labels)
    assert after < raw - 0.3
    if isinstance(method, fc.Calibrator):
        assert not method.is_fitted
        assert calibrated.calibrator is not method


@pytest.mark.parametrize("method", [None, "auto"])
def test_the_choice_can_be_left_to_select_calibrator(method):
    model, data = sure_network(), noisy(150)
    chosen = fc.calibrate(model, [data], method).calibrator
    expected = fc.select_calibrator(model(data[0]).detach(), data[1]).winner
    assert type(chosen) is type(expected)
    assert chosen.settings() == expected.settings()


def test_named_outputs_are_calibrated_as_a_tensor():
    model = Named()
    batch = {"pixels": INPUTS, "scale": torch.ones(50)}
    calibrated = fc.calibrate(model, [{**batch, "labels": LABELS}])
    model.eval()
    assert_close(calibrated(**batch), calibrated.calibrator(model.inner(INPUTS)))


def test_a_method_that_is_none_is_refused_before_the_model_runs():
    def never(inputs):
        raise AssertionError

    with pytest.raises(fc.InputError, match="method: must be one of identity, temperature"):
        fc.calibrate(never, [(INPUTS, LABELS)], "temprature")
    with pytest.raises(fc.InputError, match='method: must be a calibrator, its name, or "auto"; got int'):
        fc.calibrate(never, [(INPUTS, LABELS)], 3)
    with pytest.raises(fc.NotFittedError):
        fc.CalibratedNetwork(network(), fc.TemperatureScaling())


@pytest.mark.slow
def test_the_module_is_exported_to_onnx(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from focalcal.integrations.onnx import export_onnx

    inputs, labels = noisy(100)
    calibrated = fc.calibrate(sure_network(), [(inputs, labels)])
    expected = calibrated(inputs).exp().detach()
    parts = (calibrated.network, calibrated.calibrator), (calibrated, fc.Identity())
    for number, (model, calibrator) in enumerate(parts):
        path = tmp_path / f"{number}.onnx"
        export_onnx(model, calibrator, path, inputs[:4])
        (probs,) = onnxruntime.InferenceSession(path).run(["probs"], {"inputs": inputs.numpy()})
        assert_close(torch.from_numpy(probs), expected, rtol=0, atol=1e-5)


def test_positions_keep_their_shape():
    class Tagger(nn.Module):
        def forward(self, *, logits):
            return TokenClassifierOutput(logits=logits)

    logits = 3 * torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30).reshape(6, 5) % 3
    calibrated = fc.calibrate(Tagger(), [{"logits": logits, "labels": labels}], "vector")
    expected = fc.VectorScaling().fit(logits.reshape(-1, 3), labels.reshape(-1))
    assert_close(calibrated(logits=logits).reshape(-1, 3), expected(logits.reshape(-1, 3)))
