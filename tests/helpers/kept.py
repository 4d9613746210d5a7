"""The way of the rows to the counts of what bounds keep, made of the steps of the transforms, without Beam.

In: a table of rows, a query with `kept`, a way of cutting it. Out: the rows for the stage `<name>.kept`; its totals on the
lattice of the release. Tests only.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.jobs.run.row_facts import FactsOfRows
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels import accumulate
from dp_pipelines.plan_stages import kept_counts
from dp_pipelines.planning.stage import StagePlan, build_stage
from dp_pipelines.planning.stage_choices import Choice, StageChoices
from dp_pipelines.query import kept
from dp_pipelines.query.kept import Kept
from dp_pipelines.query.query import ContributionBounds, Query
from dp_pipelines.steps import unit_rows
from tests.helpers import neighbours as nb

Counts = NDArray[np.int64]


class Scales:
    """Noise scales that change no sensitivity."""

    gaussian_scale = Fraction(4096)
    laplace_scale = Fraction(4096)


def query_of(
    pair: nb.Neighbours, metrics: dict[str, Any], up_to: int | None = None, *, each_metric: bool = False
) -> Query:
    """A query with the columns and bounds of neighbouring tables."""
    layout = pair.layout
    if layout.max_rows is not None:
        bounds = ContributionBounds(max_contributions=layout.max_rows)
    elif layout.summands:
        bounds = ContributionBounds(max_partitions_contributed=layout.max_partitions)
    else:
        bounds = ContributionBounds(
            max_partitions_contributed=layout.max_partitions,
            max_contributions_per_partition=layout.max_rows_per_partition,
        )
    return Query(
        privacy_unit=layout.units, partition_by=layout.read_partitions, bounds=bounds, metrics=metrics,
        row_id=layout.row_id, kept=Kept(share=0.1, up_to=up_to, each_metric=each_metric),
        partitions=nb.partitions_of(layout),
    )  # fmt: skip


def of_shards(table: pa.Table, query: Query, way: nb.Way) -> list[list[pa.Table]]:
    """What meets in each shard: the steps of `FactsOfRows` and `UnitsToShards`, batch by batch."""
    counted = unit_rows.CountedToShards.of(query, way.shards, nb.SALT)
    first = unit_rows.FirstToShards(len(query.unit_columns), way.shards, nb.SALT)
    expressions = RowExpressions(where=None, defined=(), params={}, schema=table.schema)
    facts = FactsOfRows(query, None, expressions, None, nb.SALT)
    found: dict[int, list[pa.Table]] = {}
    for begin, end in [(0, 0), *nb._batches(table.num_rows, way.cuts)]:
        batch = table.slice(begin, end - begin)
        for index, part in (*counted.compute([batch]), *first.compute(list(facts.process(batch)))):
            found.setdefault(index, []).append(part)
    return [tables[::-1] if way.backwards else tables for tables in found.values()]


def made_rows(table: pa.Table, query: Query, way: nb.Way = nb.STRAIGHT) -> pa.Table:
    """What the stage of the counts reads."""
    last = unit_rows.UnitsToPartials(query, stage_of(query), nb.SALT)
    made = [rows for tables in of_shards(table, query, way) for rows in last.rows(tables)]
    return pa.concat_tables(made, promote_options="permissive")


def vectors_of(rows: pa.Table, units: tuple[str, ...]) -> dict[tuple[str, ...], NDArray[np.float64]]:
    """The vector of each unit: the sum of its rows."""
    found: dict[tuple[str, ...], NDArray[np.float64]] = {}
    keys = zip(*([repr(value.as_py()) for value in rows.column(name)] for name in units), strict=True)
    for key, vector in zip(keys, rows.column(kept.COLUMN).to_pylist(), strict=True):
        found[key] = found.get(key, 0) + np.array(vector)
    return found


def stage_of(query: Query, steps: int = 1000) -> StagePlan:
    """The stage of the counts, with noise of some size."""
    asked = kept_counts.query_of(query)
    (metric,) = asked.metrics.values()
    (statistic,) = metric.statistics(None)  # type: ignore[arg-type]  # it has one basis
    choices = StageChoices(strategy=None, noises=FrozenMapping({statistic.name: Choice(law="gaussian", steps=steps)}))
    return build_stage("s.kept", asked, choices, Scales())


def released(table: pa.Table, query: Query, stage: StagePlan, way: nb.Way = nb.STRAIGHT) -> Counts:
    """The totals of a table's units before their noise, in steps of the release."""
    last = unit_rows.UnitsToPartials(query, stage, nb.SALT)
    partials = [part for tables in of_shards(table, query, way) for _, part in last.compute((0, tables))]
    merged = accumulate.merge_public(partials, stage.layout, stage.statistics, 0, 1)
    place = next(i for i, statistic in enumerate(stage.statistics) if statistic.vectors is not None)
    noise = stage.noises[place]
    assert noise is not None
    steps: Counts = merged.coarse_lists(place, np.array([0]), shift=noise.fine_bits, step=noise.step)[0]
    return steps
