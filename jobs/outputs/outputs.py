"""All that a job publishes beside Parquet: checked before a row is read, written after the tables, delivered after the release.

In: `outputs:` of a job file, the schemas of its tables, staged files. Out: text files beside them, commits of Delta tables.
Holds: what a format cannot hold is refused by the types of columns; every file here is made of the published Parquet file alone,
on the machine of the command, so that no runner changes a byte. Not covered: when each is called (`jobs.run`).
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs import delta_output, delta_place
from dp_pipelines.jobs.outputs.delta_output import DeltaOutput
from dp_pipelines.jobs.outputs.release_place import ReleasePlace
from dp_pipelines.jobs.outputs.text_tables import FORMATS
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.validation_errors import raise_all

PARQUET = ".parquet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a job publishes beside Parquet.

    Args:
        tables: the columns of each published table.
        files: names of text formats.
        delta: where Delta tables are, or None.
    """

    tables: Mapping[str, pa.Schema] = dataclasses.field(default_factory=dict)
    files: tuple[str, ...] = ()
    delta: DeltaOutput | None = None

    def copies(self, published: Mapping[str, pathlib.Path], folder: pathlib.Path) -> dict[str, pathlib.Path]:
        """Write the tables of a release as text.

        Args:
            published: the staged file of each published name.
            folder: the private one, where the copies are written.

        Returns:
            the copy of each published name.
        """
        found = {}
        for form in self.files:
            for name in self.tables:
                made = folder / f"{name}.{form}"
                FORMATS[form].write(published[f"{name}{PARQUET}"], made)
                found[made.name] = made
        return found

    def refuse_place(self, place: ReleasePlace) -> None:
        """Refuse an output folder that has a Delta table of the job in it, or is in one.

        Args:
            place: where the run is published.

        Raises:
            RequestError: as said.
        """
        if self.delta is not None:
            for name in self.tables:
                self.delta.refuse_place(name, place)

    def refuse_unready(self, dataset: str, run_id: str) -> None:
        """Refuse a run that its Delta tables cannot take, or have already.

        Args:
            dataset, run_id: the run.

        Raises:
            RequestError: as said; nothing was created.
        """
        if self.delta is None:
            return
        self.delta.needed()
        transaction = delta_output.transaction_of(dataset, run_id)
        problems = []
        for name, schema in self.tables.items():
            try:
                self.delta.refuse_unready(name, schema, transaction)
            except RequestError as error:
                problems.append(error)
        raise_all(problems)

    def deliver(self, release: pathlib.Path, dataset: str, run_id: str) -> None:
        """Commit the tables of a published release to Delta tables; to those that have the run's commit nothing happens.

        Args:
            release: the published folder.
            dataset, run_id: the run.

        Raises:
            PublishError: a table could not be committed; the same command tries again.
            RequestError: the packages are gone since the release was made.
        """
        if self.delta is None:
            return
        self.delta.needed()
        transaction = delta_output.transaction_of(dataset, run_id)
        for name in self.tables:
            self.delta.publish(name, release / f"{name}{PARQUET}", transaction, run_id)

    def to_json(self, dataset: str, run_id: str) -> dict[str, Any]:
        """What a manifest says of them; nothing where Parquet is all.

        Args:
            dataset, run_id: the run.
        """
        if self.delta is None:
            return {}
        transaction = delta_output.transaction_of(dataset, run_id)
        return {"delta": {"tables": list(self.tables), "mode": self.delta.mode, "transaction": transaction}}


def bind(file: JobFile, tables: Mapping[str, pa.Schema], values: Mapping[str, Value]) -> Outputs:
    """What a job publishes beside Parquet.

    Args:
        file: the job.
        tables: the columns of each published table.
        values: of the parameters.

    Raises:
        RequestError: all that a format cannot hold.
    """
    said = file.job.outputs
    if said is None:
        return Outputs()
    delta = None
    if said.delta is not None:
        path = job_parameters.into_path(said.delta, values, "outputs.delta")
        delta = DeltaOutput(folder=_folder(file, path), mode=said.delta_mode)
    found = Outputs(tables=dict(tables), files=tuple(said.files or ()), delta=delta)
    if not tables:
        message, hint = (
            "has no table to publish: the job trains models only",
            "drop it, or add a stage of kind aggregate",
        )
        raise file.error(("outputs",), RequestError(field="", message=message, hint=hint))
    raise_all([*_taken_names(file, found), *_refused(file, found)])
    return found


def _refused(file: JobFile, outputs: Outputs) -> Iterator[RequestError]:
    """What a format cannot hold, by format, table and column."""
    for name, schema in outputs.tables.items():
        of_files = [("files", refused) for form in outputs.files for refused in FORMATS[form].refused(schema)]
        of_delta = (
            [("delta", refused) for refused in outputs.delta.refused(schema)] if outputs.delta is not None else []
        )
        for key, (column, message, hint) in (*of_files, *of_delta):
            told = RequestError(field="", message=f"column {column!r} of table {name!r} {message}", hint=hint)
            yield file.error(("outputs", key), told)


def _taken_names(file: JobFile, outputs: Outputs) -> Iterator[RequestError]:
    """Text files that would have the name of a model's folder."""
    for form in outputs.files:
        for name in outputs.tables:
            for stage in file.job.stages:
                if stage.casefold() == f"{name}.{form}".casefold():
                    message = f"would have a file of the name of stage {stage!r}"
                    yield file.error(
                        ("outputs", "files"), RequestError(field="", message=message, hint="rename the stage")
                    )


def _folder(file: JobFile, path: str) -> str:
    """The folder of Delta tables. Raises: RequestError."""
    try:
        return delta_place.folder_of(path, file.path.parent)
    except RequestError as error:
        raise file.error(("outputs", "delta"), error) from None
