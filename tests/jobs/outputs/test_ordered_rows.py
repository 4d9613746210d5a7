"""Text files have the rows of a table in the order that the job asks for; the Parquet file stays sorted by key.

In: real runs with `order_by`, `limit` and `top`. Out: the keys in CSV and JSON lines beside those in Parquet. Holds: all files
hold the same rows. Not covered: what limits choose (tests/jobs/run/test_shown_rows.py).
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.outputs import ordered_rows
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]


def keys_of(folder: pathlib.Path) -> tuple[list[str], list[str], list[str]]:
    """The products in Parquet, CSV and JSON lines."""
    parquet = pa.parquet.read_table(folder / "weekly.parquet").column("product").to_pylist()
    csv = [line.split(",")[0].strip('"') for line in (folder / "weekly.csv").read_text().splitlines()[1:]]
    lines = [json.loads(line)["product"] for line in (folder / "weekly.jsonl").read_text().splitlines()]
    return parquet, csv, lines


def by_orders(folder: pathlib.Path) -> list[str]:
    """The products of the Parquet file, those with the most orders first."""
    table = pa.parquet.read_table(folder / "weekly.parquet")
    order = np.argsort(-np.asarray(table.column("orders")), kind="stable")
    return [table.column("product").to_pylist()[at] for at in order]


@pytest.mark.parametrize(
    "changes",
    [
        {"order_by": "orders desc"},
        {"order_by": "orders desc", "limit": 3},
        {"top": {"k": 3, "by": "orders"}},
    ],
)
@pytest.mark.parametrize("options", [{}, {"rounded": True, "interval": True}], ids=["plain", "spreadsheet"])
def test_text_files_have_the_order_of_the_job_and_parquet_that_of_the_keys(
    shop: Shop, call: Call, changes: dict[str, Any], options: dict[str, Any]
) -> None:
    csv: Any = {"csv": options} if options else "csv"
    shop.write(stages={"weekly": stage(**changes)}, outputs={"files": [csv, "jsonl"]})
    said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    assert said.code == 0, said.err
    parquet, csv_keys, lines = keys_of(shop.folder / "out")
    assert parquet == sorted(parquet)
    assert csv_keys == lines == by_orders(shop.folder / "out")
    assert not list((shop.folder / "out").glob(".*"))
    again = call("report", shop.folder / "out", "--csv", shop.folder / "again")
    assert again.code == 0, again.err
    rows = (shop.folder / "again" / "weekly.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0].strip('"') for line in rows] == csv_keys


def test_without_an_order_text_files_are_sorted_by_key(shop: Shop, call: Call) -> None:
    shop.write(outputs={"files": ["csv", "jsonl"]})
    assert call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none").code == 0
    parquet, csv_keys, lines = keys_of(shop.folder / "out")
    assert parquet == csv_keys == lines == sorted(parquet)


def test_a_rollup_and_a_grid_stay_sorted_by_key(shop: Shop, call: Call) -> None:
    two = {"partition_by": ["product", "store"], "order_by": "orders desc"}
    shop.write(stages={"weekly": stage(**two)}, outputs={"files": [{"csv": {"wide": True}}]})
    assert call("run", shop.job, "--output", shop.folder / "wide", "--ledger", "none").code == 0
    rows = [line.split(",")[0] for line in (shop.folder / "wide" / "weekly.csv").read_text().splitlines()[1:]]
    assert rows == sorted(rows)
    entry = {
        "partition_by": ["k"],
        "rollup": {"levels": [[], ["k"]]},
        "shown": {"groups": 1, "rows": 1, "order_by": ["n"], "words": []},
    }
    table = shop.folder / "t.parquet"
    pa.parquet.write_table(pa.table({"k": ["b", "a"], "n": [2.0, 1.0]}), table)
    flat = {key: value for key, value in entry.items() if key != "rollup"}
    assert ordered_rows.in_order_of_job(table, entry, shop.folder / "to.parquet") == table
    assert ordered_rows.in_order_of_job(table, flat, shop.folder / "to.parquet") != table


def test_a_table_too_large_for_memory_stays_sorted_by_key(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table, entry = shop.folder / "t.parquet", {"partition_by": ["k"], "top": {"k": 9, "by": "n"}}
    pa.parquet.write_table(pa.table({"k": ["a", "b"], "n": [1.0, 2.0]}), table)
    made = ordered_rows.in_order_of_job(table, entry, shop.folder / "to.parquet")
    assert pa.parquet.read_table(made).column("k").to_pylist() == ["b", "a"]
    monkeypatch.setattr(ordered_rows, "MOST_ROWS", 1)
    assert ordered_rows.in_order_of_job(table, entry, shop.folder / "other.parquet") == table
