"""Rows in and rows out on runners whose workers get the pipeline as bytes: Beam's job service in this process, and Prism.

In: forms of rows, windows, pairs; Prism where `make test-prism` has built it with Go. Out: the releases of the direct runner.
"""

import json
import pathlib

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from dp_pipelines.transforms import PrivateAggregate, PrivateCountPerKey, PublishRelease, ToRows
from tests.engines.setups import BUILT
from tests.transforms.rows import test_input_tables as forms
from tests.transforms.rows import test_per_key as per_key
from tests.transforms.rows import test_windowed_rows as windowed

PRISM = BUILT / "prism" / "prism"

pytestmark = pytest.mark.slow


@pytest.fixture(params=["loopback", "prism"])
def options(request: pytest.FixtureRequest) -> PipelineOptions:
    """Of another runner."""
    if request.param == "loopback":
        return PipelineOptions(["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"])
    if not PRISM.is_file():
        pytest.skip("prism is not built: `make test-prism` does, with Go")
    return PipelineOptions(["--runner=PrismRunner", f"--prism_location={PRISM}", "--environment_type=LOOPBACK"])


@pytest.mark.parametrize("form", ["named tuples", "beam rows", "dicts", "tables", "record batches", "pandas frames"])
def test_every_form_of_rows_gives_the_same_release(form: str, options: PipelineOptions) -> None:
    with beam.Pipeline(options=options) as pipeline:
        rows, types = forms.FORMS[form]
        released = rows(pipeline) | PrivateAggregate(forms.stage(), types=types, num_shards=2)
        assert_that(released | beam.FlatMap(forms.numbers), equal_to(forms.EXPECTED))


def test_every_declared_window_is_released(options: PipelineOptions) -> None:
    with beam.Pipeline(options=options) as pipeline:
        stage = windowed.stage(windowed.weeks(unit="user_in_window"))
        found = windowed.released(pipeline, windowed.MANY + windowed.ELSEWHERE, stage)
        counts = found | beam.FlatMap(lambda table: [round(count / 20) * 20 for count in table["rows"].to_pylist()])
        assert_that(counts, equal_to([200, 0, 0, 200, 0, 0]))


def test_pairs_are_counted_by_key(options: PipelineOptions) -> None:
    with beam.Pipeline(options=options) as pipeline:
        counts = pipeline | beam.Create(per_key.PAIRS) | PrivateCountPerKey(**per_key.SETTINGS)
        assert_that(counts | beam.Map(per_key.rounded), equal_to([("a", 200), ("b", 200)]))


def test_rows_and_a_folder_are_written(options: PipelineOptions, tmp_path: pathlib.Path) -> None:
    with beam.Pipeline(options=options) as pipeline:
        tables = forms.orders(pipeline) | PrivateAggregate(forms.stage(), num_shards=2)
        tables | ToRows() | beam.io.WriteToJson(str(tmp_path / "rows"))
        tables | PublishRelease(str(tmp_path / "out"))
    lines = [line for path in tmp_path.glob("rows*") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["region"] for line in lines) == ["a", "b"]
    assert (tmp_path / "out" / "s.parquet").is_file()
