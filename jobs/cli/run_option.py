"""The protocol of an option of `run` that an extension adds, and how these options follow a run.

In: the table of extensions; parsed arguments. Out: what is done after a run, or after its failure. Holds: nothing of an option is
called unless it is given; what it refuses is refused before anything is charged. Not covered: the core's own options
(`arguments.run_arguments`).
"""

import argparse
import types
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.run import PublishedRun
    from dp_pipelines.jobs.spec.job_file import JobFile

KIND = "run_option"
"""The kind of these features in the table of extensions."""


class Follower(Protocol):
    """An option of one run."""

    def published(self, run: "PublishedRun") -> str:
        """Do what is due after the release is published, and return a note on it.

        Raises:
            DpError: it cannot be done; the release stays.
        """
        ...

    def failed(self) -> None:
        """Do what is due after the run has ended without a release. Raises nothing."""
        ...


@runtime_checkable
class RunOption(Protocol):
    """An option of `run`. Importing its module must be quick, since `run --help` does so.

    Args:
        name: of the option, without dashes.
    """

    name: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the option, whose default is None.

        Args:
            parser: of the command `run`.
        """
        ...

    def follow(self, file: "JobFile", given: argparse.Namespace) -> Follower:
        """Return what follows a run.

        Args:
            file: the job.
            given: the arguments of `run`, with filled names; the option is given.

        Raises:
            RequestError: it cannot be done for this run.
        """
        ...


class Followers:
    """The options of one run that extensions add, as a context: a run that ends with an error has failed."""

    def __init__(self) -> None:
        self._followers: list[Follower] = []

    def begin(self, file: "JobFile", given: argparse.Namespace) -> None:
        """Begin to follow a run. Arguments and errors as of `RunOption.follow`."""
        self._followers = [option.follow(file, given) for option in _given(given)]

    def published(self, run: "PublishedRun") -> list[str]:
        """Tell each option that the release is published, and return their notes. Errors as of `Follower.published`."""
        followers, self._followers = self._followers, []
        return [follower.published(run) for follower in followers]

    def __enter__(self) -> "Followers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        for follower in self._followers:
            follower.failed()


def options() -> list[RunOption]:
    """Return the options of the installed extensions."""
    return [
        extensions.load_checked(KIND, name, _option, "does not offer what an option of run needs")
        for name in extensions.built_in(KIND)
    ]


def refuse_all(given: argparse.Namespace, message: str) -> None:
    """Refuse the options of extensions, for a run that they cannot follow.

    Args:
        given: the arguments of `run`.
        message: why.

    Raises:
        RequestError: one is given.
    """
    for option in _given(given):
        raise RequestError(field=f"--{option.name}", message=message, hint="drop it")


def _given(given: argparse.Namespace) -> list[RunOption]:
    """Return the options that a command line names."""
    return [option for option in options() if getattr(given, option.name, None) is not None]


def _option(feature: object) -> RunOption | None:
    return feature if isinstance(feature, RunOption) else None
