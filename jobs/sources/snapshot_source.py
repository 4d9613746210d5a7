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
from dp_pipelines.jobs.sources.readers import Reader
from dp_pipelines.jobs.sources.snapshot_rows import DataFile, readable_as
from dp_pipelines.jobs.sources.source_files import MOST_ERRORS, Source, add_sizes, each, footer_of
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.kernels import keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFile:
    """A file of a snapshot.

    Args:
        path: where it is.
        part: how it is read.
    """

    path: str
    part: DataFile


def source_of(
    files: Sequence[TableFile], schema: pa.Schema, snapshot: str, reader: Callable[[Mapping[str, DataFile]], Reader]
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
        path = os.path.normpath(file.path)
        parts[path] = _with_columns_of(file.part, footer[0])
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


def _with_columns_of(part: DataFile, schema: pa.Schema) -> DataFile:
    """Without the names that a file does not have: of columns that the table got later."""
    names = {name: of_file for name, of_file in part.names.items() if schema.get_field_index(of_file) >= 0}
    return dataclasses.replace(part, names=names)
