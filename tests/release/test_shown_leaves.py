"""`having` and `limit` beside a rollup: which of the finest partitions are shown, and what the others leave of their groups.

In: made-up rows, seeded noise, random choices of leaves. Out: failures. Holds: sums are exact, whatever is hidden; deviations are
those of the least squares, by their own linear map. Not covered: which rows pass a condition (tests/jobs/run/test_rollup.py).
"""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.order_by import SortColumn
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release import consistent
from dp_pipelines.release.shown_leaves import ShownLeaves
from dp_pipelines.release.shown_rows import ShownRows
from tests.helpers import rollups
from tests.helpers.examples import examples
from tests.release.test_rolled_up import ADDED, PRIVATE, PUBLIC, groups, wrong_sums

STAGES = pytest.mark.parametrize("stage", [PUBLIC, PRIVATE], ids=["public", "private"])


def chosen(stage: StagePlan, seed: int, part: float, size: int = 4000) -> tuple[pa.Table, pa.Table, np.ndarray]:
    """A released table, what is left of it once only a part of the leaves is shown, and which rows are."""
    table = rollups.released(stage, rollups.visits(seed, size), seed)
    shown = ShownLeaves.of(stage.query)
    assert shown is not None
    stay = shown.leaves(table) & (np.random.default_rng(seed).random(table.num_rows) < part)
    return table, shown.without(table, stay), stay


@STAGES
@settings(max_examples=examples(15, 100), deadline=None)
@given(seed=st.integers(0, 2**32), part=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), size=st.sampled_from([0, 7, 4000]))
def test_whatever_is_hidden_groups_are_the_sum_of_what_is_shown_and_their_rest(
    stage: StagePlan, seed: int, part: float, size: int
) -> None:
    table, left, stay = chosen(stage, seed, part, size)
    assert wrong_sums(left) == []
    shown = [row for row in left.to_pylist() if row["level"] == 2 and not row["rest"]]
    names = [name for name in table.column_names if name != REST]
    assert [{name: row[name] for name in names} for row in shown] == table.filter(pa.array(stay)).select(
        names
    ).to_pylist()
    # Groups above are all there, as they were.
    upper = [row for row in left.to_pylist() if row["level"] < 2]
    assert [{name: row[name] for name in names} for row in upper] == (
        table.filter(pa.array(table.column(LEVEL).to_numpy() < 2)).select(names).to_pylist()
    )


@STAGES
def test_a_rest_is_what_the_shown_parts_leave(stage: StagePlan) -> None:
    table, left, _ = chosen(stage, 5, 0.4)
    rests = 0
    for (region,), rows in groups(left, 2, ("region",)).items():
        [whole] = [row for row in groups(left, 1, ("region",))[(region,)] if not row["rest"]]
        shown, last = [row for row in rows if not row["rest"]], [row for row in rows if row["rest"]]
        hidden = len([row for row in groups(table, 2, ("region",))[(region,)] if not row.get("rest")]) - len(shown)
        # Where partitions are private there are parts that nobody knows of.
        assert len(last) == (1 if hidden or stage is PRIVATE else 0)
        for rest in last:
            rests += 1
            for name in ADDED:
                assert rest[f"{name}_raw"] == math.fsum([whole[f"{name}_raw"], *(-row[f"{name}_raw"] for row in shown)])
                squares = [row[f"{name}_raw_stddev"] ** 2 for row in (whole, *shown)]
                assert math.isclose(rest[f"{name}_raw_stddev"], math.sqrt(math.fsum(squares)))
            nulls = [name for name in rest if name.startswith(("people", "typical", "week"))]
            assert {rest[name] for name in nulls} == {None}
    assert rests


def test_all_shown_adds_a_column_and_no_row() -> None:
    table, left, _ = chosen(PUBLIC, 6, 1.1)
    assert left.column(REST).to_pylist() == [False] * table.num_rows
    assert left.drop_columns([REST]).equals(table)
    table, left, _ = chosen(PRIVATE, 6, 1.1)
    assert left.select(["level", "region", "week", "rest", *ADDED]).equals(
        table.select(["level", "region", "week", "rest", *ADDED])
    )


def test_deviations_of_a_rest_are_those_of_the_least_squares() -> None:
    """The least squares are linear: the rest of a public list is a row of their matrix, whose variance is a sum of squares."""
    table, left, stay = chosen(PUBLIC, 7, 0.4)
    level, region = (table.column(name).to_numpy(zero_copy_only=False) for name in ("level", "region"))
    sizes = [int((level == number).sum()) for number in range(3)]
    at = {name: place for place, name in enumerate(region[level == 1])}
    parents = [np.zeros(sizes[1], np.int64), np.array([at[name] for name in region[level == 2]])]
    bars = table.column("moved_raw_stddev").to_numpy()
    variances = [float(bars[level == number][0] ** 2) for number in range(3)]
    matrix = []
    for unit in np.eye(sum(sizes)):
        values = np.split(unit, np.cumsum(sizes)[:-1])
        matrix.append(np.concatenate(consistent.least_squares(values, variances, parents).values))
    linear = np.array(matrix).T
    noise = np.concatenate([np.full(size, variance) for size, variance in zip(sizes, variances, strict=True)])
    hidden = ~stay & (level == 2)
    seen = 0
    for row in left.to_pylist():
        if row["level"] == 2 and row["rest"]:
            added = linear[hidden & (region == row["region"])].sum(axis=0)
            assert math.isclose(row["moved_stddev"], math.sqrt((added**2 * noise).sum()), rel_tol=1e-9)
            seen += 1
    assert seen


@STAGES
def test_conditions_and_limits_choose_among_the_finest_partitions_alone(stage: StagePlan) -> None:
    table = rollups.released(stage, rollups.visits(14, 9000), 14)
    leaves = ShownLeaves.of(stage.query)

    def passing(rows: pa.Table) -> pa.Table:
        return rows.filter(pa.compute.greater(rows.column("rows"), 40.0))

    shown = ShownRows(
        keys=stage.query.sorted_by, ranks=stage.query.published_keys, having="rows > 40", reads=("rows",),
        passing=passing, order_by=(SortColumn(column="rows", descending=True),), limit=4, leaves=leaves,
    )  # fmt: skip
    rows, said = shown.of(table)
    finest = [row for row in table.to_pylist() if row["level"] == 2 and not row.get("rest")]
    passed = sorted((row for row in finest if row["rows"] > 40), key=lambda row: -row["rows"])
    assert len(passed) > 4
    found = [row for row in rows.to_pylist() if row["level"] == 2 and not row["rest"]]
    assert {(row["region"], row["week"]) for row in found} == {(row["region"], row["week"]) for row in passed[:4]}
    assert (said["groups"], said["passed"], said["rows"]) == (len(finest), len(passed), 4)
    assert said["words"][-1] == "a group that is left out is not zero: it is in the `rest` of the group above it"
    assert wrong_sums(rows) == []


@pytest.mark.parametrize("key", ["/row", "/", "//////////////////", ""])
def test_keys_of_any_name_are_chosen_among(key: str) -> None:
    bars = {"n_stddev": [1.0] * 3, "n_raw": [7.0, 4.0, 3.0], "n_raw_stddev": [1.0] * 3}
    table = pa.table({"level": [0, 1, 1], key: [None, "a", "b"], "n": [7.0, 4.0, 3.0], **bars})
    shown = ShownRows(
        keys=("level", key), ranks=("level", key), order_by=(SortColumn(column="n"),), limit=1,
        leaves=ShownLeaves(finest=1, columns=(key,), parents=(), sums=("n",)),
    )  # fmt: skip
    rows, _ = shown.of(table)
    assert rows.column(key).to_pylist() == [None, "b", None]


def test_nothing_of_hidden_partitions_stays_behind() -> None:
    table, left, stay = chosen(PUBLIC, 9, 0.0)
    weeks = set(table.column("week").to_pylist()) - {None}
    assert weeks
    assert not stay.any()
    assert set(left.column("week").to_pylist()) == {None}
    assert all(chunk.offset == 0 for column in left.columns for chunk in column.chunks)


def test_two_levels_without_a_total_and_a_total_alone_have_their_rests() -> None:
    for rollup, rests in (((("region",), ("region", "week")), 5), (((), ("region", "week")), 1)):
        stage = rollups.stage_of({"rows": PUBLIC.query.metrics["rows"]}, rollups.keys_of(), rollup=rollup)
        table = rollups.released(stage, rollups.visits(2, 500), 2)
        shown = ShownLeaves.of(stage.query)
        assert shown is not None
        left = shown.without(table, np.zeros(table.num_rows, np.bool_)).to_pylist()
        upper = {row["region"]: row["rows"] for row in left if row["level"] == 0}
        last = {row["region"]: row["rows"] for row in left if row["level"] == 1}
        assert len(last) == rests
        assert last == upper


@STAGES
@pytest.mark.parametrize("part", [0.0, 0.4, 0.9])
def test_rows_come_out_by_level_then_by_key_with_nulls_and_the_rest_of_a_group_last(
    stage: StagePlan, part: float
) -> None:
    _, left, _ = chosen(stage, 11, part)
    shown = ShownLeaves.of(stage.query)
    assert shown is not None
    assert shown.keys == ("level", "region", "week", "rest")

    def place(row: dict[str, object]) -> tuple[object, ...]:
        return tuple(
            (row[name] is None, row[name] or 0 if name != "region" else row[name] or "") for name in shown.keys
        )

    places = [place(row) for row in left.to_pylist()]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
