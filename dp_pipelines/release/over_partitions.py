"""A stage over partitions that were released before: their list becomes a constant of it.

In: tables of released partitions, a frozen stage. Out: the stage with that list as its public partitions; or what it releases
where there is none. Holds: the mechanism records stay what the plan has accounted for: no record of a stage without selection
depends on which partitions it has.
"""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from dp_pipelines.kernels import accumulate, keys
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import ReleasedPartitions
from dp_pipelines.release import gate
from dp_pipelines.release.all_partitions import published
from dp_pipelines.release.draw import draw_release
from dp_pipelines.release.staging import sorted_by_key


def union(tables: Sequence[pa.Table]) -> pa.Table:
    """Return released partitions of several selections, sorted; no two of them have released the same."""
    whole = pa.concat_tables(tables, promote_options="permissive")
    return sorted_by_key(whole, whole.column_names)


def over(stage: StagePlan, partitions: pa.Table) -> StagePlan:
    """Return the stage with these partitions as its public list.

    Args:
        stage: one without selection.
        partitions: at least one, in the order of `partition_by`.
    """
    # Arrays, not values of Python: not every key is one, and each keeps its type.
    listed = ListedKeys([keys.one_array(partitions.column(name)) for name in stage.query.partition_columns])
    assert isinstance(stage.query.partitions, ReleasedPartitions)
    query = dataclasses.replace(stage.query, partitions=dataclasses.replace(stage.query.partitions, known=True))
    return dataclasses.replace(stage, query=query, layout=dataclasses.replace(stage.layout, public=listed))


def nothing(stage: StagePlan, partitions: pa.Table) -> pa.Table:
    """Return the release of a stage without any partition: its columns, without rows.

    Args:
        stage: one without selection.
        partitions: without rows; it has the types.
    """
    names = stage.layout.partition_names
    empty = accumulate.no_partials(names, stage.statistics)
    for index, name in enumerate(names):
        empty = empty.set_column(index, name, partitions.column(index))
    totals = accumulate.merge([empty], names, stage.statistics)
    return published(draw_release(totals, stage, gate.open_gate(stage)), stage)
