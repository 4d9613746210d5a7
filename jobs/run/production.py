"""Produces one run of a plan in a private folder: its releases, report and manifest.

In: a checked request, its plan, an engine. Out: staged files by published name. Holds: control goes down only, from here to the
pipelines; no text of a failure leaves this module unless all of it is public. Not covered: which attempt of which run this is,
and who may see it (`driver`).
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.auto_bounds import joint_bounds, partition_bound
from dp_pipelines.jobs.request import joined_tables
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import looks, rounds_of_pipelines
from dp_pipelines.jobs.run.driver import RunFacts
from dp_pipelines.jobs.run.pipelines import quoting_nothing, run_examples, run_pipeline
from dp_pipelines.jobs.runners import extension_runner, runner_rules
from dp_pipelines.jobs.runners.engines import Engine, EngineAttempt
from dp_pipelines.jobs.sources import event_window
from dp_pipelines.jobs.spec import presentation
from dp_pipelines.jobs.spec.job_file import Job, Stage
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.plan_stages import phases
from dp_pipelines.planning import describe, limits
from dp_pipelines.planning.noise_levels import passing_noise
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.contribution_bounds import ContributionBounds
from dp_pipelines.release import gate, manifest, ranges, shown_rows, staging, verdicts
from dp_pipelines.release.kept_shares import JOINED
from dp_pipelines.report.derived import derived_columns
from dp_pipelines.training.kept_draws import Draws

SHOWN = f"shown{staging.UNFINISHED}"
"""The folder, beside the staged tables, of those that are published instead: with the rows that a job shows."""

RANGED = f"ranged{staging.UNFINISHED}"
"""The folder of the tables that are published with the ranges of their numbers."""

DERIVED = "derived"
"""How the folders of tables begin that are published with numbers that are computed from released ones."""


@dataclasses.dataclass(frozen=True)
class Production:
    """A run of a plan on an engine.

    Args:
        request: what is read.
        plan: what is released.
        run_id: of the run.
        engine: carries out the pipelines.
        progress: is told what is done.
        made_up: what is assumed of the rows, where they are made up.
        asked: the request that a model's description is about, where other rows are read; None: the one that is read.
    """

    request: Request
    plan: Plan
    run_id: str
    engine: "Engine"
    progress: Progress
    made_up: Sequence[str] = ()
    asked: Request | None = None

    def prepare(self, expected: int, foresee: Callable[[], int], ledger: str) -> None:
        """What must be settled before a run is charged: its stages draw what their records state.

        Args:
            expected: the round that the run has, or gets if no other process takes it first.
            foresee: gives the round that the ledger will reserve, or refuses as it would.
            ledger: tells the ledger from any other.

        Raises:
            GateError: a stage draws what the run would not be charged for; nothing was charged.
            DpError: what else must be settled cannot be; nothing was charged.
        """
        self._pass_gate(expected)

    def _pass_gate(self, number: int) -> None:
        """Check the stages of a round against the records that its total was composed with. Errors as for `gate.admit`."""
        gate.admit(self.plan.round(number).stages, self.plan.charged(number))

    def release(
        self, number: int, folder: pathlib.Path, draws: Draws, submitted: Callable[[EngineJob], None]
    ) -> dict[str, pathlib.Path]:
        """Release everything of one round into a private folder.

        Args:
            number: of the round.
            folder: the private one.
            draws: keeps what later steps depend on.
            submitted: is told of each job that the engine gets.

        Returns:
            the staged file of each published name.

        Raises:
            GateError: a stage draws what the run was not charged for.
        """
        self._pass_gate(number)
        key = runner_rules.run_key(self.request.file.job.dataset, self.run_id)
        with self.engine.attempt(EngineAttempt(key=key, folder=folder, submitted=submitted)):
            files = rounds_of_pipelines.run_phases(self.request, self.plan, number, folder, draws, self._pipeline)
            if not self.plan.trained:
                return files
            from dp_pipelines.jobs.run import model_training

            unit = unit_in_words(self.request)
            return files | model_training.run_training(
                self.asked or self.request, self.plan, number, folder, draws, self._examples, unit, self.progress.show,
                made_up=bool(self.made_up),
            )  # fmt: skip

    def _pipeline(
        self, stages: Mapping[str, StagePlan], into: pathlib.Path, without: Mapping[str, pa.Table]
    ) -> dict[str, pathlib.Path]:
        """Run one pipeline: some stages, without the partitions that are published already."""
        if not runner_rules.is_elsewhere(self.engine.setup.name):
            return run_pipeline(self.request, stages, into, self.engine, self.progress, without)
        runner = extension_runner.load(self.engine.setup.name)
        return runner.run_pipeline(self.request, stages, into, self.engine, self.progress, without, self.run_id)

    def _examples(self, name: str, into: pathlib.Path, salt: int) -> None:
        """Write the examples of a train stage."""
        run_examples(self.request, name, into, salt, self.engine, self.progress, self.plan.digest.encode())

    @quoting_nothing("the report of the release could not be made")
    def describe(
        self, number: int, folder: pathlib.Path, files: Mapping[str, pathlib.Path], facts: RunFacts
    ) -> dict[str, pathlib.Path]:
        """Write the report and the manifest of a round beside its staged files.

        Args:
            number: of the round.
            folder: the private one.
            files: what `release` gave.
            facts: what the ledger knows.

        Returns:
            the file of each published name. A staged table of which some rows are shown stays as it is, and another one, under
            `SHOWN`, is published in its place: whoever does this again finds the same rows.
        """
        job, ledger = self.request.file.job, facts.ledger
        this = self.plan.round(number)
        content = manifest.manifest(
            statement={**self.plan.statement(), "accounted_one_run": dict(this.accounted)},
            mechanisms=[record.to_json() for record in this.mechanisms],
            privacy_unit=ledger.get("unit") or unit_in_words(self.request),
            files={},
            run_id=self.run_id,
            params={name: str(value) for name, value in self.request.values.items()},
        )
        ran = rounds_of_pipelines.as_run(self.plan, number, files)
        published = {name: stage for name, stage in ran.items() if name in self.plan.phases[-1]}
        content |= {
            "dataset": job.dataset,
            "job": self.request.content,
            "stages": manifest.stages_to_json(published),
        }
        if said := presentation.of_job(job):
            content[presentation.ENTRY] = said
        content |= self._elsewhere()
        content = _with_rows_read(joined_tables.with_limits(content, job), job)
        content = manifest.with_parties(content, describe.parties_to_json(self.plan.queries))
        kept = rounds_of_pipelines.kept_shares_in(files)
        compared = rounds_of_pipelines.comparisons_in(self.plan, self.request, files)
        for described in content["stages"]:
            if described["name"] in compared:
                described["compare"] = compared[described["name"]]
            if described["name"] in kept:
                described["kept"] = kept[described["name"]] | ({"of": JOINED} if job.join is not None else {})
            if described["name"] in self.plan.auto_contributions:
                described |= _chosen_bounds(
                    self.plan.queries[described["name"]].bounds, published[described["name"]].query.bounds
                )
            for name in _auto(self.plan, described["name"]):
                family = published[described["name"]].query.metrics[name].family
                for column, entry in described["metrics"].items():
                    if entry.get("raw_of", column) == name:
                        entry["bounds"] = list(family[1:]) if family is not None else None
                        entry["within"] = list(phases.within_of(self.plan.queries[described["name"]].metrics[name]))
        published_files = self._shown(content["stages"], folder, files)
        published_files |= self._with_ranges(content["stages"], folder, published_files, published)
        published_files |= self._with_derived(content["stages"], folder, published_files)
        # What the numbers are worth is said of all that was released, also where fewer rows are shown.
        content["stages"] = verdicts.with_verdicts(content["stages"], files)
        if self.plan.trained:
            from dp_pipelines.jobs.run import model_training

            content["models"] = {
                name: {"label": task.label.rule, "weighting": limits.weighting(task)}
                | ({"evaluated_by": limits.groups(by)} if (by := task.evaluation_by) is not None else {})
                | model_training.chosen_of(task, folder / name)
                for name, task in self.plan.trained.items()
            }
        if ledger:
            content["ledger"] = dict(ledger)
        seen = looks.marks([*facts.looks, *looks.of_job(job)])
        content = manifest.with_looks(content, [look.to_json() for look in seen])
        if self.made_up:
            content = manifest.of_made_up_rows(content, self.made_up)
            for path in published_files.values():
                if path.suffix == ".parquet":
                    staging.mark_made_up(path)
            published_files = {**published_files, staging.MADE_UP_NOTICE: folder / staging.MADE_UP_NOTICE}
            published_files[staging.MADE_UP_NOTICE].write_text(
                "\n".join([f"{manifest.MADE_UP}.", f"{manifest.MADE_UP_TOTALS}.", *self.made_up, ""]), encoding="utf-8"
            )
        else:  # no text file could say that its rows are made up
            if notes := self.request.outputs.notes(published_files):
                content["copies"] = notes
            published_files |= self.request.outputs.copies(published_files, folder, content["stages"])
        from dp_pipelines.report import report  # the page is the last that a run makes

        page = folder / "report.html"
        tables = {path.stem: path for path in published_files.values() if path.suffix == ".parquet"}
        if (before := facts.before) is not None:
            from dp_pipelines.report.trends import previous_numbers

            numbers = previous_numbers.comparable_numbers(content, tables, before.content, before.tables)
            content["ledger"]["before"] = {"run_id": before.run_id, "day": before.day, "numbers": numbers}
        models = {name: folder / name for name in self.plan.trained}
        page.write_text(report.render(content, tables, models), encoding="utf-8")
        everything = {**published_files, page.name: page}
        content["files"] = manifest.digests(everything)
        return {**everything, "manifest.json": manifest.write_manifest(content, folder)}

    def _elsewhere(self) -> dict[str, Any]:
        """What the manifest says of tables outside of the folder: snapshots that were read, Delta tables that are written."""
        if self.made_up:
            return {}
        outputs = self.request.outputs.to_json(self.request.file.job.dataset, self.run_id)
        said = {"sources": self.request.snapshots, "outputs": outputs}
        return {key: held for key, held in said.items() if held}

    def _shown(
        self, stages: Sequence[dict[str, Any]], folder: pathlib.Path, files: Mapping[str, pathlib.Path]
    ) -> dict[str, pathlib.Path]:
        """The files to publish: `having` and `limit` choose rows of the staged tables, and the stages' entries say so."""
        published = dict(files)
        for described in stages:
            shown = self.request.shown.get(described["name"])
            if shown is None:
                continue
            name, large = f"{described['name']}.parquet", described.get(passing_noise.ENTRY)
            with pa.parquet.ParquetFile(files[name]) as file:
                if (
                    large is not None and shown.limit is None and shown.leaves is None
                ):  # what is staged is what passes, and need not fit into memory
                    rows = file.metadata.num_rows
                    described[shown_rows.ENTRY] = shown.entry(large["keys"], rows, rows)
                    continue
                table, described[shown_rows.ENTRY] = shown.of(file.read(), large)
            if shown.leaves is not None:
                described["partition_by"] = list(shown.leaves.keys)
            published[name] = folder / SHOWN / name
            published[name].parent.mkdir(mode=0o700, exist_ok=True)
            staging.write_release(table, published[name], shown.keys if shown.leaves is None else shown.leaves.keys)
        return published

    def _with_ranges(
        self, stages: Sequence[dict[str, Any]], folder: pathlib.Path, files: Mapping[str, pathlib.Path],
        ran: Mapping[str, StagePlan],
    ) -> dict[str, pathlib.Path]:  # fmt: skip
        """The files of stages that say what their limits cut off, with the ranges that follow; their entries say from what."""
        published = {}
        for described in stages:
            if ranges.ENTRY not in described or not described["metrics"]:
                continue
            name, query = f"{described['name']}.parquet", ran[described["name"]].query
            query = dataclasses.replace(
                self.plan.queries[described["name"]], metrics=query.metrics, bounds=query.bounds
            )
            shown = self.request.shown.get(described["name"])
            found = ranges.of_stage(query, described, chosen=shown is not None and shown.chooses_by_number)
            for metric, range_ in found.items():
                described["metrics"][metric][ranges.ENTRY] = range_.to_json(total=query.is_total)
            for metric in query.metrics.keys() - found.keys():
                described["metrics"][metric][ranges.ENTRY] = ranges.without_columns(total=query.is_total)
            published[name] = folder / RANGED / name
            published[name].parent.mkdir(mode=0o700, exist_ok=True)
            ranges.write(files[name], published[name], query, found)
        return published

    def _with_derived(
        self, stages: Sequence[dict[str, Any]], folder: pathlib.Path, files: Mapping[str, pathlib.Path]
    ) -> dict[str, pathlib.Path]:
        """The files of stages that compute something from released numbers, with its columns; their entries say how."""
        published = {}
        for described in stages:
            formulas = presentation.formulas_of(self.request.file.job.stages.get(described["name"]))
            if not formulas:
                continue
            name = f"{described['name']}.parquet"
            # A retry may compute something else: that costs nothing, so a run id does not fix it.
            digest = hashlib.sha256(json.dumps(formulas).encode()).hexdigest()[:16]
            published[name] = folder / f"{DERIVED}-{digest}{staging.UNFINISHED}" / name
            published[name].parent.mkdir(mode=0o700, exist_ok=True)
            described[derived_columns.ENTRY] = derived_columns.write(files[name], published[name], described, formulas)
        return published


def unit_in_words(request: Request) -> str:
    """The privacy unit in words."""
    return event_window.in_words(manifest.unit_in_words(request.file.job.unit), request.file.job)


def _with_rows_read(content: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """Return a manifest whose stages say, among their limits, how many rows of a unit its columns and conditions see.

    Args:
        content: with `stages`.
        job: that was run.
    """
    stages = []
    for described in content["stages"]:
        stage = job.stages.get(described["name"])
        if isinstance(stage, Stage) and stage.unit_columns and "limits" in described:
            most = stage.max_rows_per_unit
            words = f"at most {most:,} row{'' if most == 1 else 's'} of one {', '.join(job.unit)} are read"
            described = {**described, "limits": [words, *described["limits"]]}
        stages.append(described)
    return {**content, "stages": stages}


def _chosen_bounds(asked: ContributionBounds, ran: ContributionBounds) -> dict[str, int]:
    """The bounds on contributions that a run has chosen, by the names of the job file.

    Args:
        asked: of the plan.
        ran: of the stage as it ran.
    """
    partitions = {partition_bound.NAME: ran.max_partitions} if asked.auto_partitions else {}
    return partitions | ({joint_bounds.NAME: ran.max_rows_per_partition} if asked.auto_rows else {})


def _auto(plan: Plan, name: str) -> list[str]:
    """The metrics of a stage whose bounds a run chooses."""
    return [key for key, metric in plan.queries[name].metrics.items() if metric.auto] if name in plan.auto else []
