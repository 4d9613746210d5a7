"""The bounds that a stage gets from its noisy histograms.

In: a stage with bounds that say `auto`, the released table of its histograms, the stage that released it. Out: a pair of bounds
for each metric that says so; the bounds on partitions and on rows in each. Holds: post-processing of what was released; metrics
of one family get the same bounds.
"""

import pyarrow as pa

from dp_pipelines.auto_bounds import joint_bounds, partition_bound, value_bounds
from dp_pipelines.kernels.statistics import ValueSum
from dp_pipelines.mechanisms.mechanism import Noise
from dp_pipelines.metrics.base import UNITS, Metric
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.metrics.over_column import AUTO
from dp_pipelines.metrics.sums import Variance
from dp_pipelines.plan_stages.phases import histograms_of, within_of
from dp_pipelines.planning import reserve
from dp_pipelines.planning.stage import StagePlan, noisy_statistics
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions


def choose(stage: StagePlan, histograms: StagePlan, table: pa.Table) -> dict[str, tuple[float, float]]:
    """Choose the bounds of each metric with `auto`, and return them by its name.

    Args:
        stage: the stage of the plan.
        histograms: the stage of its histograms.
        table: what that one has released: one row for each group of partitions.
    """
    chosen = {}
    for histogram, readers in histograms_of(stage.query).items():
        counts = table.column(histogram).to_pylist()
        needed = histograms.query.metrics[histogram].statistics(histograms.basis(histograms.query.metrics[histogram]))[
            0
        ]
        noise = histograms.noises[histograms.statistics.index(needed)]
        assert noise is not None
        for name, metric in stage.query.metrics.items():
            if metric not in readers:
                continue
            partitions = stage.query.partitions
            chosen[name] = value_bounds.choose(
                counts,
                within=within_of(metric),
                stddev=noise.stddev,
                law=histograms.choices.noises[needed.name].law,
                multiple=_multiple(stage, metric),
                centred=stage.basis(metric).centred,
                partitions=partitions.count if isinstance(partitions, PublicPartitions) else None,
                rows_beyond=stage.query.bounds.max_rows / histograms.query.bounds.max_rows,
                low=None if getattr(metric, "min_value", None) == AUTO else metric.family[1],  # type: ignore[index]
                high=None if metric.max_is_auto else metric.family[2],  # type: ignore[index]
                cancels=not any(isinstance(other, Variance) for other in readers if other.family == metric.family),
            )
    return chosen


def _multiple(stage: StagePlan, metric: Metric) -> float:
    """Return the standard deviation of the noise of a metric's sum, per unit of the largest summand."""
    for statistic in metric.statistics(stage.basis(metric)):
        if isinstance(statistic, ValueSum):
            noise, lattice = stage.noises[stage.statistics.index(statistic)], statistic.lattice
            assert noise is not None
            assert lattice is not None
            return noise.stddev / (lattice.largest * lattice.step)
    raise AssertionError("a metric with bounds has a sum")


def contributions(stage: StagePlan, histograms: StagePlan, table: pa.Table) -> tuple[int | None, int | None]:
    """Return the bounds on partitions and on rows in each of a stage that leaves one open, or both; None for one that is fixed.

    Args:
        stage: the stage of the plan.
        histograms: the stage of the histograms of units.
        table: what that one has released: one row.
    """
    bounds = stage.query.bounds
    if bounds.row_candidates is None:
        return _partitions(stage, histograms, table), None
    listed = stage.query.partitions
    partitions, rows = joint_bounds.choose(
        _sizes(histograms, table, partition_bound.HISTOGRAM) if bounds.auto_partitions else None,
        _sizes(histograms, table, joint_bounds.HISTOGRAM),
        candidates=(bounds.candidates, bounds.row_candidates),
        effects=_joint_effects(stage),
        public=listed.count if isinstance(listed, PublicPartitions) else None,
        estimates=stage.query.kept is not None,
    )
    return partitions if bounds.auto_partitions else None, rows


def _sizes(histograms: StagePlan, table: pa.Table, name: str) -> joint_bounds.UnitSizes:
    """Return the released histogram of one number of each unit, without cells that do not exceed the noise."""
    metric = histograms.query.metrics[name]
    assert isinstance(metric, Histogram)
    assert metric.edges is not None
    (needed,) = metric.statistics(histograms.basis(metric))
    noise = histograms.noises[histograms.statistics.index(needed)]
    assert noise is not None
    law = histograms.choices.noises[needed.name].law
    return joint_bounds.UnitSizes.seen(table.column(name).to_pylist()[0], metric.edges, noise.stddev, law)


def _joint_effects(stage: StagePlan) -> list[joint_bounds.BoundsEffect]:
    """Return the effect of both bounds on each statistic with noise, selection among them."""
    laws = {name: choice.law for name, choice in stage.choices.noises.items()}
    noisy = [s for s, noise in zip(stage.statistics, stage.noises, strict=True) if noise is not None]
    of_rows = {s.name for s in noisy if reserve.growth(s, laws[s.name], partitions=True, rows=True).rows}
    return [
        joint_bounds.BoundsEffect(
            weight=effect.weight, multiple=effect.multiple, power=effect.power, rows=name in of_rows
        )
        for name, effect in _effects(stage)
    ]


def _partitions(stage: StagePlan, histogram: StagePlan, table: pa.Table) -> int:
    """Return the bound on partitions of a stage that leaves it alone open. Arguments as for `contributions`."""
    needed = histogram.statistics[0]
    noise, listed = histogram.noises[0], stage.query.partitions
    assert noise is not None
    return partition_bound.choose(
        table.column(partition_bound.HISTOGRAM).to_pylist()[0],
        candidates=stage.query.bounds.candidates,
        stddev=noise.stddev,
        law=histogram.choices.noises[needed.name].law,
        effects=[effect for _, effect in _effects(stage)],
        partitions=listed.count if isinstance(listed, PublicPartitions) else None,
    )


def _effects(stage: StagePlan) -> list[tuple[str, partition_bound.Effect]]:
    """Return the effect of the bound on partitions on each statistic with noise, selection among them, by name."""
    weights = dict(noisy_statistics(stage.query, stage.choices.centred))
    rows, most = stage.query.bounds.max_rows_per_partition, stage.query.bounds.max_partitions
    effects = []

    def note(name: str, noise: Noise, weight: float, added: float) -> None:
        power = reserve.POWERS[stage.choices.noises[name].law]
        multiple = noise.stddev / added / most**power
        effects.append((name, partition_bound.Effect(weight=weight, multiple=multiple, power=power)))

    selection, declared = stage.selection, stage.query.partitions
    if selection is not None and selection.noise is not None and isinstance(declared, PrivatePartitions):
        if selection.released:
            weights[UNITS.name] += declared.weight
        elif selection.strategy == "weighted_gaussian":
            multiple = selection.noise.stddev  # a unit in one partition weighs 1
            effect = partition_bound.Effect(weight=declared.weight, multiple=multiple, power=0.0)
            effects.append(("selection", effect))
        else:
            note("selection", selection.noise, declared.weight, 1.0)
    for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
        if noise is not None:
            note(
                statistic.name, noise, weights[statistic.name], reserve.moved_by_rows(statistic, rows) * noise.fine_step
            )
    return effects
