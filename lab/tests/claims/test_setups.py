"""The set-ups that the papers print are those of the recipes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal_lab.catalog import catalog
from focalcal_lab.data import newsgroups
from focalcal_lab.data.splits import SplitSizes, divide
from focalcal_lab.data.synthetic import one_dimensional


def steps(name):
    """Epochs, batch size, learning rate and its milestones."""
    training = catalog()[name].training
    return training.epochs, training.batch_size, training.optimizer.lr, training.milestones


CIFAR = (350, 128, 0.1, [150, 250])
TINY = (100, 64, 0.1, [40, 60])


def test_cifar_of_mukhoti2020():
    found = [name for name in catalog() if name.startswith("mukhoti2020/cifar")]
    assert len(found) == 16
    for name in found:
        recipe = catalog()[name]
        assert steps(name) == CIFAR
        assert (recipe.training.optimizer.name, recipe.training.optimizer.momentum) == ("sgd", 0.9)
        assert recipe.training.lr_factor == 0.1
        assert recipe.data.options.get("augment", True) is True


def test_tiny_imagenet_of_mukhoti2020():
    assert steps("mukhoti2020/tiny-imagenet-resnet50") == TINY


def test_text_of_mukhoti2020():
    news, trees = (
        catalog()[name] for name in ("mukhoti2020/20newsgroups-gp-cnn+glove", "mukhoti2020/sst-binary-tree-lstm+glove")
    )
    assert (news.training.epochs, news.training.optimizer.name, news.training.optimizer.lr) == (50, "adam", 1e-3)
    assert news.training.optimizer.betas == (0.9, 0.999)
    assert (trees.training.epochs, trees.training.optimizer.name, trees.training.optimizer.lr) == (25, "adagrad", 0.05)
    assert trees.training.optimizer.weight_decay == 1e-4
    for recipe in (news, trees):
        assert recipe.training.select == "best"
        assert recipe.data.options["vectors"].startswith("glove")


def test_mmce_of_mukhoti2020():
    weights = {
        name: recipe.methods["mmce"].options["lam"]
        for name, recipe in catalog().items()
        if name.startswith("mukhoti2020/") and "mmce" in recipe.methods
    }
    assert len(weights) == 24
    for name, weight in weights.items():
        assert weight == (8.0 if "20newsgroups" in name or "sst" in name else 2.0)


def test_splits_of_mukhoti2020():
    train, val = divide(torch.arange(50_000) % 10, SplitSizes(), seed=0)
    assert (len(train), len(val)) == (45_000, 5_000)
    documents = newsgroups.Documents(["x"] * 19_997, np.zeros(19_997, np.int64), None, ("a",), "made")
    parts, _ = newsgroups.split_documents(documents, seed=0)
    assert tuple(map(len, parts)) == (15_098, 900, 3_999)


def test_recipes_of_ghosh2022():
    for name in (name for name in catalog() if name.startswith("ghosh2022/cifar")):
        assert steps(name) == CIFAR
    for name in (name for name in catalog() if name.startswith("ghosh2022/tiny-imagenet")):
        assert steps(name) == TINY
    for network in ("resnet50", "resnet110", "densenet121"):
        name = f"ghosh2022/imagenet-{network}"
        assert steps(name) == (90, 128, 0.01, [30, 60])
        optimizer = catalog()[name].training.optimizer
        assert (optimizer.name, optimizer.momentum, optimizer.weight_decay) == ("sgd", 0.9, 1e-4)
    bert = catalog()["ghosh2022/20newsgroups-bert-base"].training
    assert (bert.epochs, bert.batch_size) == (10, 32)
    assert (bert.optimizer.name, bert.optimizer.lr, bert.optimizer.weight_decay) == ("adamw", 2e-5, 0.01)


def test_selection_of_ghosh2022():
    best = {
        name for name, recipe in catalog().items() if recipe.paper == "ghosh2022" and recipe.training.select == "best"
    }
    assert {name.partition("+")[0] for name in best} == {
        "ghosh2022/tiny-imagenet-resnet50",
        "ghosh2022/tiny-imagenet-resnet110",
        "ghosh2022/20newsgroups-bert-base",
    }


def test_one_dimensional_of_charoenphakdee2021():
    recipe = catalog()["charoenphakdee2021/one-dimensional-mlp"]
    assert list(recipe.methods) == ["ce", "fl-1", "fl-5"]
    assert len(recipe.model.options["hidden"]) + 1 == 3
    data = one_dimensional(train_size=10, val_size=1, test_size=1)
    assert data.train.inputs.shape == (10, 1)
    assert data.facts["posterior"](data.train.inputs).shape == (10, 3)


def test_images_of_charoenphakdee2021():
    networks = {"resnet8", "resnet20", "resnet44", "resnet110"}
    for data, epochs, milestones in (("cifar10", 200, [80, 150]), ("svhn", 50, [25, 40])):
        for network in networks:
            recipe = catalog()[f"charoenphakdee2021/{data}-{network}"]
            assert (recipe.training.epochs, recipe.training.milestones, recipe.training.batch_size) == (
                epochs,
                milestones,
                128,
            )
            optimizer = recipe.training.optimizer
            assert (optimizer.lr, optimizer.momentum, optimizer.weight_decay) == (0.1, 0.9, 5e-4)
            assert recipe.measurement.num_bins == 10
            assert [each for each in recipe.methods if "+" not in each] == ["ce", "fl-1", "fl-2", "fl-3"]
            smoothed = [each for name, each in recipe.methods.items() if name.endswith("+ls")]
            assert [each.options["label_smoothing"] for each in smoothed] == [0.1] * 4


def test_ts_fl_has_the_lowest_focal_loss_on_validation_data():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(500, 4, generator=generator, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=0.6 * logits).sample()
    labels[:100] = torch.randint(4, (100,), generator=generator)
    found = fc.TemperatureScaling("focal", gamma=2.0).fit(logits, labels)
    grid = np.linspace(0.1, 6, 1000)
    losses = [float(fc.focal_loss(logits / t, labels, gamma=2.0)) for t in grid]
    assert found.temperature_ == pytest.approx(grid[int(np.argmin(losses))], abs=0.01)
    assert found.temperature_ != pytest.approx(fc.TemperatureScaling("nll").fit(logits, labels).temperature_, abs=0.05)


def test_recipes_of_komisarenko2024():
    for data, expected in (("cifar10", CIFAR), ("cifar100", CIFAR), ("tiny-imagenet", TINY)):
        recipe = catalog()[f"komisarenko2024/{data}-resnet50"]
        assert steps(recipe.name) == expected
        optimizer = recipe.training.optimizer
        assert (optimizer.momentum, optimizer.weight_decay, recipe.training.select) == (0.9, 5e-4, "last")
        assert {f"fl-{gamma}" for gamma in (1, 2, 3, 5, 7)} < set(recipe.methods)
        assert recipe.model.name == "resnet50"
