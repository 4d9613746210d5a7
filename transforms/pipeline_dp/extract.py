"""Runs extractors over rows and collects the results in Arrow tables, tens of thousands at a time.

In: rows of any kind, functions of one row. Out: tables with the columns `privacy_id`, `partition_key` and, where it is read,
`value`; their types are public. Holds: each row is judged alone, by functions that are called once for it. What an extractor
raises is not heard of: without an id or a key the row is dropped, without a value the value is null; so a fact in the rows
decides no error. A table has at most `BATCH_ROWS` rows, however many `FlatMap` makes of one. Not covered: what extractors do
beside returning (printing, writing, warning, changing rows that they are not given). Speed: some two microseconds a row.
"""

import dataclasses
import decimal
import itertools
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import gather
from dp_pipelines.noise import entropy
from dp_pipelines.transforms.pipeline_dp import keys
from dp_pipelines.transforms.rows.each_row import of_each

UNIT, PARTITION, VALUE = "privacy_id", "partition_key", "value"

KEY_HINT = "use text, bytes, numbers, dates, UUIDs, members of enumerations, None, or tuples and frozensets of these"

BATCH_ROWS = 2**16

CHUNK_ROWS = 2**9
"""Rows that are kept until extractors are called. Few, so that they die young: Python's collector looks at what lives."""

BATCH_NUMBERS = 2**20
"""Numbers in a table whose values are vectors."""

_FAILED = object()
"""Stands for a missing result of a function of a row."""

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
    >>> [table.column("value").to_pylist() for table in reader.tables([("ann", "north", 2), ("bob", "south", None)])]
    [[2.0, nan]]
    """

    unit: Callable[[Any], Any] | None
    partition: Callable[[Any], Any]
    value: Callable[[Any], Any] | None = None
    size: int | None = None
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        _refuse_by_hint("partition_extractor", self.partition)
        if self.unit is not None:
            _refuse_by_hint("privacy_id_extractor", self.unit)

    @property
    def most(self) -> int:
        """Rows of a table."""
        return BATCH_ROWS if self.size is None else max(1, min(BATCH_ROWS, BATCH_NUMBERS // self.size))

    @property
    def chunk(self) -> int:
        """Rows that are kept until extractors are called."""
        return min(CHUNK_ROWS, self.most)

    def tables(self, rows: Iterable[Any]) -> Iterator[pa.Table]:
        """The tables of some rows: at least one."""
        columns, waiting, empty = Columns(self), iter(rows), True
        while found := list(itertools.islice(waiting, self.chunk)):
            for table in columns.added(found):
                empty = False
                yield table
        if len(columns) or empty:
            yield columns.taken()


class Columns:
    """What extractors gave of rows, until there is enough for a table; the rows themselves are let go.

    Args:
        reader: what is asked of a row.
    """

    def __init__(self, reader: RowReader) -> None:
        self._reader, self._most = reader, reader.most
        self._units: list[Any] = []
        self._partitions: list[Any] = []
        self._values: list[Any] = []

    def __len__(self) -> int:
        return len(self._partitions)

    def added(self, rows: list[Any]) -> Iterator[pa.Table]:
        """Take up some rows; the tables that are full, however many the rows' functions make of them."""
        unit = self._reader.unit
        with _quiet():
            units = [None] * len(rows) if unit is None else _each(unit, rows)
        found = self._after(self._reader.steps, units, rows)
        while True:
            with _quiet():
                full = next(found, None)
            if full is None:
                return
            yield full

    def _after(self, steps: tuple[Step, ...], units: list[Any], rows: list[Any]) -> Iterator[pa.Table]:
        if steps:
            for found, origins in _stepped(*steps[0], rows, self._most):
                yield from self._after(steps[1:], [units[origin] for origin in origins], found)
            return
        for begin in range(0, len(rows), self._most):
            end = begin + self._most
            self._units += units[begin:end]
            self._partitions += _each(self._reader.partition, rows[begin:end])
            if self._reader.value is not None:
                self._values += _each(self._reader.value, rows[begin:end])
            if len(self._partitions) >= self._most:
                yield self._first()

    def taken(self) -> pa.Table:
        """A table of what is there, possibly without rows."""
        with _quiet():
            return self._first()

    def _first(self) -> pa.Table:
        """A table of the first rows, `most` of them."""
        most, reader = self._most, self._reader
        given, self._units = self._units[:most], self._units[most:]
        asked, self._partitions = self._partitions[:most], self._partitions[most:]
        values, self._values = self._values[:most], self._values[most:]
        units = _own_units(len(given)) if reader.unit is None else keys.encoded(given, units=True)
        partitions = keys.encoded(asked)
        if partitions.null_count:
            # A row without a key is treated like one without a unit: it is dropped.
            units = gather.replaced(units, partitions.is_null().to_numpy(zero_copy_only=False), None)
            partitions = partitions.fill_null(b"n")
        columns = {UNIT: units, PARTITION: partitions}
        if reader.value is not None:
            columns[VALUE] = _numbers(values) if reader.size is None else _vectors(values, reader.size)
        return pa.table(columns)


def _refuse_by_hint(field: str, function: Callable[[Any], Any]) -> None:
    """Refuse an extractor whose type hint names a class without keys. What it returns is never judged: a row decides that.

    Raises:
        RequestError: the hint, a public fact, says that all rows would be dropped.
    """
    try:
        hint = typing.get_type_hints(function).get("return", Any)
        cls = typing.get_origin(hint) or hint
        is_wrong = isinstance(cls, type) and cls not in (Any, types.UnionType) and not keys.has_keys(cls)
    except Exception:  # no function of Python, names that nobody knows, a protocol
        return
    if is_wrong:
        raise RequestError(field=field, message=f"returns a {cls.__name__}, which cannot be a key", hint=KEY_HINT)


def _quiet() -> np.errstate:
    """While functions of rows run: else rows decide what NumPy warns of."""
    return np.errstate(all="ignore")


def pairs(unit: Callable[[Any], Any], steps: tuple[Step, ...], row: Any) -> list[tuple[Any, Any]]:
    """What follows of one row, each with the row's id; nothing where a function raises.

    >>> pairs(lambda row: row[0], (("flat_map", lambda row: row[1:]),), ("ann", 3, 4))
    [('ann', 3), ('ann', 4)]
    """
    with np.errstate(all="ignore"):
        (found,), rows = _each(unit, [row]), [row]
        if found is _FAILED:
            return []
        for kind, function in steps:
            rows = [one for made, _ in _stepped(kind, function, rows, BATCH_ROWS) for one in made]
    return [(found, one) for one in rows]


def tables(rows: Iterable[Any], reader: RowReader) -> Iterator[pa.Table]:
    """The tables of some rows, after one without rows, so that types are known where there are none."""
    yield from reader.tables([])
    yield from reader.tables(rows)


def _each(function: Callable[[Any], Any], rows: list[Any]) -> list[Any]:
    """What a function gives for each row; `_FAILED` where it raises."""
    return of_each(function, rows, _FAILED)


def _all_of(function: Callable[[Any], Iterable[Any]], row: Any) -> list[Any]:
    try:
        return list(function(row))
    except BaseException:  # as above; half of a row's rows would depend on where it failed
        interrupts.end_if_asked()
        return []


def _stepped(
    kind: str, function: Callable[[Any], Any], rows: list[Any], most: int
) -> Iterator[tuple[list[Any], list[int]]]:
    """What follows of some rows, and for each of it the place of the row that it comes from; at least once, `most` at a time."""
    if kind == "map":
        given = _each(function, rows)
        origins = [place for place, row in enumerate(given) if row is not _FAILED]
        yield [given[place] for place in origins], origins
        return
    found, origins = [], []
    for place, row in enumerate(rows):
        made = _all_of(function, row)
        found += made
        origins += [place] * len(made)
        if len(found) >= most:
            for begin in range(0, len(found), most):
                yield found[begin : begin + most], origins[begin : begin + most]
            found, origins = [], []
    yield found, origins


def _own_units(count: int) -> pa.Array:
    """A unit for each row that no other row has, whichever worker reads it."""
    prefix = entropy.salt(16)
    numbers = np.arange(count, dtype=">u4")
    cells = np.empty((count, 20), np.uint8)
    cells[:, :16] = np.frombuffer(prefix, np.uint8)
    cells[:, 16:] = numbers.view(np.uint8).reshape(-1, 4)
    offsets = np.arange(0, 20 * count + 1, 20, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def _numbers(values: list[Any]) -> pa.Array:
    try:
        if set(map(type, values)) <= _NUMBERS:
            return pa.array(np.fromiter(values, np.float64, len(values)))
    except BaseException:  # a whole number beyond all floats, or a number of somebody's own class
        interrupts.end_if_asked()
    return pa.array(np.array([_number(value) for value in values], np.float64))


def _number(value: Any) -> float:
    """A value as a float; NaN, which is null, where it is no real number. Text is none."""
    try:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        is_number = isinstance(value, (numbers.Real, np.bool_, decimal.Decimal))
        if not is_number or isinstance(value, np.timedelta64):  # which NumPy counts among whole numbers
            return float("nan")
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    except BaseException:  # as above
        interrupts.end_if_asked()
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
        if isinstance(value, np.ma.MaskedArray):  # some of whose values are hidden
            return None
        vector = np.array(value)
        if vector.dtype.kind not in "fiub" or vector.shape != (size,):
            return None
        return vector.astype(np.float64)
    except BaseException:  # as above
        interrupts.end_if_asked()
        return None
