"""Iceberg tables for tests, with delete files that no library for Python writes.

In: rows, a folder. Out: tables; further snapshots that delete rows by place, by deletion vector or by value. Tests only.
"""

import json
import pathlib
import struct
import time
import uuid
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pyroaring
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import StaticTable, Table
from pyiceberg.typedef import Record

_UNPARTITIONED = PartitionSpec()


class _DeletesManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def created(folder: pathlib.Path, rows: pa.Table, **more: Any) -> Table:
    """A table of a catalog in memory, with its rows in one snapshot."""
    folder.mkdir()
    catalog = InMemoryCatalog("test", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=rows.schema, **more)
    table.append(rows)
    return table


def metadata_of(table: Table) -> str:
    """The path of a table's metadata file."""
    return table.metadata_location.removeprefix("file://")


def data_files(table: Table) -> list[str]:
    """The locations of a table's data files, in the order of their paths."""
    return sorted(task.file.file_path for task in table.scan().plan_files())


def by_place(folder: pathlib.Path, places: dict[str, list[int]]) -> DataFile:
    """A file that deletes rows by place."""
    path = folder / f"{uuid.uuid4()}-deletes.parquet"
    both = [(location, place) for location in sorted(places) for place in places[location]]
    fields = [_field("file_path", pa.string(), 2147483546), _field("pos", pa.int64(), 2147483545)]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*both, strict=True), fields, strict=True)]
    pa.parquet.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path)
    return _file(path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, len(both))


def by_vector(folder: pathlib.Path, location: str, places: list[int]) -> DataFile:
    """A Puffin file with a deletion vector."""
    path = folder / f"{uuid.uuid4()}-deletes.puffin"
    bits = bytes.fromhex("d1d33964") + pyroaring.BitMap64(places).serialize()
    blob = struct.pack(">I", len(bits)) + bits + struct.pack(">I", zlib.crc32(bits))
    properties = {"referenced-data-file": location, "cardinality": str(len(places))}
    listed = {
        "type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1, "offset": 4,
        "length": len(blob), "properties": properties,
    }  # fmt: skip
    footer = json.dumps({"blobs": [listed], "properties": {}}).encode()
    path.write_bytes(b"PFA1" + blob + b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1")
    return _file(path, DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, len(places))


def by_value(folder: pathlib.Path, table: Table, values: pa.Table) -> DataFile:
    """A file that deletes rows by the values of some columns."""
    path = folder / f"{uuid.uuid4()}-values.parquet"
    ids = [table.schema().find_field(name).field_id for name in values.column_names]
    fields = [_field(field.name, field.type, number) for field, number in zip(values.schema, ids, strict=True)]
    pa.parquet.write_table(pa.Table.from_arrays(values.columns, schema=pa.schema(fields)), path)
    return _file(path, DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, values.num_rows, equality_ids=ids)


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def _file(path: pathlib.Path, content: DataFileContent, form: FileFormat, rows: int, **more: Any) -> DataFile:
    return DataFile.from_args(
        content=content, file_path=f"file://{path}", file_format=form, partition=Record(), record_count=rows,
        file_size_in_bytes=path.stat().st_size, **more,
    )  # fmt: skip


def with_deletes(table: Table, files: list[DataFile], sequence: int | None = None) -> str:
    """The metadata file of a further snapshot of an unpartitioned table, with files that delete rows.

    Args:
        table: the table.
        files: those that delete rows.
        sequence: their age; left out: younger than all.
    """
    last = table.current_snapshot()
    assert last is not None
    number, sequence = last.snapshot_id + 1, sequence or table.metadata.last_sequence_number + 1
    folder = pathlib.Path(metadata_of(table)).parent
    manifest = table.io.new_output(f"file://{folder}/{uuid.uuid4()}-m0.avro")
    with _DeletesManifest(_UNPARTITIONED, table.schema(), manifest, number, "deflate") as writer:
        for file in files:
            entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file)
            writer.add(entry)
    listed = f"file://{folder}/snap-{number}.avro"
    with write_manifest_list(2, table.io.new_output(listed), number, last.snapshot_id, sequence, "deflate") as lists:
        lists.add_manifests([*last.manifests(table.io), writer.to_manifest_file()])
    content = json.loads(pathlib.Path(metadata_of(table)).read_text())
    now = int(time.time() * 1000)
    content["snapshots"].append(
        {
            "snapshot-id": number, "parent-snapshot-id": last.snapshot_id, "sequence-number": sequence,
            "timestamp-ms": now, "manifest-list": listed, "summary": {"operation": "delete"},
            "schema-id": content["current-schema-id"],
        }
    )  # fmt: skip
    content |= {
        "current-snapshot-id": number,
        "last-sequence-number": max(sequence, table.metadata.last_sequence_number),
        "last-updated-ms": now,
    }
    content.get("refs", {}).get("main", {})["snapshot-id"] = number
    path = folder / f"{uuid.uuid4()}.metadata.json"
    path.write_text(json.dumps(content))
    return str(path)


def reopened(path: str) -> Table:
    """A table as a metadata file has it."""
    return StaticTable.from_metadata(path)
