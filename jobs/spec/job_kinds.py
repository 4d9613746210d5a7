"""Kinds of jobs that extensions add: jobs with keys of their own, all of whose stages are of one kind, such as `collected`.

In: the table of extensions; what a job says. Out: the kind of the job. Holds: an extension is loaded only for a job of its kind,
and for the schema; a job of a kind that is not installed is refused where the kind is written. Not covered: kinds of other
distributions; jobs over tables (`job_file`).
"""

import argparse
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.content import Content, stage_kinds

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.source_models import SourceModel

KIND = "job"
"""The kind of these features in the table of extensions. The name of a feature is that of its stages' kind."""


class DatasetJob(Protocol):
    """The part of a job that commands of ledgers read."""

    @property
    def dataset(self) -> str:
        """The account that the job charges."""


class OtherJobFile(Protocol):
    """A checked job file of such a kind."""

    @property
    def path(self) -> pathlib.Path:
        """The file."""

    @property
    def job(self) -> DatasetJob:
        """The content."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobDescription:
    """The public facts of a job that an assessment states.

    Args:
        dataset: the account that the job charges.
        unit: the columns that name a person; empty if each row is another person's.
        source: the files.
        plan: the values that `plan --json` prints.
        lines: the same for people.
        promise: what is promised to whom, in sentences.
    """

    dataset: str
    unit: Sequence[str]
    source: "SourceModel"
    plan: Mapping[str, Any]
    lines: Sequence[str]
    promise: Sequence[str]


@runtime_checkable
class JobKind(Protocol):
    """A kind of job. Importing its module must be quick, since the schema of jobs does so.

    Args:
        part: the name of its model in the schema of job files.
        elsewhere: the message and the hint for commands that do not know such jobs.
    """

    part: str
    elsewhere: tuple[str, str]

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of such jobs."""
        ...

    def read(self, document: Content, path: pathlib.Path) -> OtherJobFile:
        """Check a job.

        Args:
            document: what it says.
            path: the file; names in it are relative to its folder.

        Raises:
            RequestError: all that is wrong with it.
        """
        ...

    def plan(self, document: Content, path: pathlib.Path, given: argparse.Namespace) -> int:
        """Print its plan, and return the exit code. Arguments as for `read`, with those of the command."""
        ...

    def run(self, document: Content, path: pathlib.Path, given: argparse.Namespace, rest: list[str]) -> int:
        """Run it, and return the exit code. Arguments as for `plan`, with the options of the runner."""
        ...

    def describe(self, document: Content, path: pathlib.Path, params: Sequence[str]) -> JobDescription:
        """Return what an assessment states. Arguments as for `read`, with `NAME=VALUE` for each parameter."""
        ...


def of(document: Content) -> JobKind | None:
    """Return the kind of a job; None for one over tables.

    Raises:
        RequestError: its extension is not installed or is not complete.
    """
    for name, kind in stage_kinds(document).items():
        if isinstance(kind, str) and extensions.is_built_in(KIND, kind):
            return _load(kind, document.named(("stages", name, "kind"), f"stages.{name}.kind"))
    return None


def refusal(kind: str, field: str) -> RequestError:
    """Return the error for a stage of such a kind in a command that only knows jobs over tables.

    Args:
        kind: of the stage.
        field: the place of the kind in the job.
    """
    try:
        message, hint = _load(kind, field).elsewhere
    except RequestError as error:
        return error
    return RequestError(field=field, message=message, hint=hint)


def installed() -> Iterator[tuple[str, JobKind]]:
    """Yield the name and the object of each installed kind. One that cannot be used is left out; its jobs are refused."""
    for name in extensions.built_in(KIND):
        try:
            yield name, _load(name, name)
        except RequestError:
            continue


def _load(name: str, field: str) -> JobKind:
    """Return a kind by its name. An error is about the field."""
    try:
        return cast(JobKind, extensions.load(KIND, name))
    except RequestError as error:
        raise RequestError(field=field, message=error.message, hint=error.hint) from None
