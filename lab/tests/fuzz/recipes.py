"""Forged recipes and run folders: refused, or read, and no file is written outside of the run's folder.

A recipe is YAML with one to three things done to it; a run folder has such a recipe and a forged run.json, with the
fingerprint that its recipe has, as someone with bad intentions would write it.
"""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from focalcal_lab.catalog import find_recipe, read_recipes, recipe_file
from focalcal_lab.path_below import path_below
from focalcal_lab.recipe import Recipe
from focalcal_lab.run_folder import RunFolder, RunSettings
from lab.tests.tiny import QUICK
from tests.fuzz.limits import Refused, watched
from tests.fuzz.readers.of_bytes import OF_BYTES
from tests.fuzz.readers.of_safetensors import changed_json, places_of
from tests.fuzz.target import Case, Target, packed, unpacked

_NAMES = (
    "../../../ESCAPED",
    "/ESCAPED",
    "..",
    "a/b/c",
    "a\\b",
    "C:x",
    "nul",
    "a\0b",
    "\x1b[2J",
    "x" * 300,
    "",
    " ",
    "a.",
)
_ODD = (*_NAMES, None, True, [], {}, 0, -1, 1e308, 10**30, "shutil:rmtree", ["shutil:rmtree"], {"dataset": "os:system"})
_SNIPPETS = (
    "a: !!python/object/apply:os.system [touch ESCAPED]",
    "a: &a [*a]",
    "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "\n".join(f"{c}: &{c} [{', '.join([f'*{b}'] * 9)}]" for b, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "a: !!binary gIA=",
    "a: !!set {x, y}",
    "a: 2020-01-01",
    "a: .nan",
    '"\\uD800": x',
    "a: 0b2",
    "? [1, 2]\n: 3",
)
_SETTINGS = ("method", "seed", "digest", "data", "threads", "checkpoint_every", "trainer", "dataset")


def forged(seed: int) -> Case:
    """A recipe and a run.json, both with things done to them; the same for the same seed."""
    rng = random.Random(seed)
    content = _recipe(rng)
    return {"recipe": packed(content), "run": _settings(rng), "signed": rng.random() < 0.8}


def _recipe(rng: random.Random) -> bytes:
    text = rng.choice((QUICK, _whole()))
    choice = rng.random()
    if choice < 0.15:
        return rng.choice(OF_BYTES)(rng, text.encode(), QUICK.encode())
    if choice < 0.25:
        return f"{text}\n{rng.choice(_SNIPPETS)}\n".encode()
    if choice < 0.4:
        indented = rng.choice(_SNIPPETS).replace("\n", "\n      ")
        return text.replace("    epochs:", f"    {indented}\n    epochs:").encode()
    document = yaml.safe_load(text)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _changed(rng, document)
    return yaml.safe_dump(document, allow_unicode=True).encode(errors="replace")


@cache
def _whole() -> str:
    """A recipe with everything spelt out, and a set out of distribution."""
    foreign = "[{name: other, data: {name: gaussian-mixture}}]"
    text = QUICK.replace("  measurement:\n", f"  measurement:\n    out_of_distribution: {foreign}\n")
    return recipe_file(read_recipes(text)["quick"], defaults=True)


def _changed(rng: random.Random, document: Any) -> None:
    if rng.random() < 0.5:
        changed_json(rng, document)
        return
    there, key = rng.choice(places_of(document))
    if isinstance(there, dict) and rng.random() < 0.3:
        there[rng.choice(_NAMES)] = there.pop(key)
    else:
        there[key] = rng.choice(_ODD)


def _settings(rng: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "method": "ce",
        "seed": 0,
        "digest": "",
        "trainer": {"accelerator": "cpu", "devices": 1},
    }
    for _ in range(rng.choice((0, 0, 1, 2))):
        settings[rng.choice((*_SETTINGS, "unknown"))] = rng.choice(_ODD)
    return settings


def check(case: Case) -> str:
    """Read the recipe, begin a run by it, and read the run folder; say what became of it."""
    _warm_up()
    return _check(case)


@cache
def _warm_up() -> None:
    assert _check({"recipe": packed(QUICK.encode()), "run": _settings(random.Random(1)), "signed": True})


def _check(case: Case) -> str:
    with tempfile.TemporaryDirectory(prefix="focalcal-fuzz-") as place:
        run, out = Path(place, "a/b/run"), Path(place, "a/b/out")
        run.mkdir(parents=True)
        path = run / "recipe.yaml"
        path.write_bytes(unpacked(case["recipe"]))
        recipe = watched(lambda: find_recipe(str(path)), str(path))
        if not isinstance(recipe, Refused):
            _begin(recipe, out)
        said = dict(case["run"])
        if case["signed"] and not isinstance(recipe, Refused):
            said["digest"] = recipe.digest(said["method"] if isinstance(said["method"], str) else None)
        (run / "run.json").write_text(json.dumps(said))
        found = watched(lambda: RunFolder(run).read(), "")
        written = {each.relative_to(place).parts[:3] for each in Path(place).rglob("*") if each.is_file()}
        assert written <= {("a", "b", "run"), ("a", "b", "out")}, written
    if isinstance(recipe, Refused):
        assert isinstance(found, Refused)
        return "refused"
    return "only a recipe" if isinstance(found, Refused) else "a run"


def _begin(recipe: Recipe, out: Path) -> None:
    """A recipe that was read can be written and read again, and its runs begin where they should."""
    for method in list(recipe.methods)[:2]:
        settings = RunSettings(method, 0, recipe.digest(method))
        place = RunFolder(path_below(out, *recipe.name.split("/"), method, "seed-0"))
        place.begin(recipe, settings)
        again, same = place.read()
        assert again.digest() == recipe.digest()
        assert same == settings
    for wish in recipe.measurement.calibrators:
        path_below(out, "calibrators", f"{wish.phase}-{wish.criterion}.safetensors")
    for foreign in recipe.measurement.out_of_distribution:
        path_below(out, "out_of_distribution", f"{foreign.name}.npz")


TARGET = Target(
    "recipes",
    "forged recipes and run folders, read and begun",
    st.builds(forged, st.integers(0, 2**32)),
    check,
    frozenset({"refused", "only a recipe", "a run"}),
    in_ci=80,
    guarded=True,
)
