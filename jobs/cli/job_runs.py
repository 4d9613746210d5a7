"""Ways to run a job that extensions add: for jobs with one key, such as `parties`.

In: the table of extensions; a job, parsed arguments. Out: the way to run it. Holds: an extension's module is imported with the
parser, so it must be quick; a job with the key of an extension that is not installed is refused before (`job_file`). Not covered:
all other runs (`jobs.run`).
"""

import argparse
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.content import JOB_RUN

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.run import PublishedRun
    from dp_pipelines.jobs.spec.job_file import Job, JobFile


@runtime_checkable
class KeyedRun(Protocol):
    """A way to run jobs that have a key of this feature's name."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add its options to `run`."""
        ...

    def is_named_by(self, given: argparse.Namespace) -> bool:
        """Return True if an option asks for it, whatever the job says."""
        ...

    def run(self, file: "JobFile", given: argparse.Namespace, rest: list[str]) -> "PublishedRun":
        """Run a job.

        Args:
            file: the job.
            given: the arguments of `run`; output and run id have no parameters any more.
            rest: the options of the runner.
        """
        ...


def of(job: "Job", given: argparse.Namespace) -> KeyedRun | None:
    """Return the way to run a job that its keys or the options ask for; None: it runs as most do.

    Args:
        job: whose keys.
        given: the arguments. Where no option of an extension was parsed, only the way of a key is loaded.
    """
    for name in extensions.built_in(JOB_RUN):
        if getattr(job, name) is not None:
            return cast(KeyedRun, extensions.load(JOB_RUN, name))
    named = (way for way in installed().values() if way.is_named_by(given)) if given.has_options else ()
    return next(iter(named), None)


def installed() -> dict[str, KeyedRun]:
    """Return the ways of all installed extensions by key. One that cannot be used is left out."""
    usable = {}
    for name in extensions.built_in(JOB_RUN):
        try:
            usable[name] = cast(KeyedRun, extensions.load(JOB_RUN, name))
        except RequestError:
            continue
    return usable
