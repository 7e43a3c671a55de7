"""The file of a monitor: one record per epoch, as JSON or Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from focalcal.atomic import write_atomically
from focalcal.errors import FileFormatError
from focalcal.files.arrow_rows import pyarrow
from focalcal_lab.monitor.accumulators import Record

SCHEMA = 1
FORMAT = "focalcal monitor"


def write_monitor(path: str | Path, records: Sequence[Record]) -> None:
    """Write the records of all epochs so far, as JSON or Parquet by the name of the file.

    The same records always give the same bytes.
    """
    if Path(path).suffix == ".parquet":
        write_atomically(path, _as_parquet(records))
        return
    lines = ",\n".join(json.dumps(record, allow_nan=False) for record in records)
    head = f'"format": {json.dumps(FORMAT)}, "schema": {SCHEMA}'
    write_atomically(path, f'{{{head}, "epochs": [\n{lines}\n]}}\n'.encode())


def _as_parquet(records: Sequence[Record]) -> bytes:
    arrow = pyarrow()
    table = arrow.Table.from_pylist(list(records))
    table = table.replace_schema_metadata({"format": FORMAT, "schema": str(SCHEMA)})
    file = io.BytesIO()
    arrow.parquet.write_table(table, file)
    return file.getvalue()


def read_monitor(path: str | Path) -> list[Record]:
    """The records of a monitored run, one per epoch, from JSON or Parquet.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "monitor.json"
    >>> write_monitor(place, [{"epoch": 0, "val": {"nll": 0.5}}])
    >>> [record["val"]["nll"] for record in read_monitor(place)]
    [0.5]
    """
    place = Path(path)
    facts, records = _from_parquet(place) if place.suffix == ".parquet" else _from_json(place)
    if facts.get("format") != FORMAT or not isinstance(records, list):
        raise FileFormatError(f"{path}: it is not the file of a monitor.")
    if str(facts.get("schema")) != str(SCHEMA):
        raise FileFormatError(f"{path}: it has schema {facts.get('schema')}; this version reads {SCHEMA}.")
    return records


def _from_json(place: Path) -> tuple[Mapping[str, Any], Any]:
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{place}: it is not JSON: {error}.") from error
    content = content if isinstance(content, dict) else {}
    return content, content.get("epochs")


def _from_parquet(place: Path) -> tuple[Mapping[str, Any], Any]:
    arrow = pyarrow()
    try:
        table = arrow.parquet.read_table(io.BytesIO(place.read_bytes()))
    except arrow.ArrowException as error:
        raise FileFormatError(f"{place}: it is not a Parquet file: {error}.") from error
    facts = {key.decode(): value.decode(errors="replace") for key, value in (table.schema.metadata or {}).items()}
    return facts, table.to_pylist()
