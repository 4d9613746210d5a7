"""The files of a snapshot as a source: every footer is looked at, and no file is left out.

In: the files of a snapshot with how each is read, the table's schema. Out: a `Source`. Holds: a column whose values some file has
with another type is refused where it is used; all that decides is public. Not covered: which files a snapshot has.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.lake.snapshot_rows import DataFile, EqualityDeletes, readable_as
from dp_pipelines.jobs.sources.readers import TableReader
from dp_pipelines.jobs.sources.source_files import MOST_ERRORS, Source, add_sizes, each, footer_of
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.jobs.stores import remote_files
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_casts

_FIELD_ID = b"PARQUET:field_id"
_COMPACT = "rewrite the table's data files, which applies the deletes, and name the snapshot after that"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFile:
    """A file of a snapshot.

    Args:
        path: where it is.
        part: how it is read.
        names_of: finds the names of the table's columns, and of all fields by their ids, in the file's schema; None: `part`
            has the names.
        ids: of the table's columns, by name.
        types: of the columns that the table has or had, by id.
    """

    path: str
    part: DataFile
    ids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    types: Mapping[int, pa.DataType] = dataclasses.field(default_factory=dict)
    names_of: Callable[[pa.Schema], tuple[dict[str, str], dict[int, str]]] | None = None


def source_of(
    files: Sequence[TableFile],
    schema: pa.Schema,
    snapshot: str,
    reader: Callable[[Mapping[str, DataFile]], TableReader],
) -> Source:
    """A snapshot as a source.

    Args:
        files: all of its files.
        schema: of the table.
        snapshot: its name.
        reader: makes what reads the files, by how each is read.

    Raises:
        RequestError: a file is gone, or is not a complete Parquet file.
    """
    problems, missing, rows = [], dict[str, RequestError](), 0
    parts, sizes = dict[str, DataFile](), dict[str, int]()
    for file, footer in zip(files, each(footer_of, [file.path for file in files]), strict=True):
        if footer is None:
            message = f"is not there, or is not a complete Parquet file, and {snapshot} has it"
            problems.append(RequestError(field=f"file {file.path!r}", message=message, hint="name a later snapshot"))
            continue
        path = file.path if remote_files.is_url(file.path) else os.path.normpath(file.path)
        parts[path] = _with_columns_of(file, footer[0])
        for name, of_file in parts[path].names.items():
            kind = footer[0].field(of_file).type
            if not readable_as(kind, schema.field(name).type):
                message = f"has column {name!r} as {kind}, but the table has it as {schema.field(name).type}"
                error = RequestError(field=f"file {path!r}", message=message, hint="write the column as plain values")
                missing.setdefault(name, error)
        in_file: dict[str, int] = {}
        add_sizes(in_file, footer[1])
        for name, of_file in parts[path].names.items():
            sizes[name] = sizes.get(name, 0) + in_file.get(of_file, 0)
        rows += max(footer[1].num_rows, 0)
    raise_all(problems[:MOST_ERRORS])
    plain = [(field.name, keys.plain_type(field.type)) for field in schema if field.name not in missing]
    return Source(
        files=tuple(sorted(parts)), schema=pa.schema(plain), sizes=sizes, types=None, missing=missing, rows=rows,
        reader=reader(parts), snapshot=snapshot,
    )  # fmt: skip


def _with_columns_of(file: TableFile, schema: pa.Schema) -> DataFile:
    """With the names that a file has, so without those of columns that the table got later."""
    part = file.part
    if file.names_of is not None:
        found, ids = file.names_of(schema)
        constants = {file.ids[name]: value for name, value in part.constants.items()} if part.equality else {}
        own = {number: schema.field(name).type for number, name in ids.items()}
        equality = [_compared(one, file, ids, own, constants) for one in part.equality]
        return dataclasses.replace(part, names=found, equality=equality)
    names = {name: of_file for name, of_file in part.names.items() if schema.get_field_index(of_file) >= 0}
    return dataclasses.replace(part, names=names)


def _compared(
    deletes: EqualityDeletes,
    file: TableFile,
    ids: Mapping[int, str],
    of_file: Mapping[int, pa.DataType],
    constants: Mapping[int, str | None],
) -> EqualityDeletes:
    """Return the deletes with the fields that are compared, their types, and the values of those that the data file lacks.

    Args:
        deletes: a list of rows.
        file: the data file.
        ids: the names of its fields, by id.
        of_file: their types, by id.
        constants: the values of columns that it lacks, by id.

    Raises:
        RequestError: the list is gone, or no type holds both the values of the list and those of the table.
    """
    footer = footer_of(deletes.path)
    own = {} if footer is None else field_names(footer[0], {})
    if footer is None or not deletes.ids or not set(deletes.ids) <= set(own):
        message = "lists deleted rows, and is not there, or is not a complete Parquet file with the ids of its fields"
        raise RequestError(field=f"file {deletes.path!r}", message=message, hint="name a later snapshot")
    for number in deletes.ids:
        listed, wanted = footer[0].field(own[number]).type, file.types.get(number)
        if wanted is None:
            message = f"lists deleted rows by column {own[number]!r}, which the table never had"
            raise RequestError(field=f"file {deletes.path!r}", message=message, hint=_COMPACT)
        if not column_casts.comparable(wanted, listed):
            message = f"lists deleted rows by column {own[number]!r} as {listed}, but the table has it as {wanted}"
            raise RequestError(field=f"file {deletes.path!r}", message=message, hint=_COMPACT)
        if number in of_file and not readable_as(of_file[number], wanted):
            message = f"has column {ids[number]!r} as {of_file[number]}, but its rows are deleted by values of {wanted}"
            raise RequestError(field=f"file {file.path!r}", message=message, hint=_COMPACT)
    found = dataclasses.replace(
        deletes,
        columns=[(own[number], ids.get(number)) for number in deletes.ids],
        constants={own[number]: constants[number] for number in deletes.ids if number in constants},
    )
    return found.with_types([file.types[number] for number in deletes.ids])


def field_names(schema: pa.Schema, mapping: Mapping[str, int]) -> dict[int, str]:
    """The columns of a Parquet file by the ids that they have in their table.

    Args:
        schema: of the file.
        mapping: of names, for files without ids.
    """
    if any(_FIELD_ID in (field.metadata or {}) for field in schema):
        return {int(field.metadata[_FIELD_ID]): field.name for field in schema if _FIELD_ID in (field.metadata or {})}
    return {mapping[name]: name for name in schema.names if name in mapping}
