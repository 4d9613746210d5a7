"""Jobs with `partition_by: []`: one row over everything, on each way from a job file to a report."""

import json
from collections.abc import Callable

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.jobs.beam_yaml.transforms import DpAggregate
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from dp_pipelines.transforms import PrivateAggregate, PrivateCount, PublishRelease
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.test_every_metric import EXAMPLES, example, tasted
from tests.report.page import Page

Call = Callable[..., Said]

ROWS = {"max_contributions_per_partition": 30}
FAR = 20
"""Standard deviations of Laplace noise: beyond them with a probability of 5e-13."""


def total(**changes: object) -> dict[str, object]:
    return stage(**{"partition_by": [], "bounds": ROWS, **changes})


@pytest.mark.usefixtures("rare_false_alarms")
def test_every_metric_is_released_over_everything(shop: Shop, call: Call) -> None:
    tasted(shop)
    metrics = {f"the_{kind}": example(kind) for kind in EXAMPLES}
    job = shop.write(stages={"overall": total(metrics=metrics)}, budget={"epsilon": 39.0, "delta": 1e-5})
    said = call("plan", job)
    assert "partitions: none; one total over everything" in said.out, said.err
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    assert "overall · total" in said.out
    assert "the_count" in said.out
    table = pa.parquet.read_table(shop.folder / "out" / "overall.parquet")
    assert table.column_names == [name for metric in metrics for name in (metric, f"{metric}_stddev")]
    (row,) = table.to_pylist()
    assert abs(row["the_count"] - 8000) < FAR * row["the_count_stddev"]
    assert abs(row["the_mean"] - 10) < 1
    (described,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    assert described["partition_by"] == []
    page = Page((shop.folder / "out" / "report.html").read_text())
    assert "The total over all counted rows" in " ".join(page.words.split())
    said = call("audit", job, "--replays", "2000")
    assert said.code == 0, said.out + said.err


@pytest.mark.usefixtures("rows_alone_pass_for_rows")
def test_where_unit_columns_chosen_bounds_and_windows_work_beside_it(shop: Shop, call: Call) -> None:
    within = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000]}
    overall = total(
        metrics={"orders": {"kind": "count"}, "revenue": within},
        unit_columns={"nth": "row_number() OVER (ORDER BY paid_at)"},
        where="nth <= 2",
    )
    window, params = {"column": "paid_at", "days": 7, "param": "week"}, {"week": {"type": "date"}}
    job = shop.write(stages={"overall": overall}, window=window, where="price > 1", params=params)
    week = ("--param", "week=2025-01-13")
    said = call("run", job, "--output", shop.folder / "out", "--ledger", "none", *week)
    assert (said.code, said.err) == (0, "")
    (row,) = pa.parquet.read_table(shop.folder / "out" / "overall.parquet").to_pylist()
    assert 1000 < row["orders"] < 2000, "two rows at most of each customer of that week"
    low, high = json.loads((shop.folder / "out" / "bounds.json").read_text())["overall"]["revenue"]
    assert low == 0
    assert 10 < high <= 32


@pytest.mark.parametrize("rows", [0, 3])
def test_a_table_without_rows_or_of_nulls_releases_noise(shop: Shop, call: Call, rows: int) -> None:
    for path in (shop.folder / "data").glob("*.parquet"):
        table = pa.parquet.read_table(path)
        nulls = {name: pa.nulls(rows, table.schema.field(name).type) for name in table.column_names}
        pa.parquet.write_table(pa.table(nulls), path)
    said = call("run", shop.write(stages={"overall": total()}), "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    (row,) = pa.parquet.read_table(shop.folder / "out" / "overall.parquet").to_pylist()
    assert abs(row["orders"]) < FAR * row["orders_stddev"]
    assert abs(row["revenue"]) < FAR * row["revenue_stddev"]


@needs("tune")
def test_it_is_tuned(shop: Shop, call: Call) -> None:
    job = shop.write(stages={"overall": total()})
    grid = "bounds.max_contributions_per_partition=2,30"
    for way in ([], ["--synthetic"]):
        folder = shop.folder / f"tuned{len(way)}"
        said = call("tune", job, "--grid", grid, "--output", folder, *way)
        assert said.code == 0, said.err
    said = call("tune", job, "--grid", "bounds.max_partitions_contributed=1,2", "--output", shop.folder / "no")
    assert said.code == 2
    assert "must be 1 where partition_by is empty" in said.err


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"partitions": {"private": {}}}, "partitions", "one public partition: everything"),
        ({"partitions": {"private": {"strategy": "sips"}}}, "partitions", "one public partition: everything"),
        ({"partitions": {"public": [["p1"]]}}, "partitions", "one public partition: everything"),
        ({"top": {"k": 1, "by": "orders"}}, "top", "there is one"),
        ({"best": {"by": "orders"}, "metrics": {"orders": {"kind": "count"}}}, "best", "there is one"),
        ({"bounds": {**ROWS, "max_partitions_contributed": 2}}, "bounds.max_partitions_contributed", "leave it out"),
        ({"bounds": {}}, "bounds.max_contributions_per_partition", "is needed by"),
        ({"partition_by": "product", "bounds": ROWS}, "bounds", "must say how much one privacy unit"),
    ],
)
def test_what_cannot_stand_beside_it_is_told_with_its_line(
    shop: Shop, call: Call, changes: dict[str, object], place: str, said: str
) -> None:
    told = call("plan", shop.write(stages={"overall": total(**changes)}))
    assert told.code == 2
    assert f"stages.overall.{place}: " in told.err
    assert said in told.err
    assert "job.yaml:" in told.err


def test_a_session_a_transform_and_beam_yaml_answer_it_alike(shop: Shop) -> None:
    rows = pa.parquet.read_table(shop.folder / "data")
    session = dp.Session(
        rows,
        privacy_unit="customer",
        dataset="shop",
        ledger=shop.folder / DEFAULT_NAME,
        releases=shop.folder / "released",
    )
    metrics, bounds = {"orders": dp.Count()}, dp.ContributionBounds(max_contributions_per_partition=30)
    release = session.query(name="overall", epsilon=30.0, partition_by=[], metrics=metrics, bounds=bounds, show=False)
    assert repr(release).startswith("overall · total\norders")
    assert "overall</b> · total" in release._repr_html_()
    found = [release.to_arrow().to_pylist()[0]]

    query = dp.Query(privacy_unit="customer", partition_by=[], metrics=metrics, bounds=bounds)
    plan = dp.Plan(epsilon=30.0, stages={"overall": query})
    one = PrivateCount(privacy_unit="customer", partition_by=[], epsilon=30.0, delta=0.0, bounds=bounds, name="orders")
    for number, asked in enumerate((PrivateAggregate(plan["overall"]), one)):
        folder = shop.folder / f"piped{number}"
        with beam.Pipeline("FnApiRunner") as pipeline:
            tables = pipeline | beam.Create([rows.slice(0, 3000), rows.slice(3000)]).with_output_types(pa.Table)
            _ = tables | asked | PublishRelease(str(folder))
        (file,) = folder.glob("*.parquet")
        found += pa.parquet.read_table(file).to_pylist()
    settings = {"bounds": {"max_contributions_per_partition": 30}, "metrics": {"orders": {"kind": "count"}}}
    folder = shop.folder / "yaml"
    with beam.Pipeline("FnApiRunner") as pipeline:
        units = pipeline | beam.Create([beam.Row(customer=int(unit)) for unit in rows["customer"].to_pylist()])
        _ = units | DpAggregate(
            epsilon=30.0, ledger="none", privacy_unit="customer", partition_by=[], output=str(folder), **settings
        )
    found += pa.parquet.read_table(folder / "aggregate.parquet").to_pylist()
    assert len(found) == 4
    assert all(list(row) == ["orders", "orders_stddev"] for row in found)
    assert all(abs(row["orders"] - 8000) < FAR * row["orders_stddev"] for row in found)
