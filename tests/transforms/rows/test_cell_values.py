"""What cells of rows become: the table in docs/beam.md, cell by cell, alone and among others."""

import collections
import datetime
import decimal
import enum
import fractions
import math
import re
import typing
import uuid
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Duration, Timestamp

from dp_pipelines import ContributionBounds, Plan, Query, Sum
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.type_names import declared_types
from dp_pipelines.transforms import PrivateAggregate, check_row
from dp_pipelines.transforms.rows import row_check
from dp_pipelines.transforms.rows.cell_values import column, why_null
from dp_pipelines.transforms.rows.to_tables import ToTables, table_of

DOC = Path(__file__).resolve().parents[3] / "docs" / "beam.md"

MONDAY = datetime.date(2026, 1, 5)
TEN = datetime.datetime(2026, 1, 5, 10, 30)
LATE = datetime.datetime(2026, 1, 5, 23, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
IN_UTC = datetime.datetime(2026, 1, 6, 4, tzinfo=datetime.UTC)


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Loud:
    """Raises whatever is done with it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("a value of a row")


SAMPLES: dict[str, list[Any]] = {
    "`str`": ["2026-01-05", "2026-01-05T10:30:00.5+02:00", "2026-01-05 10:30", np.str_("2026-01-05")],
    "`int`, integers of NumPy": [7, np.int64(7), np.uint8(7), Size.LARGE, 0],
    "`float`, floats of NumPy": [2.0, np.float32(2.0), np.float64(-3.0)],
    "`Decimal`, `Fraction`": [decimal.Decimal("2"), fractions.Fraction(4, 2)],
    "`bool`, `np.bool_`": [True, False, np.bool_(True)],
    "`datetime.date`": [MONDAY],
    "`datetime`, `Timestamp` of Beam or pandas, `np.datetime64`": [
        TEN, LATE, Timestamp(1767571200), Timestamp(0), pd.Timestamp(TEN), np.datetime64("2026-01-05"),
        np.datetime64("2026-01-05T10:30:00.000000001"),
    ],
    "`UUID`": [uuid.UUID(int=1)],
    "`bytes` in UTF-8": [b"x", np.bytes_(b"x")],
    "anything else: `Enum`, dict, list": [
        Colour.RED, {"a": 1}, [1], (1,), object(), Loud(), pd.NaT, pd.NA, np.timedelta64(5, "D"), datetime.timedelta(1),
        np.array([1, 2]), np.datetime64("NaT"), 1j,
    ],
}  # fmt: skip
TYPES = ("string", "int64", "int8", "double", "float32", "bool", "date", "timestamp", "timestamptz")


def documented() -> dict[str, dict[str, str]]:
    """The table of the page: by value and type, what it becomes."""
    lines = [line for line in DOC.read_text().splitlines() if line.startswith("|")]
    (begin,) = (place for place, line in enumerate(lines) if line.startswith("| value | `string`"))
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[begin : begin + 12]]
    types = [re.findall(r"`(\w+)`", cell) for cell in rows[0][1:]]
    return {
        row[0]: {name: cell for names, cell in zip(types, row[1:], strict=True) for name in names} for row in rows[2:]
    }


def become(cell: Any, kind: str) -> Any:
    """What one cell becomes."""
    return column([cell], declared_types({"x": kind})["x"]).to_pylist()[0]


def test_a_number_of_thousands_of_digits_is_null_as_text() -> None:
    assert become(10**5000, "string") is None


def test_the_table_of_the_page_says_which_values_become_null() -> None:
    table = documented()
    assert set(table) == set(SAMPLES)
    for value, cells in table.items():
        for kind in TYPES:
            said = cells["int64" if kind == "int8" else kind]
            got = [become(cell, kind) for cell in SAMPLES[value]]
            assert [one is None for one in got] == [said == "null"] * len(got), (value, kind, got)


@pytest.mark.parametrize(
    ("cell", "kind", "becomes"),
    [
        (Timestamp(1767571200), "date", MONDAY),
        (Timestamp(1767571200), "int64", None),
        (Timestamp(0), "int64", None),
        (LATE, "date", MONDAY + datetime.timedelta(1)),
        (LATE, "timestamptz", IN_UTC),
        (TEN, "date", MONDAY),
        (Timestamp(micros=-1), "date", datetime.date(1969, 12, 31)),
        (np.datetime64("1969-12-31T23:00"), "date", datetime.date(1969, 12, 31)),
        (np.datetime64(2**60, "D"), "date", None),
        (np.datetime64("2026-01-05"), "timestamp", datetime.datetime(2026, 1, 5)),
        (MONDAY, "timestamp", datetime.datetime(2026, 1, 5)),
        (pd.NaT, "date", None),
        ("2026-01-05T23:00:00-05:00", "date", MONDAY + datetime.timedelta(1)),
        ("2026-01-05T23:00:00-05:00", "timestamptz", IN_UTC),
        ("2026-02-30", "date", None),
        ("5 January 2026", "date", None),
        ("20260105", "date", None),
        (1.9, "int64", None),
        (float("nan"), "int64", None),
        (1e300, "int64", None),
        (1e300, "float32", None),
        (300, "int8", None),
        (2**63, "int64", None),
        (2**53 + 1, "double", float(2**53)),
        (10**400, "double", None),
        (decimal.Decimal("24.50"), "double", 24.5),
        (decimal.Decimal("1.9"), "int64", None),
        (decimal.Decimal("1e999999999"), "int64", None),
        (decimal.Decimal("1e400"), "double", None),
        (fractions.Fraction(1, 3), "double", 1 / 3),
        (fractions.Fraction(1, 3), "int64", None),
        (uuid.UUID(int=1), "string", "00000000-0000-0000-0000-000000000001"),
        (uuid.UUID(int=1), "int64", None),
        (True, "double", None),
        (np.bool_(True), "int64", None),
        (np.bool_(True), "date", None),
        (-12, "string", "-12"),
        (Size.LARGE, "string", "3"),
        (np.array(5), "int64", 5),
        (pa.scalar(1.9), "int64", None),
        (pa.scalar(5), "string", "5"),
        (b"\xff", "string", None),
        ("\ud800", "string", None),
    ],
)  # fmt: skip
def test_a_cell_becomes_this_alone_and_among_others_that_do_not_fit(cell: Any, kind: str, becomes: Any) -> None:
    assert become(cell, kind) == becomes
    declared = declared_types({"x": kind})["x"]
    others = [one for samples in SAMPLES.values() for one in samples]
    among = column([*others, cell, *others], declared).to_pylist()
    assert among[len(others)] == becomes
    assert among[: len(others)] == among[len(others) + 1 :] == [become(one, kind) for one in others]
    assert (why_null(cell, declared) is None) == (becomes is not None)


@pytest.mark.parametrize(
    ("cell", "kind", "becomes"),
    [
        ([1, 2.0], pa.list_(pa.int64()), [1, 2]),
        ([1, 1.9], pa.list_(pa.int64()), None),
        ([Timestamp(1767571200), None], pa.list_(pa.date32()), [MONDAY, None]),
        (np.array([1.5, 2.5], np.float32), pa.list_(pa.float64()), [1.5, 2.5]),
        (np.array([1.5]), pa.list_(pa.int64()), None),
        (frozenset({"a"}), pa.list_(pa.string()), ["a"]),
        ("ab", pa.list_(pa.string()), None),
        ({"x": True}, pa.struct({"x": pa.int64()}), None),
        ({"x": 1}, pa.struct({"x": pa.int64()}), {"x": 1}),
        (True, pa.decimal128(9, 2), None),
        (5, pa.dictionary(pa.int32(), pa.string()), "5"),
        (Timestamp(micros=1500), pa.timestamp("ms"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    ],
)  # fmt: skip
def test_values_inside_of_lists_and_structs_follow_the_same_rules(cell: Any, kind: pa.DataType, becomes: Any) -> None:
    assert column([cell], kind).to_pylist() == [becomes]


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_of_a_frame_becomes_what_its_cells_become(kind: str) -> None:
    declared = declared_types({"x": kind})
    for cells in ([1.0, 2.5], [1, 2**60], [True, False], [TEN, TEN], [MONDAY, "x"], [1.0, 1e300], ["7", 7], [1.5, 1]):
        for dtype in (None, object):
            series = pd.Series(cells, dtype=dtype)
            made = ToTables(declared, unsaid=False).whole(pd.DataFrame({"x": series}))
            assert made.column("x").to_pylist() == [become(cell, kind) for cell in series.tolist()]


def stage() -> Any:
    query = Query(
        privacy_unit="customer",
        partition_by="at",
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics={"paid": Sum("amount", min_value=0, max_value=100)},
    )
    return Plan(epsilon=20.0, delta=1e-6, stages={"days": query})["days"]


class Event(typing.NamedTuple):
    customer: uuid.UUID
    at: datetime.datetime | None
    amount: decimal.Decimal


DECLARED = {"customer": "string", "at": "date", "amount": "double"}
EVENTS = [
    Event(uuid.UUID(int=number), datetime.datetime(2026, 1, 5 + number % 2, 12), decimal.Decimal("24.5"))
    for number in range(2000)
]


def test_fields_that_say_no_column_type_follow_the_declared_types() -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create(EVENTS) | beam.Map(lambda event: event).with_output_types(Event)
        released = rows | PrivateAggregate(stage(), types=DECLARED, as_rows=True)
        released | beam.Map(_check_row_of_days)


def _check_row_of_days(row: Any) -> None:
    assert row.at in (MONDAY, MONDAY + datetime.timedelta(1))
    assert abs(row.paid - 24_500) < 2_000


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (None, r'column .*: has the type .*, which does not say the type of a column; write types={".*": ...}'),
        ({**DECLARED, "at": "int64"}, "declares int64, and the rows have datetime, so that every value would be null"),
        ({**DECLARED, "amount": "date"}, r"declares date32\[day\], and the rows have Decimal"),
    ],
)
def test_fields_that_no_declared_type_can_hold_are_refused_when_the_pipeline_is_built(types: Any, message: str) -> None:
    rows = beam.Pipeline("FnApiRunner") | beam.Create(EVENTS[:1]).with_output_types(Event)
    with pytest.raises(RequestError, match=message):
        rows | PrivateAggregate(stage(), types=types)


def test_an_invented_row_is_shown_cell_by_cell() -> None:
    checked = check_row(stage(), DECLARED, {"customer": True, "at": Timestamp(1767571200), "amount": "24.5"})
    assert checked.is_dropped
    assert checked["at"].becomes == MONDAY
    assert checked["at"].why_null is None
    assert checked["customer"].why_null == "is a bool, which is no text"
    assert "amount    '24.5'" in str(checked)
    assert "null: the value is a str, which does not become double" in str(checked)
    assert str(checked).endswith("The row is dropped: it has no privacy unit.")
    assert not check_row(stage(), DECLARED, EVENTS[0]).is_dropped
    gone = check_row(stage(), DECLARED, {"customer": "ann", "at": None})
    assert (gone["amount"].why_null, gone["at"].why_null) == ("is not in the row", "is None")
    with pytest.raises(RequestError, match=r"types\['amount'\]: is missing"):
        check_row(stage(), {"customer": "string", "at": "date"}, {"customer": "ann"})
    with pytest.raises(RequestError, match="row: is one of pyarrow tables"):
        check_row(stage(), DECLARED, pa.table({"customer": [1]}))


def test_an_invented_row_becomes_what_a_pipeline_makes_of_it() -> None:
    row = {"customer": uuid.UUID(int=5), "at": TEN, "amount": fractions.Fraction(1, 2)}
    table = table_of([row], declared_types(DECLARED))
    assert {cell.column: cell.becomes for cell in check_row(stage(), DECLARED, row).cells} == table.to_pylist()[0]


DISTANT = pd.Timestamp(np.datetime64("20000-01-01", "s"))


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("s", "UTC"), pa.timestamp("ns")], ids=str
)
@pytest.mark.parametrize(
    "cell",
    [DISTANT, np.datetime64(2635249153387078799, "W"), np.datetime64(2**61 + 5, "7W"), np.datetime64(-(2**62), "M")],
    ids=str,
)
def test_a_time_outside_the_calendar_is_null_and_never_wraps_around(cell: Any, kind: pa.DataType) -> None:
    assert column([cell, TEN], kind).is_valid().to_pylist() == [False, True]
    assert re.match("is outside the years", str(why_null(cell, kind)))


@pytest.mark.parametrize(
    "text", ["2026-01-05T10:30:00.123456789", "1969-12-31 23:59:59.5+02:00", "2026-01-05", "1700-01-01T00:00Z"]
)
def test_text_in_a_column_of_nanoseconds_keeps_them(text: str) -> None:
    nanoseconds = pd.Timestamp(text).tz_localize(None) if pd.Timestamp(text).tz is None else pd.Timestamp(text)
    assert column([text], pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist() == [nanoseconds.as_unit("ns").value]


FAR = datetime.timedelta(hours=23, minutes=59)
FAR_ZONE, OTHER_ZONE = datetime.timezone(FAR), datetime.timezone(-FAR)
TIMES = [pa.date32(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us", "UTC")]


class NoOffset(datetime.tzinfo):
    """A zone that says nothing, so that a time in it has none."""

    def utcoffset(self, when: datetime.datetime | None) -> None:
        return None


@pytest.mark.parametrize("kind", [*TIMES, pa.timestamp("ns")], ids=str)
@pytest.mark.parametrize(
    "cell",
    [
        MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp(micros=2**62), Timestamp(micros=-62_135_596_800_000_001),
        Timestamp(micros=253_402_300_800_000_000), "0001-01-01T00:00+23:59", "9999-12-31T23:59:59.999999-23:59",
        datetime.datetime(1, 1, 1, 23, 58, tzinfo=FAR_ZONE), datetime.datetime(9999, 12, 31, 0, 1, tzinfo=OTHER_ZONE),
    ],
    ids=str,
)  # fmt: skip
def test_a_time_that_is_in_no_calendar_in_utc_is_null_and_shown_as_such(cell: Any, kind: pa.DataType) -> None:
    assert column([cell, TEN], kind).is_valid().to_pylist() == [False, True]
    assert column([[cell], [TEN]], pa.list_(kind)).is_valid().to_pylist() == [False, True]
    assert why_null(cell, kind) == "is outside the years 1 to 9999"
    shown = check_row(stage(), {**DECLARED, "at": kind}, {"customer": "ann", "at": cell, "amount": 1})
    assert (shown["at"].becomes, shown["at"].why_null) == (None, "is outside the years 1 to 9999")


@pytest.mark.parametrize("kind", TIMES, ids=str)
@pytest.mark.parametrize(
    "cell",
    [
        Timestamp(micros=-62_135_596_800_000_000), Timestamp(micros=253_402_300_799_999_999), "0001-01-01T23:59+23:59",
        "9999-12-31T00:00-23:59", "0001-01-01", "9999-12-31T23:59:59.999999Z", datetime.datetime.min, datetime.datetime.max,
        datetime.datetime(1, 1, 2, tzinfo=FAR_ZONE), datetime.datetime(2026, 1, 5, 23, tzinfo=NoOffset()),
    ],
    ids=str,
)  # fmt: skip
def test_the_first_and_the_last_times_of_the_calendar_are_kept(cell: Any, kind: pa.DataType) -> None:
    assert why_null(cell, kind) is None
    if kind != pa.date32():
        day = column([cell], kind).cast(pa.date32(), safe=False)
        assert column([cell], pa.date32()).equals(day)


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.timestamp("us"), 2**62), (pa.date32(), 2**31 - 1), (pa.timestamp("ns"), 2**62 + 1), (pa.duration("s"), 2**62),
        (pa.list_(pa.timestamp("us")), [2**62]), (pa.int64(), 5),
    ],
    ids=str,
)  # fmt: skip
def test_every_value_that_a_column_may_hold_can_be_shown(kind: pa.DataType, number: Any) -> None:
    assert row_check._shown(pa.array([number], kind)) is not None


def test_a_value_that_cannot_be_printed_is_shown_by_its_class() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("nothing")

    shown = check_row(stage(), DECLARED, {"customer": Mute(), "at": None, "amount": 1})
    assert "customer  a Mute  string" in str(shown)


def test_an_invented_row_is_read_as_in_a_pipeline_which_asks_a_mapping_for_no_default() -> None:
    shown = check_row(stage(), DECLARED, collections.defaultdict(lambda: "ann"))
    assert [cell.why_null for cell in shown.cells] == ["is not in the row"] * 3


HUGE = np.longdouble("1e4000")


@pytest.mark.parametrize(
    ("cell", "kind", "becomes"),
    [
        (np.longdouble(2.5), pa.float64(), 2.5),
        (np.longdouble("inf"), pa.float32(), math.inf),
        *((cell, kind, None) for cell in (HUGE, -HUGE) for kind in (pa.float64(), pa.float32(), pa.float16())),
        (np.array([HUGE]), pa.list_(pa.float64()), None),
        (np.array([1.5], ">f8"), pa.list_(pa.float64()), [1.5]),
        (np.array([1.5], np.longdouble), pa.list_(pa.float64()), [1.5]),
        *((np.ma.array([1, 2], mask=[0, 1], dtype=dtype), pa.list_(kind), None)
          for dtype, kind in ((float, pa.float64()), (float, pa.int64()), (int, pa.int64()), (int, pa.string()))),
        (np.ma.masked, pa.float64(), None),
        *((cell, kind, None) for kind in (pa.time64("us"), pa.time64("ns"), pa.time32("s"), pa.duration("us"))
          for cell in (1.5, 5, True, uuid.UUID(int=5), "10:30", decimal.Decimal(5), np.datetime64(5, "ns"), TEN, MONDAY)),
        (datetime.time(1, 2, 3, 4), pa.time64("us"), datetime.time(1, 2, 3, 4)),
        (datetime.time(1, 2, 3, 4), pa.time32("s"), datetime.time(1, 2, 3)),
        (datetime.time(1, tzinfo=datetime.UTC), pa.time64("us"), None),
        (datetime.timedelta(1), pa.time64("us"), None),
        (np.timedelta64(5, "s"), pa.time64("us"), None),
        (datetime.timedelta(days=1, microseconds=-1), pa.duration("us"), datetime.timedelta(days=1, microseconds=-1)),
        (datetime.timedelta(days=1, microseconds=-1), pa.duration("s"), datetime.timedelta(seconds=86_399)),
        (pd.Timedelta(1500, "ns"), pa.duration("us"), datetime.timedelta(microseconds=1)),
        (np.timedelta64(5, "W"), pa.duration("s"), datetime.timedelta(weeks=5)),
        (np.timedelta64(1500, "ps"), pa.duration("ns"), pd.Timedelta(1, "ns")),
        (Duration(5), pa.duration("ms"), datetime.timedelta(seconds=5)),
        (datetime.time(1), pa.duration("us"), None),
        *((np.timedelta64(*length), pa.duration("s"), None) for length in ((5, "M"), (1, "Y"), (2**62, "W"), (5,), ("NaT",))),
        (1.9, pa.run_end_encoded(pa.int32(), pa.int64()), None),
        (datetime.timedelta(1), pa.month_day_nano_interval(), None),
    ],
)  # fmt: skip
def test_times_of_day_durations_and_numbers_without_end_lose_nothing_or_are_null(
    cell: Any, kind: pa.DataType, becomes: Any
) -> None:
    assert column([cell], kind).to_pylist() == [becomes]
    assert (why_null(cell, kind) is None) == (becomes is not None)


def test_a_time_of_a_frame_outside_the_calendar_is_null() -> None:
    frame = pd.DataFrame({"at": np.array(["20000-01-01", "2026-01-05"], "datetime64[s]")})
    made = ToTables({"at": pa.timestamp("us")}, unsaid=True).whole(frame)
    assert made is not None
    assert made["at"].is_valid().to_pylist() == [False, True]


def test_text_outside_the_years_of_nanoseconds_is_null() -> None:
    assert column(["9999-01-01", "2026-01-05"], pa.timestamp("ns")).is_valid().to_pylist() == [False, True]


class Strange(type):
    """Its classes have no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


@pytest.mark.parametrize("cls", [Strange("Nameless", (), {}), type("Homeless", (), {"__module__": None})])
def test_a_class_that_cannot_be_asked_costs_its_cells_alone(cls: Any) -> None:
    assert column([1, cls()], pa.int64()).to_pylist() == [1, None]
    assert column([[1], [1, cls()]], pa.list_(pa.int64())).to_pylist() == [[1], None]
    assert why_null(cls(), pa.int64())
