"""Copies of one table in every format that a job can read: the same statistics before the noise.

In: `tests.helpers.copies`. Out: exact statistics. Holds: a format changes no bit, on threads of this process and on Beam's own
runner. Not covered: what stands in files that no library writes (the tests of each reader); noise.
"""

import functools
import io
import pathlib
from typing import Any

import apache_beam as beam
import pytest
import yaml

from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.sources import declared_source
from dp_pipelines.jobs.sources.read_source import rows_of
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.source_models import SourceModel
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.transforms.beam_flow import beginning
from tests.engines import exact
from tests.helpers import copies, graph
from tests.helpers.extension_folders import needs

EACH = [
    pytest.param(name, marks=[needs("lake")] if name in ("avro", "delta", "iceberg") else []) for name in copies.FORMATS
]
"""The names of all formats, as parameters of tests."""

STAGES = {
    "weekly": {
        "kind": "aggregate",
        "partition_by": ["product", "day"],
        "bounds": {"max_partitions_contributed": 4, "max_contributions_per_partition": 2},
        "metrics": {
            "orders": {"kind": "count"},
            "buyers": {"kind": "privacy_id_count"},
            "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
        },
    }
}


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The exact statistics of a copy, on a runner."""

    @functools.cache
    def of(name: str, runner: str) -> exact.Dump:
        folder = tmp_path_factory.mktemp(name)
        source = copies.FORMATS[name](copies.purchases(2000), folder / "rows")
        job = {
            "dataset": "shop",
            "privacy_unit": "customer",
            "budget": {"epsilon": 1.0, "delta": 1e-5},
            "source": source,
            "where": "paid_at >= TIMESTAMP '2025-01-10'",
            "stages": STAGES,
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        staged = folder / "staged"
        staged.mkdir()
        with engines.engine(runner, []) as engine:
            return exact.dump(folder / "job.yaml", engine, Progress(io.StringIO()), pathlib.Path(staged))

    return of


@pytest.mark.parametrize("name", EACH)
def test_what_travels_between_steps_is_never_pickled(tmp_path: pathlib.Path, name: str) -> None:
    source = SourceModel.model_validate(copies.FORMATS[name](copies.purchases(200), tmp_path / "rows"))
    found = declared_source.look(source, tmp_path, {}, Content(data={}))
    pipeline = beam.Pipeline()
    rows_of(beginning(pipeline), found, found.schema.names)
    assert graph.pickled_collections(pipeline) == []


@pytest.mark.parametrize("name", [each for each in EACH if each.values != ("parquet",)])
@pytest.mark.parametrize("runner", ["local", "direct"])
def test_a_format_changes_no_bit(computed: Any, name: str, runner: str) -> None:
    expected = computed("parquet", "local")
    assert expected["weekly.parquet"].num_rows > 100
    assert exact.differences(expected, computed(name, runner)) == []
