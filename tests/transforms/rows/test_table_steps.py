"""Steps written for rows behind a reader of tables: they are refused, where they would publish nothing."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dp_pipelines import ContributionBounds, Count, Plan, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.transforms import PrivateAggregate, ReadParquet, SelectPartitions, check_row
from dp_pipelines.transforms.rows.to_tables import ToTables

TYPES = {"person": "int64", "city": "string"}


@pytest.fixture
def files(tmp_path: Path) -> str:
    """A file of 3,000 people in three cities."""
    columns = {"person": list(range(3000)), "city": ["a", "b", "c"] * 1000, "service": [0, 1, 0] * 1000}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    return str(tmp_path / "*.parquet")


def stage(*, with_count: bool = True) -> Any:
    query = Query(
        privacy_unit="person",
        partition_by="city",
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics={"visits": Count()} if with_count else {},
    )
    return Plan(epsilon=20.0, delta=1e-6, stages={"visits": query})["visits"]


def is_zero(row: Any) -> bool:
    return bool(row["service"] == 0)


def of_tables(table: pa.Table) -> bool:
    return table.num_rows > 0


def zeros(row: Any) -> Iterator[Any]:
    if row["service"] == 0:
        yield row


class Zeros(beam.DoFn):
    def process(self, row: Any) -> Iterator[Any]:
        if row["service"] == 0:
            yield row


WRITTEN_FOR_ROWS = {
    "a filter": (beam.Filter(lambda row: row["service"] == 0), "keeps or drops whole tables"),
    "a filter by name": (beam.Filter(is_zero), "keeps or drops whole tables"),
    "a filter that knows of tables": (beam.Filter(of_tables), "keeps or drops whole tables"),
    "a flat map": (beam.FlatMap(lambda row: [row] if row["service"] == 0 else []), "hands on whole tables or drops"),
    "a map to None": (beam.Map(lambda row: row if row["service"] == 0 else None), "hands on whole tables or drops"),
    "a map to dicts": (beam.Map(lambda row: {"person": row["person"], "city": row["city"]}), "makes one row of each"),
    "a map to columns": (beam.Map(lambda table: table.to_pydict()), "makes one row of each"),
    "a map by a method": (beam.Map(pa.Table.to_pydict), "makes one row of each"),
    "a map to rows": (beam.Map(lambda row: beam.Row(person=row["person"], city=row["city"])), "makes one row of each"),
}


@pytest.mark.parametrize("types", [None, TYPES], ids=["", "with types"])
@pytest.mark.parametrize(("step", "message"), WRITTEN_FOR_ROWS.values(), ids=WRITTEN_FOR_ROWS)
def test_a_step_for_rows_behind_a_reader_of_tables_is_refused_when_the_pipeline_is_built(
    files: str, step: Any, message: str, types: Any
) -> None:
    rows = beam.Pipeline("FnApiRunner") | ReadParquet(files) | "Mine" >> step
    with pytest.raises(RequestError, match=f"step 'Mine': {message}.*to_pylist"):
        rows | PrivateAggregate(stage(), types=types)


@pytest.mark.parametrize("step", [beam.FlatMap(zeros), beam.ParDo(Zeros())], ids=["a generator", "a function"])
def test_a_step_that_may_drop_all_tables_says_what_it_hands_on_or_types_are_declared(files: str, step: Any) -> None:
    tables = beam.Pipeline("FnApiRunner") | ReadParquet(files) | "Mine" >> step
    with pytest.raises(RequestError, match="step 'Mine': may hand on tables or drop them, and nothing says which"):
        tables | PrivateAggregate(stage())
    tables | "Typed" >> PrivateAggregate(stage(), types=TYPES)


def test_a_step_for_rows_some_steps_before_is_refused(files: str) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    rows = pipeline | ReadParquet(files) | "Mine" >> beam.Filter(is_zero)
    more = pipeline | "Again" >> ReadParquet(files)
    with pytest.raises(RequestError, match="step 'Mine': keeps"):
        (rows, more) | beam.Flatten() | beam.Reshuffle() | SelectPartitions(stage(with_count=False))


@pytest.mark.parametrize(
    "cell",
    [
        lambda table: table["city"],
        lambda table: table["city"].chunk(0),
        lambda table: table,
        lambda table: table.to_batches()[0],
    ],
    ids=["chunks", "an array", "a table", "a batch"],
)
def test_a_cell_that_is_a_whole_column_is_null_and_costs_no_other_cell(files: str, cell: Any) -> None:
    """A step may make such a cell for some rows only, so that which rows have one is private."""
    table = pq.read_table(files.replace("*", "rows"))
    rows = [{"person": 1, "city": "b"}, {"person": 2, "city": cell(table)}, {"person": 3, "city": "c"}]
    (made,) = ToTables({"person": pa.int64(), "city": pa.string()}, unsaid=True).tables(rows)
    assert made.to_pydict() == {"person": [1, 2, 3], "city": ["b", None, "c"]}
    checked = check_row(stage(), TYPES, rows[1])
    assert checked["city"].why_null == f"is a {type(cell(table)).__name__}, which does not become string"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (beam.Filter(lambda row: row["service"] == 0), "keeps or drops whole tables"),
        (beam.Map(lambda row: {"person": row["person"], "city": row["city"]}), "makes one row of each"),
    ],
)
def test_a_step_for_rows_behind_record_batches_is_refused(files: str, step: Any, message: str) -> None:
    tables = beam.Pipeline("FnApiRunner") | ReadParquet(files)
    batches = tables | beam.FlatMap(lambda table: table.to_batches()).with_output_types(pa.RecordBatch)
    with pytest.raises(RequestError, match=f"step 'Mine': {message}"):
        batches | "Mine" >> step | PrivateAggregate(stage(), types=TYPES)


@beam.ptransform_fn
def zeros_of(rows: Any) -> Any:
    return rows | "Mine" >> beam.Filter(is_zero)


class Declared(beam.PTransform):
    """A composite whose steps say nothing."""

    def expand(self, tables: Any) -> Any:
        return tables | beam.FlatMap(lambda table: [table] if table.num_rows else [])


@pytest.mark.parametrize(
    "step", [zeros_of(), beam.Filter(is_zero) | beam.Reshuffle(), beam.LogElements() | beam.Filter(is_zero), Declared()]
)
def test_a_step_for_rows_in_a_composite_of_the_users_is_refused(files: str, step: Any) -> None:
    tables = beam.Pipeline("FnApiRunner") | ReadParquet(files) | step
    with pytest.raises(RequestError, match="whole tables"):
        tables | PrivateAggregate(stage(), types=TYPES)


ON_TABLES = {
    "logs": beam.LogElements(),
    "groups": beam.WithKeys(0) | beam.GroupByKey() | beam.FlatMap(lambda pair: pair[1]).with_output_types(pa.Table),
    "batches": beam.WithKeys(0)
    | beam.GroupIntoBatches(2)
    | beam.FlatMap(lambda pair: pair[1]).with_output_types(pa.Table),
    "a pair": beam.Map(lambda table: (0, table)) | "Back" >> beam.Map(lambda pair: pair[1]).with_output_types(pa.Table),
    "a dict": beam.Map(lambda table: {"a": table})
    | "Back" >> beam.Map(lambda one: one["a"]).with_output_types(pa.Table),
    "a filter": beam.Filter(lambda table: table.num_rows > 0).with_output_types(pa.Table),
    "steps before": beam.FlatMap(zeros) | "Back" >> beam.Map(lambda table: table).with_output_types(pa.Table),
    "columns": beam.Map(lambda table: table.to_pydict())
    | "Back" >> beam.Map(lambda columns: pa.table(columns)).with_output_types(pa.Table),
    "a composite": Declared().with_output_types(pa.Table),
}


@pytest.mark.parametrize("types", [None, TYPES], ids=["", "with types"])
@pytest.mark.parametrize("steps", ON_TABLES.values(), ids=ON_TABLES)
def test_steps_on_tables_that_lose_nothing_or_say_so_are_accepted(files: str, steps: Any, types: Any) -> None:
    tables = beam.Pipeline("FnApiRunner") | ReadParquet(files) | steps
    tables | PrivateAggregate(stage(), types=types)


@pytest.mark.parametrize(
    ("step", "types"),
    [
        (beam.Map(lambda table: table.filter(pc.field("service") == 0)), None),
        (beam.FlatMap(lambda table: [table] if table.num_rows else []).with_output_types(pa.Table), None),
        (beam.Map(lambda table: table), None),
        (beam.FlatMap(lambda table: table.to_pylist()), TYPES),
    ],
    ids=["filters in a table", "declares tables", "the same", "rows of tables"],
)
def test_steps_that_work_on_tables_are_accepted(files: str, step: Any, types: Any) -> None:
    rows = beam.Pipeline("FnApiRunner") | ReadParquet(files) | step
    rows | PrivateAggregate(stage(), types=types)


def test_a_filter_behind_rows_of_tables_publishes_what_it_keeps(files: str) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | ReadParquet(files) | beam.FlatMap(lambda table: table.to_pylist()) | beam.Filter(is_zero)
        rows | PrivateAggregate(stage(), types=TYPES) | beam.Map(_check_cities)


def _check_cities(table: pa.Table) -> None:
    assert table.column("city").to_pylist() == ["a", "c"]


READERS = {
    "ours": (lambda files: ReadParquet(files) | beam.Map(lambda table: table), True),
    "Beam's": (lambda files: beam.io.ReadFromParquetBatched(files), True),
    "Beam's for rows": (lambda files: beam.io.ReadFromParquet(files), False),
    "the user's": (lambda files: beam.Create([files]) | beam.FlatMap(lambda name: [pq.read_table(name)]), False),
    "the user's with a hint": (
        lambda files: beam.Create([files]) | beam.FlatMap(lambda name: []).with_output_types(pa.Table),
        True,
    ),
}


@pytest.mark.parametrize(("reader", "is_accepted"), READERS.values(), ids=READERS)
def test_elements_of_which_nothing_gives_the_types_are_refused_when_the_pipeline_is_built(
    files: str, reader: Any, is_accepted: bool
) -> None:
    rows = beam.Pipeline("FnApiRunner") | reader(files)
    message = r"input: holds elements without a type hint, and no types are declared; write types={\"person\": .*pyarrow.Table"
    expected = contextlib.nullcontext() if is_accepted else pytest.raises(RequestError, match=message)
    with expected:
        rows | PrivateAggregate(stage())
    rows | "Typed" >> PrivateAggregate(stage(), types=TYPES)
