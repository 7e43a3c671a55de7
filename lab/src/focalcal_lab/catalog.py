"""The recipes that ship with the lab, and your own: YAML files, expanded and checked.

A file has a `recipe`, and may have `for` and `variants`:

    for:                                      # one recipe for every combination
      data: [cifar10, cifar100]               # {data}
      model:                                  # {model} is the key, {model.network} a field of it
        resnet110: {network: resnet110-bottleneck}
    recipe: {name: "paper/{data}-{model}", model: {name: "{model.network}"}, ...}
    variants:                                 # each recipe again, as name+mean, with these values merged in
      mean: {training: {reduction: mean}}

A text that is one placeholder and nothing else becomes the value itself, be it a number, a list or nothing.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml
from pydantic import ValidationError

from focalcal.errors import InputError
from focalcal.printable import shown
from focalcal_lab.recipe import Recipe

if TYPE_CHECKING:
    from importlib.abc import Traversable

__all__ = ["catalog", "find_recipe", "nearest_recipes", "read_recipes", "recipe_file", "recipe_source", "recipe_yaml"]

# What the placeholders of one combination stand for: by "data", and by "data.field".
Values: TypeAlias = "dict[str, Any]"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MOST = 1000  # recipes of one file: more is a slip in `for`
_MOST_VALUES = 100_000  # of one file, with what aliases repeat
# How deep its values may lie in one another; recipes need seven levels or so. Python's own limit is not ours to know.
_DEEPEST = 50
_LONGEST_MESSAGE = 600


@cache
def catalog() -> dict[str, Recipe]:
    """Every recipe that ships with the lab, by its name.

    >>> catalog()["mukhoti2020/cifar10-resnet50"].training.epochs
    350
    """
    return {name: recipe for name, (recipe, _) in _shipped().items()}


def find_recipe(name: str) -> Recipe:
    """A recipe by its name, or of your own YAML file; `file.yaml#name` chooses one of several in a file.

    >>> find_recipe("mukhoti2020/cifar10-resnet50+mean").training.reduction
    'mean'
    """
    path, _, inner = name.partition("#")
    if path.lower().endswith((".yaml", ".yml")):
        return _of_file(Path(path), inner)
    if name not in catalog():
        raise InputError(f"recipe: must be a name of `focalcal lab list` or a YAML file; got {name!r}. {_near(name)}")
    return catalog()[name]


def nearest_recipes(name: str) -> list[str]:
    """Up to five names that may have been meant: those that contain it, else those spelled most alike.

    >>> nearest_recipes("mukoti2020/cifar10-resnet50")[0]
    'mukhoti2020/cifar10-resnet50'
    """
    wanted = name.strip().lower()
    inside = [each for each in catalog() if wanted and wanted in each]
    return inside[:5] or difflib.get_close_matches(wanted, list(catalog()), n=5, cutoff=0.5)


def recipe_source(name: str) -> str:
    """The YAML text of the file that a shipped recipe comes from, with its comments.

    >>> recipe_source("own").splitlines()[0]
    '# Your own data: a folder of images per class, an .npz file, or any torch Dataset that you name.'
    """
    find_recipe(name)
    return _shipped()[name][1].read_text(encoding="utf-8")


def recipe_yaml(recipe: Recipe) -> str:
    """A recipe as YAML, with every placeholder filled in and without what is left at its default.

    >>> print(recipe_yaml(catalog()["cpu/digits"])[:38])
    name: cpu/digits
    data: {name: digits}
    """
    values = recipe.model_dump(mode="json", exclude={"notes", "about"}, exclude_defaults=True)
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    return text


def recipe_file(recipe: Recipe, *, defaults: bool = False) -> str:
    """A recipe as a file of its own; with `defaults` it says everything, so that later versions read it the same.

    >>> read_recipes(recipe_file(catalog()["cpu/digits"]))["cpu/digits"] == catalog()["cpu/digits"]
    True
    """
    values = {"recipe": recipe.model_dump(mode="json", exclude_defaults=not defaults)}
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    return text


def read_recipes(text: str, source: str = "recipe") -> dict[str, Recipe]:
    """The recipes of a YAML text by their names; `source` is what errors call it.

    >>> text = "recipe: {name: a, about: b, data: {name: digits}, model: {name: mlp}, methods: {ce: {loss: ce}}}"
    >>> read_recipes(text, "a.yaml")
    Traceback (most recent call last):
    focalcal.errors.InputError: a.yaml, recipe a: training: Field required.
    """
    try:
        return _read_recipes(text, source)
    except InputError as error:  # which may quote the file, and the file may hold anything
        raise InputError(shown(str(error), _LONGEST_MESSAGE)) from None


def _read_recipes(text: str, source: str) -> dict[str, Recipe]:
    document = _document(text, source)
    variants = _mapping(document.get("variants") or {}, "variants", source)
    found: dict[str, Recipe] = {}
    for values in _combinations(document.get("for") or {}, source):
        filled = _fill(_mapping(document["recipe"], "recipe", source), values, "recipe", source)
        changes = {name: _fill(change, values, f"variants.{name}", source) for name, change in variants.items()}
        for recipe in _with_variants(filled, changes, source):
            if recipe.name in found:
                raise InputError(f"{source}: name: must differ between recipes; got {recipe.name!r} twice.")
            found[recipe.name] = recipe
    return found


@cache
def _shipped() -> dict[str, tuple[Recipe, Traversable]]:
    """Every shipped recipe with its file, in the order of the files' names."""
    found: dict[str, tuple[Recipe, Traversable]] = {}
    for place, file in _files(resources.files("focalcal_lab") / "recipes"):
        for name, recipe in read_recipes(file.read_text(encoding="utf-8"), place).items():
            if name in found:
                raise InputError(f"{place}: name: must differ from those of all other files; got {name!r}.")
            found[name] = recipe, file
    return found


def _files(folder: Traversable, place: str = "") -> Iterator[tuple[str, Traversable]]:
    """All YAML files in a folder and below it: also inside a zipped package, where there are no paths."""
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _files(entry, f"{place}{entry.name}/")
        elif entry.name.endswith((".yaml", ".yml")):
            yield place + entry.name, entry


def _of_file(path: Path, inner: str) -> Recipe:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"recipe: must be a file that exists; got {str(path)!r}.") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: must be UTF-8 text; got byte {error.start} = {error.object[error.start]:#x}."
        ) from error
    found = read_recipes(text, str(path))
    plain = [name for name in found if "+" not in name or name.rpartition("+")[0] not in found]
    chosen = [name for name in found if name == inner] if inner else plain
    if len(chosen) != 1:
        fix = f"Name one: {path}#{next(iter(found))}."
        raise InputError(f"{path}: must hold the one recipe that is meant; got {', '.join(found)}. {fix}")
    return found[chosen[0]]


def _near(name: str) -> str:
    near = nearest_recipes(name)
    return f"Nearest: {', '.join(near)}." if near else "`focalcal lab list` shows all of them."


def _document(text: str, source: str) -> dict[str, Any]:
    """The parsed file, refused unless it is a mapping of the three known parts."""
    document = _mapping(_parse(text, source), "the file", source)
    for key in document:
        if key not in ("for", "recipe", "variants"):
            raise InputError(f"{source}: {key}: must be one of for, recipe, variants. Put it below `recipe`.")
    if "recipe" not in document:
        raise InputError(f"{source}: recipe: is missing. A file holds at least that.")
    return document


def _parse(text: str, source: str) -> Any:
    """YAML by the safe loader, which makes plain values only; a key given twice is refused, which YAML lets pass."""
    try:
        _check_nodes(yaml.compose(text, yaml.SafeLoader), source, itertools.count(1))
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: must be YAML of plain values; {' '.join(str(error).split())}.") from error
    except RecursionError:
        raise InputError(f"{source}: must not be nested without end.") from None


def _check_nodes(node: Any, source: str, numbers: Iterator[int], depth: int = 0) -> None:
    """Refuse keys that are repeated, and more values than a recipe can need: a few aliases stand for billions.

    What holds itself comes to the end of the depth here and not later.
    """
    if depth > _DEEPEST:
        raise RecursionError
    if next(numbers) > _MOST_VALUES:
        raise InputError(f"{source}: must hold at most {_MOST_VALUES:,} values, with those that aliases repeat.")
    if node is None or isinstance(node.value, str):
        return
    if node.id == "mapping":
        keys = [key.value for key, _ in node.value if isinstance(key.value, str)]
        for key in keys:
            if keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise InputError(f"{source}: {key}: must be given once; got it twice, in the mapping of line {line}.")
    for each in node.value:
        for part in each if isinstance(each, tuple) else (each,):
            _check_nodes(part, source, numbers, depth + 1)


def _mapping(value: Any, field: str, source: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{source}: {field}: must be a mapping with names as keys; got {value!r:.80}.")
    return value


def _combinations(parameters: Any, source: str) -> Iterator[Values]:
    """What the placeholders stand for, for every combination of the parameters in `for`."""
    choices = [_choices(name, given, source) for name, given in _mapping(parameters, "for", source).items()]
    total = 1
    for each in choices:
        total *= len(each)
    if total > _MOST:
        raise InputError(f"{source}: for: must give at most {_MOST:,} recipes; got {total:,}.")
    for combination in itertools.product(*choices):
        yield {key: value for values in combination for key, value in values.items()}


def _choices(name: str, given: Any, source: str) -> list[Values]:
    if isinstance(given, list) and given and all(isinstance(each, (str, int, float)) for each in given):
        return [{name: each} for each in given]
    if not isinstance(given, dict) or not given:
        rule = "must be a list of names, or names with fields"
        raise InputError(f"{source}: for.{name}: {rule}; got {given!r:.80}.")
    fields = {str(key): _mapping(value or {}, f"for.{name}.{key}", source) for key, value in given.items()}
    return [{name: key} | {f"{name}.{field}": each for field, each in more.items()} for key, more in fields.items()]


def _fill(value: Any, values: Values, field: str, source: str) -> Any:
    """The value with all placeholders filled in, all the way down."""
    if isinstance(value, Mapping):
        return {key: _fill(each, values, f"{field}.{key}", source) for key, each in value.items()}
    if isinstance(value, list):
        return [_fill(each, values, f"{field}.{place}", source) for place, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    for name in _PLACEHOLDER.findall(value):
        if name not in values:
            known = ", ".join(values) or "none, as there is no `for`"
            raise InputError(f"{source}: {field}: must use placeholders of `for` ({known}); got {{{name}}}.")
    if whole := _PLACEHOLDER.fullmatch(value):
        return values[whole.group(1)]
    return _PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), value)


def _with_variants(filled: dict[str, Any], changes: dict[str, Any], source: str) -> Iterator[Recipe]:
    yield _recipe(filled, source)
    for name, change in changes.items():
        merged = _merge(filled, _mapping(change, f"variants.{name}", source))
        yield _recipe({**merged, "name": f"{filled['name']}+{name}"}, source)


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The base with the changes: mappings are merged all the way down, anything else is replaced."""
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _recipe(fields: dict[str, Any], source: str) -> Recipe:
    """The checked recipe; the error names the file, the recipe and the first field that is wrong."""
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        where = ".".join(str(part) for part in first["loc"]) or "recipe"
        said = first["msg"].removeprefix("Value error, ").removesuffix(".")
        given = f"; got {first['input']!r:.80}" if first["type"] not in ("missing", "value_error") else ""
        more = f" And {len(others)} more like it." if others else ""
        raise InputError(f"{source}, recipe {fields.get('name')}: {where}: {said}{given}.{more}") from None
