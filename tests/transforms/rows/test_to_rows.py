"""Rows out: a release has a Beam schema, and Beam's own sinks take it.

In: releases with noise that hardly counts. Out: files of Beam's sinks. Not covered: writing to BigQuery (only the graph is built,
where its libraries are here) and Java's SQL.
"""

import datetime
import json
import pathlib
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp

from dp_pipelines import ContributionBounds, Count, Histogram, Plan, PublicPartitions, Query, RequestError
from dp_pipelines.transforms import PrivateAggregate, PrivateCount, PublishRelease, ToRows
from dp_pipelines.transforms.rows.schema_rows import ToSchemaRows

BOUNDS = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
TYPES = {"who": "int64", "region": "string", "day": "date", "at": "timestamptz"}
DAY, AT = datetime.date(2026, 1, 5), datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
ROWS = [{"who": number, "region": "ab"[number % 2], "day": DAY, "at": AT} for number in range(200)]


def stage(*by: str, keys: Any = None, **metrics: Any) -> Any:
    """A stage whose noise is below one half."""
    query = Query(
        privacy_unit="who",
        partition_by=list(by) or ["region"],
        bounds=BOUNDS,
        metrics=metrics or {"orders": Count()},
        partitions=PublicPartitions(keys=keys or [["a"], ["b"]]),
    )
    return Plan(epsilon=39.0, stages={"s": query})["s"]


def released(pipeline: beam.Pipeline, *by: str, keys: Any = None) -> beam.PCollection[Any]:
    """Rows of a release."""
    return (
        pipeline | beam.Create(ROWS) | PrivateAggregate(stage(*by, keys=keys), types=TYPES, as_rows=True, num_shards=1)
    )


def test_a_release_as_rows_has_a_schema_and_every_column() -> None:
    listed = stage(bins=Histogram("who", edges=[0, 100, 200]), orders=Count())
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | beam.Create(ROWS) | PrivateAggregate(listed, types=TYPES, num_shards=1)
        rows = tables | ToRows() | beam.Reshuffle()  # through the coder of the declared type
        expected = listed.output_schema(TYPES)
        names = [name for name, _ in rows.element_type._fields]
        found = tables | beam.Map(lambda table: str(table.schema))
        assert names == expected.names == ["region", "bins", "bins_stddev", "orders", "orders_stddev"]
        assert_that(found, equal_to([str(expected)]), label="the schema is the one of the tables")
        assert_that(rows | beam.Map(lambda row: (row.region, len(row.bins))), equal_to([("a", 2), ("b", 2)]))


def test_beams_text_and_parquet_sinks_take_a_release(tmp_path: pathlib.Path) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = released(pipeline)
        rows | beam.io.WriteToJson(str(tmp_path / "j"))
        rows | beam.io.WriteToCsv(str(tmp_path / "c"))
        rows | beam.io.WriteToParquet(str(tmp_path / "p"))
    (text,), (table,), (lines,) = (list(tmp_path.glob(f"{name}*")) for name in "cpj")
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["region"] for row in found] == ["a", "b"]
    assert [round(row["orders"] / 10) for row in found] == [10, 10]
    assert text.read_text().splitlines()[0] == "region,orders,orders_stddev"
    assert pyarrow.parquet.read_table(table)["region"].to_pylist() == ["a", "b"]


def test_data_frames_take_a_release() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        frame = to_dataframe(released(pipeline))
        rounded = to_pcollection((frame.orders / 10).round())
        assert_that(rounded | beam.Map(float), equal_to([10.0, 10.0]))


def test_times_are_those_of_beam_or_text() -> None:
    keys = [[DAY, AT]]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = released(pipeline, "day", "at", keys=keys) | beam.Map(lambda row: (row.day, row.at))
        assert_that(rows, equal_to([(DAY, Timestamp(AT.timestamp()))]))
        tables = (
            pipeline | "R" >> beam.Create(ROWS) | "T" >> PrivateAggregate(stage("day", "at", keys=keys), types=TYPES)
        )
        texts = tables | ToRows(times_as_text=True) | "Texts" >> beam.Map(lambda row: (row.day, row.at))
        assert_that(texts, equal_to([("2026-01-05", "2026-01-05T00:00:00Z")]), label="texts")


@pytest.mark.parametrize(
    ("kind", "number", "micros", "text"),
    [
        (pa.timestamp("ns"), -1, -1, "1969-12-31T23:59:59.999999"),
        (pa.timestamp("ns", "UTC"), 1999, 1, "1970-01-01T00:00:00.000001Z"),
        (pa.timestamp("us"), 2**62, 2**62, None),
        (pa.timestamp("s"), 2**40, 2**40 * 10**6, None),
        (pa.timestamp("s"), 2**62, None, None),
        (pa.timestamp("ms"), -(2**63), None, None),
    ],
    ids=str,
)
def test_a_time_of_any_unit_keeps_its_value_or_is_null(
    kind: pa.DataType, number: int, micros: int | None, text: str | None
) -> None:
    """As a time of Beam and as text: rounded down, never wrapped around, never an error."""
    table = pa.table({"at": pa.array([number, None], pa.int64()).view(kind)})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | beam.Create([table])
        times = tables | "Times" >> ToSchemaRows(table.schema) | "Of times" >> beam.Map(lambda row: row.at)
        found = times | beam.Map(lambda at: None if at is None else at.micros)
        assert_that(found, equal_to([micros, None]), label="times")
        rows = tables | "Texts" >> ToSchemaRows(table.schema, times_as_text=True)
        assert_that(rows | "Of texts" >> beam.Map(lambda row: row.at), equal_to([text, None]), label="texts")


def test_a_big_query_table_takes_a_release() -> None:
    pytest.importorskip("google.cloud.bigquery", reason="apache-beam[gcp] is not here")
    pipeline = beam.Pipeline(runner=FnApiRunner())
    released(pipeline) | beam.io.WriteToBigQuery("project:set.table", method="STORAGE_WRITE_API")


def test_short_forms_give_rows_too() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    short = PrivateCount(privacy_unit="who", partition_by="region", bounds=BOUNDS, epsilon=1, delta=1e-6, types=TYPES)
    counts = pipeline | beam.Create(ROWS) | short
    assert str((counts | ToRows()).element_type).startswith("Row(region=typing.Optional[str], count=")
    short.as_rows = True
    assert str((pipeline | "2" >> beam.Create(ROWS) | "3" >> short).element_type).startswith("Row(region=")


def test_rows_without_known_types_are_refused_when_the_pipeline_is_built(tmp_path: pathlib.Path) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | beam.Create([pa.Table.from_pylist(ROWS)])
    with pytest.raises(RequestError, match=r"types\['region'\]: is missing, .* write e\.g\. types="):
        tables | "A" >> PrivateAggregate(stage(), as_rows=True)
    with pytest.raises(RequestError, match=r"types\['region'\]: is missing"):
        tables | "B" >> PrivateAggregate(stage()) | ToRows()
    with pytest.raises(RequestError, match="input: is not the output of PrivateAggregate; put ToRows right after it"):
        tables | "C" >> ToRows()
    with pytest.raises(RequestError, match="input: is rows, and tables are published; drop as_rows"):
        released(beam.Pipeline(runner=FnApiRunner())) | PublishRelease(str(tmp_path / "out"))
    with pytest.raises(RequestError, match="column 'region': has type uint64, which rows cannot have"):
        tables | "D" >> PrivateAggregate(stage(keys=[[1]]), types={"region": "uint64"}, as_rows=True)
    assert tables | "E" >> PrivateAggregate(stage(), types={"region": "string"}, as_rows=True)


def test_the_schema_of_a_release_needs_the_types_of_its_keys() -> None:
    with pytest.raises(RequestError, match=r"types\['region'\]: is missing, and partitions; did you mean 'regoin'"):
        stage().output_schema({"regoin": "string"})
    assert (
        stage().output_schema(pa.schema({"region": pa.dictionary(pa.int8(), pa.large_string())})).field(0).type
        == pa.string()
    )
