"""Types as a user's checker sees them: of the program user.py, and the errors of wrong.py.

mypy reads both programs in `make types`. Here pyright reads them from outside, with the built wheel installed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_packaging import without_python_variables
from tests.test_public import CONTRACT

FOLDER = Path(__file__).parent


def test_the_typed_program_uses_every_name_of_the_contract():
    tree = ast.parse((FOLDER / "user.py").read_text())
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "fc"}
    assert sorted(set(CONTRACT) - used) == []


@pytest.mark.slow
@pytest.mark.xdist_group("installed")
def test_pyright_finds_the_types_of_the_wheel_and_the_errors_of_a_wrong_program(library_alone, tmp_path):
    settings = {
        "typeCheckingMode": "standard",
        "include": [str(FOLDER / "user.py"), str(FOLDER / "wrong.py")],
        "pythonVersion": "3.10",
        "enableTypeIgnoreComments": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", str(library_alone)]
    done = subprocess.run(
        [*command, "--project", str(tmp_path)], capture_output=True, text=True, env=without_python_variables()
    )
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert [each for each in found if Path(each["file"]).name != "wrong.py"] == []
    lines = (FOLDER / "wrong.py").read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# type: ignore" in line}
    assert {each["range"]["start"]["line"] + 1 for each in found} == marked, found
