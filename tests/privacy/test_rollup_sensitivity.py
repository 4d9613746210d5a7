"""How far one unit moves the levels of a rollup, on integers: what docs/proofs/rollup.md proves, and the kernels behind it.

In: neighbouring tables, drawn or made to be as far apart as can be. Out: distances of the totals of all levels before the noise,
in steps of the noise. Holds: no test here looks at noise, so none can fail by chance. Not covered: selection.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import ContributionBounds, Count, Mean, PrivacyIdCount, Sum
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.planning.stage import StagePlan
from tests.helpers import rollups
from tests.helpers.examples import examples

BOUNDS = {
    "rows of partitions": ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2),
    "rows in all": ContributionBounds(max_contributions=4),
}
CLIPPED = {"clipped": Sum("paid", min_sum_per_partition=-3, max_sum_per_partition=2)}
METRICS = {
    "rows": Count(),
    "people": PrivacyIdCount(),
    "paid": Sum("paid", min_value=-1, max_value=5),
    "typical": Mean("paid", min_value=-1, max_value=5),
}

Moved = dict[tuple[str, str], dict[tuple[Any, ...], tuple[int, int]]]
"""By level and statistic, for each group by how many fine and by how many release steps it moves."""


@functools.cache
def stage_of(bounds: str, listed: bool) -> StagePlan:
    metrics = METRICS | (CLIPPED if bounds == "rows of partitions" else {})
    keys = rollups.keys_of(weeks=2) if listed else None
    return rollups.stage_of(metrics, keys, bounds=BOUNDS[bounds], epsilon=8.0)


def integers(stage: StagePlan, rows: pa.Table) -> dict[tuple[str, str], dict[tuple[Any, ...], tuple[int, int]]]:
    """The fine integers and the release steps of all groups, by level and statistic."""
    found: dict[tuple[str, str], dict[tuple[Any, ...], tuple[int, int]]] = {}
    for level, of_places in zip(stage.levels, rollups.totals_of(stage, rows), strict=True):
        for place, (statistic, noise) in enumerate(zip(level.statistics, level.noises, strict=True)):
            if noise is None:
                continue
            mine = found.setdefault((level.name, statistic.name), {})
            for totals in of_places:
                named = list(zip(*(column.to_pylist() for column in totals.partitions), strict=True))
                steps = totals.coarse(place, shift=noise.fine_bits, step=noise.step).tolist()
                fine = ((totals.high[place] << 32) + totals.low[place]) << noise.fine_bits
                mine |= dict(zip(named, zip(fine.tolist(), steps, strict=True), strict=True))
    return found


def moved(stage: StagePlan, smaller: pa.Table, larger: pa.Table) -> Moved:
    before, after = integers(stage, smaller), integers(stage, larger)
    return {
        key: {
            group: tuple(np.subtract(after[key].get(group, (0, 0)), before[key].get(group, (0, 0))).tolist())
            for group in {*before[key], *after[key]}
        }
        for key in after
    }


def shapes(stage: StagePlan) -> Mapping[tuple[str, str], Shape]:
    found = {}
    for level in stage.levels:
        for place, (statistic, noise) in enumerate(zip(level.statistics, level.noises, strict=True)):
            if noise is not None:
                shape = level.calibration(place).shape
                assert shape is not None
                found[level.name, statistic.name] = shape
    return found


def too_far(stage: StagePlan, change: Moved, declared: Mapping[tuple[str, str], Shape]) -> list[str]:
    """The laws that a change breaks: of the shape of each level on the fine lattice, of its record in release steps."""
    records = {(level.name, record.name): record for level in stage.levels for record in level.mechanisms}
    found = []
    for key, groups in change.items():
        shape, record = declared[key], records[key]
        fine, steps = np.array([*groups.values(), (0, 0)], dtype=object).T
        unit = shape.unit
        found += [f"{key}: L0"] if np.count_nonzero(fine) > shape.coordinates else []
        found += [f"{key}: Linf"] if np.abs(fine).max() > shape.per_coordinate * unit else []
        found += [f"{key}: L1"] if np.abs(fine).sum() > shape.in_total * unit else []
        found += [f"{key}: L2"] if (fine**2).sum() > shape.l2_squared * unit**2 else []
        found += [f"{key}: record"] if (steps**2).sum() > record.l2_squared else []
        found += [f"{key}: record's L0"] if np.count_nonzero(steps) > record.l0 else []
    return found


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    seed = draw(st.integers(0, 2**32))
    random = np.random.default_rng(seed)
    others = rollups.visits(seed, draw(st.integers(0, 40)), weeks=2, people=6)
    mine = rollups.visits(seed + 1, draw(st.integers(1, 30)), weeks=2)
    extreme = random.choice([-1e300, 1e300, 5.0, 0.0], mine.num_rows) if draw(st.booleans()) else None
    mine = mine.set_column(0, "who", pa.array(np.full(mine.num_rows, 99)))
    if extreme is not None:
        mine = mine.set_column(3, "paid", pa.array(extreme))
    if draw(st.booleans()):  # all in one region
        mine = mine.set_column(1, "region", pa.array(["r1"] * mine.num_rows, pa.string()))
    both = pa.concat_tables([others, mine])
    return others, both.take(pa.array(random.permutation(both.num_rows)))


@pytest.mark.parametrize("listed", [True, False], ids=["public", "private"])
@pytest.mark.parametrize("bounds", BOUNDS)
@settings(max_examples=examples(60, 300), deadline=None)
@given(pair=neighbours())
def test_one_unit_moves_no_level_by_more_than_its_shape(
    bounds: str, listed: bool, pair: tuple[pa.Table, pa.Table]
) -> None:
    stage = stage_of(bounds, listed)
    assert too_far(stage, moved(stage, *pair), shapes(stage)) == []


def farthest(paid: float, regions: list[str], weeks: int) -> pa.Table:
    """Rows of one unit: more of them in each of these cells than are kept, all as large as can be."""
    cells = list(itertools.product(regions, range(weeks), range(6)))
    return pa.table(
        {
            "who": [99] * len(cells),
            "region": pa.array([region for region, _, _ in cells], pa.string()),
            "week": [week for _, week, _ in cells],
            "paid": [paid] * len(cells),
        }
    )


@pytest.mark.parametrize("listed", [True, False], ids=["public", "private"])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_shapes_of_levels_are_reached(bounds: str, listed: bool) -> None:
    stage, declared = stage_of(bounds, listed), shapes(stage_of(bounds, listed))
    found = dict.fromkeys(declared, 0.0)
    for paid, regions, weeks in itertools.product([-100.0, 100.0], [["r1"], ["r1", "r2"], ["r1", "r2", "r3"]], [1, 4]):
        rows = farthest(paid, regions, weeks)
        for key, groups in moved(stage, rows.slice(0, 0), rows).items():
            fine = np.array([each for each, _ in groups.values()], dtype=float)
            whole = declared[key].l2_squared * declared[key].unit ** 2
            found[key] = max(found[key], float((fine**2).sum()) / whole)
    # A list of two weeks a region: of three cells two in one region, whose squares are 5 where Hoelder's bound is 6.
    uneven = listed and bounds == "rows of partitions"
    for (level, statistic), part in found.items():
        short = uneven and level == "weekly.level1" and statistic != "units"
        few = bounds == "rows in all" and statistic == "units"  # equal rows are kept together, in one group
        least = 5 / 6 if short else 0.0 if few else 1.0
        assert part >= least * (1 - 1e-6), (level, statistic)


@pytest.mark.parametrize("listed", [True, False], ids=["public", "private"])
@pytest.mark.parametrize("bounds", BOUNDS)
@settings(max_examples=examples(60, 10_000), deadline=None)
@given(pair=neighbours())
def test_all_levels_together_stay_within_the_records(
    bounds: str, listed: bool, pair: tuple[pa.Table, pa.Table]
) -> None:
    """The distance of all numbers of a unit, in deviations of their noise: no more than what the records compose to."""
    stage = stage_of(bounds, listed)
    change = moved(stage, *pair)
    # Selection has records of its own, which no number that is published shows.
    records = {(level.name, record.name): record for level in stage.levels for record in level.mechanisms}
    scales = {key: records[key] for key in change}
    squared = math.fsum(
        sum(steps**2 for _, steps in groups.values()) / float(scales[key].scale) ** 2 for key, groups in change.items()
    )
    assert squared <= math.fsum(r.l2_squared / float(r.scale) ** 2 for r in scales.values()) * (1 + 1e-12)


def test_fan_outs_that_are_one_too_small_are_found() -> None:
    stage = stage_of("rows of partitions", True)
    declared = dict(shapes(stage))
    for key, shape in declared.items():
        if key == ("weekly.level0", "rows"):
            smaller = dataclasses.replace(shape, per_coordinate=shape.per_coordinate - 1)
            declared[key] = smaller
    rows = farthest(100.0, ["r1", "r2", "r3"], 2)
    assert too_far(stage, moved(stage, rows.slice(0, 0), rows), declared) == [
        "('weekly.level0', 'rows'): Linf",
        "('weekly.level0', 'rows'): L2",
    ]
