"""`run --synthetic`: reports of made-up rows, which cost nothing, read nothing, and are never taken for releases.

In: the shop, mostly without its rows. Out: folders, messages, exit codes. Holds: runs are real. Not covered: how made-up rows
are spread (`test_synthetic_rows`).
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.release import manifest
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

COUNT = {"orders": {"kind": "count"}}
BOUNDS = {"max_partitions_contributed": 3, "max_contributions_per_partition": 2}


@pytest.fixture
def fresh(shop: Shop) -> Shop:
    """The shop before it has a ledger, with files that hold no row."""
    shop.without_ledger()
    for path in (shop.folder / "data").iterdir():
        pa.parquet.write_table(pa.parquet.read_schema(path).empty_table(), path)
    return shop


def made(shop: Shop, call: Call, **changes: object) -> Path:
    """The folder of a report of made-up rows."""
    out = shop.folder / "made-up"
    said = call("run", shop.write(**changes), "--output", out, "--synthetic")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("MADE-UP ROWS: ")
    assert said.out.rstrip().endswith("MADE-UP ROWS: NO NUMBER HERE IS ABOUT REAL DATA, AND NOTHING WAS CHARGED")
    assert "spent " not in said.out
    return out


def rows(out: Path, name: str = "weekly") -> pa.Table:
    """A published table."""
    return pa.parquet.read_table(out / f"{name}.parquet")


def test_a_report_of_made_up_rows_says_so_everywhere_and_opens_no_ledger(fresh: Shop, call: Call) -> None:
    out = made(fresh, call, where="price > 1000000")
    assert rows(out).num_rows > 3
    assert fresh.left() == sorted(["made-up", *(f"made-up/{path.name}" for path in out.iterdir())])
    assert not (fresh.folder / "dp-ledger.sqlite").exists()
    content = json.loads((out / "manifest.json").read_text())
    assert content["format"] == manifest.MADE_UP_FORMAT
    assert content["synthetic"]["words"] == manifest.MADE_UP
    assert (content["run_id"], content["ledger"]["head"]) == ("synthetic", None)
    page = (out / "report.html").read_text()
    assert "<title>MADE-UP ROWS: " in page
    assert "Made-up rows: not a release" in page
    assert "10,000 users, each a privacy unit" in page
    assert (out / "MADE-UP-ROWS.txt").read_text().startswith(manifest.MADE_UP)
    tables = list(out.glob("*.parquet"))
    assert tables
    assert {pa.parquet.read_schema(path).metadata[b"dp_pipelines"] for path in tables} == {b"made-up rows"}


def test_where_a_total_is_printed_it_is_said_to_mean_nothing(fresh: Shop, call: Call) -> None:
    total = {"partition_by": [], "bounds": {"max_contributions_per_partition": 4}, "metrics": {"n": {"kind": "count"}}}
    out = fresh.folder / "made-up"
    said = call("run", fresh.write(stages={"total": {"kind": "aggregate", **total}}), "--output", out, "--synthetic")
    assert manifest.MADE_UP_TOTALS in said.out.partition("total · total")[2]
    page = (out / "report.html").read_text()
    (number,) = re.findall(r"<dl class=.headlines.>.*?</dl>", page, re.DOTALL)
    assert "Of made-up rows: this number means nothing." in number
    assert "in truth" not in number
    assert "The total over made-up rows: it means nothing." in page
    assert manifest.MADE_UP_TOTALS in (out / "MADE-UP-ROWS.txt").read_text()
    assert json.loads((out / "manifest.json").read_text())["synthetic"]["totals"] == manifest.MADE_UP_TOTALS


def test_a_release_says_nothing_of_made_up_rows(shop: Shop, call: Call) -> None:
    total = {"partition_by": [], "bounds": {"max_contributions_per_partition": 4}, "metrics": {"n": {"kind": "count"}}}
    out = shop.folder / "real"
    said = call("run", shop.write(stages={"total": {"kind": "aggregate", **total}}), "--output", out)
    assert said.code == 0
    assert "made-up" not in said.out + (out / "report.html").read_text()


def test_no_reader_of_releases_takes_it_for_one(shop: Shop, call: Call) -> None:
    out, real = made(shop, call), shop.folder / "real"
    assert manifest.read_manifest(out) is None
    assert call("run", shop.job, "--output", real).code == 0
    for command in (
        ("report", real, out, "--output", shop.folder / "page.html"),
        ("report", out, "--output", shop.folder / "page.html"),
        ("run", shop.job, "--output", out),
        ("run", shop.job, "--output", out, "--synthetic"),
    ):
        said = call(*command)
        assert (said.code, said.out) == (2, "")
        assert "made-up rows (run --synthetic)" in said.err
    assert call("run", shop.job, "--output", real, "--synthetic").code == 2
    assert not (shop.folder / "page.html").exists()


def test_a_job_of_csv_files_needs_nothing_but_itself(tmp_path: Path, call: Call) -> None:
    job = Shop(tmp_path).write(
        source={"csv": "none/*.csv", "types": {"customer": "string", "day": "date", "price": "double"}},
        stages={"weekly": stage(partition_by=["day"])},
    )
    said = call("run", job, "--output", tmp_path / "out", "--synthetic")
    assert (said.code, said.err) == (0, "")
    assert rows(tmp_path / "out").schema.field("day").type == pa.date32()


def test_declared_sizes_decide_how_large_groups_are(fresh: Shop, call: Call) -> None:
    out = made(fresh, call, expect={"users": 2000, "rows_per_partition": 3000})
    orders = rows(out).column("orders").to_pylist()
    assert 1000 < sum(orders) / len(orders) < 9000


def test_all_that_a_stage_can_declare_finds_rows(fresh: Shop, call: Call) -> None:
    listed = pa.table({"store": [1, 2, 3], "city": ["a", "b", None], "top": [5.0, 10.0, 20.0]})
    pa.parquet.write_table(listed, fresh.folder / "stores.parquet")
    tags = pa.table({"product": ["tea", "tea", "jam"], "city": ["a", "a", "b"], "tag": ["hot", "leaf", "sweet"]})
    pa.parquet.write_table(tags, fresh.folder / "tags.parquet")
    auto = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000]}
    by_store = {"kind": "sum", "column": "price", "min_value": 0, "max_value": {"lookup": "top", "default": 20}}
    lists = {
        "sizes": {"kind": "histogram", "column": "price", "edges": [0, 5, 10, 20]},
        "typical": {"kind": "quantiles", "column": "price", "quantiles": [0.5], "min_value": 0, "max_value": 20},
    }
    out = made(
        fresh,
        call,
        where="note <> 'x'",
        columns={"week": "CAST(date_trunc('week', paid_at) AS DATE)"},
        lookup=[
            {"parquet": "stores.parquet", "on": "store"},
            {"parquet": "tags.parquet", "on": ["product", "city"], "max_rows_per_key": 2},
        ],
        stages={
            "tags": stage(partition_by=["tag"], metrics=COUNT),
            "weekly": stage(partition_by=["week"], kept={"share": 0.1}),
            "cities": stage(partition_by=["city"], metrics={**COUNT, "revenue": auto}),
            "stores": stage(partition_by=["store"], metrics={"revenue": by_store}),
            "listed": stage(partitions={"public": [["tea"], ["jam"]]}, metrics={**COUNT, **lists}),
            "chosen": stage(partitions={"private": {"strategy": "sips"}}, metrics=COUNT),
            "total": stage(partition_by=[], bounds={"max_contributions_per_partition": 4}, metrics=COUNT),
        },
    )
    kept = json.loads((out / "kept.json").read_text())["weekly"]
    assert {"where", "lookup"} <= set(json.dumps(kept).replace('"', " ").split())
    assert set(rows(out, "cities").column("city").to_pylist()) >= {"a", "b"}
    assert {"hot", "leaf"} <= set(rows(out, "tags").column("tag").to_pylist())
    assert sorted(rows(out, "stores").column("store").to_pylist()) == [1, 2, 3]
    assert min(rows(out, "listed").column("orders").to_pylist()) > 100
    assert rows(out, "chosen").column("product").to_pylist() == ["jam", "tea"]
    assert rows(out, "total").column("orders").to_pylist()[0] > 1000


@pytest.mark.slow
def test_predictions_of_a_model_of_made_up_rows_are_warned_of(shop: Shop, call: Call) -> None:
    learn = {
        "kind": "train",
        "label": {"kind": "binary", "column": "dear"},
        "features": {"store": {"kind": "number", "column": "store", "min_value": 0, "max_value": 4}},
        "model": {"kind": "linear"},
    }
    out = made(
        shop, call, columns={"dear": "price > 10"}, stages={"dear": learn}, budget={"epsilon": 3.0, "delta": 1e-5}
    )
    said = call(
        "predict", out, shop.folder / "data" / "part-0.parquet", "--output", shop.folder / "predictions.parquet"
    )
    assert said.code == 0
    assert "warning: the model was trained on made-up rows" in said.err
    assert "warning: the model was trained on made-up rows" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ledger", "none"], "--ledger: is for real rows"),
        (["--runner", "flink"], "--runner: is for real rows"),
        (["--run-id", "w1"], "--run-id: is for real rows"),
        (["--anchor", "here"], "--anchor: is for real rows"),
    ],
)
def test_options_of_real_runs_are_refused(shop: Shop, call: Call, arguments: list[str], words: str) -> None:
    said = call("run", shop.job, "--output", shop.folder / "out", "--synthetic", *arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert shop.left() == []
