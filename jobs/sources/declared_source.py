"""From `source:` of a job file to a checked source: finds what looks at the files or the table of each format.

In: the declared source, parameters, a folder. Out: a `Source`. Holds: only names, headers, schemas and snapshots decide what is
refused; formats of extensions are found by their keys. Not covered: reading (`readers`).
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import added_columns, extension_reader, source_files
from dp_pipelines.jobs.sources.extension_reader import DeclaredTable
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.source_models import SourceModel


def look(declared: SourceModel, folder: pathlib.Path, values: Mapping[str, Value], document: Content) -> Source:
    """The source that a job declares, checked.

    Args:
        declared: `source:`.
        folder: of the job file.
        values: of the parameters.
        document: how the job says things.

    Raises:
        RequestError: there is no such file or table, or it lacks what the job declares.
    """
    name = declared.format_of_files
    if name in declared.readers:
        return extension_reader.load(name).look(_declared_table(declared, folder, values))
    files, types = _files(declared, folder, values), declared.types or {}
    match name:
        case "csv":
            source = source_files.look_at_csv(files, types, declared.form, document.delimiter)
        case "jsonl":
            source = source_files.look_at_json_lines(files, types, declared.form)
        case _:
            source = source_files.look_at_parquet(files, declared.optional or ())
    return added_columns.with_folders(source, declared.hive or {})


def _files(declared: SourceModel, folder: pathlib.Path, values: Mapping[str, Value]) -> tuple[str, ...]:
    """The files that a job names. Errors as for `source_files.find`."""
    file_format = declared.format_of_files
    pattern = job_parameters.into_source(declared.pattern, values)
    return source_files.find(pattern, folder, file_format=file_format, packed=file_format in ("csv", "jsonl"))


def why_absent(declared: SourceModel, folder: pathlib.Path, values: Mapping[str, Value]) -> str:
    """Why nobody can look at a source here and now, or nothing; arguments as for `look`.

    Raises:
        RequestError: nobody ever can, by what the job names.
    """
    name = declared.format_of_files
    if name in source_files.ENDINGS:
        source_files.refuse_elsewhere(declared.pattern, "source")
        job_parameters.refuse_variables(declared.pattern)
        source_files.refuse_compressed([declared.pattern], packed=name in ("csv", "jsonl"))
    try:
        if name in declared.readers:
            extension_reader.load(name).refuse_absent(_declared_table(declared, folder, values))
        else:
            _files(declared, folder, values)
    except RequestError as error:
        return error.message
    return ""


def named_snapshot(declared: SourceModel, folder: pathlib.Path, values: Mapping[str, Value]) -> dict[str, Any] | None:
    """What is published of the snapshot that is read of a table; None of files.

    Args:
        declared: a source.
        folder: of the job file.
        values: of the parameters.
    """
    name = declared.format_of_files
    if name not in declared.readers:
        return None
    return extension_reader.load(name).snapshot(_declared_table(declared, folder, values))


def without_files(declared: SourceModel) -> Source | None:
    """The schema that a job declares itself, so that its files need not be there; None where files tell it."""
    if declared.types is None:
        return None
    if declared.csv is not None:
        return source_files.look_at_csv((), declared.types)
    if declared.format_of_files in declared.readers:
        schema = source_files.declared_schema(declared.types)
        return Source(files=(), schema=schema, sizes={}, types=None, missing={})
    return source_files.look_at_json_lines((), declared.types)


def _declared_table(declared: SourceModel, folder: pathlib.Path, values: Mapping[str, Value]) -> DeclaredTable:
    value = getattr(declared, declared.format_of_files)
    return DeclaredTable(value=value, types=declared.types, folder=folder, values=values)
