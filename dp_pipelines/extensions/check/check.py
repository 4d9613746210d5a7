"""`dp-pipelines check`: what the rows of a job are like, and what its bounds would keep of them, in one pass. PRIVATE.

In: a job file. Out: a private folder (mode 0700) with a page and the same as JSON. NOT private: it is computed from raw rows.
Holds: the job is checked and planned before a row is read; what is printed, and how the command ends, depends on no row; the
ledger notes that somebody looks, before anything is read; the folder is there whole or not at all, is no release and lies in
none; no text of a failure quotes a row.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet

from dp_pipelines.extensions.check import check_graph, findings, late_rows, profile_page
from dp_pipelines.extensions.check.advice import advice
from dp_pipelines.extensions.check.findings import ProfiledTable, ProfiledUnits
from dp_pipelines.extensions.check.late_rows import EarlierRuns
from dp_pipelines.extensions.check.losses import losses
from dp_pipelines.extensions.check.notes import Fact, read_notes
from dp_pipelines.jobs.request import request as requests
from dp_pipelines.jobs.request.joined_tables import TableRows
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import frozen_plans, ledger_account, private_folder
from dp_pipelines.jobs.run.pipelines import quoting_nothing
from dp_pipelines.jobs.run.run import NO_LEDGER, plan_of
from dp_pipelines.jobs.runners import doctor, processes
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.jobs.spec.table_models import TableModel
from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.ledger.entries import CHECK
from dp_pipelines.ledger.journal import now
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.row_unit import ROW_UNIT
from dp_pipelines.query.train_model import NumberLabel
from dp_pipelines.release import staging


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """What may be said of a check.

    Args:
        folder: where it lies.
        noted: whether the ledger notes it.
    """

    folder: pathlib.Path
    noted: bool

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {"folder": str(self.folder), "private": True, "noted": self.noted}

    @property
    def text(self) -> str:
        """What is printed."""
        return f"checked: {self.folder}\n{private_folder.notice(noted=self.noted)}"


def check(given: argparse.Namespace, arguments: Sequence[str]) -> Checked:
    """Run the command.

    Args:
        given: the arguments, as `command` declares them.
        arguments: options of Beam.

    Raises:
        RequestError: the request is wrong by public facts; nothing was read, noted or created.
        BudgetError: the job cannot be planned.
        LedgerError: the ledger cannot be used.
        DamagedInputError, RunFailed, PublishError: it failed; nothing is left.
    """
    request = requests.check(job_file.load(given.job), given.param)
    target = private_folder.target(given.output)
    private_folder.refuse_elsewhere(given.runner, "check on a machine that can read the rows")
    with silence.silence() as stream, Progress(stream) as progress, contextlib.ExitStack() as until_the_end:
        progress.show("planning")
        plan = _planned(request)
        stages = _aggregate(request, plan)
        progress.show("loading")
        from dp_pipelines.jobs.runners import engines

        tell = progress.note
        engine = until_the_end.enter_context(engines.engine(given.runner, arguments, tell))
        doctor.refuse_unready(engine, target, tell)
        with staging.staging_folder(target) as folder:
            noted, today, before = given.ledger != NO_LEDGER, now()[:10], None
            if noted:
                with ledger_account.Book(request, given.ledger, tell, anchor=given.anchor) as book:
                    book.note_look(stage=", ".join(request.file.job.stages), who=processes.who(), command=CHECK)
                    before = late_rows.released(request, book.runs_of_window())
            notes = folder / "notes.parquet"
            late = None if before is None else before.source
            check_graph.run_check(request, stages, notes, engine, progress, late)
            whole = folder / "whole"
            whole.mkdir(mode=0o700)
            _write(request, plan, notes, whole, today, before)
            private_folder.give_name(whole, target)
    return Checked(folder=target, noted=noted)


def _planned(request: Request) -> Plan:
    """Return the plan of the job.

    Raises:
        BudgetError: the budget cannot be met.
    """
    name = frozen_plans.name_of(request.file, request.stages, request.asked)
    return frozen_plans.plan_of(request.file, request.stages, plan_of, name)


def _aggregate(request: Request, plan: Plan) -> dict[str, StagePlan]:
    """Return the aggregate stages as a plan has them, by name."""
    planned = plan.round(1).stages
    return {stage: planned[stage] for stage in request.queries}


@quoting_nothing("the results could not be written")
def _write(
    request: Request, plan: Plan, notes: pathlib.Path, folder: pathlib.Path, date: str, before: EarlierRuns | None
) -> None:
    """Write both files.

    Args:
        request, plan: what was looked at.
        notes: the file that the graph has written.
        folder: where to.
        date: the day of the look.
        before: earlier runs of the window.
    """
    profile = profile_of(request, plan, read_notes([pyarrow.parquet.read_table(notes)]), date, before)
    texts = {
        "report.html": profile_page.render(profile),
        "check.json": json.dumps(profile, indent=2, ensure_ascii=False, allow_nan=False),
    }
    for name, text in texts.items():
        (folder / (private_folder.PRIVATE + name)).write_text(text, encoding="utf-8")


def profile_of(
    request: Request, plan: Plan, facts: Mapping[Fact, float], date: str, before: EarlierRuns | None = None
) -> dict[str, Any]:
    """What the notes say, as JSON values.

    Args:
        request, plan: what was looked at.
        facts: the notes.
        date: the day of the look.
        before: earlier runs of the window.
    """
    job = request.file.job
    tables = [findings.of_table(facts, table) for table in _tables(request)]
    join = None
    if job.join is not None:
        names = (job.join.left, job.join.right)
        join = findings.of_join(facts, names, [job.join.max_rows_per_unit[name] for name in names])
    read = facts.get(("rows", "", "shaped"), 0.0) - facts.get(("rows", "", "without_unit"), 0.0)
    described = {stage["name"]: stage for stage in plan.to_json()["stages"]}
    stages = _aggregate(request, plan)
    profile = {
        "private": True,
        "dataset": job.dataset,
        "date": date,
        "released": None if before is None else findings.of_released(facts, before),
        "tables": tables,
        "join": join,
        "stages": [_stage(request, stages, described[name], facts, read) for name in job.stages],
    }
    return {**profile, "advice": advice(profile)}


def _stage(
    request: Request,
    stages: Mapping[str, StagePlan],
    described: Mapping[str, Any],
    facts: Mapping[Fact, float],
    rows: float,
) -> dict[str, Any]:
    """A stage, as its plan describes it; with what its look at whole units keeps of the rows that have a unit."""
    name = described["name"]
    if name in request.tasks:
        model, unit = request.tasks[name].model, request.tasks[name].unit
        ranged = isinstance(model.label, NumberLabel)
        found = findings.of_examples(facts, name, model.max_examples_per_unit, list(model.features), ranged=ranged)
    else:
        plan = stages[name]
        counted = check_graph.profiled(plan, request.queries[name], 1, 0)
        found = findings.of_stage(facts, counted, [tuple(level.query.partition_by) for level in plan.levels])
        found["losses"] = losses(found, request.queries[name], described)
        if name not in request.units:
            return found
        unit = request.units[name]
    looked = ProfiledUnits(
        name=name,
        max_rows_per_unit=unit.max_rows_per_unit,
        defined=[item.name for item in unit.expressions.defined],
        has_where=unit.expressions.where is not None,
    )
    return {**found, "unit_columns": findings.of_units(facts, looked, rows)}


def _tables(request: Request) -> list[ProfiledTable]:
    """What is public of each table, those that become one before the rows that stages read."""
    job = request.file.job
    rows = ProfiledTable(
        name="",
        unit=job.unit,
        read=[name for name in request.columns if name not in (TWIN, ROW_UNIT)],
        defined=[item.name for item in request.rows.defined],
        lookups=_lookups(job),
        has_where=request.rows.where is not None,
        has_window=request.window is not None,
    )
    if request.tables is None:
        return [rows]
    return [*(_part(request, part) for part in request.tables.parts), rows]


def _part(request: Request, part: TableRows) -> ProfiledTable:
    return ProfiledTable(
        name=part.name,
        unit=part.unit,
        read=part.columns,
        defined=[item.name for item in part.rows.defined],
        lookups=_lookups(part.declared),
        has_where=part.rows.where is not None,
        on=check_graph.on_of(request, part),
    )


def _lookups(said: Job | TableModel) -> list[tuple[str, Sequence[str]]]:
    """The public tables of a job, or of one of its tables, by their files and keys."""
    return [(lookup.pattern, list(lookup.pairs)) for lookup in said.lookups]
