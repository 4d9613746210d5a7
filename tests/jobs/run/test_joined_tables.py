"""Jobs over several private tables: what is released is DuckDB's join, both tables are one account's, what is wrong is told.

In: Parquet and CSV files of orders and visits. Out: exact statistics before the noise; releases; ledgers; refusals. Holds: files,
command line and ledger are the real ones. Not covered: other runners (tests/engines), sensitivity
(tests/privacy/test_sensitivity_of_joins.py).
"""

import io
import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.jobs.runners import local_engine
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.steps import unit_join, whole_units
from tests.engines import exact
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said

Call = Callable[..., Said]

NOTHING_BOUND = {"max_partitions_contributed": 1000, "max_contributions_per_partition": 10**6}
METRICS = {
    "n": {"kind": "count"},
    "people": {"kind": "privacy_id_count"},
    "items": {"kind": "sum", "column": "items", "min_value": 0, "max_value": 8},
}


def orders(rows: int = 3000) -> pa.Table:
    made = np.random.default_rng(3)
    days = pa.array(made.integers(0, 9, rows).astype(float), mask=made.random(rows) < 0.1)
    return pa.table(
        {
            "customer": pa.array(made.integers(0, 200, rows), mask=made.random(rows) < 0.05),
            "day": days,
            "store": pa.array([f"s{i}" for i in made.integers(0, 3, rows)]),
            "items": made.integers(0, 9, rows),
            "note": pa.array(["x"] * rows),
        }
    )


def visits(rows: int = 2500) -> pa.Table:
    made = np.random.default_rng(4)
    days = made.integers(0, 9, rows).astype(float)
    return pa.table(
        {
            "person": pa.array(made.integers(0, 250, rows).astype(np.int16), mask=made.random(rows) < 0.05),
            "visited": np.where(made.random(rows) < 0.1, np.nan, np.where(days == 0, -0.0, days)),
            "page": pa.array([("home", "cart", None)[i] for i in made.integers(0, 3, rows)]).dictionary_encode(),
            "note": pa.array(["y"] * rows),
        }
    )


class World:
    """A folder with two tables and a job over them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        pa.parquet.write_table(orders(), folder / "orders.parquet", row_group_size=700)
        pa.parquet.write_table(visits(), folder / "visits.parquet", row_group_size=900)

    def write(self, *, drop: tuple[str, ...] = (), **changes: Any) -> pathlib.Path:
        """The job file, with some keys at the top changed or dropped."""
        stage = {"kind": "aggregate", "partition_by": ["store", "page"], "bounds": NOTHING_BOUND, "metrics": METRICS}
        job: dict[str, Any] = {
            "dataset": "shop",
            "privacy_unit": {"orders": "customer", "visits": "person"},
            "budget": {"epsilon": 8.0, "delta": 1e-5},
            "tables": {"orders": {"parquet": "orders.parquet"}, "visits": {"parquet": "visits.parquet"}},
            "join": {
                "left": "orders",
                "right": "visits",
                "on": [["day", "visited"]],
                "max_rows_per_unit": {"orders": 1000, "visits": 1000},
            },
            "stages": {"pages": stage},
        }
        job = {name: held for name, held in {**job, **changes}.items() if name not in drop}
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(job, sort_keys=False))
        return path


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def joined(on: list[list[str]], kind: str = "inner", orders: int = 1000, visits: int = 1000) -> dict[str, Any]:
    most = {"orders": orders, "visits": visits}
    return {"left": "orders", "right": "visits", "on": on, "kind": kind, "max_rows_per_unit": most}


def statistics(job: pathlib.Path) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Partition to exact statistics, on the local runner."""
    staged = job.parent / "staged"
    staged.mkdir()
    found = exact.dump(job, local_engine.configured(["--threads=2"]), Progress(io.StringIO()), staged)
    (table,) = found.values()
    names = table.column_names
    keys, sums = [n for n in names if not n[0].isdigit()], {n.split(" ", 1)[1]: n for n in names if n[0].isdigit()}
    return {
        tuple(row[k] for k in keys): tuple(int(row[sums[s]]) for s in ("rows", "units"))
        for row in table.to_pylist()
    }  # fmt: skip


def duckdbs(left: pa.Table, right: pa.Table, join: str, on: str, where: str = "true") -> dict[Any, Any]:
    """The same of DuckDB's own join."""
    with duckdb.connect() as connection:
        connection.register("o", left)
        connection.register("v", right)
        query = f"""SELECT store, page, count(*), count(DISTINCT customer) FROM
            (FROM o WHERE customer IS NOT NULL) {join} JOIN (FROM v WHERE person IS NOT NULL AND NOT isnan(visited))
            ON customer = person {on} WHERE {where} GROUP BY ALL"""
        return {(s, p): (n, u) for s, p, n, u in connection.execute(query).fetchall()}


@pytest.mark.parametrize("kind", ["inner", "left"])
@pytest.mark.parametrize("pairs", [[["day", "visited"]], []], ids=["on_day", "on_the_unit_alone"])
def test_integers_before_the_noise_are_those_of_duckdbs_join(world: World, kind: str, pairs: list[list[str]]) -> None:
    said = joined(pairs, kind)
    on = "AND day = visited" if pairs else ""
    right = visits()
    if not pairs:  # NaN is then a day like any other
        right = right.set_column(1, "visited", pa.array(np.zeros(right.num_rows)))
    assert statistics(world.write(join=said)) == duckdbs(orders(), right, kind, on)


def test_expressions_of_a_table_apply_before_the_join_and_those_of_the_job_after_it(world: World) -> None:
    tables = {
        "orders": {
            "parquet": "orders.parquet",
            "where": "items > 2",
            "columns": {"weekday": "CAST(day AS INTEGER) % 7"},
        },
        "visits": {"parquet": "visits.parquet", "where": "page IS NOT NULL"},
    }
    job = world.write(tables=tables, where="weekday < 5 AND store <> 's1'")
    where = "items > 2 AND page IS NOT NULL AND CAST(day AS INTEGER) % 7 < 5 AND store <> 's1'"
    assert statistics(job) == duckdbs(orders(), visits(), "", "AND day = visited", where)


def test_capped_rows_are_joined_as_duckdb_joins_the_same_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[pa.Table]] = {"l": [], "r": []}
    last = unit_join._Capped.rows

    def noted(self: Any) -> pa.Table | None:
        found = last(self)
        if found is not None:
            tag = self._side.tag
            seen[tag[0]].append(found.rename_columns([name.removeprefix(tag) for name in found.column_names]))
        return found

    monkeypatch.setattr(unit_join._Capped, "rows", noted)
    said = joined([["day", "visited"]], orders=5, visits=4)
    found = statistics(world.write(join=said))
    # Integers travel as narrow as they are.
    left, right = (pa.concat_tables(seen[side], promote_options="permissive") for side in "lr")
    for table, unit, most in ((left, "customer", 5), (right, "person", 4)):
        counts = np.unique(table.column(unit).to_numpy(), return_counts=True)[1]
        assert counts.max() == most
    assert (left.num_rows, right.num_rows) < (orders().num_rows, visits().num_rows)
    assert found == duckdbs(left, right, "", "AND day = visited")


def test_caps_keep_the_same_rows_however_a_shard_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.helpers import joined as jt

    made = np.random.default_rng(8)
    left = pa.Table.from_arrays(
        [pa.array(made.integers(0, 5, 400), pa.int32()), pa.array(made.integers(0, 3, 400).astype(float)),
         pa.array(["a", "b"] * 200), pa.array(made.random(400))], schema=jt.LEFT,
    )  # fmt: skip
    right = pa.Table.from_arrays(
        [pa.array(made.integers(0, 5, 300)), pa.array(made.integers(0, 3, 300).astype(float)), pa.array(["p"] * 300)],
        schema=jt.RIGHT,
    )
    join = jt.join_of(keeps_unmatched=False, on_day=True, caps=(9, 7))
    whole = jt.multiset(jt.joined_rows(join, [left], [right]))
    cut = [left.slice(i, 50) for i in range(0, 400, 50)], [right.slice(i, 60) for i in range(0, 300, 60)]
    monkeypatch.setattr(unit_join, "PORTION", 64)
    monkeypatch.setattr(whole_units, "PORTION", 64)
    assert jt.multiset(jt.joined_rows(join, *cut, shards=2, backwards=True)) == whole


def test_a_unit_may_have_the_name_that_another_column_has_in_the_other_table(world: World) -> None:
    narrow = orders().append_column("person", pa.array(np.arange(orders().num_rows) % 3, pa.int8()))
    pa.parquet.write_table(narrow, world.folder / "orders.parquet")
    stage = {"kind": "aggregate", "partition_by": ["store", "person"], "bounds": NOTHING_BOUND, "metrics": METRICS}
    found = statistics(world.write(join=joined([]), stages={"pages": stage}))
    with duckdb.connect() as connection:
        connection.register("o", narrow)
        connection.register("v", visits())
        query = """SELECT store, o.person, count(*), count(DISTINCT customer) FROM o JOIN v ON customer = v.person
            GROUP BY ALL"""
        assert found == {(s, p): (n, u) for s, p, n, u in connection.execute(query).fetchall()}


def test_tables_one_under_the_other_are_counted_as_one(world: World) -> None:
    tables = {
        "orders": {"parquet": "orders.parquet", "columns": {"page": "store"}},
        "visits": {"parquet": "visits.parquet", "columns": {"items": "CAST(1 AS BIGINT)", "store": "page"}},
    }
    job = world.write(tables=tables, union=["orders", "visits"], drop=("join",))
    with duckdb.connect() as connection:
        connection.register("o", orders())
        connection.register("v", visits())
        query = """SELECT store, page, count(*), count(DISTINCT unit) FROM (
            SELECT customer AS unit, store, store AS page FROM o UNION ALL
            SELECT person AS unit, page AS store, page FROM v) WHERE unit IS NOT NULL GROUP BY ALL"""
        expected = {(s, p): (n, u) for s, p, n, u in connection.execute(query).fetchall()}
    assert statistics(job) == expected


def test_a_csv_table_is_joined_to_a_parquet_table(world: World) -> None:
    csv = "person,visited,page\n" + "".join(
        f"{'' if p is None else p},{'' if v != v else int(v)},{'' if g is None else g}\n"
        for p, v, g in zip(*(visits().column(n).to_pylist() for n in ("person", "visited", "page")), strict=True)
    )
    (world.folder / "visits.csv").write_text(csv)
    types = {"person": "int64", "visited": "double", "page": "string"}
    tables = {"orders": {"parquet": "orders.parquet"}, "visits": {"csv": "visits.csv", "types": types}}
    assert statistics(world.write(tables=tables)) == duckdbs(orders(), visits(), "", "AND day = visited")


@pytest.mark.parametrize("union", [False, True])
def test_another_table_may_have_a_bad_column_with_the_name_of_the_unit(world: World, union: bool) -> None:
    for name, table in (("one", visits()), ("two", visits().append_column("customer", pa.nulls(2500)))):
        pa.parquet.write_table(table, world.folder / f"visits-{name}.parquet")
    tables = {"orders": {"parquet": "orders.parquet"}, "visits": {"parquet": "visits-*.parquet"}}
    by_note = {**ONE_STAGE, "partition_by": ["note"], "bounds": NOTHING_BOUND, "metrics": {"n": {"kind": "count"}}}
    if union:
        found = statistics(
            world.write(tables=tables, union=["orders", "visits"], drop=("join",), stages={"s": by_note})
        )
        assert sorted(found) == [("x",), ("y",)]
        return
    twice = pa.concat_tables([visits(), visits()])
    assert statistics(world.write(tables=tables)) == duckdbs(orders(), twice, "", "AND day = visited")


def test_both_tables_are_sources_of_one_account_and_a_run_id_means_both(world: World, call: Call) -> None:
    def run(job: pathlib.Path, name: str) -> Said:
        return call("run", job, "--output", world.folder / name, "--run-id", "monday")

    assert run(world.write(), "out").code == 0
    account = Ledger.open(str(world.folder / DEFAULT_NAME)).account("shop")
    assert account.unit == ("customer",)
    assert {pathlib.Path(source).name for source in account.sources} == {"orders.parquet", "visits.parquet"}
    assert run(world.write(), "again").code == 0
    tables = [pyarrow.parquet.read_table(world.folder / name / "pages.parquet") for name in ("out", "again")]
    assert tables[0].equals(tables[1])  # the stored release
    (world.folder / "more.parquet").write_bytes((world.folder / "visits.parquet").read_bytes())
    others = {"orders": {"parquet": "orders.parquet"}, "visits": {"parquet": "more.parquet"}}
    for changed in ({"tables": others}, {"join": joined([["day", "visited"]], orders=7)}):
        refused = run(world.write(**changed), "other")
        assert refused.code == 2
        assert "'monday'" in refused.err


def test_a_table_of_another_account_is_refused_and_nothing_is_charged(world: World, call: Call) -> None:
    alone = world.write(
        dataset="web", source={"parquet": "visits.parquet"}, privacy_unit="person", drop=("tables", "join"),
        stages={"s": {"kind": "aggregate", "partition_by": ["page"], "bounds": {"max_partitions_contributed": 2},
                      "metrics": {"people": {"kind": "privacy_id_count"}}}},
    )  # fmt: skip
    assert call("run", alone, "--output", world.folder / "web").code == 0
    refused = call("run", world.write(), "--output", world.folder / "out")
    assert refused.code == 2
    assert "visits.parquet" in refused.err
    assert not (world.folder / "out").exists()
    assert "shop" not in Ledger.open(str(world.folder / DEFAULT_NAME)).state.accounts


ONE_STAGE = {"kind": "aggregate", "partition_by": ["store"], "bounds": {"max_partitions_contributed": 2}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a join that is not on the unit": (
        {"privacy_unit": {"orders": "customer"}},
        "privacy_unit: lacks table 'visits': tables meet on the privacy unit and on nothing else",
    ),
    "the unit said again": (
        {"join": joined([["customer", "person"]])},
        "join.on: names 'customer', a column of the privacy unit, which is always part of the join; drop it",
    ),
    "a unit of another width of columns": (
        {"privacy_unit": {"orders": ["customer", "store"], "visits": "person"}},
        "privacy_unit: has not as many columns in each table",
    ),
    "a unit of another type": (
        {"privacy_unit": {"orders": "customer", "visits": "page"}},
        "privacy_unit: has type int64 in table 'orders' and string in table 'visits'; give the unit one type",
    ),
    "a unit that is no column": (
        {"privacy_unit": {"orders": "customer", "visits": "persn"}},
        "privacy_unit.visits: names column 'persn', which table 'visits' does not have; did you mean 'person'?",
    ),
    "a unit by an unknown table": (
        {"privacy_unit": {"orders": "customer", "visit": "person"}},
        "privacy_unit.visit: is not a table; did you mean 'visits'?",
    ),
    "a table that is not there": (
        {"join": {**joined([]), "right": "visit"}},
        "join.right: names no table: 'visit'; did you mean 'visits'?",
    ),
    "a table with itself": ({"join": {**joined([]), "right": "orders"}}, "join.right: is the left table"),
    "no cap": (
        {"join": {**joined([]), "max_rows_per_unit": {"orders": 5}}},
        "join.max_rows_per_unit: lacks table 'visits'; add how many rows of a unit are joined, e.g. visits: 1000",
    ),
    "a cap of nothing": (
        {"join": joined([], orders=0)},
        "join.max_rows_per_unit.orders: must be at least 1",
    ),
    "both a join and a union": (
        {"union": ["orders", "visits"]},
        "tables: need either join: or union:",
    ),
    "a source beside the tables": ({"source": {"parquet": "orders.parquet"}}, "source: stands beside tables:"),
    "keys of other types": (
        {"join": joined([["store", "visited"]])},
        "join.on.0: compares 'store' of type string with 'visited' of type double",
    ),
    "a key that is no column": (
        {"join": joined([["dayy", "visited"]])},
        "join.on.0: names column 'dayy', which table 'orders' does not have; did you mean 'day'?",
    ),
    "a name that both tables have": (
        {"stages": {"s": {**ONE_STAGE, "partition_by": ["note"], "metrics": {"n": {"kind": "privacy_id_count"}}}}},
        "column 'note': is in table 'orders' and in table 'visits'; use another name, e.g. tables: {visits: {columns: "
        "{visits_note: note}}}",
    ),
    "a wrong expression of a table": (
        {"tables": {"orders": {"parquet": "orders.parquet", "where": "itms > 1"}, "visits": {"parquet": "visits.parquet"}}},
        "tables.orders.where: names column 'itms', which the source does not have; did you mean 'items'?",
    ),
    "files that are not there": (
        {"tables": {"orders": {"parquet": "ordrs.parquet"}, "visits": {"parquet": "visits.parquet"}}},
        "tables.orders: matches no file: 'ordrs.parquet'",
    ),
    "windows": (
        {"window": {"column": "day", "days": 7, "param": "week"}, "params": {"week": {"type": "date"}}},
        "window: cannot be combined with tables:",
    ),
    "a lookup of several rows over a join": (
        {"lookup": {"parquet": "tags.parquet", "on": "store", "max_rows_per_key": 2}},
        "lookup: makes several rows of a joined one; write the lookup into one of the tables",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_is_told_before_anything_is_charged(
    world: World, call: Call, changes: dict[str, Any], said: str
) -> None:
    refused = call("run", world.write(**changes), "--output", world.folder / "out")
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert sorted(path.name for path in world.folder.iterdir()) == ["job.yaml", "orders.parquet", "visits.parquet"]


def test_readers_are_told_how_many_rows_of_one_unit_are_joined(world: World, call: Call) -> None:
    said = "at most 5 rows of orders and 1,000 rows of visits of one customer are joined"
    job = world.write(join=joined([], orders=5))
    assert said in " ".join(call("plan", job).out.split())
    assert said in " ".join(call("run", job, "--output", world.folder / "out").out.split())
    assert said in (world.folder / "out" / "report.html").read_text()


def test_a_model_is_trained_on_joined_rows_and_predicts_for_such_rows(world: World, call: Call) -> None:
    stage = {
        "kind": "train",
        "label": {"kind": "binary", "column": "many"},
        "features": {"page": {"kind": "category", "categories": ["home", "cart"]}},
        "max_examples_per_unit": 4,
        "fit": {"steps": 3},
    }
    job = world.write(columns={"many": "items > 4"}, stages={"model": stage})
    said = call("run", job, "--output", world.folder / "out", "--ledger", "none")
    assert said.code == 0, said.err
    pa.parquet.write_table(
        pa.table({"customer": [1, 2], "page": ["home", None], "items": [1, 9]}), world.folder / "new.parquet"
    )
    predicted = world.folder / "predicted.parquet"
    said = call("predict", world.folder / "out", world.folder / "new.parquet", "--output", predicted)
    assert said.code == 0, said.err
    assert pyarrow.parquet.read_table(predicted).num_rows == 2


@needs("tune")
def test_a_job_over_tables_is_tuned_and_the_suggested_job_runs(world: World, call: Call) -> None:
    grid = "bounds.max_partitions_contributed=1,2,4"
    said = call("tune", world.write(), "--grid", grid, "--output", world.folder / "tuned", "--ledger", "none")
    assert said.code == 0, said.err
    (suggested,) = (world.folder / "tuned").glob("*.yaml")
    assert call("plan", suggested).code == 0


@pytest.mark.parametrize("command", [pytest.param("tune", marks=needs("tune")), "run"])
def test_what_works_on_one_table_says_so(world: World, call: Call, command: str) -> None:
    refused = call(command, world.write(), "--output", world.folder / "o", "--synthetic")
    assert refused.code == 2
    assert "tables: are several" in refused.err
