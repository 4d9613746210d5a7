"""One table written in every format that a job can read, and the `source:` that names each copy.

In: an Arrow table, a folder. Out: for each format a mapping for a job file. Holds: each copy has the same rows, some of whose
cells are null; what a format cannot say (types of CSV and JSON lines) the mapping declares. Tests and benchmarks only.
"""

import datetime
import json
import pathlib
import struct
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import deltalake
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pyroaring

from tests.helpers import icebergs

TYPES = {"customer": "int64", "product": "string", "day": "date", "paid_at": "timestamp", "price": "double"}
"""The columns of `purchases`, as a job file declares them."""

AVRO = {
    "type": "record",
    "name": "purchase",
    "fields": [
        {"name": "customer", "type": ["null", "long"]},
        {"name": "product", "type": ["null", "string"]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "paid_at", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "price", "type": ["null", "double"]},
    ],
}


def purchases(rows: int) -> pa.Table:
    """Rows of a shop, some cells of which are null."""
    made = np.random.default_rng(11)
    product = pa.array([None if p == 7 else f'p "{p}", é' for p in made.integers(0, 12, rows)], pa.string())
    days = np.datetime64("2025-01-06", "us") + made.integers(0, 28 * 86_400, rows) * 1_000_000
    price = pa.array(np.round(made.random(rows) * 22 - 1, 2), mask=made.random(rows) < 0.1)
    return pa.table(
        {
            "customer": pa.array(made.integers(0, rows // 10 + 2, rows), mask=made.random(rows) < 0.05),
            "product": product,
            "day": pa.array(days).cast(pa.date32(), safe=False),
            "paid_at": pa.array(days),
            "price": price,
        }
    )


def parquet(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """Several Parquet files."""
    folder.mkdir()
    half = table.num_rows // 2
    pa.parquet.write_table(table.slice(0, half), folder / "a.parquet", row_group_size=max(half // 3, 1))
    pa.parquet.write_table(table.slice(half), folder / "b.parquet")
    return {"parquet": str(folder / "*.parquet")}


def csv(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """One CSV file."""
    folder.mkdir()
    pyarrow.csv.write_csv(table, folder / "a.csv")
    return {"csv": str(folder / "*.csv"), "types": TYPES}


def jsonl(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """One file of JSON lines, times as text."""
    folder.mkdir()
    texts = table.set_column(2, "day", table["day"].cast(pa.string()))
    texts = texts.set_column(3, "paid_at", pc.strftime(table["paid_at"], "%Y-%m-%dT%H:%M:%S"))
    with open(folder / "a.jsonl", "w", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in _rows(texts))
    return {"jsonl": str(folder / "*.jsonl"), "types": TYPES}


def avro(table: pa.Table, folder: pathlib.Path, codec: str = "deflate") -> dict[str, Any]:
    """One Avro file."""
    folder.mkdir()
    with open(folder / "a.avro", "wb") as stream:
        fastavro.writer(stream, AVRO, _rows(table), codec=codec)
    return {"avro": str(folder / "*.avro")}


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    return (row for batch in table.to_batches(max_chunksize=2**16) for row in batch.to_pylist())


def delta(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """A Delta table of several versions, with a partition column and with rows that a deletion vector has deleted."""
    both = pa.concat_tables([table, table.slice(0, 40)])
    half = both.num_rows // 2
    settings = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(folder, both.slice(0, half), partition_by=["day"], configuration=settings)
    deltalake.write_deltalake(folder, both.slice(half), mode="append")
    extra = pa.array(np.arange(both.num_rows) >= table.num_rows)
    delete_places(folder, _places(folder, both, extra))
    return {"delta": {"path": str(folder)}}


def _places(folder: pathlib.Path, rows: pa.Table, extra: pa.Array) -> dict[str, list[int]]:
    """Where as many rows stand as are deleted, equal to those."""
    left = [tuple(row.values()) for row in rows.filter(extra).to_pylist()]
    found: dict[str, list[int]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        day = datetime.date.fromisoformat(path.parent.name.removeprefix("day="))
        for place, row in enumerate(pa.parquet.ParquetFile(path).read().to_pylist()):
            one = tuple({**row, "day": day}[name] for name in rows.column_names)
            if one in left:
                left.remove(one)
                found.setdefault(str(path.relative_to(folder)), []).append(place)
    assert not left
    return found


def delete_places(folder: pathlib.Path, places: dict[str, list[int]]) -> None:
    """Write the next version of a Delta table, in which deletion vectors delete rows; no library for Python writes them."""
    log = folder / "_delta_log"
    versions = sorted(log.glob("*.json"))
    added = {}
    for version in versions:
        for line in version.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                added[urllib.parse.unquote(action["add"]["path"])] = action["add"]
    lines = []
    for path, deleted in places.items():
        add = added[path]
        lines.append({"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}})
        bits = struct.pack("<I", 1681511377) + pyroaring.BitMap64(deleted).serialize()
        bits += bytes(-len(bits) % 4)
        vector = {
            "storageType": "i",
            "pathOrInlineDv": _z85(bits),
            "sizeInBytes": len(bits),
            "cardinality": len(deleted),
        }
        lines.append({"add": {**add, "deletionVector": vector}})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (log / f"{len(versions):020}.json").write_text(text)


def _z85(data: bytes) -> str:
    """Bytes as the text of ZeroMQ's RFC 32, in which Delta writes short deletion vectors."""
    signs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(signs[word // 85**power % 85] for word in words for power in range(4, -1, -1))


def iceberg(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """An Iceberg table with rows that are deleted by place and by value."""
    made = icebergs.created(folder, table)
    before = set(icebergs.data_files(made))
    made.append(table.slice(0, 40))
    (extra,) = set(icebergs.data_files(made)) - before
    stranger = table.slice(0, 1).set_column(0, "customer", pa.array([-1]))
    made.append(stranger)
    places = icebergs.by_place(folder, {extra: list(range(40))})
    values = icebergs.by_value(folder, made, stranger.select(["customer"]))
    return {"iceberg": {"path": icebergs.with_deletes(made, [places, values])}}


FORMATS: dict[str, Callable[[pa.Table, pathlib.Path], dict[str, Any]]] = {
    "parquet": parquet,
    "csv": csv,
    "jsonl": jsonl,
    "avro": avro,
    "delta": delta,
    "iceberg": iceberg,
}
