"""Rows of any kind into tables: what a row does costs that row's cell, and is never heard of.

In: rows that raise, hang or lie. Out: tables. Holds: the cells of other rows are as they would be without them.
"""

import collections
import datetime
import decimal
from collections.abc import Mapping

import pyarrow as pa
import pytest

from dp_pipelines.transforms.rows.to_tables import ToTables

TYPES = {"customer": pa.string(), "amount": pa.int64(), "at": pa.timestamp("us", "UTC")}


def table(rows: list[object], types: Mapping[str, pa.DataType] = TYPES) -> pa.Table:
    """The table of some rows, as the DoFn makes it."""
    made = ToTables(types, unsaid=False)
    made.start_bundle()
    for row in rows:
        assert list(made.process(row)) == []
    (last,) = made.finish_bundle()
    return last.value


class Loud:
    """A row whose attributes raise."""

    at = None

    @property
    def customer(self) -> str:
        raise RuntimeError("secret customer")

    @property
    def amount(self) -> int:
        raise KeyError("secret amount")


class LoudMapping(dict[str, object]):
    """A mapping that raises when it is asked."""

    def get(self, key: object, default: object = None) -> object:
        raise RuntimeError("secret key")


class LoudClass:
    """A row that raises when it is asked what it is."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("secret class")


class LoudZone(datetime.tzinfo):
    """A time zone that raises."""

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        raise RuntimeError("secret place")


GOOD = {"customer": "a", "amount": 1, "at": datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)}
NOTHING = {"customer": None, "amount": None, "at": None}
Row = collections.namedtuple("Row", list(GOOD))


@pytest.mark.parametrize("loud", [Loud, LoudMapping, LoudClass])
@pytest.mark.parametrize("good", [GOOD, Row(**GOOD)], ids=["mappings", "tuples"])
def test_a_row_that_raises_is_null_and_nothing_is_heard_of_it(loud: type, good: object) -> None:
    assert table([good, loud(), good]).to_pylist() == [GOOD, NOTHING, GOOD]


class Once(collections.UserDict[str, object]):
    """A row that gives each of its cells once."""

    def get(self, key: str, default: object = None) -> object:
        return self.data.pop(key, default)


class Strange(type):
    """Its classes have no hash, and cannot be asked for their bases."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


@pytest.mark.parametrize("loud", [Loud, LoudMapping, LoudClass])
def test_a_row_that_raises_costs_no_cell_of_a_row_that_gives_each_cell_once(loud: type) -> None:
    rows = [Once(GOOD), loud(), Once(GOOD), Once(GOOD), loud(), loud()]
    assert table(rows).to_pylist() == [GOOD, NOTHING, GOOD, GOOD, NOTHING, NOTHING]


@pytest.mark.parametrize("others", [[], [GOOD], [Row(**GOOD)]], ids=["alone", "mappings", "tuples"])
def test_a_row_of_a_class_without_a_hash_is_read_like_others(others: list[object]) -> None:
    row: object = Strange("Nameless", (), dict(GOOD))()
    assert table([*others, row, *others]).to_pylist() == [GOOD] * (2 * len(others) + 1)


@pytest.mark.parametrize("other", ["count", b"x", 5, (1, 2), [1], True, 1j, None])
def test_a_value_without_names_is_a_row_of_nulls_whatever_its_class_has_as_attributes(other: object) -> None:
    types = {name: pa.int64() for name in ("real", "imag", "count", "numerator")}
    assert table([dict.fromkeys(types, 1), other], types).to_pylist()[1] == dict.fromkeys(types)


def test_a_cell_that_raises_when_it_is_read_is_null() -> None:
    loud = {**GOOD, "at": datetime.datetime(2026, 1, 5, tzinfo=LoudZone())}
    assert table([GOOD, loud, GOOD]).to_pylist() == [GOOD, {**GOOD, "at": None}, GOOD]


@pytest.mark.parametrize(
    "amount", ["1e999999999", "-1e999999999", "9" * 500, "1e-999999999", "0." + "1" * 500, "sNaN", "Infinity"]
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8(), pa.date32(), pa.timestamp("us"), pa.decimal128(20, 2)])
def test_a_decimal_of_any_exponent_is_null_and_takes_no_time(amount: str, kind: pa.DataType) -> None:
    cells = table([{"x": decimal.Decimal(amount)}, {"x": None}], {"x": kind}).column("x")
    assert cells.null_count == 2


def test_decimals_that_fit_are_kept() -> None:
    made = table([{"x": decimal.Decimal("12")}, {"x": decimal.Decimal("-1E+3")}], {"x": pa.int64()})
    assert made.column("x").to_pylist() == [12, -1000]
