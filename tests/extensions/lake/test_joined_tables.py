"""A table of snapshots among several private tables: a run id fixes the version that was read."""

import json
from typing import Any

import deltalake
import pyarrow.parquet

from tests.jobs.conftest import Said
from tests.jobs.run.test_joined_tables import Call, World, orders, visits


def test_a_table_of_snapshots_is_joined_to_json_lines_and_a_run_id_fixes_its_version(world: World, call: Call) -> None:
    deltalake.write_deltalake(world.folder / "orders", orders())
    lines = "".join(json.dumps(row) + "\n" for row in visits().to_pylist())
    (world.folder / "visits.jsonl").write_text(lines)
    types = {"person": "int", "visited": "double", "page": "string"}

    def run(name: str, run_id: str, version: int | None = None, **changes: Any) -> Said:
        delta = {"path": "orders"} if version is None else {"path": "orders", "version": version}
        tables = {"orders": {"delta": delta}, "visits": {"jsonl": "visits.jsonl", "types": types}}
        job = world.write(**{"tables": tables, "budget": {"epsilon": 8.0, "delta": 1e-5, "runs": 3}, **changes})
        return call("run", job, "--output", world.folder / name, "--run-id", run_id)

    assert run("out", "monday").code == 0
    deltalake.write_deltalake(world.folder / "orders", orders(100), mode="append")
    moved = run("moved", "monday")
    assert (moved.code, "'monday'" in moved.err) == (2, True)
    assert run("again", "monday", version=0).code == 0
    tables = [pyarrow.parquet.read_table(world.folder / name / "pages.parquet") for name in ("out", "again")]
    assert tables[0].equals(tables[1])  # the stored release
    files = {"orders": {"parquet": "orders/*.parquet"}, "visits": {"parquet": "visits.parquet"}}
    foreign = run("other", "monday", dataset="other", tables=files)
    assert (foreign.code, "belongs to the account 'shop'" in foreign.err) == (2, True)
