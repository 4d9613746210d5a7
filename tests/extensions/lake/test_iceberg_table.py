"""Iceberg tables: which snapshot is read, which rows are deleted in each of three ways, and what is refused by public facts."""

import json
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, StringType

from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.extensions.lake.iceberg_table import look_at_iceberg
from dp_pipelines.jobs.sources.readers import DAMAGED_DELETES
from tests.extensions.lake.test_delta_table import rows
from tests.helpers import icebergs

ROWS = pa.table({"who": pa.array(range(60), pa.int32()), "n": [f"t{n % 7}" if n % 5 else None for n in range(60)]})


def kept(path: str, snapshot: int | None = None) -> list[int]:
    """Who is in a snapshot."""
    return sorted(row["who"] for row in rows(look_at_iceberg(path, snapshot)))


def test_a_snapshot_is_read_whole(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    first = table.current_snapshot()
    assert first is not None
    table.append(ROWS.slice(0, 10))
    path = icebergs.metadata_of(table)
    assert rows(look_at_iceberg(path, first.snapshot_id)) == ROWS.to_pylist()
    assert len(kept(path)) == 70
    names = [look_at_iceberg(path, number).snapshot for number in (None, first.snapshot_id)]
    assert names[0] != names[1]


@pytest.mark.parametrize("deleted", [[0], [59], [3, 17, 40], list(range(60))])
@pytest.mark.parametrize("vector", [False, True])
def test_rows_deleted_by_place_are_left_out(tmp_path: pathlib.Path, deleted: list[int], vector: bool) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    (location,) = icebergs.data_files(table)
    make = (
        icebergs.by_vector(tmp_path, location, deleted) if vector else icebergs.by_place(tmp_path, {location: deleted})
    )
    path = icebergs.with_deletes(table, [make])
    assert kept(path) == [who for who in range(60) if who not in deleted]
    assert len(kept(icebergs.metadata_of(table))) == 60


def test_one_file_deletes_rows_of_several(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS.slice(0, 30))
    table.append(ROWS.slice(30))
    places = {location: [0, 1] for location in icebergs.data_files(table)}
    path = icebergs.with_deletes(table, [icebergs.by_place(tmp_path, places)])
    assert kept(path) == [who for who in range(60) if who not in (0, 1, 30, 31)]


@pytest.mark.parametrize(
    ("values", "left"),
    [
        (pa.table({"who": pa.array([3, 99, 4], pa.int32())}), lambda row: row["who"] not in (3, 4)),
        (pa.table({"n": [None, "t1"]}), lambda row: row["n"] not in (None, "t1")),
        (
            pa.table({"n": ["t1", None, "t2"], "who": pa.array([1, 0, 1], pa.int32())}),
            lambda row: (row["n"], row["who"]) not in {("t1", 1), (None, 0)},
        ),
    ],
)
def test_rows_deleted_by_value_are_left_out(tmp_path: pathlib.Path, values: pa.Table, left: Any) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    path = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    assert kept(path) == [row["who"] for row in ROWS.to_pylist() if left(row)]
    # The columns that are compared need not be read otherwise.
    assert len(rows(look_at_iceberg(path, None), ["n"])) == len(kept(path))


@pytest.mark.parametrize("default", [False, True])
def test_deletes_by_value_compare_what_a_file_need_not_hold(tmp_path: pathlib.Path, default: bool) -> None:
    """As files that were added to a table have it, whose partition is in the names of their folders."""
    table = icebergs.created(tmp_path / "t", ROWS.slice(0, 0))
    if default:
        table.append(ROWS)
        with table.update_schema() as update:
            update.add_column("shop", StringType())
        name, listed, gone = "shop", ["s", "t", None], {1}
    else:
        with table.update_spec() as update:
            update.add_identity("n")
        table.append(ROWS)
        for location in icebergs.data_files(table):
            path = location.removeprefix("file://")
            pa.parquet.write_table(pa.parquet.ParquetFile(path).read().drop_columns(["n"]), path)
        name, listed, gone = "n", ["t1", "t1", None], {1, 10}  # 1 is of t1, 2 of t2, 10 of nothing
    values = pa.table({name: listed, "who": pa.array([1, 2, 10], pa.int32())})
    path = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    metadata = pathlib.Path(path)  # pyiceberg writes no defaults
    metadata.write_text(metadata.read_text().replace('"name": "shop"', '"initial-default": "s", "name": "shop"'))
    assert kept(path) == [who for who in range(60) if who not in gone]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            pa.table({"who": ["3"]}),
            "by column 'who' as string, but the table has it as int32; rewrite the table's data files",
        ),
        (pa.table({"n": [b"t1"]}), "by column 'n' as binary, but the table has it as string; rewrite"),
        (pa.table({"who": pa.array([3], pa.timestamp("us"))}), "but the table has it as int32; rewrite"),
    ],
)
def test_lists_of_values_that_no_row_can_have_are_refused_before_rows_are_read(
    tmp_path: pathlib.Path, values: pa.Table, words: str
) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    path = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    with pytest.raises(RequestError, match=words):
        look_at_iceberg(path, None)


def test_a_list_without_columns_is_refused_and_deletes_not_everything(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    made = icebergs._file(
        pathlib.Path(icebergs.data_files(table)[0].removeprefix("file://")),
        icebergs.DataFileContent.EQUALITY_DELETES, icebergs.FileFormat.PARQUET, 1, equality_ids=[],
    )  # fmt: skip
    with pytest.raises(RequestError, match="lists deleted rows, and is not there, or is not a complete Parquet file"):
        look_at_iceberg(icebergs.with_deletes(table, [made]), None)


def with_finer_times(folder: pathlib.Path, nanoseconds: list[int]) -> Table:
    """A table of microseconds whose file has nanoseconds, as Spark writes times."""
    times = pa.array(range(len(nanoseconds)), pa.timestamp("us", "UTC"))
    table = icebergs.created(folder, pa.table({"at": range(len(nanoseconds)), "t": times}))
    path = icebergs.data_files(table)[0].removeprefix("file://")
    fields = [pa.field("at", pa.int64()), pa.field("t", pa.timestamp("ns"))]
    fields = [
        field.with_metadata(old.metadata) for field, old in zip(fields, pa.parquet.read_schema(path), strict=True)
    ]
    columns = [pa.array(range(len(nanoseconds))), pa.array(nanoseconds, pa.timestamp("ns"))]
    pa.parquet.write_table(pa.table(columns, schema=pa.schema(fields)), path)
    return table


@pytest.mark.parametrize("extra", [0, 1])
def test_one_rows_nanosecond_decides_nothing(tmp_path: pathlib.Path, extra: int) -> None:
    """Beside a list with a time that has no nanoseconds."""
    table = with_finer_times(tmp_path / "t", [0, 1000, 2000 + extra])
    values = pa.table({"t": pa.array([1, 253_402_300_799_000_000], pa.timestamp("us", "UTC"))})
    deleted = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    assert [row["at"] for row in rows(look_at_iceberg(deleted, None), ["at"])] == [0, 2]


def test_a_listed_time_loses_the_digits_that_rows_lose(tmp_path: pathlib.Path) -> None:
    table = with_finer_times(tmp_path / "t", [0, 1001, 2001])
    values = pa.table({"t": pa.array([1001], pa.timestamp("ns"))})
    deleted = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    assert [row["at"] for row in rows(look_at_iceberg(deleted, None), ["at"])] == [0, 2]


def test_times_before_1970_lose_digits_downwards(tmp_path: pathlib.Path) -> None:
    """The last nanosecond of a day belongs to that day, on either side of 1970."""
    day = 86_400 * 10**9
    table = with_finer_times(tmp_path / "t", [-day - 1, -day, -1, 0, day - 1])
    values = pa.table({"t": pa.array([-day // 1000 - 1], pa.timestamp("us", "UTC"))})
    deleted = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    days = [row["t"].date().isoformat() for row in rows(look_at_iceberg(deleted, None), ["t"])]
    assert days == ["1969-12-31", "1969-12-31", "1970-01-01", "1970-01-01"]


def test_a_column_that_the_table_has_dropped_deletes_under_its_last_type(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    made = icebergs.by_value(tmp_path, table, pa.table({"who": pa.array([3, 2**40], pa.int64())}))
    with table.update_schema() as update:
        update.delete_column("who")
    path = icebergs.with_deletes(table, [made])
    assert len(rows(look_at_iceberg(path, None))) == 59


def test_values_delete_older_rows_alone_and_places_those_of_their_age_too(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    (location,) = icebergs.data_files(table)
    value = icebergs.by_value(tmp_path, table, pa.table({"who": pa.array([3], pa.int32())}))
    place = icebergs.by_place(tmp_path, {location: [4]})
    assert kept(icebergs.with_deletes(table, [value, place], sequence=1)) == [who for who in range(60) if who != 4]
    assert kept(icebergs.with_deletes(table, [value, place])) == [who for who in range(60) if who not in (3, 4)]


def test_columns_are_found_by_their_ids(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    with table.update_schema() as update:
        update.rename_column("n", "shop")
        update.update_column("who", LongType())
        update.add_column("paid", DoubleType())
    later = pa.table({"who": pa.array([100], pa.int64()), "shop": ["s"], "paid": [1.5]})
    table.append(later)
    found = rows(look_at_iceberg(icebergs.metadata_of(table), None))
    expected = [{"who": row["who"], "shop": row["n"], "paid": None} for row in ROWS.to_pylist()]
    assert sorted(found, key=lambda row: row["who"]) == [*expected, *later.to_pylist()]


def test_deletes_by_value_know_columns_by_their_ids(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    with table.update_schema() as update:
        update.rename_column("who", "person")
    with table.update_schema() as update:
        update.update_column("person", LongType())
    values = pa.table({"person": pa.array([7], pa.int64())})
    path = icebergs.with_deletes(table, [icebergs.by_value(tmp_path, table, values)])
    assert sorted(row["person"] for row in rows(look_at_iceberg(path, None))) == [n for n in range(60) if n != 7]


@pytest.mark.parametrize("without", [False, True])
def test_partitions_are_all_read_and_files_need_not_hold_their_values(tmp_path: pathlib.Path, without: bool) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    catalog = icebergs.InMemoryCatalog("test", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    days = pa.array([None if n % 9 == 0 else 20_000 + n % 3 for n in range(60)], pa.int32()).cast(pa.date32())
    both = ROWS.append_column("day", days)
    ids = catalog.create_table("shop.ids", schema=both.schema).schema()
    parts = [
        PartitionField(
            source_id=ids.find_field(name).field_id, field_id=1000 + n, transform=IdentityTransform(), name=name
        )
        for n, name in enumerate(["n", "day"])
    ]
    table = catalog.create_table("shop.orders", schema=ids, partition_spec=PartitionSpec(*parts))
    table.append(both)
    if without:
        for location in icebergs.data_files(table):
            file = pa.parquet.ParquetFile(location.removeprefix("file://")).read().drop_columns(["n", "day"])
            pa.parquet.write_table(file, location.removeprefix("file://"))
    found = rows(look_at_iceberg(icebergs.metadata_of(table), None))
    assert sorted(found, key=lambda row: row["who"]) == both.to_pylist()


def test_what_a_partition_is_called_decides_no_error(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    catalog = icebergs.InMemoryCatalog("test", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    ids = catalog.create_table("shop.ids", schema=ROWS.schema).schema()
    field = PartitionField(
        source_id=ids.find_field("n").field_id, field_id=1000, transform=IdentityTransform(), name="n"
    )
    table = catalog.create_table("shop.orders", schema=ids, partition_spec=PartitionSpec(field))
    named = ["a b", "x/y", "Å", "50%", "50%25", "p+q", "..", "#?"]
    both = pa.table({"who": pa.array(range(len(named)), pa.int32()), "n": named})
    table.append(both)
    found = rows(look_at_iceberg(icebergs.metadata_of(table), None))
    assert sorted(found, key=lambda row: row["who"]) == both.to_pylist()


def test_a_table_without_snapshots_is_no_error(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    catalog = icebergs.InMemoryCatalog("test", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=ROWS.schema)
    source = look_at_iceberg(icebergs.metadata_of(table), None)
    assert (source.schema.names, rows(source)) == (["who", "n"], [])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_without_ids_needs_a_name_mapping(tmp_path: pathlib.Path, mapped: bool) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    pa.parquet.write_table(ROWS, icebergs.data_files(table)[0].removeprefix("file://"))
    if mapped:
        listed = [{"field-id": number + 1, "names": [name]} for number, name in enumerate(ROWS.column_names)]
        with table.transaction() as change:
            change.set_properties({"schema.name-mapping.default": json.dumps(listed)})
        assert kept(icebergs.metadata_of(table)) == list(range(60))
    else:
        with pytest.raises(RequestError, match="columns without ids, and the table has no property"):
            look_at_iceberg(icebergs.metadata_of(table), None)


def test_what_is_wrong_with_a_table_is_refused(tmp_path: pathlib.Path) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    path = icebergs.metadata_of(table)
    with pytest.raises(RequestError, match="has no snapshot 7"):
        look_at_iceberg(path, 7)
    with pytest.raises(RequestError, match=r"no metadata/version-hint.text; name the metadata file"):
        look_at_iceberg(str(pathlib.Path(path).parent.parent), None)
    with pytest.raises(RequestError, match="is not an Iceberg table"):
        look_at_iceberg(str(tmp_path / "none.metadata.json"), None)
    pathlib.Path(icebergs.data_files(table)[0].removeprefix("file://")).unlink()
    with pytest.raises(RequestError, match="is not there, or is not a complete Parquet file"):
        look_at_iceberg(path, None)


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_formats_other_than_parquet_are_refused_by_the_tables_properties(tmp_path: pathlib.Path, form: str) -> None:
    table = icebergs.created(tmp_path / "t", ROWS, properties={"write.delete.format.default": form})
    with pytest.raises(RequestError, match=f"'write.delete.format.default' '{form}'; only Parquet"):
        look_at_iceberg(icebergs.metadata_of(table), None)


@pytest.mark.parametrize("vector", [False, True])
def test_a_damaged_list_of_deleted_rows_is_damage_and_never_ignored(tmp_path: pathlib.Path, vector: bool) -> None:
    table = icebergs.created(tmp_path / "t", ROWS)
    (location,) = icebergs.data_files(table)
    made = icebergs.by_vector(tmp_path, location, [1]) if vector else icebergs.by_place(tmp_path, {location: [1]})
    path = icebergs.with_deletes(table, [made])
    pathlib.Path(made.file_path.removeprefix("file://")).write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    source = look_at_iceberg(path, None)
    with pytest.raises(DamagedInputError) as raised:
        rows(source)
    assert str(raised.value) == f"file {source.files[0]!r}: {DAMAGED_DELETES}"
