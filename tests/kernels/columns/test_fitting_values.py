"""Arrow's values under another type: exact or null, each by itself, whatever the others are."""

import decimal
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.kernels.columns import column_casts

D = decimal.Decimal
WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
EXTREMES = [
    *(sign * (2**power + more) for power in (0, 1, 7, 8, 15, 16, 24, 31, 32, 53, 63) for more in (-1, 0, 1) for sign in (1, -1)),
    2**64 - 1,
    *(0.5, -0.0, 65504.0, 1e-8, 3.4028234663852886e38, 1e39, 1e300, 5e-324, 2.0**63, 2.0**64, math.inf, -math.inf, math.nan),
]  # fmt: skip
DECIMALS = [
    pa.decimal32(5, 2), pa.decimal128(9, 2),
    pa.decimal128(9, 4), pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 30),
]  # fmt: skip
DIGITS = [
    D(text) for text in ("0", "1.5", "-1.5", "0.01", "999.99", "0.0001", "9" * 38, "0." + "9" * 38, "-" + "9" * 46)
]
UNITS = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
TIMES = [0, 1, -1, 999, 1000, -1000, 10**9, 253_402_300_799, 2**63 - 1, -(2**63) + 1]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def of_numbers(kind: pa.DataType) -> pa.Array:
    """The extreme numbers that a type has."""
    if pa.types.is_floating(kind):
        made = [float(v) for v in EXTREMES if abs(v) < 6e4] if kind == pa.float16() else [float(v) for v in EXTREMES]
        with np.errstate(all="ignore"):
            return pa.array(np.array(made).astype(kind.to_pandas_dtype()))
    signed = pa.types.is_signed_integer(kind)
    least, most = -(2 ** (kind.bit_width - 1)) * signed, 2 ** (kind.bit_width - signed)
    return pa.array([v for v in EXTREMES if isinstance(v, int) and least <= v < most], kind)


def has(kind: pa.DataType, value: Any) -> bool:
    """Whether a type has a number, by Python's exact comparison of whole numbers and floats."""
    if pa.types.is_floating(kind):
        try:
            with np.errstate(all="ignore"):
                made = float(np.array([float(value)]).astype(kind.to_pandas_dtype())[0])
        except OverflowError:
            return False
        return made == value or (isinstance(value, float) and math.isnan(value))
    signed = pa.types.is_signed_integer(kind)
    least, most = -(2 ** (kind.bit_width - 1)) * signed, 2 ** (kind.bit_width - signed)
    return math.isfinite(value) and value == int(value) and least <= value < most


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


@pytest.mark.parametrize(("kind", "other"), [*itertools.product(WHOLE + FLOATS[1:], WHOLE + FLOATS)], ids=str)
def test_a_number_keeps_its_value_or_is_null(kind: pa.DataType, other: pa.DataType) -> None:
    values = of_numbers(other)
    made = column_casts.fitting(values, kind)
    for value, one in zip(values.to_pylist(), made.to_pylist(), strict=True):
        assert (one is not None) == has(kind, value), (value, one)
        assert one is None or same(one, value)


@pytest.mark.parametrize(("kind", "other"), [*itertools.product(DECIMALS[1:], DECIMALS)], ids=str)
def test_a_decimal_keeps_its_value_or_is_null(kind: pa.DataType, other: pa.DataType) -> None:
    def fits(value: D, of: pa.DataType) -> bool:
        _, digits, exponent = value.normalize(decimal.Context(prec=99)).as_tuple()
        assert isinstance(exponent, int)
        return exponent >= -of.scale and (value == 0 or len(digits) + exponent <= of.precision - of.scale)

    values = [value for value in DIGITS if fits(value, other)]
    made = column_casts.fitting(pa.array(values, other), kind).to_pylist()
    assert made == [value if fits(value, kind) else None for value in values]


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal128(9, 4), pa.decimal128(38, 38), pa.decimal128(3, 1)])
def test_a_decimal_of_a_file_with_more_digits_than_declared_is_null_and_no_error(kind: pa.DataType) -> None:
    of = pa.decimal128(5, 2)
    cells = b"".join(number.to_bytes(16, "little", signed=True) for number in (150, 10**30, -(10**37), 10))
    damaged = pa.Array.from_buffers(of, 4, [None, pa.py_buffer(cells)])
    whole = [D("1.5"), None, None, D("0.1")] if kind.precision > kind.scale else [None, None, None, D("0.1")]
    assert column_casts.fitting(damaged, kind).to_pylist() == whole


@pytest.mark.parametrize(("kind", "other"), [*itertools.product(UNITS, UNITS)], ids=str)
def test_an_instant_stays_the_same_or_is_null(kind: pa.DataType, other: pa.DataType) -> None:
    made = column_casts.fitting(pa.array(TIMES, pa.int64()).view(other), kind)
    ours, theirs = PER_SECOND[kind.unit], PER_SECOND[other.unit]
    assert made.type == kind
    for value, one in zip(TIMES, made.view(pa.int64()).to_pylist(), strict=True):
        whole, rest = divmod(value * ours, theirs)
        assert one == (whole if rest == 0 and -(2**63) <= whole < 2**63 else None)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("other", [pa.int64(), pa.uint64(), pa.float64()], ids=str)
def test_what_becomes_of_a_value_depends_on_no_other(kind: pa.DataType, other: pa.DataType) -> None:
    values = of_numbers(other)
    alone = [column_casts.fitting(values.slice(place, 1), kind)[0].as_py() for place in range(len(values))]
    assert all(map(same, column_casts.fitting(values, kind).to_pylist(), alone))


def test_null_stays_null_and_texts_of_any_layout_are_comparable() -> None:
    assert column_casts.fitting(pa.array([None, 1], pa.int64()), pa.int8()).to_pylist() == [None, 1]
    assert column_casts.fitting(pa.nulls(2), pa.int8()).to_pylist() == [None, None]
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    assert all(column_casts.comparable(one, other) for one, other in itertools.product(texts, texts))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.string(), pa.binary()), (pa.binary(), pa.binary(16)), (pa.string(), pa.int64()), (pa.date32(), pa.timestamp("us")),
        (pa.int64(), pa.timestamp("us")), (pa.int64(), pa.decimal128(9, 0)), (pa.float64(), pa.decimal128(9, 0)),
        (pa.bool_(), pa.int64()), (pa.time64("us"), pa.timestamp("us")), (pa.list_(pa.int64()), pa.list_(pa.int64())),
    ],
)  # fmt: skip
def test_types_that_share_no_values_are_not_compared(one: pa.DataType, other: pa.DataType) -> None:
    assert not column_casts.comparable(one, other)
    assert not column_casts.comparable(other, one)
