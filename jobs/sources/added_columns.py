"""Sources with columns that their files do not hold: those that names of folders say, and a number for each row.

In: a source of files, declared types. Out: the source with these columns. Holds: what names of folders say fits the declared
types in every file. Not covered: reading (`steps.folder_columns`); columns that some files may lack (`source_files`).
"""

import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.sources.readers import CsvReader, JsonLinesReader, ParquetReader, TableReader
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all
from dp_pipelines.query.row_unit import ROW_UNIT
from dp_pipelines.steps import folder_columns
from dp_pipelines.steps.folder_columns import NO_VALUE, FolderColumns


def with_folders(source: Source, declared: Mapping[str, str]) -> Source:
    """A source of files with the columns that names of their folders say.

    Args:
        source: of Parquet, CSV or JSON lines.
        declared: their types by name.

    Raises:
        RequestError: a type is unknown, a file has such a column itself, its folders say no such name, or a value does not fit.
    """
    if not declared:
        return source
    types, problems = source_files.declared_types(declared, "source.hive")
    for name, kind in types.items():
        if name in source.schema.names or name in source.missing:
            message = f"names column {name!r}, which the files have themselves"
            problems.append(RequestError(field="source.hive", message=message, hint="drop it there"))
            continue
        for path in source.files:
            said = folder_columns.said_in(path)
            text = said.get(name)
            if text is None:
                message = f"lies in no folder {name}=..."
                hint = nearest(name, said, "its folders say") or f"move it into one, e.g. {name}={NO_VALUE}"
            elif text != NO_VALUE and folder_columns.value_of(text, name, kind).null_count:
                message = f"lies in a folder whose name is no {declared[name]}: {name}={text}"
                hint = "declare another type, or rename the folder"
            else:
                continue
            problems.append(RequestError(field=f"file {path!r}", message=message, hint=hint))
    raise_all(problems[: source_files.MOST_ERRORS])
    added = dataclasses.replace(source.added, folders=types)
    return dataclasses.replace(
        source,
        schema=pa.schema([*source.schema, *types.items()]),
        types=None if source.types is None else {**source.types, **types},
        reader=_with_added(source.reader, added),
    )


def with_row_numbers(source: Source) -> Source:
    """A source of files with a number for each row, which is its privacy unit.

    Args:
        source: of Parquet, CSV or JSON lines.

    Raises:
        RequestError: it is something else, or has such a column.
    """
    if source.table or not isinstance(source.reader, ParquetReader | CsvReader | JsonLinesReader):
        what = "rows in memory" if source.table else "this format"
        message = f"cannot be the row of {what}, only of Parquet, CSV and JSON lines"
        raise RequestError(
            field="privacy_unit", message=message, hint="add a column with a number for each row, and name it"
        )
    if ROW_UNIT in source.schema.names or ROW_UNIT in source.missing:
        raise RequestError(
            field="source", message=f"has a column {ROW_UNIT!r}, which rows are told by", hint="rename it"
        )
    return dataclasses.replace(
        source,
        schema=source.schema.append(pa.field(ROW_UNIT, pa.uint64())),
        types=None if source.types is None else {**source.types, ROW_UNIT: pa.uint64()},
        reader=_with_added(source.reader, dataclasses.replace(source.added, number=ROW_UNIT)),
    )


def _with_added(reader: TableReader, added: FolderColumns) -> TableReader:
    assert isinstance(reader, ParquetReader | CsvReader | JsonLinesReader)  # names of folders are read of no other
    return dataclasses.replace(reader, added=added)
