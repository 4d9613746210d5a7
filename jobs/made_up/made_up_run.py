"""`run --synthetic`: the whole report of a job, of made-up rows.

In: a job file. Out: a folder like that of a run, which says everywhere that its rows are made up. Holds: no row of the job's
files is read (of Parquet files the footers, of CSV files nothing), no ledger is opened, nothing is charged; the folder's manifest
is none of a release. `where` and a window drop no made-up row, and defined columns are made up; lookups, public lists, unit
columns and models are the job's own. Not covered: whether real rows are like that.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.made_up import made_up_columns, synthetic_rows
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import driver
from dp_pipelines.jobs.run.driver import RunAttempt, RunFacts, RunRequest
from dp_pipelines.jobs.run.production import Production
from dp_pipelines.jobs.run.run import PublishedRun, new_folder, plan_of
from dp_pipelines.jobs.runners import engines, orphaned_jobs, runner_rules
from dp_pipelines.jobs.sources import added_columns, declared_source, source_files
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.entries import Run
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.row_unit import is_row_unit
from dp_pipelines.release import manifest, staging

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

RUN_ID = "synthetic"


def run(file: JobFile, output: str, *, given: Sequence[str] = (), arguments: Sequence[str] = ()) -> PublishedRun:
    """Make the report of a job of made-up rows.

    Args:
        file: the job file.
        output: the folder to publish; it must not exist.
        given: parameters, `NAME=VALUE`.
        arguments: options of Beam.

    Raises:
        RequestError: the request is wrong by public facts; nothing was created.
        BudgetError: the budget cannot be met.
        RunFailed, PublishError: it failed; nothing is visible.
    """
    request = check(file, given, _declared(file))
    target = staging.local_path(output)
    staging.refuse_existing(target)
    with silence.silence() as stream, Progress(stream) as progress, new_folder(target):
        progress.show("planning")
        plan = plan_of(file, request.stages)
        with engines.engine(runner_rules.DEFAULT, arguments) as engine:
            driver.carry_out(_run_of(request, plan, engine, progress, target), None)
    content = manifest.read_made_up(target)
    assert content is not None
    return PublishedRun(folder=target, manifest=content)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeUpRun(RunRequest):
    """A run of a job over made-up rows, as the driver carries it out. Nothing remembers it.

    Args:
        request: the job.
        its_plan: of the job.
        engine: carries out the pipelines.
        progress: is told what is done.
        made: the production over the made-up rows, as soon as these are there.
    """

    request: Request
    its_plan: Plan
    engine: engines.Engine
    progress: Progress
    made: list[Production] = dataclasses.field(default_factory=list)

    def admit(self, ledger: "Ledger") -> Run:
        """See `RunRequest`.

        Raises:
            AssertionError: always, since no ledger may be charged for made-up rows.
        """
        raise AssertionError("made-up rows cost nothing")

    def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
        """See `RunRequest`: the rows are written next to the release, into the private folder around it."""
        read, assumed = _made_up(self.request, attempt.folder.parent / "rows.parquet")
        production = Production(
            read, self.its_plan, RUN_ID, self.engine, self.progress, made_up=assumed, asked=self.request
        )
        self.made.append(production)
        return production.release(attempt.number, attempt.folder, attempt.draws, attempt.submitted)

    def describe(
        self, number: int, folder: pathlib.Path, files: Mapping[str, pathlib.Path], facts: RunFacts
    ) -> dict[str, pathlib.Path]:
        """See `RunRequest`."""
        return self.made[-1].describe(number, folder, files, facts)

    def deliver(self, *, remembered: bool) -> None:
        """See `RunRequest`: it belongs nowhere else."""


def _run_of(
    request: Request, plan: Plan, engine: engines.Engine, progress: Progress, target: pathlib.Path
) -> MadeUpRun:
    return MadeUpRun(
        account=request.file.job.dataset,
        run_id=RUN_ID,
        plan=plan.digest,
        asked=request.asked,
        content=request.content,
        target=target,
        files=(),
        tell=progress.show,
        stop=functools.partial(orphaned_jobs.stop, tell=progress.note),
        request=request,
        its_plan=plan,
        engine=engine,
        progress=progress,
    )


def refuse_options(ledger: str | None, anchor: str | None, runner: str, run_id: str | None) -> None:
    """Refuse options that say where a real run is charged or carried out.

    Raises:
        RequestError: one was given.
    """
    given = {
        "--ledger": ledger,
        "--anchor": anchor,
        "--run-id": run_id,
        "--runner": runner if runner != runner_rules.DEFAULT else None,
    }
    for name, value in given.items():
        if value is not None:
            message = "is for real rows; with --synthetic nothing is charged, and everything runs in this process"
            raise RequestError(field=name, message=message, hint=f"drop {name}, or drop --synthetic")


def _declared(file: JobFile) -> source_files.Source | None:
    """The schema that the job declares itself: the files need not be there. None: the files tell it."""
    declared = declared_source.without_files(file.job.one_source("rows are made up for one"))
    return added_columns.with_row_numbers(declared) if declared is not None and is_row_unit(file.job.unit) else declared


def _made_up(request: Request, path: pathlib.Path) -> tuple[Request, tuple[str, ...]]:
    """Write the rows, and have all stages read these instead of the job's.

    Returns:
        the request that reads them, and what is assumed of them.
    """
    rows = made_up_columns.rows_of(request)
    unit = {name: request.source.schema.field(name).type for name in request.file.job.unit}
    table = synthetic_rows.independent(rows.users, rows.rows_each, unit, rows.columns)
    pa.parquet.write_table(table, path)
    os.chmod(path, 0o600)
    source = source_files.look_at_parquet([str(path)])
    where = request.rows.where
    if where is not None:  # what counts the rows that pass it still can
        from dp_pipelines.jobs.sql import expressions

        where = expressions.bind("TRUE", {}, source.schema, unit=(), values={}, absent={}).where
    read = dataclasses.replace(
        request,
        source=source,
        rows=RowExpressions(where=where, defined=(), params={}, schema=source.schema),
        columns=tuple(table.column_names),
        window=None,
    )
    return read, rows.words
