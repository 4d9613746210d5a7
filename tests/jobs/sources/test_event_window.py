"""Windows of event time: a row counts in one window, by its own time, and each window has a budget of its own.

In: tables, the shop. Out: kept rows, releases, refusals. Holds: nothing here knows what day it is. Not covered: what an
account adds up (`tests/ledger`).
"""

import datetime
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.jobs.sources.event_window import RowWindow
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
MONDAY = datetime.date(2025, 1, 6)
WEEK = {"column": "paid_at", "days": 7, "param": "week"}
PARAMS = {"week": {"type": "date"}}
LISTED = {"weekly": stage(partitions={"public": [[f"p{i}"] for i in range(5)]}, metrics={"orders": {"kind": "count"}})}
TYPES = [
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
]
UTC = datetime.UTC

moments = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
days = st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1))


def of_type(times: list[datetime.datetime], kind: pa.DataType) -> pa.Table:
    """Times in UTC as a column."""
    column = pa.array([time.replace(tzinfo=UTC) for time in times], pa.timestamp("us", "UTC"))
    if pa.types.is_date(kind):
        return pa.table({"t": pa.array([time.date() for time in times], pa.date32()).cast(kind)})
    if kind.tz is None:
        return pa.table({"t": pa.array(times, pa.timestamp("us")).cast(kind, safe=False)})
    return pa.table({"t": column.cast(kind, safe=False)})


@given(st.lists(moments, max_size=20), st.sampled_from(TYPES), days, st.integers(1, 400))
def test_the_rows_of_a_window_are_those_whose_day_in_utc_is_in_it(
    times: list[datetime.datetime], kind: pa.DataType, first: datetime.date, width: int
) -> None:
    times = [
        *times,
        datetime.datetime.combine(first, datetime.time()),
        datetime.datetime.combine(first, datetime.time.max),
    ]
    end = first + datetime.timedelta(days=width)
    kept = RowWindow(column="t", first=first, days=width).apply(of_type(times, kind)).num_rows
    assert kept == sum(first <= time.date() < end for time in times)


@given(st.lists(st.one_of(st.none(), moments), max_size=30), days, st.integers(1, 40), st.sampled_from(["us", "ns"]))
def test_windows_of_one_width_hold_every_row_with_a_time_once(
    times: list[datetime.datetime | None], origin: datetime.date, width: int, unit: str
) -> None:
    table = pa.table({"t": pa.array(times, pa.timestamp("us")).cast(pa.timestamp(unit)), "row": range(len(times))})
    found: list[int] = []
    for number in {(time.date() - origin).days // width for time in times if time is not None}:
        # Both neighbours too: a row at an edge must not be in two of them.
        for near in (number - 1, number, number + 1):
            first = origin + datetime.timedelta(days=near * width)
            rows = RowWindow(column="t", first=first, days=width).apply(table)["row"].to_pylist()
            found += [(row, near) for row in rows]  # type: ignore[misc]
    assert sorted(row for row, _ in set(found)) == [row for row, time in enumerate(times) if time is not None]  # type: ignore[misc]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_first_moment_of_a_window_is_in_it_and_the_first_after_it_is_not(kind: pa.DataType) -> None:
    window = RowWindow(column="t", first=MONDAY, days=7)
    begin = datetime.datetime.combine(MONDAY, datetime.time())
    edges = [begin, begin - datetime.timedelta(seconds=1), begin + datetime.timedelta(days=7)]
    assert window.apply(of_type(edges, kind)).num_rows == 1


@pytest.mark.parametrize("first", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_window_at_the_end_of_time_holds_nothing_of_ours(kind: pa.DataType, first: datetime.date) -> None:
    table = of_type([datetime.datetime(2026, 1, 1)], kind)
    assert RowWindow(column="t", first=first, days=36525 if first.year == 9999 else 1).apply(table).num_rows == 0


def windowed(shop: Shop, **changes: object) -> Shop:
    """The shop with a weekly job and an account with weekly windows."""
    shop.without_ledger()
    shop.write(
        **{"params": PARAMS, "window": WEEK, "stages": LISTED, "budget": {"epsilon": 30.0, "delta": 1e-5}, **changes}
    )
    return shop


def release(shop: Shop, call: Call, week: str, *more: str) -> Said:
    """Run a week."""
    return call(
        "run", shop.job, "--output", shop.folder / f"out-{week}", "--param", f"week={week}", "--run-id", week, *more
    )


def test_a_run_counts_the_rows_of_its_window_alone(shop: Shop, call: Call) -> None:
    windowed(shop)
    tables = [pa.parquet.read_table(path) for path in sorted((shop.folder / "data").iterdir())]
    rows = pa.concat_tables(tables)
    for week in (MONDAY, MONDAY + datetime.timedelta(days=21)):
        said = release(shop, call, week.isoformat())
        assert said.code == 0, said.err
        found = pa.parquet.read_table(shop.folder / f"out-{week}" / "weekly.parquet").to_pydict()
        inside = RowWindow(column="paid_at", first=week, days=7).apply(rows)
        # Nearly nobody has more than two rows of a product, or more than three products, in one week.
        for product, orders, stddev in zip(found["product"], found["orders"], found["orders_stddev"], strict=True):
            true = pc.sum(pc.equal(inside["product"], product)).as_py()
            assert abs(orders - true) < 10 * stddev + 0.1 * true
            assert true < rows.num_rows / 10
    account = Ledger.open(str(shop.folder / DEFAULT_NAME)).account("shop")
    assert sorted(account.spent) == ["2025-01-06", "2025-01-27"]
    assert account.words.endswith("in one window of 7 days")
    assert "in one window of 7 days" in (shop.folder / "out-2025-01-06" / "report.html").read_text()


def test_rows_that_come_after_their_window_was_released_are_refused(shop: Shop, call: Call) -> None:
    windowed(shop)
    assert release(shop, call, "2025-01-06").code == 0
    path = shop.folder / "data" / "part-0.parquet"
    pa.parquet.write_table(pa.concat_tables([pa.parquet.read_table(path)] * 2), path)
    late = call("run", shop.job, "--output", shop.folder / "late", "--param", "week=2025-01-06", "--run-id", "late")
    assert (late.code, late.out) == (3, "")
    assert not (shop.folder / "late").exists()
    assert release(shop, call, "2025-01-13").code == 0


def test_a_window_with_room_in_its_budget_may_be_released_again(shop: Shop, call: Call) -> None:
    windowed(shop, budget={"epsilon": 30.0, "delta": 1e-5, "runs": 2})
    assert release(shop, call, "2025-01-06").code == 0
    command = ("run", shop.job, "--param", "week=2025-01-06", "--output")
    assert call(*command, shop.folder / "late", "--run-id", "late").code == 0
    assert call(*command, shop.folder / "later", "--run-id", "later").code == 3


@pytest.mark.parametrize(
    ("changes", "week", "words"),
    [
        ({}, "2025-01-14", "is not the first day of a window of the account; these begin every 7 days from 2025-01-06"),
        ({"window": {**WEEK, "days": 14}}, "2025-01-06", "is not that of the account 'shop': 7 days of paid_at"),
        ({"window": None}, "2025-01-06", "protects each unit in one window of 7 days"),
        ({"window": {**WEEK, "column": "product"}}, "2025-01-06", "which is not a column of dates or timestamps"),
        ({"window": {**WEEK, "column": "none"}}, "2025-01-06", "which is not a column of dates or timestamps"),
        ({"window": {**WEEK, "param": "day"}}, "2025-01-06", "which params: does not declare as a date"),
        ({"params": {"week": {"type": "string"}}}, "2025-01-06", "which params: does not declare as a date"),
    ],
)
def test_a_window_that_is_not_the_accounts_is_refused(
    shop: Shop, call: Call, changes: dict[str, object], week: str, words: str
) -> None:
    windowed(shop)
    assert release(shop, call, "2025-01-06").code == 0
    shop.write(**{"params": PARAMS, "window": WEEK, "stages": LISTED, **changes})
    said = call("run", shop.job, "--output", shop.folder / "other", "--param", f"week={week}", "--run-id", "other")
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.startswith(f"error: {shop.job}:")
    assert not (shop.folder / "other").exists()


def test_a_window_in_another_column_is_refused(shop: Shop, call: Call) -> None:
    for path in (shop.folder / "data").iterdir():
        table = pa.parquet.read_table(path)
        pa.parquet.write_table(table.append_column("sent_at", table["paid_at"]), path)
    windowed(shop)
    assert release(shop, call, "2025-01-06").code == 0
    shop.write(params=PARAMS, window={**WEEK, "column": "sent_at"}, stages=LISTED)
    said = call("run", shop.job, "--output", shop.folder / "other", "--param", "week=2025-01-13", "--run-id", "other")
    assert said.code == 2
    assert "is not that of the account 'shop': 7 days of paid_at" in said.err


def test_a_window_is_refused_by_an_account_without_windows(shop: Shop, call: Call) -> None:
    shop.write(params=PARAMS, window=WEEK, stages=LISTED)
    said = release(shop, call, "2025-01-06")
    assert said.code == 2
    assert "does not fit the account 'shop', which protects all rows of a unit together" in said.err


def test_an_account_made_from_a_job_has_the_jobs_windows(shop: Shop, call: Call) -> None:
    windowed(shop)
    assert call("ledger", "init", shop.job).code == 0
    window = Ledger.open(str(shop.folder / DEFAULT_NAME)).account("shop").window
    assert window is not None
    assert (window.column, window.days) == ("paid_at", 7)
    assert release(shop, call, "2025-01-06").code == 0
    assert release(shop, call, "2025-01-07").code == 2
