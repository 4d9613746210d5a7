"""What the pages of runners show of a stage.

In: a stage of a plan. Out: items for Beam's display data. Holds: all of it is public: what was declared, and the noise that the
plan has fixed.
"""

from typing import Any

from apache_beam.transforms.display import DisplayDataItem

from dp_pipelines.planning.stage import StagePlan


def stage_facts(stage: StagePlan) -> dict[str, Any]:
    """Name, budget, bounds and noise of a stage, as display data.

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1))
    >>> facts = stage_facts(Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})["weekly"])
    >>> facts["epsilon"].value, facts["max_partitions_contributed"].value
    (1.0, 2)
    """
    query, bounds, budget = stage.query, stage.query.bounds, stage.statement.get("budget", {})
    found: dict[str, tuple[Any, str]] = {
        "stage": (stage.name, "Stage"),
        "plan": (stage.statement.get("plan"), "Digest of the plan"),
        "epsilon": (budget.get("epsilon"), "Epsilon of all stages and runs of the plan"),
        "delta": (budget.get("delta"), "Delta of all stages and runs of the plan"),
        "runs": (budget.get("runs"), "Runs that the plan pays for"),
        "privacy_unit": (", ".join(query.unit_columns), "Privacy unit"),
        "partition_by": (", ".join(query.partition_columns), "Partitioned by"),
        "max_partitions_contributed": (bounds.max_partitions_contributed, "Partitions of one unit"),
        "max_contributions_per_partition": (
            bounds.max_contributions_per_partition,
            "Rows of one unit in one partition",
        ),
        "max_contributions": (bounds.max_contributions, "Rows of one unit"),
    }
    for name, metric in query.metrics.items():
        found[f"metric {name}"] = (repr(metric), f"Metric {name}")
    for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
        if noise is not None:
            found[f"noise {statistic.name}"] = (
                f"{type(noise.law).__name__}, standard deviation {noise.stddev:.6g}",
                "Noise",
            )
    if stage.selection is not None:
        found["selection"] = (stage.selection.strategy, "Selection of partitions")
    return {key: DisplayDataItem(value, label=label) for key, (value, label) in found.items() if value is not None}
