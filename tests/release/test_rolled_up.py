"""The table of a rollup: numbers that add up to the last bit, whatever the rows; deviations that are those of the numbers.

In: made-up rows, seeded noise. Out: laws of the published table. Holds: deviations of numbers that were not moved are within 2%
of what draws show, with a chance of a false alarm below 1e-9; noise that is 5% too large is found. Not covered: accuracy
(`benchmarks/rollup.py`).
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import ContributionBounds, Count, Mean, PrivacyIdCount, Sum
from dp_pipelines.noise.laws import RoundedGaussian
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.released_schema import released_schema
from dp_pipelines.release import rolled_up, staging
from tests.helpers import rollups, seeded
from tests.helpers.examples import examples

METRICS = {
    "rows": Count(),
    "people": PrivacyIdCount(),
    "paid": Sum("paid", min_value=0, max_value=5),
    "moved": Sum("paid", min_value=-1, max_value=5),
    "typical": Mean("paid", min_value=-1, max_value=5),
}
ADDED = ("rows", "paid", "moved")
KEYS = ("region", "week")


def groups(table: pa.Table, level: int, by: tuple[str, ...]) -> dict[tuple, list[dict[str, Any]]]:
    """The rows of a level by some of their keys."""
    found: dict[tuple, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["level"] == level:
            found.setdefault(tuple(row[name] for name in by), []).append(row)
    return found


def wrong_sums(table: pa.Table) -> list[str]:
    """Where published numbers do not add up exactly: a group and the rows that hold its parts."""
    found = []
    parts_of = [groups(table, 1, ()), groups(table, 2, ("region",))]
    for level, by in enumerate([(), ("region",)]):
        for key, [*rows] in groups(table, level, by).items():
            for row in rows:
                if row.get("rest"):
                    continue
                parts = parts_of[level][key]
                found += [f"{name} of {key}" for name in ADDED if sum(part[name] for part in parts) != row[name]]
    return found


def wrong_units(table: pa.Table) -> list[str]:
    """Where numbers of units do not fit: a part above its group, a group above all of its parts."""
    found = []
    complete = "rest" not in table.column_names
    for level, by in enumerate([(), ("region",)]):
        parts_of = groups(table, level + 1, by)
        for key, rows in groups(table, level, by).items():
            for whole in (row["people"] for row in rows if not row.get("rest")):
                parts = [part["people"] for part in parts_of[key] if not part.get("rest")]
                found += [f"a part of {key}"] if any(part > whole for part in parts) else []
                found += [f"all of {key}"] if complete and sum(parts) < whole else []
    return found


def through_parquet(table: pa.Table, stage: StagePlan, folder: Any) -> pa.Table:
    path = folder / "weekly.parquet"
    staging.write_release(table, path, stage.query.sorted_by)
    return pyarrow.parquet.read_table(path)


PUBLIC = rollups.stage_of(METRICS, rollups.keys_of())
PRIVATE = rollups.stage_of(METRICS, None)
STAGES = pytest.mark.parametrize("stage", [PUBLIC, PRIVATE], ids=["public", "private"])


@STAGES
@pytest.mark.parametrize("size", [0, 1, 60, 20_000])
def test_published_numbers_add_up_exactly_in_parquet(stage: StagePlan, size: int, tmp_path) -> None:
    for seed in range(examples(3, 10)):
        published = rollups.released(stage, rollups.visits(seed, size), seed)
        table = through_parquet(published, stage, tmp_path)
        (tmp_path / "weekly.parquet").unlink()
        assert table.equals(published)
        assert wrong_sums(table) == []
        assert wrong_units(table) == []
        assert all(
            value >= 0
            for name in ("rows", "paid", "people")
            for value in table.column(name).to_pylist()
            if value is not None
        )


def test_a_number_that_is_off_by_one_step_is_found() -> None:
    table = rollups.released(PUBLIC, rollups.visits(1, 5000), 1)
    rows = table.column("rows").to_numpy().copy()
    rows[-1] += 2.0**-20
    assert wrong_sums(table.set_column(table.column_names.index("rows"), "rows", pa.array(rows)))
    people = table.column("people").to_numpy().copy()
    people[0] = 0.0
    assert wrong_units(table.set_column(table.column_names.index("people"), "people", pa.array(people)))


@settings(max_examples=examples(30, 100), deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-3, 1.0, 1e6, 1e12]), private=st.booleans())
def test_numbers_of_every_size_add_up(seed: int, scale: float, private: bool) -> None:
    """Negative totals, regions that are all noise, numbers far beyond the noise."""
    stage = PRIVATE if private else PUBLIC
    drawn = rollups.drawn(stage, rollups.totals_of(stage, rollups.visits(seed, 300)), seeded.words(seed))
    random = np.random.default_rng(seed)
    width = drawn.column("/statistics").type.list_size
    numbers = random.normal(size=drawn.num_rows * width) * scale
    place = drawn.column_names.index("/statistics")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers), width)
    odd = drawn.set_column(place, "/statistics", lists)
    if private:
        flags = pa.array(random.random(drawn.num_rows) < 0.7)
        odd = odd.set_column(drawn.column_names.index("/selected"), "/selected", flags)
    table = rolled_up.published(odd, stage)
    assert wrong_sums(table) == []
    assert wrong_units(table) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("listed", [True, False], ids=["public", "private"])
@pytest.mark.parametrize("size", [9e39, 2e-40])
def test_values_of_any_size_that_may_be_declared_are_made_to_fit(size: float, listed: bool) -> None:
    """Nothing may fail once noise is drawn: whoever runs it again would draw again."""
    metrics = {
        "paid": Sum("paid", min_value=-size, max_value=size),
        "typical": Mean("paid", min_value=0, max_value=size),
    }
    most = ContributionBounds(max_partitions_contributed=2**20, max_contributions_per_partition=2**20)
    stage = rollups.stage_of(metrics, rollups.keys_of() if listed else None, bounds=most, epsilon=30.0)
    rows = rollups.visits(1, 3000)
    rows = rows.set_column(3, "paid", pa.array(np.full(rows.num_rows, size)))
    for table in (rollups.released(stage, rows, 1), rollups.released(stage, rows.slice(0, 0), 1)):
        assert all(math.isfinite(value) for value in table.column("paid").to_pylist())


@STAGES
def test_the_columns_are_those_that_the_plan_says(stage: StagePlan) -> None:
    rows = rollups.visits(1, 4000)
    table = rollups.released(stage, rows, 1)
    assert table.schema.equals(released_schema(stage.query, rows.schema))


@STAGES
def test_how_partitions_were_split_changes_nothing(stage: StagePlan) -> None:
    drawn = rollups.drawn(stage, rollups.totals_of(stage, rollups.visits(2, 4000)), seeded.words(2))
    once = rolled_up.published(drawn, stage)
    order = np.random.default_rng(1).permutation(drawn.num_rows)
    assert rolled_up.published(drawn.take(pa.array(order)), stage).equals(once)


def test_a_parent_is_published_if_it_or_a_child_is_selected() -> None:
    rows = rollups.visits(3, 20_000, people=4000)
    drawn = rollups.drawn(PRIVATE, rollups.totals_of(PRIVATE, rows), seeded.words(3))
    level, region = drawn.column("level").to_numpy(), drawn.column("region").to_pylist()
    chosen = np.array(
        [at == 0 or (at == 1 and of == "r1") or (at == 2 and of == "r2") for at, of in zip(level, region, strict=True)]
    )
    place = drawn.column_names.index("/selected")
    table = rolled_up.published(drawn.set_column(place, "/selected", pa.array(chosen)), PRIVATE)
    assert set(groups(table, 1, ("region", "rest"))) == {("r1", False), ("r2", False), (None, True)}
    assert set(groups(table, 2, ("region", "rest"))) == {("r2", False), ("r1", True), ("r2", True)}


def test_nothing_of_groups_that_are_dropped_is_in_the_table() -> None:
    drawn = rollups.drawn(PRIVATE, rollups.totals_of(PRIVATE, rollups.visits(4, 20_000, people=4000)), seeded.words(4))
    place, level = drawn.column_names.index("/selected"), drawn.column("level").to_numpy()
    region = np.array(drawn.column("region").to_pylist())
    dropped = (level > 0) & (region == "r3")
    table = rolled_up.published(drawn.set_column(place, "/selected", pa.array(~dropped)), PRIVATE)
    without = drawn.set_column(place, "/selected", pa.array(~dropped)).filter(pa.array(~dropped))
    assert table.equals(rolled_up.published(without, PRIVATE))
    assert "r3" not in table.column("region").to_pylist()


def test_rests_are_what_the_published_parts_leave() -> None:
    table = rollups.released(PRIVATE, rollups.visits(5, 20_000), 5)
    for (region,), rows in groups(table, 2, ("region",)).items():
        [rest] = [row for row in rows if row["rest"]]
        [whole] = [row for row in groups(table, 1, ("region",))[(region,)] if not row["rest"]]
        parts = [row for row in rows if not row["rest"]]
        assert math.isclose(rest["rows_raw"], whole["rows_raw"] - sum(part["rows_raw"] for part in parts))
        variance = whole["rows_raw_stddev"] ** 2 + sum(part["rows_raw_stddev"] ** 2 for part in parts)
        assert math.isclose(rest["rows_raw_stddev"], math.sqrt(variance))
        assert {rest[name] for name in rest if name.startswith(("people", "typical"))} == {None}


TALL = (("region",), ("region", "week"))
SIGNED = {"moved": Sum("paid", min_value=-1, max_value=1)}
REGIONS, DRAWS, WEEKS = 3000, 24, 3


def standardised(stage: StagePlan, of_draw: StagePlan) -> list[np.ndarray]:
    """Numbers over their deviations, by level, of draws over no rows: regions are independent of each other."""
    totals = rollups.totals_of(stage, rollups.visits(0, 0), shards=1, places=1)
    words, found = seeded.words(99), [[], []]
    for _ in range(DRAWS):
        table = rolled_up.published(rollups.drawn(of_draw, totals, words), stage)
        level = table.column("level").to_numpy()
        ratios = table.column("moved").to_numpy() / table.column("moved_stddev").to_numpy()
        found[0].append(ratios[level == 0])
        # One part of each region: those of a region depend on each other.
        found[1].append(ratios[level == 1][::WEEKS])
    return [np.concatenate(of_level) for of_level in found]


def off(ratios: np.ndarray) -> float:
    """How far the deviation of numbers is from the declared one. With 72,000 numbers noise takes it to 2% once in 10^13 times."""
    return abs(math.sqrt(np.mean(ratios**2)) - 1)


def test_deviations_are_within_two_percent_of_what_draws_show() -> None:
    keys = [(f"r{region}", week) for region in range(REGIONS) for week in range(WEEKS)]
    stage = rollups.stage_of(
        SIGNED,
        keys,
        rollup=TALL,
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
    )
    assert all(len(ratios) == REGIONS * DRAWS for ratios in standardised(stage, stage))
    assert max(map(off, standardised(stage, stage))) < 0.02
    # The twin: noise of the finest level that is 5% larger than its deviation says.
    [noise] = [each for each in stage.noises if each is not None]
    louder = dataclasses.replace(noise, law=RoundedGaussian(noise.law.scale * Fraction(269, 256)))
    [record] = stage.mechanisms
    planted = dataclasses.replace(
        stage,
        noises=tuple(louder if each is not None else None for each in stage.noises),
        mechanisms=(dataclasses.replace(record, scale=louder.law.scale),),  # else the gate refuses to draw
    )
    assert off(standardised(stage, planted)[1]) > 0.02


@pytest.mark.parametrize("top", [-2.0, 0.0, 1.0, 1e20])
@pytest.mark.parametrize("parts", [[1.0, 2.0], [1e20, 3.0], [-5e19, 1e20]])
def test_numbers_of_units_of_any_size_fit_and_no_part_is_above_its_group(top: float, parts: list[float]) -> None:
    tables = (pa.table({"x": [0]}), pa.table({"x": [0, 1]}))
    tree = rolled_up._Tree(tables=tables, parents=(np.array([0, 0]),), whole=(True, True))
    above, below = rolled_up._of_units(tree, [np.array([top]), np.array(parts)], 1.0)
    assert above.tolist() == [pytest.approx(max(top, 0.0), rel=1e-6, abs=1e-6 * max(parts))]
    assert (below >= 0).all()
    assert (below <= above).all()
    assert below.sum() >= above.sum()
