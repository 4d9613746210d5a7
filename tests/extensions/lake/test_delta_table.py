"""Delta tables: which version is read, which rows are deleted, and what is refused by public facts."""

import json
import pathlib
import pickle
import shutil
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.extensions.lake.delta_table import look_at_delta
from dp_pipelines.extensions.lake.snapshot_rows import ReadSnapshotRows, SnapshotReader, SnapshotRowGroups
from dp_pipelines.jobs.sources.readers import DAMAGED_DELETES
from dp_pipelines.jobs.sources.source_files import Source
from tests.helpers.copies import delete_places

ROWS = pa.table({"who": list(range(100)), "n": [f"t{n % 7}" for n in range(100)]})
VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(source: Source, names: list[str] | None = None) -> list[dict[str, Any]]:
    """The rows of a source, in the order of its files."""
    reader = source.reader
    assert isinstance(reader, SnapshotReader)
    types = {name: source.schema.field(name).type for name in names or source.schema.names}
    groups = pickle.loads(pickle.dumps(SnapshotRowGroups(reader.deletes, together=1)))
    read = pickle.loads(pickle.dumps(ReadSnapshotRows(types)))
    tables = [
        table
        for path in source.files
        for element in groups.process((path, reader.parts[path].to_text()))
        for table in read.process(element)
    ]
    assert sum(table.num_rows == 0 for table in tables) >= len(source.files)
    return [row for table in tables for row in table.to_pylist()]


def written(folder: pathlib.Path, table: pa.Table = ROWS, **more: Any) -> str:
    """A Delta table."""
    deltalake.write_deltalake(folder, table, **more)
    return str(folder)


def the_file(path: str) -> str:
    """The only file of a table."""
    (found,) = pathlib.Path(path).glob("*.parquet")
    return found.name


def test_the_last_version_is_read_unless_another_is_named(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t")
    written(tmp_path / "t", ROWS.slice(0, 10), mode="append")
    assert len(rows(look_at_delta(path, None))) == 110
    assert sorted(rows(look_at_delta(path, 0)), key=lambda row: row["who"]) == ROWS.to_pylist()
    names = [look_at_delta(path, version).snapshot for version in (None, 1, 0)]
    assert names[0] == names[1] != names[2]


def test_a_table_that_was_made_anew_is_another_snapshot(tmp_path: pathlib.Path) -> None:
    one, two = (look_at_delta(written(tmp_path / name), 0).snapshot for name in "ab")
    assert one != two


@pytest.mark.parametrize("deleted", [[0], [99], [3, 17, 40], list(range(100)), list(range(0, 100, 2))])
def test_deleted_rows_are_left_out(tmp_path: pathlib.Path, deleted: list[int]) -> None:
    path = written(tmp_path / "t", configuration=VECTORS)
    delete_places(tmp_path / "t", {the_file(path): deleted})
    expected = [row for place, row in enumerate(ROWS.to_pylist()) if place not in deleted]
    assert rows(look_at_delta(path, None)) == expected
    assert rows(look_at_delta(path, 0)) == ROWS.to_pylist()


def test_places_count_over_row_groups(tmp_path: pathlib.Path) -> None:
    properties = deltalake.WriterProperties(max_row_group_size=9)
    path = written(tmp_path / "t", configuration=VECTORS, writer_properties=properties)
    deleted = [0, 8, 9, 50, 98, 99]
    delete_places(tmp_path / "t", {the_file(path): deleted})
    assert [row["who"] for row in rows(look_at_delta(path, None))] == [n for n in range(100) if n not in deleted]


def test_deleted_rows_make_no_table_that_stands_for_a_file(tmp_path: pathlib.Path) -> None:
    properties = deltalake.WriterProperties(max_row_group_size=9)
    path = written(tmp_path / "t", configuration=VECTORS, writer_properties=properties)
    delete_places(tmp_path / "t", {the_file(path): list(range(9, 40))})
    source = look_at_delta(path, None)
    reader = source.reader
    assert isinstance(reader, SnapshotReader)
    read = ReadSnapshotRows({"who": pa.int64()})
    elements = SnapshotRowGroups(reader.deletes, together=1).process(
        (source.files[0], reader.parts[source.files[0]].to_text())
    )
    sizes = [table.num_rows for element in elements for table in read.process(element)]
    assert (sizes.count(0), sum(sizes)) == (1, 69)


def test_another_table_in_the_same_folder_has_its_own_deleted_rows(tmp_path: pathlib.Path) -> None:
    for deleted in ([1, 2, 3], [4]):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        path = written(tmp_path / "t", configuration=VECTORS)
        delete_places(tmp_path / "t", {the_file(path): deleted})
        assert [row["who"] for row in rows(look_at_delta(path, None))] == [n for n in range(100) if n not in deleted]


def test_partition_columns_have_their_values_back(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {
            "who": [1, 2, 3, 4],
            "day": pa.array([20_000, None, 20_001, 20_000], pa.int32()).cast(pa.date32()),
            "shop": ["a b/%", "é=1", None, "NULL"],
        }
    )
    path = written(tmp_path / "t", table, partition_by=["day", "shop"])
    found = rows(look_at_delta(path, None))
    assert sorted(found, key=lambda row: row["who"]) == table.to_pylist()
    assert sorted(row["shop"] or "" for row in rows(look_at_delta(path, None), ["shop"])) == [
        "",
        "NULL",
        "a b/%",
        "é=1",
    ]


def test_a_partition_column_of_bytes_is_refused_only_where_it_is_used(tmp_path: pathlib.Path) -> None:
    table = pa.table({"who": [1, 2], "key": pa.array([b"ab", b"\xff"], pa.binary())})
    source = look_at_delta(written(tmp_path / "t", table, partition_by=["key"]), None)
    assert sorted(row["who"] for row in rows(source)) == [1, 2]
    assert "column 'key', which is a partition column of bytes" in str(source.missing["key"])


def test_columns_that_came_later_are_null_before(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t", ROWS.slice(0, 2))
    later = ROWS.slice(2, 1).append_column("new", pa.array([1.5]))
    written(tmp_path / "t", later, mode="append", schema_mode="merge")
    assert sorted(str(row["new"]) for row in rows(look_at_delta(path, None))) == ["1.5", "None", "None"]


def test_columns_are_found_by_their_physical_names(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for number, (field, name) in enumerate(zip(schema["fields"], ("person", "shop"), strict=True), 1):
                field["metadata"] = {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": field["name"],
                }
                field["name"] = name
            action["metaData"]["schemaString"] = json.dumps(schema)
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "add" in action:
            action["add"].pop("stats", None)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert rows(look_at_delta(path, None)) == ROWS.rename_columns(["person", "shop"]).to_pylist()


def test_a_table_without_rows_is_no_error(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t")
    deltalake.DeltaTable(path).delete()
    source = look_at_delta(path, None)
    assert (source.files, source.schema.names, rows(source)) == ((), ["who", "n"], [])


def test_what_is_wrong_by_public_facts_is_refused(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t")
    for version in (7, -1, 2**63 - 1, 2**70):
        with pytest.raises(RequestError, match=rf"has no version {version}, or no longer; its last one is 0"):
            look_at_delta(path, version)
    with pytest.raises(RequestError, match="is not a Delta table"):
        look_at_delta(str(tmp_path), None)
    pathlib.Path(path, the_file(path)).unlink()
    with pytest.raises(RequestError, match="is not there, or is not a complete Parquet file"):
        look_at_delta(path, None)


def test_an_unknown_feature_of_the_protocol_is_refused(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t", configuration=VECTORS)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"variantType"', '"wormholes"'))
    with pytest.raises(RequestError, match="wormholes|is not a Delta table that can be read"):
        look_at_delta(path, None)


def test_a_damaged_deletion_vector_is_damage_and_never_ignored(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t", configuration=VECTORS)
    delete_places(tmp_path / "t", {the_file(path): [1, 2, 3]})
    log = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    vector = actions[1]["add"]["deletionVector"]
    vector["pathOrInlineDv"] = "00000" + vector["pathOrInlineDv"][5:]
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    source = look_at_delta(path, None)
    with pytest.raises(DamagedInputError) as raised:
        rows(source)
    assert str(raised.value) == f"file {source.files[0]!r}: {DAMAGED_DELETES}"
