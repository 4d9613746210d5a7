"""examples/ta_feng/customers.yaml on made-up rows of the same columns: it runs, and no feature knows the future.

In: the job file. Out: the release, examples. Holds: the file is the one that `make demo` runs. Not covered: real data.
"""

import dataclasses
import datetime
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dp_pipelines.jobs.request import request
from dp_pipelines.jobs.run import run
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.training import artefact

JOB = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ta_feng" / "customers.yaml"
LABEL = {"next_day", "returns"}
"""What may look ahead."""


def purchases(rows: int = 20_000) -> pa.Table:
    """Rows with Ta Feng's columns."""
    made = np.random.default_rng(20001101)
    days = [datetime.date(2000, 11, 1) + datetime.timedelta(int(day)) for day in made.integers(0, 120, rows)]
    return pa.table({
        "TRANSACTION_DT": days,
        "CUSTOMER_ID": [f"{number:08}" for number in made.integers(0, 1500, rows)],
        "AGE_GROUP": made.choice(["25-29", "30-34"], rows),
        "PIN_CODE": made.choice(["115", "221", "Others"], rows),
        "PRODUCT_SUBCLASS": made.choice(["100102", "100205", "110101"], rows),
        "PRODUCT_ID": [str(number) for number in made.integers(0, 500, rows)],
        "AMOUNT": pa.array(made.integers(1, 5, rows), pa.int32()),
        "ASSET": pa.array(made.integers(10, 500, rows), pa.int32()),
        "SALES_PRICE": pa.array(made.integers(10, 500, rows), pa.int32()),
    })  # fmt: skip


@pytest.fixture
def job(tmp_path: pathlib.Path) -> job_file.JobFile:
    """The job over made-up rows."""
    pq.write_table(purchases(), tmp_path / "rows.parquet")
    text = JOB.read_text().replace("../../data/ta_feng/*.parquet", "rows.parquet")
    return job_file.read(text, tmp_path / "customers.yaml", "customers.yaml")


@pytest.mark.slow
def test_the_job_publishes_its_report_and_its_model(job: job_file.JobFile, tmp_path: pathlib.Path) -> None:
    done = run.run(job, str(tmp_path / "out"), ledger="none")
    files = set(done.manifest["files"])
    assert {"weekly.parquet", "subclasses.parquet", "baskets.parquet", "report.html"} <= files
    assert {"returns/model.json", "returns/model.safetensors", "returns/evaluation.json"} <= files
    assert artefact.load(tmp_path / "out" / "returns").task.features["visits"].column == "visits"
    metrics = sum(len(stage["metrics"]) for stage in done.manifest["stages"])
    assert metrics >= 12
    assert "returns" in (tmp_path / "out" / "report.html").read_text()


def test_no_feature_of_the_model_looks_past_its_own_day(job: job_file.JobFile) -> None:
    asked = request.check(job, [])
    unit = dataclasses.replace(asked.tasks["returns"].unit.expressions, where=None)
    rows = asked.rows.apply(purchases(3000))
    last = 70
    before = rows.filter(pc.less_equal(rows.column("day"), last))
    whole, cut = unit.apply(rows), unit.apply(before)
    whole = whole.filter(pc.less_equal(whole.column("day"), last))
    for name in whole.column_names:
        same = whole.column(name).combine_chunks().equals(cut.column(name).combine_chunks())
        assert same or name in LABEL, name
    features = {feature.column for feature in asked.tasks["returns"].model.features.values()}
    assert not features & LABEL
    # The label itself does look ahead, or this would show nothing.
    assert not whole.column("returns").combine_chunks().equals(cut.column("returns").combine_chunks())
