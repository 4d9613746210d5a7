"""A run of collected stages: from files of reports to a published folder, complete or not at all.

In: a checked request, an output folder, a runner. Out: one Parquet file per stage, `report.html` and `manifest.json`, under the
folder's name by one rename. Holds: no noise is drawn, so the same reports give the same tables; what reports say decides no
error. Not covered: accounts of local epsilon: no ledger has them.
"""

import contextlib
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.collected import collected_plan
from dp_pipelines.jobs.collected.collected_request import CollectedRequest
from dp_pipelines.jobs.run import unledgered_run
from dp_pipelines.jobs.run.pipelines import RunFailed, quoting_nothing, wait
from dp_pipelines.jobs.run.run import PublishedRun, new_folder
from dp_pipelines.jobs.run.tables_read import CountFiles
from dp_pipelines.jobs.runners import doctor, engines, orphaned_jobs, runner_rules
from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels import sizes
from dp_pipelines.release import manifest, staging
from dp_pipelines.steps.collected import estimated, one_of_each
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.read_files import csv_tables, parquet_tables
from dp_pipelines.steps.write_stage import WriteStage, written

FORMAT = "collected reports"
"""What the manifest calls itself: no reader of central releases takes it for one."""

NOT_COVERED = (
    "who was asked, when a report came and from which address",
    "answers to many questions together, beyond the sum of their epsilons",
    "people who send what they like: a thousand of them can move a count by thousands",
    "that these people stand for others: the deviations are those of the devices' chance alone",
    "accounts of what a person has been asked before: no ledger keeps them",
)

ROW_BYTES = 64
"""About what a row with its sender takes as it is shuffled."""


def run(
    request: CollectedRequest, output: str, *, runner: str, arguments: Sequence[str] = (), run_id: str | None = None
) -> PublishedRun:
    """Run a checked request.

    Args:
        request: what is asked for.
        output: the folder to publish; it must not exist.
        runner: one of `runner_rules.NAMES`, but not dataflow.
        arguments: its options.
        run_id: names the run; None takes the digest of the job.

    Raises:
        RequestError: the request is wrong by public facts; nothing was created.
        DamagedInputError, RunFailed, DiskError, PublishError: it failed; nothing is visible.
    """
    if runner_rules.check_name(runner) == "dataflow":
        raise RequestError(field="--runner", message="dataflow has no collected stages yet", hint="take another runner")
    target = staging.local_path(output)
    staging.refuse_existing(target)
    with (
        silence.silence() as stream,
        Progress(stream) as progress,
        new_folder(target),
        contextlib.ExitStack() as until_the_end,
    ):
        tell = functools.partial(silence.note, stream)
        engine = until_the_end.enter_context(engines.engine(runner, arguments, tell))
        doctor.refuse_unready(engine, target, tell)
        unledgered_run.sweep(target, functools.partial(orphaned_jobs.stop, tell=tell))
        with staging.staging_folder(target) as folder:
            note, whole = unledgered_run.Note(folder), folder / "whole"
            whole.mkdir(mode=0o700)
            key = runner_rules.run_key(request.file.job.dataset, run_id or request.digest[:24])
            with engine.attempt(engines.EngineAttempt(key=key, folder=whole, submitted=note.submitted)):
                _estimate(request, whole, engine, progress)
            content = _describe(request, whole, run_id or request.digest[:24])
            staging.publish_folder(whole, target)
    return PublishedRun(folder=target, manifest=content)


def _estimate(request: CollectedRequest, folder: pathlib.Path, engine: engines.Engine, progress: Progress) -> None:
    """Write the tables of all stages; the reports are read once."""
    pipeline = engine.pipeline(progress, len(request.source.files), list(request.stages))
    start = engine.start(pipeline)
    rows = start.inside("Read", functools.partial(_read, request=request)).each("CountFiles", CountFiles())
    given = engine.given
    slots = max(int(given.get("parallelism") or 1), 1)
    shards = int(given.get("num_shards") or sizes.shards(request.source.rows * ROW_BYTES, slots))
    # The same job keeps the same row of each sender. Whoever knows the key could choose which of their rows stays: they could as
    # well have sent that one alone.
    salt = int(request.digest[:16], 16)
    if request.unit:
        kept = functools.partial(one_of_each, unit=request.unit, reads=request.columns, num_shards=shards, salt=salt)
        rows = rows.inside("OneOfEach", kept)
    for name, stage in request.stages.items():
        wiring = functools.partial(estimated, stage=stage)
        write = WriteStage(str(folder / f"{name}.parquet"), ())
        rows.inside(f"Release {name}", wiring).inside(f"Stage {name}", functools.partial(written, writer=write))
    wait(engine, pipeline, request, request.stages, progress, folder)
    missing = [name for name in request.stages if not (folder / f"{name}.parquet").is_file()]
    if missing:
        raise RunFailed(f"stage file {missing[0]!r}: was not written; nothing was published")


def _read(start: Flow, request: CollectedRequest) -> Flow:
    files = start.known("Files", sorted(set(request.source.files)), str)
    if request.source.types is not None:
        types = {name: request.source.types[name] for name in request.columns}
        return csv_tables(files, types, request.file.job.source.form)
    return parquet_tables(files, list(request.columns))


@quoting_nothing("the report of the estimates could not be made")
def _describe(request: CollectedRequest, folder: pathlib.Path, run_id: str) -> dict[str, Any]:
    """Write report and manifest beside the tables."""
    from dp_pipelines.report import collected_page

    promised = collected_plan.promise(request.file, request.stages)
    content: dict[str, Any] = {
        "format": FORMAT,
        "dataset": request.file.job.dataset,
        "run_id": run_id,
        "job": request.digest,
        "guarantee": collected_plan.promise_in_words(promised),
        "promise": promised,
        "stages": [{"name": name, **collected_plan.described(stage)} for name, stage in request.stages.items()],
        "ledger": {"head": None, "note": manifest.NOT_ACCOUNTED},
        "not_covered": list(NOT_COVERED),
    }
    tables = {name: folder / f"{name}.parquet" for name in request.stages}
    page = folder / "report.html"
    page.write_text(collected_page.render(content, tables), encoding="utf-8")
    content["files"] = manifest.digests({path.name: path for path in (*tables.values(), page)})
    manifest.write_manifest(content, folder)
    return content
