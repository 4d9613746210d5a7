"""Rollups without a runner: the product's own steps one after the other, with noise that repeats.

In: a stage of a plan with a rollup, rows. Out: totals of all levels before the noise, what is drawn of them, the published table.
Holds: every step is the product's; the words of the samplers alone come from a generator with a seed. Tests only.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines import ContributionBounds, Plan, PrivatePartitions, PublicPartitions, Query
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.large_list import LargeList
from dp_pipelines.release import rolled_up
from dp_pipelines.release.draw import draw_level, of_level
from dp_pipelines.release.large_lists import draw_passing
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from dp_pipelines.steps.draw_release import DrawRelease
from tests.helpers import seeded

PLACES, SHARDS, SALT = 3, 2, 11
CHAIN = ((), ("region",), ("region", "week"))


def stage_of(
    metrics: Mapping[str, Any],
    keys: list[tuple[Any, ...]] | LargeList | None,
    *,
    rollup: Any = CHAIN,
    bounds: ContributionBounds | None = None,
    epsilon: float = 1.0,
    **asked: Any,
) -> StagePlan:
    """The stage of a plan with one rollup over regions and weeks; private partitions where no keys are listed."""
    large = isinstance(keys, LargeList)
    query = Query(
        privacy_unit="who",
        partition_by=("region", "week"),
        metrics=metrics,
        rollup=rollup,
        partitions=PrivatePartitions(**asked) if keys is None else keys if large else PublicPartitions(keys=keys),
        bounds=bounds or ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2),
    )
    return Plan(epsilon=epsilon, delta=1e-6, stages={"weekly": query})["weekly"]


def totals_of(stage: StagePlan, rows: pa.Table, shards: int = SHARDS, places: int = PLACES) -> list[list[Totals]]:
    """The merged totals of each level, from the coarsest: one for each place."""
    by_shard: dict[int, list[pa.Table]] = {}
    for shard, table in ToShards(stage.layout, shards, SALT).compute([rows]):
        by_shard.setdefault(shard, []).append(table)
    by_place: dict[int, list[pa.Table]] = {place: [] for place in range(places * len(stage.levels))}
    for shard, tables in by_shard.items():
        for place, table in ToPartials(stage, places, SALT).compute((shard, tables)):
            by_place[place].append(table)
    # The finest level's places are the first.
    return [
        [
            DrawRelease(level, places).totals((place, by_place[(number + 1) % len(stage.levels) * places + place]))
            for place in range(places)
        ]
        for number, level in enumerate(stage.levels)
    ]


def drawn(stage: StagePlan, totals: list[list[Totals]], words: Callable[[int], Any]) -> pa.Table:
    """What is drawn of all levels."""
    draw = functools.partial(draw_level, samplers=lambda law: Sampler(law, words), words=words)
    tables: list[pa.Table] = []
    for level, of_places in zip(stage.levels, totals, strict=True):
        for place, of_place in enumerate(of_places):
            if not isinstance(level.layout.public, KeyFile):
                tables.append(draw(of_place, level))
                continue
            passing = functools.partial(draw_passing, samplers=lambda law: Sampler(law, words), words=words)
            tables += [of_level(table, level) for table in passing(of_place, level, place, len(of_places))]
    return pa.concat_tables(tables, promote_options="permissive")


def released(stage: StagePlan, rows: pa.Table, seed: int) -> pa.Table:
    """The published table."""
    return rolled_up.published(drawn(stage, totals_of(stage, rows), seeded.words(seed)), stage)


def visits(seed: int, size: int, *, regions: int = 4, weeks: int = 5, people: int = 400) -> pa.Table:
    """Rows of people in regions and weeks; some have no region."""
    random = np.random.default_rng(seed)
    names = [None, *(f"r{number}" for number in range(1, regions))]
    columns = {
        "who": random.integers(0, people, size),
        "region": pa.array([names[i] for i in random.integers(0, regions, size)], pa.string()),
        "week": random.integers(0, weeks, size),
        "paid": random.uniform(-1, 5, size),
    }
    return pa.table(columns)


def keys_of(regions: int = 4, weeks: int = 5) -> list[tuple[Any, ...]]:
    """The keys of `visits`, and a region that nobody is in."""
    names = [None, *(f"r{number}" for number in range(1, regions)), "nobody's"]
    return [(name, week) for name in names for week in range(weeks)]
