"""A stage on a real runner: what it computes, what it publishes, and what it refuses."""

import json
import pathlib
import random

import apache_beam as beam
import duckdb
import pyarrow as pa
import pytest
from apache_beam.transforms import window

from dp_pipelines import (
    ContributionBounds,
    Count,
    Mean,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    RequestError,
    Sum,
    Variance,
)
from dp_pipelines.release import staging
from dp_pipelines.steps import read_files
from dp_pipelines.transforms import FromRows, PrivateAggregate, PrivateCount, PublishRelease, SelectPartitions
from tests.helpers.pipelines import comparable, one_stage, publish
from tests.helpers.quiet import silence

WIDE = ContributionBounds(max_partitions_contributed=50, max_contributions_per_partition=200)
METRICS = {
    "rows": Count(),
    "units": PrivacyIdCount(),
    "total": Sum("value", min_value=0, max_value=1000),
    "mean": Mean("value", min_value=0, max_value=1000),
    "variance": Variance("value", min_value=0, max_value=1000),
    "clipped": Sum("value", min_sum_per_partition=0, max_sum_per_partition=1e6),
}


def events(rows=5000, users=400, keys=6, numbers=None):
    numbers = numbers or random.Random(3)
    return pa.table(
        {
            "unit": [f"unit-{numbers.randrange(users)}" for _ in range(rows)],
            "key": [f"key-{numbers.randrange(keys)}" for _ in range(rows)],
            "value": [numbers.choice([None, float("nan"), *range(900)]) for _ in range(rows)],
        },
        schema=pa.schema([("unit", pa.string()), ("key", pa.string()), ("value", pa.float64())]),
    )


def query(metrics=METRICS, bounds=WIDE, keys=None, **fields):
    partitions = PrivatePartitions() if keys is None else PublicPartitions(keys=[(key,) for key in keys])
    return Query(
        privacy_unit="unit", partition_by="key", bounds=bounds, metrics=metrics, partitions=partitions, **fields
    )


def test_without_noise_and_with_wide_bounds_a_release_equals_duckdbs(tmp_path, monkeypatch):
    silence(monkeypatch)
    table, keys = events(), [f"key-{i}" for i in range(6)]
    stage = one_stage(query(keys=keys), epsilon=39)
    released = publish(stage, [table.slice(0, 1000), table.slice(1000)], tmp_path / "out")
    assert table.num_rows
    truth = duckdb.sql("""
        select key, count(*) as rows, count(distinct unit) as units, sum(value) as total, avg(value) as mean,
               var_pop(value) as variance, sum(value) as clipped
        from (select key, unit, case when isnan(value) then null else value end as value from "table") group by key order by key
    """).to_arrow_table()
    steps = {s.name: n.unit for s, n in zip(stage.statistics, stage.noises, strict=True) if n is not None}
    for name in METRICS:
        # A release is rounded to its own lattice, thousands of steps finer than its noise; means divide by rows.
        slack = 2 * max(steps.values()) if name in ("mean", "variance") else None
        for mine, true in zip(released[name].to_pylist(), truth[name].to_pylist(), strict=True):
            noise = released[f"{name}_stddev"].to_pylist()
            assert abs(mine - true) <= max(noise) / 100 + 1e-6, (name, slack)


@pytest.mark.parametrize("options", [[], ["--direct_runner_bundle_repeat=2"]], ids=["once", "every bundle three times"])
def test_order_batches_shards_and_replays_change_no_statistic(options, tmp_path, monkeypatch):
    silence(monkeypatch)
    tight = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2)
    stage, table = one_stage(query(bounds=tight), epsilon=39), events()
    first = publish(stage, [table], tmp_path / "first", shards=1)
    shuffled = table.take(random.Random(5).sample(range(table.num_rows), table.num_rows))
    pieces = [shuffled.slice(begin, 700) for begin in range(0, table.num_rows, 700)]
    second = publish(stage, pieces, tmp_path / "second", shards=13, options=options)
    assert first.num_rows == 6
    assert first.equals(second)


def test_two_runs_differ_in_their_noise(tmp_path):
    stage, table = one_stage(query(keys=["key-0"])), events(rows=100)
    first, second = (publish(stage, [table], tmp_path / name) for name in ("first", "second"))
    assert not first.equals(second)


@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_published_partitions_of_a_public_list_are_exactly_the_list(rows, tmp_path):
    keys = ["key-3", "nowhere", None, "key-1", "elsewhere"]
    released = publish(one_stage(query(keys=keys)), [events(rows=rows)], tmp_path / "out")
    assert released["key"].to_pylist() == ["elsewhere", "key-1", "key-3", "nowhere", None]


def test_a_public_list_of_several_columns_and_types_is_published_as_it_was_listed(tmp_path):
    table = pa.table({"unit": [1, 2], "a": pa.array([1, 2], pa.int8()), "b": pa.array(["x", "y"]).dictionary_encode()})
    asked = Query(
        privacy_unit="unit",
        partition_by=["a", "b"],
        bounds=WIDE,
        metrics={"rows": Count()},
        partitions=PublicPartitions(keys=[(2, "y"), (1, "y"), (7, "x")]),
    )
    released = publish(one_stage(asked), [table], tmp_path / "out")
    assert [(row["a"], row["b"]) for row in released.to_pylist()] == [(1, "y"), (2, "y"), (7, "x")]


def test_rows_outside_the_public_list_use_up_no_contribution(tmp_path, monkeypatch):
    silence(monkeypatch)
    one = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    table = pa.table({"unit": [1] * 50, "key": [f"key-{i}" for i in range(50)]})
    stage = one_stage(query(metrics={"rows": Count()}, bounds=one, keys=["key-7"]), epsilon=39)
    released = publish(stage, [table], tmp_path / "out")
    assert released["rows"].to_pylist()[0] == pytest.approx(1, abs=0.05)


def test_an_empty_input_and_one_where_nothing_passes_publish_the_same_bytes(tmp_path):
    stage = one_stage(query())
    published = []
    for name, table in {"none": events(rows=0), "one": events(rows=1), "few": events(rows=5)}.items():
        publish(stage, [table], tmp_path / name)
        published.append((tmp_path / name / "stage.parquet").read_bytes())
    assert published[0] == published[1] == published[2]


def test_the_folder_holds_the_release_and_its_manifest_and_nothing_else(tmp_path):
    stage = one_stage(query())
    publish(stage, [events()], tmp_path / "out", options=["--direct_runner_bundle_repeat=2"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "report.html",
        "stage.parquet",
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["budget"] == {"epsilon": 1.0, "delta": 1e-6, "runs": 1}
    assert manifest["mechanisms"] == [record.to_json() for record in stage.mechanisms]
    assert manifest["ledger"]["note"] == "not accounted across runs"
    page = (tmp_path / "out" / "report.html").read_text()
    (described,) = manifest["stages"]
    assert described["metrics"]
    verdicts = [metric["verdict"] for metric in described["metrics"].values()]
    short = {verdict["words"] for verdict in verdicts if verdict["clear"] < verdict["numbers"] / 2}
    assert short
    assert all(words in page for words in short)


def test_no_key_that_was_not_selected_is_anywhere_in_the_published_buffers(tmp_path):
    secret = "the-only-customer-in-the-village"
    few = pa.table({"unit": ["x"], "key": [secret], "value": [1.0]})
    table = pa.concat_tables([events(), few])
    encoded = table.set_column(1, "key", table["key"].combine_chunks().dictionary_encode())
    released = publish(one_stage(query(metrics={"rows": Count()})), [encoded], tmp_path / "out")
    buffers = [b for column in released.columns for chunk in column.chunks for b in chunk.buffers() if b is not None]
    assert released.num_rows == 6
    assert not any(secret.encode() in bytes(buffer) for buffer in buffers)
    assert released.schema.metadata is None
    assert not any(secret.encode() in path.read_bytes() for path in (tmp_path / "out").iterdir())


def test_the_order_of_released_rows_says_nothing_about_the_order_of_the_input(tmp_path, monkeypatch):
    silence(monkeypatch)
    orders, seen = [], tmp_path / "order"
    for extra in ([], ["key-5"]):
        keys = extra + [f"key-{i % 6}" for i in range(3000)]
        table = pa.table({"unit": [-1] * len(extra) + list(range(3000)), "key": keys})
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            source = pipeline | beam.Create([table], reshuffle=False).with_output_types(pa.Table)
            released = source | PrivateAggregate(one_stage(query(metrics={"rows": Count()})), salt=1)
            released | beam.Map(
                lambda t, path: pathlib.Path(path).write_text(",".join(t["key"].to_pylist())), str(seen)
            )
        orders.append(seen.read_text())
    assert orders[0] == orders[1] == ",".join(f"key-{i}" for i in range(6))


def test_a_stage_is_drawn_once_in_a_pipeline():
    stage = one_stage(query())
    pipeline = beam.Pipeline(runner="FnApiRunner")
    tables = pipeline | beam.Create([events(rows=1)]).with_output_types(pa.Table)
    tables | "First" >> PrivateAggregate(stage)
    with pytest.raises(RequestError, match="released twice"):
        tables | "Second" >> PrivateAggregate(stage)


def test_what_a_killed_attempt_left_is_never_published(tmp_path):
    staged = tmp_path / "staged"
    staged.mkdir()
    staging.write_release(pa.table({"k": ["a"]}), staged / "weekly.parquet", ["k"])
    (staged / f".weekly.parquet.1-x{staging.UNFINISHED}").write_bytes(b"a second draw")
    staging.publish_folder(staged, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["weekly.parquet"]


def test_the_first_complete_attempt_stays_and_later_ones_are_thrown_away(tmp_path):
    for value in (1, 2):
        staging.write_release(pa.table({"k": [value]}), tmp_path / "weekly.parquet", ["k"])
    assert pa.parquet.read_table(tmp_path / "weekly.parquet")["k"].to_pylist() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["weekly.parquet"]


def test_text_inside_lists_is_read_alike_whatever_the_rows_hold(tmp_path):
    types = set()
    for name, tags in {
        "repeat": [["a"], ["a"]] * 500,
        "empty": [[]] * 1000,
        "differ": [[str(i)] for i in range(1000)],
    }.items():
        path = tmp_path / f"{name}.parquet"
        pa.parquet.write_table(pa.table({"tags": pa.array(tags, pa.list_(pa.string()))}), path)
        types |= {
            table.schema.field("tags").type.value_type
            for table in read_files.ReadRowGroups(None).process(((str(path), 0), 1000))
        }
    assert types == {pa.string()}


def test_a_csv_cell_with_line_breaks_takes_no_other_rows_with_it(tmp_path):
    lines = [f"{i},{i % 7}" for i in range(5000)]
    counts = []
    for extra in ([], ['9999,"' + "a\n" * 3000 + '"']):
        path = tmp_path / f"{len(extra)}.csv"
        path.write_text("\n".join(["unit,key", *lines[:1000], *extra, *lines[1000:]]) + "\n")
        tables = read_files.ReadCsvFile({"unit": pa.int64(), "key": pa.string()}, block=2**14).process(str(path))
        counts.append(sum(int(pa.compute.sum(t["unit"].to_numpy() < 9999).as_py() or 0) for t in tables if t.num_rows))
    assert counts == [5000, 5000]


def test_selection_alone_releases_keys_and_nothing_else(tmp_path):
    stage = one_stage(query(metrics={}))
    released = publish(stage, [events()], tmp_path / "out")
    assert released.column_names == ["key"]
    assert released.num_rows == 6
    with pytest.raises(RequestError, match="must have no metrics"):
        SelectPartitions(one_stage(query()))


def test_min_users_keeps_no_partition_with_fewer_units(tmp_path):
    fields = {"unit": list(range(100)) + list(range(1000)), "key": ["small"] * 100 + ["large"] * 1000}
    asked = Query(
        privacy_unit="unit",
        partition_by="key",
        bounds=WIDE,
        metrics={"rows": Count()},
        partitions=PrivatePartitions(min_users=101),
    )
    for attempt in range(5):
        released = publish(one_stage(asked, epsilon=39, delta=0.5), [pa.table(fields)], tmp_path / str(attempt))
        assert released["key"].to_pylist() == ["large"]


def test_rows_of_python_become_tables(tmp_path, monkeypatch):
    silence(monkeypatch)
    rows = [{"unit": i % 300, "key": "a"} for i in range(3000)] + [{"unit": 1}, {"unit": "poison", "key": b"\xff"}]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        tables = pipeline | beam.Create(rows) | FromRows(types={"unit": pa.int64(), "key": pa.string()})
        counts = tables | PrivateCount(privacy_unit="unit", partition_by="key", bounds=WIDE, epsilon=10, delta=1e-6)
        counts | PublishRelease(str(tmp_path / "out"))
    released = pa.parquet.read_table(tmp_path / "out" / "release.parquet")
    assert comparable(released, ["key"])[0]["count"] == pytest.approx(3000, abs=20)


def test_what_is_no_batch_of_tables_is_refused_when_the_pipeline_is_built(tmp_path):
    stage = one_stage(query())
    pipeline = beam.Pipeline(runner="FnApiRunner")
    tables = pipeline | beam.Create([events(rows=1)]).with_output_types(pa.Table)
    with pytest.raises(RequestError, match="windowed"):
        tables | "W" >> beam.WindowInto(window.FixedWindows(60)) | "A" >> PrivateAggregate(stage)
    with pytest.raises(RequestError, match="elements of type int, whose values have no column names"):
        pipeline | "N" >> beam.Create([1, 2]).with_output_types(int) | "B" >> PrivateAggregate(stage)
    with pytest.raises(RequestError, match="unbounded"):
        unbounded = pipeline | "U" >> beam.Create([events(rows=1)]).with_output_types(pa.Table)
        unbounded.is_bounded = False
        unbounded | "C" >> PrivateAggregate(stage)
    with pytest.raises(RequestError, match="already exists"):
        (tmp_path / "there").mkdir()
        tables | "D" >> PrivateAggregate(stage) | PublishRelease(str(tmp_path / "there"))
    with pytest.raises(RequestError, match="not the output of PrivateAggregate"):
        tables | "R" >> PublishRelease(str(tmp_path / "raw"))
