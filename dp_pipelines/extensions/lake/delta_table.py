"""Delta tables: one version, resolved on the driver to its files, its columns and its deleted rows.

In: the folder of a table, a version or none. Out: a `Source` that names the version. Holds: what is refused depends on the
table's protocol, schema and files; deletion vectors are applied wherever the protocol allows them, never refused, since erasing
one person writes one. Not covered: tables in other stores than S3 and its like.
"""

import dataclasses
import functools
import os
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.lake import store_options
from dp_pipelines.extensions.lake.snapshot_rows import DataFile, SnapshotReader
from dp_pipelines.extensions.lake.snapshot_source import TableFile, source_of
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.stores import remote_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

DELETION_VECTORS = "deletionVectors"
UNDERSTOOD = frozenset(
    {DELETION_VECTORS, "columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint"}
    | {"vacuumProtocolCheck", "variantType", "variantType-preview"}
)
"""The reader features of Delta's protocol that are read. (A column of variants is none that a job can use.)"""

_NEWEST_READER = 3
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


@dataclasses.dataclass(frozen=True)
class DeltaDeletes:
    """The deletion vectors of a version.

    Args:
        table: the folder.
        version: the version.
        of: the table's own id: another table may come into the folder, with a version of the same number.
    """

    table: str
    version: int
    of: str

    def places(self, path: str, deletes: Sequence[str]) -> npt.NDArray[np.int64]:
        """See `Deletes`."""
        return _vectors(self.table, self.version, self.of).get(path, np.empty(0, np.int64))


def look_at_delta(path: str, version: int | None) -> Source:
    """A version of a Delta table.

    Args:
        path: its folder.
        version: which; None: the last one.

    Raises:
        RequestError: there is no such version, or something about it is not read here.
    """
    if not remote_files.is_url(path):
        path = os.path.realpath(path)
    table = _opened(path, version)
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - UNDERSTOOD)
    if unknown or protocol.min_reader_version > _NEWEST_READER:
        what = f"feature {unknown[0]!r}" if unknown else f"version {protocol.min_reader_version}"
        message = f"asks of readers {what} of Delta's protocol, which is not read here"
        raise RequestError(field=f"table {path!r}", message=message, hint="name a copy without it")
    fields = table.schema().fields
    schema = pa.schema(pa.schema(table.schema().to_arrow()))
    physical = {field.name: str(field.metadata.get(_PHYSICAL_NAME, field.name)) for field in fields}
    number = int(table.version())
    partitioned = set(table.metadata().partition_columns)
    files = _files(table, path, schema, physical, partitioned)
    known = str(table.metadata().id)
    deletes = DeltaDeletes(path, number, known) if DELETION_VECTORS in (protocol.reader_features or ()) else None
    name = f"delta {known} version {number}"
    found = source_of(files, schema, name, lambda parts: SnapshotReader(parts, deletes))
    return _without_bytes(found, path, [field for field in schema if field.name in partitioned])


def _without_bytes(source: Source, path: str, partitioned: Sequence[pa.Field]) -> Source:
    """Without partition columns of bytes: writers say these in the log in more ways than one."""
    of_bytes = [field.name for field in partitioned if pa.types.is_binary(field.type)]
    message, hint = "is a partition column of bytes, which is not read", "write it as text, e.g. in hexadecimal"
    refused = {
        name: RequestError(field=f"table {path!r}", message=f"has column {name!r}, which {message}", hint=hint)
        for name in of_bytes
    }
    schema = pa.schema([field for field in source.schema if field.name not in refused])
    return dataclasses.replace(source, schema=schema, missing={**source.missing, **refused})


def _opened(path: str, version: int | None) -> "DeltaTable":
    """A table at a version. Raises: RequestError."""
    try:
        import deltalake
    except ImportError:
        hint = "install the extra: pip install 'dp-pipelines[delta]'"
        raise RequestError(field="source.delta", message="needs packages that are not installed", hint=hint) from None
    options = store_options.for_delta(path)
    try:
        if remote_files.is_url(path):
            remote_files.refuse_unanswered(f"{path}/_delta_log", path, "source.delta")
        newest = deltalake.DeltaTable(path, storage_options=options)
    except RequestError:
        raise
    except Exception:  # each of its causes has a class of its own
        message = f"names {path!r}, which is not a Delta table that can be read"
        raise RequestError(
            field="source.delta", message=message, hint="name the folder that holds _delta_log"
        ) from None
    if version is None:
        return newest
    try:
        if not 0 <= version <= newest.version():  # the package looks for the file of each version up to it
            raise ValueError("no version")
        return deltalake.DeltaTable(path, version=version, storage_options=options)
    except Exception:
        message = f"has no version {version}, or no longer"
        raise RequestError(
            field=f"table {path!r}", message=message, hint=f"its last one is {newest.version()}"
        ) from None


def _files(
    table: "DeltaTable", path: str, schema: pa.Schema, physical: Mapping[str, str], partitioned: set[str]
) -> list[TableFile]:
    """The files of a version."""
    actions = pa.table(table.get_add_actions())
    found = []
    for row in actions.select([n for n in ("path", "partition") if n in actions.column_names]).to_pylist():
        values: dict[str, Any] = row.get("partition") or {}
        constants = {}
        for name in schema.names:
            if name in partitioned:
                value = values[name] if name in values else values[physical[name]]
                constants[name] = _text(value, schema.field(name).type)
        names = {name: physical[name] for name in schema.names if name not in partitioned}
        found.append(TableFile(path=_place(row["path"], path), part=DataFile(names=names, constants=constants)))
    return found


def _place(written: str, folder: str) -> str:
    """Where a file is that the table's log names."""
    path = urllib.parse.unquote(written).removeprefix("file://")
    if remote_files.is_url(folder):
        return path if remote_files.is_url(path) else f"{folder}/{path}"
    return os.path.normpath(path if os.path.isabs(path) else os.path.join(folder, path))


def _text(value: Any, kind: pa.DataType) -> str | None:
    """A value of a partition column as text."""
    if value is None:
        return None
    return value if isinstance(value, str) else str(pa.array([value], kind).cast(pa.string())[0].as_py())


_one_at_a_time = threading.Lock()


def _vectors(table: str, version: int, of: str) -> Mapping[str, npt.NDArray[np.int64]]:
    """The places of deleted rows, by path: read once in a process."""
    with _one_at_a_time:
        return _read_vectors(table, version, of)


@functools.lru_cache(maxsize=2)
def _read_vectors(table: str, version: int, of: str) -> Mapping[str, npt.NDArray[np.int64]]:
    import deltalake

    found = {}
    opened = deltalake.DeltaTable(table, version=version, storage_options=store_options.for_delta(table))
    if str(opened.metadata().id) != of:
        raise ValueError("of another table")
    known = {_place(path, table) for path in pa.table(opened.get_add_actions())["path"].to_pylist()}
    for batch in pa.RecordBatchReader.from_stream(opened.deletion_vectors()):
        paths = batch.column("filepath").to_pylist()
        for path, kept in zip(paths, batch.column("selection_vector"), strict=True):
            places = np.flatnonzero(~kept.values.to_numpy(zero_copy_only=False))
            found[_place(path, table)] = places.astype(np.int64)
    if not found.keys() <= known:  # under another name they would delete nothing
        raise ValueError("of other files")
    return found
