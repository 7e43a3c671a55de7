"""Every recipe builds its data, its network and its loss, and makes one step; runs of each kind go to their end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import Dataset

from focalcal.metrics import ood_auroc
from focalcal_lab.catalog import catalog
from focalcal_lab.recipe import Recipe
from focalcal_lab.run import begin, dry_run, resume
from focalcal_lab.run_folder import RunSettings
from focalcal_lab.training_setup import load_for, shortened
from lab.tests.tiny import tokenizer, write_data

ROOT = Path(__file__).resolve().parents[2]


class First(Dataset):
    """The first rows of a data set, so that a network for a GPU makes its step in a second."""

    def __init__(self, whole, number):
        self.whole, self.number = whole, min(number, len(whole))

    def __len__(self):
        return self.number

    def __getitems__(self, indices):
        return self.whole.__getitems__(indices)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    written: dict[str, Path | None] = {}

    def folder(name: str) -> str | None:
        if name not in written:
            written[name] = write_data(name, tmp_path_factory.mktemp(name) / "data")
        return None if written[name] is None else str(written[name])

    return folder


def offline(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with what the hub would give made here: BERT's tokens and weights; and three classes of 200."""
    if recipe.data.name == "tiny-imagenet":
        data = recipe.data.model_copy(update={"options": {**recipe.data.options, "num_classes": 3}})
        return recipe.model_copy(update={"data": data})
    if recipe.model.name != "bert":
        return recipe
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    data = recipe.data.model_copy(update={"options": {**recipe.data.options, "tokenizer": str(tokenizer(folder))}})
    model = recipe.model.model_copy(update={"options": {"config": small}})
    return recipe.model_copy(update={"data": data, "model": model})


def test_recipes_are_found_by_a_recursive_search():
    files = list((ROOT / "lab/src/focalcal_lab/recipes").rglob("*.yaml"))
    assert len(files) >= 20
    assert len(catalog()) >= 60
    assert {name.partition("/")[0] for name in catalog()} >= {
        "mukhoti2020",
        "ghosh2022",
        "charoenphakdee2021",
        "komisarenko2024",
        "cpu",
        "own",
    }


# One recipe for each network on each data set, of every task; those that take no time are run by `make test`.
KINDS = list(
    {
        repr((each.data.name, each.model, each.training.optimizer.name)): name for name, each in catalog().items()
    }.values()
)
QUICK = ("cpu/digits", "cpu/one-dimensional", "cpu/20newsgroups-gp-cnn", "cpu/sst-binary-tree-lstm")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in KINDS if name not in QUICK)]
)
def test_a_recipe_makes_a_dry_run(name, folders, tmp_path):
    recipe = offline(catalog()[name], tmp_path)
    data = load_for(recipe, folders(recipe.data.name), 0)
    data = replace(data, train=First(data.train, 32 if name in QUICK else 2))
    for method in list(recipe.methods)[: None if name == "cpu/digits" else 1]:
        assert dry_run(recipe, method, data=data) > 0


def test_what_a_dry_run_names_must_exist():
    with pytest.raises(Exception, match=r"method: cpu/digits has ce, .*; got 'sgd'"):
        dry_run(catalog()["cpu/digits"], "sgd")


# One tiny run of each kind of data, network and measurement, from the loader to the result.
RUNS = {
    "cpu/cifar10-resnet8": "flsd-53",  # out of distribution, and no one gamma
    "cpu/cifar10-s-resnet8": "fl-2",  # every calibrator
    "ghosh2022/cifar10-resnet110": "adafocal",  # out of distribution
    "charoenphakdee2021/cifar10-s-resnet8": "fl-2",  # Psi^gamma
    "komisarenko2024/cifar10-resnet50": "fl-3",
    "mukhoti2020/20newsgroups-gp-cnn": "mmce",  # best epoch
    "mukhoti2020/sst-binary-tree-lstm": "flsc-531",
    "ghosh2022/20newsgroups-bert-base": "adafocal-10",
    "cpu/toy-translation": "fl-1",
    "cpu/one-dimensional": "adafocal",
}


def small(recipe: Recipe) -> Recipe:
    """The recipe with a network and a grid that take no time."""
    networks = {
        "resnet110-bottleneck": {"width": 4, "blocks": [1, 1, 1, 1]},
        "resnet50": {"width": 4, "blocks": [1, 1, 1, 1]},
    }
    model = recipe.model.model_copy(update={"options": {**recipe.model.options, **networks.get(recipe.model.name, {})}})
    training = recipe.training.model_copy(update={"batch_size": min(64, recipe.training.batch_size)})
    return shortened(recipe.model_copy(update={"model": model, "training": training}), 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_tiny_run_of_each_kind_goes_to_its_end(name, folders, tmp_path):
    recipe = small(offline(catalog()[name], tmp_path / "hub"))
    root = folders(recipe.data.name)
    if recipe.measurement.out_of_distribution:  # all sets below one folder
        root = str(tmp_path / "all")
        for each in ("cifar10", *(foreign.data.name for foreign in recipe.measurement.out_of_distribution)):
            write_data(each, tmp_path / "all" / each)
    if name == "cpu/toy-translation":
        options = {**recipe.data.options, "num_train": 200, "num_val": 20, "num_test": 20}
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"options": options})})
    trainer = {"accelerator": "cpu", "devices": 1}
    place = begin(
        recipe, tmp_path / "run", RunSettings(RUNS[name], 0, recipe.digest(RUNS[name]), root, 1, None, trainer)
    )
    result = resume(place.path)
    phases = {row.phase for row in result.rows}
    wishes = recipe.measurement.calibrators
    if not RUNS[name].startswith(("ce", "fl-")):  # a loss without one gamma has no Psi^gamma
        wishes = [wish for wish in wishes if "trained" not in wish.options.values()]
    wanted = {wish.phase for wish in wishes}
    assert phases == {"pre"} | wanted
    assert {row.against for row in result.rows} == {"", *(each.name for each in recipe.measurement.out_of_distribution)}
    assert result.data
    for each in recipe.measurement.out_of_distribution:
        known, unknown = (
            np.load(place.file("predictions.npz")),
            np.load(place.file("out_of_distribution", f"{each.name}.npz")),
        )
        expected = ood_auroc(known["logits"][known["split"] == "test"].astype(float), unknown["logits"].astype(float))
        measured = {(row.phase, row.against): row.value for row in result.rows if row.metric == "auroc"}
        assert measured["pre", each.name] == pytest.approx(float(expected), abs=1e-9)
    if recipe.task == "classification":
        assert (place.path / "predictions.npz").exists()
        assert {path.stem.partition("-")[0] for path in (place.path / "calibrators").iterdir()} == {
            phase.partition("-")[0] for phase in wanted
        }
    else:
        assert {row.metric for row in result.rows} >= {"ece_ew", "bleu", "nll"}
        assert {point["temperature"] for point in result.extra["curve"]} >= set(recipe.measurement.temperatures)
