"""A run from a checked request to a published folder, complete or not at all.

In: a job file, parameters, an output folder, a ledger. Out: the folder with one Parquet file per stage, `report.html` and
`manifest.json`, under its name by one rename; or an error and nothing. Holds: everything that public facts can refuse is refused
before anything is charged or created; while rows are in memory nothing is printed, and no text of a failure leaves this
module unless all of it is public. With a ledger the run is charged first and its release kept; without one the manifest says so.
Not covered: the order of charge, attempt, commit and publication (`driver`).
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from dp_pipelines.disk_errors import reason_of, refuse_full, remedy_of
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.jobs.outputs.release_place import ReleasePlace, at_place
from dp_pipelines.jobs.request import job_fields, source_notes
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import driver, frozen_plans
from dp_pipelines.jobs.run.driver import RunAttempt, RunFacts, RunRequest
from dp_pipelines.jobs.run.production import Production
from dp_pipelines.jobs.run.standing_release import release_at
from dp_pipelines.jobs.runners import extension_runner, runner_rules
from dp_pipelines.jobs.spec import presentation
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.entries import EngineJob, Run
from dp_pipelines.planning.plan import Expectation, Plan
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release import manifest, staging

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.ledger_account import NewCharge
    from dp_pipelines.jobs.run.renamed_jobs import RenamedWords
    from dp_pipelines.jobs.runners.engines import Engine
    from dp_pipelines.ledger.ledger import Ledger

    Confirm = Callable[[NewCharge, TextIO, Progress], None]

NO_LEDGER = "none"
"""What `--ledger` says where no ledger is wanted."""

OTHERWISE = (
    "if the rows are public, run with --ledger none; to see the report of made-up rows for free, run with --synthetic"
)
"""What else the command line offers where an account has no room."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,199}\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """What a run has published.

    Args:
        folder: where it lies.
        manifest: what its manifest says.
        again: whether the run had its release before.
        place: where it belongs; None: there.
    """

    folder: pathlib.Path
    manifest: dict[str, Any]
    again: bool = False
    place: ReleasePlace | None = None


def plan_of(file: JobFile, asked: Mapping[str, Query | TrainModel], frozen: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a job.

    Args:
        file: the job.
        asked: by stage.
        frozen: what a ledger has kept of the plan; None calibrates.

    Raises:
        RequestError: an argument is wrong.
        BudgetError: the budget cannot be met.
    """
    job = file.job
    arguments: dict[str, Any] = {
        "epsilon": job.budget.epsilon,
        "delta": job.budget.delta,
        "stages": asked,
        "shares": {name: stage.declared_share for name, stage in job.stages.items()},
        "runs": job.budget.all_runs,
        "split": job.budget.split,
    }
    try:
        if job.expect is not None:
            arguments["expect"] = Expectation(**job.expect.model_dump(exclude={"rows"}))
        return Plan(**arguments) if frozen is None else Plan.restore(frozen, **arguments)
    except RequestError as error:
        known = {"epsilon", "delta", "runs", "split"}
        place = ("budget",) if error.field in known else ()
        located = file.error(place, error)
        raise type(error)(field=located.field, message=located.message, hint=located.hint) from None


def cached_plan(file: JobFile, stages: Mapping[str, Query | TrainModel], asked: str = "") -> Plan:
    """The plan of a job as `plan_of` makes it, out of the user's cache where it is there. Errors as there.

    Args:
        file: the job.
        stages: what each of its stages asks for.
        asked: `Request.asked`, where it is known.
    """
    return frozen_plans.plan_of(file, stages, plan_of, frozen_plans.name_of(file, stages, asked))


def run(
    file: JobFile,
    output: str,
    *,
    given: Sequence[str] = (),
    run_id: str | None = None,
    arguments: Sequence[str] = (),
    ledger: str | None = None,
    runner: str = runner_rules.DEFAULT,
    anchor: str | None = None,
    spare: bool = False,
    confirm: "Confirm | None" = None,
    as_new: bool = True,
) -> PublishedRun:
    """Run a job.

    Args:
        file: the job.
        output: the folder to publish; it must not exist, unless it holds this very run.
        given: parameters, `NAME=VALUE`.
        run_id: names the run; needed where the budget is for several.
        arguments: options of Beam.
        ledger: its URL; None takes the file beside the job and makes it where there is none; `none` takes no ledger.
        runner: one of `runner_rules.NAMES`.
        anchor: the folder where the ledger's anchor must be; None takes the one that the environment names, if any.
        spare: whether a new run is one of those that the budget has for corrections.
        confirm: is asked before a plan is charged that the ledger does not know, and before a run repeats the parameters of a
            release; None asks nobody.
        as_new: whether a job is charged although it differs from a released one only in names of stages and metrics.

    Raises:
        RequestError: the request is wrong by public facts, or `confirm` refuses; nothing was charged or created.
        BudgetError: the budget refuses.
        LedgerError: the ledger cannot be used.
        DamagedInputError, RunFailed, DiskError, PublishError: it failed; nothing is visible.
    """
    request = check(file, given)
    check_run_id(run_id, file)
    if spare and file.job.budget.spare == 0:
        hint = "drop it, or add e.g. spare: 2 to the budget, which makes another plan"
        raise RequestError(field="--spare", message="is for a budget with spare runs, and this one has none", hint=hint)
    if spare and ledger == NO_LEDGER:
        raise RequestError(field="--spare", message="needs a ledger, which counts the runs", hint="drop --ledger none")
    return carry_out(
        request,
        output,
        run_id=run_id,
        arguments=arguments,
        ledger=ledger,
        runner=runner,
        anchor=anchor,
        spare=spare,
        confirm=confirm,
        otherwise=OTHERWISE,
        as_new=as_new,
    )


@at_place
def carry_out(
    request: Request,
    place: ReleasePlace,
    *,
    run_id: str | None,
    arguments: Sequence[str] = (),
    ledger: str | None = None,
    runner: str = runner_rules.DEFAULT,
    anchor: str | None = None,
    beside: pathlib.Path | None = None,
    planned: Plan | None = None,
    note: Callable[[str], None] | None = None,
    produced: "Callable[[Request, Plan, str, Engine, Progress], Production]" = Production,
    spare: bool = False,
    confirm: "Confirm | None" = None,
    as_new: bool = True,
    renamed: "RenamedWords | None" = None,
    otherwise: str = "",
) -> PublishedRun:
    """Run a checked request. Errors as for `run`.

    Args:
        request: what is asked for.
        place: `output` of `run`.
        run_id, arguments, ledger, runner, anchor: see there.
        beside: the folder of the ledger where none is named; None is that of the job file.
        planned: its plan, where that is known; a plan that the ledger has frozen comes before it.
        note: is told what a user should know; None writes it to standard error.
        produced: makes what produces the release.
        spare, confirm, as_new: see `run`.
        otherwise: what a user may do where the account has no room.
        renamed: what is said of a request that has only other names than a released one; None: what is said of job files.
    """
    file = request.file
    if file.job.parties is not None and produced is Production:
        raise RequestError(
            field="--party", message="is required: the job has parties", hint="name the one that you are"
        )
    target = place.folder
    if os.path.lexists(target) and manifest.read_manifest(target) is None:
        staging.refuse_existing(target)
    request.outputs.refuse_place(place)
    if runner_rules.is_elsewhere(runner):
        extension_runner.load(runner).refuse(request)
    with (
        silence.silence() as stream,
        Progress(stream) as progress,
        new_folder(target),
        contextlib.ExitStack() as until_the_end,
    ):
        tell = note if note is not None else progress.note
        for warning in source_notes.before_run(file.job):
            tell(warning)
        progress.show("loading")
        from dp_pipelines.jobs.runners import engines

        engine = until_the_end.enter_context(engines.engine(runner, arguments, tell))

        if ledger == NO_LEDGER:
            progress.show(frozen_plans.progress_words(request.stages))
            plan = cached_plan(file, request.stages, request.asked)
            identity = run_id or identity_of(plan, request)
            if not os.path.lexists(target):
                place.refuse_unready()
                _refuse_unready(engine, request, plan, identity, target, tell)
            again = driver.carry_out(job_run(Production(request, plan, identity, engine, progress), place, tell), None)
            content = manifest.read_manifest(target)
            assert content is not None
            return PublishedRun(folder=target, manifest=content, again=again, place=place)
        from dp_pipelines.jobs.run import ledger_account, renamed_jobs  # loads SQLAlchemy

        progress.show("opening the ledger")
        with ledger_account.Book(request, ledger, tell, anchor=anchor, beside=beside) as book:
            progress.show(frozen_plans.progress_words(request.stages))
            frozen = book.frozen()
            if frozen is not None:
                plan = plan_of(file, request.stages, frozen)
            else:
                plan = planned if planned is not None else cached_plan(file, request.stages, request.asked)
            identity = run_id or identity_of(plan, request)
            release_at(target, identity, file.job.dataset, plan.digest, request.content)
            production = produced(request, plan, identity, engine, progress)
            existing = os.path.lexists(target)  # looked at first: another process may be about to publish this run
            changed = ""
            if book.committed(identity):  # its release is given again, and no runner is needed
                changed = book.changed_files(identity)
            else:
                if existing:  # by another ledger
                    staging.refuse_existing(target)
                if frozen is None and not as_new:
                    released_jobs = book.new_charge(plan).released
                    renamed_jobs.refuse_renamed(file.job, released_jobs, renamed or renamed_jobs.OF_JOB)
                place.refuse_unready()
                _refuse_unready(engine, request, plan, identity, target, tell)
                if frozen is None and book.others():
                    tell(renamed_jobs.note_of_charge(plan.accounted["epsilon"], renamed or renamed_jobs.OF_JOB))
                tried = functools.partial(book.tried, admission(request, plan, identity, spare=spare, trial=True))
                production.prepare(book.next_round(identity, spare=spare), tried, book.known_as)
                repeats = "" if spare else book.repeats(identity)
                if repeats and confirm is None:
                    tell(repeats)
                if confirm is not None and (frozen is None or repeats):
                    tried()  # nobody is asked about a run that the ledger refuses
                    confirm(book.new_charge(plan, repeats), stream, progress)
            try:
                again = driver.carry_out(job_run(production, place, tell, spare=spare), book.open())
            except BudgetError as error:
                if not otherwise or error.field.startswith("run "):  # a refusal of one run too many says what to do
                    raise
                hint = "; ".join(part for part in (error.hint, otherwise) if part)
                raise BudgetError(field=error.field, message=error.message, hint=hint) from None
            if changed:  # not said before: the run may have been refused, as one of another job
                tell(changed)
            stored = (manifest.read_manifest(target) or {}) if again else {}
            if again and (differs := presentation.difference(file.job, stored)):
                tell(
                    f"the stored page has {differs} than the job file; to make it again, for free: dp-pipelines "
                    f"report {shlex.quote(place.shown)} --job {shlex.quote(str(file.path))} --output page.html"
                )
            if again and presentation.other_csv(file.job, stored):
                tell(
                    "the stored CSV files have other options than the job file; to write them anew, for free: dp-pipelines "
                    f"report {shlex.quote(place.shown)} --job {shlex.quote(str(file.path))} --output NEW-FOLDER"
                )
            if not again and (ending := book.ending(identity)):
                tell(ending)
    content = manifest.read_manifest(target)
    assert content is not None
    return PublishedRun(folder=target, manifest=content, again=again, place=place)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRun(RunRequest):
    """A run of a job, as the driver carries it out.

    Args:
        production: makes its release.
        place: where it belongs.
        spare: whether a new run is one of those for corrections.
    """

    production: Production
    place: ReleasePlace
    spare: bool

    def admit(self, ledger: "Ledger") -> Run:
        """See `RunRequest`."""
        return admission(self.production.request, self.production.plan, self.run_id, spare=self.spare)(ledger)

    def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
        """See `RunRequest`."""
        return self.production.release(attempt.number, attempt.folder, attempt.draws, attempt.submitted)

    def describe(
        self, number: int, folder: pathlib.Path, files: Mapping[str, pathlib.Path], facts: RunFacts
    ) -> dict[str, pathlib.Path]:
        """See `RunRequest`."""
        return self.production.describe(number, folder, files, facts)

    def deliver(self, *, remembered: bool) -> None:
        """See `RunRequest`. Errors as for `ReleasePlace.deliver` and `Outputs.deliver`."""
        self.place.deliver(remembered=remembered)
        self.production.request.outputs.deliver(self.target, self.account, self.run_id)


def job_run(production: Production, place: ReleasePlace, tell: Callable[[str], None], *, spare: bool = False) -> JobRun:
    """Return the run of a job as the driver carries it out.

    Args:
        production: makes its release.
        place: where it belongs.
        tell: is told what a user should know.
        spare: whether a new run is one of those for corrections.
    """
    request = production.request
    return JobRun(
        account=request.file.job.dataset,
        run_id=production.run_id,
        window=request.window_name,
        plan=production.plan.digest,
        asked=request.asked,
        content=request.content,
        content_with=request.content_with,
        target=place.folder,
        shown=place.shown,
        files=request.source.files,
        tell=production.progress.show,
        stop=functools.partial(_stop, tell),
        production=production,
        place=place,
        spare=spare,
    )


def admission(
    request: Request, plan: Plan, run_id: str, *, spare: bool = False, trial: bool = False
) -> "Callable[[Ledger], Run]":
    """Return what charges a run of a plan.

    Args:
        request, plan, run_id: of the run.
        spare: whether it is one of those for corrections.
        trial: whether nothing is charged.
    """
    from dp_pipelines.jobs.runners import processes

    return lambda ledger: ledger.admit(
        request.file.job.dataset,
        run_id,
        plan=plan,
        asked=request.asked,
        content=request.content,
        params={name: str(value) for name, value in request.values.items()},
        records=lambda number: plan.round(number).mechanisms,
        window=request.window_name,
        who=processes.who(),
        job=str(request.file.path.resolve()) if request.file.document.in_file else "",
        stages={name: _metrics_of(asked) for name, asked in request.stages.items()},
        read=request.read,
        spare_runs=request.file.job.budget.spare,
        spare=spare,
        job_fields=job_fields.fields_of(request.file.job),
        trial=trial,
    )


def _metrics_of(asked: Query | TrainModel) -> list[str]:
    """Return the names of what a stage releases: its metrics, or what it trains."""
    return list(asked.metrics) if isinstance(asked, Query) else [asked.kind]


def _refuse_unready(
    engine: "Engine", request: Request, plan: Plan, identity: str, target: pathlib.Path, tell: Callable[[str], None]
) -> None:
    """Refuse a run that its runner cannot carry out, by public facts.

    Raises:
        RequestError: as said.
    """
    from dp_pipelines.jobs.request import own_models
    from dp_pipelines.jobs.run import shuffled_rows
    from dp_pipelines.jobs.runners import doctor, expected_memory

    own_models.refuse_unfit(request.file, {name: task.model for name, task in request.tasks.items()})
    doctor.refuse_unready(engine, target, tell)
    request.outputs.refuse_unready(request.file.job.dataset, identity)
    expect = request.file.job.expect
    if expect is not None and expect.rows is not None:
        expected_memory.refuse_unfit(engine.setup.name, expect.rows, shuffled_rows.of_plan(request, plan))


def _stop(tell: Callable[[str], None], job: EngineJob) -> None:
    """Have a job end that a dead attempt left with an engine."""
    from dp_pipelines.jobs.runners import orphaned_jobs  # asks engines over HTTP

    orphaned_jobs.stop(job, tell)


def identity_of(plan: Plan, request: Request) -> str:
    """Return the id of a run that was given none: the plan's hash with the parameters.

    Args:
        plan, request: of the run.
    """
    return f"{plan.digest[:24]}-{request.content[:24]}"


def check_run_id(run_id: str | None, file: JobFile) -> None:
    """Refuse a name that no run may have, and a run without a name where there will be several.

    Raises:
        RequestError: as said.
    """
    if run_id is None and file.job.budget.all_runs > 1:
        raise RequestError(
            field="--run-id",
            message=f"is required: the budget covers {file.job.budget.all_runs} runs, and each needs its own name",
            hint="add e.g. --run-id 2026-W01",
        )
    check_name_of_run(run_id)


def check_name_of_run(run_id: str | None) -> None:
    """Refuse a name that no run may have.

    Raises:
        RequestError: as said.
    """
    if run_id is not None and not RUN_ID.match(run_id):
        message = "must have 1 to 200 letters, digits or characters of _.:@/+- and start with a letter or digit"
        raise RequestError(field="--run-id", message=message, hint="write e.g. --run-id 2026-W01")


def _refuse_unwritable(target: pathlib.Path) -> None:
    """Refuse a place that cannot be written, before anything is charged.

    Raises:
        RequestError: it cannot.
    """
    if os.path.lexists(target):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        refuse_full(target.parent)
    except OSError as error:
        reason, elsewhere = reason_of(error), "choose a folder where this user may write"
        raise RequestError(
            field=f"output {str(target)!r}",
            message=f"cannot be created: {reason}" if reason else "cannot be created",
            hint=f"{remedy_of(reason)}, or choose another folder with --output" if reason else elsewhere,
        ) from None


@contextlib.contextmanager
def new_folder(target: pathlib.Path) -> Iterator[None]:
    """A place for a folder that is about to be published; nothing is left of it where that fails.

    Raises:
        RequestError: it cannot be written.
    """
    with _no_parents_left(target):
        _refuse_unwritable(target)
        yield


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
