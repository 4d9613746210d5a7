"""Runs over tables that change: a run id fixes the snapshot; what is public is refused unpaid, and damage ends a paid run.

In: the shop, as Delta and Iceberg tables, Avro files and JSON lines. Out: exit codes, messages, the ledger. Not covered: what
each reader makes of each cell (tests of the sources).
"""

import json
from collections.abc import Callable
from pathlib import Path

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.sources.readers import DAMAGED_BLOCK, DAMAGED_DELETES
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers import copies, icebergs
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]
PUBLIC = {"listed": stage(partitions={"public": [["p0"], ["p1"]]})}
WEEKS = {"epsilon": 8.0, "delta": 1e-5, "runs": 3}


@pytest.fixture
def delta(shop: Shop) -> Path:
    """The shop's rows as a Delta table."""
    deltalake.write_deltalake(shop.folder / "table", purchases(0))
    return shop.folder / "table"


def test_a_run_id_fixes_the_version_that_was_read(shop: Shop, call: Call, delta: Path) -> None:
    job = shop.write(source={"delta": {"path": "table"}}, stages=PUBLIC, budget=WEEKS)
    first = call("run", job, "--output", shop.folder / "one", "--run-id", "a")
    assert (first.code, first.err) == (0, "")
    assert call("run", job, "--output", shop.folder / "again", "--run-id", "a").code == 0
    deltalake.write_deltalake(delta, purchases(1), mode="append")
    moved = call("run", job, "--output", shop.folder / "two", "--run-id", "a")
    assert moved.code == 2
    assert "'a'" in moved.err
    # The version that was read then is the same run, whether the job names it or not.
    shop.write(source={"delta": {"path": "table", "version": 0}}, stages=PUBLIC, budget=WEEKS)
    assert call("run", job, "--output", shop.folder / "three", "--run-id", "a").code == 0
    same = [(shop.folder / name / "listed.parquet").read_bytes() for name in ("one", "again", "three")]
    assert same[0] == same[1] == same[2]
    assert shop.charged() == 1
    shop.write(source={"delta": {"path": "table", "version": 1}}, stages=PUBLIC, budget=WEEKS)
    assert call("run", job, "--output", shop.folder / "four", "--run-id", "b").code == 0


def test_a_version_may_be_a_parameter(shop: Shop, call: Call, delta: Path) -> None:
    job = shop.write(
        source={"delta": {"path": "{name}", "version": "{version}"}}, stages=PUBLIC, budget=WEEKS,
        params={"name": {"type": "string"}, "version": {"type": "int"}},
    )  # fmt: skip
    given = ("--param", "name=table", "--param")
    assert call("run", job, "--output", shop.folder / "one", "--run-id", "a", *given, "version=0").code == 0
    gone = call("run", job, "--output", shop.folder / "two", "--run-id", "b", *given, "version=1")
    assert (gone.code, shop.charged()) == (2, 1)
    assert "has no version 1, or no longer; its last one is 0" in gone.err


def test_the_files_of_a_table_belong_to_its_account(shop: Shop, call: Call, delta: Path) -> None:
    job = shop.write(source={"delta": {"path": "table"}}, stages=PUBLIC)
    assert call("run", job, "--output", shop.folder / "one").code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    ledger.open_account("other", unit=["customer"], words="one customer", epsilon=1000.0, delta=0.5)
    ledger.close()
    shop.write(dataset="other", source={"parquet": "table/*.parquet"}, stages=PUBLIC)
    refused = call("run", job, "--output", shop.folder / "two")
    assert (refused.code, "'shop'" in refused.err) == (2, True)


def test_erasing_a_person_decides_no_exit_code(shop: Shop, call: Call) -> None:
    folder = shop.folder / "table"
    deltalake.write_deltalake(folder, purchases(0), configuration={"delta.enableDeletionVectors": "true"})
    (file,) = folder.glob("*.parquet")
    rows = pa.parquet.ParquetFile(file).read().column("customer").to_pylist()
    copies.delete_places(folder, {file.name: [place for place, who in enumerate(rows) if who == rows[0]]})
    job = shop.write(source={"delta": {"path": "table"}}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")


def test_a_damaged_deletion_vector_ends_a_paid_run(shop: Shop, call: Call) -> None:
    folder = shop.folder / "table"
    deltalake.write_deltalake(folder, purchases(0), configuration={"delta.enableDeletionVectors": "true"})
    (file,) = folder.glob("*.parquet")
    copies.delete_places(folder, {file.name: [1, 2, 3]})
    log = folder / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    vector = actions[1]["add"]["deletionVector"]
    vector["pathOrInlineDv"] = "00000" + vector["pathOrInlineDv"][5:]
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    said = call("run", shop.write(source={"delta": {"path": "table"}}, stages=PUBLIC), "--output", shop.folder / "out")
    assert said.code == 1
    assert said.err.startswith(f"error: file '{file}': {DAMAGED_DELETES}; nothing was published")
    assert (shop.charged(), (shop.folder / "out").exists()) == (1, False)


def test_an_iceberg_snapshot_is_fixed_too(shop: Shop, call: Call) -> None:
    table = icebergs.created(shop.folder / "table", purchases(0))
    path = icebergs.metadata_of(table)
    job = shop.write(source={"iceberg": {"path": path}}, stages=PUBLIC, budget=WEEKS)
    assert call("run", job, "--output", shop.folder / "one", "--run-id", "a").code == 0
    first = table.current_snapshot()
    assert first is not None
    table.append(purchases(1))
    later = icebergs.metadata_of(table)
    shop.write(source={"iceberg": {"path": later}}, stages=PUBLIC, budget=WEEKS)
    assert call("run", job, "--output", shop.folder / "two", "--run-id", "a").code == 2
    shop.write(source={"iceberg": {"path": path, "snapshot": 17}}, stages=PUBLIC, budget=WEEKS)
    gone = call("run", job, "--output", shop.folder / "three", "--run-id", "b")
    assert (gone.code, "has no snapshot 17" in gone.err) == (2, True)


def test_damage_in_an_avro_file_ends_a_paid_run(shop: Shop, call: Call) -> None:
    rows = purchases(0).select(["customer", "product", "price"])
    fields = [{"name": "customer", "type": "long"}, {"name": "product", "type": "string"}]
    schema = {"type": "record", "name": "r", "fields": [*fields, {"name": "price", "type": "double"}]}
    path = shop.folder / "data" / "rows.avro"
    with open(path, "wb") as stream:
        fastavro.writer(stream, schema, rows.to_pylist())
    job = shop.write(source={"avro": "data/*.avro"}, stages=PUBLIC, budget=WEEKS)
    assert call("run", job, "--output", shop.folder / "one", "--run-id", "a").code == 0
    path.write_bytes(path.read_bytes()[:-5000])
    said = call("run", job, "--output", shop.folder / "two", "--run-id", "b")
    assert (said.code, said.err) == (1, f"error: file '{path}': {DAMAGED_BLOCK}; nothing was published\n")
    assert shop.charged() == 2
    path.write_bytes(b"nothing of Avro")
    assert call("run", job, "--output", shop.folder / "three", "--run-id", "c").code == 2
    assert shop.charged() == 2


def test_lines_that_are_no_rows_change_nothing_that_can_be_seen(shop: Shop, call: Call) -> None:
    lines = [json.dumps(row) for row in purchases(0).select(["customer", "product", "price"]).to_pylist()]
    path = shop.folder / "data" / "rows.jsonl"
    types = {"customer": "int", "product": "string", "price": "double"}
    job = shop.write(source={"jsonl": "data/*.jsonl", "types": types}, stages=PUBLIC, budget=WEEKS)
    said = []
    for name, more in (("a", []), ("b", ["{", "[1]", '{"customer": "x", "price": {}}', "\x00", "[" * 9999])):
        path.write_text("\n".join([*lines, *more, ""]))
        found = call("run", job, "--output", shop.folder / name, "--run-id", name)
        said.append((found.code, found.err))
    assert said == [(0, ""), (0, "")]


def test_a_sample_of_a_table_is_refused(shop: Shop, call: Call, delta: Path) -> None:
    job = shop.write(source={"delta": {"path": "table"}}, stages=PUBLIC)
    said = call("tune", job, "--sample", shop.folder / "data" / "*.parquet", "--output", shop.folder / "out")
    assert (said.code, "this one reads a table" in said.err) == (2, True)
