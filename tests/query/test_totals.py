"""Totals: an empty `partition_by` is one public partition, which holds every row and has no key.

In: queries, tables with nulls and odd values. Out: what is refused, and exact sums. Holds: a total is what a query over a
constant column with one public key would be, integer for integer before the noise, so that every proof of that one holds of it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate, contributions, shard
from dp_pipelines.kernels.statistics import RowCount
from dp_pipelines.planning import describe
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import EVERYTHING
from dp_pipelines.release.draw import draw_release

ROWS = dp.ContributionBounds(max_contributions_per_partition=3)
METRICS: dict[str, Any] = {
    "orders": dp.Count(),
    "buyers": dp.PrivacyIdCount(),
    "kinds": dp.DistinctCount("kind"),
    "revenue": dp.Sum("paid", min_value=-5, max_value=20),
    "of_each": dp.Sum("paid", min_sum_per_partition=0, max_sum_per_partition=30),
    "basket": dp.Mean("paid", min_value=0, max_value=20),
    "sizes": dp.Histogram("paid", edges=[0, 5, 20]),
    "typical": dp.Median("paid", min_value=0, max_value=20),
    "taste": dp.VectorSum("taste", size=2, max_norm=1),
}
TABLES = st.lists(
    st.tuples(
        st.none() | st.integers(0, 6),
        st.none() | st.sampled_from("ab"),
        st.none() | st.floats(-50, 50) | st.just(float("nan")),
    ),
    max_size=40,
)


def total(**changes: Any) -> dp.Query:
    fields: dict[str, Any] = {
        "privacy_unit": "who", "partition_by": [], "bounds": ROWS, "metrics": METRICS,
    }  # fmt: skip
    return dp.Query(**{**fields, **changes})


def table_of(rows: list[tuple[Any, Any, Any]]) -> pa.Table:
    who, kind, paid = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "who": pa.array(who, pa.int64()),
            "kind": pa.array(kind, pa.string()),
            "paid": pa.array(paid, pa.float64(), from_pandas=False),
            "taste": pa.array([[0.5, 0.25]] * len(rows), pa.list_(pa.float64())),
            "same": pa.array(["x"] * len(rows), pa.string()),
        }
    )


@functools.cache
def planned(query: dp.Query) -> StagePlan:
    """The one stage of a plan."""
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]


def exact(query: dp.Query, table: pa.Table, shards: int) -> accumulate.Totals:
    """The exact sums of a table, bounded in some shards, as a pipeline of one place computes them."""
    stage = planned(query)
    wire = contributions.reduce(stage.layout.wire(table), stage.layout, 5)
    cut: dict[int, list[pa.Table]] = {0: [wire.slice(0, 0)]}
    for number, part in shard.slices(wire, stage.layout.unit_names, 5, shards):
        cut.setdefault(number, []).append(part)
    partials = [accumulate.partials(shard.joined(parts), stage.layout, stage.statistics, 5) for parts in cut.values()]
    indexed = [accumulate.by_public_index(partial, stage.layout) for partial in partials]
    return accumulate.merge_public(indexed, stage.layout, stage.statistics, 0, 1)


TOTAL = total()
CONSTANT = total(partition_by="same", partitions=dp.PublicPartitions(keys=[("x",)]),
                 bounds=dataclasses.replace(ROWS, max_partitions_contributed=1))  # fmt: skip
"""The same question of a column that holds one value."""


@given(TABLES, st.integers(1, 4))
def test_a_total_is_the_one_partition_of_a_constant_column(rows: list[tuple[Any, Any, Any]], shards: int) -> None:
    table = table_of(rows)
    of_total, of_constant = exact(TOTAL, table, shards), exact(CONSTANT, table, shards)
    found, wanted = (
        [np.concatenate([t.high[i], t.low[i]]).tolist() for i in range(len(t.high))] for t in (of_total, of_constant)
    )
    # Which rows of a unit stay is settled by a hash of its partition too, whose key differs: where bounds cut, sums may.
    units = [row[0] for row in rows if row[0] is not None]
    cut = any(units.count(unit) > 3 for unit in units)
    assert cut or found == wanted
    statistics = planned(TOTAL).statistics
    rows_at = [type(statistic) for statistic in statistics].index(RowCount)
    assert found[rows_at] == wanted[rows_at], "as many rows are kept, whichever they are"


def test_its_plan_is_that_of_the_constant_column() -> None:
    mine, other = (dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query}) for query in (TOTAL, CONSTANT))
    assert mine.mechanisms == other.mechanisms
    assert mine.digest != other.digest


@pytest.mark.parametrize("rows", [[], [(None, None, None)] * 3, [(1, None, None)] * 3])
def test_nothing_but_nulls_and_no_row_at_all_release_noise_around_zero(rows: list[tuple[Any, Any, Any]]) -> None:
    stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": total()})["s"]
    (released,) = draw_release(exact(total(), table_of(rows), 2), stage).to_pylist()
    assert list(released) == [name for metric in METRICS for name in (metric, f"{metric}_stddev")]
    for name in ("orders", "revenue", "of_each", "kinds"):
        assert abs(released[name]) < 12 * released[f"{name}_stddev"] + 3
    assert -5 <= released["basket"] <= 25


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"partitions": dp.PrivatePartitions()}, "partitions", "one public partition: everything; drop it"),
        ({"partitions": dp.PrivatePartitions(strategy="sips")}, "partitions", "stands beside an empty partition_by"),
        ({"partitions": dp.PublicPartitions(keys=[("a",)])}, "partitions", "stands beside an empty partition_by"),
        ({"top": dp.Top(k=1, by="orders")}, "top", "there is one"),
        ({"best": dp.Best(), "metrics": {}}, "best", "there is one"),
        ({"metrics": {}}, "metrics", "add a metric"),
        (
            {"bounds": dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)},
            "max_partitions_contributed",
            "must be 1 where partition_by is empty: everything is one partition; leave it out",
        ),
        (
            {"bounds": dp.ContributionBounds(max_partitions_contributed="auto", partition_candidates=[1, 2])},
            "max_partitions_contributed",
            "must be 1",
        ),
        ({"bounds": dp.ContributionBounds()}, "max_contributions_per_partition", "is needed by metrics.orders"),
        ({"partition_by": None}, "partition_by", "must be a column name or a list"),
        ({"partition_by": ""}, "partition_by", "must be a name"),
        ({"partition_by": {}}, "partition_by", "must be a column name or a list"),
    ],
)
def test_what_chooses_among_partitions_is_refused_beside_it(changes: Any, field: str, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        total(**changes)
    assert refused.value.field == field
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "bounds",
    [
        ROWS,
        dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=3),
        dp.ContributionBounds(max_contributions=3),
    ],
)
def test_all_ways_to_say_how_many_rows_a_unit_has_are_the_same_question(bounds: dp.ContributionBounds) -> None:
    assert total(bounds=bounds) == total()
    assert total(bounds=bounds, partitions=EVERYTHING) == total()
    assert dataclasses.replace(total(bounds=bounds), row_id=None) == total(), "what was settled can be said again"


def test_units_alone_need_no_bound_and_a_total_is_told_by_its_query() -> None:
    users = total(bounds=dp.ContributionBounds(), metrics={"buyers": dp.PrivacyIdCount()})
    assert users.is_total
    assert users.bounds.max_partitions == users.bounds.max_rows_per_partition == 1
    assert describe.query_to_json(users)["partitions"] == {"public": [[]]}
    assert describe.query_to_json(users)["partition_by"] == []


@pytest.mark.parametrize("refused", [lambda b: b.max_partitions, lambda b: b.max_rows])
def test_bounds_alone_do_not_pass_for_complete(refused: Callable[[dp.ContributionBounds], int]) -> None:
    with pytest.raises(RequestError, match="must say how much"):
        refused(ROWS)


def test_a_total_has_no_groups_to_shrink_towards() -> None:
    mean = dp.Mean("x", min_value=0, max_value=9, shrink=True)
    with pytest.raises(RequestError, match="metrics.price.shrink: pulls groups towards each other"):
        dp.Query(
            privacy_unit="u",
            partition_by=[],
            bounds=dp.ContributionBounds(max_contributions_per_partition=1),
            metrics={"price": mean},
        )
