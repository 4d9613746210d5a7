"""The rows of one level of a rollup: its partitions, against a filter over plain rows; and what is no rollup stays whole.

In: tables of three levels with rests, entries of a manifest. Out: tables. Holds: every comparison is exact. Not covered: what
plots and verdicts make of these rows.
"""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.release import finest_rows

LEVELS: list[list[str]] = [[], ["region"], ["region", "week"]]
STAGE = {"rollup": {"levels": LEVELS}}
SCHEMA = pa.schema(
    [("level", pa.int64()), ("region", pa.string()), ("week", pa.int64()), ("rest", pa.bool_()), ("n", pa.float64())]
)
ROW = st.fixed_dictionaries(
    {
        "level": st.integers(0, 2),
        "region": st.none() | st.sampled_from("ab"),
        "week": st.none() | st.integers(1, 3),
        "rest": st.booleans(),
        "n": st.floats(0, 9),
    }
)
WITH_FINEST = st.lists(ROW, min_size=1, max_size=12).filter(lambda rows: any(row["level"] == 2 for row in rows))


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def partitions(rows: list[dict[str, Any]], level: int) -> list[dict[str, Any]]:
    """The partitions of a level, by a plain program."""
    kept = [row for row in rows if row["level"] == level and not row["rest"]]
    return [{name: row[name] for name in ("region", "week", "n")} for row in kept]


@given(WITH_FINEST)
def test_each_level_has_its_partitions_and_neither_rests_nor_other_levels(rows: list[dict[str, Any]]) -> None:
    whole = table(rows)
    for level, keys in enumerate(LEVELS):
        found = finest_rows.of_level(whole, STAGE, keys)
        assert found is not None
        assert found.to_pylist() == partitions(rows, level)
        assert found.column_names == ["region", "week", "n"]
    assert finest_rows.of(whole, STAGE).to_pylist() == partitions(rows, 2)
    assert finest_rows.of_level(whole, STAGE, ["week"]) is None


@given(WITH_FINEST)
def test_where_no_partition_was_left_out_there_are_no_rests_and_the_levels_are_the_same(
    rows: list[dict[str, Any]],
) -> None:
    whole = [{**row, "rest": False} for row in rows]
    bare = table(rows).drop_columns(["rest"])
    assert finest_rows.of(bare, STAGE).to_pylist() == partitions(whole, 2)
    first = finest_rows.of_level(bare, STAGE, ["region"])
    assert first is not None
    assert first.to_pylist() == partitions(whole, 1)


ROWS = table([{"level": 0, "n": 5.0, "rest": False}, {"level": 1, "region": "a", "n": 5.0, "rest": False}])
OTHERS: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "a stage without levels": (ROWS, {}),
    "a damaged entry": (ROWS, {"rollup": [[], ["region"]]}),
    "a table without levels": (ROWS.drop_columns(["level"]), STAGE),
    "levels that are no numbers": (ROWS.set_column(0, "level", pa.array(["0", "1"])), STAGE),
}


@pytest.mark.parametrize(("rows", "stage"), OTHERS.values(), ids=OTHERS)
def test_what_is_no_rollup_stays_whole_and_has_no_level(rows: pa.Table, stage: dict[str, Any]) -> None:
    assert finest_rows.of(rows, stage) is rows
    assert finest_rows.of_level(rows, stage, []) is None
    assert finest_rows.is_rollup(stage) == (stage == STAGE)


@pytest.mark.parametrize("entry", [{}, {"levels": None}, {"levels": 3}])
def test_a_rollup_whose_levels_are_not_said_has_finest_rows_alone(entry: dict[str, Any]) -> None:
    assert finest_rows.of(ROWS, {"rollup": entry}).to_pylist() == [{"region": "a", "week": None, "n": 5.0}]
    assert finest_rows.of_level(ROWS, {"rollup": entry}, []) is None


def test_a_column_called_rest_that_says_something_else_drops_no_row() -> None:
    words = ROWS.set_column(3, "rest", pa.array(["monday", "sunday"]))
    assert finest_rows.of(words, STAGE).to_pylist() == [{"region": "a", "week": None, "n": 5.0}]
