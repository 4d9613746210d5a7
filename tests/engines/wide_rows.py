"""A job that shuffles one column in forty forms, and what each shard of it holds on an engine.

In: an engine. Out: bytes of each shard as it arrives. Holds: the graph, its sizes and its shuffle are the product's; one step
weighs what it is given before it works. Tests only.
"""

import io
import os
import pathlib
import uuid
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.request import request
from dp_pipelines.jobs.run import pipelines
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.steps import release_stage
from dp_pipelines.steps.aggregate import ToPartials
from tests.engines import cases

CLAMPS = 40
ROWS = 20_000
NOTES = "DP_TEST_WEIGHTS"


def forty_clamps(folder: pathlib.Path, rows: int = ROWS, clamps: int = CLAMPS) -> pathlib.Path:
    """A job of sums over one column with as many clamps."""
    made = np.random.default_rng(3)
    table = pa.table(
        {
            "customer": made.integers(0, rows // 10, rows),
            "store": made.integers(0, 50, rows),
            "price": made.random(rows),
        }
    )
    sums = {
        f"up_to_{most}": {"kind": "sum", "column": "price", "min_value": 0, "max_value": most}
        for most in range(1, clamps + 1)
    }
    stage = cases.aggregate(partition_by=["store"], partitions={"public": [[n] for n in range(50)]}, metrics=sums)
    made_job = cases.job(folder, [table.slice(0, 1)], stages={"wide": stage})
    pa.parquet.write_table(table, folder / "data" / "part-0.parquet")  # in row groups as they usually are
    return made_job


class Weighed(ToPartials):
    """Notes what it is given."""

    def load(self, element: tuple[int, Iterable[pa.Table]]) -> tuple[int, list[pa.Table]]:
        key, tables = super().load(element)
        note = pathlib.Path(os.environ[NOTES]) / uuid.uuid4().hex
        note.write_text(str(sum(table.nbytes for table in tables)))
        return key, tables


def shards_of(job: pathlib.Path, engine: Engine, folder: pathlib.Path) -> list[int]:
    """The bytes of each shard of a job on an engine.

    Args:
        job: the job file.
        engine: runs it.
        folder: empty.
    """
    asked = request.check(file := job_file.load(str(job)), [])
    plan = running.plan_of(file, asked.stages)
    notes, staged = folder / "notes", folder / "staged"
    for made in (notes, staged):
        made.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_stage, "ToPartials", Weighed)
        patch.setenv(NOTES, str(notes))
        pipelines.run_pipeline(asked, plan.round(1).stages, staged, engine, Progress(io.StringIO()))
    return [int(note.read_text()) for note in notes.iterdir()]
