"""Converts dicts, NamedTuples and Beam rows to Arrow tables, as a step of its own.

In: a PCollection of rows and, where they bring none, their types. Out: tables. Holds: types are declared or those of the rows'
schema, never taken from rows; a value that does not fit its column is null. Not covered: speed; a row costs about a microsecond,
while an Arrow source costs next to nothing.
"""

import dataclasses
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.kernels.columns.type_names import declared_types
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows.input_tables import Types, input_tables


@dataclasses.dataclass(eq=False)
class FromRows(ReleaseTransform):
    """Turn rows into Arrow tables. `PrivateAggregate` reads rows without it; it is for rows that several steps read.

    Args:
        types: the type of each column, as pyarrow types or by names such as "int64" and "string". Can be left out for rows with
            a schema, such as NamedTuples. Elements are mappings, NamedTuples, Beam rows or any objects with such attributes; an
            attribute that is missing, or raises when it is read, is null.

    Raises:
        RequestError: when the pipeline is built: types are unknown or missing, differ from those of the rows, or the elements
            can be no rows.

    >>> FromRows(types={"customer": "string", "amount": pa.float64()}).types["amount"]
    DataType(double)
    """

    types: Types | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if self.types is not None:
            self.types = declared_types(self.types)

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Buffer rows of a bundle and emit tables, plus one without rows, so that types are known even if there are no rows."""
        return input_tables(pcoll, self.types)[0]
