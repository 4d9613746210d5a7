"""Runs that publish more than Parquet: the same rows in each format.

In: the shop. Out: published folders, exit codes. Holds: runs are real. Not covered: each type in each format
(`tests/jobs/outputs`); tables in other places (`tests/extensions/lake`).
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.outputs.outputs import Outputs
from dp_pipelines.jobs.outputs.text_tables import FORMATS
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
BOTH = {"files": ["csv", "jsonl"]}
LISTED = {"public": [["p0"], ["p1"]]}
WEEKS = {"epsilon": 8.0, "delta": 1e-5, "runs": 3}


def run(shop: Shop, call: Call, run_id: str, *more: object, out: str = "") -> Said:
    """One run of the shop's job."""
    return call("run", shop.job, "--output", shop.folder / (out or run_id), "--run-id", run_id, *more)


def manifest_of(folder: pathlib.Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def rows_of(path: pathlib.Path) -> list[dict[str, Any]]:
    return list(pa.parquet.read_table(path).to_pylist())


def test_text_files_hold_the_rows_of_the_parquet_files(shop: Shop, call: Call) -> None:
    lists = {"prices": {"kind": "histogram", "column": "price", "edges": [0, 5, 20]}}
    listed = stage(partitions={"public": [["p0"], [None], [""]]}, metrics={**stage()["metrics"], **lists})  # type: ignore[dict-item]
    shop.write(stages={"weekly": stage(), "listed": listed}, outputs=BOTH)
    said = run(shop, call, "one")
    assert (said.code, said.err) == (0, "")
    out = shop.folder / "one"
    for name in ("weekly", "listed"):
        table = out / f"{name}.parquet"
        said_types = duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE FROM '{table}')").fetchall()
        types = "{" + ", ".join(f"'{column}': '{kind}'" for column, kind in said_types) + "}"
        there = duckdb.sql(f"SELECT * FROM '{table}'").fetchall()
        assert len(there) >= 3
        text = f"read_csv('{out / name}.csv', columns = {types}, header = true, allow_quoted_nulls = false)"
        assert duckdb.sql(f"SELECT * FROM {text}").fetchall() == there
        lines = f"read_json('{out / name}.jsonl', columns = {types}, format = 'newline_delimited')"
        assert duckdb.sql(f"SELECT * FROM {lines}").fetchall() == there
    names = {
        "weekly.parquet",
        "weekly.csv",
        "weekly.jsonl",
        "listed.parquet",
        "listed.csv",
        "listed.jsonl",
        "report.html",
    }
    assert set(manifest_of(out)["files"]) == names
    assert {path.name for path in out.iterdir()} == {*names, "manifest.json"}


def test_the_same_run_has_the_same_files_in_any_folder(shop: Shop, call: Call) -> None:
    shop.write(outputs=BOTH)
    assert run(shop, call, "one").code == run(shop, call, "one", out="again").code == 0
    files = [{path.name: path.read_bytes() for path in (shop.folder / name).iterdir()} for name in ("one", "again")]
    assert files[0] == files[1]
    shop.write()
    assert run(shop, call, "one", out="other").code == 2, "its formats belong to what a run id fixes"
    assert shop.charged() == 1


def test_a_job_without_outputs_is_the_run_that_it_was(shop: Shop) -> None:
    plain = check(job_file.load(str(shop.write())), ())
    assert plain.outputs == Outputs()
    assert check(job_file.load(str(shop.write(outputs=BOTH))), ()).asked == plain.asked
    assert check(job_file.load(str(shop.write(outputs=BOTH))), ()).content != plain.content


STAGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "shown": {"having": "orders > 100", "order_by": "orders desc", "limit": 2},
    "total": {"partition_by": [], "bounds": {"max_contributions": 4}},
    "rollup": {"rollup": [[], ["product"]]},
    "rollup of a list": {"rollup": [[], ["product"]], "partitions": LISTED},
    "rollup, shown": {"rollup": [[], ["product"]], "partitions": LISTED, "having": "orders > 100"},
    "shrunk": {"metrics": {"price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20, "shrink": True}}},
    "lists": {
        "metrics": {
            "bands": {"kind": "quantiles", "column": "price", "quantiles": [0.1, 0.9], "min_value": 0, "max_value": 20},
            "kinds": {"kind": "distinct_count", "column": "store"},
        }
    },
    "times and numbers": {"partition_by": ["store", "day", "at"]},
    "keys alone": {"metrics": {}, "partition_by": ["product", "store"]},
    "best": {
        "best": {"k": 2, "by": "orders"}, "partitions": LISTED,
        "metrics": {"orders": {"kind": "count"}},
        "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 1},
    },
    "arms": {
        "partitions": LISTED,
        "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 3},
        "compare": {"by": "product", "baseline": "p0", "metrics": ["orders", "revenue / orders"]},
        "metrics": {
            "orders": {"kind": "count"},
            "revenue": {"kind": "sum", "column": "price", "min_sum_per_partition": 0, "max_sum_per_partition": 60},
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", STAGES)
def test_columns_are_known_before_a_run(shop: Shop, call: Call, name: str) -> None:
    job = shop.write(
        stages={"weekly": stage(**STAGES[name])}, outputs={"files": ["jsonl"]},
        columns={"day": "CAST(paid_at AS DATE)", "at": "date_trunc('week', paid_at)"},
    )  # fmt: skip
    known = check(job_file.load(str(job)), ()).outputs.tables
    assert run(shop, call, "one", "--ledger", "none").code == 0
    out = shop.folder / "one"
    there = {path.stem: pa.parquet.read_schema(path) for path in out.glob("*.parquet")}
    assert {table: dict(zip(s.names, s.types, strict=True)) for table, s in known.items()} == {
        table: dict(zip(s.names, s.types, strict=True)) for table, s in there.items()
    }
    for table in there:
        assert len((out / f"{table}.jsonl").read_text().splitlines()) == len(rows_of(out / f"{table}.parquet"))


COPIES: list[tuple[str, str, int]] = [
    ("copy", "before", 1),
    ("copy", "after", 1),
    ("publish", "after", 1),
    ("deliver", "before", 1),
    ("add to a table", "before", 1),
    ("add to a table", "after", 1),
    ("deliver", "after", 1),
    ("add to a table", "after", 2),
    ("deliver", "after", 2),
]


def test_made_up_rows_are_in_no_text(shop: Shop, call: Call) -> None:
    shop.write(
        outputs=BOTH,
        expect={"users": 100, "rows_per_partition": 200},
        stages={"weekly": stage(partitions=LISTED)},
    )
    assert call("run", shop.job, "--output", shop.folder / "out", "--synthetic").code == 0
    assert not {path.suffix for path in (shop.folder / "out").iterdir()} & {".csv", ".jsonl"}


@needs("sql_select")
def test_a_statement_has_copies_too(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    statement = "SELECT product, count(*) AS orders FROM 'data/*.parquet' GROUP BY ALL"
    asked = ("--dataset", "shop", "--unit", "customer", "--epsilon", "8", "--delta", "1e-5", "--max-contributions", "3")
    said = call("sql", statement, *asked, "--format", "csv", "--format", "jsonl", "--output", "out", "--ledger", "none")
    assert (said.code, said.err) == (0, "")
    read = duckdb.sql(f"SELECT * FROM '{shop.folder / 'out' / 'result.csv'}'").fetchall()
    assert read == duckdb.sql(f"SELECT * FROM '{shop.folder / 'out' / 'result.parquet'}'").fetchall()
    twice = call("sql", statement, *asked, "--format", "csv", "--format", "csv", "--plan")
    assert (twice.code, twice.err) == (2, "error: --format: names a format twice; name each once\n")


@pytest.mark.parametrize("runner", ["local", pytest.param("direct", marks=pytest.mark.slow)])
def test_whatever_runs_it_copies_are_made_of_the_parquet_file(shop: Shop, call: Call, runner: str) -> None:
    shop.write(outputs=BOTH)
    assert run(shop, call, "one", "--runner", runner).code == 0
    table = shop.folder / "one" / "weekly.parquet"
    for form, text in FORMATS.items():
        text.write(table, shop.folder / form)
        assert (shop.folder / form).read_bytes() == table.with_suffix(f".{form}").read_bytes()
