"""`dp-pipelines tune`: predicts errors under other bounds, clips, budgets and strategies in one pass over the rows.

In: a job file, a grid, a goal. Out: a private folder (mode 0700) with a page, a table of errors, the recommendation and a job
file that has it. NOT private: it is computed from raw rows. Holds: every configuration is checked and planned before a row is
read; what is printed says where the folder is and how many configurations there were, and nothing that depends on a row, the
recommendation included; the ledger notes that somebody looks, before anything is read; the folder is no release and lies in
none; no text of a failure quotes a row. With a sample that is declared public, or rows that are made up, nothing is noted, and
the pages say so.
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.tune import goal as goals
from dp_pipelines.extensions.tune import made_up_rows, page, plans, public_sample, suggested_job, tune_grid
from dp_pipelines.extensions.tune.configuration import Configuration, supported
from dp_pipelines.extensions.tune.goal import Goal, Recommendation, Results
from dp_pipelines.extensions.tune.tune_grid import Option
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import ledger_account, private_folder
from dp_pipelines.jobs.run.pipelines import quoting_nothing
from dp_pipelines.jobs.run.private_folder import PRIVATE
from dp_pipelines.jobs.run.run import NO_LEDGER
from dp_pipelines.jobs.runners import doctor, processes
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.content import Path
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.journal import now
from dp_pipelines.query.large_list import LargeList
from dp_pipelines.release import staging

WARNING = [
    "PRIVATE: the values that differ from the job were chosen by looking at the raw rows, without privacy. The guarantee of a",
    "release that uses them does not count that look, and publishes the values. Choose values that public knowledge also",
    "supports, or accept the look: each release of this file mentions it, because of the key `tuned`.",
]

PLACE = [
    "To run it, replace the job with it, or name the job's ledger with --ledger: otherwise a new ledger would be created beside",
    "this file, starting with the whole budget.",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned:
    """What may be said of a tuning.

    Args:
        folder: where it lies.
        stage: which was tuned.
        configurations: how many were compared.
        private: whether it was made from the raw rows.
        noted: whether the ledger notes it.
        synthetic: whether it was made from rows that were made up.
    """

    folder: pathlib.Path
    stage: str
    configurations: int
    private: bool
    noted: bool
    synthetic: bool

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return dataclasses.asdict(self) | {"folder": str(self.folder)}

    @property
    def text(self) -> str:
        """What is printed."""
        said = f"{self.configurations} configurations of stage {self.stage!r} compared: {self.folder}"
        if self.synthetic:
            return f"{said}\ncomputed from synthetic rows: the report lists the assumptions; no row of the job was read"
        if not self.private:
            return f"{said}\ncomputed from the sample that you declared public, not from the rows of the job"
        return f"{said}\n{private_folder.notice(noted=self.noted)}"


def tune(given: argparse.Namespace, arguments: Sequence[str]) -> Tuned:
    """Run the command.

    Args:
        given: the arguments, as `command` declares them.
        arguments: options of Beam.

    Raises:
        RequestError: the request is wrong by public facts; nothing was read, noted or created.
        BudgetError: a configuration cannot be planned.
        LedgerError: the ledger cannot be used.
        DamagedInputError, RunFailed, PublishError: it failed; nothing is left.
    """
    made_up_rows.refuse_alone(given)
    own = job_file.load(given.job)
    if given.synthetic:
        own.job.one_source("these rows would stand for one")
    request = public_sample.over(own, given.sample, given.param) if given.sample else check(own, given.param)
    name = _stage(request, given.stage)
    grid = tune_grid.read(given.grid)
    options = tune_grid.options(request, name, grid)
    assumed = made_up_rows.assumptions(given, request, name) if given.synthetic else None
    private = not given.sample and assumed is None
    predicted = [key for key, metric in request.queries[name].metrics.items() if supported(metric)]
    goal = goals.read(given.goal, predicted)
    target = private_folder.target(given.output)
    hint = "tune on a machine that can read the rows, or use a public sample with --sample"
    private_folder.refuse_elsewhere(given.runner, hint)
    with silence.silence() as stream, Progress(stream) as progress, contextlib.ExitStack() as until_the_end:
        configurations, stage = plans.configurations(request, name, options, progress.show)
        progress.show("loading")
        from dp_pipelines.extensions.tune import tune_graph
        from dp_pipelines.jobs.runners import engines

        tell = progress.note
        engine = until_the_end.enter_context(engines.engine(given.runner, arguments, tell))
        doctor.refuse_unready(engine, target, tell)
        with staging.staging_folder(target) as folder:
            noted, today = private and given.ledger != NO_LEDGER, now()[:10]
            if noted:
                with ledger_account.Book(request, given.ledger, tell, anchor=given.anchor) as book:
                    book.note_look(
                        stage=name, configurations=len(options), grid=_digest(grid, goal), who=processes.who()
                    )
            sums = folder / "sums.parquet"
            read = request
            if assumed is not None:
                read = made_up_rows.made_up(request, name, assumed, folder / "rows.parquet")
            salt = made_up_rows.SALT if assumed is not None else None
            tune_graph.run_tuning(read, stage, configurations, sums, engine, progress, salt)
            whole = folder / "whole"
            whole.mkdir(mode=0o700)
            made = _Made(
                request=request, own=own, stage=name, options=options, configurations=configurations, goal=goal,
                private=private, assumed=assumed.words if assumed is not None else (), date=today,
            )  # fmt: skip
            made.write(sums, whole)
            private_folder.give_name(whole, target)
    return Tuned(
        folder=target, stage=name, configurations=len(options), private=private, noted=noted,
        synthetic=assumed is not None,
    )  # fmt: skip


def _stage(request: Request, given: str | None) -> str:
    """The stage that is tuned.

    Raises:
        RequestError: there is none of that name, or several and none is named, or it has levels.
    """
    known = [name for name, stage in request.file.job.stages.items() if isinstance(stage, Stage)]
    if given is not None and given not in known:
        message = "is not an aggregate stage of the job"
        raise RequestError(field=f"--stage {given}", message=message, hint=nearest(given, known, "stages"))
    if not known:
        raise RequestError(field="stages", message="have no aggregate stage to tune")
    if given is None and len(known) > 1:
        raise RequestError(
            field="--stage", message="is required: the job has several", hint="one of " + ", ".join(known)
        )
    name = given or known[0]
    if request.queries[name].rollup is not None:
        message = "has levels, and errors are predicted for one level alone"
        hint = "tune the job without it: bounds are those of its finest level"
        raise RequestError(field=f"stages.{name}.rollup", message=message, hint=hint)
    if isinstance(request.queries[name].partitions, LargeList):
        message = "has a list sorted on disk, of which tune would need every partition"
        hint = "tune a copy of the job with a public_file of some of the keys"
        raise RequestError(field=f"stage {name!r}", message=message, hint=hint)
    return name


def _digest(grid: Sequence[Sequence[tune_grid.GridSetting]], goal: Goal) -> str:
    return hashlib.sha256(json.dumps([grid, goal.words]).encode()).hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Made:
    """What is known once the rows were read.

    Args:
        request: the job, over the rows that were read.
        own: the job as it was given.
        stage: which was tuned.
        options, configurations: of the grid.
        goal: what is wanted.
        private: whether raw rows were read.
        assumed: what was assumed of rows that were made up; empty where rows were read.
        date: the day of the look.
    """

    request: Request
    own: JobFile
    stage: str
    options: Sequence[Option]
    configurations: Sequence[Configuration]
    goal: Goal
    private: bool
    assumed: Sequence[str]
    date: str

    @quoting_nothing("the results could not be written")
    def write(self, sums: pathlib.Path, folder: pathlib.Path) -> None:
        """Write all files.

        Args:
            sums: what the pipeline has written.
            folder: where to.
        """
        results = Results(pa.parquet.read_table(sums), self.configurations)
        epsilons = [option.file.job.budget.epsilon for option in self.options]
        found = goals.recommend(results, self.goal, epsilons, self._compared_epsilon)
        files = {
            "errors.parquet": None,
            "report.html": self._page(results, found),
            "recommendation.json": json.dumps(self._recommendation(results, found), indent=2, ensure_ascii=False),
            "suggested.yaml": self._suggested(found),
        }
        for name, text in files.items():
            path = folder / (PRIVATE + name if self.private else name)
            if text is None:
                pa.parquet.write_table(self._errors(results), path)
            else:
                path.write_text(text, encoding="utf-8")

    @property
    def _compared_epsilon(self) -> float:
        """The job's own epsilon; where the grid leaves it out, the smallest of the grid: the job itself is always among all."""
        of_grid = [option.file.job.budget.epsilon for option in self.options if option.setting]
        own = self.own.job.budget.epsilon
        return own if own in of_grid else min(of_grid)

    @functools.cached_property
    def _settings(self) -> list[dict[str, Any]]:
        """By configuration the value of each path that is varied."""
        paths = list(dict.fromkeys(path for option in self.options for path, _ in option.setting))
        return [
            {path: _held(option.file, tune_grid.place(path, self.stage)) for path in paths} for option in self.options
        ]

    def _page(self, results: Results, found: Recommendation) -> str:
        left_out = [key for key, m in self.request.queries[self.stage].metrics.items() if supported(m) is None]
        own = next(
            (option.number for option, values in zip(self.options, self._settings, strict=True)
             if values == {path: _held(self.own, tune_grid.place(path, self.stage)) for path in values}),
            0,
        )  # fmt: skip
        shown = page.TunedPage(
            title=self.own.job.dataset, stage=self.stage, settings=self._settings, own=own, results=results,
            goal=self.goal, recommendation=found, private=self.private, left_out=left_out,
            assumed=self.assumed,
        )  # fmt: skip
        return page.render(shown)

    def _recommendation(self, results: Results, found: Recommendation) -> dict[str, Any]:
        number = found.number
        return {
            "private": self.private,
            "made_up": list(self.assumed),
            "goal": self.goal.words,
            "all_limits_kept": found.reached,
            "configuration": number,
            "setting": self._settings[number],
            "metrics": {
                name: {measure: _finite(results.of_metrics(measure)[number, place]) for measure in goals.MEASURES}
                for place, name in enumerate(results.metrics)
            },
        }

    def _suggested(self, found: Recommendation) -> str:
        option = self.options[found.number]
        changes: dict[Path, Any] = {tune_grid.place(path, self.stage): value for path, value in option.setting}
        header = list(WARNING) if self.private else ["The values that differ were chosen from a public sample."]
        if self.assumed:
            header = ["The values that differ were chosen from synthetic rows, not from any data. Assumptions:"]
            header += [f"  {words}" for words in self.assumed]
        header += [f"Suggested by `dp-pipelines tune` for: {self.goal.words}", f"Set: {option.words}"]
        header += PLACE
        if not found.reached:
            header.append("No configuration of the grid meets all limits; this one exceeds them least.")
        original = self.own.path.read_text(encoding="utf-8-sig")
        look = {"stage": self.stage, "date": self.date} if self.private else None
        return suggested_job.text_with(self.own, original, changes, header, look)

    def _errors(self, results: Results) -> pa.Table:
        """The sums with the setting and the metric in words before them."""
        sums, settings = results.sums, self._settings
        numbers, metrics = sums["configuration"].to_pylist(), sums["metric"].to_pylist()
        named = {path: [str(settings[number][path]) for number in numbers] for path in settings[0]}
        named["metric"] = [results.metrics[metric] for metric in metrics]
        rest = {name: sums[name] for name in sums.column_names if name != "metric"}
        return pa.table({"configuration": rest.pop("configuration"), **named, **rest})


def _held(file: JobFile, path: Path) -> Any:
    """What a job has in a place, default or not."""
    held: Any = file.job
    for step in path:
        if held is None:
            return "auto" if path[-1] == "strategy" else 1.0 if path[-1] == "weight" else 0
        held = held[step] if isinstance(held, dict) else getattr(held, str(step))
    return held


def _finite(value: float) -> float | None:
    return float(value) if abs(value) < 1e300 else None
