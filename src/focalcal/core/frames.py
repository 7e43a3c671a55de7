"""Data frames, their columns and other foreign containers as numpy arrays.

pandas, polars, pyarrow and whatever else narwhals knows are read through narwhals, which is imported only when such an
object comes. Rows are taken by position: an index plays no part.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from focalcal.errors import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"

# The packages whose objects narwhals reads.
_HOMES = frozenset({"pandas", "polars", "pyarrow", "modin", "cudf", "narwhals", "dask", "duckdb", "ibis", "pyspark"})


class FrameLike(Protocol):
    """A data frame or a column of pandas, polars or pyarrow, for type checkers."""

    def to_numpy(self, *args: Any, **kwargs: Any) -> Any:
        """The values as an array."""
        ...


@dataclass(frozen=True)
class FrameValues:
    """The values of a data frame (N, K) or of a column (N,), with the names of the columns or the categories.

    `ordered` says that the order of the categories means something.
    """

    values: Array
    names: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    ordered: bool = False


def is_frame(values: object) -> bool:
    """Whether an object is a data frame or a column of one, by the package that its type comes from.

    >>> import pyarrow as pa
    >>> is_frame(pa.array([1.0])), is_frame([1.0])
    (True, False)
    """
    return type(values).__module__.partition(".")[0] in _HOMES


def read_frame(values: Any, argument: str) -> FrameValues:
    """A data frame as an array (N, K), or one of its columns as an array (N,); a frame of one column is that column.

    >>> import pyarrow as pa
    >>> read_frame(pa.table({"cat": [0.75, 0.5], "dog": [0.25, 0.5]}), "probs").names
    ('cat', 'dog')
    """
    try:
        import narwhals as nw

        given = nw.from_native(_whole(values), allow_series=True)
        if isinstance(given, nw.DataFrame):
            return _of_columns(list(given.iter_columns()), argument)
        if isinstance(given, nw.Series):
            return _of_column(given, argument)
    except InputError:
        raise
    except Exception as error:  # whatever the other library says of an object that is not a plain frame
        raise InputError(
            f"{argument}: this {_kind(values)} cannot be read ({_first_line(error)}). "
            "Give a plain data frame, or convert it to an array."
        ) from error
    raise InputError(f"{argument}: must be in memory; got a {_kind(values)}. Call its .collect() first.")


def _whole(values: Any) -> Any:
    """Indexes, categoricals, arrays and record batches as the columns and tables that narwhals knows."""
    home, kind = type(values).__module__.partition(".")[0], type(values).__name__
    if home == "pandas" and kind not in ("DataFrame", "Series"):
        return sys.modules["pandas"].Series(values)
    if home == "pyarrow":
        pa = sys.modules["pyarrow"]
        if isinstance(values, pa.Array):
            return pa.chunked_array([values])
        if isinstance(values, pa.RecordBatch):
            return pa.Table.from_batches([values])
    return values


def _of_columns(columns: list[Any], argument: str) -> FrameValues:
    if not columns:
        raise InputError(f"{argument}: the data frame has no columns. Give it one column for each class.")
    if len(columns) == 1:
        return _of_column(columns[0], argument)
    wrong = next((column for column in columns if not column.dtype.is_numeric()), None)
    if wrong is not None:
        raise InputError(
            f"{argument}: every column of a data frame must hold numbers; column {wrong.name} holds {wrong.dtype}. "
            "Select the columns of the classes first."
        )
    arrays = [_of_column(column, argument).values for column in columns]
    arrays = [each.astype(np.float64) if each.dtype == object else each for each in arrays]  # decimals
    return FrameValues(np.stack(arrays, 1), tuple(str(column.name) for column in columns))


def _of_column(column: Any, argument: str) -> FrameValues:
    import narwhals as nw

    kind = column.dtype
    if not kind.is_float() and column.null_count():
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(f"{argument}: has a missing value in row {row}. Fill it, or leave those rows out.")
    if isinstance(kind, (nw.List, nw.Array)):
        return FrameValues(_of_lists(column.to_list(), argument))
    if isinstance(kind, (nw.Categorical, nw.Enum)):
        values = np.array(column.to_list(), dtype=object)
        if isinstance(kind, nw.Enum):
            return FrameValues(values, categories=tuple(map(str, kind.categories)), ordered=True)
        # Those of other libraries are whatever was met first, also in other columns.
        stated = column.to_native().cat.categories if column.implementation.is_pandas_like() else None
        return FrameValues(values, categories=None if stated is None else tuple(map(str, stated)))
    return FrameValues(np.asarray(column.to_numpy()))


def _of_lists(rows: list[Any], argument: str) -> Array:
    """Lists of numbers (N, K), one for each row."""
    _require_equal_lengths(rows, argument)
    return np.asarray(rows)


def _require_equal_lengths(rows: list[Any], argument: str) -> None:
    if len({len(row) for row in rows}) > 1:
        raise InputError(f"{argument}: the lists differ in length. Give every row one score for each class.")


def numbers_of(values: Array, argument: str) -> Array:
    """An array of Python objects as an array of numbers; lists in it become rows.

    >>> numbers_of(np.array([[0.5, 1], [2, 3]], dtype=object), "logits")
    array([[0.5, 1. ],
           [2. , 3. ]])
    """
    rows = values.tolist()
    if values.ndim == 1 and rows and all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        _require_equal_lengths(rows, argument)
    flat: list[Any] = []
    try:
        flat = np.array(rows, dtype=object).reshape(-1).tolist()
        numbers = np.asarray(rows, dtype=np.float64)
    except Exception:  # whatever objects do when they are asked for a number
        numbers = None
    wrong: Any = next((each for each in flat if not _is_number(each)), None)
    if numbers is None or wrong is not None:
        raise InputError(f"{argument}: must hold numbers; got {_kind(wrong)}. Convert it with .astype(float).")
    return numbers


def _is_number(value: object) -> bool:
    """Whether a value is a number or missing; text is neither, though Python reads numbers in it."""
    try:
        return value is None or (not isinstance(value, (str, bytes)) and float(value) is not None)  # type: ignore[arg-type]
    except Exception:  # whatever an object does when it is asked for a number
        return False


def _kind(values: object) -> str:
    home = type(values).__module__.partition(".")[0]
    return type(values).__name__ if home == "builtins" else f"{home} {type(values).__name__}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200].rstrip(".") or type(error).__name__
