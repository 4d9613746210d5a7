"""The query in dp_pipelines with five quantiles of the value beside its four metrics; in and out as ours.py."""

import ours
import workload

import dp_pipelines as dp

FOUR = ours.query


def query() -> dp.Query:
    """The same query and five quantiles, which share one tree of counts."""
    four = FOUR()
    five = dp.Quantiles("value", quantiles=[0.1, 0.25, 0.5, 0.75, 0.9], min_value=workload.LOW, max_value=workload.HIGH)
    return dp.Query(
        privacy_unit=four.privacy_unit,
        partition_by=four.partition_by,
        bounds=four.bounds,
        metrics={**four.metrics, "quantiles": five},
    )


if __name__ == "__main__":
    ours.query = query
    ours.main()
