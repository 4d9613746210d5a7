"""The protocol of a place outside of the output folder where an extension publishes tables, and how it is found.

In: the table of extensions; what a job says of the place. Out: what publishes there. Holds: importing the module of an output is
quick, since the schema of every job file has its keys; a run is published there once, by its name. Not covered: keys and their
models (`jobs.spec.extension_keys`); when each method is called (`outputs`).
"""

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from dp_pipelines import extensions
from dp_pipelines.jobs.outputs.release_place import ReleasePlace
from dp_pipelines.jobs.spec.extension_keys import OUTPUT, OutputKeys
from dp_pipelines.jobs.spec.job_parameters import Value

TRANSACTIONS = "dp_pipelines/"
"""How the names of runs begin in places outside of the output folder."""


class BoundOutput(Protocol):
    """Where one job's tables are published."""

    def needed(self) -> None:
        """Refuse to go on without the packages. Raises: RequestError."""
        ...

    def refused(self, schema: pa.Schema) -> Iterator[tuple[str, str, str]]:
        """Yield what cannot be held of a table, by the types of its columns: the column, the rule, a hint.

        Args:
            schema: of the published table.
        """
        ...

    def refuse_place(self, name: str, release: ReleasePlace) -> None:
        """Refuse a table that lies in a release, or a release that lies in it.

        Args:
            name: of the published table.
            release: where the run is published.

        Raises:
            RequestError: as said.
        """
        ...

    def refuse_unready(self, name: str, schema: pa.Schema, transaction: str) -> None:
        """Refuse a place that cannot take a run, or has it already; nothing is created.

        Args:
            name: of the published table.
            schema: its columns.
            transaction: names the run; see `transaction_of`.

        Raises:
            RequestError: as said.
        """
        ...

    def publish(self, name: str, file: pathlib.Path, transaction: str, run_id: str) -> None:
        """Publish a table of a release that is committed, unless it was published by this run.

        Args:
            name: of the published table.
            file: its Parquet file.
            transaction: names the run.
            run_id: its id, for readers of the table.

        Raises:
            PublishError: it could not be published; the same command tries again.
        """
        ...

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest says of it beside the names of the tables and the run."""
        ...


@runtime_checkable
class Output(Protocol):
    """A sort of place where tables are published.

    Args:
        keys: its keys in a job file.
    """

    keys: OutputKeys

    def bind(self, said: Mapping[str, Any], folder: pathlib.Path, values: Mapping[str, Value]) -> BoundOutput:
        """Return where a job's tables are published.

        Args:
            said: the values of its keys.
            folder: of the job file.
            values: of the parameters.

        Raises:
            RequestError: the job names no such place; its field is empty for the first key.
        """
        ...


def load(name: str) -> Output:
    """Return a sort of place by its first key.

    Raises:
        RequestError: its extension is not installed, or does not offer what an output needs.
    """
    return extensions.load_checked(
        OUTPUT,
        name,
        lambda feature: feature if isinstance(feature, Output) else None,
        "does not offer what an output needs",
    )


def transaction_of(dataset: str, run_id: str) -> str:
    """The name of a run in places outside of the output folder, which no run of another dataset has.

    >>> transaction_of("shop", "2026-W01")
    'dp_pipelines/shop/2026-W01'
    """
    return f"{TRANSACTIONS}{dataset}/{run_id}"
