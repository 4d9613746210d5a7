"""One partition of all keys that are not listed: in queries of programs, their plans, pipelines, sessions and tables.

In: queries over a few rows. Out: released rows, refusals. Not covered: job files (`tests/jobs/request/test_public_keys.py`) and
neighbouring tables (`tests/privacy`).
"""

import datetime
import pathlib

import pyarrow as pa
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.report import released_table
from tests.helpers.pipelines import one_stage, publish

BOUNDS = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2)
LISTED = dp.PublicPartitions(keys=[("a",), (None,)], other=True)
ROWS = pa.table({"customer": [1, 1, 1, 1, 2, 3], "shop": ["a", "b", "c", "d", None, "b"], "day": [1, 1, 2, 2, 1, 1]})


def query(**changes: object) -> dp.Query:
    """Return a query over shops, some of which are listed."""
    asked: dict[str, object] = {
        "privacy_unit": "customer",
        "partition_by": "shop",
        "bounds": BOUNDS,
        "metrics": {"rows": dp.Count()},
        "partitions": LISTED,
    }
    return dp.Query(**{**asked, **changes})  # type: ignore[arg-type]


def test_the_columns_of_a_query_and_those_that_it_reads() -> None:
    asked = query(partition_by=["shop", "day"], partitions=dp.PublicPartitions(keys=[("a", 1)], other=True))
    assert asked.partition_columns == asked.published_keys == ("shop", "day", "shop_day_is_other")
    assert asked.columns == ("customer", "shop", "day")
    released = one_stage(asked).output_schema({"shop": "string", "day": "int32"})
    assert [str(released.field(name).type) for name in asked.partition_columns] == ["string", "int32", "bool"]


def test_a_pipeline_publishes_the_other_group_last(tmp_path: pathlib.Path) -> None:
    stage = one_stage(query(), epsilon=39)
    for tables in ([ROWS], [ROWS.slice(0, 2), ROWS.slice(2)], [ROWS.slice(0, 0)]):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        table = publish(stage, tables, folder)
        assert table.select(["shop", "shop_is_other"]).to_pylist() == [
            {"shop": "a", "shop_is_other": False},
            {"shop": None, "shop_is_other": False},
            {"shop": None, "shop_is_other": True},
        ]
        expected = [1, 1, 3] if sum(map(len, tables)) else [0, 0, 0]  # two of the three rows of customer 1
        assert table.column("rows").to_pylist() == pytest.approx(expected, abs=3)


def test_a_session_answers_with_the_other_group(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = dp.Session(ROWS, privacy_unit="customer", dataset="shops", epsilon=3, delta=1e-6)
    released = asked.query(
        "shops", epsilon=1, partition_by="shop", bounds=BOUNDS, metrics={"rows": dp.Count()}, partitions=LISTED
    )
    assert released.to_arrow().column("shop_is_other").to_pylist() == [False, False, True]
    assert "(all others)" in repr(released)
    assert "shop_is_other" not in repr(released)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        (
            {"windows": dp.Windows(first=datetime.date(2026, 1, 5), size=datetime.timedelta(days=7), count=2)},
            "windows", "another one in each window",
        ),
        ({"rollup": [[], ["shop"]]}, "rollup", "rest of a rollup"),
        ({"compare": dp.Compare(by="shop", baseline="a", metrics=["rows"])}, "compare", "no arm"),
        ({"metrics": {}, "best": dp.Best(k=1, by=dp.Count())}, "best", "none to choose"),
        ({"privacy_unit": ["customer", "Shop_Is_Other"]}, "other", "the stage reads 'Shop_Is_Other'"),
        ({"row_id": "shop_is_other"}, "other", "the stage reads 'shop_is_other'"),
        ({"metrics": {"shop_is_other": dp.Count()}}, "metrics.shop_is_other", "twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_combined_with_it(changes: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        query(**changes)
    assert caught.value.field == field
    assert caught.value.hint


def test_other_is_a_truth() -> None:
    with pytest.raises(RequestError, match="must be true or false"):
        dp.PublicPartitions(keys=[("a",)], other=1)  # type: ignore[arg-type]


def test_a_plan_names_it_and_others_keep_their_digests() -> None:
    plain = dp.PublicPartitions(keys=[("a",), (None,)])
    digests = [
        dp.Plan(epsilon=1.0, stages={"s": query(partitions=partitions)}).digest
        for partitions in (plain, dp.PublicPartitions(keys=[(None,), ("a",)], other=False), LISTED)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_tables_for_people_call_it_other_and_nothing_else_so() -> None:
    table = pa.table({"shop": ["a", None, None], "shop_is_other": [False, False, True], "n": [3.0, 2.0, 1.0]})
    table = table.append_column("n_stddev", pa.array([1.0] * 3))
    shown = released_table.of_table(table, ["shop", "shop_is_other"])
    (key,) = shown.keys
    assert [key.text(int(code)) for code in key.codes] == ["a", None, "all others"]
    assert [key.short(int(code)) for code in key.codes] == ["a", "null", "all others"]
    assert [key.is_other(row) for row in range(3)] == [False, False, True]
    # A column of that name which somebody computed is a key like any other.
    own = table.set_column(0, "shop", pa.array(["a", None, "b"]))
    assert [key.name for key in released_table.of_table(own, ["shop", "shop_is_other"]).keys] == [
        "shop",
        "shop_is_other",
    ]
    assert [key.name for key in released_table.of_table(table, ["shop_is_other"]).keys] == ["shop_is_other"]
