"""What a job file says of sources in formats of data lakes: a Delta table, an Iceberg table, a table of BigQuery.

In: the value of a key of `source:`. Out: a checked model. Holds: importing it is quick, since every job file's schema has these
keys. Not covered: whether the tables exist (`formats`).
"""

import datetime
import glob
import os
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel, refuse_credentials


def _number(value: Any) -> Any:
    """The number of a snapshot, or a text with a parameter in it."""
    if value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    message = "must be a whole number, or a parameter in braces"
    raise RequestError(field="", message=message, hint='write e.g. 12 or "{version}"')


class DeltaModel(JobModel):
    """A Delta table, at one version."""

    path: Annotated[str, Field(min_length=1, description="The folder of the table, which holds _delta_log.")]
    version: Annotated[
        int | str | None,
        BeforeValidator(_number),
        Field(description="The version that is read, or a parameter in braces; left out: the last one."),
    ] = None

    @model_validator(mode="after")
    def _no_credentials(self) -> "DeltaModel":
        refuse_credentials(self.path, "path")
        return self

    @property
    def pattern(self) -> str:
        """Everything in its folder."""
        return f"{glob.escape(self.path)}/**"


class IcebergModel(JobModel):
    """An Iceberg table, at one snapshot."""

    path: Annotated[
        str,
        Field(min_length=1, description="The folder of the table, or the metadata file that its catalog points to."),
    ]
    snapshot: Annotated[
        int | str | None,
        BeforeValidator(_number),
        Field(description="The id of the snapshot that is read, or a parameter in braces; left out: the current one."),
    ] = None

    @model_validator(mode="after")
    def _no_credentials(self) -> "IcebergModel":
        refuse_credentials(self.path, "path")
        return self

    @property
    def pattern(self) -> str:
        """Everything in the folder that holds its data and metadata."""
        is_file = self.path.endswith(".json")
        folder = os.path.dirname(os.path.dirname(self.path)) or "." if is_file else self.path
        return f"{glob.escape(folder)}/**"


_TABLE = re.compile(r"([a-z][a-z0-9-]*(?:[.][a-z0-9.-]+:[a-z0-9-]+)?)\.(\w+)\.([\w -]+)", re.ASCII)


def table_parts(name: str, field: str) -> tuple[str, str, str]:
    """The project, the dataset and the table of a name.

    Args:
        name: `project.dataset.table`.
        field: what says it.

    Raises:
        RequestError: it is none.

    >>> table_parts("acme.shop.orders", "table")
    ('acme', 'shop', 'orders')
    """
    found = _TABLE.fullmatch(name)
    if found is None:
        message, hint = f"names {name!r}, which is no table", "write project.dataset.table"
        raise RequestError(field=field, message=message, hint=hint)
    project, dataset, table = found.groups()
    return project, dataset, table


def instant(said: str, field: str) -> datetime.datetime:
    """An instant of the past, in UTC.

    Args:
        said: as ISO 8601 writes it.
        field: what says it.

    Raises:
        RequestError: it is none.

    >>> instant("2026-01-05T02:00:00+02:00", "snapshot_time").isoformat()
    '2026-01-05T00:00:00+00:00'
    """
    hint = "write e.g. 2026-01-05T00:00:00Z"
    try:
        # Python 3.10 does not know Z.
        found = datetime.datetime.fromisoformat(re.sub("[Zz]$", "+00:00", said.strip()))
    except ValueError:
        raise RequestError(field=field, message=f"is {said!r}, which is no instant", hint=hint) from None
    if found.tzinfo is None:
        message = f"is {said!r}, which has no zone, so nobody knows which instant it means"
        raise RequestError(field=field, message=message, hint=hint)
    if found > datetime.datetime.now(datetime.UTC):
        message = f"is {said!r}, which is yet to come: what is in the table then is not fixed"
        raise RequestError(field=field, message=message, hint="name an instant of the past")
    try:
        return found.astimezone(datetime.UTC)
    except OverflowError:  # before the year 1 in UTC
        raise RequestError(field=field, message=f"is {said!r}, which is no instant", hint=hint) from None


class BigQueryModel(JobModel):
    """A table of BigQuery, at one time."""

    table: Annotated[str, Field(min_length=1, description="The table: project.dataset.table, parameters in braces.")]
    snapshot_time: Annotated[
        str,
        Field(
            min_length=1,
            description="The instant whose rows are read, e.g. 2026-01-05T00:00:00Z, or a parameter in braces; of the last "
            "seven days, since BigQuery keeps no longer.",
        ),
    ]

    @model_validator(mode="after")
    def _said_rightly(self) -> "BigQueryModel":
        if "{" not in self.table:
            table_parts(self.table, "table")
        if "{" not in self.snapshot_time:
            instant(self.snapshot_time, "snapshot_time")
        return self

    @property
    def pattern(self) -> str:
        """What it is called among the sources of an account."""
        return f"bigquery://{self.table}"
