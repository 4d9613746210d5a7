"""A run of collected stages: from files of reports to a published folder, complete or not at all.

In: a checked request, an output folder, a ledger, a runner. Out: one Parquet file per stage, `report.html`, `manifest.json` under
the folder's name by one rename. Holds: no noise is drawn, so the same reports give the same tables; what reports say decides no
error; with a ledger every question is charged before a report is read (`ledgered_run`), without one the manifest says so. Not
covered: how often devices were really asked.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.local_dp import collected_plan
from dp_pipelines.extensions.local_dp.collected_request import CollectedRequest
from dp_pipelines.jobs.run import driver
from dp_pipelines.jobs.run.driver import RunAttempt, RunFacts, RunRequest
from dp_pipelines.jobs.run.pipelines import RunFailed, quoting_nothing, wait
from dp_pipelines.jobs.run.run import NO_LEDGER, PublishedRun, new_folder
from dp_pipelines.jobs.run.standing_release import release_at
from dp_pipelines.jobs.run.tables_read import CountFiles
from dp_pipelines.jobs.runners import doctor, engines, orphaned_jobs, processes, runner_rules
from dp_pipelines.jobs.sources.read_source import rows_of
from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels import sizes
from dp_pipelines.ledger.entries import Run
from dp_pipelines.release import manifest, staging
from dp_pipelines.steps.collected import estimated, one_of_each
from dp_pipelines.steps.write_stage import WriteStage, written

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

NOT_COVERED = (
    "who was asked, when a report came and from which address",
    "answers to many questions together, beyond the sum of their epsilons",
    "people who send what they like: a thousand of them can move a count by thousands",
    "that these people stand for others: the deviations are those of the devices' chance alone",
    "devices that use another document than the one named here, or answer more often than declared",
)

ROW_BYTES = 64
"""About what a row with its sender takes as it is shuffled."""


def run(
    request: CollectedRequest,
    output: str,
    *,
    runner: str,
    arguments: Sequence[str] = (),
    run_id: str | None = None,
    ledger: str | None = None,
    anchor: str | None = None,
) -> PublishedRun:
    """Run a checked request.

    Args:
        request: what is asked for.
        output: the folder to publish; it must not exist, unless it holds this very run.
        runner: one of `runner_rules.OF_CORE`.
        arguments: its options.
        run_id: names the run; None takes the digest of the job, with a number where a ledger counts its runs.
        ledger: its URL; None takes the file beside the job and makes it where there is none; `none` takes no ledger.
        anchor: the folder where the ledger's anchor must be; None takes the one that the environment names, if any.

    Raises:
        RequestError: the request is wrong by public facts; nothing was created or charged.
        BudgetError: people may not be asked this.
        LedgerError: the ledger cannot be used.
        DamagedInputError, RunFailed, DiskError, PublishError: it failed; nothing is visible.
    """
    if runner_rules.is_elsewhere(runner):
        message = f"{runner} has no collected stages yet"
        raise RequestError(field="--runner", message=message, hint="take another runner")
    target = staging.local_path(output)
    standing = manifest.read_estimates(target)
    if ledger == NO_LEDGER or standing is None:
        staging.refuse_existing(target)
    with (
        silence.silence() as stream,
        Progress(stream) as progress,
        new_folder(target),
        contextlib.ExitStack() as until_the_end,
    ):
        tell = progress.note
        engine = until_the_end.enter_context(engines.engine(runner, arguments, tell))
        if ledger == NO_LEDGER:
            doctor.refuse_unready(engine, target, tell)
            again = driver.carry_out(_run_of(request, run_id or request.digest[:24], engine, progress, target), None)
        else:
            from dp_pipelines.extensions.local_dp.answers_book import AnswersBook  # loads SQLAlchemy

            progress.show("opening the ledger")
            with AnswersBook(request, ledger, tell, anchor=anchor) as book:
                name = run_id or book.run_id(standing)
                release_at(target, name, request.file.job.dataset, request.asked, request.digest)
                if not book.committed(name):
                    staging.refuse_existing(target)
                    doctor.refuse_unready(engine, target, tell)
                again = driver.carry_out(_run_of(request, name, engine, progress, target), book.open())
    content = manifest.read_estimates(target)
    assert content is not None
    return PublishedRun(folder=target, manifest=content, again=again)


def _run_of(
    request: CollectedRequest, run_id: str, engine: engines.Engine, progress: Progress, target: pathlib.Path
) -> "CollectedRun":
    return CollectedRun(
        account=request.file.job.dataset,
        run_id=run_id,
        plan=request.asked,
        asked=request.asked,
        content=request.digest,
        target=target,
        files=request.source.files,
        tell=progress.show,
        stop=functools.partial(orphaned_jobs.stop, tell=progress.note),
        request=request,
        engine=engine,
        progress=progress,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectedRun(RunRequest):
    """Estimates from reports, as the driver carries them out.

    Args:
        request: what is asked for.
        engine: carries out the pipeline.
        progress: is told what is done.
    """

    request: CollectedRequest
    engine: engines.Engine
    progress: Progress

    def admit(self, ledger: "Ledger") -> Run:
        """See `RunRequest`: what people are asked is charged. Errors as for `answers_ledger.admit_estimate`."""
        request = self.request
        from dp_pipelines.extensions.local_dp import answers_ledger  # loads SQLAlchemy

        return answers_ledger.admit_estimate(
            ledger,
            self.account,
            self.run_id,
            askings=request.askings,
            asked=request.asked,
            content=request.digest,
            params=request.params,
            who=processes.who(),
        )

    def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
        """See `RunRequest`: the tables of all stages. There are no draws to keep."""
        key, folder = runner_rules.run_key(self.account, self.run_id), attempt.folder
        with self.engine.attempt(engines.EngineAttempt(key=key, folder=folder, submitted=attempt.submitted)):
            _estimate(self.request, folder, self.engine, self.progress)
        return {f"{name}.parquet": folder / f"{name}.parquet" for name in self.request.stages}

    @quoting_nothing("the report of the estimates could not be made")
    def describe(
        self, number: int, folder: pathlib.Path, files: Mapping[str, pathlib.Path], facts: RunFacts
    ) -> dict[str, pathlib.Path]:
        """See `RunRequest`. Nobody looks at raw rows of reports, and each question is asked once, so nothing is compared."""
        from dp_pipelines.extensions.local_dp import collected_page

        request = self.request
        promised = collected_plan.promise(request.file, request.stages)
        account = dict(facts.ledger) or {"head": None, "note": manifest.NOT_ACCOUNTED}
        content: dict[str, Any] = {
            "format": manifest.ESTIMATES_FORMAT,
            "dataset": request.file.job.dataset,
            "run_id": self.run_id,
            "params": request.params,
            "plan": request.asked,
            "job": request.digest,
            "guarantee": [*collected_plan.promise_in_words(promised), *collected_plan.accounted(account)],
            "promise": promised,
            "stages": [{"name": name, **collected_plan.described(stage)} for name, stage in request.stages.items()],
            "ledger": account,
            "not_covered": list(NOT_COVERED),
        }
        page = folder / "report.html"
        tables = {pathlib.Path(name).stem: path for name, path in files.items()}
        page.write_text(collected_page.render(content, tables), encoding="utf-8")
        everything = {**files, page.name: page}
        content["files"] = manifest.digests(everything)
        return {**everything, "manifest.json": manifest.write_manifest(content, folder)}

    def deliver(self, *, remembered: bool) -> None:
        """See `RunRequest`: it belongs nowhere else."""


def _estimate(request: CollectedRequest, folder: pathlib.Path, engine: engines.Engine, progress: Progress) -> None:
    """Write the tables of all stages; the reports are read once."""
    pipeline = engine.pipeline(progress, len(request.source.files), list(request.stages))
    start = engine.start(pipeline)
    read = functools.partial(rows_of, source=request.source, columns=request.columns)
    rows = start.inside("Read", read).each("CountFiles", CountFiles())
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
