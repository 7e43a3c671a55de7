"""Recipes: what ships is whole and right, what is malformed is refused with its file and field, every number maps."""

from __future__ import annotations

import inspect
import itertools
import textwrap
import zipfile
from collections import Counter
from importlib import import_module, resources
from pathlib import Path

import pytest

from focalcal.calibrators import Calibrator
from focalcal.errors import InputError
from focalcal.losses.table import make_loss
from focalcal_lab import catalog as module
from focalcal_lab.catalog import catalog, find_recipe, nearest_recipes, read_recipes, recipe_source, recipe_yaml
from focalcal_lab.data import DATA
from focalcal_lab.measurement import MEASURES, UNSCALED, recipe_calibrator
from focalcal_lab.models import MODELS
from focalcal_lab.papers import published_results
from focalcal_lab.published_numbers import measured_by, numbers_of, published_numbers, published_tables
from focalcal_lab.recipe import Recipe

NAMES = sorted(catalog())
# One recipe of every file.
PLAIN = list({recipe_source(name): recipe for name, recipe in catalog().items()}.values())
SMALL = """
recipe:
  name: mine
  about: small
  data: {name: digits}
  model: {name: mlp}
  methods: {ce: {loss: ce}}
  training: {epochs: 3, batch_size: 10, optimizer: {name: adam, lr: 0.01}}
"""


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


# --- what ships ---------------------------------------------------------------------------------------------------


def test_every_yaml_file_is_found_and_gives_recipes():
    folder = Path(str(resources.files("focalcal_lab") / "recipes"))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.yaml")}
    assert {place for place, _ in module._files(resources.files("focalcal_lab") / "recipes")} == files
    for file in files:
        assert read_recipes((folder / file).read_text(), file)


def test_the_names_of_a_recipe_exist_and_its_options_are_those_of_what_they_name():
    for part, registry in itertools.chain.from_iterable(
        (
            (recipe.data, DATA),
            (recipe.model, MODELS),
            *((foreign.data, DATA) for foreign in recipe.measurement.out_of_distribution),
        )
        for recipe in catalog().values()
    ):
        where, function = registry[part.name].split(":")
        parameters = inspect.signature(getattr(import_module(where), function)).parameters
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            assert set(part.options) <= set(parameters), part


def test_the_losses_and_calibrators_of_every_recipe_can_be_made():
    losses = {
        repr((method.loss, method.options)): make_loss(method.loss, **method.options)
        for recipe in catalog().values()
        for method in recipe.methods.values()
    }
    wishes = {repr(wish): wish for recipe in catalog().values() for wish in recipe.measurement.calibrators}
    for wish in wishes.values():
        for loss in losses.values():
            calibrator = recipe_calibrator(wish, loss)
            trained = "trained" in wish.options.values()
            assert isinstance(calibrator, Calibrator) or (
                trained and not isinstance(getattr(loss, "gamma", None), float)
            )
            if not trained:
                break


@pytest.mark.parametrize("plan", [recipe.measurement for recipe in PLAIN], ids=[recipe.name for recipe in PLAIN])
def test_no_phase_measures_the_same_twice_and_every_measure_exists(plan):
    measured = Counter()
    for wish in plan.calibrators:
        names = wish.metrics or [each for each in MEASURES if each not in UNSCALED]
        assert set(names) <= set(MEASURES)
        measured.update((wish.phase, each) for each in names)
    assert all(count == 1 for count in measured.values())
    phases = ["pre"]
    for wish in plan.calibrators:  # what a calibrator comes after was fitted before it
        assert wish.after is None or wish.after in phases
        phases.append(wish.phase)


@pytest.mark.parametrize("recipe", PLAIN, ids=lambda recipe: recipe.name)
def test_a_recipe_says_what_it_does_and_the_file_how_to_run_it(recipe):
    name = recipe.name
    assert recipe.about
    base = name.partition("+")[0]
    header = [line for line in recipe_source(name).splitlines() if line.startswith("#")]
    commands = [line.split()[4] for line in header if line.startswith("#   focalcal lab run")]
    assert commands
    assert all(command in catalog() or command == "mine.yaml" for command in commands)
    if recipe.paper:
        assert name.startswith(f"{recipe.paper}/")
        assert f"[{recipe.paper}, " in "".join(header)
        assert recipe.notes
    if recipe.published:
        assert base == f"{recipe.paper}/{recipe.published['dataset']}-{recipe.published['model']}"
    if name.startswith("cpu/"):
        assert recipe.minutes is not None
        assert recipe.minutes <= 15


def test_the_files_print_published_numbers_and_no_others():
    """Percentages in the opening comments are numbers of the csv, but for those that say what to expect of ours."""
    printed = {float(row["value"]) for row in published_results()}
    for place, file in module._files(resources.files("focalcal_lab") / "recipes"):
        if place.startswith(("cpu/", "own", "charoenphakdee2021/")) or "four-clusters" in place:
            continue
        header = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        words = " ".join(header).split()
        numbers = [float(word) for word, unit in itertools.pairwise(words) if unit.startswith("%")]
        assert place.endswith("svhn.yaml") or len(numbers) >= 2, place
        assert set(numbers) <= printed, (place, set(numbers) - printed)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("resnet50+mean")])
def test_a_variant_by_the_mean_differs_in_reduction_and_clipping_only(name):
    base, mean = catalog()[name.removesuffix("+mean")], catalog()[name]
    assert (base.training.reduction, mean.training.reduction, mean.training.clip_norm) == ("sum", "mean", None)
    same = {
        "name": "",
        "notes": [],
        "training": base.training.model_copy(update={"reduction": "mean", "clip_norm": None}),
    }
    assert base.model_copy(update=same) == mean.model_copy(update={"name": "", "notes": []})
    assert base.digest() != mean.digest()


def test_the_fingerprint_of_a_method_is_of_what_decides_its_runs():
    recipe = catalog()["cpu/digits"]
    more = recipe.model_copy(update={"methods": {**recipe.methods, "fl-9": recipe.methods["fl-1"]}, "about": "x"})
    assert more.digest("ce") == recipe.digest("ce")
    assert more.digest() != recipe.digest()
    assert len({recipe.digest(method) for method in recipe.methods}) == len(recipe.methods)
    longer = recipe.model_copy(update={"training": recipe.training.model_copy(update={"epochs": 61})})
    assert longer.digest("ce") != recipe.digest("ce")


@pytest.mark.parametrize(("given", "read"), [("true", True), ("false", False), ("3", 3), ("1", 1), ("0", False)])
def test_the_monitor_is_a_switch_or_a_number_of_epochs(given, read):
    (recipe,) = read_recipes(changed("  about: small", f"  about: small\n  monitor: {given}")).values()
    assert (recipe.monitor, type(recipe.monitor)) == (read, type(read))
    again = read_recipes("recipe:\n  about: ''\n" + textwrap.indent(recipe_yaml(recipe), "  "))
    assert again["mine"].monitor == read


def test_what_the_released_code_does_is_in_the_image_recipes_and_their_notes():
    for name, recipe in catalog().items():
        if recipe.published and recipe.data.name in ("cifar10", "cifar100", "tiny-imagenet") and "+" not in name:
            training = recipe.training
            assert (training.reduction, training.clip_norm, training.optimizer.weight_decay) == ("sum", 2.0, 5e-4)
            assert "sums the loss over the batch" in recipe.notes[0]


def test_updates_of_gamma_follow_the_appendices():
    svhn = catalog()["ghosh2022/svhn-resnet110"].methods["adafocal-schedule"].every
    assert svhn == [(0, "epoch"), (25, 100), (40, 1)]
    for name in ("ghosh2022/20newsgroups-gp-cnn", "ghosh2022/20newsgroups-bert-base"):
        methods = catalog()[name].methods
        assert [methods[f"adafocal-{n}"].every for n in (1, 10, 50, 100)] == [1, 10, 50, 100]
    bins = catalog()["ghosh2022/cifar10-resnet50"].methods
    assert [bins[f"adafocal-{n}bins"].options["num_bins"] for n in (5, 10, 20, 30, 50)] == [5, 10, 20, 30, 50]


def test_the_first_temperature_of_a_recipe_with_foreign_sets_is_chosen_by_equal_width_ece():
    """A run scores the sets out of distribution at the first temperature of phase post."""
    found = [recipe for recipe in catalog().values() if recipe.measurement.out_of_distribution]
    assert {recipe.name.partition("+")[0] for recipe in found} == {
        "ghosh2022/cifar10-resnet110",
        "ghosh2022/cifar10-wrn-26-10",
        "cpu/cifar10-s-resnet8",
        "cpu/cifar10-s-resnet20",
        "cpu/cifar10-resnet8",
    }
    for recipe in found:
        first = next(wish for wish in recipe.measurement.calibrators if wish.phase == "post")
        assert (first.method, first.criterion) == ("temperature", "ece")


# --- the published numbers ------------------------------------------------------------------------------------------


def test_every_published_number_belongs_to_a_method_of_a_recipe_that_measures_it():
    numbers = published_numbers()
    assert len(numbers) == len(published_results()) == 1976
    for number in numbers:
        recipe = catalog()[number.recipe]
        assert number.method in recipe.methods, number
        assert (number.phase, number.metric, number.against) in measured_by(recipe), number


def test_every_recipe_of_a_table_has_numbers_and_no_number_is_taken_twice():
    for recipe in catalog().values():
        assert bool(numbers_of(recipe)) == bool(recipe.published)
    keys = Counter((n.paper, n.table, n.recipe, n.method, n.phase, n.metric, n.against) for n in published_numbers())
    # Table 1 of komisarenko2024 prints accuracy with and without focal calibration, which does not change it.
    twice = {key for key, count in keys.items() if count > 1}
    assert all(key[0] == "komisarenko2024" and key[5] == "accuracy" for key in twice)
    assert len(twice) == 18


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            ("ghosh2022", "7", "cifar10", "resnet50", "adafocal", "ece_debias", "0.73"),
            ("adafocal-5bins", "pre", "ece_debias_30", "", 100),
        ),
        (
            ("ghosh2022", "7", "cifar10", "resnet50", "adafocal", "ece_ew", "0.51"),
            ("adafocal", "pre", "ece_ew", "", 100),
        ),
        (("ghosh2022", "8", "svhn", "wrn-26-10", "ce", "auroc", "97.62"), ("ce", "post", "auroc", "svhn", 100)),
        (
            ("komisarenko2024", "1", "cifar10", "resnet50", "fl-1+fts", "ece_em", "0.82"),
            ("fl-1", "fts", "ece_em", "", 100),
        ),
        (("komisarenko2024", "1", "cifar10", "resnet50", "ce", "log_loss", "0.16"), ("ce", "post", "log_loss", "", 1)),
        (("mukhoti2020", "3", "wmt14-en-de", "transformer", "fl-1", "bleu", "26.39"), ("fl-1", "pre", "bleu", "", 1)),
        (("mukhoti2020", "4", "cifar10", "resnet50", "ce", "error", "4.95"), ("ce", "pre", "error", "", 100)),
        (("ghosh2022", "4", "imagenet", "resnet50", "ce", "ece_ew", "0.82"), ("ce", "spline", "ece_ew", "", 100)),
    ],
)
def test_known_lines_of_the_csv_become_known_numbers(row, expected):
    columns = ("paper", "table", "dataset", "model", "method", "metric", "value")
    lines = published_results()
    place = next(i for i, line in enumerate(lines) if tuple(line[column] for column in columns) == row)
    number = published_numbers()[place]
    assert (number.method, number.phase, number.metric, number.against, number.scale) == expected
    assert number.value == float(row[-1])


def test_an_unknown_paper_or_table_is_refused_with_those_there_are():
    with pytest.raises(
        InputError, match=r"paper: must be one .* mukhoti2020, ghosh2022, komisarenko2024; got 'lin2017'"
    ):
        published_numbers("lin2017")
    with pytest.raises(InputError, match=r"table: must be one of 1, 2, 3, .*, 8 of ghosh2022; got '9'"):
        published_numbers("ghosh2022", "9")
    assert published_tables()["mukhoti2020"] == [str(number) for number in range(1, 14)]


def test_a_variant_has_the_numbers_of_its_recipe():
    assert numbers_of(catalog()["mukhoti2020/cifar10-resnet50+mean"]) == numbers_of(
        catalog()["mukhoti2020/cifar10-resnet50"]
    )


# --- files --------------------------------------------------------------------------------------------------------


def test_parameters_give_every_combination_and_whole_values():
    text = """
for: {data: [digits, cifar10], model: {a: {net: mlp, layers: [3, 4]}, b: {net: linear, layers: null}}}
recipe:
  name: my/{data}-{model}
  about: "{model.net} on {data}, {model.net}"
  data: {name: "{data}"}
  model: {name: "{model.net}", options: {hidden: "{model.layers}"}}
  methods: {ce: {loss: ce}}
  training: {epochs: 3, batch_size: 10, optimizer: {name: adam, lr: 1e-2}, clip_norm: 1.0}
variants:
  free: {training: {clip_norm: null, optimizer: {lr: 0.5}}, model: {options: {more: "{model}"}}}
"""
    found = read_recipes(text)
    assert list(found) == [
        f"my/{data}-{model}{free}" for data in ("digits", "cifar10") for model in "ab" for free in ("", "+free")
    ]
    assert found["my/cifar10-a"].about == "mlp on cifar10, mlp"
    assert found["my/cifar10-a"].model.options == {"hidden": [3, 4]}
    assert found["my/cifar10-b"].model.options == {"hidden": None}
    assert found["my/cifar10-b"].training.optimizer.lr == 0.01
    free = found["my/cifar10-b+free"]
    assert (free.training.clip_norm, free.training.optimizer.name, free.training.optimizer.lr) == (None, "adam", 0.5)
    assert free.model.options == {"hidden": None, "more": "b"}


MALFORMED = {
    "not YAML": ("recipe: [", "must be YAML"),
    "a tab": ("recipe:\n\tname: a", "must be YAML"),
    "empty": ("", "the file: must be a mapping"),
    "a list": ("- recipe", "the file: must be a mapping"),
    "no recipe": ("for: {data: [a]}", "recipe: is missing"),
    "recipe is a list": ("recipe: [a]", "recipe: must be a mapping"),
    "numbers as keys": ("recipe: {1: 2}", "recipe: must be a mapping with names as keys"),
    "a part at the top": (SMALL + "training: {epochs: 3}", "training: must be one of for, recipe, variants"),
    "an unknown field": (
        changed("  about: small", "  about: small\n  epochs: 3"),
        "epochs: Extra inputs are not permitted",
    ),
    "an unknown field below": (changed("epochs: 3", "epoch: 3"), "training.epochs: Field required"),
    "a missing field": (changed("  about: small\n", ""), "recipe mine: about: Field required"),
    "a wrong type": (changed("epochs: 3", "epochs: many"), "training.epochs: Input should be a valid integer"),
    "out of range": (changed("epochs: 3", "epochs: 0"), "training.epochs: .*greater than or equal to 1; got 0"),
    "an unknown optimiser": (changed("adam", "rmsprop"), "training.optimizer.name: .*; got 'rmsprop'"),
    "a monitor of no epochs": (changed("  about: small", "  about: small\n  monitor: -3"), "monitor.*; got -3"),
    "a monitor of words": (changed("  about: small", "  about: small\n  monitor: often"), "monitor.*; got 'often'"),
    "milestones": (changed("epochs: 3", "epochs: 3, milestones: [5]"), "milestones must rise strictly"),
    "an unknown placeholder": (
        changed("name: mine", "name: 'a/{data}'"),
        r"recipe.name: must use placeholders .*; got \{data\}",
    ),
    "an unknown field of a placeholder": (
        "for: {data: {a: {size: 1}}}\n" + changed("name: mine", "name: 'a/{data.sise}'"),
        r"recipe.name: must use placeholders of `for` \(data, data.size\); got \{data.sise\}",
    ),
    "an unknown placeholder in a variant": (
        SMALL + "variants: {a: {about: '{what}'}}",
        r"variants.a.about: must use placeholders",
    ),
    "a key twice": (changed("  about: small", "  about: small\n  about: large"), "about: must be given once"),
    "the same name twice": ("for: {data: [a, b]}\n" + SMALL, "name: must differ between recipes; got 'mine' twice"),
    "for is a list": ("for: [a]\n" + SMALL, "for: must be a mapping"),
    "an empty parameter": ("for: {data: []}\n" + SMALL, "for.data: must be a list of names"),
    "a parameter of lists": ("for: {data: [[a]]}\n" + SMALL, "for.data: must be a list of names"),
    "a parameter with values": ("for: {data: {a: 3}}\n" + SMALL, "for.data.a: must be a mapping"),
    "too many": (
        "for: {a: [1,2,3,4,5,6,7,8,9,0], b: [1,2,3,4,5,6,7,8,9,0], c: [1,2,3,4,5,6,7,8,9,0], d: [1,2]}\n" + SMALL,
        "for: must give at most 1,000 recipes; got 2,000",
    ),
    "a variant that is a number": (SMALL + "variants: {a: 3}", "variants.a: must be a mapping"),
    "variants are a list": (SMALL + "variants: [a]", "variants: must be a mapping"),
    "an object": ("recipe: !!python/object/apply:os.system [false]", "must be YAML of plain values"),
    "a value that holds itself": ("recipe: &a {name: *a}", "nested without end"),
    "nested too deep": ("recipe: " + "[" * 600 + "]" * 600, "nested without end"),
    "a control character": ("recipe: \x00", "must be YAML"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_files_are_refused_with_their_name_and_the_field(case):
    text, message = MALFORMED[case]
    with pytest.raises(InputError, match=message) as refusal:
        read_recipes(text, "my.yaml")
    assert str(refusal.value).startswith("my.yaml")
    assert "\n" not in str(refusal.value)


def test_an_object_in_a_file_is_not_made(tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(InputError):
        read_recipes(
            f"recipe: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{mark}']]"
        )
    assert not mark.exists()


def test_a_name_that_two_files_give_is_refused(monkeypatch, tmp_path):
    for name in ("a.yaml", "b/c.yaml"):
        (tmp_path / "recipes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "recipes" / name).write_text(SMALL)
    monkeypatch.setattr(module.resources, "files", lambda package: tmp_path)
    with pytest.raises(InputError, match=r"^b/c.yaml: name: must differ from those of all other files; got 'mine'"):
        module._shipped.__wrapped__()


def test_recipes_are_found_inside_a_zipped_package(tmp_path):
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        archive.writestr("recipes/deep/er/one.yaml", SMALL)
        archive.writestr("recipes/two.yml", SMALL)
        archive.writestr("recipes/three.txt", "no")
    found = list(module._files(zipfile.Path(tmp_path / "package.zip") / "recipes"))
    assert [place for place, _ in found] == ["deep/er/one.yaml", "two.yml"]
    assert read_recipes(found[0][1].read_text(encoding="utf-8"))["mine"].training.epochs == 3


def test_a_file_of_ones_own_is_a_recipe(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(SMALL + "variants: {long: {training: {epochs: 9}}}")
    assert find_recipe(str(path)).name == "mine"
    assert find_recipe(f"{path}#mine+long").training.epochs == 9
    with pytest.raises(
        InputError, match=r"must hold the one recipe that is meant; got mine, mine\+long. Name one: .*own.yaml#mine"
    ):
        find_recipe(f"{path}#other")
    path.write_text("for: {data: [a, b]}\n" + changed("mine", "my-{data}"))
    with pytest.raises(InputError, match="got my-a, my-b"):
        find_recipe(str(path))
    path.write_bytes(b"recipe: \xff")
    with pytest.raises(InputError, match="must be UTF-8 text"):
        find_recipe(str(path))
    with pytest.raises(InputError, match="must be a file that exists"):
        find_recipe(str(tmp_path / "none.yaml"))


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"got 'mukoti2020/cifar10-resnet50'. Nearest: mukhoti2020/cifar10-resnet50, "):
        find_recipe("mukoti2020/cifar10-resnet50")
    with pytest.raises(InputError, match="`focalcal lab list` shows all of them"):
        find_recipe("zzzzzzzzzzz")
    assert nearest_recipes("digits") == ["cpu/digits"]
    assert nearest_recipes("") == []


@pytest.mark.parametrize("recipe", PLAIN, ids=lambda recipe: recipe.name)
def test_a_recipe_survives_its_own_yaml(recipe):
    """What `focalcal lab list` prints is the recipe: read again, it is the same run."""
    again = read_recipes("recipe:\n  about: ''\n" + "".join(f"  {line}\n" for line in recipe_yaml(recipe).splitlines()))
    assert again[recipe.name] == recipe.model_copy(update={"about": "", "notes": []})


def test_a_recipe_cannot_be_changed_after_it_was_read():
    with pytest.raises(ValueError, match="frozen"):
        catalog()["own"].training.epochs = 1
    assert isinstance(catalog()["own"], Recipe)
