"""The protocol of a runner of Beam that an extension adds, and how it is found.

In: the table of extensions. Out: runners. Holds: its workers see no folder of this machine, so that only `run` takes it, and it
brings its own staging. Importing its module is quick, and imports no Beam. Not covered: the runners of the core
(`runner_rules`); when each method is called (`jobs.run`).
"""

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    import pyarrow as pa
    from apache_beam.runners.runner import PipelineRunner

    from dp_pipelines.jobs.request.request import Request
    from dp_pipelines.jobs.runners.engines import Engine
    from dp_pipelines.jobs.terminal.progress import Progress
    from dp_pipelines.planning.stage import StagePlan

RUNNER = "runner"
"""The kind of these features in the table of extensions."""


@runtime_checkable
class Runner(Protocol):
    """A runner of Beam on machines of others.

    Args:
        names_jobs_after_runs: whether it refuses a second job of a name, so that the job of a run always has the same; else
            each job has a name of its own.
    """

    names_jobs_after_runs: bool

    def defaults(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the options of Beam that it needs and that were not given.

        Args:
            given: all options by name, as Beam's parser gives them.

        Raises:
            RequestError: one is missing, or the runner could not work with it.
        """
        ...

    def refuse(self, request: "Request") -> None:
        """Refuse a job if its workers could not do part of it. Raises: RequestError."""
        ...

    def beam_runner(self) -> "PipelineRunner":
        """Return a new runner of Beam.

        Raises:
            RequestError: its packages are not installed.
        """
        ...

    def unreachable(self) -> RequestError:
        """Return the error for options that cannot be checked, because the service does not answer from here."""
        ...

    def run_pipeline(
        self, request: "Request", stages: "Mapping[str, StagePlan]", folder: pathlib.Path, engine: "Engine",
        progress: "Progress", without: "Mapping[str, pa.Table]", run_id: str,
    ) -> dict[str, pathlib.Path]:  # fmt: skip
        """Run a pipeline and fetch what its workers have staged; return the files by published name.

        Args:
            request: what to read.
            stages: what to release, by name.
            folder: the private folder of this machine.
            engine: what runs it.
            progress: is told each step.
            without: partitions whose rows a stage does not see, by its name.
            run_id: of the run; nothing of an earlier attempt at it may stay where workers stage.

        Raises:
            DamagedInputError, RunFailed, RunnerFailed, DiskError: it failed.
        """
        ...


def load(name: str) -> Runner:
    """Return a runner that an extension adds.

    Raises:
        RequestError: its extension is not installed, or does not offer what a runner needs.
    """
    return extensions.load_checked(
        RUNNER,
        name,
        lambda feature: feature if isinstance(feature, Runner) else None,
        "does not offer what a runner needs",
    )
