"""Iceberg tables: one snapshot, resolved on the driver to its files, its columns and its deleted rows.

In: a table's folder or metadata file, a snapshot or none. Out: a `Source` that names the snapshot. Holds: every file of the
snapshot is read; deletes by place (files and deletion vectors) and by value are applied, never refused, since erasing one person
writes them; what is refused depends on the table's metadata, schema and the names and kinds of its files. Not covered: catalogs,
other stores than S3 and its like.
"""

import dataclasses
import functools
import os
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dp_pipelines.engine import object_store
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.lake import store_options
from dp_pipelines.extensions.lake.snapshot_rows import DataFile, EqualityDeletes, SnapshotReader
from dp_pipelines.extensions.lake.snapshot_source import TableFile, field_names, source_of
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.stores import remote_files
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.unique_codes import unique_codes

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import StaticTable
    from pyiceberg.table.snapshots import Snapshot

_DELETE_FORMATS = ("write.delete.format.default", "write.format.default")
_READ = ("PARQUET",)


@dataclasses.dataclass(frozen=True)
class IcebergDeletes:
    """Deletes by place."""

    def places(self, path: str, deletes: Sequence[str]) -> npt.NDArray[np.int64]:
        """See `Deletes`; `deletes` are the file's own location, then the files that may delete rows of it."""
        if not deletes:
            return np.empty(0, np.int64)
        location, *others = deletes
        found = [_deleted(other).get(location, np.empty(0, np.int64)) for other in others]
        return unique_codes(np.concatenate([np.empty(0, np.int64), *found]))


def look_at_iceberg(path: str, snapshot: int | None) -> Source:
    """A snapshot of an Iceberg table.

    Args:
        path: its folder, or one of its metadata files.
        snapshot: which; None: the current one of that metadata file.

    Raises:
        RequestError: there is no such snapshot, or something about it is not read here.
    """
    table = _opened(path)
    for name in _DELETE_FORMATS:
        if (said := table.metadata.properties.get(name, "parquet").upper()) not in _READ:
            message = f"has property {name!r} {said.lower()!r}; only Parquet is read"
            raise RequestError(field=f"table {path!r}", message=message, hint="write the table as Parquet")
    chosen = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
    if chosen is None and snapshot is not None:
        hint = "list the table's snapshots: it may have expired"
        raise RequestError(field=f"table {path!r}", message=f"has no snapshot {snapshot}", hint=hint)
    of_snapshot = None if chosen is None or chosen.schema_id is None else table.schemas().get(chosen.schema_id)
    schema = table.schema() if of_snapshot is None else of_snapshot
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    arrow = pa.schema([field.remove_metadata() for field in schema_to_pyarrow(schema, include_field_ids=False)])
    arrow = pa.schema([(field.name, keys.plain_type(field.type)) for field in arrow])
    files = [] if chosen is None else _files(table, chosen, schema, arrow)
    name = f"iceberg {table.metadata.table_uuid} snapshot {chosen.snapshot_id if chosen is not None else 'none'}"
    return source_of(files, arrow, name, lambda parts: SnapshotReader(parts, IcebergDeletes()))


def _opened(path: str) -> "StaticTable":
    """A table as one of its metadata files has it. Raises: RequestError."""
    try:
        from pyiceberg.table import StaticTable
    except ImportError:
        hint = "install the extra: pip install 'dp-pipelines[iceberg]'"
        raise RequestError(field="source.iceberg", message="needs packages that are not installed", hint=hint) from None
    if remote_files.is_url(path):
        return _opened_there(path)
    path = os.path.realpath(path)
    if os.path.isdir(path) and not os.path.isfile(os.path.join(path, "metadata", "version-hint.text")):
        # Of several metadata files only a catalog knows which one is the table: a failed commit leaves one, too.
        message = f"names {path!r}, which has no metadata/version-hint.text"
        hint = "name the metadata file that the catalog points to: metadata/....metadata.json"
        raise RequestError(field="source.iceberg", message=message, hint=hint)
    try:
        return StaticTable.from_metadata(path)
    except Exception:  # each of its causes has a class of its own
        message = f"names {path!r}, which is not an Iceberg table that can be read"
        hint = "name a table's folder, or one of its ....metadata.json"
        raise RequestError(field="source.iceberg", message=message, hint=hint) from None


def _opened_there(path: str) -> "StaticTable":
    """The same of a table in a store. Raises: RequestError."""
    from pyiceberg.table import StaticTable

    remote_files.refuse_unanswered(os.path.dirname(path) if path.endswith(".json") else path, path, "source.iceberg")
    try:
        return StaticTable.from_metadata(path, store_options.for_iceberg(path))
    except Exception:  # each of its causes has a class of its own
        message = f"names {path!r}, which is not an Iceberg table that can be read"
        hint = "name a folder with metadata/version-hint.text, or the metadata file that the catalog points to"
        raise RequestError(field="source.iceberg", message=message, hint=hint) from None


def _files(table: "StaticTable", snapshot: "Snapshot", schema: "Schema", arrow: pa.Schema) -> list[TableFile]:
    """The files of a snapshot. Raises: RequestError."""
    try:
        listed = [
            entry
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ]
    except Exception:
        message = f"has snapshot {snapshot.snapshot_id}, whose manifests cannot be read"
        raise RequestError(
            field=f"table {table.metadata_location!r}", message=message, hint="name a later one"
        ) from None
    from pyiceberg.manifest import DataFileContent

    by_content: dict[Any, list[ManifestEntry]] = defaultdict(list)
    for entry in listed:
        by_content[entry.data_file.content].append(entry)
    deletes = _DeleteFiles(
        table, by_content[DataFileContent.POSITION_DELETES], by_content[DataFileContent.EQUALITY_DELETES]
    )
    found, types = [], _types(table, schema)
    for entry in by_content[DataFileContent.DATA]:
        file = entry.data_file
        if file.file_format.name not in _READ:
            message = f"is {file.file_format.name}; only Parquet files of a table are read"
            raise RequestError(field=f"file {file.file_path!r}", message=message, hint="write the table as Parquet")
        part = DataFile(
            names={}, constants=_constants(table, entry, schema, arrow), deletes=deletes.by_place(entry),
            equality=deletes.by_value(entry),
        )  # fmt: skip
        names = functools.partial(_names, mapping=_mapped(table), schema=schema, path=file.file_path)
        ids = {field.name: field.field_id for field in schema.fields}
        found.append(TableFile(path=_local(file.file_path), part=part, ids=ids, types=types, names_of=names))
    return found


def _types(table: "StaticTable", schema: "Schema") -> dict[int, pa.DataType]:
    """Return the types of all columns by id: as the snapshot has them, else as the last schema that had them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    found: dict[int, pa.DataType] = {}
    for one in [*(table.schemas()[number] for number in sorted(table.schemas())), schema]:
        arrow = schema_to_pyarrow(one, include_field_ids=False)
        found |= {field.field_id: keys.plain_type(arrow.field(field.name).type) for field in one.fields}
    return found


class _DeleteFiles:
    """Which delete files concern which data file: by partition and age, never by statistics.

    Args:
        table: whose they are.
        by_place: those that name files and places in them.
        by_value: those that list values.
    """

    def __init__(
        self, table: "StaticTable", by_place: Sequence["ManifestEntry"], by_value: Sequence["ManifestEntry"]
    ) -> None:
        self._specs = table.specs()
        self._places, self._values = (defaultdict[Any, list["ManifestEntry"]](list) for _ in range(2))
        for entry in by_place:
            self._places[_partition(entry)].append(entry)
        for entry in by_value:
            everywhere = self._specs[entry.data_file.spec_id].is_unpartitioned()
            self._values[None if everywhere else _partition(entry)].append(entry)

    def by_place(self, entry: "ManifestEntry") -> list[str]:
        """What `IcebergDeletes` reads for a data file."""
        own = [e for e in self._places[_partition(entry)] if _age(e) >= _age(entry)]
        files = [f"{e.data_file.file_format.name} {e.data_file.file_path}" for e in own]
        return [entry.data_file.file_path, *sorted(files)] if files else []

    def by_value(self, entry: "ManifestEntry") -> list[EqualityDeletes]:
        """The lists of values that delete rows of a data file: those that are younger than it."""
        both = [*self._values[None], *self._values[_partition(entry)]]
        young = [e.data_file for e in both if _age(e) > _age(entry)]
        return [EqualityDeletes(path=_local(f.file_path), ids=tuple(f.equality_ids or ())) for f in young]


def _partition(entry: "ManifestEntry") -> Any:
    return entry.data_file.spec_id, entry.data_file.partition


def _age(entry: "ManifestEntry") -> int:
    return entry.sequence_number or 0


def _constants(
    table: "StaticTable", entry: "ManifestEntry", schema: "Schema", arrow: pa.Schema
) -> dict[str, str | None]:
    """The values of columns that a file need not hold: of its partition, or from before a column was added."""
    from pyiceberg.transforms import IdentityTransform

    found: dict[str, str | None] = {}
    for field in schema.fields:
        default = getattr(field, "initial_default", None)
        if default is not None:
            found[field.name] = _text(default, arrow.field(field.name).type)
    spec = table.specs()[entry.data_file.spec_id]
    names = {field.field_id: field.name for field in schema.fields}
    for place, of_partition in enumerate(spec.fields):
        if isinstance(of_partition.transform, IdentityTransform) and of_partition.source_id in names:
            name = names[of_partition.source_id]
            found[name] = _text(entry.data_file.partition[place], arrow.field(name).type)
    return found


def _text(value: Any, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    if isinstance(value, int) and pa.types.is_date(kind):
        return str(pa.array([value], pa.int32()).view(kind)[0].as_py())
    if isinstance(value, int) and pa.types.is_timestamp(kind):
        return str(pa.array([value], pa.int64()).view(kind).cast(pa.string())[0].as_py())
    return str(value)


def _mapped(table: "StaticTable") -> dict[str, int]:
    """The fields that the table's name mapping gives to files without ids."""
    mapping = table.name_mapping()
    return {name: f.field_id for f in mapping.root for name in f.names if f.field_id} if mapping else {}


def _names(
    of_file: pa.Schema, mapping: Mapping[str, int], schema: "Schema", path: str
) -> tuple[dict[str, str], dict[int, str]]:
    """What the columns of the table are called in a file, and what all fields of the file are called by their ids.

    Raises:
        RequestError: nothing says which columns of the table those of the file are, so that all would be null.
    """
    ids = field_names(of_file, mapping)
    if not ids:
        message = "has columns without ids, and the table has no property schema.name-mapping.default"
        raise RequestError(field=f"file {path!r}", message=message, hint="give the table a name mapping")
    return {field.name: ids[field.field_id] for field in schema.fields if field.field_id in ids}, ids


def _local(location: str) -> str:
    """The path of a file that the metadata names. Raises: RequestError."""
    # Not a URL: what a writer has escaped of a partition's value, as %2F, is the name of the folder.
    path = location.removeprefix("file:")
    for scheme in ("s3a://", "s3n://"):  # as Hadoop calls it
        path = path.replace(scheme, object_store.SCHEME, 1) if path.startswith(scheme) else path
    if object_store.is_object(path):
        return path
    if "://" in path:
        message = "is on another file system; only local tables and those of s3:// are read"
        raise RequestError(
            field=f"file {location!r}", message=message, hint="mount the bucket, or read its Parquet files"
        )
    return os.path.normpath("/" + path.lstrip("/"))


_one_at_a_time = threading.Lock()


def _deleted(said: str) -> Mapping[str, npt.NDArray[np.int64]]:
    """The places that one delete file deletes, by the location of the data file; read once in a process."""
    with _one_at_a_time:
        return _read_deleted(said)


@functools.lru_cache(maxsize=16)
def _read_deleted(said: str) -> Mapping[str, npt.NDArray[np.int64]]:
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import _read_deletes
    from pyiceberg.manifest import FileFormat

    kind, _, path = said.partition(" ")
    file: Any = SimpleNamespace(file_format=FileFormat[kind], file_path=path)
    read = _read_deletes(load_file_io(store_options.for_iceberg(path), path), file)
    return {location: np.sort(places.to_numpy().astype(np.int64)) for location, places in read.items()}
