"""The JSON that commands print is described by committed schemas, made from the results' dataclasses."""

from __future__ import annotations

import jsonschema
import pydantic
import pytest

from focalcal.cli.results import json_schema, result_types, write_schemas
from tests.cli.tools import ROOT

FOLDER = ROOT / "docs/schemas"


PINNED = f"pydantic=={pydantic.VERSION}" in (ROOT / "constraints.txt").read_text().splitlines()


@pytest.mark.skipif(not PINNED, reason="other versions of pydantic write other words")
def test_the_committed_schemas_are_those_of_the_dataclasses(tmp_path):
    write_schemas(str(tmp_path), result_types())
    for command in result_types():
        assert (FOLDER / f"{command}.json").read_text() == (tmp_path / f"{command}.json").read_text()


def test_there_is_a_schema_for_every_command_and_no_other():
    lab = pytest.importorskip("focalcal_lab.cli.results")
    assert {path.stem for path in FOLDER.iterdir()} == {*result_types(), *lab.result_types()}


@pytest.mark.parametrize("command", sorted(result_types()))
def test_every_result_names_its_command_and_schema_version_and_allows_nothing_else(command):
    schema = json_schema(result_types()[command])
    assert {"schema", "command"} <= set(schema["required"])
    assert schema["additionalProperties"] is False
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": 1, "command": command}, schema)
