"""Recipes and run folders that came from someone else: they run no code and reach no other files."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import focalcal_lab
from focalcal.errors import FileFormatError, InputError
from focalcal_lab.catalog import catalog, read_recipes
from focalcal_lab.cli import lab
from focalcal_lab.data import load_data
from focalcal_lab.models import make_model
from focalcal_lab.path_below import check_name, path_below
from focalcal_lab.run import begin, resume
from focalcal_lab.run_folder import RunFolder, RunSettings
from lab.tests.tiny import QUICK
from tests.cli.tools import call

ESCAPE = "../../../ESCAPED"
OWN = """
recipe:
  name: mine
  about: Data by code.
  data: {name: own}
  model: {name: linear}
  methods: {ce: {loss: ce}}
  training: {epochs: 1, batch_size: 4, optimizer: {name: sgd, lr: 0.1}}
"""
PAIRS = """
from pathlib import Path
import torch
Path("imported").touch()
rows = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20) % 2)
"""


def begun(folder: Path, **settings) -> RunFolder:
    recipe = read_recipes(QUICK)["quick"]
    trainer = {"accelerator": "cpu", "devices": 1}
    return begin(recipe, folder, RunSettings("ce", 0, recipe.digest("ce"), threads=1, trainer=trainer, **settings))


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "a/b",
        "/etc",
        "../up",
        "a/../b",
        "a\\b",
        "..\\up",
        "C:",
        "C:\\x",
        "a\0b",
        "a\nb",
        "\x1b[31m",
        "a\u202eb",
        "\udc80",
        "ends.",
        "ends ",
        " begins",
        "con",
        "NUL.txt",
        "com1",
        "a" * 121,
        "é" * 61,
        "what?",
        "a*",
        "a|b",
    ],
)
def test_a_name_that_is_no_plain_name_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="must"):
        check_name(name, "phase")
    with pytest.raises(InputError, match="must"):
        path_below(tmp_path, "run", name)


@pytest.mark.parametrize("name", ["ts-fl+psi", "ls-0.05", "été", "a b", ".hidden", "a" * 120, "adafocal, 15 bins"])
def test_usual_names_are_paths_below_the_folder(tmp_path, name):
    assert path_below(tmp_path, "run", name) == tmp_path / "run" / name


def test_a_recipe_may_have_a_folder_in_its_name():
    assert check_name("cpu/digits", most_parts=2) == "cpu/digits"
    for name in ("a/b/c", "a//b", "/a", "a/", "../a"):
        with pytest.raises(InputError, match="must"):
            check_name(name, most_parts=2)


def test_a_link_that_leads_out_is_refused_and_one_that_stays_is_not(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/inside").mkdir()
    (tmp_path / "run/out").symlink_to(tmp_path)
    (tmp_path / "run/dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "run/stays").symlink_to(tmp_path / "run/inside")
    (tmp_path / "link").symlink_to(tmp_path / "run")  # what the user named may be a link itself
    for names in (("out",), ("out", "file"), ("dangling",)):
        with pytest.raises(InputError, match="leads out of"):
            path_below(tmp_path / "run", *names)
    assert path_below(tmp_path / "link", "stays", "file") == tmp_path / "link/stays/file"


HOSTILE = {
    "name": ("name: quick", f"name: {ESCAPE}"),
    "absolute name": ("name: quick", "name: /ESCAPED"),
    "method": ("    ce: {loss: ce}", f'    "{ESCAPE}": {{loss: ce}}'),
    "phase": ("phase: post", f"phase: {ESCAPE}"),
    "criterion": ("criterion: nll", f"criterion: {ESCAPE}"),
    "set out of distribution": (
        "  measurement:\n",
        f"  measurement:\n    out_of_distribution: [{{name: {ESCAPE}, data: {{name: gaussian-mixture}}}}]\n",
    ),
}


@pytest.mark.parametrize("field", HOSTILE)
def test_names_of_a_recipe_do_not_leave_the_folder(tmp_path, field):
    old, new = HOSTILE[field]
    assert old in QUICK
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c/r.yaml").write_text(QUICK.replace(old, new, 1))
    answer = call("lab", "run", tmp_path / "a/b/c/r.yaml", "--method", "fl-2", "--out", tmp_path / "a/b/c/runs")
    assert answer.code == 2, answer.out
    assert "r.yaml, recipe" in answer.err
    assert "Choose a plain name" in answer.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "a/b/c/r.yaml"]


def test_every_name_of_the_shipped_recipes_is_taken():
    for recipe in catalog().values():
        for name in (*recipe.methods, *(wish.phase for wish in recipe.measurement.calibrators)):
            assert check_name(name) == name


def test_every_path_below_a_run_is_made_by_one_function():
    """No line of the lab puts a path together from a run's folder, or from --out, by itself."""
    source = Path(focalcal_lab.__file__).parent
    files = [*source.glob("*.py"), *source.glob("cli/*.py"), *source.glob("translation/*.py")]
    assert len(files) > 20
    places = ("out", "place", "place.path", "self.path", "folder.path", "self.folder.path", "run.path")
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            joins = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "joinpath"
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                left = ast.unparse(node.left)
                assert left not in places, f"{file.name}, line {node.lineno}"
                assert ".file(" not in left, f"{file.name}, line {node.lineno}"
            assert not joins or file.name == "path_below.py", f"{file.name}, line {node.lineno}"


@pytest.mark.parametrize("name", ["checkpoints", "calibrators", "lock", "run.json", "results.json", "time.json"])
def test_links_in_a_run_folder_do_not_lead_out(tmp_path, name):
    place = begun(tmp_path / "run")
    outside = tmp_path / "outside"
    if name in ("checkpoints", "calibrators"):
        outside.mkdir()
        (outside / "step-0000000001-x.ckpt").write_text("precious")
    else:
        outside.write_bytes((tmp_path / "run" / name).read_bytes() if name == "run.json" else b"precious")
    before = {path: path.read_bytes() for path in [outside, *outside.glob("*")] if path.is_file()}
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).symlink_to(outside)
    with pytest.raises(InputError, match=f"{name}: leads out of .* through a link"):
        resume(place.path)
    assert {path: path.read_bytes() for path in [outside, *outside.glob("*")] if path.is_file()} == before


# Code ----------------------------------------------------------------------------------------------------------------


def test_a_recipe_cannot_name_code(tmp_path):
    victim = tmp_path / "precious"
    victim.mkdir()
    recipe = tmp_path / "r.yaml"
    recipe.write_text(OWN.replace("{name: own}", '{name: own, options: {dataset: "shutil:rmtree"}}'))
    answer = call("lab", "run", recipe, "--data", victim, "--out", tmp_path / "runs")
    assert (answer.code, victim.is_dir()) == (2, True)
    assert "data.options: dataset: a recipe must not name code" in answer.err
    assert "--dataset MODULE:NAME" in answer.err
    with pytest.raises(InputError, match="dataset: must be what import_dataset gives"):
        load_data("own", victim, dataset="shutil:rmtree")
    foreign = '[{name: other, data: {name: own, options: {dataset: "shutil:rmtree"}}}]'
    with pytest.raises(InputError, match="must not name code"):
        read_recipes(QUICK.replace("  measurement:\n", f"  measurement:\n    out_of_distribution: {foreign}\n"))


def test_a_run_with_code_of_one_s_own_wants_it_named_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_pairs_again.py").write_text(PAIRS)
    Path("r.yaml").write_text(OWN)
    first = call("lab", "run", "r.yaml", "--dataset", "my_pairs_again:rows", "--accelerator", "cpu", "--no-report")
    assert first.code == 0, first.err
    folder = Path("runs/mine/ce/seed-0")
    assert json.loads((folder / "run.json").read_text())["dataset"] == "my_pairs_again:rows"
    assert call("lab", "resume", "runs").code == 0  # what is finished is only read
    (folder / "results.json").unlink()
    Path("imported").unlink()
    sys.modules.pop("my_pairs_again")
    without = call("lab", "resume", "runs")
    assert without.code == 2
    assert without.err.endswith("add --dataset my_pairs_again:rows\n")
    another = call("lab", "resume", "runs", "--dataset", "shutil:rmtree")
    assert another.code == 2
    assert "my_pairs_again:rows; got shutil:rmtree instead" in another.err
    assert not Path("imported").exists()
    again = call("lab", "resume", "runs", "--dataset", "my_pairs_again:rows")
    assert (again.code, again.out) == (0, first.out)
    assert Path("imported").exists()
    assert str(tmp_path) not in sys.path
    assert call("lab", "run", "cpu/digits", "--method", "ce", "--dataset", "my_pairs_again:rows").code == 2


def test_a_dataset_given_to_a_run_without_one_is_refused(tmp_path):
    place = begun(tmp_path / "run")
    with pytest.raises(InputError, match="was begun without --dataset; got shutil:rmtree"):
        resume(place.path, dataset="shutil:rmtree")


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "os:system; rm -r ~"},
        {"dataset": "\x1b]0;x\x07:y"},
        {"dataset": 3},
        {"trainer": {"plugins": ["x"]}},
        {"trainer": {"callbacks": "x"}},
        {"trainer": {"accelerator": {"a": 1}}},
        {"method": ESCAPE},
        {"seed": -1},
        {"seed": 10**30},
        {"seed": "0"},
        {"threads": 0},
        {"digest": None},
        {"unknown": 1},
    ],
)
def test_a_forged_run_json_is_refused(tmp_path, change):
    place = begun(tmp_path / "run")
    values = json.loads(place.file("run.json").read_text())
    place.file("run.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(FileFormatError, match=r"run\.json: it is not what a run writes"):
        resume(place.path)


def test_a_method_that_the_recipe_does_not_have_is_refused(tmp_path):
    place = begun(tmp_path / "run")
    values = json.loads(place.file("run.json").read_text())
    place.file("run.json").write_text(json.dumps({**values, "method": "none"}))
    with pytest.raises(InputError, match="got 'none'"):
        resume(place.path)


def test_trainer_options_that_lightning_refuses_are_said(tmp_path):
    place = begun(tmp_path / "run")
    values = json.loads(place.file("run.json").read_text())
    place.file("run.json").write_text(json.dumps({**values, "trainer": {"strategy": "nowhere"}}))
    with pytest.raises(InputError, match="trainer: "):
        resume(place.path)


@pytest.mark.parametrize("content", ["", "[", "3", "[]", "{}", '{"schema": 1}', "[" * 100_000, '{"schema": 1e999}'])
def test_a_forged_result_is_refused(tmp_path, content):
    place = begun(tmp_path / "run")
    place.file("results.json").write_text(content)
    with pytest.raises(FileFormatError, match=r"results\.json: it is not the result of a run"):
        resume(place.path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"config": {"attn_implementation": "someone/kernel"}}, "config: must have no fields but"),
        ({"config": {"auto_map": {"AutoModel": "x.y"}}}, "config: must have no fields but"),
        ({"checkpoint": "someone/else"}, "checkpoint: must be bert-base-uncased"),
    ],
)
def test_a_recipe_loads_no_network_but_those_it_may(options, said):
    pytest.importorskip("transformers")
    with pytest.raises(InputError, match=said):
        make_model("bert", 3, {"vocabulary": 13}, **options)


def test_a_folder_s_adapter_is_not_followed(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    with pytest.raises(InputError, match="an adapter of another"):
        make_model("bert", 3, {"vocabulary": 13}, checkpoint=str(tmp_path))


@pytest.mark.slow
def test_runs_side_by_side_import_nothing_from_the_current_folder(tmp_path):
    for name in ("typer", "yaml", "runpy", "focalcal"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(7)\n")
    done = subprocess.run([sys.executable, "-c", lab._START, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()
