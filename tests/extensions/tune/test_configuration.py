"""A sibling's noise in units of sensitivity is that of a plan of its own, where clips and rows per partition alone differ."""

import dataclasses
from typing import Any

import pytest

from dp_pipelines import ContributionBounds, Count, Mean, Plan, PrivacyIdCount, PrivatePartitions, Query, Sum, Variance
from dp_pipelines.extensions.tune.configuration import configuration, scalable, supported, without_scale

METRICS: dict[str, Any] = {
    "orders": Count(weight=0.5),
    "buyers": PrivacyIdCount(),
    "revenue": Sum("price", min_value=0, max_value=8, weight=2),
    "basket": Sum("price", min_sum_per_partition=0, max_sum_per_partition=12),
    "mean": Mean("price", min_value=0, max_value=8),
    "age": Mean("age", min_value=18, max_value=90, nullable=False),
}


def query(rows: int = 2, high: float = 8, **changes: Any) -> Query:
    metrics = {
        **METRICS,
        "revenue": Sum("price", min_value=0, max_value=high, weight=2),
        "mean": Mean("price", min_value=0, max_value=high),
        "basket": Sum("price", min_sum_per_partition=0, max_sum_per_partition=2 * high),
    }
    bounds = ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=rows)
    return Query(privacy_unit="u", partition_by="p", bounds=bounds, metrics=metrics, **changes)


def planned(asked: Query, epsilon: float = 1.0) -> Any:
    return Plan(epsilon=epsilon, delta=1e-6, stages={"s": asked})["s"]


@pytest.mark.parametrize("strategy", ["auto", "truncated_geometric", "laplace", "weighted_gaussian"])
@pytest.mark.parametrize(("rows", "high"), [(1, 8), (7, 8), (2, 300), (5, 0.25)])
def test_noise_scales_with_sensitivity(strategy: Any, rows: int, high: float) -> None:
    partitions = PrivatePartitions(strategy=strategy)
    first, other = query(partitions=partitions), query(rows, high, partitions=partitions)
    assert without_scale(first) == without_scale(other)
    taken_over, own = configuration(0, other, planned(first)), configuration(0, other, planned(other))
    assert taken_over.max_rows == rows
    for mine, theirs in zip(taken_over.estimates, own.estimates, strict=True):
        assert dataclasses.replace(mine, total_stddev=0, count_stddev=0) == dataclasses.replace(
            theirs, total_stddev=0, count_stddev=0
        )
        assert mine.total_stddev == pytest.approx(theirs.total_stddev, rel=3e-3)
        assert mine.count_stddev == pytest.approx(theirs.count_stddev, rel=3e-3)
    assert taken_over.selects is not None
    assert own.selects is not None
    assert dataclasses.astuple(taken_over.selects)[2:6] == pytest.approx(
        dataclasses.astuple(own.selects)[2:6], rel=3e-3
    )


def test_another_budget_is_found() -> None:
    once, twice = (configuration(0, query(), planned(query(), epsilon)) for epsilon in (1.0, 2.0))
    assert once.estimates[0].total_stddev > 1.3 * twice.estimates[0].total_stddev


def test_what_calibration_sees_differs_where_plans_do() -> None:
    first = query()
    assert without_scale(first) != without_scale(
        query(high=8.0).__class__(**{**_fields(first), "metrics": {"n": Count()}})
    )
    bounds = ContributionBounds(max_partitions_contributed=5, max_contributions_per_partition=2)
    assert without_scale(first) != without_scale(dataclasses.replace(first, bounds=bounds))
    # Sums over [0, 8] and [0, 9] are two families, and a range that begins far from zero is centred.
    apart = {**METRICS, "mean": Mean("price", min_value=0, max_value=9)}
    assert without_scale(first) != without_scale(dataclasses.replace(first, metrics=apart))


def _fields(of: Query) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in dataclasses.fields(of)}


def test_metrics_of_which_nothing_is_predicted() -> None:
    assert supported(Variance("price", min_value=0, max_value=8)) is None
    fixed = dataclasses.replace(query(), metrics={"n": Count(stddev=40.0)})
    assert not scalable(fixed)
    assert scalable(query())
    made = configuration(0, fixed, planned(fixed))
    assert made.estimates[0].total_stddev == pytest.approx(40.0, rel=1e-3)
