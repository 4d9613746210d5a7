"""`ShownRows`: which rows of a released table are published, against what DuckDB says of the same table; and the words on them.

In: released tables. Out: rows, words. Holds: every comparison is exact. Not covered: what a condition may say
(`tests/jobs/request/test_having.py`), what pages make of it (`tests/jobs/run/test_shown_rows.py`).
"""

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.jobs.sql import expressions
from dp_pipelines.query.order_by import SortColumn, read_all
from dp_pipelines.release import verdicts
from dp_pipelines.release.shown_rows import ShownRows, in_order, read_part

SCHEMA = pa.schema([("k", pa.string()), ("day", pa.date32()), ("n", pa.float64()), ("m", pa.float64())])
NUMBERS = st.none() | st.integers(-3, 3).map(float) | st.floats(allow_nan=False)
ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from(["a", "B", "é", ""]), st.none() | st.dates(), NUMBERS, NUMBERS),
    max_size=12, unique_by=lambda row: row[:2],
)  # fmt: skip
CONDITIONS = st.sampled_from([
    None, "n > 0", "n > 1 AND m / n > -1", "m IS NULL OR n = m", "k IN ('a', '') AND NOT n > 2", "n BETWEEN m AND 3",
    "day > DATE '2000-01-01'", "CASE WHEN n > 0 THEN m < 0 END", "round(n) = 1", "n / 0 > 1", "TRUE", "NULL::BOOLEAN",
])  # fmt: skip
ORDERS = st.lists(st.sampled_from(["k", "day", "n", "m"]), max_size=4, unique=True)


def shown(having: str | None = None, order_by: list[str] | None = None, limit: int | None = None) -> ShownRows:
    """The rows that a stage with these keys shows."""
    condition = None if having is None else expressions.over_released(having, SCHEMA, {})
    return ShownRows(
        keys=("k", "day"),
        ranks=("k", "day"),
        having=having,
        reads=condition.input_columns if condition is not None else (),
        passing=condition.apply if condition is not None else None,
        order_by=tuple(read_all(order_by or [])),
        limit=limit,
    )


@given(ROWS, CONDITIONS, ORDERS, st.lists(st.booleans(), min_size=4, max_size=4), st.integers(1, 6))
def test_the_rows_are_those_of_the_same_query_over_the_whole_table(
    rows: list[tuple[Any, ...]], having: str | None, columns: list[str], falling: list[bool], limit: int
) -> None:
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    order_by = [f"{name} {'desc' if down else 'asc'}" for name, down in zip(columns, falling, strict=False)]
    most = limit if order_by else None
    found, said = shown(having, order_by, most).of(table)
    every = [f"{text} NULLS LAST" for text in (*order_by, *(key for key in ("k", "day") if key not in columns))]
    asked = f"SELECT * FROM released WHERE {having or 'TRUE'} ORDER BY {', '.join(every)}"
    with duckdb.connect() as connection:
        connection.register("released", table)
        passing = connection.sql(asked).to_arrow_table().to_pylist()
        connection.unregister("released")
    wanted = passing[:most]
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted))
    keys = [(row["k"] is None, row["k"] or "", row["day"] is None, str(row["day"])) for row in found.to_pylist()]
    assert keys == sorted(keys), "the published file is in the order of the keys"
    printed = found.take(pa.array(in_order(found, read_all(order_by), ["k", "day"])))
    assert printed.to_pylist() == wanted
    assert (said["groups"], said["passed"], said["rows"]) == (len(rows), len(passing), len(wanted))


def numbers(*values: float | None) -> pa.Table:
    days = [None] * len(values)
    return pa.table({"k": [f"k{n}" for n in range(len(values))], "day": days, "n": values, "m": values}).cast(SCHEMA)


def test_what_is_no_number_comes_last_whatever_the_direction() -> None:
    table = numbers(1.0, math.nan, None, 3.0)
    for way, first in (("desc", ["k3", "k0"]), ("asc", ["k0", "k3"])):
        order = in_order(table, [SortColumn(column="n", descending=way == "desc")], ["k"])
        assert table.column("k").take(pa.array(order)).to_pylist() == [*first, "k1", "k2"]


def test_a_column_whose_name_ends_as_a_direction_can_be_named() -> None:
    column = SortColumn(column="price desc")
    assert SortColumn.read(column.text) == column
    assert SortColumn.read("desc") == SortColumn(column="desc")


WORDS: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "a condition on a number": (
        ("n > 2",),
        ["2 of 4 groups pass `n > 2`; numbers just above a threshold are too high on average, those just below one too low"],
    ),
    "one that one group passes": (("n > 3",), ["1 of 4 groups passes `n > 3`; numbers just above"]),
    "one on a key": (("k <> 'k0'",), ["3 of 4 groups pass `k <> 'k0'`"]),
    "the largest": (
        (None, ["n desc"], 3),
        ["of all 4 groups, the 3 largest by n are shown, which noise makes too high on average"],
    ),
    "the smallest": ((None, ["n"], 1), ["of all 4 groups, the smallest by n is shown, which noise makes too low on average"]),
    "the first keys": ((None, ["k desc"], 2), ["of all 4 groups, the first 2 by k desc are shown"]),
    "both": (
        ("n > 1", ["m desc"], 2),
        ["3 of 4 groups pass `n > 1`; numbers just above", "of these, the 2 largest by m are shown, which noise makes too"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "words"), WORDS.values(), ids=WORDS)
def test_readers_are_told_how_rows_were_chosen_and_what_that_does_to_their_numbers(
    asked: tuple[Any, ...], words: list[str]
) -> None:
    said = shown(*asked).of(numbers(1.0, 2.0, 3.0, 4.0))[1]["words"]
    assert len(said) == len(words) + 1
    assert all(line.startswith(start) for line, start in zip(said, words, strict=False)), said
    assert ("on average" in said[0]) == ("on average" in words[0] or words[0].endswith("numbers just above"))
    assert said[-1] == "a group that is left out is not zero"


def test_where_nothing_is_left_out_nothing_is_said_of_it() -> None:
    assert shown(None, ["n desc"], 9).of(numbers(1.0, 2.0))[1]["words"] == []
    assert shown("n > 0", ["n desc"]).of(numbers())[1]["words"] == []


def test_a_total_that_does_not_pass_is_not_zero() -> None:
    condition = expressions.over_released("n > 2", SCHEMA, {})
    rows = ShownRows(keys=(), ranks=(), having="n > 2", reads=("n",), passing=condition.apply)
    table, said = rows.of(pa.table({"n": [1.0]}))
    assert table.num_rows == 0
    assert said["words"] == ["the total does not pass `n > 2`; it is not zero"]


def test_verdicts_speak_of_all_groups_and_are_read_back_where_rows_are_missing() -> None:
    table = pa.table({"k": list("abcd"), "m": [1.0, 2.0, 30.0, 40.0], "m_stddev": [2.0] * 4})
    by = (SortColumn(column="m", descending=True),)
    rows, said = ShownRows(keys=("k",), ranks=("k",), order_by=by, limit=1).of(table)
    stage = {"metrics": {"m": {"kind": "sum"}}, "selection": {"strategy": "public"}, "shown": said}
    whole = verdicts.of_stage(table, stage)["m"]
    assert whole.words == "of all 4 groups, 2 differ from zero; 0.2 would by chance"
    stage["metrics"] = {"m": {"kind": "sum", "verdict": whole.to_json()}}
    assert verdicts.told(rows, stage) == {"m": whole}
    assert verdicts.told(rows, {**stage, "metrics": {"m": {"kind": "sum", "verdict": {"words": 3}}}}) == {}


WHOLE: dict[str, Any] = {"groups": 3, "rows": 1, "order_by": ["n desc", "k"], "words": ["one", "two"]}


def test_what_the_manifest_says_of_chosen_rows_is_read_back() -> None:
    part = read_part({"shown": WHOLE})
    assert part is not None
    assert (part.groups, part.rows, part.words, part.chooses) == (3, 1, ("one", "two"), False)
    assert part.order_by == (SortColumn(column="n", descending=True), SortColumn(column="k"))
    for asked in ({"having": "n > 1"}, {"limit": 1}):
        part = read_part({"shown": WHOLE | asked})
        assert part is not None
        assert part.chooses


@pytest.mark.parametrize("key", WHOLE)
@pytest.mark.parametrize("value", [None, True, -1, 1.0, "n", 10**15, [3], ["n", None], [None, "n"], {"n": 1}, ("n",)])
def test_an_entry_with_one_part_that_is_damaged_is_not_read(key: str, value: Any) -> None:
    damaged = WHOLE | {key: value}
    assert read_part({"shown": damaged}) is None
    assert read_part({"shown": {name: part for name, part in WHOLE.items() if name != key}}) is None


@given(
    st.dictionaries(
        st.sampled_from(["groups", "rows", "order_by", "words", "limit"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.text(max_size=3) | st.none()),
    )
)
def test_a_damaged_entry_is_no_error(entry: dict[str, Any]) -> None:
    part = read_part({"shown": entry})
    assert part is None or part.groups >= 0
    assert read_part({"shown": [entry]}) is None
