"""Delta tables of a release: one commit for each run, whatever happens between; what a table cannot take is refused before.

In: published Parquet files, folders. Out: what deltalake reads of the tables, and messages. Not covered: whole runs and kills
(`tests/jobs/run/test_outputs.py`).
"""

import concurrent.futures
import datetime
import decimal
import json
import pathlib
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.extensions.lake.delta_output import MOST_TRIES, DeltaOutput
from dp_pipelines.extensions.lake.delta_place import DeltaFolder
from dp_pipelines.jobs.outputs.extension_output import transaction_of

ROWS = pa.table(
    {
        "k": ["a", None, ""],
        "large": [2**63 - 1, None, 2**53 + 1],
        "day": pa.array([datetime.date(2026, 1, 5), None, datetime.date(1970, 1, 1)]),
        "at": pa.array([datetime.datetime(2026, 1, 5, 1, 2, 3, 4), None, None], pa.timestamp("us")),
        "instant": pa.array([datetime.datetime(2026, 1, 5), None, None], pa.timestamp("us", "Europe/Berlin")),
        "money": pa.array([decimal.Decimal("1.25"), None, None], pa.decimal128(20, 2)),
        "blob": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "flag": [True, None, False],
        "n": [1.5, 2.5, None],
        "v": pa.array([[1.5, None], None, []], pa.list_(pa.float64())),
    }
)
SHORT = pa.table({"k": ["x"], "n": [9.0]})


def published(folder: pathlib.Path, table: pa.Table = SHORT) -> pathlib.Path:
    """A published file."""
    folder.mkdir(exist_ok=True)
    pa.parquet.write_table(table, folder / "weekly.parquet", compression="zstd")
    return folder / "weekly.parquet"


def output(folder: pathlib.Path, mode: str = "append") -> DeltaOutput:
    """Tables below a folder."""
    return DeltaOutput(folder=str(folder / "lake"), mode=mode)


def publish(folder: pathlib.Path, run: str, table: pa.Table = SHORT, mode: str = "append") -> deltalake.DeltaTable:
    """The table after a run."""
    output(folder, mode).publish("weekly", published(folder / "out", table), transaction_of("shop", run), run)
    return deltalake.DeltaTable(folder / "lake" / "weekly")


def rows(table: deltalake.DeltaTable, *columns: str) -> list[dict[str, Any]]:
    """The rows of a table as DuckDB has them, from deltalake's reader."""
    read = table.to_pyarrow_table()
    return read.select(list(columns) or read.column_names).to_pylist()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_holds_what_the_parquet_file_holds(tmp_path: pathlib.Path, mode: str) -> None:
    table = publish(tmp_path, "one", ROWS, mode)
    assert rows(table, *ROWS.column_names) == ROWS.to_pylist()
    columns = [*ROWS.column_names, *(["run_id"] if mode == "append" else [])]
    assert [field.name for field in table.schema().fields] == columns
    (file,) = table.file_uris()
    assert pathlib.Path(file).read_bytes() == (tmp_path / "out" / "weekly.parquet").read_bytes()
    assert table.version() == 0


def test_duckdb_reads_the_file_of_a_commit_as_the_published_one(tmp_path: pathlib.Path) -> None:
    (file,) = publish(tmp_path, "one", ROWS).file_uris()
    both = [duckdb.sql(f"SELECT * FROM '{path}'").fetchall() for path in (file, tmp_path / "out" / "weekly.parquet")]
    assert both[0] == both[1]


def test_runs_are_added_each_once(tmp_path: pathlib.Path) -> None:
    for run in ("one", "two", "one", "two", "two"):
        table = publish(tmp_path, run, pa.table({"k": [run], "n": [1.0]}))
    assert table.version() == 1
    assert sorted((row["run_id"], row["k"]) for row in rows(table)) == [("one", "one"), ("two", "two")]
    known = [table.transaction_version(transaction_of("shop", run)) is not None for run in ("one", "two", "three")]
    assert known == [True, True, False]


def test_a_table_that_has_another_release_of_a_run_is_told(tmp_path: pathlib.Path) -> None:
    publish(tmp_path, "one")
    with pytest.raises(PublishError, match="has another release of a run of this id"):
        publish(tmp_path, "one", pa.table({"k": ["x"], "n": [8.0]}))
    assert publish(tmp_path, "one").version() == 0


def test_equal_releases_of_two_runs_are_two_files(tmp_path: pathlib.Path) -> None:
    publish(tmp_path, "one")
    assert len(publish(tmp_path, "two").file_uris()) == 2


def test_a_run_replaces_those_before_it_and_an_earlier_one_does_not_come_back(tmp_path: pathlib.Path) -> None:
    for run in ("one", "two", "one"):
        table = publish(tmp_path, run, pa.table({"k": [run], "n": [1.0]}), "overwrite")
    assert (table.version(), rows(table)) == (1, [{"k": "two", "n": 1.0}])


def test_others_may_write_in_between(tmp_path: pathlib.Path) -> None:
    table = publish(tmp_path, "one")
    table.optimize.compact()
    deltalake.write_deltalake(table, pa.table({"k": ["y"], "n": [0.0], "run_id": ["by hand"]}), mode="append")
    after = publish(tmp_path, "one")
    assert len(rows(after)) == 2
    assert {row["run_id"] for row in rows(publish(tmp_path, "two"))} == {"one", "two", "by hand"}


def test_a_race_that_is_lost_is_looked_at_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = publish(tmp_path, "one")
    publish(tmp_path, "two")
    opened, seen = DeltaFolder.opened, []

    def late(place: DeltaFolder) -> deltalake.DeltaTable | None:
        seen.append(place)
        return stale if len(seen) == 1 else opened(place)

    monkeypatch.setattr(DeltaFolder, "opened", late)
    table = publish(tmp_path, "two")  # as it was seen first, the table has no such run
    assert (len(seen), table.version(), len(rows(table))) == (2, 1, 2)


def test_races_may_be_lost_more_often_than_a_commit_may_fail(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is a commit of somebody else; a commit that fails though nobody else has come is not tried for ever."""
    publish(tmp_path, "one")
    committed, lost = DeltaOutput._committed, []

    def after_another(asked: DeltaOutput, table: deltalake.DeltaTable, *given: Any) -> bool:
        if len(lost) < MOST_TRIES + 2:
            row = pa.table({"k": ["y"], "n": [0.0], "run_id": ["by hand"]})
            deltalake.write_deltalake(tmp_path / "lake" / "weekly", row, mode="append")
            lost.append(table.version())
        return committed(asked, table, *given)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaOutput, "_committed", after_another)
        assert publish(tmp_path, "two").version() == MOST_TRIES + 3
    assert lost == list(range(MOST_TRIES + 2))
    failed = []
    monkeypatch.setattr(DeltaOutput, "_committed", lambda *given: bool(failed.append(given)))
    with pytest.raises(PublishError, match="cannot be committed to"):
        publish(tmp_path, "three")
    assert len(failed) == MOST_TRIES


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_many_at_once_make_one_commit_a_run(tmp_path: pathlib.Path, mode: str) -> None:
    file = published(tmp_path / "out")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [f"r{number % 3}" for number in range(12)]
        list(
            pool.map(lambda run: output(tmp_path, mode).publish("weekly", file, transaction_of("shop", run), run), runs)
        )
    table = deltalake.DeltaTable(tmp_path / "lake" / "weekly")
    assert (table.version(), len(rows(table))) == (2, 3 if mode == "append" else 1)
    assert not list((tmp_path / "lake" / "weekly").glob(".*unfinished"))


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        *(
            ("k", kind, "which a Delta table cannot hold")
            for kind in (pa.uint8(), pa.uint64(), pa.timestamp("ns"), pa.timestamp("s"))
        ),
        *(
            ("k", kind, "which a Delta table cannot hold")
            for kind in (pa.time64("us"), pa.duration("s"), pa.binary(3), pa.date64())
        ),
        ("k", pa.decimal256(50, 2), "which a Delta table cannot hold"),
        ("k", pa.null(), "which a Delta table cannot hold"),
        ("a b", pa.string(), "has a name with a space"),
        ("N", pa.string(), "is called as column"),
        ("Run_ID", pa.string(), "is called as the column of the run's id is"),
    ],
)
def test_what_a_table_cannot_hold_is_refused(column: str, kind: pa.DataType, said: str, tmp_path: pathlib.Path) -> None:
    schema = pa.schema([("n", pa.float64()), (column, kind)])
    (refused,) = output(tmp_path).refused(schema)
    assert refused[0] == column
    assert said in refused[1]
    if column == "Run_ID":
        assert not list(output(tmp_path, "overwrite").refused(schema))


def test_what_is_not_refused_can_be_committed(tmp_path: pathlib.Path) -> None:
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.float32(), pa.decimal128(38, 0), pa.timestamp("us", "UTC")):
        table = pa.table({"k": pa.nulls(2, kind), "n": [1.0, 2.0]})
        assert not list(output(tmp_path / str(kind)).refused(table.schema))
        (tmp_path / str(kind)).mkdir()
        assert rows(publish(tmp_path / str(kind), "one", table), "k", "n") == table.to_pylist()


def refusal(folder: pathlib.Path, schema: pa.Schema = SHORT.schema, mode: str = "append", run: str = "new") -> str:
    """What is said of a table before a run; nothing is created."""
    before = sorted(folder.rglob("*"))
    try:
        output(folder, mode).refuse_unready("weekly", schema, transaction_of("shop", run))
    except RequestError as error:
        return str(error)
    finally:
        assert sorted(folder.rglob("*")) == before
    return ""


def test_a_table_that_can_take_a_run_is_not_refused(tmp_path: pathlib.Path) -> None:
    assert refusal(tmp_path) == ""
    publish(tmp_path, "one")
    assert refusal(tmp_path) == ""


def test_a_table_that_has_a_run_of_this_id_is_refused(tmp_path: pathlib.Path) -> None:
    publish(tmp_path, "one")
    assert "has a run of this id already" in refusal(tmp_path, run="one")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (pa.schema([("k", pa.string())]), "has column 'n' as \"double\", and the release none"),
        (pa.schema([("k", pa.string()), ("n", pa.int64())]), 'has column \'n\' as "double", and the release as "long"'),
        (pa.schema([*SHORT.schema, ("m", pa.float64())]), "has no column 'm', and the release as \"double\""),
    ],
)
def test_a_table_of_other_columns_is_refused(tmp_path: pathlib.Path, schema: pa.Schema, said: str) -> None:
    publish(tmp_path, "one")
    assert said in refusal(tmp_path, schema)


@pytest.mark.parametrize(
    ("configuration", "mode", "said"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 7 days"}, "append", "forgets transactions"),
        ({"delta.enableChangeDataFeed": "true"}, "append", "asks of writers"),
        ({"delta.enableDeletionVectors": "true"}, "append", "asks of writers feature 'deletionVectors'"),
        ({"delta.appendOnly": "true"}, "overwrite", "can only be appended to"),
        ({"delta.appendOnly": "true"}, "append", ""),
    ],
)
def test_a_table_with_rules_that_are_not_kept_here_is_refused(
    tmp_path: pathlib.Path, configuration: dict[str, str], mode: str, said: str
) -> None:
    columns = pa.schema([*SHORT.schema, *([("run_id", pa.string())] if mode == "append" else [])])
    partitioned = ["run_id"] if mode == "append" else []
    path = str(tmp_path / "lake" / "weekly")
    deltalake.DeltaTable.create(
        path, deltalake.Schema.from_arrow(columns), partition_by=partitioned, configuration=configuration
    )
    found = refusal(tmp_path, mode=mode)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_of_another_dataset_is_refused(tmp_path: pathlib.Path, mode: str) -> None:
    """Its runs may have the same ids, and one of ours would replace its rows or pass for its own."""
    publish(tmp_path, "new", mode=mode)
    tables, transaction = output(tmp_path, mode), transaction_of("another", "new")
    with pytest.raises(RequestError, match="is of dataset 'shop', whose run ids are its own"):
        tables.refuse_unready("weekly", SHORT.schema, transaction)
    with pytest.raises(PublishError, match="is of dataset 'shop'"):
        tables.publish("weekly", published(tmp_path / "out"), transaction, "new")


def test_a_column_that_is_never_null_is_refused(tmp_path: pathlib.Path) -> None:
    """Keys and numbers of a release may be null, whatever the rows of this run are."""
    columns = pa.schema([pa.field("k", pa.string(), nullable=False), ("n", pa.float64()), ("run_id", pa.string())])
    path = str(tmp_path / "lake" / "weekly")
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(columns), partition_by=["run_id"])
    assert "has column 'k' that is never null" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("mode", "partitioned", "said"), [("append", [], "'run_id' alone"), ("overwrite", ["k"], "nothing")]
)
def test_other_partitions_are_refused(tmp_path: pathlib.Path, mode: str, partitioned: list[str], said: str) -> None:
    columns = pa.schema([*SHORT.schema, *([("run_id", pa.string())] if mode == "append" else [])])
    path = str(tmp_path / "lake" / "weekly")
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(columns), partition_by=partitioned)
    assert f"must be partitioned by {said}" in refusal(tmp_path, mode=mode)


def test_what_is_no_table_is_refused(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "lake" / "weekly" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{}")
    assert "is not a Delta table that can be read" in refusal(tmp_path)
    (tmp_path / "lake").rename(tmp_path / "other")
    (tmp_path / "lake").write_text("")
    assert "cannot be created" in refusal(tmp_path)


@pytest.mark.parametrize("folder", ["x" * 300, "not there yet/" + "x" * 300, "x/" * 2500], ids=len)
def test_a_folder_that_no_disk_can_hold_is_refused(tmp_path: pathlib.Path, folder: str) -> None:
    tables = DeltaOutput(folder=str(tmp_path / folder), mode="append")
    with pytest.raises(RequestError, match="cannot be created"):
        tables.refuse_unready("weekly", SHORT.schema, transaction_of("shop", "one"))


def test_a_table_that_changed_meanwhile_fails_with_what_to_do(tmp_path: pathlib.Path) -> None:
    publish(tmp_path, "one")
    with pytest.raises(PublishError, match=r"has no column 'm'.*; the release is published in .*which costs nothing"):
        publish(tmp_path, "two", pa.table({"k": ["x"], "n": [1.0], "m": [1.0]}))


def test_a_commit_says_which_run_it_is(tmp_path: pathlib.Path) -> None:
    table = publish(tmp_path, "2026-W01")
    said = table.history()[0]
    assert said["dp_pipelines.run_id"] == "2026-W01"
    log = [
        json.loads(line)
        for line in (tmp_path / "lake" / "weekly" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    ]
    (transaction,) = [action["txn"] for action in log if "txn" in action]
    assert transaction["appId"] == "dp_pipelines/shop/2026-W01"
    assert 0 <= transaction["version"] < 2**63


def test_a_run_is_known_after_its_commit_has_left_the_log(tmp_path: pathlib.Path) -> None:
    publish(tmp_path, "one")
    table = publish(tmp_path, "two")
    table.create_checkpoint()
    (tmp_path / "lake" / "weekly" / "_delta_log" / f"{0:020}.json").unlink()
    after = publish(tmp_path, "one")
    assert (after.version(), len(rows(after))) == (1, 2)
    assert publish(tmp_path, "three").version() == 2
