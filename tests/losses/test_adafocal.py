from __future__ import annotations

import copy
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import focalcal as fc
from focalcal.losses.adafocal import next_gamma


def predictions(num=200, classes=4, seed=0, dtype=torch.float64, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(num, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (num,), generator=generator)
    return logits.to(dtype), torch.where(torch.arange(num) % 2 == 0, logits.argmax(1), labels)


def slow_update(gamma, logits, labels, num_bins, lam=1.0):
    """Algorithm 1 of ghosh2022 in plain Python: interpolated equal-mass edges, then each bin in turn."""
    probs = torch.softmax(logits.double(), 1)
    confidence, predicted = probs.max(1)
    rows = sorted(zip(confidence.tolist(), (predicted == labels).tolist(), strict=True))
    values = [c for c, _ in rows]
    edges = []
    for k in range(num_bins + 1):
        rank = len(values) * k / num_bins
        low = min(int(rank), len(values) - 1)
        high = min(low + 1, len(values) - 1)
        edges.append(values[low] + (rank - low) * (values[high] - values[low]))
    new = []
    for b in range(num_bins):
        inside = [(c, k) for c, k in rows if edges[b] < c <= edges[b + 1] or (b == 0 and c == edges[0])]
        gap = sum(c - k for c, k in inside) / len(inside)
        g = gamma[b]
        if g >= 0:
            g = min(20.0, g * math.exp(lam * gap))
            new.append(-0.2 if abs(g) < 0.2 else g)
        else:
            g = max(-2.0, g * math.exp(-lam * gap))
            new.append(0.2 if abs(g) < 0.2 else g)
    return new, edges


@pytest.mark.parametrize("lam", [1.0, 20.0])
def test_updates_equal_algorithm_1_in_plain_python(lam):
    loss = fc.AdaFocalLoss(num_bins=6, lam=lam)
    gamma = [1.0] * 6
    for epoch in range(6):
        logits, labels = predictions(seed=epoch)
        loss.update(logits, labels)
        gamma, edges = slow_update(gamma, logits, labels, 6, lam)
        assert_close(loss.gamma, torch.tensor(gamma, dtype=torch.float64), rtol=1e-10, atol=0)
        assert_close(loss.edges, torch.tensor(edges, dtype=torch.float64), rtol=1e-12, atol=0)
    assert lam == 1.0 or loss.gamma.max() == 20


@pytest.mark.parametrize(
    ("gamma", "gap", "expected"),
    [
        (1.0, 0.5, math.exp(0.5)),
        (1.0, 10.0, 20.0),
        (0.21, -0.1, -0.2),
        (-0.21, 0.1, 0.2),
        (-1.0, -10.0, -2.0),
        (-1.0, 0.1, -math.exp(-0.1)),
        (0.2, 0.0, 0.2),
    ],
)
def test_one_step_follows_lines_16_to_23(gamma, gap, expected):
    stepped = next_gamma(
        torch.tensor([gamma], dtype=torch.float64),
        torch.tensor([gap]),
        lam=1.0,
        switch_at=0.2,
        bounds=(-2.0, 20.0),
    )
    assert stepped.item() == pytest.approx(expected, rel=1e-7)


def test_the_loss_is_focal_or_inverse_focal_by_the_bin_of_p():
    loss = fc.AdaFocalLoss(num_bins=4, reduction="none")
    loss.gamma.copy_(torch.tensor([3.0, -1.0, 0.5, -0.2]))
    logits, labels = predictions()
    p = torch.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    gamma = loss.gamma[(p * 4).floor().long().clamp_max(3)]
    expected = -(torch.where(gamma >= 0, 1 - p, 1 + p) ** gamma.abs()) * p.log()
    assert_close(loss(logits, labels), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_a_probability_on_an_edge_belongs_to_the_bin_above_it(kind):
    loss = fc.AdaFocalLoss(num_bins=2, reduction="none")
    loss.gamma.copy_(torch.tensor([5.0, 2.0]))
    assert loss.gamma_at(kind([0.25, 0.5, 0.75])).tolist() == [5.0, 2.0, 2.0]
    tie = torch.zeros(1, 2), torch.tensor([0])  # p = 1/2, exactly
    assert torch.equal(loss(*tie), fc.focal_loss(*tie, gamma=2.0, reduction="none"))


def test_a_probability_outside_every_validation_bin_takes_the_outer_one():
    loss = fc.AdaFocalLoss(num_bins=3)
    loss.update(*predictions())
    assert loss.edges[0] > 0.2
    assert loss.gamma_at(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == loss.gamma[[0, -1]].tolist()


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_streamed_batches_give_the_bits_of_one_update(pieces):
    logits, labels = predictions(dtype=torch.float32)
    whole, streamed = fc.AdaFocalLoss(), fc.AdaFocalLoss()
    whole.update(logits, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(pieces))
    for part in order.chunk(pieces):
        streamed.accumulate(logits[part], labels[part])
    streamed.step()
    assert torch.equal(whole.gamma, streamed.gamma)
    assert torch.equal(whole.edges, streamed.edges)


def test_update_from_a_loader_leaves_the_model_as_it_was():
    inputs, labels = predictions(dtype=torch.float32)
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)).train()
    loader = [(x, y) for x, y in zip(inputs.chunk(4), labels.chunk(4), strict=True)]
    loss, expected = fc.AdaFocalLoss(num_bins=5), fc.AdaFocalLoss(num_bins=5)
    loss.update_from(loader, model)
    assert model.training
    expected.update(model.eval()(inputs).detach(), labels)
    assert_close(loss.gamma, expected.gamma)
    loss.update_from(loader, model)
    assert not model.training
    loss.update_from(loader, lambda inputs: model(inputs))


def test_update_from_a_loader_moves_inputs_to_the_device_of_the_model():
    class Elsewhere(torch.Tensor):
        def to(self, device):
            return self.as_subclass(torch.Tensor)

        __torch_function__ = torch._C._disabled_torch_function_impl

    inputs, labels = predictions(dtype=torch.float32)
    kinds = []
    model = torch.nn.Linear(4, 4)
    model.register_forward_pre_hook(lambda _, given: kinds.append(type(given[0])))
    fc.AdaFocalLoss(num_bins=5).update_from([(inputs.as_subclass(Elsewhere), labels)], model)
    assert kinds == [torch.Tensor]


def test_images_and_ignored_pixels_are_rows_like_any_other():
    logits, labels = predictions(60)
    flat, image = fc.AdaFocalLoss(num_bins=4, ignore_index=255), fc.AdaFocalLoss(num_bins=4, ignore_index=255)
    flat.update(logits[10:], labels[10:])
    labels[:10] = 255
    image.update(logits.reshape(4, 15, 4).movedim(-1, 1), labels.reshape(4, 15))
    assert_close(flat.gamma, image.gamma, rtol=1e-13, atol=0)


def test_bins_tied_at_certainty_move_together():
    """Late in training most float32 confidences are 1.0; every bin there must learn from them."""
    logits = torch.zeros(300, 3)
    logits[:, 0] = torch.cat([torch.linspace(0.5, 3, 60), torch.full((240,), 200.0)])
    labels = (torch.arange(300) % 4 == 0).long()  # 75 % of the sure rows are right
    loss = fc.AdaFocalLoss(num_bins=10)
    loss.update(logits, labels)
    assert (loss.edges[3:] == 1).all()
    assert torch.isfinite(loss.gamma).all()
    sure = math.exp(1 - 0.75)
    assert_close(loss.gamma[3:], torch.full((7,), sure, dtype=torch.float64), rtol=1e-12, atol=0)
    assert loss.gamma_at(torch.tensor([1.0], dtype=torch.float64)).item() == pytest.approx(sure)
    assert loss.history["count"].sum() == 300


def test_all_confidences_tied_is_still_well_defined():
    loss = fc.AdaFocalLoss(num_bins=5)
    loss.update(torch.zeros(20, 2), torch.zeros(20, dtype=torch.long))
    assert_close(loss.gamma, torch.full((5,), math.exp(0.5 - 1), dtype=torch.float64))


def test_a_checkpoint_resumes_to_the_same_bits():
    def train(loss, epochs):
        for epoch in epochs:
            loss.update(*predictions(seed=epoch))
        return loss

    whole = train(fc.AdaFocalLoss(), range(6))
    half = train(fc.AdaFocalLoss(), range(3))
    resumed = fc.AdaFocalLoss()
    resumed.load_state_dict(copy.deepcopy(half.state_dict()))
    train(resumed, range(3, 6))
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert resumed.history["gamma"].shape == (6, 15)


def test_the_state_fits_into_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    loss, other = fc.AdaFocalLoss(), fc.AdaFocalLoss()
    loss.update(*predictions())
    save_file({k: v.contiguous() for k, v in loss.state_dict().items()}, tmp_path / "loss.safetensors")
    other.load_state_dict(load_file(tmp_path / "loss.safetensors"))
    assert torch.equal(loss.gamma, other.gamma)


@pytest.mark.parametrize("move", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.float()])
def test_moving_the_model_to_half_precision_keeps_the_gammas_exact(move):
    loss = fc.AdaFocalLoss()
    loss.update(*predictions())
    before = loss.gamma.clone(), loss.edges.clone()
    moved = move(torch.nn.ModuleList([loss]))[0]
    assert torch.equal(moved.gamma, before[0])
    assert torch.equal(moved.edges, before[1])


def test_history_tells_every_update():
    loss = fc.AdaFocalLoss(num_bins=5)
    assert loss.history["gamma"].shape == (0, 5)
    gammas = []
    for epoch in range(3):
        loss.update(*predictions(seed=epoch))
        gammas.append(loss.gamma.clone())
    history = loss.history
    assert torch.equal(history["gamma"], torch.stack(gammas))
    assert history["count"].sum(1).tolist() == [200, 200, 200]
    assert torch.equal(history["upper_edge"][-1], loss.edges[1:])
    assert (history["confidence"] >= history["lower_edge"] - 1e-12).all()


BAD_UPDATES = [
    (
        lambda x, y: (x[:10], y[:10]),
        r"val_logits: an update needs at least as many validation rows as bins \(15\); got 10",
    ),
    (lambda x, y: (x * math.nan, y), "val_logits: every value must be finite; got nan"),
    (lambda x, y: (x, y + 9), r"labels: every label must lie in 0\.\.3"),
    (lambda x, y: (x, torch.softmax(x, 1)), "val_labels: must be class numbers"),
    (lambda x, y: (x, y[:-1]), "val_labels: for logits of shape"),
    (lambda x, y: (x[:, :1], y), "val_logits: needs at least two classes"),
    (lambda x, y: (x[0], y[0]), r"val_logits: must have shape \(N, K\)"),
]


@pytest.mark.parametrize(("spoil", "match"), BAD_UPDATES, ids=[str(k) for k in range(len(BAD_UPDATES))])
def test_a_bad_update_is_refused_and_leaves_the_state_alone(spoil, match):
    loss = fc.AdaFocalLoss()
    loss.update(*predictions())
    loss.accumulate(*predictions(seed=1))
    before, pending = copy.deepcopy(loss.state_dict()), [p.clone() for p in loss._pending]
    with pytest.raises(fc.InputError, match=match):
        loss.update(*spoil(*predictions()))
    for name, value in before.items():
        assert torch.equal(loss.state_dict()[name], value)
    assert all(torch.equal(a, b) for a, b in zip(pending, loss._pending, strict=True))


@pytest.mark.parametrize("gamma", [-2.0, 20.0])
def test_gamma_may_start_at_a_bound(gamma):
    assert (fc.AdaFocalLoss(gamma_init=gamma).gamma == gamma).all()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_bins": 0}, "num_bins: must be a whole number from 1; got 0"),
        ({"lam": 0.0}, "lam: must be positive"),
        ({"gamma_init": 30.0}, "gamma_init: must lie between the bounds"),
        ({"gamma_min": 1.0}, "gamma_min, gamma_max: must lie on both sides of 0"),
        ({"switch_at": 3.0}, "switch_at: must lie in"),
        ({"switch_at": 0.0}, "switch_at: must lie in"),
        ({"reduction": "x"}, "reduction: must be"),
        ({"weight": torch.tensor([-1.0, 1.0])}, "weight: must not be negative"),
    ],
)
def test_bad_settings_are_refused(options, match):
    with pytest.raises(fc.InputError, match=match):
        fc.AdaFocalLoss(**options)


def updated_state() -> dict[str, torch.Tensor]:
    loss = fc.AdaFocalLoss(num_bins=3)
    generator = torch.Generator().manual_seed(0)
    loss.update(torch.randn(60, 4, generator=generator), torch.randint(0, 4, (60,), generator=generator))
    return loss.state_dict()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("gamma", lambda value: value * torch.nan, "gamma: every saved value must be finite"),
        ("gamma", lambda value: value + torch.inf, "gamma: every saved value must be finite"),
        ("edges", lambda value: value * torch.nan, "edges: every saved value must be finite"),
        ("edges", lambda value: value.flip(0), "edges: must rise from bin to bin"),
        ("edges", lambda value: value + 1, r"edges: must rise from bin to bin, within \[0, 1\]"),
        ("gamma", lambda value: value[:2], r"gamma: must have the shape \(3,\), as num_bins is 3; got \(2,\)"),
        ("edges", lambda value: torch.tensor(0.5), r"edges: must have the shape \(4,\)"),
        ("gamma", lambda value: value.tolist(), "gamma: must have the shape .* got list"),
        ("_extra_state", lambda value: value * torch.nan, "_extra_state: every saved value must be finite"),
        ("_extra_state", lambda value: value[:, :, :2], r"_extra_state: must have the shape \(1, 3, 6\)"),
        ("_extra_state", lambda value: "history", "_extra_state: must have the shape"),
    ],
)
def test_a_state_that_would_spoil_training_is_not_loaded(name, change, said):
    state = updated_state()
    module = torch.nn.ModuleDict({"loss": fc.AdaFocalLoss(num_bins=3)})
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(fc.InputError, match=rf"^loss\.{said}"):
        module.load_state_dict({f"loss.{key}": change(value) if key == name else value for key, value in state.items()})
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_a_sound_state_is_loaded_and_one_of_calfocal_is_checked_too():
    state = updated_state()
    loss = fc.AdaFocalLoss(num_bins=3)
    loss.load_state_dict(state)
    assert torch.equal(loss.gamma, state["gamma"])
    other = fc.CalFocalLoss(num_bins=3)
    broken = {**other.state_dict(), "accuracy": torch.full((3,), torch.nan)}
    with pytest.raises(fc.InputError, match="accuracy: every saved value must be finite"):
        other.load_state_dict(broken)


# ---------------------------------------------------------------------- a loss that is never updated


def train(loss, steps):
    """The warnings of a plain loop."""
    logits, labels = predictions(8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            loss(logits.requires_grad_(), labels).backward()
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("kind", [fc.AdaFocalLoss, fc.CalFocalLoss])
def test_a_loss_that_is_never_updated_warns_once_after_an_epoch(kind):
    loss = kind(warn_after=10)
    assert train(loss, 10) == []  # an epoch may have ended just now, and the update may come
    (said,) = train(loss, 30)
    assert said.startswith(f"{kind.__name__} has made 10 training steps without an update")
    assert "update_from(val_loader, model)" in said
    assert train(loss, 30) == []


def test_without_a_number_it_warns_after_500_steps():
    loss = fc.AdaFocalLoss()
    assert train(loss, 500) == []
    assert len(train(loss, 1)) == 1


def test_the_warning_points_to_the_training_loop():
    loss, batch = fc.AdaFocalLoss(warn_after=1), predictions(8)
    loss(*batch)
    with pytest.warns(fc.InputWarning) as caught:
        loss(*batch)
    assert caught[0].filename == __file__


def test_evaluation_is_no_training_and_an_update_is_enough_for_good():
    loss, (logits, labels) = fc.AdaFocalLoss(num_bins=5, warn_after=3), predictions()
    with torch.no_grad():
        for _ in range(9):
            loss(logits, labels)
    assert train(loss, 3) == []
    loss.update(logits.detach(), labels)
    assert train(loss, 20) == []
    resumed = fc.AdaFocalLoss(num_bins=5, warn_after=3)
    resumed.load_state_dict(loss.state_dict())
    assert train(resumed, 20) == []
    assert train(copy.deepcopy(loss), 20) == []


def test_the_warning_can_be_left_out_and_its_number_is_checked():
    assert train(fc.AdaFocalLoss(warn_after=None), 600) == []
    for wrong in (0, 2.5):
        with pytest.raises(fc.InputError, match="warn_after: must be a number of steps from 1, or None"):
            fc.AdaFocalLoss(warn_after=wrong)


# ---------------------------------------------------------------------- what update_from reads


def test_update_from_reads_dictionaries_tuples_and_what_it_is_told():
    inputs, labels = predictions(dtype=torch.float32)
    expected = fc.AdaFocalLoss(num_bins=5)
    expected.update(2 * inputs, labels)

    def doubled(*, x):
        return SimpleNamespace(logits=2 * x)

    def gammas(batch, model, read=None):
        loss = fc.AdaFocalLoss(num_bins=5)
        loss.update_from([batch], model, read)
        return loss.gamma

    for found in (
        gammas({"x": inputs, "labels": labels}, doubled),
        gammas({"x": inputs, "label": labels}, doubled),
        gammas((inputs, inputs, labels), lambda a, b: a + b),
        gammas({"y": labels, "x": inputs}, doubled, lambda batch: ({"x": batch["x"]}, batch["y"])),
        gammas((labels, inputs), lambda x, factor: factor * x, lambda batch: ((batch[1],), {"factor": 2}, batch[0])),
    ):
        assert_close(found, expected.gamma, rtol=0, atol=0)
