"""Converts dicts, NamedTuples and Beam rows to Arrow tables.

In: a PCollection of rows and a public schema. Out: tables. Holds: types come from the declared schema, never from rows; a
value that does not fit its column is null. Not covered: speed; a row costs about a microsecond, while an Arrow source
costs next to nothing.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import column_casts
from dp_pipelines.transforms.row_batches import tables_of

BATCH_ROWS = 2**16


@dataclasses.dataclass
class FromRows(beam.PTransform):
    """Turn rows into Arrow tables.

    Args:
        types: the type of each column, by name, as pyarrow types. Elements are mappings, NamedTuples, Beam rows or any
            objects with such attributes; an attribute that is missing, or raises when it is read, is null.

    >>> FromRows(types={"customer": pa.string(), "amount": pa.float64()}).types["amount"]
    DataType(double)
    """

    types: Mapping[str, pa.DataType]

    def __post_init__(self) -> None:
        super().__init__()
        if not self.types or not all(isinstance(kind, pa.DataType) for kind in self.types.values()):
            raise RequestError(
                field="types",
                message="must map column names to pyarrow types",
                hint='write e.g. {"customer": pa.string()}',
            )

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Buffer rows of a bundle and emit tables, plus one without rows, so that types are known even if there are no rows."""
        return tables_of(pcoll, functools.partial(_tables, dict(self.types)), BATCH_ROWS)


def _tables(types: Mapping[str, pa.DataType], rows: list[Any]) -> tuple[pa.Table]:
    columns = {}
    for name, kind in types.items():
        cells = _cells(rows, name)
        if pa.types.is_timestamp(kind):  # Beam has times of its own, in microseconds
            of_micro = {"s": (1, 10**6), "ms": (1, 10**3), "us": (1, 1), "ns": (10**3, 1)}[kind.unit]
            cells = [c.micros * of_micro[0] // of_micro[1] if isinstance(c, Timestamp) else c for c in cells]
        columns[name] = column_casts.column(cells, kind)
    return (pa.table(columns),)


def _cells(rows: list[Any], name: str) -> list[Any]:
    try:
        if all(isinstance(row, Mapping) for row in rows):
            return [row.get(name) for row in rows]
    except Exception:  # noqa: S110 - what a row raises must not be seen, and costs that row its own cells only
        pass
    return [_cell(row, name) for row in rows]


def _cell(row: Any, name: str) -> Any:
    try:
        return row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
    except Exception:  # as above
        return None
