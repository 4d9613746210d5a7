"""How far one unit moves the levels above a list on disk, whose filter lets a few unlisted partitions pass before bounding.

In: neighbouring tables in which one unit has as many rows as can be in partitions that pass by mistake. Out: distances of the
totals of all levels before the noise. Holds: no test here looks at noise. Not covered: the draw (tests/release/test_large_lists).
"""

import dataclasses
import math
import pathlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import ContributionBounds, Count, PrivacyIdCount, Sum
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.large_list import Condition, LargeList
from tests.helpers import rollups
from tests.helpers.examples import examples
from tests.helpers.key_files import key_file
from tests.privacy.test_rollup_sensitivity import Moved, moved, shapes, too_far

WEEKS, MANY = 2, 8
METRICS = {"rows": Count(), "people": PrivacyIdCount(), "paid": Sum("paid", min_value=-1, max_value=5)}
BOUNDS = {
    "rows of partitions": ContributionBounds(max_partitions_contributed=MANY, max_contributions_per_partition=2),
    "rows in all": ContributionBounds(max_contributions=MANY),
}

Partition = tuple[str, int]

LISTED: list[Partition] = [(region, week) for region in ("r1", "r2", "r3") for week in range(WEEKS)]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    """Two weeks of three regions."""
    regions, weeks = (pa.array(column) for column in zip(*LISTED, strict=True))
    folder: pathlib.Path = tmp_path_factory.mktemp("lists")
    return key_file(folder / "regions", regions, weeks)


@pytest.fixture(scope="module")
def passing(listed: KeyFile) -> list[Partition]:
    """Partitions that are not listed and pass the filter: more of each region than one unit may be in, and of no listed one."""
    found: list[Partition] = []
    for region in ("r1", "r2", "stranger"):
        weeks = np.arange(WEEKS, 400_000)
        passes = listed.may_hold(listed.hashes([pa.array([region] * len(weeks)), pa.array(weeks)]))
        found += [(region, int(week)) for week in weeks[passes][: 2 * MANY]]
    assert len(found) == 6 * MANY
    return found


def stage_of(listed: KeyFile, bounds: str) -> StagePlan:
    keys = LargeList(keys=listed, conditions=(Condition(metric="rows_raw", low=30.0),))
    return rollups.stage_of(METRICS, keys, bounds=BOUNDS[bounds], epsilon=8.0)


def of_listed(change: Moved) -> Moved:
    """What moves of what is released: the draw drops the finest partitions that are not listed, by their whole key."""
    return {
        key: {group: by for group, by in groups.items() if key[0] != "weekly" or group in LISTED}
        for key, groups in change.items()
    }


def rows_of(who: int, partitions: list[Partition], paid: float) -> pa.Table:
    """Three rows of a unit in each partition."""
    regions, weeks = zip(*[each for each in partitions for _ in range(3)], strict=True) if partitions else ((), ())
    return pa.table(
        {
            "who": pa.array([who] * len(weeks), pa.int64()),
            "region": pa.array(regions, pa.string()),
            "week": pa.array(weeks, pa.int64()),
            "paid": np.full(len(weeks), paid) + np.arange(len(weeks)) * 1e-3,
        }
    )


@pytest.mark.parametrize("bounds", BOUNDS)
def test_no_unit_moves_a_level_above_a_list_on_disk_by_more_than_its_record_says(
    bounds: str, listed: KeyFile, passing: list[Partition]
) -> None:
    """Two weeks of a region are listed; of one unit eight may be counted in it, so the list bounds no fan-out."""
    stage = stage_of(listed, bounds)
    mine = rows_of(1, [each for each in passing if each[0] == "r1"], 100.0)
    change, declared = of_listed(moved(stage, mine.slice(0, 0), mine)), shapes(stage)
    assert too_far(stage, change, declared) == []
    # The twin: a record that believes the list.
    assert stage.coarser[1].query.level is not None
    believes = dataclasses.replace(stage.coarser[1].query.level, most_leaves=1)
    wrong = dict(declared)
    for statistic in ("rows", "units"):
        finest = declared["weekly", statistic]
        wrong["weekly.level1", statistic] = believes.shape(finest, adds_up=statistic == "rows")
    found = too_far(stage, change, wrong)
    assert bounds == "rows in all" or "('weekly.level1', 'rows'): Linf" in found


@pytest.mark.parametrize("bounds", BOUNDS)
@settings(max_examples=examples(40, 2000), deadline=None)
@given(data=st.data())
def test_all_levels_together_stay_within_the_records(
    bounds: str, listed: KeyFile, passing: list[Partition], data: st.DataObject
) -> None:
    stage = stage_of(listed, bounds)
    chosen = data.draw(st.lists(st.sampled_from([*LISTED, *passing]), max_size=20, unique=True))
    others = rollups.visits(data.draw(st.integers(0, 2**32)), 30, weeks=WEEKS, people=6)
    mine = rows_of(99, chosen, data.draw(st.sampled_from([-1e300, -1.0, 0.0, 1e300])))
    both = pa.concat_tables([others, mine])
    order = pa.array(np.random.default_rng(1).permutation(both.num_rows))
    change = of_listed(moved(stage, others, both.take(order)))
    assert too_far(stage, change, shapes(stage)) == []
    scales = {(level.name, record.name): record for level in stage.levels for record in level.mechanisms}
    squared = math.fsum(
        sum(steps**2 for _, steps in groups.values()) / float(scales[key].scale) ** 2 for key, groups in change.items()
    )
    assert squared <= math.fsum(r.l2_squared / float(r.scale) ** 2 for r in scales.values()) * (1 + 1e-12)
