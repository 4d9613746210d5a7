"""A run of a job as one of its parties.

In: a job file, the name of a party. Out: what a run publishes, the same at all parties. Holds: all parties agree on job,
parameters and plan before anything is charged; the noisy table of a party is frozen in its ledger before it is shared, so that
another attempt shares the same one; only the sum of all tables is opened. Not covered: parties that do not follow the protocol.
"""

import dataclasses
import hashlib
import importlib.metadata
import io
import json
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.extensions.two_organisations.meeting import Meeting, refuse_unready
from dp_pipelines.jobs.request.list_order import without_order
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import run as runs
from dp_pipelines.jobs.run.pipelines import quoting_nothing, run_pipeline
from dp_pipelines.jobs.run.production import Production
from dp_pipelines.jobs.run.run import NO_LEDGER, PublishedRun
from dp_pipelines.jobs.runners import runner_rules
from dp_pipelines.jobs.runners.engines import EngineAttempt
from dp_pipelines.jobs.sources import declared_source
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.party_models import PartiesModel
from dp_pipelines.kernels.lattice import Integers
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import staging
from dp_pipelines.steps import party_tables
from dp_pipelines.training.kept_draws import Draws

TABLE = "party table of {}"
"""The name under which a ledger keeps the noisy table of a stage."""


def run(
    file: JobFile,
    output: str,
    *,
    party: str | None,
    given: Sequence[str] = (),
    run_id: str | None = None,
    arguments: Sequence[str] = (),
    ledger: str | None = None,
    runner: str = runner_rules.DEFAULT,
    anchor: str | None = None,
) -> PublishedRun:
    """Run a job as one of its parties.

    Args:
        file: the job, the same at all parties.
        output: the folder to publish.
        party: which of them this is.
        given, run_id, arguments, ledger, runner, anchor: see `jobs.run.run`.

    Raises:
        RequestError: the request is wrong by public facts, or the parties do not run the same; nothing was charged or created.
        BudgetError: the budget refuses.
        LedgerError: the ledger cannot be used.
        DamagedInputError, RunFailed, DiskError, PublishError: it failed; nothing is visible.
    """
    parties = file.job.parties
    if parties is None:
        raise RequestError(field="--party", message="is for jobs with parties", hint="drop it")
    if party not in parties.members:
        said = "is required: the job has parties" if party is None else "is none of the job's parties"
        hint = nearest(party or "", list(parties.members), "parties")
        raise RequestError(field="--party", message=said, hint=hint or "parties: " + ", ".join(parties.members))
    if ledger == NO_LEDGER:
        message = "cannot be none: a table that others may have seen must not be drawn again"
        raise RequestError(field="--ledger", message=message, hint="drop it")
    if runner_rules.is_elsewhere(runner):
        raise RequestError(field="--runner", message=f"{runner} cannot take part yet", hint="take another runner")
    refuse_unready()
    declared = None
    if not parties.members[party].rows and file.job.source is not None:
        declared = declared_source.without_files(
            file.job.source
        )  # who has no rows needs no files where types are declared
    request = check(file, given, declared)
    runs.check_run_id(run_id, file)
    return runs.carry_out(
        request, output, run_id=run_id, arguments=arguments, ledger=ledger, runner=runner, anchor=anchor,
        produced=lambda *of_run: PartyProduction(*of_run, parties=parties, party=party),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PartyProduction(Production):
    """A run of a plan by one of several parties.

    Args:
        parties: all of them.
        party: the name of this one.
    """

    parties: PartiesModel = dataclasses.field(kw_only=True)
    party: str = dataclasses.field(kw_only=True)

    def prepare(self, expected: int, foresee: Callable[[], int], ledger: str) -> None:
        """Meet the others, once this party's ledger has room. Errors as for `Meeting.agree`, and those of the ledger."""
        number = foresee()  # who is refused after the others are charged costs them a run
        self._pass_gate(number)
        self.progress.show("waiting for the other parties")
        self._meeting(number).agree(hashlib.sha256(f"{self.run_id} {ledger}".encode()).hexdigest())

    def release(
        self, number: int, folder: pathlib.Path, draws: Draws, submitted: Callable[[EngineJob], None]
    ) -> dict[str, pathlib.Path]:
        """Release everything of one round, together with the others. Arguments and result as there."""
        self._pass_gate(number)
        stages = self.plan.round(number).stages
        key = runner_rules.run_key(self.request.file.job.dataset, self.run_id)
        with self.engine.attempt(EngineAttempt(key=key, folder=folder, submitted=submitted)):
            self._freeze(stages, folder, draws)
        self.progress.show("adding the parties' tables")
        with (
            quoting_nothing("the parties' tables could not be added"),
            tempfile.TemporaryDirectory(dir=folder) as private,
        ):
            in_order = dict(sorted(stages.items()))  # the same at all parties, however their files list the stages
            mine = np.concatenate([self._numbers(stage, draws).ravel() for stage in in_order.values()])
            sums = self._meeting(number).add(mine, pathlib.Path(private))
            files = {}
            for name, stage in in_order.items():
                rows, partitions = party_tables.shape_of(stage)
                of_stage, sums = np.split(sums, [rows * partitions])
                path = files[f"{name}.parquet"] = folder / f"{name}.parquet"
                released = party_tables.opened(of_stage.reshape(rows, partitions), stage)
                staging.write_release(released, path, stage.query.sorted_by)
        return files

    @property
    def _has_rows(self) -> bool:
        return self.parties.members[self.party].rows

    def _freeze(self, stages: Mapping[str, StagePlan], folder: pathlib.Path, draws: Draws) -> None:
        """Have the noisy table of each stage, drawn once for all attempts."""
        missing = {name: stage for name, stage in stages.items() if draws.get(TABLE.format(name)) is None}
        if not missing or not self._has_rows:
            return
        with tempfile.TemporaryDirectory(dir=folder) as private:
            files = run_pipeline(
                self.request, missing, pathlib.Path(private), self.engine, self.progress, salt=self.salt
            )
            for name in missing:
                draws.keep(TABLE.format(name), files[f"{name}.parquet"].read_bytes())

    def _numbers(self, stage: StagePlan, draws: Draws) -> Integers:
        if not self._has_rows:
            return np.zeros(party_tables.shape_of(stage), np.int64)
        content = draws.get(TABLE.format(stage.name))
        assert content is not None
        return party_tables.numbers_of(pa.parquet.read_table(io.BytesIO(content)), stage)

    @property
    def salt(self) -> int:
        """What settles which rows and partitions of a unit stay: the same at all parties, and another one in each run."""
        text = json.dumps([self.plan.digest, self.run_id])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def _meeting(self, number: int) -> Meeting:
        job, values = without_order(self.request.file.job.model_dump(mode="json")), self.request.values
        # By their noise: where all rounds have the same, it does not matter how often each party has run alone.
        records = json.dumps([record.to_json() for record in self.plan.round(number).mechanisms])
        said = {
            "job files": hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest(),
            "parameters": json.dumps({name: str(value) for name, value in sorted(values.items())}),
            "plans": self.plan.digest,
            "run ids": self.run_id,
            "versions of dp-pipelines": importlib.metadata.version("dp-pipelines"),
            "rounds": hashlib.sha256(records.encode()).hexdigest(),
        }
        return Meeting(parties=self.parties, name=self.party, said=said)
