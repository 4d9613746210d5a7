"""Pipelines as Beam users write them around a release: sources, sinks and options of Beam's own work, or are refused when built.

In: made-up rows. Out: releases with noise that hardly counts. Not covered: forms of rows (`test_input_tables`), sinks of rows
(`test_to_rows`), windows (`test_windowed_rows`).
"""

import pathlib
import pickle
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.dataframe.convert import to_pcollection
from apache_beam.dataframe.io import read_csv
from apache_beam.io.parquetio import ReadFromParquetBatched
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse

from dp_pipelines import Plan, RequestError
from dp_pipelines.transforms import PrivateAggregate
from tests.transforms.rows.test_input_tables import DICTS, EXPECTED, TABLE, TYPES, numbers, orders, query, stage


def released(rows: Any, types: Any = None) -> Any:
    """What is released of rows, rounded."""
    return rows | PrivateAggregate(stage(), types=types, num_shards=1) | beam.FlatMap(numbers)


def csv_of(folder: pathlib.Path) -> str:
    """The rows as a text file."""
    lines = [",".join(TYPES)] + [",".join(map(str, row.values())) for row in DICTS]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "rows.csv")


def test_beams_sources_are_read_as_they_are(tmp_path: pathlib.Path) -> None:
    path = csv_of(tmp_path)
    pa.parquet.write_table(TABLE, tmp_path / "rows.parquet")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        sources = {
            "batched": pipeline | ReadFromParquetBatched(str(tmp_path / "rows.parquet")),
            "csv": pipeline | beam.io.ReadFromCsv(path),
            "frame": to_pcollection(pipeline | "Frame" >> read_csv(path)),
        }
        for name, rows in sources.items():
            types = None if name == "batched" else TYPES  # of text in files Beam knows no type
            found = rows | f"R {name}" >> PrivateAggregate(stage(), types=types, num_shards=1)
            assert_that(found | f"N {name}" >> beam.FlatMap(numbers), equal_to(EXPECTED), label=name)


def test_frames_of_beam_are_read_with_declared_types(tmp_path: pathlib.Path) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        frames = to_pcollection(pipeline | read_csv(csv_of(tmp_path)), yield_elements="pandas")
        assert_that(released(frames, TYPES), equal_to(EXPECTED))


def test_side_outputs_and_several_plans_and_stages_stand_in_one_pipeline() -> None:
    def split(row: Any) -> Any:
        yield beam.pvalue.TaggedOutput("odd" if row["who"] % 2 else "even", row)

    both = Plan(epsilon=39.0, delta=1e-6, stages={"first": query(), "second": query()})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        dicts = pipeline | beam.Create(DICTS)
        odd = (dicts | beam.FlatMap(split).with_outputs("odd", "even")).odd
        counts = odd | "Odd" >> PrivateAggregate(stage(), types=TYPES, num_shards=1)
        assert_that(counts | beam.FlatMap(numbers), equal_to([("a", 0, 0), EXPECTED[1]]))
        for name in both:
            found = dicts | name >> PrivateAggregate(both[name], types=TYPES, num_shards=1)
            assert_that(found | f"N {name}" >> beam.FlatMap(numbers), equal_to(EXPECTED), label=name)


def test_a_release_is_a_side_input_and_a_dict() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = orders(pipeline) | PrivateAggregate(stage(), num_shards=1)
        regions = tables | beam.FlatMap(pa.Table.to_pylist) | beam.Map(lambda row: row["region"])
        together = (
            pipeline
            | "Known" >> beam.Create(["b", "c"])
            | beam.Filter(lambda x, known: x in known, beam.pvalue.AsList(regions))
        )
        assert_that(together, equal_to(["b"]))


@pytest.mark.parametrize("option", ["--runtime_type_check", "--save_main_session", "--pickle_library=cloudpickle"])
def test_options_of_beam_change_nothing(option: str) -> None:
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([option])) as pipeline:
        assert_that(released(pipeline | beam.Create(DICTS), TYPES), equal_to(EXPECTED))


def test_a_release_that_was_pickled_is_the_same() -> None:
    transform = PrivateAggregate(stage(), types=TYPES, num_shards=1)
    again = pickle.loads(pickle.dumps(transform))
    assert (again.stage, again.types, again.salt) == (transform.stage, transform.types, transform.salt)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | beam.Create(DICTS) | again | beam.FlatMap(numbers), equal_to(EXPECTED))


@pytest.mark.parametrize("stream", [test_stream.TestStream, PeriodicImpulse])
def test_streams_are_refused_when_the_pipeline_is_built(stream: Any) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    rows = pipeline | stream() | beam.Map(lambda _: DICTS[0]).with_output_types(dict[str, Any])
    with pytest.raises(RequestError, match="input: is unbounded"):
        rows | PrivateAggregate(stage(), types=TYPES)
