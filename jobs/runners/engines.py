"""What carries out the graphs of a run, whatever it is: this process, or a runner of Beam.

In: the name of a runner and its options. Out: an engine, which makes empty graphs and runs those that were filled. Holds: Beam is
loaded for its own runners alone; temporary files of an attempt are in its private folder; only `pipelines.public_part` may read
an error of a job. Not covered: which runners there are (`runner_rules`).
"""

import abc
import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import DpError
from dp_pipelines.jobs.runners import runner_rules
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.release.staging import UNFINISHED
from dp_pipelines.steps.flow import Flow

if TYPE_CHECKING:
    from dp_pipelines.jobs.runners.cluster_watch import Lack


class RunnerFailed(DpError):
    """The runner did not accept the job. The message holds public facts only.

    Args:
        name: of the runner.
        cause: Beam's error; for `doctor`, which has no rows.
    """

    def __init__(self, name: str, cause: Exception | None = None) -> None:
        super().__init__(
            f"runner {name}: did not accept the job; nothing was read or published; "
            f"`dp-pipelines doctor --runner {name}` with the same options tells you more"
        )
        self.cause = cause


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineAttempt:
    """What an engine must know about the attempt for which it works.

    Args:
        key: names the run to anyone who sees the engine's jobs, without revealing account or id.
        folder: the private folder.
        submitted: records a job: before the engine gets it, and again when the engine has named it.
    """

    key: str
    folder: pathlib.Path
    submitted: Callable[[EngineJob], None]


class Engine(abc.ABC):
    """A runner and its options.

    Args:
        setup: how it is reached.

    Attributes:
        tell: says something to the user while a graph runs; None: nobody listens.
        lack: what the cluster lacked when `run` failed; None: nothing, as far as it is known.
    """

    def __init__(self, setup: runner_rules.Setup) -> None:
        self.setup = setup
        self.tell: Callable[[str], None] | None = None
        self.lack: Lack | None = None
        self._attempt: EngineAttempt | None = None

    @property
    @abc.abstractmethod
    def given(self) -> Mapping[str, Any]:
        """All options by name."""

    @abc.abstractmethod
    def pipeline(self, progress: Progress, files: int = 0, stages: Sequence[str] = ()) -> Any:
        """An empty graph, in the engine's own terms.

        Args:
            progress: is told each step, where the steps are in this process.
            files: how many are read.
            stages: names of the job's stages.
        """

    @abc.abstractmethod
    def start(self, pipeline: Any) -> Flow:
        """Where the sources of a graph begin."""

    @abc.abstractmethod
    def run(self, pipeline: Any, progress: Progress) -> None:
        """Run a graph of this engine to its end.

        Raises:
            RunnerFailed: the job could not be submitted; nothing was read.
            Exception: the job failed. The error may quote rows.
        """

    def refuse_unready(self, target: pathlib.Path) -> None:  # noqa: B027  (most engines are asked by the doctor)
        """Refuse a run that this engine cannot carry out, by public facts.

        Args:
            target: the folder that is to be published.

        Raises:
            RequestError: as said.
        """

    def fetch_job_server(self) -> None:  # noqa: B027
        """Download what is needed to submit a job, so that a run that cannot have it fails before it is charged.

        Raises:
            RequestError: it cannot be downloaded.
        """

    @contextlib.contextmanager
    def attempt(self, attempt: EngineAttempt) -> Iterator[None]:
        """Work for an attempt until the end of the block; then nothing that was started is left.

        Meanwhile the temporary files of all in this process lie in the attempt's private folder.
        """
        before = tempfile.tempdir
        private = tempfile.mkdtemp(prefix="engine-", suffix=UNFINISHED, dir=attempt.folder)
        try:
            self._attempt, tempfile.tempdir = attempt, private
            yield
        finally:
            self._attempt, tempfile.tempdir = None, before
            self.close()
            shutil.rmtree(private, ignore_errors=True)

    def close(self) -> None:  # noqa: B027
        """End what was started."""


@contextlib.contextmanager
def engine(name: str, arguments: Sequence[str], tell: Callable[[str], None] | None = None) -> Iterator[Engine]:
    """A runner, until the end of the block.

    Args:
        name: one of `runner_rules.NAMES`.
        arguments: its options.
        tell: says something to the user while a graph runs; None: nobody listens.

    Raises:
        RequestError: the name or an option is wrong by public facts.
    """
    made = configured(name, arguments)
    made.tell = tell
    try:
        yield made
    finally:
        made.close()


def configured(name: str, arguments: Sequence[str]) -> Engine:
    """A runner with what it needs beside the options that were given. Errors as for `engine`."""
    if runner_rules.check_name(name) == "local":
        from dp_pipelines.jobs.runners import local_engine

        return local_engine.configured(arguments)
    from dp_pipelines.jobs.runners import beam_engine

    return beam_engine.configured(name, arguments)
