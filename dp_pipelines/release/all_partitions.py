"""Computations over all released partitions at once, after they are in one place: shrunk means, then the largest.

In: tables as `draw_release` returns them, a frozen stage. Out: the released table. Holds: it reads drawn and public
numbers alone, so it costs nothing; it does not depend on how the partitions were split. Not covered: drawing; partitions that
were not selected.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.metrics.base import Metric, Noisy
from dp_pipelines.metrics.lookup_bound import Join
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import rolled_up
from dp_pipelines.release.rescale import in_values
from dp_pipelines.release.staging import sorted_by_key
from dp_pipelines.release.top_partitions import largest


def kept(noisy: Mapping[Statistic, Noisy], statistics: Sequence[Statistic]) -> pa.Array:
    """Return the noisy statistics of each partition that a metric which pools needs, as one column.

    >>> from dp_pipelines.metrics.base import ROWS
    >>> kept({ROWS: Noisy(values=np.array([7.0, 8.0]), stddev=1.0)}, [ROWS]).to_pylist()
    [[7.0], [8.0]]
    """
    values = np.stack([noisy[statistic].values for statistic in statistics], axis=1)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), len(statistics))


def published(table: pa.Table, stage: StagePlan, join: Join | None = None) -> pa.Table:
    """Return the released table of a stage, in the order of its keys.

    Args:
        table: what was drawn of all its partitions, in any order.
        stage: the frozen stage.
        join: adds the columns of the public table to keys, where bounds differ by partition.
    """
    if stage.coarser:
        return rolled_up.published(table, stage)
    pooled = {name: metric for name, metric in stage.query.metrics.items() if metric.pools}
    if pooled:
        # One order, so that sums over all partitions are rounded alike however these were split.
        table = sorted_by_key(table, stage.query.partition_columns)
    for name, metric in pooled.items():
        table = _over_all(table, stage, name, metric)
    return largest(in_values(table, stage.query, join), stage.query)


def _over_all(table: pa.Table, stage: StagePlan, name: str, metric: Metric) -> pa.Table:
    basis, place = stage.basis(metric), table.column_names.index(name)
    statistics = metric.statistics(basis)
    lists = gather.whole(table.column(name))
    flat = pa.chunked_array([chunk.flatten() for chunk in lists.chunks] or [pa.array([], pa.float64())])
    values = flat.to_numpy().reshape(-1, len(statistics))
    stddevs = {s: noise.stddev for s, noise in zip(stage.statistics, stage.noises, strict=True) if noise is not None}
    noisy = {s: Noisy(values=values[:, at], stddev=stddevs[s]) for at, s in enumerate(statistics)}
    of_values, of_stddevs = metric.published(name)[:2]
    means, spreads = metric.over_all(noisy, basis)
    return table.set_column(place, of_values, pa.array(means)).add_column(place + 1, of_stddevs, pa.array(spreads))
