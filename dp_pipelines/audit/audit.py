"""The audit of a plan: compares its records with what runs, trains models on made-up examples, and replays every stage.

In: a plan, the number of replays, the accepted probability of a false alarm. Out: an `Audit`. Holds: for a plan that
runs as it was accounted, the probability that anything is reported wrong is at most `false_alarms`, over all
comparisons together. Records (`audit.records`) and what a model reads (`audit.fitted`) come first, and involve no
chance. Scores of stages add up within each group of units, as the accountant composes them. No rows are read. Not
covered: see docs/audit.md.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.audit import fitted, records, recount, replay
from dp_pipelines.audit.divergence import EPSILONS, Divergence, compare
from dp_pipelines.audit.replay import Finding, Replayed
from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning import resolve
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.models.pate_model import PateModel

Floats = NDArray[np.float64]

REPLAYS = 200_000
FEWEST = 1_000
MOST_DRAWS = 4 * 10**7
"""If a replay takes many draws, there are fewer replays by default."""

FALSE_ALARMS = 1e-6

EVERYTHING = "all together"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """The result for a stage, or for everything that one unit meets.

    Args:
        name: of the stage.
        group: of the units, if there are groups.
        divergences: see `divergence.compare`.
        findings: about the stage's noise, samples, clips and records.
        agrees: True if there is no strong evidence against the records.
    """

    name: str
    group: str | None
    divergences: tuple[Divergence, ...]
    findings: tuple[Finding, ...]
    agrees: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """The results of an audit.

    Args:
        replays: of each stage, with the unit and without it.
        false_alarms: an upper bound on the probability that something is reported wrong in a correct plan.
        limit: the evidence (see `audit.evidence`) from which something is wrong.
        lines: of the stages, then of all together for each group.
        notes: what was not replayed.
    """

    replays: int
    false_alarms: float
    limit: float
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Return True if no replay contradicts the accounting of the plan."""
        return all(line.agrees for line in self.lines)

    def to_json(self) -> dict[str, Any]:
        """Return the values that `dp-pipelines audit --json` prints."""
        return {
            "agrees": self.agrees,
            "replays": self.replays,
            "false_alarms": self.false_alarms,
            "evidence_limit": self.limit,
            "lines": [_json(line) for line in self.lines],
            "not_replayed": list(self.notes),
        }


def _json(line: Line) -> dict[str, Any]:
    # Certainty means infinite evidence, and JSON has no infinity.
    def plain(one: Any) -> dict[str, Any]:
        fields = dataclasses.asdict(one)
        return {key: None if value == math.inf else value for key, value in fields.items()}

    return {
        "name": line.name,
        "group": line.group,
        "agrees": line.agrees,
        "divergences": [plain(each) for each in line.divergences],
        "findings": [plain(each) for each in line.findings],
    }


def audit(
    plan: Plan,
    *,
    replays: int | None = None,
    false_alarms: float = FALSE_ALARMS,
    tell: Callable[[str], None] = lambda text: None,
) -> Audit:
    """Audit a plan's first run.

    Args:
        plan: the plan.
        replays: of each stage, from 1,000; None: 200,000, or fewer if a replay takes many draws.
        false_alarms: see `Audit`.
        tell: is called with a text at each step.

    Raises:
        RequestError: an argument is out of its range.

    >>> from dp_pipelines import ContributionBounds, Plan, PrivacyIdCount, PublicPartitions, Query
    >>> query = Query(privacy_unit="who", partition_by="region", metrics={"users": PrivacyIdCount()},
    ...               bounds=ContributionBounds(max_partitions_contributed=1), partitions=PublicPartitions(keys=[("north",)]))
    >>> audit(Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query}), replays=2000).agrees
    True
    """
    if any(query.parties is not None for query in plan.queries.values()):
        message, hint = "is of several parties, whose tables are not replayed yet", "audit the job without parties"
        raise RequestError(field="plan", message=message, hint=hint)
    levels = recount.levels(plan)
    ready = {name: _ready(recount.recounted(stage, levels)) for name, stage in plan.round(1).stages.items()}
    stages = {name: several[0] for name, several in ready.items()}
    fits = training_parts.all_fits(plan.trained) | _asked(plan)
    if replays is None:
        draws = sum(replay.cost(stage, fits.get(name)) for name, stage in stages.items())
        replays = max(FEWEST, min(REPLAYS, MOST_DRAWS // max(1, draws)))
    replays = checks.whole(replays, "replays", low=FEWEST, high=10**8)
    checks.number(false_alarms, "false_alarms", above=0, below=1)
    certain, notes = _certain(plan, ready, tell)
    carried = plan.round(1).mechanisms
    replayed: dict[str, Replayed] = {}
    for name, stage in stages.items():
        tell(f"replaying {name}")
        own = [record for record in carried if record.stage == name]
        replayed[name] = replay.replay(stage, plan.stages[name], own, fits.get(name), replays)
    notes += [note for one in replayed.values() for note in one.notes]
    lines = [_line(n, stages[n].query.group, [one], carried, certain[n] + one.findings) for n, one in replayed.items()]
    for name in ready:
        for called, stage in _extremes(recount.recounted(plan.round(1).stages[name], levels)).items():
            tell(f"replaying {name}, {called}")
            own = [record for record in carried if record.stage == name]
            one = replay.replay(stage, plan.stages[name], own, None, replays)
            line = _line(name, None, [one], carried, one.findings)
            lines.append(dataclasses.replace(line, name=f"{name}, {called}"))
    groups = sorted({stage.query.group for stage in stages.values()} - {None}, key=str) or [None]
    for group in groups:
        met = [one for name, one in replayed.items() if stages[name].query.group in (None, group)]
        meets = [record for record in carried if record.group in (None, group)]
        lines.append(_line(EVERYTHING, group, met, meets, (*certain.get("", ()), replay.unrelated(met))))
    tests = sum(len(line.divergences) + len(line.findings) for line in lines)
    limit = math.log(tests / false_alarms)
    judged = tuple(dataclasses.replace(line, agrees=_agrees(line, limit)) for line in lines)
    return Audit(replays=replays, false_alarms=false_alarms, limit=limit, lines=judged, notes=tuple(notes))


def _certain(
    plan: Plan, ready: dict[str, list[StagePlan]], tell: Callable[[str], None]
) -> tuple[dict[str, tuple[Finding, ...]], list[str]]:
    """Return the findings that involve no chance, by stage, and notes on what could not be checked."""
    findings, notes = records.findings(plan, ready), list[str]()
    findings[""] = (*findings.get("", ()), *records.of_everything(plan))
    for name in plan.trained:
        tell(f"training {name} on made-up examples")
        try:
            for part, of_part in fitted.findings(plan, name).items():
                findings[part] += of_part
        except RequestError as error:
            notes.append(f"{name}: its training on made-up examples: {error.message}")
    return findings, notes


def _asked(plan: Plan) -> dict[str, PateModel]:
    """Return the tasks with teachers, by the stage that pays for the tests."""
    voted = {name: task for name, task in plan.trained.items() if isinstance(task, PateModel)}
    return {training_parts.tests_of(name): task for name, task in voted.items()}


def _ready(stage: StagePlan) -> list[StagePlan]:
    """Return a stage as it runs; if a run chooses its contribution bounds, one for each pair of candidates, the largest first."""
    partitions, rows = _candidates(stage)
    return [_closed(stage, *pair) for pair in itertools.product(reversed(partitions), reversed(rows))]


def _extremes(stage: StagePlan) -> dict[str, StagePlan]:
    """Return stages with the smallest candidate of one bound or of both, by name; they are replayed too, after the largest."""
    bounds, (partitions, rows) = stage.query.bounds, _candidates(stage)
    plans: dict[str, StagePlan] = {}
    if bounds.auto_partitions:
        plans["smallest bound on partitions"] = _closed(stage, partitions[0], rows[-1])
    if bounds.auto_rows:
        plans["smallest bound on rows"] = _closed(stage, partitions[-1], rows[0])
    if bounds.auto_partitions and bounds.auto_rows:
        plans["smallest bounds"] = _closed(stage, partitions[0], rows[0])
    return plans


Candidates = tuple[int | None, ...]


def _candidates(stage: StagePlan) -> tuple[Candidates, Candidates]:
    """Return the possible bounds on partitions and on rows in each; None for one that is fixed."""
    bounds = stage.query.bounds
    return tuple(bounds.partition_candidates or (None,)), tuple(bounds.row_candidates or (None,))


def _closed(stage: StagePlan, partitions: int | None, rows: int | None) -> StagePlan:
    """Return a stage with some contribution bounds in place of open ones, and the widest bounds of values."""
    if stage.query.bounds.auto:
        stage = resolve.with_partitions(stage, partitions, rows)
    if not resolve.is_open(stage):
        return stage
    families = {name: metric.family for name, metric in stage.query.metrics.items() if metric.auto}
    return resolve.resolve(stage, {name: family[1:] for name, family in families.items() if family is not None})


def _line(
    name: str, group: str | None, met: list[Replayed], carried: Iterable[MechanismRecord], findings: tuple[Finding, ...]
) -> Line:
    own = list(carried) if name == EVERYTHING else [record for record in carried if record.stage == name]
    accounted = {epsilon: accountant.delta_of(own, epsilon) for epsilon in EPSILONS}
    scores = [np.sum(list(sides), axis=0) for sides in zip(*((o.with_unit, o.without) for o in met), strict=True)]
    return Line(
        name=name,
        group=group,
        divergences=tuple(compare(scores[0], scores[1], accounted)),
        findings=findings,
        agrees=True,
    )


def _agrees(line: Line, limit: float) -> bool:
    strongest = [each.evidence for each in line.divergences] + [each.evidence for each in line.findings]
    return max(strongest) < limit
