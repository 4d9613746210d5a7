"""Bounds that differ by partition: the scaled number of a row, and what a released number stands for."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.kernels.lattice import Lattice
from dp_pipelines.metrics.lookup_bound import LookupBound, PartitionScale
from dp_pipelines.metrics.sums import Mean, Sum, Variance
from dp_pipelines.planning.describe import query_to_json
from dp_pipelines.release.rescale import in_values

MOST = LookupBound(lookup="most", default=7.0)
LEAST = LookupBound(lookup="least", default=-2.0)
ANY_FLOAT = st.none() | st.floats(allow_nan=True, allow_infinity=True)
ENDS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def scale_of(metric: Any) -> PartitionScale:
    assert metric.scale is not None
    found: PartitionScale = metric.scale
    return found


METRICS = {
    "sum": Sum("x", min_value=LEAST, max_value=MOST),
    "sum from 0": Sum("x", min_value=0, max_value=MOST),
    "sum to 0": Sum("x", min_value=LEAST, max_value=0),
    "sum of both signs": Sum("x", min_value=-3, max_value=MOST),
    "mean": Mean("x", min_value=LEAST, max_value=MOST),
    "variance": Variance("x", min_value=0, max_value=MOST),
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@given(rows=st.lists(st.tuples(ANY_FLOAT, st.none() | ENDS), min_size=1, max_size=20))
@example(rows=[(1e308, (-1e99, 1e99)), (-math.inf, (0.0, 1e-99)), (5e-324, (1e99, 1.0001e99)), (math.nan, None)])
def test_whatever_a_row_holds_its_number_lies_within_the_ends_that_the_plan_knows(
    metric: Any, rows: list[tuple[float | None, tuple[float, float] | None]]
) -> None:
    scale = scale_of(metric)
    table = rows_with(rows)
    found = scale.scaled(table)
    for (value, _), number in zip(rows, found.to_pylist(), strict=True):
        assert (number is None) == (value is None or math.isnan(value))
    good = [n for n, wrong in zip(found.to_pylist(), scale.wrong(*scale.ends(table)), strict=True) if not wrong]
    assert all(metric.low <= number <= metric.high for number in good if number is not None)


def rows_with(rows: list[tuple[float | None, tuple[float, float] | None]]) -> pa.Table:
    ends = [(None, None) if pair is None else pair for _, pair in rows]
    return pa.table({
        "x": pa.array([value for value, _ in rows], pa.float64()),
        "least": pa.array([low for low, _ in ends], pa.float64()),
        "most": pa.array([high for _, high in ends], pa.float64()),
    })  # fmt: skip


@given(rows=st.lists(st.tuples(ANY_FLOAT, st.none() | ENDS), min_size=1, max_size=20), place=st.integers(0, 19))
def test_the_number_of_a_row_depends_on_that_row_alone(rows: list[Any], place: int) -> None:
    row = rows[place % len(rows)]
    for metric in METRICS.values():
        scale = scale_of(metric)
        together = scale.scaled(rows_with(rows))[place % len(rows)].as_py()
        assert repr(together) == repr(scale.scaled(rows_with([row]))[0].as_py())


@given(values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), ends=ENDS)
def test_what_numbers_stand_for_are_the_clamped_values(values: list[float], ends: tuple[float, float]) -> None:
    """Exact sums, counts and so on in place of released ones: scaled and back gives what the clamp says."""
    low, high = (np.array([end]) for end in ends)
    clamped = np.clip(values, *ends)
    table = rows_with([(value, ends) for value in values])
    close = {"rel": 1e-6, "abs": 1e-6 * len(values) * max(map(abs, ends))}

    def number(metric: Any, reduce: Any) -> float:
        scaled = np.array(scale_of(metric).scaled(table).to_pylist())
        found, spread = metric.unscaled((np.array([reduce(scaled)]), np.array([1.0])), low, high)
        assert spread[0] > 0
        return float(found[0])

    assert number(METRICS["sum"], np.sum) == pytest.approx(clamped.sum(), **close)
    assert number(METRICS["mean"], np.mean) == pytest.approx(clamped.mean(), **close)
    spread = Variance("x", min_value=LEAST, max_value=MOST)
    assert number(spread, np.var) == pytest.approx(clamped.var(), rel=1e-6, abs=1e-9 * max(map(abs, ends)) ** 2)


@given(
    power=st.integers(-20, 20),
    values=st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=30),
    centred=st.booleans(),
)
def test_with_one_clamp_for_all_the_integers_are_those_of_the_plain_metric(
    power: int, values: list[float], centred: bool
) -> None:
    """For powers of two, by which division is exact; for others lattice steps differ in size."""
    clamp = 2.0**power
    scaled = Sum("x", min_value=0, max_value=LookupBound(lookup="most", default=clamp))
    rows = rows_with([(value, None) for value in values])
    plain = Lattice.for_values(0.0, clamp, centred=centred)
    same = Lattice.for_values(scaled.low, scaled.high, centred=centred)
    numbers = np.array(scale_of(scaled).scaled(rows).to_pylist())
    assert same.integers(numbers).tolist() == plain.integers(np.array(values)).tolist()
    assert (same.lowest, same.highest) == (plain.lowest, plain.highest)
    assert same.step * clamp == plain.step


def test_metrics_with_one_column_and_one_clamp_share_their_sums() -> None:
    metrics = {"a": METRICS["sum from 0"], "b": Mean("x", min_value=0, max_value=MOST), "c": METRICS["variance"]}
    assert len({metric.family for metric in metrics.values()}) == 1
    others = [
        Mean("x", min_value=0, max_value=LookupBound(lookup="most", default=8)),
        Mean("x", min_value=0, max_value=LookupBound(lookup="least", default=7)),
        Mean("x", min_value=1, max_value=MOST),
        Mean("x", min_value=0, max_value=7),
        Mean("y", min_value=0, max_value=MOST),
    ]
    assert len({metric.family for metric in [*others, metrics["a"]]}) == len(others) + 1


def query(**metrics: Any) -> dp.Query:
    bounds = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)
    return dp.Query(privacy_unit="u", partition_by=["store", "day"], metrics=metrics, bounds=bounds)


def test_the_records_of_a_plan_are_those_of_a_clamp_of_one() -> None:
    by_partition = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(a=METRICS["sum from 0"])})
    plain = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(a=Sum("x", min_value=0, max_value=1))})

    def without_names(plan: dp.Plan) -> list[dict[str, Any]]:
        return [{**record.to_json(), "name": ""} for record in plan["s"].mechanisms]

    assert without_names(by_partition) == without_names(plain)


def test_what_a_query_says_of_a_bound_is_in_its_digest_and_plain_queries_say_nothing_new() -> None:
    said = query_to_json(query(a=METRICS["sum from 0"]))["metrics"]["a"]
    assert said["max_value"] == {"lookup": "most", "default": 7.0}
    assert set(said) == set(query_to_json(query(a=Sum("x", min_value=0, max_value=1)))["metrics"]["a"])


def joined(keys: pa.Table) -> pa.Table:
    most = {"corner": 10.0, "mall": 1000.0}
    return keys.append_column("most", pa.array([most.get(key) for key in keys["store"].to_pylist()], pa.float64()))


def test_values_and_noise_of_each_partition_are_in_proportion_to_its_own_clamp() -> None:
    table = pa.table({
        "store": ["corner", "mall", None, "else"], "day": [1, 1, 1, 1],
        "most": [3.0, 3.0, 3.0, -1.0], "most_stddev": [0.5] * 4, "n": [1.0] * 4, "n_stddev": [1.0] * 4,
    })  # fmt: skip
    found = in_values(table, query(most=METRICS["sum from 0"], n=dp.Count()), joined)
    assert found["most"].to_pylist() == [30.0, 3000.0, 21.0, -7.0]
    assert found["most_stddev"].to_pylist() == [5.0, 500.0, 3.5, 3.5]
    assert found["n"].to_pylist() == [1.0] * 4
    assert found.column_names == table.column_names
    assert in_values(table, query(n=dp.Count()), None) is table


def test_a_shrunk_mean_and_its_raw_one_are_both_in_units_of_the_column() -> None:
    mean = Mean("x", min_value=0, max_value=MOST, shrink=True)
    scaled = {"m": [0.5, 0.25], "m_stddev": [0.125, 0.5], "m_raw": [1.0, 0.0], "m_raw_stddev": [0.25, 0.75]}
    table = pa.table({"store": ["corner", "mall"], "day": [1, 1], **scaled})
    found = in_values(table, query(m=mean), joined)
    for name, numbers in scaled.items():
        assert found[name].to_pylist() == [10 * numbers[0], 1000 * numbers[1]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"min_value": 0, "max_value": MOST, "stddev": 3.0}, "stands beside a bound that differs by partition"),
        ({"min_value": "auto", "max_value": MOST, "within": [0, 9]}, "beside a bound that the run chooses"),
        ({"min_value": 0, "max_value": MOST, "within": [0, 9]}, "is for bounds that are chosen"),
        ({"min_value": 7, "max_value": MOST}, "max_value.default: must be above min_value, 7"),
        ({"min_value": LEAST, "max_value": -2}, "min_value.default: must be below max_value, -2"),
        ({"min_value": -1e101, "max_value": MOST}, "min_value: must be a finite number above -1e+100"),
        ({"max_value": MOST}, "min_value: must be a number"),
        ({"min_sum_per_partition": 0, "max_sum_per_partition": 4, "max_value": MOST}, "stands beside no bounds"),
    ],
)
def test_what_makes_no_sense_beside_such_a_bound_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(dp.RequestError, match=told.replace("+", r"\+")):
        Sum("x", **arguments)


@pytest.mark.parametrize("default", [math.nan, math.inf, -1e100, "7", None, True])
def test_a_default_is_a_finite_number(default: Any) -> None:
    with pytest.raises(dp.RequestError, match="default"):
        LookupBound(lookup="most", default=default)


def test_sums_that_are_scaled_apart_are_not_ranked_against_each_other() -> None:
    with pytest.raises(dp.RequestError, match="differs by partition, so that its values in two partitions"):
        dp.Best(k=1, by=METRICS["sum from 0"])


@given(low=st.floats(), high=st.floats())
def test_what_passes_for_a_clamp_is_finite_and_has_a_width(low: float, high: float) -> None:
    passes = not PartitionScale.wrong(np.array([low]), np.array([high]))[0]
    assert passes == (math.isfinite(low) and math.isfinite(high) and max(abs(low), abs(high)) < 1e100
                      and high - low >= 1e-100)  # fmt: skip
