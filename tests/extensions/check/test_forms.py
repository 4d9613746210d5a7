"""Every form of a stage is checked: bounds that a run chooses, the best, clamps by partition, rounds, lists on disk, windows."""

import json
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

AUTO = {"max_partitions_contributed": "auto", "partition_candidates": [1, 2, 4], "max_contributions_per_partition": 1}
LISTED = {"public": [["p0"], ["p1"], ["p2"], ["p3"], ["p4"]]}
BUYERS = {"buyers": {"kind": "privacy_id_count"}}
BY_PRODUCT = {"kind": "sum", "column": "price", "min_value": 0, "max_value": {"lookup": "most", "default": 9}}
FORMS: dict[str, dict[str, Any]] = {
    "a bound on partitions that a run chooses": {"stages": {"s": stage(bounds=AUTO, metrics={"n": {"kind": "count"}})}},
    "a bound on values that a run chooses": {
        "stages": {"s": stage(metrics={"paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto",
                                                "within": [0, 1000]}})},
        "budget": {"epsilon": 8.0, "delta": 1e-5},
    },
    "the best": {"stages": {"s": stage(partitions=LISTED, best={"k": 2, "by": "buyers"}, metrics=BUYERS)}},
    "selection in rounds": {"stages": {"s": stage(partitions={"private": {"strategy": "sips"}})}},
    "weights": {"stages": {"s": stage(partitions={"private": {"strategy": "weighted_gaussian"}})}},
    "coins": {"stages": {"s": stage(partitions={"private": {"strategy": "truncated_geometric"}})}},
    "what bounds keep": {"stages": {"s": stage(kept={"share": 0.1})}},
    "users alone": {"stages": {"s": stage(bounds={"max_partitions_contributed": 2}, metrics=BUYERS)}},
    "a row id": {"row_id": "paid_at"},
    "a total": {"stages": {"s": stage(partition_by=[], bounds={"max_contributions_per_partition": 4})}},
    "a lookup of several rows": {"lookup": {"parquet": "tags.parquet", "on": "product", "max_rows_per_key": 2},
                                 "stages": {"s": stage(partition_by=["tag"])}},
    "clamps by partition": {"lookup": {"parquet": "most.parquet", "on": "product"},
                            "stages": {"s": stage(metrics={"paid": BY_PRODUCT})}},
    "a list on disk": {"stages": {"s": stage(partitions={"public_sorted_file": "keys.parquet"}, having="orders >= 90")}},
}  # fmt: skip


@pytest.fixture
def shop_with_tables(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shop.folder / "cache"))
    tables = {
        "tags": {"product": ["p0", "p0", "p1"], "tag": ["new", "red", "old"]},
        "most": {"product": ["p0", "p1"], "most": [5.0, 30.0]},
        "keys": {"product": ["p0", "p1", "p2", "p3", "p4", "p5"]},
    }
    for name, table in tables.items():
        pa.parquet.write_table(pa.table(table), shop.folder / f"{name}.parquet")
    return shop


def checked(shop: Shop, call: Call, *more: object, **changes: Any) -> dict[str, Any]:
    said = call("check", shop.write(**changes), "--output", shop.folder / "checked", *more)
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads((shop.folder / "checked" / "PRIVATE-check.json").read_text())
    return found


def asked(shop: Shop, query: str) -> tuple[float, ...]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW t AS FROM '{shop.folder}/data/*.parquet'")
        (found,) = connection.execute(query).fetchall()
        return tuple(found)


@pytest.mark.parametrize("form", FORMS)
def test_each_has_its_page(shop_with_tables: Shop, call: Call, form: str) -> None:
    found = checked(shop_with_tables, call, **FORMS[form])
    (one,) = found["stages"]
    assert one["units"] == asked(shop_with_tables, "SELECT count(DISTINCT customer) FROM t")[0]
    assert one["levels"][-1]["groups"] > 0
    assert one["rows_kept"]["number"] > 0


def test_rows_that_a_lookup_makes_and_those_without_a_match_are_told_apart(shop_with_tables: Shop, call: Call) -> None:
    found = checked(shop_with_tables, call, **FORMS["a lookup of several rows"])
    query = "SELECT count(*), count(*) FILTER (product NOT IN ('p0', 'p1')), count(*) FILTER (product = 'p0') FROM t"
    rows, alone, twice = asked(shop_with_tables, query)
    (table,) = found["tables"]
    (lookup,) = table["lookups"]
    assert (table["rows"], lookup["without_match"]["number"], table["shaped"]) == (rows, alone, rows + twice)


def test_values_are_compared_with_the_clamp_of_their_own_partition(shop_with_tables: Shop, call: Call) -> None:
    found = checked(shop_with_tables, call, **FORMS["clamps by partition"])
    (clip,) = found["stages"][0]["clips"]
    query = "SELECT count(*) FILTER (price > CASE product WHEN 'p0' THEN 5 WHEN 'p1' THEN 30 ELSE 9 END) FROM t"
    assert (clip["above"]["number"],) == asked(shop_with_tables, query)
    assert "sum" not in clip


def test_of_windows_only_the_rows_of_the_run_count(shop: Shop, call: Call) -> None:
    window = {
        "window": {"column": "paid_at", "days": 7, "param": "week"},
        "params": {"week": {"type": "date"}},
        "dataset": "weeks",
    }
    found = checked(shop, call, "--param", "week=2025-01-13", "--ledger", "none", **window)
    query = """SELECT count(*), count(*) FILTER (paid_at >= DATE '2025-01-13' AND paid_at < DATE '2025-01-20'),
        count(DISTINCT customer) FILTER (paid_at >= DATE '2025-01-13' AND paid_at < DATE '2025-01-20') FROM t"""
    rows, inside, units = asked(shop, query)
    (table,) = found["tables"]
    assert (table["rows"], table["in_window"]["number"], found["stages"][0]["units"]) == (rows, inside, units)


def test_a_look_leaves_a_plan_and_its_budget_as_they_are(shop: Shop, call: Call) -> None:
    before = call("plan", shop.job, "--json").out
    checked(shop, call)
    assert call("plan", shop.job, "--json").out == before
