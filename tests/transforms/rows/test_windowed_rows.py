"""Rows in Beam's FixedWindows: every declared window is released, and what is not such a batch is refused when it is built.

In: made-up rows with timestamps. Out: releases; shapes that no row decides. Not covered: streams, which are refused.
"""

import datetime
import json
import pathlib
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows, TimestampedValue

from dp_pipelines import (
    ContributionBounds,
    Count,
    Kept,
    Plan,
    PrivatePartitions,
    PublicPartitions,
    Query,
    RequestError,
    Sum,
    Top,
    Windows,
)
from dp_pipelines.jobs.spec import from_query
from dp_pipelines.transforms import BoundContributions, FromRows, PrivateAggregate, PrivateCount, PublishRelease

DAY = 86_400
FIRST = datetime.date(2026, 1, 5)
START = int(datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC).timestamp())
ONE = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
TYPES = {"who": "int64", "region": "string"}


def weeks(**changes: Any) -> Windows:
    """Three weeks; they start on Mondays, Beam's own weeks on Thursdays."""
    return Windows(**{"first": FIRST, "size": datetime.timedelta(days=7), "count": 3, **changes})


def query(windows: Windows | None = None, **changes: Any) -> Query:
    """Rows by region and week."""
    asked = {
        "privacy_unit": "who",
        "partition_by": "region",
        "bounds": ONE,
        "metrics": {"rows": Count()},
        "partitions": PublicPartitions(keys=[["a"], ["b"]]),
        "windows": weeks() if windows is None else windows,
    }
    return Query(**{**asked, **changes})


def stage(windows: Windows | None = None, epsilon: float = 39.0, **changes: Any) -> Any:
    """A stage."""
    return Plan(epsilon=epsilon, delta=1e-6, stages={"s": query(windows, **changes)})["s"]


def weekly(**changes: Any) -> beam.PTransform:
    """Beam's windows for these weeks."""
    return beam.WindowInto(FixedWindows(7 * DAY, offset=START % (7 * DAY)), **changes)


def events(pipeline: beam.Pipeline, rows: list[tuple[int, str, int]]) -> beam.PCollection[Any]:
    """Rows in weeks: who, region, and the day counted from the first."""
    stamped = [TimestampedValue({"who": who, "region": region}, START + day * DAY) for who, region, day in rows]
    return pipeline | beam.Create([0]) | beam.FlatMap(lambda _: stamped).with_output_types(dict[str, Any]) | weekly()


def released(pipeline: beam.Pipeline, rows: list[tuple[int, str, int]], of: Any) -> beam.PCollection[Any]:
    """The release of rows."""
    return events(pipeline, rows) | PrivateAggregate(of, types=TYPES, num_shards=1)


MANY = [(number, "ab"[number % 2], 1) for number in range(400)]
SINGLE = [(1000, "a", 15)]
ELSEWHERE = [(number, "a", day) for number in range(50) for day in (-1, 21, 5000)]


def test_every_declared_window_is_released_and_rows_of_others_are_dropped() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = released(pipeline, MANY + SINGLE + ELSEWHERE, stage(weeks(unit="user_in_window")))

        def rounded(table: pa.Table) -> list[Any]:
            assert table.column_names == ["region", "window_start", "window_end", "rows", "rows_stddev"]
            return [
                (row["region"], row["window_start"].date(), row["window_end"].date(), round(row["rows"] / 20) * 20)
                for row in table.to_pylist()
            ]

        days = [FIRST + datetime.timedelta(days=7 * week) for week in range(4)]
        expected = [
            ("ab"[key], days[week], days[week + 1], 200 if week == 0 else 0) for key in (0, 1) for week in (0, 1, 2)
        ]
        assert_that(found | beam.FlatMap(rounded), equal_to(expected))


@pytest.mark.parametrize("windows", [weeks(), weeks(unit="user_in_window")], ids=lambda w: w.unit)
def test_windows_without_rows_and_with_a_single_unit_have_outputs_of_the_same_shape(
    windows: Windows, tmp_path: pathlib.Path
) -> None:
    shapes = []
    for number, rows in enumerate(([], SINGLE, MANY + SINGLE)):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            released(pipeline, rows, stage(windows)) | PublishRelease(str(tmp_path / str(number)))
        table = pyarrow.parquet.read_table(tmp_path / str(number) / "s.parquet")
        shapes.append((table.schema, table.drop_columns(["rows"]).to_pylist()))
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0][1]) == 6
    unit = json.loads((tmp_path / "0" / "manifest.json").read_text())["privacy_unit"]
    assert ("window_start" in unit) == (windows.unit == "user_in_window")


def test_tables_and_rows_are_stamped_alike_and_totals_are_one_row_for_each_window() -> None:
    bounds = ContributionBounds(max_contributions_per_partition=1)
    windows = weeks(unit="user_in_window")
    total = Query(privacy_unit="who", partition_by=[], bounds=bounds, metrics={"rows": Count()}, windows=windows)
    made = Plan(epsilon=39.0, stages={"s": total})
    table = pa.table({"who": list(range(300)), "window_start": ["not ours"] * 300})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        one = (
            pipeline
            | beam.Create([0])
            | beam.FlatMap(
                lambda _: [TimestampedValue(table, START + DAY), TimestampedValue(table, START + 99 * DAY)]
            ).with_output_types(pa.Table)
        )
        rows = one | weekly() | PrivateAggregate(made["s"], types={"who": "int64"}, as_rows=True, num_shards=1)
        assert_that(rows | beam.Map(lambda row: round(row.rows / 20) * 20), equal_to([300, 0, 0]))


def test_keys_chosen_from_the_data_are_chosen_in_each_window() -> None:
    few = [(number, "ab"[number % 2], 7 * (number % 2)) for number in range(400)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = released(pipeline, few + ELSEWHERE, stage(partitions=PrivatePartitions()))
        keys = found | beam.FlatMap(lambda t: [(r["region"], r["window_start"].day) for r in t.to_pylist()])
        assert_that(keys, equal_to([("a", 5), ("b", 12)]))


def in_tables(pipeline: beam.Pipeline, days: list[int]) -> beam.PCollection[Any]:
    """Tables of one person each."""
    table = pa.table({"who": [1], "region": ["a"]})
    found = [TimestampedValue(table, START + day * DAY) for day in days]
    return pipeline | beam.Create([0]) | beam.FlatMap(lambda _: found).with_output_types(pa.Table) | weekly()


@pytest.mark.parametrize("days", [[], [-8], [1]], ids=["no table", "one of another window", "one"])
def test_the_types_of_a_release_of_tables_do_not_say_whether_there_was_one(
    days: list[int], tmp_path: pathlib.Path
) -> None:
    private = stage(partitions=PrivatePartitions(), epsilon=0.1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        made = in_tables(pipeline, days) | PrivateAggregate(private, types=TYPES, num_shards=1)
        made | PublishRelease(str(tmp_path / "out"))
    instant = pa.timestamp("us", "UTC")
    kinds = [pa.string(), instant, instant, pa.float64(), pa.float64()]
    assert pyarrow.parquet.read_schema(tmp_path / "out" / "s.parquet").types == kinds


def test_tables_in_windows_whose_types_are_not_declared_are_refused_when_the_pipeline_is_built() -> None:
    said = r'pyarrow tables in windows, and types lacks columns that the stage reads; write types=\{"who": \.\.\., "region"'
    with pytest.raises(RequestError, match=said):
        in_tables(beam.Pipeline(), [1]) | PrivateAggregate(stage())
    with pytest.raises(RequestError, match=r'write types=\{"region": \.\.\.\}'):
        in_tables(beam.Pipeline(), [1]) | PrivateAggregate(stage(), types={"who": "int64"})


def test_the_plan_composes_a_user_over_all_windows_and_not_a_user_in_a_window() -> None:
    def spread(**changes: Any) -> float:
        (noise,) = [noise for noise in stage(epsilon=1.0, **changes).noises if noise is not None]
        return float(noise.stddev)

    alone, inside, over = spread(windows=weeks(count=1)), spread(windows=weeks(unit="user_in_window")), spread()
    assert inside == pytest.approx(alone, rel=1e-6)
    nine = spread(windows=weeks(count=9))
    assert alone * 1.5 < over < alone * 3.05  # three windows: between the square root and the sum
    assert nine < alone * 9.05
    plain = stage(weeks()).query
    assert (plain.unit_columns, plain.bounds.max_partitions_contributed) == (("who",), 3)
    of_window = stage(weeks(unit="user_in_window")).query
    assert (of_window.unit_columns, of_window.bounds.max_partitions_contributed) == (("who", "window_start"), 1)
    rows = ContributionBounds(max_contributions=5)
    assert stage(weeks(), bounds=rows).query.bounds.max_contributions == 15


def test_a_user_contributes_no_more_than_the_plan_says_over_all_windows() -> None:
    busy = [(7, region, day) for day in range(21) for region in "ab"]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        of_user = events(pipeline, busy) | "1" >> BoundContributions(stage(), types=TYPES, num_shards=1)
        kept = of_user | beam.Map(lambda table: table.num_rows) | beam.CombineGlobally(sum)
        assert_that(kept, equal_to([3]))  # one partition for each of three windows
        inside = stage(weeks(unit="user_in_window"))
        each = events_again(pipeline, busy) | "2" >> BoundContributions(inside, types=TYPES, num_shards=1)
        assert_that(
            each | "N" >> beam.Map(lambda t: t.num_rows) | "S" >> beam.CombineGlobally(sum), equal_to([3]), "each"
        )


def events_again(pipeline: beam.Pipeline, rows: list[tuple[int, str, int]]) -> beam.PCollection[Any]:
    """The same rows once more in one pipeline."""

    class Again(beam.PTransform):
        def expand(self, begin: Any) -> Any:
            return events(begin.pipeline, rows)

    return pipeline | "Again" >> Again()


def test_the_digest_of_a_plan_names_the_windows_and_is_unchanged_without() -> None:
    def digest(windows: Windows | None, **changes: Any) -> str:
        return Plan(epsilon=1.0, delta=1e-6, stages={"s": query(windows, **changes)}).digest

    private = {"partitions": PrivatePartitions()}
    found = {
        digest(weeks(**changes), **private)
        for changes in ({}, {"count": 4}, {"first": datetime.date(2026, 1, 12)}, {"unit": "user_in_window"})
    }
    assert len(found) == 4
    made = Plan(epsilon=1.0, delta=1e-6, stages={"s": query()})
    again = Plan.restore(made.frozen(), epsilon=1.0, delta=1e-6, stages={"s": query()})
    assert (again.digest, again["s"].windows) == (made.digest, weeks())


OTHERS = {
    "the global window": (beam.WindowInto(GlobalWindows()), "input: is not in FixedWindows, and the query declares windows"),
    "sliding windows": (beam.WindowInto(SlidingWindows(7 * DAY, DAY)), "is not in FixedWindows"),
    "sessions": (beam.WindowInto(Sessions(60)), "is not in FixedWindows"),
    "days": (beam.WindowInto(FixedWindows(DAY)), "is in windows of another size or start than the query declares"),
    "weeks from Thursday": (
        beam.WindowInto(FixedWindows(7 * DAY)),
        r"another size or start than .*; put beam\.WindowInto\(FixedWindows\(604800, offset=345600\)\) before it",
    ),
    "late rows": (
        weekly(allowed_lateness=60), "input: allows late rows, which may release the same rows repeatedly",
    ),
    "a trigger": (
        weekly(trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.DISCARDING),
        "input: has a trigger, which may release the same rows repeatedly",
    ),
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_other_windows_are_refused_when_the_pipeline_is_built(other: str) -> None:
    window, said = OTHERS[other]
    rows = beam.Pipeline(runner=FnApiRunner()) | beam.Create([{"who": 1, "region": "a"}]) | window
    with pytest.raises(RequestError, match=said):
        rows | PrivateAggregate(stage(), types=TYPES)


def test_streams_and_undeclared_windows_are_refused_when_the_pipeline_is_built() -> None:
    rows = events(beam.Pipeline(runner=FnApiRunner()), [])
    undeclared = Plan(epsilon=1.0, delta=1e-6, stages={"s": Query(**plain_arguments())})["s"]
    said = r"input: is windowed; declare its windows, Query\(\.\.\., windows=Windows"
    with pytest.raises(RequestError, match=said):
        rows | PrivateAggregate(undeclared, types=TYPES)
    with pytest.raises(RequestError, match=said):
        rows | FromRows(TYPES)
    rows.is_bounded = False
    with pytest.raises(
        RequestError, match="is unbounded: which of a person's rows are late would depend on the rows of others"
    ):
        rows | "U" >> PrivateAggregate(stage(), types=TYPES)


def plain_arguments() -> dict[str, Any]:
    """Of a query without windows."""
    return {"privacy_unit": "who", "partition_by": "region", "bounds": ONE, "metrics": {"rows": Count()}}


def test_a_short_form_takes_windows() -> None:
    short = PrivateCount(
        privacy_unit="who", partition_by="region", bounds=ONE, epsilon=39, delta=1e-6, types=TYPES, windows=weeks(), as_rows=True,
        partitions=PublicPartitions(keys=[["a"]]),
    )  # fmt: skip
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = events(pipeline, MANY) | short | beam.Map(lambda row: row.window_start.to_utc_datetime().day)
        assert_that(found, equal_to([5, 12, 19]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first": "2026-01-05"}, "windows.first: must be a date or a datetime"),
        ({"size": 7}, "windows.size: must be a timedelta above 0"),
        ({"size": datetime.timedelta(0)}, "windows.size: must be a timedelta above 0"),
        ({"count": 0}, "windows.count: must be a whole number from 1"),
        ({"unit": "person"}, "windows.unit: must be one of user, user_in_window"),
        ({"size": datetime.timedelta(days=300_000), "count": 100}, "windows: ends after the year 9999"),
    ],
)
def test_windows_that_are_none_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        weeks(**changes)


def test_what_cannot_stand_beside_windows_is_refused() -> None:
    for changes, said in (
        ({"top": Top(k=1, by="rows")}, "top: cannot stand beside windows"),
        ({"kept": Kept(share=0.1)}, "kept: cannot stand beside windows"),
        ({"partition_by": "window_start"}, "windows: adds a column 'window_start', and the query reads one"),
        (
            {"metrics": {"m": Sum("x", min_value="auto", max_value="auto", within=(0, 9))}},
            "needs bounds that are numbers",
        ),
    ):
        with pytest.raises(RequestError, match=said):
            query(**changes)
    with pytest.raises(RequestError, match="windows: must be Windows"):
        Query(**plain_arguments(), windows=7)  # type: ignore[arg-type]
    large = ContributionBounds(max_partitions_contributed=2**20, max_contributions_per_partition=1)
    with pytest.raises(RequestError, match=r"stages\.s\.windows\.count: times the bound .* is above 16,777,216"):
        stage(weeks(count=100), bounds=large)


def test_stages_of_one_plan_mean_the_same_by_a_user_in_a_window() -> None:
    inside, days = weeks(unit="user_in_window"), datetime.timedelta(days=1)
    said = r"stages\.b\.windows: are others than those of stage 'a': a plan states its total for one privacy unit"
    for other in (
        weeks(unit="user_in_window", size=days),
        weeks(unit="user_in_window", first=datetime.date(2026, 1, 6)),
    ):
        with pytest.raises(RequestError, match=said):
            Plan(epsilon=1.0, stages={"a": query(inside), "b": query(other)})
    with pytest.raises(RequestError, match=r"stages\.b\.privacy_unit"):
        Plan(epsilon=1.0, stages={"a": query(inside), "b": query(weeks())})
    assert Plan(epsilon=1.0, stages={"a": query(inside), "b": query(weeks(unit="user_in_window", count=1))})
    assert Plan(epsilon=1.0, stages={"a": query(weeks()), "b": query(weeks(size=days))})


def test_a_stage_without_windows_has_no_window_start_of_its_own_in_its_unit_beside_a_user_in_a_window() -> None:
    own = Query(**{**plain_arguments(), "privacy_unit": ["who", "window_start"]})
    inside = query(weeks(unit="user_in_window"))
    for stages in ({"a": inside, "b": own}, {"b": own, "a": inside}):
        with pytest.raises(RequestError, match=r"stages\.b\.privacy_unit: reads a column 'window_start' of its own"):
            Plan(epsilon=1.0, delta=1e-6, stages=stages)
    assert Plan(epsilon=1.0, delta=1e-6, stages={"b": own})


def test_a_session_refuses_the_windows_of_a_pipeline(tmp_path: pathlib.Path) -> None:
    settings = {
        "name": "s",
        "dataset": "d",
        "source": {"parquet": "*"},
        "folder": tmp_path,
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    with pytest.raises(RequestError, match="windows: are for rows in Beam's FixedWindows"):
        from_query.job_of(query(), **settings)
