"""A stage over partitions that were released before: exactly these come out, with their types, and its records stay as they were.

In: a stage whose selection has rounds, tables of released partitions. Out: stages, tables. Holds: there is no noise, but
for a part of a step of the lattice. Not covered: the rounds themselves (tests/plan_stages/test_phases.py); whole runs.
"""

import datetime

import pyarrow as pa
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import over_partitions
from dp_pipelines.release.all_partitions import published
from dp_pipelines.release.draw import draw_release
from dp_pipelines.transforms import PrivateAggregate
from tests.helpers import neighbours, quiet

TYPES = pa.schema([("day", pa.date32()), ("shop", pa.int16())])
DAY = datetime.date(2026, 1, 1)


def stage() -> StagePlan:
    """The last stage of a selection in rounds."""
    query = dp.Query(
        privacy_unit="who",
        partition_by=["day", "shop"],
        bounds=dp.ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=1),
        metrics={"rows": dp.Count(), "paid": dp.Sum("paid", min_value=0, max_value=8)},
        partitions=dp.PrivatePartitions(strategy="sips"),
    )
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]


def partitions(*keys: tuple[datetime.date | None, int | None]) -> pa.Table:
    """Released partitions."""
    return pa.table(
        {name: pa.array([key[place] for key in keys], TYPES.field(name).type) for place, name in enumerate(TYPES.names)}
    )


def rows(*keys: tuple[datetime.date | None, int | None]) -> pa.Table:
    """A row for each key, each of a unit of its own that has paid 2."""
    paid = {"who": list(range(len(keys))), "paid": [2.0] * len(keys)}
    return pa.table({**dict(zip(TYPES.names, partitions(*keys).columns, strict=True)), **paid})


def test_the_union_has_the_rows_of_all_selections_sorted_by_key() -> None:
    first, second, none = partitions((DAY, 3), (None, 1)), partitions((DAY, None), (DAY, 2)), partitions()
    found = over_partitions.union([first, none, second])
    assert found.to_pylist() == [
        {"day": DAY, "shop": 2},
        {"day": DAY, "shop": 3},
        {"day": DAY, "shop": None},
        {"day": None, "shop": 1},
    ]
    assert found.schema.equals(TYPES)
    assert over_partitions.union([none]).schema.equals(TYPES)


def test_released_partitions_come_out_all_of_them_and_no_other_one() -> None:
    ready = over_partitions.over(stage(), partitions((DAY, 2), (DAY, None), (None, 1)))
    data = rows((DAY, 2), (DAY, 2), (DAY, 7), (None, 1))
    (totals,) = neighbours.totals(data, ready.layout, ready.statistics)
    found = published(draw_release(totals, ready, samplers=quiet.NoNoise), ready)
    numbers = [(row["day"], row["shop"], round(row["rows"]), round(row["paid"])) for row in found.to_pylist()]
    assert numbers == [(DAY, 2, 2, 4), (DAY, None, 0, 0), (None, 1, 1, 2)]
    assert pa.schema([found.schema.field(name) for name in TYPES.names]).equals(TYPES)


def test_the_stage_is_ready_to_run_once_it_has_its_partitions_and_costs_the_same() -> None:
    before = stage()
    with pytest.raises(RequestError, match="partitions"):
        PrivateAggregate(before)
    ready = over_partitions.over(before, partitions((DAY, 2)))
    assert PrivateAggregate(ready).stage is ready
    assert (ready.mechanisms, ready.noises, ready.choices) == (before.mechanisms, before.noises, before.choices)


def test_of_no_partition_the_columns_of_a_release_are_left_without_rows() -> None:
    found = over_partitions.nothing(stage(), partitions())
    ready = over_partitions.over(stage(), partitions((DAY, 2)))
    (totals,) = neighbours.totals(rows((DAY, 2)), ready.layout, ready.statistics)
    assert found.num_rows == 0
    assert found.schema.equals(published(draw_release(totals, ready), ready).schema)
