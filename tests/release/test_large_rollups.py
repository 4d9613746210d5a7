"""A list on disk as the finest level of a rollup: numbers that add up, groups from the same kept rows, noise that nobody draws.

In: made-up rows, a list of regions and weeks on disk, seeded noise. Out: failures. Holds: the steps are the product's. Not
covered: the law of what is drawn of a list (tests/release/test_large_lists.py, which takes a rollup's list too).
"""

import datetime as dt
import math
import pathlib

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import Count
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.metrics.base import UNITS
from dp_pipelines.plan_stages import rollup_levels
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.large_list import Condition, LargeList
from dp_pipelines.query.released_schema import released_schema
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release import consistent, rolled_up
from dp_pipelines.release.shown_leaves import ShownLeaves
from tests.helpers import rollups, seeded
from tests.helpers.examples import examples
from tests.helpers.key_files import key_file
from tests.release.test_rolled_up import METRICS, groups, wrong_sums, wrong_units

REGIONS, WEEKS = ("nobody's", "r1", "r2", "r3", None), 5


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    """All weeks of some regions, in many buckets."""
    pairs = [(region, week) for region in REGIONS for week in range(WEEKS)]
    regions, weeks = (pa.array(column) for column in zip(*pairs, strict=True))
    return key_file(tmp_path_factory.mktemp("lists") / "regions", regions, weeks, bucket_keys=4, part_keys=8)


def unlisted(listed: KeyFile, many: int) -> list[tuple[str, int]]:
    """Keys that are not listed and pass the filter: half of them in a group that is listed."""
    found: list[tuple[str, int]] = []
    for region in ("r1", "stranger"):
        weeks = np.arange(WEEKS, 400_000)
        regions = pa.array([region] * len(weeks))
        passing = weeks[listed.may_hold(listed.hashes([regions, pa.array(weeks)]))]
        found += [(region, int(week)) for week in passing[: many // 2]]
    assert len(found) == many
    return found


def stage_of(listed: KeyFile, low: float = 30.0, metrics: dict | None = None, **more: object) -> StagePlan:
    """The stage over the list, of which counts pass that are large enough."""
    keys = LargeList(keys=listed, conditions=(Condition(metric="rows_raw", low=low),))
    return rollups.stage_of(metrics or METRICS, keys, **more)


@pytest.mark.parametrize("size", [0, 1, 60, 3000])
@pytest.mark.parametrize("low", [-1e9, 10.0, 30.0, 1e9])
def test_published_numbers_add_up_exactly(listed: KeyFile, size: int, low: float) -> None:
    stage = stage_of(listed, low)
    for seed in range(examples(2, 10)):
        table = rollups.released(stage, rollups.visits(seed, size), seed)
        assert wrong_sums(table) == []
        assert wrong_units(table) == []
        finest = [row for row in table.to_pylist() if row["level"] == 2]
        assert all(row["rows_raw"] >= low for row in finest if not row["rest"])
        assert [row["region"] for row in finest if row["rest"]] == [*REGIONS], "each group says what is not shown of it"
        upper = [row for row in table.to_pylist() if row["level"] < 2]
        assert len(upper) == 1 + len(REGIONS)
        assert not any(row["rest"] for row in upper), "all groups of the list are published"


def test_the_columns_are_those_that_the_plan_says(listed: KeyFile) -> None:
    stage, rows = stage_of(listed), rollups.visits(1, 3000)
    table = rollups.released(stage, rows, 1)
    assert table.schema.equals(released_schema(stage.query, rows.schema))


def sums_of(totals: list[Totals], stage: StagePlan, at: int) -> dict[object, int]:
    """The exact integers of a statistic, by the first column of the key."""
    found: dict[object, int] = {}
    for of_place in totals:
        wide = (of_place.high[at].astype(object) << 32) + of_place.low[at].astype(object)
        for key, value in zip(of_place.partitions[0].to_pylist(), wide, strict=True):
            found[key] = found.get(key, 0) + int(value)
    return found


def test_groups_are_measured_from_the_rows_that_their_finest_partitions_keep(listed: KeyFile) -> None:
    """Unlisted partitions that the filter lets pass are in both, those of groups that are not listed in none above."""
    stage = stage_of(listed)
    rows = rollups.visits(3, 4000)
    strangers = unlisted(listed, 40)
    more = pa.table({"who": [9000 + i for i in range(40)], "region": [r for r, _ in strangers],
                     "week": [w for _, w in strangers], "paid": [1.0] * 40}, schema=rows.schema)  # fmt: skip
    total, by_region, leaves = rollups.totals_of(stage, pa.concat_tables([rows, more]))
    for at, statistic in enumerate(stage.statistics):
        if not statistic.adds_up:
            continue
        finest, middle = sums_of(leaves, stage, at), sums_of(by_region, stage, at)
        assert middle == {region: finest.get(region, 0) for region in REGIONS}
        assert sum(sums_of(total, stage, at).values()) == sum(middle.values()), "the total is that of listed groups"
    assert "stranger" in sums_of(leaves, stage, 0), "until the draw"
    in_listed = {
        *rows.column("who").to_pylist(),
        *(9000 + i for i, (region, _) in enumerate(strangers) if region == "r1"),
    }
    assert sums_of(total, stage, stage.statistics.index(UNITS)).popitem()[1] == len(in_listed)
    table = rollups.released(stage, pa.concat_tables([rows, more]), 3)
    assert "stranger" not in table.column("region").to_pylist()
    assert set(table.column("week").to_pylist()) <= {None, *range(WEEKS)}


def test_a_frequent_unlisted_partition_that_passes_the_filter_moves_no_listed_group(listed: KeyFile) -> None:
    """It would be in the total and in no region, and least squares would give each region a part of it."""
    stage, rows = stage_of(listed), rollups.visits(3, 4000)
    (week,) = {week for region, week in unlisted(listed, 2) if region == "stranger"}
    # Others, and those who are in listed regions too.
    who = np.concatenate([np.arange(9000, 29_000), np.arange(400)])
    more = pa.table({"who": who, "region": ["stranger"] * len(who), "week": [week] * len(who), "paid": [1.0] * len(who)},
                    schema=rows.schema)  # fmt: skip
    table = rollups.released(stage, pa.concat_tables([rows, more]), 3).to_pylist()
    [region] = [row for row in table if row["region"] == "nobody's" and row["level"] == 1]
    [total] = [row for row in table if row["level"] == 0]
    assert region["moved_raw"] + 8 * region["moved_raw_stddev"] > 0
    assert abs(region["moved"]) < 8 * region["moved_stddev"]
    assert total["people_raw"] < 400 + 8 * total["people_raw_stddev"]


def test_no_least_squares_over_noise_that_is_not_drawn(listed: KeyFile) -> None:
    """Levels of which all groups are published are fitted to each other; the finest numbers are as they were drawn."""
    stage = stage_of(listed, metrics={"rows": METRICS["rows"], "moved": METRICS["moved"]})
    drawn = rollups.drawn(stage, rollups.totals_of(stage, rollups.visits(4, 4000)), seeded.words(4))
    table = rolled_up.published(drawn, stage)
    by_level = [[row for row in table.to_pylist() if row["level"] == at and not row["rest"]] for at in range(3)]
    wanted = consistent.least_squares(
        [np.array([row["moved_raw"] for row in rows]) for rows in by_level[:2]],
        [by_level[level][0]["moved_raw_stddev"] ** 2 for level in range(2)],
        [np.zeros(len(REGIONS), np.int64)],
    )
    for level in range(2):
        step = 1e-9 + max(abs(row["moved"]) for row in by_level[level]) * 1e-9 + 2.0
        assert np.allclose([row["moved"] for row in by_level[level]], wanted.values[level], atol=step)
        assert np.allclose([row["moved_stddev"] ** 2 for row in by_level[level]], wanted.variances[level])
    for row in by_level[2]:
        assert row["moved_stddev"] == row["moved_raw_stddev"]
        assert math.isclose(row["moved"], row["moved_raw"], abs_tol=2.0)
    for row in (row for row in table.to_pylist() if row["level"] == 2 and row["rest"]):
        [whole] = [each for each in by_level[1] if each["region"] == row["region"]]
        shown = [each for each in by_level[2] if each["region"] == row["region"]]
        squares = [each["moved_stddev"] ** 2 for each in (whole, *shown)]
        assert math.isclose(row["moved_stddev"], math.sqrt(math.fsum(squares)))


def test_what_was_not_drawn_decides_nothing(listed: KeyFile) -> None:
    """Groups above have the same numbers whatever passes of the list."""
    stage = stage_of(listed, -1e9)
    drawn = rollups.drawn(stage, rollups.totals_of(stage, rollups.visits(5, 4000)), seeded.words(5))
    level = drawn.column(LEVEL).to_numpy()
    upper = [
        rolled_up.published(drawn.filter(pa.array((level < 2) | kept)), stage)
        for kept in (level == 2, np.random.default_rng(1).random(drawn.num_rows) < 0.4, np.zeros(len(level), np.bool_))
    ]
    groups_above = [table.filter(pa.array(table.column(LEVEL).to_numpy() < 2)) for table in upper]
    assert groups_above[0].num_rows == 1 + len(REGIONS)
    assert groups_above[1].equals(groups_above[0])
    assert groups_above[2].equals(groups_above[0])


def test_a_limit_puts_more_into_the_rests(listed: KeyFile) -> None:
    stage = stage_of(listed, 10.0)
    table = rollups.released(stage, rollups.visits(6, 6000), 6)
    shown = ShownLeaves.of(stage.query)
    assert shown is not None
    stay = shown.leaves(table)
    stay[np.flatnonzero(stay)[3:]] = False
    left = shown.without(table, stay)
    assert wrong_sums(left) == []
    assert sum(not row["rest"] for row in left.to_pylist() if row["level"] == 2) == 3
    assert left.column(REST).to_pylist().count(True) == len(REGIONS)
    assert groups(left, 1, ("region",)).keys() == groups(table, 1, ("region",)).keys()


def test_only_the_number_as_noise_left_it_may_be_compared(listed: KeyFile) -> None:
    for metric, said in (("rows", "compare rows_raw"), ("typical_raw", ""), ("nothing_raw", "")):
        keys = LargeList(keys=listed, conditions=(Condition(metric=metric, low=3.0),))
        with pytest.raises(RequestError) as error:
            rollups.stage_of(METRICS, keys)
        assert error.value.field.endswith("having")
        assert said in error.value.hint


def test_levels_above_are_the_groups_of_the_list(listed: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = rollup_levels.queries(stage_of(listed).query)
    assert [(level.level.groups, level.level.most_leaves) for level in levels] == [(1, None), (5, None), (25, 1)]
    assert sorted(levels[1].partitions.keys, key=str) == sorted([(region,) for region in REGIONS], key=str)
    monkeypatch.setattr(rollup_levels, "MOST_GROUPS", 4)
    rollup_levels._groups.cache_clear()
    with pytest.raises(RequestError, match=r"rollup\[1\].* has more than 4 groups in the list on disk"):
        stage_of(listed)
    rollup_levels._groups.cache_clear()


def test_groups_of_long_texts_and_of_times_are_found(tmp_path: pathlib.Path) -> None:
    """Texts beyond 64 bytes travel as digests, and a list has its own types: both name the groups of a level."""
    long, days = (
        "a region whose name is longer than what travels as it is, " + "z" * 30,
        [dt.date(2026, 1, d) for d in (5, 6)],
    )
    columns = [pa.array([long] * 2 + ["r1"] * 2), pa.array(days * 2)]
    keys = LargeList(keys=key_file(tmp_path / "long", *columns), conditions=(Condition(metric="rows_raw", low=-1e9),))
    rows = rollups.visits(7, 3000, regions=2).set_column(2, "week", pa.array([days[i % 2] for i in range(3000)]))
    rows = rows.set_column(1, "region", pa.array([long if i % 3 else "r1" for i in range(3000)]))
    for rollup in (rollups.CHAIN, [["week"], ["region", "week"]]):
        stage = rollups.stage_of({"rows": Count()}, keys, rollup=rollup)
        of_levels = rollups.totals_of(stage, rows)
        sums = [sum(sums_of(level, stage, 0).values()) for level in of_levels]
        assert len(set(sums)) == 1
        assert sums[0] > 1000
        table = rollups.released(stage, rows, 7)
        named = [row[rollup[-2][0]] for row in table.to_pylist() if row["level"] == len(rollup) - 2]
        assert named == sorted([long, "r1"] if rollup[-2][0] == "region" else days)
