"""The bounds that a stage gets from its noisy histograms.

In: a stage with metrics that say `auto`, the released table of its histograms, the stage that released it. Out: a pair of bounds
for each of these metrics. Holds: post-processing of what was released; metrics of one family get the same bounds.

May import bounds, phases, query, budget.stage, kernels.
"""

import pyarrow as pa

from dp_pipelines import bounds
from dp_pipelines.budget.stage import StagePlan
from dp_pipelines.metrics import AUTO, Metric
from dp_pipelines.phases import histograms_of, within_of
from dp_pipelines.query import PublicPartitions


def choose(stage: StagePlan, histograms: StagePlan, table: pa.Table) -> dict[str, tuple[float, float]]:
    """Bounds of each metric that says `auto`, by its name.

    Args:
        stage: the stage of the plan.
        histograms: the stage of its histograms.
        table: what that one has released: one row.
    """
    chosen = {}
    for shown, readers in histograms_of(stage.query).items():
        counts = table.column(shown).to_pylist()[0]
        needed = histograms.query.metrics[shown].statistics(histograms.basis(histograms.query.metrics[shown]))[0]
        noise = histograms.noises[histograms.statistics.index(needed)]
        assert noise is not None
        for name, metric in stage.query.metrics.items():
            if metric not in readers:
                continue
            partitions = stage.query.partitions
            chosen[name] = bounds.choose(
                counts,
                within=within_of(metric),
                stddev=noise.stddev,
                law=histograms.choices.noises[needed.name].law,
                multiple=_multiple(stage, metric),
                centred=stage.basis(metric).centred,
                partitions=len(partitions.keys) if isinstance(partitions, PublicPartitions) else None,
                rows_beyond=stage.query.bounds.max_rows / histograms.query.bounds.max_rows,
                low=None if getattr(metric, "min_value", None) == AUTO else metric.family[1],  # type: ignore[index]
                high=None if metric.max_is_auto else metric.family[2],  # type: ignore[index]
            )
    return chosen


def _multiple(stage: StagePlan, metric: Metric) -> float:
    """The standard deviation of the noise of a metric's sum, per unit of the largest summand."""
    for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
        if noise is not None and statistic in metric.statistics(stage.basis(metric)) and statistic.kind == "sum":
            lattice = statistic.lattice
            assert lattice is not None
            return noise.stddev / (lattice.largest * lattice.step)
    raise AssertionError("a metric with bounds has a sum")
