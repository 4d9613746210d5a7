"""Rows through extractors into Arrow tables, tens of thousands at a time.

In: rows of any kind, functions of one row. Out: tables with the columns `privacy_id`, `partition_key` and, where it is read,
`value`; their types are public. Holds: each row is judged alone. What an extractor raises is not heard of: without an id or a
key the row is dropped, without a value the value is null; so a fact in the rows decides no error. Not covered: what extractors
do beside returning (printing, writing); functions that fail may be called twice for a row. Speed: some two microseconds a row.

May import dp_pipelines, numpy, pyarrow and Beam.
"""

import dataclasses
import decimal
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dp_pipelines.noise import entropy
from dp_pipelines.transforms.pipeline_dp import keys

UNIT, PARTITION, VALUE = "privacy_id", "partition_key", "value"

BATCH_ROWS = 2**16

_FAILED = object()
"""Stands for what a function of a row did not give."""

_NUMBERS = frozenset((float, int, bool, np.float64, np.float32, np.int64, np.int32, np.int16, np.int8, np.bool_))

Step = tuple[Literal["map", "flat_map"], Callable[[Any], Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowReader:
    """How rows become a table.

    Args:
        unit: gives the privacy id of a row; None: each row is a unit of its own.
        steps: functions that change what follows of a row, before `partition` and `value`; the id is that of the row.
        partition: gives the partition key.
        value: gives what is aggregated; None: nothing is.
        size: numbers in a value, where it is a vector.

    >>> reader = RowReader(unit=lambda row: row[0], partition=lambda row: row[1], value=lambda row: row[2])
    >>> reader.table([("ann", "north", 2), ("bob", "south", None)]).column("value").to_pylist()
    [2.0, nan]
    """

    unit: Callable[[Any], Any] | None
    partition: Callable[[Any], Any]
    value: Callable[[Any], Any] | None = None
    size: int | None = None
    steps: tuple[Step, ...] = ()

    def table(self, rows: list[Any]) -> pa.Table:
        """The table of some rows."""
        units = _own_units(len(rows)) if self.unit is None else keys.encoded(_each(self.unit, rows), units=True)
        found = rows
        for kind, function in self.steps:
            found, origins = _stepped(kind, function, found)
            units = units.take(pa.array(origins))
        partitions = keys.encoded(_each(self.partition, found))
        if partitions.null_count:
            # Without a key the row is no row: rows without a unit are dropped.
            units = pc.if_else(partitions.is_valid(), units, pa.scalar(None, pa.binary()))
            partitions = partitions.fill_null(b"n")
        columns = {UNIT: units, PARTITION: partitions}
        if self.value is not None:
            values = _each(self.value, found)
            columns[VALUE] = _numbers(values) if self.size is None else _vectors(values, self.size)
        return pa.table(columns)


@dataclasses.dataclass
class ReadRows(beam.PTransform):
    """Turn the rows of a PCollection into tables; one of them is without rows, so that types are known where there are none."""

    reader: RowReader

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Buffer the rows of a bundle."""
        tables = pcoll | "ToTables" >> beam.ParDo(_ToTables(self.reader)).with_output_types(pa.Table)
        types = pcoll.pipeline | "Types" >> beam.Create([self.reader.table([])], reshuffle=False).with_output_types(
            pa.Table
        )
        return (tables, types) | "Tables" >> beam.Flatten()


class _ToTables(beam.DoFn):
    def __init__(self, reader: RowReader) -> None:
        super().__init__()
        self._reader = reader
        self._rows: list[Any] = []

    def start_bundle(self) -> None:
        self._rows = []

    def process(self, element: Any) -> Sequence[pa.Table]:
        # Not a generator: a row costs an append.
        self._rows.append(element)
        if len(self._rows) < BATCH_ROWS:
            return ()
        rows, self._rows = self._rows, []
        return [self._reader.table(rows)]

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            rows, self._rows = self._rows, []
            yield WindowedValue(self._reader.table(rows), GlobalWindow().max_timestamp(), [GlobalWindow()])


def tables(rows: Iterable[Any], reader: RowReader) -> Iterator[pa.Table]:
    """The same without Beam."""
    yield reader.table([])
    waiting = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == BATCH_ROWS:
            yield reader.table(waiting)
            waiting = []
    yield reader.table(waiting)


def _each(function: Callable[[Any], Any], rows: list[Any]) -> list[Any]:
    """What a function gives for each row; `_FAILED` where it raises. (`map` would end where one raises StopIteration)."""
    try:
        return [function(row) for row in rows]
    except Exception:
        return [_one(function, row) for row in rows]


def _one(function: Callable[[Any], Any], row: Any) -> Any:
    try:
        return function(row)
    except Exception:  # in words that may quote the row
        return _FAILED


def _all_of(function: Callable[[Any], Iterable[Any]], row: Any) -> list[Any]:
    try:
        return list(function(row))
    except Exception:  # as above; half of a row's rows would depend on where it failed
        return []


def _stepped(kind: str, function: Callable[[Any], Any], rows: list[Any]) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """What follows of some rows, and for each of it the place of the row that it comes from."""
    if kind == "map":
        given = _each(function, rows)
        origins = [place for place, row in enumerate(given) if row is not _FAILED]
        return [given[place] for place in origins], np.array(origins, np.int64)
    many = [_all_of(function, row) for row in rows]
    found = [row for of_one in many for row in of_one]
    return found, np.repeat(np.arange(len(rows)), [len(of_one) for of_one in many])


def _own_units(count: int) -> pa.Array:
    """A unit for each row that no other row has, whichever worker reads it."""
    prefix = entropy.words(2).tobytes()
    numbers = np.arange(count, dtype=">u4")
    cells = np.empty((count, 20), np.uint8)
    cells[:, :16] = np.frombuffer(prefix, np.uint8)
    cells[:, 16:] = numbers.view(np.uint8).reshape(-1, 4)
    offsets = np.arange(0, 20 * count + 1, 20, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def _numbers(values: list[Any]) -> pa.Array:
    try:
        if set(map(type, values)) <= _NUMBERS:
            return pa.array(np.array(values, np.float64))
    except Exception:  # noqa: S110 - a whole number beyond all floats
        pass
    return pa.array(np.array([_number(value) for value in values], np.float64))


def _number(value: Any) -> float:
    """A value as a float; NaN, which is null, where it is no number. Text is no number."""
    try:
        if isinstance(value, (numbers.Real, np.number, np.bool_, decimal.Decimal)):
            return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    except Exception:  # as above
        return float("nan")
    return float("nan")


def _vectors(values: list[Any], size: int) -> pa.Array:
    kind = pa.list_(pa.float64())
    rows = [_vector(value, size) for value in values]
    present = [row for row in rows if row is not None]
    flat = np.concatenate(present) if present else np.empty(0)
    ends = np.concatenate(([0], np.cumsum([0 if row is None else size for row in rows]))).astype(np.int32)
    mask = pa.array(np.array([row is None for row in rows], np.bool_))
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat), type=kind, mask=mask)


def _vector(value: Any, size: int) -> np.ndarray[Any, Any] | None:
    """A copy of a value as a vector: the program's own array stays as it is. None where it is none of this size."""
    try:
        vector = np.array(value)
        if vector.dtype.kind not in "fiub" or vector.shape != (size,):
            return None
        return vector.astype(np.float64)
    except Exception:  # as above
        return None
