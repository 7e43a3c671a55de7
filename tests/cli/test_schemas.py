"""The JSON that commands print is described by committed schemas, made from the results' dataclasses."""

from __future__ import annotations

import json

import jsonschema
import pytest

from focalcal.cli.results import json_schema, result_types, write_schemas
from tests.cli.tools import ROOT, call

FOLDER = ROOT / "docs/schemas"


def test_there_is_a_schema_for_every_command_and_no_other():
    assert {path.stem for path in FOLDER.iterdir()} == set(result_types())


@pytest.mark.parametrize("command", sorted(result_types()))
def test_the_committed_schema_is_the_one_of_the_dataclass(command, tmp_path):
    write_schemas(str(tmp_path))
    assert (FOLDER / f"{command}.json").read_text() == (tmp_path / f"{command}.json").read_text()


@pytest.mark.parametrize("command", sorted(result_types()))
def test_every_result_names_its_command_and_schema_version_and_allows_nothing_else(command):
    schema = json_schema(result_types()[command])
    assert {"schema", "command"} <= set(schema["required"])
    assert schema["additionalProperties"] is False
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": 1, "command": command}, schema)


def test_the_claims_follow_their_schema():
    answer = call("claims", "--list", "--json")
    assert json.loads(answer.out)["command"] == "claims"
    answer.json()
