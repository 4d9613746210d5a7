"""The median with smooth sensitivity takes what its proof covers: one value of each unit, a public number of values, a range."""

from typing import Any

import pytest

from dp_pipelines import ContributionBounds, Plan
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.smooth_median import SmoothMedian
from dp_pipelines.query.query import PublicPartitions, Query


def planned(partitions: int, rows: int) -> Plan:
    """A plan of a stage with a median."""
    query = Query(
        privacy_unit="unit",
        partition_by="kind",
        partitions=PublicPartitions(keys=[["a"], ["b"]]),
        bounds=ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=rows),
        metrics={"middle": SmoothMedian(column="value", blocks=20, low=0.0, high=1.0)},
    )
    return Plan(epsilon=1.0, delta=1e-6, stages={"s": query})


def test_one_value_of_each_unit_is_planned() -> None:
    assert [record.kind for record in planned(1, 1)["s"].mechanisms] == ["approximate_dp"]


@pytest.mark.parametrize(("partitions", "rows"), [(2, 1), (1, 2), (2, 2)])
def test_bounds_that_the_proof_does_not_cover_are_refused(partitions: int, rows: int) -> None:
    with pytest.raises(RequestError, match="must be 1 for a median with smooth sensitivity"):
        planned(partitions, rows)


@pytest.mark.parametrize(
    ("name", "value"),
    [("blocks", 0), ("blocks", -3), ("blocks", 2.5), ("blocks", 10**9), ("low", float("nan")), ("high", float("inf")),
     ("high", 0.0)],
)  # fmt: skip
def test_arguments_out_of_their_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^({name}|low):"):
        SmoothMedian(**{"column": "value", "blocks": 20, "low": 0.0, "high": 1.0, name: value})
