"""What a check counts is what DuckDB counts of the same files: tables, lookups, joins, unions, unit columns, every format."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from tests.helpers import copies
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.run.test_joined_tables import World, joined, orders, visits

Call = Callable[..., Said]


def profiled(call: Call, job: pathlib.Path, *more: object) -> dict[str, Any]:
    """The JSON of a check."""
    folder = job.parent / f"checked{len(list(job.parent.iterdir()))}"
    said = call("check", job, "--output", folder, "--ledger", "none", *more)
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads((folder / "PRIVATE-check.json").read_text())
    return found


def asked(query: str, **tables: pa.Table) -> list[Any]:
    """The one row that DuckDB answers with."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        (found,) = connection.execute(query).fetchall()
        return [float(value) if value is not None else 0.0 for value in found]


def rows_of(shop: Shop) -> pa.Table:
    return pa.concat_tables(pa.parquet.read_table(path) for path in sorted((shop.folder / "data").iterdir()))


def numbers(*parts: dict[str, Any]) -> list[float]:
    return [part["number"] for part in parts]


def nulls(table: dict[str, Any]) -> dict[str, float]:
    return {column["column"]: column["nulls"]["number"] for column in table["columns"]}


@pytest.fixture
def holes(shop: Shop) -> Shop:
    """The shop with nulls in its columns."""
    for number, path in enumerate(sorted((shop.folder / "data").iterdir())):
        rows, made = pa.parquet.read_table(path), np.random.default_rng(number)
        for name, part in (("customer", 0.1), ("product", 0.2), ("price", 0.3)):
            column = rows.column(name).combine_chunks()
            holed = pa.array(column.to_numpy(zero_copy_only=False), column.type, mask=made.random(len(rows)) < part)
            rows = rows.set_column(rows.column_names.index(name), name, holed)
        pa.parquet.write_table(rows, path, row_group_size=900)
    pa.parquet.write_table(
        pa.table({"product": ["p0", "p1", "p2"], "city": ["Oslo", None, "Bonn"]}), shop.folder / "products.parquet"
    )
    return shop


@pytest.mark.parametrize("runner", ["local", pytest.param("direct", marks=pytest.mark.slow)])
def test_rows_columns_lookups_and_units_of_one_table(holes: Shop, call: Call, runner: str) -> None:
    holes.write(
        where="price > 5",
        columns={"number": "CAST(note AS INTEGER)", "week": "CAST(date_trunc('week', paid_at) AS DATE)"},
        lookup={"parquet": "products.parquet", "on": "product"},
        stages={"weekly": stage(partition_by=["city", "week"])},
    )
    found = profiled(call, holes.job, *(["--runner", runner] if runner != "local" else []))
    (table,) = found["tables"]
    query = """SELECT count(*), count(*) FILTER (price > 5), count(*) FILTER (price IS NULL),
        count(*) FILTER (customer IS NULL), count(*) FILTER (product IS NULL) FROM t"""
    read, kept, no_price, no_customer, no_product = asked(query, t=rows_of(holes))
    assert table["rows"] == read
    assert numbers(table["where"], table["where"]["null"]) == [kept, no_price]
    assert table["where"]["share"] == pytest.approx(kept / read)
    query = """SELECT count(*) FILTER (TRY_CAST(note AS INTEGER) IS NULL), count(*) FILTER (customer IS NULL),
        count(*) FILTER (product IS NULL), count(*) FILTER (product IS NULL OR product NOT IN ('p0', 'p1', 'p2'))
        FROM t WHERE price > 5"""
    no_number, nobody, no_key, unmatched = asked(query, t=rows_of(holes))
    of = nulls(table)
    assert (of["price"], of["customer"], of["product"]) == (no_price, no_customer, no_product)
    assert (of["number"], of["week"]) == (no_number, 0)
    (lookup,) = table["lookups"]
    assert numbers(lookup["null_key"], lookup["without_match"]) == [no_key, unmatched]
    assert table["without_unit"]["number"] == nobody
    assert any("no match in lookup products.parquet" in text for text in found["advice"])
    assert any(text.startswith("Column number is null in") for text in found["advice"])


def test_bounds_clips_and_groups_of_a_stage(holes: Shop, call: Call) -> None:
    metrics = {
        "orders": {"kind": "count"},
        "revenue": {"kind": "sum", "column": "price", "min_value": 2, "max_value": 12},
        "spent": {"kind": "sum", "column": "price", "min_sum_per_partition": 0, "max_sum_per_partition": 20},
    }
    holes.write(stages={"weekly": stage(metrics=metrics)})
    (weekly,) = profiled(call, holes.job)["stages"]
    query = """WITH pairs AS (SELECT customer, product, count(*) AS r, sum(price) AS s,
            sum(CASE WHEN price IS NOT NULL THEN greatest(2, least(12, price)) END) AS c
            FROM t WHERE customer IS NOT NULL GROUP BY ALL),
        counted AS (SELECT *, count(*) OVER (PARTITION BY customer) AS k FROM pairs)
        SELECT sum(least(1, 3 / k) * r), sum(least(r, 2)), sum(least(1, 3 / k) * least(r, 2)), count(*),
            count(DISTINCT customer), count(DISTINCT customer) FILTER (k > 3), sum(least(1, 3 / k) * least(r, 2) / r * c),
            sum(least(1, 3 / k) * greatest(0, least(20, coalesce(s, 0)))), count(*) FILTER (s > 20), sum(r) FROM counted"""
    partitions, rows, both, pairs, units, cut, kept, spent, dear, counted = asked(query, t=rows_of(holes))
    of = {bound["bound"]: bound for bound in weekly["bounds"]}
    assert of["max_partitions_contributed"]["rows_kept"]["number"] == pytest.approx(partitions)
    assert of["max_partitions_contributed"]["units_cut"]["number"] == cut
    assert of["max_contributions_per_partition"]["rows_kept"]["number"] == rows
    assert weekly["rows_kept"] == {"number": pytest.approx(both), "share": pytest.approx(both / counted)}
    assert (weekly["pairs"], weekly["units"]) == (pairs, units)
    revenue, sums = weekly["clips"]
    query = """SELECT count(price), count(*) FILTER (price < 2), count(*) FILTER (price > 12), sum(price),
        sum(CASE WHEN price IS NOT NULL THEN greatest(2, least(12, price)) END), count(*) FILTER (price IS NULL)
        FROM t WHERE customer IS NOT NULL"""
    _, below, above, total, clamped, unknown = asked(query, t=rows_of(holes))
    assert numbers(revenue["below"], revenue["above"], revenue["nulls"]) == [below, above, unknown]
    assert revenue["sum_clamped"]["share"] == pytest.approx(clamped / total)
    assert revenue["sum_kept"]["number"] == pytest.approx(kept)
    assert sums["sum_kept"]["number"] == pytest.approx(spent)
    assert sums["above"]["number"] == dear
    (level,) = weekly["levels"]
    query = "SELECT count(DISTINCT coalesce(product, '')) FROM t WHERE customer IS NOT NULL"
    assert [level["groups"]] == asked(query, t=rows_of(holes))
    assert sum(size["rows"] for size in level["sizes"]) == counted
    assert level["published"]["number"] == pytest.approx(6, abs=0.01)  # each has hundreds of customers


def test_groups_that_are_too_small_are_told(shop: Shop, call: Call) -> None:
    shop.write(columns={"each": "CAST(paid_at AS VARCHAR)"}, stages={"weekly": stage(partition_by=["each"])})
    found = profiled(call, shop.job)
    (level,) = found["stages"][0]["levels"]
    assert level["groups"] > 7000
    assert level["published"]["number"] < 10
    assert any(f"of {level['groups']:,} groups by each about" in text for text in found["advice"])


def test_public_partitions_a_rollup_and_a_total(shop: Shop, call: Call) -> None:
    listed = stage(partitions={"public": [["p0"], ["p1"], ["none"]]})
    rolled = stage(partition_by=["product", "store"], rollup=[[], ["product"], ["product", "store"]])
    total = stage(partition_by=[], bounds={"max_contributions": 5})
    shop.write(stages={"listed": listed, "rolled": rolled, "total": total})
    found = {one["stage"]: one for one in profiled(call, shop.job)["stages"]}
    query = """SELECT count(*) FILTER (product NOT IN ('p0', 'p1')), count(*), count(DISTINCT customer) FROM t"""
    unlisted, rows, units = asked(query, t=rows_of(shop))
    assert found["listed"]["unlisted"]["number"] == unlisted
    (level,) = found["listed"]["levels"]
    assert (level["groups"], level["listed"], level["empty"]) == (2, 3, 1)
    assert [len(one["partition_by"]) for one in found["rolled"]["levels"]] == [0, 1, 2]
    assert [one["groups"] for one in found["rolled"]["levels"]] == [1, 5, 15]
    assert sum(size["rows"] for size in found["rolled"]["levels"][1]["sizes"]) == rows
    assert found["total"]["units"] == units
    query = "SELECT sum(least(n, 5)) FROM (SELECT count(*) AS n FROM t GROUP BY customer)"
    assert [found["total"]["rows_kept"]["number"]] == asked(query, t=rows_of(shop))


def test_unit_columns_and_a_stage_that_trains(shop: Shop, call: Call) -> None:
    unit = {"unit_columns": {"nth": "row_number() OVER (ORDER BY paid_at)", "odd": "CASE WHEN nth % 2 = 1 THEN 1 END"}}
    weekly = stage(**unit, where="nth > 1", max_rows_per_unit=5)
    learns = {
        "kind": "train", **unit, "where": "nth > 1",
        "label": {"kind": "number", "column": "price", "min_value": 5, "max_value": 15},
        "features": {"note": {"kind": "category", "categories": ["7"]}, "odd": {"kind": "number", "min_value": 2, "max_value": 3},
                     "store": {"kind": "number", "min_value": 1, "max_value": 2}},
        "max_examples_per_unit": 3,
    }  # fmt: skip
    shop.write(stages={"weekly": weekly, "prices": learns})
    found = {one["stage"]: one for one in profiled(call, shop.job)["stages"]}
    query = "SELECT sum(least(n, 5)), sum(least(n, 5) - 1), sum(n) FROM (SELECT count(*) AS n FROM t GROUP BY customer)"
    seen, kept, rows = asked(query, t=rows_of(shop))
    looked = found["weekly"]["unit_columns"]
    assert numbers(looked["kept_by_cap"], looked["where"]) == [seen, kept]
    assert looked["kept_by_cap"]["share"] == pytest.approx(seen / rows)
    assert found["weekly"]["rows"] == kept
    query = """WITH n AS (SELECT *, row_number() OVER (PARTITION BY customer ORDER BY paid_at) AS nth FROM t),
        e AS (SELECT *, count(*) OVER (PARTITION BY customer) AS m FROM n WHERE nth > 1)
        SELECT count(*), count(DISTINCT customer), sum(least(1, 3 / m)), count(DISTINCT customer) FILTER (m > 3),
            count(*) FILTER (price < 5), count(*) FILTER (price > 15), count(*) FILTER (nth % 2 = 0),
            count(*) FILTER (nth % 2 = 1),
            count(*) FILTER (store > 2), count(*) FILTER (note != '7'), count(*) FILTER (note IS NULL) FROM e"""
    examples, units, chosen, cut, low, high, even, odd, third, others, unknown = asked(query, t=rows_of(shop))
    prices = found["prices"]
    assert (prices["examples"], prices["units"]) == (examples, units)
    assert numbers(prices["examples_kept"], prices["units_cut"]) == [round(chosen), cut]
    label = prices["label"]
    assert numbers(label["none"], label["below"], label["above"]) == [0, low, high]
    note, parity, store = prices["features"]
    assert numbers(note["nulls"], note["others"]) == [unknown, others]
    assert numbers(parity["nulls"], parity["below"], parity["above"]) == [even, odd, 0]
    assert numbers(store["above"]) == [third]


@pytest.mark.parametrize("kind", ["inner", "left"])
@pytest.mark.parametrize("runner", ["local", pytest.param("direct", marks=pytest.mark.slow)])
def test_a_join(world_of_two: World, call: Call, kind: str, runner: str) -> None:
    tables = {"orders": {"parquet": "orders.parquet", "where": "items > 1"}, "visits": {"parquet": "visits.parquet"}}
    job = world_of_two.write(join=joined([["day", "visited"]], kind, orders=4), tables=tables)
    found = profiled(call, job, *(["--runner", runner] if runner != "local" else []))
    names = [table["table"] for table in found["tables"]]
    assert names == ["orders", "visits", ""]
    tables_ = {"o": orders(), "v": visits()}
    candidates = "items > 1 AND customer IS NOT NULL" + (" AND day IS NOT NULL" if kind == "inner" else "")
    query = f"SELECT sum(least(n, 4)), sum(n), count(*) FROM (SELECT count(*) AS n FROM o WHERE {candidates} GROUP BY customer)"
    capped, all_of_them, units = asked(query, **tables_)
    left, right = found["join"]["tables"]
    assert left["kept_by_cap"] == {"number": capped, "share": pytest.approx(capped / all_of_them)}
    assert left["units"] == units
    query = f"""SELECT count(DISTINCT customer) FROM o WHERE {candidates} AND customer IN
        (SELECT person FROM v WHERE NOT isnan(visited))"""
    assert [left["units_in_both"]["number"]] == asked(query, **tables_)
    query = "SELECT count(*) FILTER (person IS NULL), count(*) FILTER (person IS NOT NULL AND isnan(visited)), count(*) FROM v"
    nobody, never, read = asked(query, **tables_)
    table = found["tables"][1]
    assert (table["rows"], table["without_unit"]["number"], table["without_on"]["number"]) == (read, nobody, never)
    assert right["kept_by_cap"]["share"] == 1
    rows = found["tables"][2]["rows"]
    alone = left["without_match"]["number"] if kind == "left" else 0
    assert rows == found["join"]["pairs"] + alone


def test_rows_that_meet_nothing_in_a_join_without_caps(world_of_two: World, call: Call) -> None:
    found = profiled(call, world_of_two.write())
    left, right = found["join"]["tables"]
    query = """WITH a AS (SELECT row_number() OVER () AS i, * FROM o WHERE customer IS NOT NULL AND day IS NOT NULL),
        b AS (SELECT row_number() OVER () AS j, * FROM v WHERE person IS NOT NULL AND NOT isnan(visited)),
        p AS (SELECT i, j FROM a JOIN b ON customer = person AND day = visited)
        SELECT (SELECT count(*) FROM a) - count(DISTINCT i), (SELECT count(*) FROM b) - count(DISTINCT j), count(*) FROM p"""
    alone, unmet, pairs = asked(query, o=orders(), v=visits())
    assert numbers(left["without_match"], right["without_match"]) == [alone, unmet]
    assert found["join"]["pairs"] == pairs == found["tables"][2]["rows"]
    assert any("of rows of visits meet no row of the other table" in text for text in found["advice"])


def test_a_union(world_of_two: World, call: Call) -> None:
    tables = {
        "orders": {"parquet": "orders.parquet", "columns": {"what": "store"}},
        "visits": {"parquet": "visits.parquet", "columns": {"what": "CAST(page AS VARCHAR)"}},
    }
    bounds = {"max_partitions_contributed": 2, "max_contributions_per_partition": 3}
    events = stage(partition_by=["what"], bounds=bounds, metrics={"people": {"kind": "privacy_id_count"}})
    job = world_of_two.write(tables=tables, union=["orders", "visits"], drop=("join",), stages={"events": events})
    found = profiled(call, job)
    assert found["join"] is None
    assert [table["rows"] for table in found["tables"]] == [3000, 2500, 5500]
    pages = sum(page is None for page in visits().column("page").to_pylist())
    assert nulls(found["tables"][1])["what"] == pages == nulls(found["tables"][2])["what"]
    query = """SELECT count(DISTINCT u), count(*) FROM (SELECT customer AS u FROM o UNION ALL SELECT person FROM v)
        WHERE u IS NOT NULL"""
    units, counted = asked(query, o=orders(), v=visits())
    (one,) = found["stages"]
    assert one["units"] == units
    assert one["rows"] - one["without_unit"]["number"] == counted
    assert any("of rows of all tables have no privacy unit" in text for text in found["advice"])


@pytest.fixture
def world_of_two(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def test_every_format_gives_the_same_page(tmp_path: pathlib.Path, call: Call) -> None:
    rows, found = copies.purchases(3000), {}
    metrics = {"n": {"kind": "count"}, "paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 15}}
    for name, write in copies.FORMATS.items():
        folder = tmp_path / name
        folder.mkdir()
        job = {
            "dataset": "shop", "privacy_unit": "customer", "budget": {"epsilon": 1.0, "delta": 1e-6},
            "source": write(rows, folder / "rows"), "where": "price > 1",
            "stages": {"weekly": stage(partition_by=["product"], metrics=metrics)},
        }  # fmt: skip
        (folder / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
        found[name] = profiled(call, folder / "job.yaml")
    first = found["parquet"]
    assert first["tables"][0]["rows"] == 3000
    for name, other in found.items():
        assert flat(other) == pytest.approx(flat(first), rel=1e-9), name


def flat(value: Any) -> list[float]:
    """All numbers of a profile, in order."""
    if isinstance(value, dict):
        return [number for held in value.values() for number in flat(held)]
    if isinstance(value, list):
        return [number for held in value for number in flat(held)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
