"""The noisy table of one of several parties, and the release that the sum of all such tables becomes.

In: exact totals of one party's rows, or opened sums. Out: integers on the lattice of the release with a whole draw of noise
each; a released table. Holds: what `noisy` gives is a release of the party's own rows, and the plan's records are about it; the
rest reads no row and draws nothing (docs/proofs/parties.md). Not covered: how tables are added (`extensions.two_organisations`).
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import accumulate
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.lattice import Integers
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.mechanisms.permits import Permits
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate
from dp_pipelines.release.all_partitions import published
from dp_pipelines.release.draw import noisy_numbers, released_tables
from dp_pipelines.release.staging import sorted_by_key

PLACE = "place"
"""The column with the place of a partition in the public list."""

LARGEST = 2**53
"""Above every number of a party's table: totals are clipped to 2**52 steps, and noise has at most 2**40."""


def released_statistics(stage: StagePlan) -> list[Statistic]:
    """The statistics that are added up, in the order of the tables' columns `a0`, `a1`, ..."""
    return [statistic for statistic, noise in zip(stage.statistics, stage.noises, strict=True) if noise is not None]


def noisy(totals: Totals, stage: StagePlan, first: int, stride: int, permits: Permits) -> pa.Table:
    """Add noise to the totals of some public partitions, once.

    Args:
        totals: of the partitions `first`, `first + stride`, ... of the list.
        stage: the frozen stage.
        first, stride: see `totals`.
        permits: of the gate, for this call alone.

    Returns:
        their places and, for each statistic, whole steps of the release.
    """
    numbers = noisy_numbers(totals, stage, permits.over(len(totals.partitions[0])))
    permits.check_drawn(np.arange(len(totals.partitions[0])))
    places = first + stride * np.arange(len(totals.partitions[0]))
    columns = {f"a{i}": numbers[statistic] for i, statistic in enumerate(released_statistics(stage))}
    return pa.table({PLACE: places, **columns})


def numbers_of(table: pa.Table, stage: StagePlan) -> Integers:
    """All numbers of a party's table, one row for each statistic, partitions in the order of the list.

    Args:
        table: the pieces that `noisy` gave, in any order.
        stage: the frozen stage.
    """
    order = np.argsort(table.column(PLACE).to_numpy(), kind="stable")
    rows = [table.column(f"a{i}").to_numpy()[order] for i in range(len(released_statistics(stage)))]
    found: Integers = np.stack(rows).astype(np.int64)
    assert found.shape == shape_of(stage), "a party's table lacks partitions of the public list"
    return found


def shape_of(stage: StagePlan) -> tuple[int, int]:
    """How many statistics and partitions a party's table has: public, and the same at all parties."""
    # A list without key columns has no entries, and the total is one partition all the same.
    return len(released_statistics(stage)), len(stage.layout.listed_columns()[0])


def opened(sums: Integers, stage: StagePlan) -> pa.Table:
    """The released table of a stage, of the opened sums of all parties' tables.

    Args:
        sums: one row for each statistic, partitions in the order of the list.
        stage: the frozen stage.
    """
    statistics = released_statistics(stage)
    steps: Mapping[Statistic, Integers] = dict(zip(statistics, sums, strict=True))
    keys = tuple(stage.layout.listed_columns())
    nothing = accumulate.nothing_summed(keys, stage.statistics)
    everything = np.arange(len(keys[0]))
    tables = released_tables(nothing, stage, steps, everything, gate.nothing_drawn(stage).over(len(everything)))
    return published(sorted_by_key(pa.concat_tables(tables), stage.query.partition_columns), stage)
