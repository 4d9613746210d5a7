"""Runs that publish Delta tables: one commit a run, after every kill; runs that read tables name the version.

In: the shop. Out: published folders, Delta tables, exit codes. Holds: runs are real, kills are those of `tests.helpers.killed`.
Not covered: each type (`test_delta_output`), buckets (`test_s3_delta_outputs`).
"""

import json
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.extensions.lake.delta_output import DeltaOutput
from dp_pipelines.jobs.outputs.outputs import Outputs
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from tests.helpers import icebergs
from tests.helpers.small_disks import SmallDisk
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.jobs.run.test_kills import kill
from tests.jobs.run.test_outputs import BOTH, LISTED, STAGES, manifest_of, rows_of, run
from tests.jobs.test_small_disks import at_step

Call = Callable[..., Said]
LAKE = {"delta": "lake"}
WEEKS = {"epsilon": 8.0, "delta": 1e-5, "runs": 3}


def lake(shop: Shop, name: str = "weekly") -> deltalake.DeltaTable:
    """A Delta table of the shop."""
    return deltalake.DeltaTable(shop.folder / "lake" / name)


def runs_in(shop: Shop, name: str = "weekly") -> dict[str, list[dict[str, Any]]]:
    """The rows of a Delta table that is appended to, by run."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in lake(shop, name).to_pyarrow_table().to_pylist():
        found.setdefault(row.pop("run_id"), []).append(row)
    return found


@pytest.mark.parametrize("name", ["rollup", "lists", "times and numbers"])
def test_a_table_holds_the_rows_of_the_parquet_file(shop: Shop, call: Call, name: str) -> None:
    shop.write(
        stages={"weekly": stage(**STAGES[name])}, outputs={**LAKE, "delta_mode": "overwrite"},
        columns={"day": "CAST(paid_at AS DATE)", "at": "date_trunc('week', paid_at)"},
    )  # fmt: skip
    assert run(shop, call, "one", "--ledger", "none").code == 0
    for path in (shop.folder / "one").glob("*.parquet"):
        assert lake(shop, path.stem).to_pyarrow_table().to_pylist() == rows_of(path)


def test_runs_are_appended_each_once(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": stage(), "listed": stage(partitions=LISTED)}, budget=WEEKS, outputs=LAKE)
    for name, out in (("a", "a"), ("b", "b"), ("a", "a"), ("a", "elsewhere")):
        said = run(shop, call, name, out=out)
        assert (said.code, said.err) == (0, "")
        assert said.out.endswith("\ndelta      weekly, listed: committed to the Delta tables of the job\n")
    for table in ("weekly", "listed"):
        assert lake(shop, table).version() == 1
        assert runs_in(shop, table) == {name: rows_of(shop.folder / name / f"{table}.parquet") for name in ("a", "b")}
    said_of = manifest_of(shop.folder / "a")["outputs"]
    assert said_of == {
        "delta": {"tables": ["weekly", "listed"], "mode": "append", "transaction": "dp_pipelines/shop/a"}
    }
    assert str(shop.folder) not in (shop.folder / "a" / "manifest.json").read_text()


def test_a_run_replaces_the_rows_of_those_before(shop: Shop, call: Call) -> None:
    shop.write(budget=WEEKS, outputs={**LAKE, "delta_mode": "overwrite"})
    assert [run(shop, call, name).code for name in "aba"] == [0, 0, 0]
    assert lake(shop).to_pyarrow_table().to_pylist() == rows_of(shop.folder / "b" / "weekly.parquet")


@pytest.mark.parametrize(
    ("delta", "output"),
    [
        ("out", "out"),
        ("out/lake", "out"),
        ("lake", "lake/weekly"),
        ("lake", "lake/weekly/a"),
        ("link", "out"),
        ("old/lake", "out"),
    ],
)
def test_a_table_and_a_release_lie_apart(shop: Shop, call: Call, delta: str, output: str) -> None:
    shop.write(budget=WEEKS, stages={"weekly": stage(partitions=LISTED)})
    assert run(shop, call, "old").code == 0
    before = manifest_of(shop.folder / "old")
    (shop.folder / "link").symlink_to("out/lake")
    shop.write(budget=WEEKS, stages={"weekly": stage(partitions=LISTED)}, outputs={"delta": delta})
    said = run(shop, call, "one", out=output)
    assert (said.code, "lie in one another" in said.err) == (2, True), said
    assert shop.charged() == 1
    assert not (shop.folder / "out").exists()
    assert not (shop.folder / "lake").exists()
    assert sorted(path.name for path in (shop.folder / "old").iterdir()) == sorted([*before["files"], "manifest.json"])


def test_a_table_that_is_gone_gets_the_release_again(shop: Shop, call: Call) -> None:
    shop.write(budget=WEEKS, outputs=LAKE)
    assert run(shop, call, "a").code == 0
    shutil.rmtree(shop.folder / "lake")
    assert run(shop, call, "a").code == 0
    assert runs_in(shop) == {"a": rows_of(shop.folder / "a" / "weekly.parquet")}
    assert shop.charged() == 1


def test_the_folder_of_tables_may_name_a_parameter(shop: Shop, call: Call) -> None:
    shop.write(budget=WEEKS, outputs={"delta": "lake/{shop}"}, params={"shop": {"type": "string"}})
    assert run(shop, call, "a", "--param", "shop=north").code == 0
    assert deltalake.DeltaTable(shop.folder / "lake" / "north" / "weekly").version() == 0
    shop.write(budget=WEEKS, outputs={"delta": "lake/{town}"}, params={"shop": {"type": "string"}})
    said = run(shop, call, "b", "--param", "shop=north")
    assert (said.code, "uses {town}, which params does not declare" in said.err) == (2, True)


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


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step == ("add to a table", "after", 1) else [pytest.mark.slow]) for step in COPIES],
    ids=lambda step: f"{step[1]} {step[0]} {step[2]}",
)
@pytest.mark.parametrize("ledger", ["ledger", pytest.param("none", marks=pytest.mark.slow)])
def test_after_a_kill_the_same_command_leaves_one_commit_of_one_release(
    shop: Shop, call: Call, step: tuple[str, str, int], ledger: str
) -> None:
    shop.write(stages={"weekly": stage(), "listed": stage(partitions=LISTED)}, outputs={**BOTH, **LAKE})
    url = str(shop.folder / DEFAULT_NAME) if ledger == "ledger" else "none"
    kill(shop, url, *step)
    said = run(shop, call, "one", "--ledger", url, out="out")
    assert (said.code, said.err) == (0, "")
    out = shop.folder / "out"
    for table in ("weekly", "listed"):
        assert (lake(shop, table).version(), runs_in(shop, table)) == (0, {"one": rows_of(out / f"{table}.parquet")})
        assert len(list((shop.folder / "lake" / table).glob("*.parquet"))) == 1
        lines = [json.loads(line) for line in (out / f"{table}.jsonl").read_text().splitlines()]
        assert lines == rows_of(out / f"{table}.parquet")
    assert [path for path in shop.left() if "unfinished" in path or "staging" in path] == []
    if ledger == "ledger":
        assert shop.charged() == 1


def test_what_a_format_cannot_hold_is_refused_before_the_charge(shop: Shop, call: Call) -> None:
    numbers = pa.table({"customer": [1], "code": pa.array([1], pa.uint64()), "blob": [b"x"]})
    pa.parquet.write_table(numbers, shop.folder / "data" / "typed.parquet")
    keys = {"weekly": stage(partition_by=["code", "blob"], metrics={"orders": {"kind": "count"}})}
    job = shop.write(source={"parquet": "data/typed.parquet"}, stages=keys, outputs={**BOTH, **LAKE})
    for command in (("plan", job), ("run", job, "--output", shop.folder / "out")):
        said = call(*command)
        assert said.code == 2
        for words in (
            "outputs.files: column 'blob' of table 'weekly' is binary, which CSV cannot hold; cast it first",
            "outputs.files: column 'blob' of table 'weekly' is binary, which JSON cannot hold",
            "outputs.delta: column 'code' of table 'weekly' is uint64, which a Delta table cannot hold",
        ):
            assert words in said.err
        assert "job.yaml:" in said.err
    assert (shop.charged(), (shop.folder / "lake").exists()) == (0, False)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({}, "outputs: must hold files: or delta:"),
        ({"files": ["csv", "csv"]}, "outputs.files: names a format twice"),
        ({"files": ["xml"]}, "outputs.files.0"),
        ({"files": ["csv"], "delta_mode": "append"}, "outputs.delta_mode: is for delta: only"),
        ({"delta": "gs://bucket/lake"}, "outputs.delta: names no local folder, and none of a bucket of S3"),
        ({"delta": "lake\0house"}, "outputs.delta: names no local folder"),
    ],
)
def test_what_outputs_cannot_say_is_refused(shop: Shop, call: Call, outputs: dict[str, Any], words: str) -> None:
    said = call("plan", shop.write(outputs=outputs))
    assert (said.code, words in said.err) == (2, True), said.err


def test_a_run_that_a_table_has_from_another_ledger_is_refused_unpaid(shop: Shop, call: Call) -> None:
    shop.write(outputs=LAKE)
    assert run(shop, call, "one", "--ledger", "none").code == 0
    said = run(shop, call, "one", out="two")
    assert (said.code, "has a run of this id already" in said.err, shop.charged()) == (2, True, 0)
    again = run(shop, call, "one", "--ledger", "none")
    assert (again.code, again.err) == (0, "")
    shutil.rmtree(shop.folder / "one")
    assert run(shop, call, "one", "--ledger", "none").code == 2
    assert lake(shop).version() == 0


def test_a_table_that_cannot_be_written_any_more_is_told_and_mended(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(outputs=LAKE)
    ready = Outputs.refuse_unready

    def then_blocked(self: Outputs, dataset: str, run_id: str) -> None:
        ready(self, dataset, run_id)
        (shop.folder / "lake").write_text("in the way")

    monkeypatch.setattr(Outputs, "refuse_unready", then_blocked)
    said = run(shop, call, "one")
    assert said.code == 1
    assert f"the release is published in '{shop.folder / 'one'}', and not there" in said.err
    assert (shop.folder / "one" / "manifest.json").is_file()
    (shop.folder / "lake").unlink()
    assert run(shop, call, "one").code == 0
    assert runs_in(shop) == {"one": rows_of(shop.folder / "one" / "weekly.parquet")}
    assert shop.charged() == 1


def test_a_release_that_is_delivered_where_the_packages_are_gone_says_what_to_install(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(stages={"weekly": stage(partitions=LISTED)}, outputs=LAKE)
    assert run(shop, call, "one").code == 0
    shutil.rmtree(shop.folder / "lake")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "deltalake", None)
        said = run(shop, call, "one")
        assert (said.code, "pip install 'dp-pipelines[delta]'" in said.err) == (2, True), said
    assert run(shop, call, "one").code == 0
    assert (lake(shop).version(), shop.charged()) == (0, 1)


def test_a_manifest_names_the_version_that_the_job_names(shop: Shop, call: Call) -> None:
    deltalake.write_deltalake(shop.folder / "table", purchases(0))
    stages = {"weekly": stage(partitions=LISTED)}
    shop.write(
        source={"delta": {"path": "table", "version": "{version}"}},
        params={"version": {"type": "int"}},
        stages=stages,
        budget=WEEKS,
    )
    assert run(shop, call, "a", "--param", "version=0").code == 0
    assert manifest_of(shop.folder / "a")["sources"] == {"source": {"format": "delta", "version": "0"}}
    shop.write(source={"delta": {"path": "table", "version": 0}}, stages=stages, budget=WEEKS)
    assert run(shop, call, "b").code == 0
    assert manifest_of(shop.folder / "b")["sources"] == {"source": {"format": "delta", "version": "0"}}
    shop.write(stages=stages, budget=WEEKS)
    assert run(shop, call, "c").code == 0
    assert "sources" not in manifest_of(shop.folder / "c")


def test_a_manifest_is_the_same_whichever_version_the_last_one_is(shop: Shop, call: Call) -> None:
    """Writers that commit once for each person would tell of one by the number of a version that was only found."""
    stages = {"weekly": stage(partitions=LISTED)}
    shop.write(source={"delta": {"path": "table"}}, stages=stages, budget=WEEKS)
    said = []
    for number, run_id in enumerate("ab"):
        deltalake.write_deltalake(shop.folder / "table", purchases(number), mode="append")
        assert run(shop, call, run_id).code == 0
        said.append(manifest_of(shop.folder / run_id)["sources"])
    assert said == [{"source": {"format": "delta", "version": None}}] * 2


def test_a_snapshot_of_iceberg_is_named_by_all_of_its_digits(shop: Shop, call: Call) -> None:
    table = icebergs.created(shop.folder / "table", purchases(0))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    source = {"iceberg": {"path": icebergs.metadata_of(table), "snapshot": snapshot.snapshot_id}}
    shop.write(source=source, stages={"weekly": stage(partitions=LISTED)})
    assert run(shop, call, "a").code == 0
    said = {"format": "iceberg", "snapshot": str(snapshot.snapshot_id)}
    assert manifest_of(shop.folder / "a")["sources"] == {"source": said}


def test_the_data_file_of_a_table_is_the_parquet_file(shop: Shop, call: Call) -> None:
    shop.write(outputs=LAKE)
    assert run(shop, call, "one").code == 0
    (file,) = lake(shop).file_uris()
    assert pathlib.Path(file).read_bytes() == (shop.folder / "one" / "weekly.parquet").read_bytes()


def test_a_full_disk_under_delta_is_told_as_one_before_and_after_the_charge(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shop.write(outputs={"delta": str(small_disk.path / "tables")})
    small_disk.fill()
    said = call("run", job, "--output", shop.folder / "out")
    assert said.code == 2
    assert "Delta table '" in said.err
    assert "the disk is full; free some space on it, or choose another folder for delta:" in said.err
    small_disk.free()
    at_step(monkeypatch, DeltaOutput, "_committed", small_disk.fill)
    said = call("run", job, "--output", shop.folder / "out")
    assert said.code == 1
    assert "tables/weekly': the disk is full; the release is published in" in said.err
    small_disk.free()
    assert call("run", job, "--output", shop.folder / "out").code == 0
