"""The levels of a rollup as queries of their own, each with its noise and records, out of one bounding.

In: a query that has `rollup`. Out: a query for each level, from the coarsest; the finest keeps the declaration. Holds: fan-outs
come from the public list alone, and where partitions are private a group may hold everything of a unit; the last query decides
which rows are kept, and all levels are sums of these (`kernels.accumulate`). Not covered: the noise of each (planning).
"""

import dataclasses
import functools

import numpy as np

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.query.query import EVERYTHING, PrivatePartitions, PublicPartitions, Query, ReleasedPartitions
from dp_pipelines.query.rollup import RollupLevel

MOST_GROUPS = 1_000_000
"""Groups of a level above a list on disk, all of which are released, and are in memory."""

Partitions = PrivatePartitions | PublicPartitions | ReleasedPartitions


def part(name: str, number: int) -> str:
    """What a level above the finest is called in plans and records.

    >>> part("weekly", 0)
    'weekly.level0'
    """
    return f"{name}.level{number}"


def queries(query: Query) -> list[Query]:
    """The queries of all levels.

    >>> from dp_pipelines import ContributionBounds, Count
    >>> query = Query(privacy_unit="customer", partition_by=["region", "week"], metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2),
    ...               partitions=PublicPartitions(keys=[("n", 1), ("n", 2), ("s", 1)]),
    ...               rollup=[[], ["region"], ["region", "week"]])
    >>> [(each.partition_columns, each.level.most_leaves, each.level.groups) for each in queries(query)]
    [((), 3, 1), (('region',), 2, 2), (('region', 'week'), 1, 3)]
    """
    rollup = query.rolled
    assert rollup is not None
    found = []
    for number, columns in enumerate(rollup.levels[:-1]):
        # In the order of `partition_by`, in which published keys stand.
        by = tuple(column for column in query.partition_columns if column in columns)
        found.append(_coarse(query, by, number))
    return [*found, dataclasses.replace(query, level=_finest(query, len(found)))]


def _coarse(query: Query, by: tuple[str, ...], number: int) -> Query:
    if not isinstance(query.partitions, PublicPartitions):
        partitions = query.partitions if by else EVERYTHING
        level = RollupLevel(number=number, groups=None if by else 1)
        return _alone(query, by, partitions, level)
    places = [query.partition_columns.index(column) for column in by]
    listed: ListedKeys | KeyFile = query.partitions.columns
    if isinstance(listed, KeyFile):
        # Rows of a few unlisted partitions stay too, so that the list bounds no fan-out: a group may hold all of a unit.
        above = PublicPartitions(keys=_groups(listed, tuple(places), number)) if by else EVERYTHING
        return _alone(query, by, above, RollupLevel(number=number, groups=len(above.keys)))
    if not by:
        level = RollupLevel(number=number, most_leaves=len(listed), groups=1)
        return _alone(query, by, EVERYTHING, level)
    columns = listed.arrays(query.partition_columns)
    codes = keys.dense([keys.comparable(columns[place]) for place in places]).codes
    _, first, leaves = np.unique(codes, return_index=True, return_counts=True)
    level = RollupLevel(number=number, most_leaves=int(leaves.max()), groups=len(first))
    return _alone(query, by, PublicPartitions(keys=listed.part(places, np.sort(first))), level)


@functools.lru_cache(maxsize=32)
def _groups(listed: KeyFile, places: tuple[int, ...], number: int) -> ListedKeys:
    """The groups that the keys of a list on disk are in: public, and the same in every run."""
    found = listed.groups(places, MOST_GROUPS)
    if found is None:
        message = f"has more than {MOST_GROUPS:,} groups in the list on disk, all of which would be released"
        raise RequestError(field=f"rollup[{number}]", message=message, hint="leave that level out")
    return ListedKeys(found)


def _alone(query: Query, by: tuple[str, ...], partitions: Partitions, level: RollupLevel) -> Query:
    return dataclasses.replace(query, partition_by=by, partitions=partitions, level=level, rollup=None, kept=None)


def _finest(query: Query, number: int) -> RollupLevel:
    listed = query.partitions.columns if isinstance(query.partitions, PublicPartitions) else None
    return RollupLevel(number=number, most_leaves=1, groups=None if listed is None else len(listed), leaves=True)
