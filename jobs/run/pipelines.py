"""Runs the pipeline of a job, and reports only the public part of a failure.

In: a checked request, frozen stages, a staging folder. Out: the staged files, all complete; or an error whose text is public.
Holds: no text of a failure of Beam leaves this module, since it may quote rows. Not covered: what happens to the files (`run`).
"""

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.disk_errors import DiskError, quoted_in, reason_of, refuse_full, told_of_disk
from dp_pipelines.engine import object_store
from dp_pipelines.errors import DamagedInputError, DpError, GateError, LedgerError
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.runners import late_collection
from dp_pipelines.jobs.runners.engines import Engine, RunnerFailed
from dp_pipelines.jobs.runners.shuffle import SpillFailed
from dp_pipelines.jobs.sources import readers
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels.columns.listed_keys import ListedKeys, travelling_through
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate

if TYPE_CHECKING:
    from dp_pipelines.jobs.runners.cluster_watch import Lack

DAMAGES = (
    "is not a complete Parquet file",
    "a row group cannot be read; it is damaged",
    "is not a CSV file with the declared columns",
    *readers.DAMAGES,
    *object_store.FAILURES,
)
"""What the readers say about a file that turns out to be damaged."""


class RunFailed(DpError):
    """The pipeline failed. The message holds public facts only."""


@contextlib.contextmanager
def quoting_nothing(failed: str) -> Iterator[None]:
    """Suppress the text of foreign errors, since it may quote a row, or a draw that is never released.

    Args:
        failed: the message to use instead.

    Raises:
        DiskError: a disk is full, read-only or failing. Whoever knows the folder names it (`told_of_disk`).
        RunFailed: in place of any other error that is not ours.
    """
    with interrupts.watched():
        try:
            yield
        except DpError:
            raise
        except BaseException as error:
            interrupts.end_if_asked()
            if reason_of(error):
                raise DiskError("", reason_of(error)) from None
            raise RunFailed(f"{failed}; nothing was published, and details are not shown") from None


def run_pipeline(
    request: Request,
    stages: Mapping[str, StagePlan],
    folder: pathlib.Path,
    engine: "Engine",
    progress: Progress,
    without: Mapping[str, pa.Table] | None = None,
    salt: int | None = None,
) -> dict[str, pathlib.Path]:
    """Run the pipeline; the staged files by published name.

    Args:
        request: what to read.
        stages: what to release, by name.
        folder: the private staging folder.
        engine: what runs it.
        progress: is told each step.
        without: partitions whose rows a stage does not see, by its name.
        salt: see `build.build`.

    Raises:
        DamagedInputError, RunFailed: it failed.
    """
    from dp_pipelines.jobs.run import build, shuffled_rows

    pipeline = engine.pipeline(progress, len(request.source.files), list(stages))
    with travelling_through(folder, _lists(stages.values())):
        shards = build.num_shards(request, engine.given, shuffled_rows.of_stages(request, stages))
        files = build.build(engine.start(pipeline), request, stages, folder, without or {}, shards, salt=salt)
        wait(engine, pipeline, request, stages, progress, folder)
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        raise RunFailed(f"stage file {missing[0]!r}: was not written; nothing was published")
    return files


def _lists(stages: Iterable[StagePlan]) -> list[ListedKeys]:
    """The lists that travel with the steps: those on disk stay where they are."""
    listed = (level.layout.public for stage in stages for level in stage.levels)
    return [keys for keys in listed if isinstance(keys, ListedKeys)]


def run_examples(
    request: Request,
    name: str,
    folder: pathlib.Path,
    salt: int,
    engine: "Engine",
    progress: Progress,
    key: bytes | None = None,
) -> None:
    """Run the pipeline that writes the examples of a train stage.

    Args:
        request: what to read.
        name: of the stage.
        folder: a private one, for the examples alone.
        salt: settles which rows and examples of a unit stay.
        engine: what runs it.
        progress: is told each step.
        key: divides the units, as `training.fit` takes it; see `BoundedExamples`.

    Raises:
        DamagedInputError, RunFailed: it failed.
    """
    from dp_pipelines.jobs.run import build, shuffled_rows

    pipeline = engine.pipeline(progress, len(request.source.files), [name])
    shards = build.num_shards(request, engine.given, shuffled_rows.of_examples(request, name))
    build.build_examples(engine.start(pipeline), request, name, folder, salt, shards, key)
    wait(engine, pipeline, request, [name], progress, folder)


class ReadsFiles(Protocol):
    """What is run: files are read."""

    @property
    def source(self) -> Source:
        """The files."""
        ...


def wait(
    engine: "Engine",
    pipeline: Any,
    request: ReadsFiles,
    stages: Mapping[str, StagePlan] | Iterable[str],
    progress: Progress,
    folder: pathlib.Path,
) -> None:
    """Run a graph to its end.

    Args:
        engine: what runs it.
        pipeline: the graph.
        request, stages: what is run.
        progress: is told each step.
        folder: into which it writes.

    Raises:
        DpError: it failed; the message is public.
    """
    progress.show("starting")
    late_collection.begin()
    with interrupts.watched():
        try:
            engine.run(pipeline, progress)
        except (SpillFailed, LedgerError):  # of before and after it; no step has a ledger
            raise
        except RunnerFailed:
            with told_of_disk(folder):  # what engines start writes there too, and does not say so
                refuse_full(folder)
            raise
        except BaseException as error:  # ours too: Beam adds to their text, and whatever it says may quote rows
            interrupts.end_if_asked()
            raise public_part(error, request, stages, folder, engine.lack) from None


def _text(error: BaseException) -> str:
    """Return what an error says; nothing if saying it fails, as it may for errors of code that is not ours."""
    try:
        return str(error)
    except BaseException:
        interrupts.end_if_asked()
        return ""


def _gate_refusal(told: str, stages: Mapping[str, StagePlan] | Iterable[str]) -> GateError | None:
    """Return the refusal of the gate that a text quotes; its names are those of the stages that ran, whatever else is quoted."""
    planned = [level for stage in stages.values() for level in stage.levels] if isinstance(stages, Mapping) else []
    for stage in planned:
        for record in ("", *(each.name for each in (*stage.statistics, *stage.mechanisms)), gate.SELECTION):
            for rule in gate.RULES:
                if str(refusal := GateError(rule, stage.name, record)) in told:
                    return refusal
    return None


def public_part(
    error: BaseException,
    request: ReadsFiles,
    stages: Mapping[str, StagePlan] | Iterable[str],
    folder: pathlib.Path | None = None,
    lack: "Lack | None" = None,
) -> DpError:
    """The public part of a failure: a file and a rule, a disk, a step, or a cluster, but only those that were public before.

    Args:
        error: what failed.
        request, stages: what was run; of a graph that draws, the stages themselves by name.
        folder: into which it writes; None: nothing.
        lack: what the cluster lacked then.
    """
    told = _text(error)
    if (refusal := _gate_refusal(told, stages)) is not None:
        return refusal
    disk = error if isinstance(error, DiskError) or folder is None else quoted_in(told, folder)
    if isinstance(disk, DiskError):
        return DiskError(disk.folder, disk.reason, disk.instead)
    for path in request.source.files:
        for message in DAMAGES:
            message = f"file {path!r}: {message}"
            if message in told:
                return DamagedInputError(f"{message}; nothing was published")
    where = ""
    for name in stages:
        labels = (
            name,
            *(
                f"{label} {name}"
                for label in ("Release", "Stage", "Examples of", "Units of", "Tune", "Profile", "Rows for", "Count")
            ),
        )
        if any(f"while running '{label}/" in told for label in labels):
            where = f" in stage {name!r}"
    if lack is not None:
        return RunFailed(
            f"the pipeline failed{where}; {lack.said}; nothing was published; {lack.hint}, then run the same command"
        )
    return RunFailed(
        f"the pipeline failed{where}; nothing was published, and details are not shown, because they may quote rows"
    )
