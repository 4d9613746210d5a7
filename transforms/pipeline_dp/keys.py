"""Privacy ids and partition keys of any plain Python type as bytes in one Arrow column, and back.

In: lists of what extractors return. Out: binary arrays, in which equal keys and no others have equal bytes; null where a
value cannot be a key. Holds: the type of the column is the same whatever the rows hold; a key's bytes depend on that key
alone. As for Beam, 1, 1.0 and True are three partition keys; as privacy ids they are one, as they are for Python's `==`: else
one person would be bounded as three. -0.0 is 0.0, all NaN are one key, a named tuple is its tuple, NumPy's scalars are
Python's, decimals that are equal are one, a member of an enumeration is known by its class and name. A value of any other class
is no key and costs its row alone, whatever its class is: that an extractor returned it may be a fact about one row.
"""

import contextlib
import datetime
import decimal
import enum
import hashlib
import importlib
import itertools
import math
import struct
import sys
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.rows import numpy_times

_NONE, _FALSE, _TRUE, _FLOAT, _TEXT, _BYTES, _TUPLE, _DATE, _TIME, _AWARE = (bytes([sign]) for sign in b"nFTfsbtdDA")
_UUID, _DECIMAL, _ENUM, _SET = (bytes([sign]) for sign in b"uNEz")
_LOW, _INT, _HIGH = b"1", b"2", b"3"
"""Whole numbers below, in and above 64 bits: in this order."""

_WHOLE = frozenset((int, np.int64, np.int32, np.int16, np.int8, np.uint32, np.uint16, np.uint8))

_NO_IDS = (_NONE, _FLOAT + struct.pack(">d", float("nan")))

_CLASSES = (
    type(None),
    int,
    str,
    bytes,
    bytearray,
    float,
    tuple,
    frozenset,
    uuid.UUID,
    decimal.Decimal,
    enum.Enum,
    datetime.date,
)
"""Classes whose values are keys, with their subclasses; NumPy's scalars are Python's."""

_NUMPY_WITHOUT = (np.timedelta64, np.longdouble, np.complexfloating, np.void, np.object_)
"""Classes of NumPy whose values are no keys: Python has no such value, or none that is a key."""

DEEPEST = 20
"""Tuples inside tuples."""

LONGEST = 2**14
"""Bytes of a key: with a longer one, tens of thousands of rows would not fit an Arrow array."""


LONGEST_ID = 2**6
"""Bytes of a privacy id as it is. All rows of an id meet in one array, whose bytes are few: a longer one is its SHA-256."""


class NoKeyError(TypeError):
    """A value cannot be a key. Never leaves this package but for `check_row`, which is given no rows."""


def has_keys(cls: type) -> bool:
    """Whether some value of a class can be a key: for what a program says of its values before there are any.

    >>> has_keys(datetime.datetime), has_keys(object), has_keys(datetime.time)
    (True, True, False)
    """
    if issubclass(cls, np.generic):
        return not issubclass(cls, _NUMPY_WITHOUT)
    return issubclass(cls, _CLASSES) or any(issubclass(one, cls) for one in _CLASSES)


def encoded(values: Sequence[Any], *, units: bool = False) -> pa.Array:
    """One binary cell for each value, null where it cannot be a key.

    Args:
        values: what an extractor gave.
        units: whether they are privacy ids, which nobody decodes: None and NaN are no ids, numbers that are equal are one, and
            one of more than `LONGEST_ID` bytes is known by its SHA-256. A partition key may be None, and no longer.

    >>> [decoded(cell) for cell in encoded([7, "a", None, ("a", 2.5), [5]]).to_pylist() if cell is not None]
    [7, 'a', None, ('a', 2.5)]
    >>> len(encoded([1, True, 1.0]).unique()), len(encoded([1, True, 1.0], units=True).unique())
    (3, 1)
    """
    if values and _classes(values) <= _WHOLE:  # the most frequent keys: none is too long, and each is an id
        with contextlib.suppress(OverflowError):  # beyond 64 bits
            return _whole_numbers(np.fromiter(values, np.int64, len(values)))
    cells = _column(list(values), DEEPEST, units)
    if isinstance(cells, pa.Array) and (pc.max(pc.binary_length(cells)).as_py() or 0) <= (
        LONGEST_ID if units else LONGEST
    ):
        return _with_ids(cells) if units else cells
    cells = pa.array([_short_or_none(value, units) for value in values], pa.binary())
    return _with_ids(cells) if units else cells


def encode(value: Any) -> bytes:
    """The bytes of one key.

    Raises:
        NoKeyError: the value cannot be a key, or is too long.

    >>> decoded(encode(("north", 3)))
    ('north', 3)
    """
    try:
        cell = _encode(value, DEEPEST)
    except (ValueError, OverflowError):  # a number of thousands of digits, a time at the end of the calendar
        raise NoKeyError("is too large for a key") from None
    if len(cell) > LONGEST:
        raise NoKeyError("is too long for a key")
    return cell


def decoded(cell: bytes) -> Any:
    """The key that has these bytes."""
    tag, rest = cell[:1], cell[1:]
    if tag == _INT:
        return int.from_bytes(rest, "big") - 2**63
    if tag in (_LOW, _HIGH):
        return int(rest.decode())
    if tag == _TEXT:
        return rest.decode("utf-8", "surrogatepass")
    if tag == _BYTES:
        return rest
    if tag == _FLOAT:
        return struct.unpack(">d", rest)[0]
    if tag == _TUPLE:
        return _decoded_tuple(rest)
    if tag == _SET:
        return frozenset(_decoded_tuple(rest))
    if tag == _UUID:
        return uuid.UUID(bytes=rest)
    if tag == _DECIMAL:
        return decimal.Decimal(rest.decode())
    if tag == _ENUM:
        return _decoded_member(rest.decode())
    if tag == _DATE:
        return datetime.date.fromisoformat(rest.decode())
    if tag in (_TIME, _AWARE):
        return datetime.datetime.fromisoformat(rest.decode())
    return {_NONE: None, _FALSE: False, _TRUE: True}[tag]


def _decoded_tuple(rest: bytes) -> tuple[Any, ...]:
    items, place = [], 0
    while place < len(rest):
        end = place + 4 + int.from_bytes(rest[place : place + 4], "big")
        items.append(decoded(rest[place + 4 : end]))
        place = end
    return tuple(items)


def _decoded_member(text: str) -> Any:
    """Return the member of an enumeration.

    Raises:
        RequestError: its class is not where it was defined, e.g. in the main program of another process.
    """
    module, path, name = text.split(":", 2)  # a member's name may have colons
    try:
        cls: Any = importlib.import_module(module)
        for part in path.split("."):
            cls = getattr(cls, part)
        return cls[name]
    except (ImportError, AttributeError, KeyError):
        raise RequestError(
            field=f"partition_extractor, {path}",
            message="is an enumeration that workers cannot import",
            hint="define it in a module, or return the member's name",
        ) from None


def _member(value: enum.Enum) -> bytes:
    """The bytes of a member from which it comes back: no error may come after the draw."""
    cls = type(value)
    text = f"{cls.__module__}:{cls.__qualname__}:{value._name_}"
    if isinstance(value, enum.Flag) or cls.__module__ not in sys.modules:  # flags combine
        raise NoKeyError("cannot be a key")
    try:
        is_found = _decoded_member(text) is value
    except RequestError:
        is_found = False
    if not is_found:
        raise NoKeyError("is a member of an enumeration that cannot be imported")
    return _ENUM + text.encode()


def _plain_decimal(value: decimal.Decimal) -> bytes:
    """The bytes of a decimal, the same for equal ones: without zeros at its end, in no context that would round it."""
    if value.is_nan():
        return _DECIMAL + b"NaN"
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return _DECIMAL + str(value).encode()
    if len(digits) > LONGEST:
        raise NoKeyError("is too long for a key")
    zeros = sum(1 for _ in itertools.takewhile(lambda digit: digit == 0, reversed(digits)))
    if zeros == len(digits):
        sign, digits, exponent = 0, (0,), 0
    elif zeros:
        digits, exponent = digits[:-zeros], exponent + zeros
    return _DECIMAL + str(decimal.Decimal((sign, digits, exponent))).encode()


def _of_numpy(value: np.generic) -> Any:
    """Python's value of a scalar of NumPy. A time is a `datetime`, since times of all units that are the same are equal there."""
    if isinstance(value, _NUMPY_WITHOUT):
        raise NoKeyError("cannot be a key")  # some durations would become a whole number
    if isinstance(value, (str, bytes)):  # whose `item` ends at a zero
        return value
    if isinstance(value, np.datetime64):
        try:
            time = numpy_times.python_time(value)
        except ValueError as error:
            raise NoKeyError(str(error)) from None
        return time if isinstance(time, datetime.datetime) else numpy_times.midnight(time)
    return value.item()


def _time(value: datetime.datetime) -> bytes:
    """The bytes of a time, of subclasses too: those of pandas may be missing, finer than Python's, or outside its calendar."""
    time: Any = value
    if value != value:
        raise NoKeyError("cannot be a key")
    if getattr(time, "nanosecond", 0):
        raise NoKeyError("has nanoseconds, which no time of Python has")
    if not datetime.MINYEAR <= value.year <= datetime.MAXYEAR:
        raise NoKeyError("is outside the years 1 to 9999")
    if value.utcoffset() is None:
        return _TIME + datetime.datetime.isoformat(value).encode()
    return _AWARE + datetime.datetime.isoformat(value.astimezone(datetime.UTC)).encode()


def _of_id(value: Any) -> Any:
    """Return the value that represents all those that are equal to this one, so that they are one privacy id."""
    if isinstance(value, datetime.datetime):
        return value.replace(fold=0) if value.fold else value  # Python compares times of one zone without it
    if isinstance(value, datetime.date):
        return numpy_times.midnight(value)  # a day of NumPy is equal to a date and to a time
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        return float(value)
    if isinstance(value, decimal.Decimal) and (not value or abs(value.adjusted()) < LONGEST):
        if value == value.to_integral_value():
            return int(value)
        near = float(value)
        return near if decimal.Decimal(near) == value else value
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value


def _joined_cells(cells: Sequence[bytes]) -> bytes:
    return b"".join(len(cell).to_bytes(4, "big") + cell for cell in cells)


def _encode(value: Any, depth: int, units: bool = False) -> bytes:
    if isinstance(value, np.generic):
        value = _of_numpy(value)
    if units:
        value = _of_id(value)
    if value is None or isinstance(value, bool):
        return {None: _NONE, False: _FALSE, True: _TRUE}[value]
    if isinstance(value, int):
        number = int(value)
        if -(2**63) <= number < 2**63:
            return _INT + (number + 2**63).to_bytes(8, "big")
        return (_HIGH if number > 0 else _LOW) + str(number).encode()
    if isinstance(value, str):
        return _TEXT + str.encode(value, "utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return _BYTES + bytes(value)
    if isinstance(value, float):
        return _FLOAT + struct.pack(">d", math.nan if math.isnan(value) else float(value) + 0.0)
    if isinstance(value, tuple) and depth:
        cells = [_encode(item, depth - 1, units) for item in value]
        return _TUPLE + _joined_cells(cells)
    if isinstance(value, frozenset) and depth:
        return _SET + _joined_cells(sorted({_encode(item, depth - 1, units) for item in value}))
    if isinstance(value, uuid.UUID):
        return _UUID + value.int.to_bytes(16, "big")
    if isinstance(value, decimal.Decimal):
        return _plain_decimal(decimal.Decimal(value))
    if isinstance(value, datetime.datetime):
        return _time(value)
    if isinstance(value, datetime.date):
        return _DATE + datetime.date.isoformat(value).encode()
    if isinstance(value, enum.Enum):
        return _member(value)
    raise NoKeyError("cannot be a key")


def _classes(values: Sequence[Any]) -> set[type]:
    """The classes of values; that of `object` alone where one has no hash."""
    try:
        return set(map(type, values))
    except BaseException:  # of a class of classes
        interrupts.end_if_asked()
        return {object}


def _column(values: list[Any], depth: int, units: bool) -> pa.Array:
    """The same bytes as of `_encode`, for many values of one type at once."""
    try:
        kinds = _classes(values)
        if kinds and kinds <= _WHOLE:
            return _whole_numbers(np.array(values, np.int64))
        if kinds == {str}:
            return _tagged(_TEXT, pa.array(values, pa.string()).cast(pa.binary()))
        if kinds == {bytes}:
            return _tagged(_BYTES, pa.array(values, pa.binary()))
        if kinds == {tuple} and depth and len(set(map(len, values))) == 1 and values[0]:
            return _tuples([_column(list(items), depth - 1, units) for items in zip(*values, strict=True)])
    except BaseException:  # numbers beyond 64 bits, text without UTF-8, more bytes than an array holds
        interrupts.end_if_asked()
    return pa.array([_encoded_or_none(value, depth, units) for value in values], pa.binary())


def _encoded_or_none(value: Any, depth: int, units: bool) -> bytes | None:
    try:
        return _encode(value, depth, units)
    except BaseException:  # what a value raises must not be seen, and costs that row only
        interrupts.end_if_asked()
        return None


def _with_ids(cells: pa.Array) -> pa.Array:
    """Units, null where the id was None or NaN."""
    return pc.if_else(pc.is_in(cells, pa.array(_NO_IDS, pa.binary())), pa.scalar(None, pa.binary()), cells)


def _short_or_none(value: Any, units: bool) -> bytes | None:
    cell = _encoded_or_none(value, DEEPEST, units)
    if cell is None or len(cell) <= (LONGEST_ID if units else LONGEST):
        return cell
    return b"#" + hashlib.sha256(cell).digest() if units else None


def _whole_numbers(values: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    cells = np.empty((len(values), 9), np.uint8)
    cells[:, 0] = _INT[0]
    cells[:, 1:] = (values.view(np.uint64) ^ np.uint64(2**63)).astype(">u8").view(np.uint8).reshape(-1, 8)
    offsets = np.arange(0, 9 * len(values) + 1, 9, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def _tagged(tag: bytes, cells: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(tag, pa.binary()), cells, pa.scalar(b"", pa.binary()))


def _tuples(columns: list[pa.Array]) -> pa.Array:
    parts: list[Any] = [pa.scalar(_TUPLE, pa.binary())]
    for cells in columns:
        lengths = pc.fill_null(pc.binary_length(cells), 0).to_numpy(zero_copy_only=False).astype(">u4")
        ends = np.arange(0, 4 * len(cells) + 1, 4, dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(lengths.tobytes())]
        parts += [pa.Array.from_buffers(pa.binary(), len(cells), buffers), cells]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
