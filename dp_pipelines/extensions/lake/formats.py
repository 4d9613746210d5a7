"""The formats of data lakes as job files name them: four sources and one output.

In: what a job says of a source or an output. Out: a checked source; where Delta tables are published. Holds: nothing slow is
imported before a job names one of these keys, since every job file's schema has them. Not covered: reading and publishing
(`delta_table`, `iceberg_table`, `avro_files`, `bigquery_table`, `delta_output`).
"""

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from dp_pipelines.engine import object_store
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.lake.models import BigQueryModel, DeltaModel, IcebergModel
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.extension_keys import OutputKeys, SourceKey
from dp_pipelines.jobs.spec.job_parameters import Value

if TYPE_CHECKING:
    from dp_pipelines.extensions.lake.storage_api import BigQueryTable
    from dp_pipelines.jobs.outputs.extension_output import BoundOutput, Output
    from dp_pipelines.jobs.sources.extension_reader import DeclaredTable, Reader
    from dp_pipelines.jobs.sources.source_files import Source

_BIGQUERY = '{table: acme.shop.orders, snapshot_time: "{day}T00:00:00Z"}'


class _Avro:
    """Avro files."""

    keys = SourceKey(
        model=str,
        description="A file name or glob of Avro files.",
        called="Avro files",
        examples={"SourceModel": ('{avro: "events/*.avro"}',), "TableModel": ('{avro: "visits/*.avro"}',)},
    )

    def look(self, declared: "DeclaredTable") -> "Source":
        """See `Reader`."""
        from dp_pipelines.extensions.lake import avro_files
        from dp_pipelines.jobs.sources import source_files

        pattern = job_parameters.into_source(declared.value, declared.values)
        return avro_files.look_at_avro(source_files.find(pattern, declared.folder, file_format="avro"))

    def refuse_absent(self, declared: "DeclaredTable") -> None:
        """See `Reader`."""
        _refuse_no_files(declared.value, declared, "avro")

    def snapshot(self, declared: "DeclaredTable") -> None:
        """See `Reader`."""


class _Delta:
    """A version of a Delta table."""

    keys = SourceKey(
        model=DeltaModel,
        description="A Delta table, of which one version is read.",
        path_key="path",
        snapshot_keys=frozenset({"version"}),
        examples={
            "SourceModel": ("{delta: {path: tables/events, version: 12}}",),
            "TableModel": ("{delta: {path: tables/visits}}",),
            "DeltaModel": ("{path: tables/events, version: 12}", '{path: "tables/{shop}", version: "{version}"}'),
        },
    )

    def look(self, declared: "DeclaredTable") -> "Source":
        """See `Reader`."""
        from dp_pipelines.extensions.lake import delta_table

        place = _place(declared, "delta")
        return delta_table.look_at_delta(place, self._version(declared))

    def refuse_absent(self, declared: "DeclaredTable") -> None:
        """See `Reader`."""
        _refuse_no_files(declared.value.pattern, declared)

    def snapshot(self, declared: "DeclaredTable") -> dict[str, Any]:
        """See `Reader`."""
        return {"format": "delta", "version": _digits(self._version(declared))}

    def _version(self, declared: "DeclaredTable") -> int | None:
        return _number(declared.value.version, declared.values, "delta.version")


class _Iceberg:
    """A snapshot of an Iceberg table."""

    keys = SourceKey(
        model=IcebergModel,
        description="An Iceberg table, of which one snapshot is read.",
        path_key="path",
        snapshot_keys=frozenset({"snapshot"}),
        examples={
            "SourceModel": ("{iceberg: {path: warehouse/shop/orders}}",),
            "TableModel": ("{iceberg: {path: warehouse/shop/visits}}",),
            "IcebergModel": (
                "{path: warehouse/shop/orders, snapshot: 8744736658442914487}",
                '{path: "warehouse/shop/orders/metadata/00012-5ad7.metadata.json"}',
            ),
        },
    )

    def look(self, declared: "DeclaredTable") -> "Source":
        """See `Reader`."""
        from dp_pipelines.extensions.lake import iceberg_table

        place = _place(declared, "iceberg")
        return iceberg_table.look_at_iceberg(place, self._snapshot(declared))

    def refuse_absent(self, declared: "DeclaredTable") -> None:
        """See `Reader`."""
        _refuse_no_files(declared.value.pattern, declared)

    def snapshot(self, declared: "DeclaredTable") -> dict[str, Any]:
        """See `Reader`."""
        return {"format": "iceberg", "snapshot": _digits(self._snapshot(declared))}

    def _snapshot(self, declared: "DeclaredTable") -> int | None:
        return _number(declared.value.snapshot, declared.values, "iceberg.snapshot")


class _BigQuery:
    """A snapshot of a table of BigQuery."""

    keys = SourceKey(
        model=BigQueryModel,
        description="A table of BigQuery, of which one snapshot is read by its Storage API.",
        types_of="BigQuery",
        snapshot_keys=frozenset({"snapshot_time"}),
        examples={
            "SourceModel": (f"{{bigquery: {_BIGQUERY}, types: {{customer: string, amount: double}}}}",),
            "TableModel": ('{bigquery: {table: acme.shop.visits, snapshot_time: "2026-01-05T00:00:00Z"}}',),
            "BigQueryModel": (_BIGQUERY,),
        },
    )

    def look(self, declared: "DeclaredTable") -> "Source":
        """See `Reader`."""
        from dp_pipelines.extensions.lake import bigquery_table

        return bigquery_table.look_at_bigquery(self._table(declared), declared.types)

    def refuse_absent(self, declared: "DeclaredTable") -> None:
        """See `Reader`."""
        from dp_pipelines.extensions.lake import bigquery_table

        bigquery_table.refuse_absent(self._table(declared))

    def snapshot(self, declared: "DeclaredTable") -> dict[str, Any]:
        """See `Reader`."""
        return {"format": "bigquery", "snapshot_time": self._table(declared).at.isoformat()}

    def _table(self, declared: "DeclaredTable") -> "BigQueryTable":
        """The snapshot that a job names. Raises: RequestError."""
        from dp_pipelines.extensions.lake import bigquery_table

        said: BigQueryModel = declared.value
        at = job_parameters.into_path(said.snapshot_time, declared.values, "source.bigquery.snapshot_time")
        name = job_parameters.into_path(said.table, declared.values, "source.bigquery.table")
        return bigquery_table.table_named(name, at)


class _DeltaTables:
    """Delta tables, one for each published table, each with one commit a run."""

    keys = OutputKeys(
        fields={
            "delta": (
                Annotated[
                    str | None,
                    Field(
                        min_length=1,
                        description="The folder of Delta tables, one for each published table under its name, to which a run "
                        "adds one commit; relative to the job file, or s3://BUCKET/FOLDER.",
                    ),
                ],
                None,
            ),
            "delta_mode": (
                Annotated[
                    Literal["append", "overwrite"],
                    Field(
                        description="append: a run's rows are added, with the run's id in a column run_id; overwrite: they "
                        "replace those of earlier runs."
                    ),
                ],
                "append",
            ),
        },
        described="the same rows in Delta tables under",
        delivered="committed to the Delta tables of the job",
        examples={"OutputsModel": ("{delta: lake/shop, delta_mode: overwrite}",)},
    )

    def bind(self, said: Mapping[str, Any], folder: pathlib.Path, values: Mapping[str, Value]) -> "BoundOutput":
        """See `Output`."""
        from dp_pipelines.extensions.lake import delta_place
        from dp_pipelines.extensions.lake.delta_output import DeltaOutput

        path = job_parameters.into_path(said["delta"], values, "outputs.delta")
        return DeltaOutput(folder=delta_place.folder_of(path, folder), mode=said["delta_mode"])


def _refuse_no_files(pattern: str, declared: "DeclaredTable", file_format: str | None = None) -> None:
    """Refuse a glob that names no file. Raises: RequestError."""
    from dp_pipelines.jobs.sources import source_files

    source_files.find(job_parameters.into_source(pattern, declared.values), declared.folder, file_format=file_format)


def _place(declared: "DeclaredTable", key: str) -> str:
    """The path of a table on this machine, or its URL in a store that is read. Raises: RequestError."""
    from dp_pipelines.jobs.stores import remote_files

    path = job_parameters.into_path(declared.value.path, declared.values).removeprefix("file://")
    field = f"source.{key}"
    remote_files.refuse_credentials(path, field)
    if object_store.is_object(path):
        return path.rstrip("/")
    if remote_files.is_url(path):
        message = f"names {path!r}, but tables are read from local paths and from s3:// alone"
        raise RequestError(field=field, message=message, hint="mount the bucket, or read its Parquet files")
    return str(declared.folder / os.path.expanduser(path))


def _number(said: int | str | None, values: Mapping[str, Value], key: str) -> int | None:
    """The number of a snapshot. Raises: RequestError."""
    if said is None or isinstance(said, int):
        return said
    text = job_parameters.into_path(said, values)
    if not (text.isascii() and text.isdigit()):
        message = "must be a whole number, or a parameter that is one"
        raise RequestError(field=f"source.{key}", message=message, hint='write e.g. 12, or "{version}"')
    return int(text)


def _digits(number: int | None) -> str | None:
    """A number as text: some readers of JSON round large ones."""
    return None if number is None else str(number)


AVRO: "Reader" = _Avro()
DELTA: "Reader" = _Delta()
ICEBERG: "Reader" = _Iceberg()
BIGQUERY: "Reader" = _BigQuery()
DELTA_TABLES: "Output" = _DeltaTables()
