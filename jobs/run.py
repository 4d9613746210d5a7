"""A run from a checked request to a published folder, whole or not at all.

In: a job file, parameters, an output folder. Out: the folder with one Parquet file per stage and `manifest.json`, under its
name by one rename; or an error and nothing. Holds: everything that public facts can refuse is refused before anything is
created; while rows are in memory nothing is printed, and no text of a failure leaves this module unless all of it is public.
Not covered: accounting across runs (the ledger arrives with a later version; the manifest says so).

May import everything below; Beam is imported when a pipeline is built, not before.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dp_pipelines.budget.plan import Expectation, Plan
from dp_pipelines.errors import DamagedInputError, DpError, RequestError
from dp_pipelines.jobs.job_file import JobFile
from dp_pipelines.jobs.progress import Progress, heard
from dp_pipelines.jobs.quiet import silence
from dp_pipelines.jobs.request import Request, check
from dp_pipelines.query import Query
from dp_pipelines.release import manifest, staging

DAMAGES = (
    "is not a whole Parquet file",
    "a row group cannot be read; it is damaged",
    "is not a CSV file with the declared columns",
)
"""What the readers say about a file that turns out to be damaged."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,199}\Z")


class RunFailed(DpError):
    """The pipeline failed. The message holds public facts only."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """What a run has published.

    Args:
        folder: where it lies.
        manifest: what its manifest says.
        again: whether it was there already.
    """

    folder: pathlib.Path
    manifest: dict[str, Any]
    again: bool = False


def plan_of(file: JobFile, queries: dict[str, Query]) -> Plan:
    """The plan of a job.

    Raises:
        RequestError: an argument is wrong.
        BudgetError: the budget cannot be met.
    """
    job = file.job
    expect = Expectation(**dict(job.expect)) if job.expect is not None else None
    try:
        return Plan(
            epsilon=job.budget.epsilon,
            delta=job.budget.delta,
            stages=queries,
            shares={name: stage.share for name, stage in job.stages.items()},
            runs=job.budget.runs,
            expect=expect,
        )
    except RequestError as error:
        known = {"epsilon", "delta", "runs"}
        place = ("budget",) if error.field in known else ()
        located = file.error(place, error)
        raise type(error)(field=located.field, rule=located.rule, mend=located.mend) from None


def run(
    file: JobFile, output: str, *, given: Sequence[str] = (), run_id: str | None = None, arguments: Sequence[str] = ()
) -> Published:
    """Run a job.

    Args:
        file: the job.
        output: the folder to publish; it must not exist, unless it holds this very run.
        given: parameters, `NAME=VALUE`.
        run_id: names the run; needed where the budget is for several.
        arguments: options of Beam.

    Raises:
        RequestError: the request is wrong by public facts; nothing was created.
        DamagedInputError, RunFailed, PublishError: it failed; nothing is left.
    """
    request = check(file, given)
    _check_run_id(run_id, file)
    target = staging.local_path(output)
    if os.path.lexists(target) and manifest.read_manifest(target) is None:
        staging.refuse_existing(target)
    with silence() as stream, Progress(stream) as progress:
        return _run(request, target, run_id, arguments, progress)


def _run(
    request: Request, target: pathlib.Path, run_id: str | None, arguments: Sequence[str], progress: Progress
) -> Published:
    progress.show("loading Beam")
    from dp_pipelines.jobs import beam_options

    options = beam_options.pipeline_options_of(arguments)
    progress.show("planning")
    plan = plan_of(request.file, dict(request.queries))
    identity = run_id or f"{plan.digest[:24]}-{request.content[:24]}"
    if os.path.lexists(target):
        return _same_run(target, identity, plan, request)
    with _no_parents_left(target), staging.staging_folder(target) as folder:
        files = _run_pipeline(request, plan, folder, options, progress)
        progress.show("publishing")
        job = request.file.job
        content = manifest.manifest(
            statement=plan.statement(),
            mechanisms=[record.to_json() for record in plan.mechanisms],
            privacy_unit=manifest.unit_in_words(job.privacy_unit),
            files=files,
            run_id=identity,
            params={name: str(value) for name, value in request.values.items()},
        )
        content |= {"dataset": job.dataset, "job": request.content}
        manifest.write_manifest(content, folder)
        staging.publish_folder(folder, target)
    return Published(folder=target, manifest=content)


def _run_pipeline(
    request: Request, plan: Plan, folder: pathlib.Path, options: Any, progress: Progress
) -> dict[str, pathlib.Path]:
    """Run the pipeline in this process; the staged files."""
    import apache_beam as beam

    from dp_pipelines.jobs import build
    from dp_pipelines.jobs.direct import CountingRunner

    pipeline = beam.Pipeline(
        runner=CountingRunner(progress, len(request.source.files), list(request.queries)), options=options
    )
    files = build.build(pipeline, request, plan, folder)
    progress.show("starting")
    try:
        with heard(progress):
            pipeline.run().wait_until_finish()
    except Exception as error:  # ours too: Beam adds to their text, and whatever it says may quote rows
        raise _public_part(error, request) from None
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        raise RunFailed(f"stage file {missing[0]!r}: was not written; nothing was published")
    return files


def _check_run_id(run_id: str | None, file: JobFile) -> None:
    if run_id is None:
        if file.job.budget.runs > 1:
            raise RequestError(
                field="--run-id",
                rule=f"is needed: the budget is for {file.job.budget.runs} runs, and each needs a name of its own",
                mend="add e.g. --run-id 2026-W01",
            )
    elif not RUN_ID.match(run_id):
        rule = "must be 1 to 200 letters, digits and signs of _.:@/+- and start with a letter or digit"
        raise RequestError(field="--run-id", rule=rule, mend="write e.g. --run-id 2026-W01")


def _same_run(target: pathlib.Path, identity: str, plan: Plan, request: Request) -> Published:
    """The release that stands at the output's place, if it is this very run's and whole.

    Raises:
        RequestError: it is not.
    """
    content = manifest.read_manifest(target)
    if content is None:
        staging.refuse_existing(target)
        raise AssertionError("it exists")
    field = f"output {str(target)!r}"
    if content.get("run_id") != identity:
        raise RequestError(field=field, rule="holds another run's release", mend="choose a new folder")
    if content.get("plan") != plan.digest or content.get("job") != request.content:
        rule = f"holds the release of run {identity!r} of another job, plan or parameters"
        raise RequestError(field=field, rule=rule, mend="give this run another --run-id and another folder")
    files = {name: target / name for name in content.get("files", {})}
    try:
        whole = manifest.digests(files) == content["files"]
    except OSError:
        whole = False
    if not whole:
        rule = "holds this run's release, but its files are not those of its manifest"
        raise RequestError(field=field, rule=rule, mend="restore them, or choose a new folder")
    return Published(folder=target, manifest=content, again=True)


@contextlib.contextmanager
def _no_parents_left(target: pathlib.Path) -> Iterator[None]:
    """Remove the folders above the output that this run made, where it publishes nothing."""
    made = [parent for parent in target.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _public_part(error: Exception, request: Request) -> DpError:
    """What may be told of a failure: a file and a rule, or a step, and each only if it is one that was public before."""
    told = str(error)
    for path in request.source.files:
        for rule in DAMAGES:
            message = f"file {path!r}: {rule}"
            if message in told:
                return DamagedInputError(f"{message}; nothing was published")
    where = ""
    for name in request.queries:
        if any(f"while running '{label}/" in told for label in (name, f"Stage {name}")):
            where = f" in stage {name!r}"
    return RunFailed(
        f"the pipeline failed{where}; nothing was published, and no detail is shown, since it may quote rows"
    )
