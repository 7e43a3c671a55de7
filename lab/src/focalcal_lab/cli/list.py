"""`focalcal lab list`: the recipes of the lab, and what is published of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from focalcal.cli.console import JsonOption, make_table, print_json, standard_output
from focalcal_lab.published_numbers import PublishedNumber

if TYPE_CHECKING:
    from rich.console import Console

    from focalcal_lab.recipe import Recipe


@dataclass(frozen=True)
class ListedRange:
    """The lowest and the highest number of a recipe in a published table, over its methods, in the table's unit."""

    table: str
    metric: str
    phase: str
    against: str
    lowest: float
    highest: float


@dataclass(frozen=True)
class ListedRecipe:
    """A recipe; `header`, `yaml` and `numbers` are filled where one recipe only is asked for."""

    name: str
    about: str
    paper: str | None
    task: str
    data: str
    model: str
    methods: list[str]
    phases: list[str]
    epochs: int
    batch_size: int
    minutes: float | None
    notes: list[str]
    digest: str
    published: list[ListedRange]
    header: list[str]
    yaml: str
    numbers: list[PublishedNumber]


@dataclass(frozen=True)
class LabListResult:
    """The answer of `focalcal lab list`."""

    recipes: list[ListedRecipe]
    schema: Literal[1] = 1
    command: Literal["lab-list"] = "lab-list"


def lab_list(
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATTERN]", help="Part of a name, or a pattern with * and ?; one recipe shows all of it."
        ),
    ] = None,
    paper: Annotated[
        str | None, typer.Option("--paper", metavar="PAPER", help="Recipes of this paper only; cpu for the small ones.")
    ] = None,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print one recipe as a file of its own, to change and to run.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the recipes: data, network, methods, epochs, and the published numbers.

    A name, or a pattern that fits one recipe, shows that one in full: notes, every value, every published number.

    \b
    Examples:
      focalcal lab list
      focalcal lab list 'mukhoti2020/cifar100-*'
      focalcal lab list ghosh2022/cifar10-resnet50
      focalcal lab list --paper cpu --json
      focalcal lab list own --yaml > mine.yaml
    """
    chosen = _chosen(pattern, paper)
    in_full = len(chosen) == 1
    if as_yaml:
        _print_yaml(chosen)
        return
    result = LabListResult([_listed(recipe, in_full=in_full) for recipe in chosen])
    if as_json:
        print_json(asdict(result))
    elif in_full:
        _print_in_full(standard_output(), result.recipes[0])
    else:
        _print_list(standard_output(), result.recipes)


def _print_yaml(chosen: list[Recipe]) -> None:
    from focalcal.errors import InputError
    from focalcal_lab.catalog import recipe_file

    if len(chosen) != 1:
        raise InputError(f"--yaml: must be of one recipe; got {len(chosen)}. Name one.")
    print(recipe_file(chosen[0]), end="")


def _chosen(pattern: str | None, paper: str | None) -> list[Recipe]:
    """The recipes that were asked for; an exact name is that one, though it is a part of others."""
    from fnmatch import fnmatchcase

    from focalcal.errors import InputError
    from focalcal_lab.catalog import catalog, find_recipe

    recipes = catalog()
    groups = list(dict.fromkeys(_group(name) for name in recipes))
    if paper is not None and paper not in groups:
        raise InputError(f"--paper: must be one of {', '.join(groups)}; got {paper!r}.")
    within = {name: recipe for name, recipe in recipes.items() if paper in (None, _group(name))}
    if pattern is None:
        return list(within.values())
    if pattern in within or pattern.lower().endswith((".yaml", ".yml")):
        return [find_recipe(pattern)]
    glob = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    found = [recipe for name, recipe in within.items() if fnmatchcase(name, glob)]
    # A variant does not keep its recipe from being the one that is meant.
    plain = [recipe for recipe in found if "+" not in recipe.name]
    if not found:
        find_recipe(pattern)  # refuses it, with the nearest names
    return plain if len(plain) == 1 else found


def _group(name: str) -> str:
    return name.partition("/")[0]


def _listed(recipe: Recipe, *, in_full: bool) -> ListedRecipe:
    from focalcal_lab.catalog import recipe_yaml
    from focalcal_lab.published_numbers import numbers_of

    numbers = numbers_of(recipe)
    phases = ["pre", *(wish.phase for wish in recipe.measurement.calibrators)]
    return ListedRecipe(
        name=recipe.name,
        about=recipe.about,
        paper=recipe.paper,
        task=recipe.task,
        data=recipe.data.name,
        model=recipe.model.name,
        methods=list(recipe.methods),
        phases=list(dict.fromkeys(phases)),
        epochs=recipe.training.epochs,
        batch_size=recipe.training.batch_size,
        minutes=recipe.minutes,
        notes=list(recipe.notes),
        digest=recipe.digest(),
        published=_ranges(numbers),
        header=_header(recipe.name) if in_full else [],
        yaml=recipe_yaml(recipe) if in_full else "",
        numbers=numbers if in_full else [],
    )


def _ranges(numbers: Sequence[PublishedNumber]) -> list[ListedRange]:
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for each in numbers:
        values.setdefault((each.table, each.metric, each.phase, each.against), []).append(each.value)
    return [ListedRange(*key, lowest=min(found), highest=max(found)) for key, found in values.items()]


def _header(name: str) -> list[str]:
    """The comment at the top of a shipped recipe's file: source, command, what to expect."""
    from focalcal_lab.catalog import catalog, recipe_source

    if name not in catalog():
        return []
    lines = []
    for line in recipe_source(name).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return lines


def _print_list(out: Console, recipes: Sequence[ListedRecipe]) -> None:
    """One line per recipe, a rule between papers; a variant is named on the line of its recipe."""
    names = {recipe.name for recipe in recipes}
    table = make_table("recipe", "data", "network", "epochs", "methods", "published")
    table.columns[0].no_wrap = True
    for column in (table.columns[1], table.columns[2], table.columns[5]):
        column.justify = "left"
    last = None
    for recipe in recipes:
        base, plus, _ = recipe.name.partition("+")
        if plus and base in names:
            continue
        if last not in (None, _group(base)):
            table.add_section()
        last = _group(base)
        variants = [name.removeprefix(base) for name in names if name.startswith(f"{base}+")]
        shown = " ".join([recipe.name, *(f"[{variant}]" for variant in sorted(variants))])
        table.add_row(
            shown, recipe.data, recipe.model, str(recipe.epochs), str(len(recipe.methods)), _compact(recipe.published)
        )
    out.print(table)
    for group in dict.fromkeys(_group(recipe.name) for recipe in recipes):
        methods = dict.fromkeys(each for recipe in recipes if _group(recipe.name) == group for each in recipe.methods)
        out.print(f"Methods of {group}: {', '.join(methods)}.")
    out.print(f"{len(recipes)} recipes. `focalcal lab list NAME` shows one in full, `focalcal lab run NAME` runs it.")


def _compact(ranges: Sequence[ListedRange]) -> str:
    """The first range of an ECE in a few characters, and how many other tables have numbers."""
    if not ranges:
        return ""
    first = next((each for each in ranges if each.metric.startswith("ece")), ranges[0])
    others = len({each.table for each in ranges}) - 1
    more = f", {others} more" if others else ""
    return f"Table {first.table}: {first.metric} {first.phase} {first.lowest:g}-{first.highest:g}{more}"


def _print_in_full(out: Console, recipe: ListedRecipe) -> None:
    out.print(f"{recipe.name}: {recipe.about}")
    for line in recipe.header:
        out.print(line)
    out.print()
    if recipe.minutes is not None:
        where = "two cores" if recipe.name.startswith("cpu/") else "one GPU of the paper's time"
        out.print(f"About {recipe.minutes:g} minutes per run on {where}.")
    for note in recipe.notes:
        out.print(f"- {note}")
    out.print()
    out.print(recipe.yaml.rstrip())
    if recipe.numbers:
        out.print()
        _print_numbers(out, recipe)


def _print_numbers(out: Console, recipe: ListedRecipe) -> None:
    """Every published table's part: one line per method, one column per measure, temperatures in brackets."""
    for number in dict.fromkeys(each.table for each in recipe.numbers):
        cells: dict[str, dict[str, str]] = {method: {} for method in recipe.methods}
        for each in recipe.numbers:
            if each.table == number:
                cells[each.method][_measure(each)] = _value(each)
        measures = list(dict.fromkeys(name for row in cells.values() for name in row))
        table = make_table("method", *measures, title=f"{recipe.paper}, Table {number}")
        for method, row in cells.items():
            if row:
                table.add_row(method, *(row.get(name, "") for name in measures))
        out.print(table)


def _measure(number: PublishedNumber) -> str:
    against = f" against {number.against}" if number.against else ""
    return f"{number.metric} {number.phase}{against}"


def _value(number: PublishedNumber) -> str:
    spread = "" if number.std is None else f" ± {number.std:g}"
    return f"{number.value:g}{spread}" + ("" if number.temperature is None else f" ({number.temperature:g})")
