"""examples/ta_feng/shop.yaml, with which the demo opens, on made-up rows as many as Ta Feng has: its numbers are clear.

In: the job file. Out: the release. Holds: the file is the one that `make demo` runs. Not covered: real data.
"""

import datetime
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.jobs.run import run
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.metrics.error_bars import ERROR_BAR

JOB = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ta_feng" / "shop.yaml"
ROWS, CUSTOMERS = 817_741, 32_266


def purchases() -> pa.Table:
    """Rows with the columns that the job reads: some customers buy much more than others, some departments sell much more."""
    made = np.random.default_rng(20001101)
    day = np.datetime64("2000-11-01", "D") + made.integers(0, 120, ROWS)
    customer = np.minimum(made.pareto(1.2, ROWS) * 2000, CUSTOMERS - 1).astype(np.int64)
    department = np.minimum(made.exponential(6.0, ROWS), 29).astype(np.int64) + 10
    return pa.table({
        "TRANSACTION_DT": pa.array(day),
        "CUSTOMER_ID": pa.array(made.permutation(CUSTOMERS)[customer]).cast(pa.string()),
        "PRODUCT_SUBCLASS": pa.array(department * 10_000 + made.integers(0, 99, ROWS)).cast(pa.string()),
        "SALES_PRICE": pa.array(made.lognormal(4.3, 0.9, ROWS).astype(np.int32)),
    })  # fmt: skip


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "data").mkdir()
    pq.write_table(purchases(), folder / "data" / "rows.parquet")
    (folder / "shop.yaml").write_text(JOB.read_text().replace("../../data/ta_feng/", "data/"))
    run.run(job_file.load(str(folder / "shop.yaml")), str(folder / "out"), ledger="none")
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["weeks", "departments"])
def test_four_of_five_numbers_differ_from_zero_by_twice_their_error_bar(released: pathlib.Path, stage: str) -> None:
    table = pq.read_table(released / f"{stage}.parquet").to_pydict()
    metrics = [name for name in table if f"{name}_stddev" in table]
    clear = [
        abs(value) > 2 * ERROR_BAR * stddev
        for name in metrics
        for value, stddev in zip(table[name], table[f"{name}_stddev"], strict=True)
    ]
    assert len(clear) >= 60
    assert np.mean(clear) >= 0.8


@pytest.mark.slow
def test_weeks_come_first_and_have_the_mondays_of_the_data(released: pathlib.Path) -> None:
    assert next(iter(job_file.load(str(JOB)).job.stages)) == "weeks"
    weeks = pq.read_table(released / "weeks.parquet")["week"].to_pylist()
    assert set(weeks) <= {datetime.date(2000, 10, 30) + datetime.timedelta(7 * number) for number in range(18)}
