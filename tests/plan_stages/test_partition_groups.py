"""Groups of partitions: a function of each row's partition, and no dearer than one histogram of all rows."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.plan_stages import one_partition, partition_groups
from dp_pipelines.planning.stage import StagePlan
from tests.helpers import cells as wide
from tests.helpers import neighbours as nb

KEYS = st.one_of(st.none(), st.sampled_from("abcdefgh"), st.text(max_size=3))
BINS = {"values": Histogram("n0", edges=value_bounds.bins(0.0, 8.0))}
ONE = one_partition.query("u0", BINS, rows=4)
GROUPED = partition_groups.query("u0", BINS, rows=4)
PLANS = {name: dp.Plan(epsilon=1.0, stages={"s": query}) for name, query in (("one", ONE), ("groups", GROUPED))}


def keys_of(columns: list[str]) -> Layout:
    """Return a layout with these partition columns."""
    return Layout(units=(), partitions=tuple(columns), max_partitions=1)


@given(
    found=st.lists(st.tuples(KEYS, st.sampled_from([0.0, -0.0, float("nan"), 1.0])), max_size=30),
    cut=st.integers(0, 30),
)
def test_rows_of_a_partition_are_in_one_group_however_they_are_batched(
    found: list[tuple[str | None, float]], cut: int
) -> None:
    texts, numbers = ([pair[n] for pair in found] for n in (0, 1))
    rows = pa.table({"p0": pa.array(texts, pa.string()), "p1": pa.array(numbers, pa.float64()), "n": range(len(found))})
    parts = [
        partition_groups.of(part, keys_of(["p0", "p1"]), ["n"], 5) for part in (rows.slice(0, cut), rows.slice(cut))
    ]
    group = pa.concat_tables(parts).column(value_bounds.COLUMN).to_pylist()
    assert set(group) <= set(partition_groups.NAMES)
    of_key: dict[tuple[object, object], str] = {}
    for (text, number), name in zip(found, group, strict=True):
        assert of_key.setdefault((text, None if number != number else number + 0.0), name) == name


def test_many_partitions_are_spread_over_all_groups() -> None:
    rows = pa.table({"p0": np.arange(4000), "u0": np.arange(4000)})
    groups = partition_groups.of(rows, keys_of(["p0"]), ["u0"], 9).column(value_bounds.COLUMN).to_pylist()
    numbers = [groups.count(name) for name in partition_groups.NAMES]
    assert min(numbers) > 300  # of 500: nine standard deviations
    other = partition_groups.of(rows, keys_of(["p0"]), ["u0"], 10).column(value_bounds.COLUMN).to_pylist()
    assert groups != other


def test_groups_cost_what_one_histogram_costs() -> None:
    noises = [plan["s"].noises[0] for plan in PLANS.values()]
    assert noises[0] is not None
    assert noises[1] is not None
    assert noises[0].stddev == pytest.approx(noises[1].stddev, rel=1e-3)


def moved(stage: StagePlan, smaller: pa.Table, larger: pa.Table) -> list[int]:
    """By how much each count of the histograms differs, those that do."""
    counts = []
    for table in (smaller, larger):
        rows = partition_groups.of(table, keys_of(["p0"]), ["u0", "n0"], 5)
        counts.append(wide.counts(nb.totals(rows, stage.layout, stage.statistics), 0))
    return [by for by in nb.distances(*counts) if by]


UNIT = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from([-1.0, 0.5, 3.0, 8.0, 1e9])), max_size=14)


@settings(max_examples=60, deadline=None)
@given(others=UNIT, mine=UNIT)
def test_one_unit_moves_the_groups_together_by_no_more_than_the_record_says(
    others: list[tuple[str, float]], mine: list[tuple[str, float]]
) -> None:
    def table(*units: list[tuple[str, float]]) -> pa.Table:
        rows = [(number, key, value) for number, of_unit in enumerate(units) for key, value in of_unit]
        kinds = {"u0": pa.int64(), "p0": pa.string(), "n0": pa.float64()}
        return pa.table({n: pa.array([row[i] for row in rows], k) for i, (n, k) in enumerate(kinds.items())})

    stage = PLANS["groups"]["s"]
    (record,) = stage.mechanisms
    found = moved(stage, table(others), table(others, mine))
    assert sum(found) == min(len(mine), 4)
    # One row of change is `linf / 4` steps of what noise is added to.
    assert sum(found) * (record.linf or 0) <= 4 * (record.l1 or 0)
    assert len(found) <= (record.l0 or 0)


def test_rows_that_are_bounded_in_each_group_alone_would_be_found() -> None:
    stage = PLANS["groups"]["s"]
    rows = pa.table({"u0": [1] * 40, "p0": [f"p{n}" for n in range(40)], "n0": [1.0] * 40})
    assert sum(moved(stage, rows.slice(0, 0), rows)) == 4
    loose = dataclasses.replace(stage.layout, max_rows=None, max_rows_per_partition=4, max_partitions=8)
    assert sum(moved(dataclasses.replace(stage, layout=loose), rows.slice(0, 0), rows)) > 4
