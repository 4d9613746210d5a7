"""Two PCollections of private rows joined on the unit: the rows that DuckDB joins, in a pipeline of one's own.

In: Arrow tables. Out: joined rows; refusals. Holds: Beam's own runner carries it out. Not covered: what is
released of joined rows.
"""

from typing import Any

import apache_beam as beam
import duckdb
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import shard
from dp_pipelines.transforms import JoinByUnit
from tests.helpers import joined as jt

ORDERS = {"customer": "int64", "day": "int64", "amount": "double"}
VISITS = {"user": "int32", "visited": "int64", "page": "string"}
BOTH: dict[str, Any] = {"left": ORDERS, "right": VISITS, "unit": ("customer", "user"), "max_rows_per_unit": (100, 100)}

LEFT = pa.table({"customer": [1, 1, 2, None], "day": [1, 2, 1, 1], "amount": [5.0, 6.0, 7.0, 8.0]})
RIGHT = pa.table(
    {"user": pa.array([1, 1, 3, None], pa.int32()), "visited": [1, 1, 1, 1], "page": ["home", "cart", "home", "home"]}
)


def rows(tables: list[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("keeps", [False, True], ids=["inner", "left"])
def test_rows_are_joined_as_duckdb_joins_them(keeps: bool) -> None:
    with duckdb.connect() as connection:
        connection.register("l", LEFT)
        connection.register("r", RIGHT)
        kind = "LEFT" if keeps else ""
        query = f"""SELECT customer, day, amount, visited, page FROM (FROM l WHERE customer IS NOT NULL)
            {kind} JOIN r ON customer = user AND day = visited"""
        expected = rows([connection.sql(query).to_arrow_table()])

    def same(found: list[pa.Table]) -> None:
        assert rows(found) == expected

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        both = tuple(pipeline | name >> beam.Create([t]) for name, t in (("Left", LEFT), ("Right", RIGHT)))
        joined = both | JoinByUnit(**BOTH, on=[("day", "visited")], keeps_unmatched=keeps, num_shards=3)
        assert_that(joined, same)


def _as_it_is(element: Any) -> Any:
    return element


def test_elements_that_are_no_tables_are_dropped_and_refused_where_nothing_says_that_there_are_tables() -> None:
    """A step may make one for some tables only, so that whether there is one is private."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        left, right = (pipeline | name >> beam.Create([t]) for name, t in (("Left", LEFT), ("Right", RIGHT)))
        odd = pipeline | "Odd" >> beam.Create(["a", {"customer": 1}, 5]).with_output_types(Any)
        mixed = (left, odd) | beam.Flatten() | "Same" >> beam.Map(_as_it_is).with_output_types(Any)
        joined = (mixed, right) | JoinByUnit(**BOTH, num_shards=3)
        assert_that(joined | beam.Map(lambda table: table.num_rows) | beam.CombineGlobally(sum), equal_to([4]))
    with pytest.raises(
        RequestError, match="input: holds elements without a type hint, and pyarrow tables are read here; say"
    ):
        (odd, right) | "Again" >> JoinByUnit(**BOTH)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unit": ("customer", "page")}, "column 'customer': would be compared with 'page' of type string"),
        ({"unit": (["customer", "day"], ["user"])}, "unit: has not as many columns in each table"),
        ({"unit": ("customer", "person")}, "right: lacks column 'person'"),
        ({"right": {**VISITS, "amount": "double"}}, "right: has column 'amount', which joined rows have already"),
        ({"max_rows_per_unit": (0, 5)}, "max_rows_per_unit: must be"),
        ({"left": {**ORDERS, "tags": pa.list_(pa.string())}}, "tags"),
    ],
)
def test_what_cannot_be_joined_is_refused_when_the_pipeline_is_built(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        JoinByUnit(**{**BOTH, **changes})
    assert said in str(caught.value)


def test_integers_of_batches_that_travel_in_other_widths_are_the_same_units(monkeypatch: pytest.MonkeyPatch) -> None:
    days = [0.0, 1.0]
    left = [
        pa.table({"u0": pa.array([1, unit], pa.int32()), "day": days, "store": ["a", "b"], "n0": days}, schema=jt.LEFT)
        for unit in (2, 300, 70_000, -129)
    ]
    right = [
        pa.table({"who": [unit, 1], "visited": days, "page": ["p", "q"]}, schema=jt.RIGHT)
        for unit in (2**40, -129, 300, 2, 70_000)
    ]
    join = jt.join_of(keeps_unmatched=True, on_day=False, caps=(9, 9))
    cut = jt.joined_rows(join, left, right, shards=2)
    monkeypatch.setattr(shard, "narrow", lambda table: table)
    assert jt.multiset(cut) == jt.multiset(jt.joined_rows(join, left, right, shards=1, backwards=True))
    assert cut.schema == join.columns
    assert cut.num_rows == 4 * 5 + 4
