"""The protocol of a format of sources that an extension adds, and how it is found.

In: the table of extensions; what a job says of its source. Out: a checked source. Holds: importing the module of a format is
quick, since the schema of every job file has its key: what is slow is imported when it looks at a source. Not covered: keys and
their models (`jobs.spec.extension_keys`); the formats of the core (`declared_source`).
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec.extension_keys import READER, SourceKey
from dp_pipelines.jobs.spec.job_parameters import Value


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclaredTable:
    """What a job says of a source that an extension reads.

    Args:
        value: of the format's key, of the type of its `SourceKey.model`.
        types: the declared type of each column, by name; None: the files have types.
        folder: of the job file.
        values: of the parameters.
    """

    value: Any
    types: Mapping[str, str] | None
    folder: pathlib.Path
    values: Mapping[str, Value]


@runtime_checkable
class Reader(Protocol):
    """A format of sources.

    Only names, headers, schemas and snapshots decide what it refuses. Its `TableReader` says of damaged files what
    `readers.DAMAGES` lists, and nothing else: other words are not shown, since they may quote rows.

    Args:
        keys: its key in a job file.
    """

    keys: SourceKey

    def look(self, declared: DeclaredTable) -> Source:
        """Return the source that a job declares, checked.

        Raises:
            RequestError: there is no such file or table, or it is not read here.
        """
        ...

    def refuse_absent(self, declared: DeclaredTable) -> None:
        """Refuse a source at which nobody can look here and now. Raises: RequestError."""
        ...

    def snapshot(self, declared: DeclaredTable) -> dict[str, Any] | None:
        """Return what is published of the snapshot that is read, or None for files.

        Its number is published if the job names it, since what a job says is public. That of a snapshot which was only found, as
        the last one, counts what writers did: a table that gets a commit for each person who is erased has one more or less with
        that person. So it is not published; the digest of the job, which has it, is.
        """
        ...


def load(name: str) -> Reader:
    """Return a format that an extension reads.

    Args:
        name: its key.

    Raises:
        RequestError: its extension is not installed, or does not offer what a format needs.
    """
    return extensions.load_checked(
        READER,
        name,
        lambda feature: feature if isinstance(feature, Reader) else None,
        "does not offer what a format of sources needs",
    )
