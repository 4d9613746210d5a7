"""From `source:` of a job file to a checked source: one place that knows which look belongs to which format.

In: the declared source, parameters, a folder. Out: a `Source`. Holds: as for the looks: only names, headers, schemas and
snapshots decide what is refused. Not covered: reading (`readers`).
"""

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.engine import object_store
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.sources.avro_files import look_at_avro
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.source_models import BigQueryModel, SourceModel
from dp_pipelines.jobs.stores import remote_files

if TYPE_CHECKING:
    from dp_pipelines.jobs.sources.warehouse.storage_api import BigQueryTable


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
    if declared.delta is not None:
        from dp_pipelines.jobs.sources.delta_table import look_at_delta

        path, version = job_parameters.into_path(declared.delta.path, values), declared.delta.version
        return look_at_delta(_place(folder, path, "delta"), _number(version, values, "delta.version"))
    if declared.iceberg is not None:
        from dp_pipelines.jobs.sources.iceberg_table import look_at_iceberg

        path, snapshot = job_parameters.into_path(declared.iceberg.path, values), declared.iceberg.snapshot
        return look_at_iceberg(_place(folder, path, "iceberg"), _number(snapshot, values, "iceberg.snapshot"))
    if declared.bigquery is not None:
        from dp_pipelines.jobs.sources.warehouse.bigquery_table import look_at_bigquery

        return look_at_bigquery(_bigquery(declared.bigquery, values), declared.types)
    files, types = _files(declared, folder, values), declared.types or {}
    match declared.format_of_files:
        case "csv":
            source = source_files.look_at_csv(files, types, declared.form, document.delimiter)
        case "jsonl":
            source = source_files.look_at_json_lines(files, types, declared.form)
        case "avro":
            return look_at_avro(files)
        case _:
            source = source_files.look_at_parquet(files, declared.optional or ())
    return source_files.with_folders(source, declared.hive or {})


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
    if declared.format_of_files in source_files.ENDINGS:
        source_files.refuse_elsewhere(declared.pattern, "source")
        job_parameters.refuse_variables(declared.pattern)
        source_files.refuse_compressed([declared.pattern], packed=declared.format_of_files in ("csv", "jsonl"))
    try:
        if declared.bigquery is not None:
            from dp_pipelines.jobs.sources.warehouse.bigquery_table import refuse_absent

            refuse_absent(_bigquery(declared.bigquery, values))
        else:
            _files(declared, folder, values)
    except RequestError as error:
        return error.message
    return ""


def _place(folder: pathlib.Path, path: str, key: str) -> str:
    """The path of a table on this machine, or its URL in a store that is read. Raises: RequestError."""
    path = path.removeprefix("file://")
    field = f"source.{key}"
    remote_files.refuse_credentials(path, field)
    if object_store.is_object(path):
        return path.rstrip("/")
    if remote_files.is_url(path):
        message = f"names {path!r}, but tables are read from local paths and from s3:// alone"
        raise RequestError(field=field, message=message, hint="mount the bucket, or read its Parquet files")
    return str(folder / pathlib.Path(path).expanduser())


def _bigquery(declared: BigQueryModel, values: Mapping[str, Value]) -> "BigQueryTable":
    """The snapshot that a job names. Raises: RequestError."""
    from dp_pipelines.jobs.sources.warehouse.bigquery_table import table_named

    at = job_parameters.into_path(declared.snapshot_time, values, "source.bigquery.snapshot_time")
    return table_named(job_parameters.into_path(declared.table, values, "source.bigquery.table"), at)


def _number(said: int | str | None, values: Mapping[str, Value], key: str) -> int | None:
    """The number of a snapshot. Raises: RequestError."""
    if said is None or isinstance(said, int):
        return said
    text = job_parameters.into_path(said, values)
    if not (text.isascii() and text.isdigit()):
        message = "must be a whole number, or a parameter that is one"
        raise RequestError(field=f"source.{key}", message=message, hint='write e.g. 12, or "{version}"')
    return int(text)


def named_snapshot(declared: SourceModel, values: Mapping[str, Value]) -> dict[str, Any] | None:
    """What is published of the snapshot that is read of a table; None of files.

    Its number is published where the job names it, since what a job says is public. That of a snapshot which was only found, as
    the last one, counts what writers did: a table that gets a commit for each person who is erased has one more or less with that
    person. So it is not published; the digest of the job, which has it, is.

    Args:
        declared: a source.
        values: of the parameters.
    """
    if declared.delta is not None:
        return {"format": "delta", "version": _digits(_number(declared.delta.version, values, "delta.version"))}
    if declared.iceberg is not None:
        return {
            "format": "iceberg",
            "snapshot": _digits(_number(declared.iceberg.snapshot, values, "iceberg.snapshot")),
        }
    if declared.bigquery is not None:
        return {"format": "bigquery", "snapshot_time": _bigquery(declared.bigquery, values).at.isoformat()}
    return None


def _digits(number: int | None) -> str | None:
    """A number as text: some readers of JSON round large ones."""
    return None if number is None else str(number)


def without_files(declared: SourceModel) -> Source | None:
    """The schema that a job declares itself, so that its files need not be there; None where files tell it."""
    if declared.types is None:
        return None
    if declared.csv is not None:
        return source_files.look_at_csv((), declared.types)
    if declared.bigquery is not None:
        from dp_pipelines.jobs.sources.warehouse.bigquery_table import declared_schema

        schema = declared_schema(declared.types)
        return Source(files=(), schema=schema, sizes={}, types=None, missing={})
    return source_files.look_at_json_lines((), declared.types)
