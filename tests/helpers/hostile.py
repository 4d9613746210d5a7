"""Rows that somebody writes to break things: values at the ends of every type, and bytes that are hardly CSV.

In: a generator of random numbers. Out: tables of one unit's rows, and lines of CSV that are one unit's or nobody's. Holds: the
same seed gives the same rows; every row has the unit that is asked for, or none. Not covered: values whose work is known to be
bounded elsewhere (gigabytes in one file). Tests only.
"""

import datetime
import decimal
import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

EVE = {"who": "eve", "number": 10**12 + 7}
"""The unit that one file of a pair has more: as text, and as a number."""

LONG = 2**16
"""Bytes of the longest text that most pairs have; some have `LONGEST`."""

LONGEST = 2**22

_D38 = decimal.Decimal("9" * 28 + "." + "9" * 10)
_PLAIN = [
    "",
    "\0",
    '"',
    "'",
    "a,b",
    "a\nb",
    "\r\n",
    "é",
    "e\u0301",
    "\ufeff",
    "\u202e",
    "NULL",
    "nan",
    "-",
    " north",
    "north\0",
]

TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "large": pa.large_string(),
    "code": pa.dictionary(pa.int32(), pa.string()),
    "blob": pa.binary(),
    "fixed": pa.binary(4),
    "flag": pa.bool_(),
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f16": pa.float16(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "dec": pa.decimal128(38, 10),
    "small_dec": pa.decimal128(9, 2),
    "day": pa.date32(),
    "day64": pa.date64(),
    "at": pa.timestamp("us"),
    "at_s": pa.timestamp("s"),
    "at_ns": pa.timestamp("ns"),
    "at_tz": pa.timestamp("us", "UTC"),
    "clock": pa.time64("us"),
    "vector": pa.list_(pa.float64()),
    "shop": pa.int64(),
}
"""Columns of the rows beside the unit's, in Parquet."""

ORDINARY: dict[str, list[Any]] = {
    "text": ["north", "south", "east", None],
    "blob": [b"north", b"south", b"\xff"],
    "fixed": [b"abcd", b"\xff\0\0\0"],
    "flag": [True, False],
    "dec": [decimal.Decimal("0.5"), decimal.Decimal(3)],
    "day": [datetime.date(2026, 1, 5), datetime.date(2026, 1, 6), None],
    "at": [datetime.datetime(2026, 1, 5, 10), datetime.datetime(2026, 1, 6)],
    "clock": [datetime.time(1, 2, 3), datetime.time(0)],
    "vector": [[0.5, 0.25], [1.0, -1.0]],
    "shop": [1, 2, 3, None],
}
"""What everybody else's rows hold."""


def ordinary(name: str, kind: pa.DataType) -> list[Any]:
    """What everybody else's rows hold in a column."""
    if name in ORDINARY:
        return ORDINARY[name]
    if pa.types.is_temporal(kind):
        return [0, 86_400_000] if name == "day64" else [1_767_600_000, None]
    if pa.types.is_decimal(kind):
        return ORDINARY["dec"]
    return ["north", "south", "east", None] if name in ("large", "code") else [0, 1, 2, 3]


def hostile(kind: pa.DataType, rng: random.Random, longest: int) -> list[Any]:
    """The worst values of a type."""
    if pa.types.is_dictionary(kind):
        return hostile(kind.value_type, rng, longest)
    if pa.types.is_list(kind):
        short = hostile(kind.value_type, rng, longest)
        return [None, [], [None, None], [1.0], [0.0] * 1000, *([a, b] for a, b in itertools.pairwise(short))]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        size = rng.choice([63, 64, 65, 4096, 4097, longest])
        # Text that is none, as bytes: Parquet files hold it, whatever their schema says.
        return [*_PLAIN, None, b"\xff", b"caf\xe9", "x" * size, "é" * (size // 2), chr(rng.randrange(0x20, 0xD800)) * 7]
    if pa.types.is_fixed_size_binary(kind):
        return [None, bytes(kind.byte_width), b"\xff" * kind.byte_width, rng.randbytes(kind.byte_width)]
    if pa.types.is_binary(kind):
        return [None, b"", b"\0", b"\xff\xfe", b'"', rng.randbytes(rng.choice([3, 65, longest])), b"caf\xe9, tea"]
    if pa.types.is_boolean(kind):
        return [None, True, False]
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - pa.types.is_signed_integer(kind)) - 1
        least = -most - 1 if pa.types.is_signed_integer(kind) else 0
        return [None, 0, 1, most, least, most - 1, rng.randint(least, most)]
    if pa.types.is_floating(kind):
        return [None, math.nan, math.inf, -math.inf, -0.0, 5e-324, *([] if kind == pa.float16() else [1e38, -3e38])]
    if pa.types.is_decimal(kind):
        end = _D38 if kind.precision == 38 else decimal.Decimal("9999999.99")
        return [None, end, end.copy_negate(), decimal.Decimal(0), decimal.Decimal("-0.01")]
    if pa.types.is_date64(kind):
        return [None, 0, -86_400_000 * 10**9, 86_400_000 * 10**9, 86_400_000 * 106_751_991_167]
    if pa.types.is_date(kind):
        return [None, -(2**31), 2**31 - 1, 0, 2_932_896, 2_932_897, -719_163]
    if pa.types.is_time(kind):
        return [None, 0, 86_399_999_999, -1, 86_400_000_000, 2**63 - 1]
    if kind.unit == "s":  # Parquet keeps them as milliseconds
        return [None, -(2**63) // 1000 + 1, 2**63 // 1000, 0, 253_402_300_800, -62_135_596_801]
    return [None, -(2**63), 2**63 - 1, 0, 253_402_300_800_000_000, -62_135_596_800_000_001, -1, -(2**63) + 1]


def column(kind: pa.DataType, values: list[Any], rng: random.Random, rows: int) -> pa.Array:
    """Rows of a column, drawn from values; integers stand for what Python cannot write."""
    drawn = [rng.choice(values) for _ in range(rows)]
    if pa.types.is_dictionary(kind):
        encoded = column(kind.value_type, values, rng, rows).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        drawn = [value.encode() if isinstance(value, str) else value for value in drawn]
        return pa.array(drawn, pa.binary() if pa.types.is_string(kind) else pa.large_binary()).view(kind)
    raw = pa.types.is_temporal(kind) and all(isinstance(value, (int, type(None))) for value in values)
    if raw:
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(drawn, whole).view(kind)
    return pa.array(drawn, kind)


def rows_of_parquet(rng: random.Random, rows: int, unit: Mapping[str, Any], longest: int | None) -> pa.Table:
    """Rows of one unit: hostile ones up to a length of text, or ordinary ones where None."""
    columns = {name: pa.array([value] * rows) for name, value in unit.items()}
    for name, kind in TYPES.items():
        values = ordinary(name, kind) if longest is None else hostile(kind, rng, longest) + ordinary(name, kind)
        if pa.types.is_temporal(kind) and not all(isinstance(v, (int, type(None))) for v in values):
            # Dates that Python can write, as the integers that they are.
            made = pa.array([v for v in values if not isinstance(v, int)], kind)
            whole = pa.int32() if kind.bit_width == 32 else pa.int64()
            values = [v for v in values if isinstance(v, int)] + made.view(whole).to_pylist()
        columns[name] = column(kind, values, rng, rows)
    return pa.table(columns)


CSV_TYPES = {
    "who": "string",
    "number": "int64",
    "text": "string",
    "flag": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
    "day": "date",
    "at": "timestamp",
    "at_tz": "timestamptz",
    "shop": "int64",
}
"""Columns of the rows in CSV."""

_CSV_ORDINARY = {
    "text": ["north", "south", "east", "", '"a, b"'],
    "flag": ["true", "false"],
    "f64": ["0.5", "3", "nan"],
    "day": ["2026-01-05", "2026-01-06", ""],
    "at": ["2026-01-05 10:00:00", "2026-01-06 00:00:00"],
    "at_tz": ["2026-01-05 10:00:00Z"],
    "shop": ["1", "2", "3", ""],
}
_CSV_HOSTILE = [
    *(
        b"",
        b"nan",
        b"-inf",
        b"1e999",
        b"0xff",
        b"9" * 40,
        b"-" + b"9" * 40,
        b"\xff",
        b"\0",
        b"caf\xe9",
        b"0000-01-01",
        b'""',
    ),
    *(
        b"9999-12-31",
        b"2026-02-30",
        b"9999-12-31 23:59:59.999999",
        b"true",
        b'"x',
        b'x"y',
        b'"a\r',
        b"\xef\xbb\xbf",
        b" 1 ",
    ),
]


def line_of_csv(rng: random.Random, unit: Mapping[str, Any]) -> bytes:
    """An ordinary line."""
    rest = [rng.choice(_CSV_ORDINARY.get(name, ["0", "1", "2"])) for name in list(CSV_TYPES)[2:]]
    return ",".join([str(unit["who"]), str(unit["number"]), *rest]).encode()


def _cells(rng: random.Random, longest: int) -> bytes:
    cells = [rng.choice(_CSV_HOSTILE) for _ in range(len(CSV_TYPES) - 2)]
    cells[rng.randrange(len(cells))] = rng.choice([b"x", b"\xfe", b'"', b"9"]) * rng.choice([1, 65, longest])
    return b",".join(cells)


_LINES: list[Callable[[random.Random, int], bytes]] = [
    _cells,
    lambda rng, longest: line_of_csv(rng, {"who": "", "number": ""})[2:],
    lambda rng, longest: b"caf\xe9, tea",
    lambda rng, longest: b'"' + rng.randbytes(9),
    lambda rng, longest: b"," * rng.randrange(40),
    lambda rng, longest: rng.randbytes(rng.randrange(200)),
    lambda rng, longest: b'","' * rng.randrange(30),
    lambda rng, longest: b"\r" * rng.randrange(3) + b"\0",
    lambda rng, longest: rng.choice([b'"', b",", b"x", b'""']) * rng.choice([1000, longest]),
]


def lines_of_csv(rng: random.Random, lines: int, longest: int) -> list[bytes]:
    """Hostile lines, each of which is Eve's if it is a row at all."""
    start = b"%s,%d," % (str(EVE["who"]).encode(), EVE["number"])
    return [start + rng.choice(_LINES)(rng, longest).replace(b"\n", b"\n" + start) for _ in range(lines)]
