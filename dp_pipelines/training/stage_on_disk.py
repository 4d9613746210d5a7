"""Runs a stage of the plan over examples on disk: the kernels and the draw of a Beam stage, table by table, in-process.

In: a frozen stage, tables with whole units. Out: the released table, as `PrivateAggregate` would give it. Holds:
besides a few tables, one for each thread, only a partial aggregate of each is in memory; selection and noise are drawn
once, by the same step as everywhere. Not covered: two calls are two draws, only one of which may ever be seen; a unit
in two tables, whose rows would be bounded twice.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import accumulate
from dp_pipelines.metrics import quantiles
from dp_pipelines.plan_stages import one_partition, training_parts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.train_model import Category, Number, TrainModel
from dp_pipelines.release import gate
from dp_pipelines.release.all_partitions import published
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training import threads
from dp_pipelines.training.features import category_values
from dp_pipelines.training.features.bin_edges import cut_points
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import Released

DrawStage = Callable[[StagePlan, accumulate.Totals], pa.Table]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """The released numbers of training units and examples.

    Args:
        users: the number of units.
        examples: the number of their examples.
    """

    users: Released
    examples: Released

    @classmethod
    def of(cls, released: pa.Table) -> "Sizes":
        """The numbers in the single row that `release` returned.

        >>> Sizes.of(pa.table({"users": [10.5], "examples": [21.0]})).examples
        21.0
        """
        users, examples = (Released(float(released.column(name)[0].as_py())) for name in ("users", "examples"))
        return cls(users=users, examples=examples)


def declared(number: float) -> Released:
    """A public number of the job, for use where others take a released one.

    >>> declared(30_000.0)
    30000.0
    """
    return Released(number)


def release(stage: StagePlan, tables: Iterable[pa.Table], salt: int, draw: DrawStage | None = None) -> pa.Table:
    """Bound, accumulate, merge, select, add noise: once.

    Args:
        stage: of a plan; if its only partition is `one_partition`, all rows are in it.
        tables: each holds all rows of its units.
        salt: the run's own 64-bit number, which decides which contributions are kept.
        draw: takes the stage and its exact totals; by default `draw_release`.

    Returns:
        the partition's columns and, for each metric, its value and the standard deviation of its noise, sorted by key.

    >>> from dp_pipelines import ContributionBounds, Plan, PrivacyIdCount, PublicPartitions, Query
    >>> query = Query(privacy_unit="who", partition_by="_all", metrics={"users": PrivacyIdCount()},
    ...               bounds=ContributionBounds(max_partitions_contributed=1), partitions=PublicPartitions(keys=[("_all",)]))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"users": query})
    >>> release(plan["users"], [pa.table({"who": [1, 1, 2]}), pa.table({"who": [3]})], 7).column_names
    ['_all', 'users', 'users_stddev']
    """
    layout, statistics = stage.layout, stage.statistics

    def of(table: pa.Table) -> pa.Table:
        table = one_partition.for_stage(table, layout.partitions)
        partial = accumulate.partials(layout.wire(table), layout, statistics, salt)
        return partial if layout.public is None else accumulate.by_public_index(partial, layout)

    partials = list(threads.in_order(of, iter(tables)))
    if layout.public is not None:
        totals = accumulate.merge_public(partials, layout, statistics, 0, 1)
    else:
        # With no table at all, not even an empty one, the types of the partitions are unknown.
        partials = partials or [accumulate.no_partials(layout.partition_names, statistics)]
        totals = accumulate.merge(partials, layout.partition_names, statistics)
    return published(draw_release(totals, stage, gate.open_gate(stage)) if draw is None else draw(stage, totals), stage)


def edges_of(released: pa.Table, metric: str, number: Number, *, whole: bool = False) -> tuple[float, ...]:
    """The cut points of a feature's bins, from its released quantiles: inside its range, ascending.

    Args:
        released: the single row that `release` returned.
        metric: the name of the metric `Quantiles`.
        number: the feature.
        whole: whether its column holds whole numbers alone, by its type.

    >>> number = Number(column="visits", min_value=0, max_value=60, bins=3)
    >>> edges_of(pa.table({"visits": [[25.0, 20.0]]}), "visits", number, whole=True)
    (24.5, 25.5)
    """
    (found,) = released.column(metric).to_pylist()
    low, high = number.min_value, number.max_value
    return cut_points(found, number.cells, low=low, high=high, leaves=quantiles.LEAVES, whole=whole)


def former_edges_of(released: pa.Table, metric: str, number: Number) -> tuple[float, ...]:
    """The cut points as version 0.1.0 made them: the quantiles themselves, whatever values share.

    Args:
        released, metric, number: as for `edges_of`.

    >>> number = Number(column="visits", min_value=0, max_value=60, bins=3)
    >>> former_edges_of(pa.table({"visits": [[5.0, 4.0]]}), "visits", number)
    (5.0, 5.0)
    """
    (found,) = released.column(metric).to_pylist()
    rising = np.maximum.accumulate(np.clip(np.array(found, float), number.min_value, number.max_value))
    return tuple(float(cut) + 0.0 for cut in rising)


def categories_of(released: pa.Table, category: Category, metric: str) -> tuple[Any, ...]:
    """The categories of a feature: the released values, nulls excepted, with the largest metric, in descending order.

    Args:
        released: the result of `release`, partitioned by the feature's column.
        category: the feature.
        metric: the name of the metric to compare; ties are ordered by value.

    >>> found = pa.table({"age": ["A", "B", None], "users": [10.0, 40.0, 90.0]})
    >>> categories_of(found, Category(column="age", most=1), "users")
    ('B',)
    """
    found, sizes = category_values.told(released.column(category.column)), released.column(metric).to_pylist()
    listed = [(-size, place, value) for place, (value, size) in enumerate(zip(found, sizes, strict=True))]
    largest_first = (value for _, _, value in sorted(listed, key=lambda item: item[:2]) if value is not None)
    return tuple(dict.fromkeys(largest_first))[: category.most]


def encoder_of(
    task: TrainModel, name: str, table: Callable[[str], pa.Table], whole: Collection[str], *, formerly: bool
) -> Encoder:
    """The encoder of a task, from what is released for it.

    Args:
        task: what is learnt.
        name: of the stage.
        table: the released table of a part of the stage.
        whole: columns that hold whole numbers alone, by their types.
        formerly: whether bins are those of version 0.1.0.
    """
    numbers, categories = training_parts.binned(task), training_parts.chosen(task)
    edges: dict[str, tuple[float, ...]] = {}
    if numbers:
        released = table(training_parts.bins_of(name))
        edges = {
            feature: (
                former_edges_of(released, feature, number)
                if formerly
                else edges_of(released, feature, number, whole=number.column in whole)
            )
            for feature, number in numbers.items()
        }
    vocabulary = {
        feature: categories_of(table(training_parts.vocabulary_of(name, feature)), category, "users")
        for feature, category in categories.items()
    }
    return Encoder.of(task, edges=edges, vocabulary=vocabulary)
