from __future__ import annotations

import math
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from focalcal import noisy_digits
from focalcal.errors import InputError, MissingExtraError
from focalcal_lab.models import make_model
from focalcal_lab.models.resnet import average_pool, initialise

CIFAR, TINY, IMAGENET = ({"channels": 3, "size": size} for size in (32, 64, 224))

# Small networks of each family, quick enough to be trained here.
SMALL = {
    "thin resnet, shortcut A": ("resnet8", CIFAR, {"width": 4}),
    "thin resnet, shortcut B": ("resnet20", CIFAR, {"width": 4, "shortcut": "B"}),
    "deep resnet": ("resnet50", CIFAR, {"width": 4, "blocks": [2, 1, 2, 1]}),
    "deep resnet, quarters": ("resnet110-bottleneck", TINY, {"width": 4, "blocks": [1, 1, 2, 1]}),
    "deep resnet, large images": ("resnet50", {"channels": 3, "size": 128}, {"width": 4, "blocks": [1, 1, 1, 1]}),
    "wide resnet": ("wrn-26-10", CIFAR, {"depth": 14, "width": 2, "stem_width": 4}),
    "wide resnet, as released": (
        "wrn-26-10",
        CIFAR,
        {"depth": 14, "width": 2, "stem_width": 4, "preactivation": False},
    ),
    "densenet": ("densenet121", CIFAR, {"blocks": [2, 3, 2, 1], "growth": 4}),
    "densenet, large images": ("densenet121", {"channels": 3, "size": 128}, {"blocks": [1, 2, 1], "growth": 4}),
    "linear": ("linear", {"features": 5}, {}),
    "one logit": ("linear", {"features": 5}, {"one_logit": True}),
    "mlp": ("mlp", {"features": 5}, {"hidden": [7, 6], "activation": "tanh"}),
    "digits": ("digits-cnn", {"channels": 1, "size": 8}, {"width": 4, "hidden": 9}),
}


def small(family: str, num_classes: int = 5) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small network in float64 with weights, inputs and labels from numpy: torch's draws depend on the processor."""
    name, facts, options = SMALL[family]
    num_classes = 2 if family == "one logit" else num_classes
    network = make_model(name, num_classes, facts, **options).double()
    generator = np.random.default_rng(0)
    for parameter in network.parameters():
        fan = parameter[0].numel() if parameter.dim() > 1 else 1
        drawn = generator.standard_normal(tuple(parameter.shape))
        centre = 0 if parameter.dim() > 1 else 1  # a normalisation's scale is near 1
        parameter.data = torch.from_numpy(centre + drawn * (math.sqrt(2 / fan) if fan > 1 else 0.1))
    shape = (facts["features"],) if "features" in facts else (facts["channels"], facts["size"], facts["size"])
    inputs = torch.from_numpy(generator.standard_normal((4, *shape)))
    return network, inputs, torch.from_numpy(generator.integers(num_classes, size=4))


# Counts


def count(name: str, num_classes: int, facts: dict[str, int], **options: object) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make_model(name, num_classes, facts, **options).parameters())


@pytest.mark.parametrize(
    ("name", "num_classes", "facts", "millions", "digits"),
    [
        ("resnet20", 10, CIFAR, 0.27, 2),  # He et al. 2016, Table 6
        ("resnet44", 10, CIFAR, 0.66, 2),  # the same
        ("resnet110", 10, CIFAR, 1.7, 1),  # the same
        ("wrn-26-10", 10, CIFAR, 36.5, 1),  # Zagoruyko and Komodakis 2016, Table 4, there WRN-28-10
        ("resnet50", 1000, IMAGENET, 25.557032, 6),  # torchvision's list of models
        ("densenet121", 1000, IMAGENET, 7.978856, 6),  # the same
        ("densenet121", 10, CIFAR, 7.0, 1),
    ],
)
def test_parameters_are_as_many_as_published(name, num_classes, facts, millions, digits):
    assert round(count(name, num_classes, facts) / 1e6, digits) == millions


def bottleneck_parameters(blocks: list[int], num_classes: int, *, stem: int, features: int) -> int:
    """He et al.'s Table 1, added up: each stage's 1x1, 3x3, 1x1 convolutions with two numbers a map for their norm."""
    total, inputs = stem * 64 + 128, 64
    for number, width in zip(blocks, (64, 128, 256, 512), strict=True):
        outputs = 4 * width
        total += inputs * outputs + 2 * outputs  # the first block's shortcut
        for _ in range(number):
            total += inputs * width + 9 * width**2 + width * outputs + 2 * (width + width + outputs)
            inputs = outputs
    return total + (features + 1) * num_classes


def test_the_deep_networks_have_the_parameters_of_their_tables():
    """Tiny-ImageNet's head sees 2 x 2 averages, as in the released code of mukhoti2020."""
    of = bottleneck_parameters
    assert count("resnet50", 10, CIFAR) == of([3, 4, 6, 3], 10, stem=27, features=2048)
    assert count("resnet50", 200, TINY) == of([3, 4, 6, 3], 200, stem=27, features=8192)
    assert count("resnet50", 1000, IMAGENET) == of([3, 4, 6, 3], 1000, stem=147, features=2048)
    assert count("resnet110-bottleneck", 100, CIFAR) == of([3, 4, 26, 3], 100, stem=27, features=2048)


def test_shortcut_a_has_no_parameters_and_b_has_two_convolutions():
    """He et al. use A for CIFAR; both round to the published millions."""
    assert count("resnet8", 10, CIFAR) == 75290
    assert count("resnet8", 10, CIFAR, shortcut="B") == 75290 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)


def test_the_wide_network_as_released_has_three_normalisations_more():
    """Behind the 1x1 convolutions; moving the others from before to behind their convolutions changes no count."""
    released, original = (count("wrn-26-10", 10, CIFAR, preactivation=value) for value in (False, True))
    assert released - original == 2 * (160 + 320 + 640)


# Contract


@pytest.mark.parametrize("family", SMALL)
def test_logits_have_one_column_a_class_and_gradients_reach_every_parameter(family):
    for num_classes in (2, 7):
        network, inputs, labels = small(family, num_classes)
        logits = network(inputs)
        assert logits.shape == (4, 2 if family == "one logit" else num_classes)
        F.cross_entropy(logits, labels).backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


@pytest.mark.parametrize("family", SMALL)
def test_the_head_is_the_last_linear_layer_and_gives_the_logits(family):
    network, inputs, _ = small(family)
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert network.head is linear[-1]
    seen = []
    network.head.register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
    logits = network(inputs)
    (features, output) = seen[0]
    assert features.shape == (4, network.head.in_features)
    assert torch.equal(logits[:, -output.shape[1] :], output)
    names = list(network.state_dict())
    assert len(names) == len({tensor.data_ptr() for tensor in network.state_dict().values()})  # none is saved twice


@pytest.mark.parametrize("family", SMALL)
def test_in_evaluation_each_row_is_by_itself(family):
    network, inputs, _ = small(family)
    network.eval()
    with torch.no_grad():
        together = network(inputs)
        apart = torch.cat([network(row) for row in inputs.split(1)])
        torch.testing.assert_close(together, apart, rtol=1e-10, atol=1e-10)
        if inputs.dim() == 4:
            strided = network.to(memory_format=torch.channels_last)(inputs.to(memory_format=torch.channels_last))
            torch.testing.assert_close(together, strided, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (64, 3)])
@pytest.mark.parametrize("family", [family for family, (_, facts, _) in SMALL.items() if "size" in facts])
def test_images_of_the_usual_shapes_are_taken(family, size, channels):
    name, _, options = SMALL[family]
    network = make_model(name, 3, {"channels": channels, "size": size}, **options).eval()
    assert network(torch.zeros(1, channels, size, size)).shape == (1, 3)


# The forward pass, by hand


class ByHand:
    """Computes with a network's numbers and formulas of the papers, without its code."""

    def __init__(self, network: nn.Module) -> None:
        self.numbers, self.training = network.state_dict(), network.training

    def conv(self, maps, name, stride=1):
        weight = self.numbers[f"{name}.weight"]
        return F.conv2d(maps, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(self, maps, name):
        mean, variance = (self.numbers[f"{name}.running_{part}"] for part in ("mean", "var"))
        if self.training:
            mean, variance = maps.mean((0, 2, 3)), maps.var((0, 2, 3), unbiased=False)
        scale, shift = self.numbers[f"{name}.weight"], self.numbers[f"{name}.bias"]
        column = (1, -1, 1, 1)
        standard = (maps - mean.reshape(column)) / torch.sqrt(variance.reshape(column) + 1e-5)
        return standard * scale.reshape(column) + shift.reshape(column)

    def head(self, features):
        return features @ self.numbers["head.weight"].T + self.numbers["head.bias"]

    def has(self, name):
        return any(key.startswith(name + ".") for key in self.numbers)

    def stem(self, maps, *, large):
        maps = self.norm(self.conv(maps, "stem.0", 2 if large else 1), "stem.1").clamp(min=0)
        return F.max_pool2d(maps, 3, 2, 1) if large else maps


def resnet_by_hand(network, images, blocks, *, convs, large=False, grid=1):
    hand = ByHand(network)
    maps = hand.stem(images, large=large)
    for stage, number in enumerate(blocks):
        for block in range(number):
            at, stride = f"stages.{stage}.{block}", 2 if stage and not block else 1
            out = maps
            for conv in range(1, convs + 1):
                here = stride if conv == (2 if convs == 3 else 1) else 1  # bottlenecks halve at their 3x3 convolution
                out = hand.norm(hand.conv(out, f"{at}.conv{conv}", here), f"{at}.norm{conv}")
                out = out.clamp(min=0) if conv < convs else out
            if hand.has(f"{at}.shortcut"):
                maps = hand.norm(hand.conv(maps, f"{at}.shortcut.0", stride), f"{at}.shortcut.1")
            elif out.shape != maps.shape:
                around = torch.zeros_like(out)
                around[:, : maps.shape[1]] = maps[:, :, ::2, ::2]
                maps = around
            maps = (out + maps).clamp(min=0)
    cells = [cell for band in maps.chunk(grid, dim=2) for cell in band.chunk(grid, dim=3)]
    return hand.head(torch.stack([cell.mean((2, 3)) for cell in cells], dim=2).flatten(1))


def wide_resnet_by_hand(network, images, blocks):
    hand = ByHand(network)
    maps = hand.conv(images, "stem")
    for stage in range(3):
        for block in range(blocks):
            at, stride = f"stages.{stage}.{block}", 2 if stage and not block else 1
            active = hand.norm(maps, f"{at}.norm1").clamp(min=0)
            out = hand.norm(hand.conv(active, f"{at}.conv1", stride), f"{at}.norm2").clamp(min=0)
            around = maps if block else hand.conv(active, f"{at}.shortcut", stride)
            maps = around + hand.conv(out, f"{at}.conv2")
    return hand.head(hand.norm(maps, "norm").clamp(min=0).mean((2, 3)))


def densenet_by_hand(network, images, blocks, *, large=False):
    hand = ByHand(network)
    maps = hand.stem(images, large=True) if large else hand.conv(images, "stem")
    at = 0
    for block, number in enumerate(blocks):
        if block:
            half = hand.conv(hand.norm(maps, f"blocks.{at}.norm").clamp(min=0), f"blocks.{at}.conv")
            assert half.shape[1] == maps.shape[1] // 2
            maps = (half[:, :, ::2, ::2] + half[:, :, 1::2, ::2] + half[:, :, ::2, 1::2] + half[:, :, 1::2, 1::2]) / 4
            at += 1
        seen = [maps]
        for _ in range(number):
            new = hand.conv(hand.norm(torch.cat(seen, 1), f"blocks.{at}.norm1").clamp(min=0), f"blocks.{at}.conv1")
            seen.append(hand.conv(hand.norm(new, f"blocks.{at}.norm2").clamp(min=0), f"blocks.{at}.conv2"))
            at += 1
        maps = torch.cat(seen, 1)
    return hand.head(hand.norm(maps, "norm").clamp(min=0).mean((2, 3)))


BY_HAND = {
    "thin resnet, shortcut A": lambda *of: resnet_by_hand(*of, [1, 1, 1], convs=2),
    "thin resnet, shortcut B": lambda *of: resnet_by_hand(*of, [3, 3, 3], convs=2),
    "deep resnet": lambda *of: resnet_by_hand(*of, [2, 1, 2, 1], convs=3),
    "deep resnet, quarters": lambda *of: resnet_by_hand(*of, [1, 1, 2, 1], convs=3, grid=2),
    "deep resnet, large images": lambda *of: resnet_by_hand(*of, [1, 1, 1, 1], convs=3, large=True),
    "wide resnet": lambda *of: wide_resnet_by_hand(*of, 2),
    "wide resnet, as released": lambda *of: resnet_by_hand(*of, [2, 2, 2], convs=2),
    "densenet": lambda *of: densenet_by_hand(*of, [2, 3, 2, 1]),
    "densenet, large images": lambda *of: densenet_by_hand(*of, [1, 2, 1], large=True),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("family", BY_HAND)
def test_logits_are_those_computed_by_hand(family, training):
    network, images, _ = small(family)
    with torch.no_grad():
        network(images)  # so that the running statistics are not 0 and 1
        network.train(training)
        by_hand = BY_HAND[family](network, images)
        torch.testing.assert_close(network(images), by_hand, rtol=1e-9, atol=1e-9)


def test_small_networks_are_those_computed_by_hand():
    network, rows, _ = small("mlp")
    first, second, last = (module for module in network if isinstance(module, nn.Linear))
    hidden = torch.tanh(torch.tanh(rows @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    torch.testing.assert_close(network(rows), hidden @ last.weight.T + last.bias)
    network, rows, _ = small("one logit")
    assert [tuple(parameter.shape) for parameter in network.parameters()] == [(1, 5)]
    probs = network(rows).softmax(1)
    torch.testing.assert_close(probs[:, 1], torch.sigmoid(rows @ network.head.weight[0]))


# Training


# Losses before the first step, after it, and after the second.
RECORDED = {
    "thin resnet, shortcut A": [5.02793136, 4.7523575, 4.28924233],
    "thin resnet, shortcut B": [4.32333247, 3.64549218, 2.37034527],
    "deep resnet": [3.22917279, 1.99651301, 1.6651165],
    "deep resnet, quarters": [4.04918293, 1.9676822, 1.00560153],
    "deep resnet, large images": [3.66794052, 2.0668301, 0.957495928],
    "wide resnet": [2.49796674, 2.39523234, 2.21081818],
    "wide resnet, as released": [2.02253591, 1.81971188, 1.44004842],
    "densenet": [2.48991303, 2.41359844, 2.27859826],
    "densenet, large images": [1.7537102, 1.72924062, 1.68399637],
    "linear": [1.26500348, 1.25439913, 1.23447647],
    "one logit": [0.606115396, 0.605054083, 0.603043586],
    "mlp": [1.92114833, 1.9166967, 1.9082669],
    "digits": [1.8245495, 1.45027327, 1.21016057],
}


@pytest.mark.parametrize("family", SMALL)
def test_two_steps_of_training_give_the_recorded_losses(family):
    network, inputs, labels = small(family)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    losses = []
    for _ in range(3):
        loss = F.cross_entropy(network(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]
    assert losses == pytest.approx(RECORDED[family], rel=1e-6)


def test_dropout_acts_in_training_only():
    options = {"depth": 8, "width": 1, "stem_width": 4}
    network = make_model("wrn-26-10", 3, CIFAR, dropout=0.5, **options)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))
    without = make_model("wrn-26-10", 3, CIFAR, **options)
    assert torch.equal(without(images), without(images))


# Initialisation


def convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d)]


@pytest.mark.parametrize(
    ("name", "facts", "options", "he"),
    [
        ("resnet20", CIFAR, {}, True),
        ("resnet50", CIFAR, {"width": 32, "blocks": [1, 1, 1, 1]}, False),  # the released code leaves torch's
        ("resnet50", TINY, {"width": 32, "blocks": [1, 1, 1, 1]}, True),
        ("resnet50", CIFAR, {"width": 32, "blocks": [1, 1, 1, 1], "initialisation": "he"}, True),
        ("wrn-26-10", CIFAR, {"depth": 8, "width": 4}, True),
        ("wrn-26-10", CIFAR, {"depth": 8, "width": 4, "preactivation": False}, True),
        ("densenet121", CIFAR, {"blocks": [2, 2]}, False),
        ("densenet121", IMAGENET, {"blocks": [2, 2]}, True),
    ],
)
def test_weights_are_drawn_as_the_original_does(name, facts, options, he):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = make_model(name, 10, facts, **options)
    for conv in convolutions(network):
        kernel = conv.kernel_size[0] ** 2
        variance = 2 / (kernel * conv.out_channels) if he else 1 / (3 * kernel * conv.in_channels)
        # The mean square of n draws strays by sqrt(2/n) of the variance; five times that.
        assert conv.weight.square().mean().item() == pytest.approx(variance, rel=5 * math.sqrt(2 / conv.weight.numel()))
        if not he:
            assert conv.weight.abs().max() <= math.sqrt(3 * variance)


def test_the_demo_still_trains_the_network_that_it_always_did():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        now, after_now = noisy_digits.make_network().state_dict(), torch.rand(1)
        torch.manual_seed(3)
        before = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 162),
            nn.ReLU(),
            nn.Linear(162, 10),
        ).state_dict()
        after_before = torch.rand(1)
    assert list(now) == list(before)
    assert all(torch.equal(now[name], before[name]) for name in now)
    assert torch.equal(after_now, after_before)


# Bad input


@pytest.mark.parametrize(
    ("name", "num_classes", "facts", "options", "message"),
    [
        ("resnet8", 10, {}, {}, r"facts\['channels'\]: must be a whole number; got None"),
        ("resnet8", 10, {"channels": 3, "size": 2.5}, {}, r"facts\['size'\]: must be a whole number; got 2.5"),
        ("resnet8", 1, CIFAR, {}, "num_classes: must be at least 2; got 1"),
        ("resnet8", 10, {"channels": 3, "size": 3}, {}, "must be at least 4 here; got 3. Resize"),
        ("resnet8", 10, CIFAR, {"shortcut": "C"}, "shortcut: must be A"),
        ("resnet8", 10, CIFAR, {"width": 0}, "widths: needs a number above 0"),
        ("resnet50", 10, {"channels": 3, "size": 7}, {}, "must be at least 8 here; got 7"),
        ("resnet50", 10, {"channels": 3, "size": 32}, {"stem": "7x7", "grid": 2}, "must be at least 64 here; got 32"),
        ("resnet50", 10, {"channels": 3, "size": 66}, {}, "grid: must divide the last maps, 9 x 9 .*; got 2. Try 1."),
        ("resnet50", 10, CIFAR, {"stem": "5x5"}, "stem: must be 3x3 or 7x7"),
        ("resnet50", 10, CIFAR, {"initialisation": "none"}, "initialisation: must be he or torch"),
        ("resnet50", 10, CIFAR, {"blocks": [1, 0, 1, 1]}, "blocks: needs a number above 0"),
        ("wrn-26-10", 10, CIFAR, {"depth": 28}, r"depth: must be 6n \+ 2"),
        ("wrn-26-10", 10, CIFAR, {"dropout": 1.0}, r"dropout: must lie in \[0, 1\)"),
        ("wrn-26-10", 10, CIFAR, {"dropout": 0.3, "preactivation": False}, "dropout: must be 0 without"),
        ("densenet121", 10, {"channels": 3, "size": 7}, {}, "must be at least 8 here; got 7"),
        ("densenet121", 10, CIFAR, {"compression": 0}, r"compression: must lie in \(0, 1\]"),
        ("mlp", 10, {"features": 0}, {}, r"facts\['features'\]: must be a whole number"),
        ("mlp", 10, {"features": 2}, {"activation": "gelu"}, "activation: must be one of relu, tanh; got 'gelu'"),
        ("mlp", 10, {"features": 2}, {"hidden": [0]}, "hidden: every layer needs"),
        ("linear", 3, {"features": 2}, {"one_logit": True}, "one_logit: needs exactly two classes; got 3"),
        ("digits-cnn", 3, {"channels": 1, "size": 1}, {}, "must be at least 2 here; got 1"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(name, num_classes, facts, options, message):
    with pytest.raises(InputError, match=message):
        make_model(name, num_classes, facts, **options)


@pytest.mark.slow
def test_the_smallest_images_do_work():
    for name, size in (("resnet8", 4), ("wrn-26-10", 4), ("resnet50", 8), ("densenet121", 8)):
        with torch.device("meta"):
            network = make_model(name, 2, {"channels": 3, "size": size})
            assert network(torch.zeros(2, 3, size, size)).shape == (2, 2)


def test_average_pool_is_the_mean_of_each_cell():
    maps = torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.stack([maps[:, :, rows, columns].mean((2, 3)) for rows, columns in CELLS], dim=2)
    torch.testing.assert_close(average_pool(maps, 2), expected.flatten(1))
    torch.testing.assert_close(average_pool(maps), F.adaptive_avg_pool2d(maps, 1).flatten(1))


CELLS = [(rows, columns) for rows in (slice(0, 3), slice(3, 6)) for columns in (slice(0, 2), slice(2, 4))]


def test_initialise_leaves_everything_but_convolutions():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    initialise(network, "torch")
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    initialise(network, "he")
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"0.weight"}


# timm and torchvision, neither of which need be installed: stand-ins with their signatures


class Pooled(nn.Module):
    """A head that, like many of timm's, is more than its linear layer."""

    def __init__(self, inputs, num_classes):
        super().__init__()
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, maps):
        return self.fc(maps.mean((2, 3)))


class TimmNet(nn.Module):
    def __init__(self, num_classes, in_chans):
        super().__init__()
        self.body, self.head = nn.Conv2d(in_chans, 6, 3), Pooled(6, num_classes)
        self.unused = nn.Linear(6, 6)

    def get_classifier(self):
        return self.head.fc

    def forward(self, images):
        return self.head(self.body(images))


class VisionNet(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.features, self.classifier = nn.Conv2d(3, 4, 3), nn.Sequential(nn.Dropout(), nn.Linear(4, num_classes))

    def forward(self, images):
        return self.classifier(self.features(images).mean((2, 3)))


@pytest.fixture
def libraries(monkeypatch):
    """Puts stand-ins for the named libraries in place; all others count as not installed. Gives what was called."""
    calls = []

    def create_model(name, pretrained=False, *, num_classes, in_chans):
        calls.append(("timm", name, pretrained))
        return TimmNet(num_classes, in_chans)

    def get_model(name, weights=None, num_classes=1000):
        assert weights is None or num_classes == 1000, "torchvision refuses other classes than those of its weights"
        calls.append(("torchvision", name, weights))
        return {"vision": VisionNet, "squeezed": lambda n: nn.Conv2d(3, n, 1), "odd": lambda n: nn.Linear(3, n + 1)}[
            name
        ](num_classes)

    timm, models = types.ModuleType("timm"), types.ModuleType("torchvision.models")
    timm.create_model, timm.is_model = create_model, lambda name: name in ("both", "pooled")
    models.get_model = get_model
    models.list_models = lambda module=None: ["both", "vision", "squeezed", "odd"] if module is models else ["faster"]

    def install(*names):
        monkeypatch.setitem(sys.modules, "timm", timm if "timm" in names else None)
        monkeypatch.setitem(sys.modules, "torchvision.models", models if "torchvision" in names else None)
        monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
        return calls

    return install


def test_timms_networks_come_with_the_linear_layer_in_their_head(libraries):
    calls = libraries("timm", "torchvision")
    network = make_model("imagenet", 7, {"channels": 1, "size": 16}, architecture="pooled", pretrained=True)
    assert network(torch.zeros(2, 1, 16, 16)).shape == (2, 7)
    assert network.head is network.network.head.fc
    assert network.head.out_features == 7
    assert calls == [("timm", "pooled", True)]


def test_torchvisions_networks_get_a_fresh_head_for_other_classes_than_their_weights(libraries):
    calls = libraries("timm", "torchvision")
    for num_classes, pretrained in ((7, False), (7, True), (1000, True)):
        network = make_model("imagenet", num_classes, CIFAR, architecture="vision", pretrained=pretrained)
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, num_classes)
        assert network.head is network.network.classifier[1]
    assert [weights for _, _, weights in calls] == [None, "DEFAULT", "DEFAULT"]


def test_the_library_is_the_first_that_has_the_network_or_the_one_asked_for(libraries):
    calls = libraries("timm", "torchvision")
    make_model("imagenet", 7, CIFAR, architecture="both")
    with pytest.raises(KeyError, match="both"):  # the stand-in lists it but cannot build it
        make_model("imagenet", 7, CIFAR, architecture="both", library="torchvision")
    assert [library for library, _, _ in calls] == ["timm", "torchvision"]
    calls = libraries("torchvision")
    make_model("imagenet", 7, CIFAR, architecture="vision")
    assert calls[-1][0] == "torchvision"


def test_missing_libraries_and_unknown_networks_are_named(libraries):
    libraries()
    with pytest.raises(MissingExtraError, match="needs timm or torchvision: pip install timm"):
        make_model("imagenet", 7, CIFAR, architecture="vision")
    libraries("torchvision")
    with pytest.raises(MissingExtraError, match="needs timm: pip install timm"):
        make_model("imagenet", 7, CIFAR, architecture="vision", library="timm")
    for wrong, message in {
        "faster": "architecture: must be a network of torchvision; got 'faster'",
        "squeezed": "must end with a linear layer; got none in Conv2d",
        "odd": "last linear layer must give the logits; got 8 outputs for 7 classes",
    }.items():
        with pytest.raises(InputError, match=message):
            make_model("imagenet", 7, CIFAR, architecture=wrong)
    with pytest.raises(InputError, match="must be 3 for torchvision's networks; got 1"):
        make_model("imagenet", 7, {"channels": 1, "size": 32}, architecture="vision")
    with pytest.raises(InputError, match="library: must be timm or torchvision; got 'keras'"):
        make_model("imagenet", 7, CIFAR, architecture="vision", library="keras")


def test_a_network_with_several_outputs_in_training_is_refused(libraries, monkeypatch):
    libraries("torchvision")
    monkeypatch.setattr(VisionNet, "aux_logits", True, raising=False)
    with pytest.raises(InputError, match="must give one set of logits; got VisionNet"):
        make_model("imagenet", 7, CIFAR, architecture="vision")
