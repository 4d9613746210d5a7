"""The plan: every stage with its noise, calibrated on the total, before a row is read.

In: (epsilon, delta), queries with shares, the number of runs and how the budget is split over them. Out: frozen stages for each
round, the mechanism records, what they cost together, a digest that names the plan. Holds: the privacy loss distribution of all
records of all runs meets the budget (docs/proofs/accounting.md); nothing here sees data. Not covered: what other plans over the
same people spend.
"""

import dataclasses
import functools
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dp_pipelines import checks
from dp_pipelines.accounting import accountant, comparison
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.plan_stages import phases, sharing, training_parts, window_columns
from dp_pipelines.plan_stages.reads import ArmRows
from dp_pipelines.plan_stages.sharing import Sharing
from dp_pipelines.planning import (
    appearing_groups,
    describe,
    fit_choice,
    json_digest,
    power,
    rounds,
    training_usefulness,
    usefulness,
)
from dp_pipelines.planning.candidate import Calibrated, TotalBudget
from dp_pipelines.planning.choose import search
from dp_pipelines.planning.noise_levels import fixed_noise, integer_noise, noise_limit
from dp_pipelines.planning.noise_levels.passing_noise import refuse_derived
from dp_pipelines.planning.payment import Payment, named_run
from dp_pipelines.planning.rounds import Split
from dp_pipelines.planning.stage import StagePlan, build_stage
from dp_pipelines.planning.stage import fixed_noise as fixed_by_metrics
from dp_pipelines.planning.stage_choices import Choice, StageChoices
from dp_pipelines.planning.stage_kinds import TrainingKind
from dp_pipelines.query.expectation import Expectation as Expectation
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel

LARGEST = accountant.LARGEST_EPSILON
"""Budgets stay below this epsilon, at which nothing is protected any more."""

FORMAT = 4
"""Part of every digest; raised when the meaning of a plan changes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """One run of a plan, as its number decides.

    Args:
        number: from 1.
        stages: by name, ready to run.
        mechanisms: all records of this run.
        accounted: what this run costs alone: `epsilon` at `delta`.
    """

    number: int
    stages: FrozenMapping[StagePlan]
    mechanisms: tuple[MechanismRecord, ...]
    accounted: FrozenMapping[float]


class Plan:
    """All stages of a job under one budget. Each run of each stage is released once: the plan pays for no second draw.

    A second one in this process is refused before a row is read, whatever became of the first: by another `run()` of the
    pipeline, in another pipeline, or in a copy of the plan. What the library cannot see: pipelines that are templates, or that
    were made anew from their description (`Pipeline.from_runner_api`), or that a notebook runs in pieces; another process; and a
    plan that is made anew with the same numbers, which is a budget of its own, to be added. A ledger (`dp-pipelines run`,
    `Session`) remembers all of its runs.

    Args:
        epsilon: of all runs together, above 0.
        delta: of all runs together, from 0 (public partitions only) to below 1.
        stages: queries and models by name, all with the same columns as privacy unit, in the same order. Their own order
            changes no number.
        shares: weight of each stage in the budget. None, or left out: 1, or 1/4 for a stage that chooses the best partitions,
            whose choices cost the other stages much.
        runs: how often the plan will be run under this budget.
        split: how the budget is split over the runs: `constant`, `linear` (round r gets r times the part of round 1),
            `exponential` (see `noise_schedule.GROWTH`), or the reverse of these, `linear_decreasing` and
            `exponential_decreasing`. The noise of a round is in inverse proportion to its part, but for noise that a
            metric asks for and for the probability with which selection fails.
        expect: see `Expectation`.

    Raises:
        RequestError: an argument is wrong.
        BudgetError: the budget cannot be met.

    >>> from dp_pipelines import Count, ContributionBounds, Query
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> plan.accounted["epsilon"] <= 1.0
    True
    >>> print(plan)
    epsilon 1, delta 1e-06
    stage   metric  noise    standard deviation
    weekly  orders  laplace  5.657
    >>> plan["weekly"].name
    'weekly'
    >>> later = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query}, runs=4, split="linear")
    >>> first, last = (later["weekly", number].noises[0].stddev for number in (1, 4))
    >>> round(first / last, 2)
    4.0
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = 0.0,
        stages: Mapping[str, Query | TrainModel],
        shares: Mapping[str, float | None] | None = None,
        runs: int = 1,
        split: Split = "constant",
        expect: Expectation | None = None,
    ) -> None:
        self._take(epsilon, delta, stages, shares, runs, split, expect, None)
        self._finish(self._calibrate(self._budget.epsilon))
        noise_limit.refuse_unfit(
            {name: stage for number in (1, self.runs) for name, stage in self.round(number).stages.items()}
        )
        noise_limit.refuse_noise(self.trained, self.calibrated, self.epsilon, self._calibrate, LARGEST)

    def _calibrate(self, epsilon: float) -> Calibrated:
        return search(self._sorted, self.shares, dataclasses.replace(self._budget, epsilon=epsilon), self.split)

    def _take(
        self,
        epsilon: Any,
        delta: Any,
        stages: Mapping[str, Query | TrainModel],
        shares: Mapping[str, float | None] | None,
        runs: Any,
        split: Any,
        expect: Expectation | None,
        rule: Sharing | None,
    ) -> None:
        self.epsilon = checks.number(epsilon, "epsilon", above=1e-6, below=LARGEST, hint="write e.g. epsilon: 1.0")
        if delta == 0 and not isinstance(delta, bool):
            self.delta = 0.0
        else:
            hint = "write e.g. delta: 1.0e-6, well below 1 divided by the number of people"
            self.delta = checks.number(delta, "delta", above=1e-50, below=1, hint=hint)
        self.runs = checks.whole(runs, "runs", low=1, high=10**6)
        self.split = rounds.check(split, self.runs)
        if not isinstance(stages, Mapping) or not stages:
            raise RequestError(field="stages", message="must map at least one name to a query")
        checks.stage_names(stages, "stages")
        for name, query in stages.items():
            if isinstance(query, Query):
                if query.group is not None:
                    message = "is only for parts of a train stage"
                    raise RequestError(field=f"stages.{name}.group", message=message, hint="leave it out")
                if query.level is not None:
                    message = "is only for parts of a rollup"
                    raise RequestError(field=f"stages.{name}.level", message=message, hint="write rollup")
                fixed_noise.check(name, query)
            elif not isinstance(query, TrainModel):
                raise RequestError(field=f"stages.{name}", message="must be a Query or a TrainModel")
        stages, self.windows = window_columns.taken(stages)
        _refuse_several_units(stages)
        self._rule = sharing.NOW if rule is None else rule
        given = dict.fromkeys(stages) if shares is None else dict(shares)
        if set(given) != set(stages):
            raise RequestError(field="shares", message="must name every stage and nothing else")
        given_shares = {n: _share(n, query, given[n], self._rule) for n, query in stages.items()}
        self._asked = given_shares
        expanded = phases.expand(stages, given_shares, self._rule)
        self.queries, self.shares = expanded.queries, expanded.shares
        self._sorted = FrozenMapping(dict(sorted(self.queries.items())))  # sums of floats and records have this order
        self.reads = window_columns.reads_of(expanded.reads, self.windows)
        self.phases, self.selections, self.auto = expanded.phases, expanded.selections, expanded.auto
        self.trained, self.rolled = expanded.trained, expanded.rolled
        self.auto_contributions, self.kept, self.compared = (
            expanded.auto_contributions,
            expanded.kept,
            expanded.compared,
        )
        if expect is not None and not isinstance(expect, Expectation):
            raise RequestError(field="expect", message="must be an Expectation")
        power.check_arms(expect, [query for query in self.queries.values() if query.compare is not None])
        self.expect = expect
        self._budget = TotalBudget(epsilon=self.epsilon, delta=self.delta, runs=self.runs)

    def _finish(self, calibrated: Calibrated) -> None:
        self.calibrated, self._name = calibrated, uuid.uuid4().hex
        groups = integer_noise.all_records(self._sorted, calibrated, self.split, self.runs)
        self._groups, self._rounds = groups, dict[int, Round]()
        self.stages: FrozenMapping[StagePlan] = self._built(rounds.at(calibrated, self._part(1)))
        self.accounted = FrozenMapping(self._account([r for records, _ in groups for r in records], groups[0][1]))
        self.accounted_one_run = self.accounted if self.runs == 1 else FrozenMapping(self._account(groups[0][0], 1))
        self.stages = self._paid(self._stated(self.stages, self.statement()), 1 if self.runs == 1 else 0)

    def _built(self, calibrated: Calibrated) -> FrozenMapping[StagePlan]:
        stages = {
            name: build_stage(name, query, calibrated.choices[name], calibrated, self.reads[name])
            for name, query in self.queries.items()
        }
        for name, coarser in self.rolled.items():
            stages[name] = dataclasses.replace(stages[name], coarser=tuple(stages[part] for part in coarser))
        for stage in stages.values():
            refuse_derived(stage)
        return FrozenMapping(stages)

    def _part(self, number: int) -> Fraction:
        """Return the part of a round over the smallest part, for which choices are calibrated."""
        return rounds.ratio(self.split, self.runs, number)

    def _stated(self, stages: Mapping[str, StagePlan], statement: dict[str, Any]) -> FrozenMapping[StagePlan]:
        known = FrozenMapping(statement)
        return FrozenMapping({name: dataclasses.replace(stage, statement=known) for name, stage in stages.items()})

    def _paid(self, stages: FrozenMapping[StagePlan], number: int) -> FrozenMapping[StagePlan]:
        payment = Payment(plan=self._name, run=number, stages=tuple(stages))
        return FrozenMapping({name: dataclasses.replace(stage, payment=payment) for name, stage in stages.items()})

    def statement(self) -> dict[str, Any]:
        """Return the budget and the cost of the plan, for a manifest."""
        budget = {"epsilon": self.epsilon, "delta": self.delta, "runs": self.runs}
        return {
            "plan": self.digest,
            "budget": budget if self.split == "constant" else {**budget, "split": self.split},
            "accounted": dict(self.accounted),
            "accounted_one_run": dict(self.accounted_one_run),
        }

    def _account(self, records: Sequence[MechanismRecord], runs: int) -> dict[str, float]:
        budget = self._budget
        return {"epsilon": budget.cost(records, runs=runs), "delta": budget.allowed_delta(records, runs)}

    def round(self, number: int) -> Round:
        """Return one run: its stages, its records and its cost alone. The ledger chooses the number, and keeps it on retry.

        Args:
            number: from 1 to `runs`. With a constant split all rounds are the same.

        Raises:
            RequestError: the plan has no round of this number.
        """
        number = rounds.number_in(number, self.runs)
        if number not in self._rounds:
            stages, one = self.stages, self.accounted_one_run
            if self._part(number) != self._part(1):
                stages = self._built(rounds.at(self.calibrated, self._part(number)))
                one = FrozenMapping(self._account(self._groups[number - 1][0], 1))
                stages = self._stated(stages, {**self.statement(), "accounted_one_run": dict(one), "round": number})
            records = tuple(record for name in self._sorted for record in stages[name].mechanisms)
            stages = self._paid(stages, number)
            self._rounds[number] = Round(number=number, stages=stages, mechanisms=records, accounted=one)
        return self._rounds[number]

    def charged(self, number: int) -> tuple[MechanismRecord, ...]:
        """Return the records of one run with which the total was composed; `round` has those that its stages carry.

        Args:
            number: from 1 to `runs`.
        """
        number = rounds.number_in(number, self.runs)
        return self._groups[number - 1 if len(self._groups) > 1 else 0][0]

    def explain(self) -> dict[str, Any]:
        """Return the cost of all runs by four ways to add up losses, in all and for each stage alone; see `comparison`."""
        return comparison.explain(self._groups, self.delta)

    def verify(self) -> None:
        """Refuse if the records exceed the budget: for plans that were stored.

        Raises:
            RequestError: the records cost more than the budget.
        """
        if not self.accounted["epsilon"] <= self.epsilon:
            raise RequestError(field="plan", message="costs more than its budget", hint="make a new plan")

    @property
    def mechanisms(self) -> tuple[MechanismRecord, ...]:
        """Return all records of one run: of round 1, if the split is not constant."""
        return self._groups[0][0]

    def all_mechanisms(self) -> tuple[tuple[tuple[MechanismRecord, ...], int], ...]:
        """Return all records of all runs: groups of records, and how often each group runs."""
        return self._groups

    def __getitem__(self, asked: str | tuple[str, int]) -> StagePlan:
        """Return a stage, ready to run: `plan["weekly"]`; for a plan of several runs `plan["weekly", 2]` is the second one.

        Raises:
            RequestError: there is no such stage or run, or the plan is for several runs and it is not said which.
        """
        name, number = asked if isinstance(asked, tuple) and len(asked) == 2 else (asked, None)
        if not isinstance(name, str) or name not in self.stages:
            raise RequestError(
                field=f"stage {name!r}", message="is not in the plan", hint="stages: " + ", ".join(self.stages)
            )
        if number is None:
            named_run(name, self.stages[name].payment)
            return self.stages[name]
        return self.round(number).stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stages)

    @functools.cached_property
    def digest(self) -> str:
        """Return SHA-256 over everything that the plan fixes, in hexadecimal digits."""
        content = {
            "format": FORMAT,
            "budget": [self.epsilon, self.delta, self.runs],
            "split": self.split,
            "queries": {name: describe.query_to_json(query) for name, query in self.queries.items()},
            "shares": dict(self.shares),
            "calibrated": self.frozen()["calibrated"],
            "mechanisms": [record.to_json() for record in self.mechanisms],
        }
        if self.trained:
            content["trained"] = {name: describe.task_to_json(task) for name, task in self.trained.items()}
        if self.windows:
            content["windows"] = {name: describe.windows_to_json(windows) for name, windows in self.windows.items()}
        return json_digest.sha256(content)

    def frozen(self) -> dict[str, Any]:
        """Return the values that `restore` needs besides the queries, as JSON values."""
        known: dict[str, Any] = (
            {} if self._rule == sharing.FIRST else {"sharing": self._rule.number, "shares": self._asked}
        )
        if self.trained and self._rule.units_count_once:
            known["counted"] = {name: task.counted_examples for name, task in self.trained.items()}
        return known | {
            "split": self.split,
            "calibrated": {
                "choices": {name: dataclasses.asdict(c) | _noises(c) for name, c in self.calibrated.choices.items()},
                "gaussian_scale": str(self.calibrated.gaussian_scale),
                "laplace_scale": str(self.calibrated.laplace_scale),
            },
        }

    @classmethod
    def restore(
        cls,
        frozen: Mapping[str, Any],
        *,
        epsilon: float,
        delta: float = 0.0,
        stages: Mapping[str, Query | TrainModel],
        shares: Mapping[str, float | None] | None = None,
        runs: int = 1,
        split: Split = "constant",
        expect: Expectation | None = None,
    ) -> "Plan":
        """Return the plan with the same arguments and stored choices, without searching: accounted for anew.

        Raises:
            RequestError: the choices are not of this query, or cost more than the budget.
        """
        plan = cls.__new__(cls)
        rule = sharing.RULES.get(frozen.get("sharing", sharing.FIRST.number))
        if rule is None:
            message = "was made by a later version of dp_pipelines"
            raise RequestError(field="plan", message=message, hint="install that version, or make a new plan")
        plan._take(epsilon, delta, stages, shares, runs, split, expect, rule)
        training_parts.refuse_other_answers(plan.trained, frozen.get("counted", {}))
        for name, share in frozen.get("shares", {}).items():
            if plan._asked.get(name) != share:
                raise RequestError(
                    field=f"stages.{name}.share",
                    message=f"is {plan._asked.get(name)}, and {share} in the plan that the ledger has frozen for this job",
                    hint=f"write share: {share}; or change the job in another way too, which makes a plan of its own",
                )
        if frozen.get("split", "constant") != split:
            raise RequestError(field="plan", message="was made with another split", hint="make a new plan")
        stored = frozen["calibrated"]
        choices = {}
        for name in plan.queries:
            fields = dict(stored["choices"][name])
            fields["noises"] = FrozenMapping({key: Choice(**chosen) for key, chosen in fields["noises"]})
            fields["centred"] = tuple(tuple(family) for family in fields["centred"])
            choices[name] = StageChoices(**fields)
        calibrated = Calibrated(
            choices=FrozenMapping(choices),
            gaussian_scale=Fraction(stored["gaussian_scale"]),
            laplace_scale=Fraction(stored["laplace_scale"]),
        )
        plan._finish(calibrated)
        plan.verify()
        return plan

    def to_json(self) -> dict[str, Any]:
        """Return the values that `dp-pipelines plan --json` prints."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "runs": self.runs,
            "split": self.split,
            "last_round_noise": float(self._part(1) / self._part(self.runs)),
            "digest": self.digest,
            "accounted": dict(self.accounted),
            "accounted_one_run": dict(self.accounted_one_run),
            "stages": self._described_stages(),
            "mechanisms": [record.to_json() for record in self.mechanisms],
            "costs": {key: value for key, value in self.explain().items() if key != "records"},
            **describe.parties_to_json(self.queries),
        }

    def __str__(self) -> str:
        """Return the budget, and the noise of each number."""
        from dp_pipelines.planning.plan_text import plan_text  # for people alone

        return plan_text(self._shown)

    def _repr_html_(self) -> str:
        """Return the same as a table, which a notebook shows of a cell that ends in a plan."""
        from dp_pipelines.planning.plan_text import plan_html  # for people alone

        return plan_html(self._shown)

    @property
    def _shown(self) -> dict[str, Any]:
        """Return what a short text says about the plan."""
        return {"epsilon": self.epsilon, "delta": self.delta, "runs": self.runs, "stages": self._described_stages()}

    def _described_stages(self) -> list[dict[str, Any]]:
        described = {name: self._described(stage) for name, stage in self.stages.items()}
        fixed = [(name, item) for name, query in self.queries.items() for item in fixed_by_metrics(query)]
        by_stage = {name: read.of for name, read in self.reads.items()}
        others = usefulness.without_each(self.mechanisms, by_stage, fixed, self.delta, self.runs)
        for name, part in others.items():
            # A stage that only selects is several, and the first of these tells it.
            first = name if name in described else next(part for part, of in by_stage.items() if of == name)
            described[first]["noise_of_others_without"] = part
        return list(described.values())

    def _described(self, stage: StagePlan) -> dict[str, Any]:
        # Parts of a train stage have weights of their own (plan_stages.sharing); the described share is that of the whole stage.
        shares = self._asked if stage.name in self.trained else self.shares
        share = shares[stage.name] / math.fsum(self._asked.values())
        if isinstance(stage.kind, TrainingKind):
            task = self.trained.get(stage.name)
            described = describe.sums_to_json(stage, share, task)
            if task is not None:
                described |= training_usefulness.of_task(stage.name, task, self.stages, self.expect)
        else:
            expect = None if stage.query.is_total else self.expect  # which is about a group
            described = describe.stage_to_json(stage, share, expect)
            if isinstance(stage.reads, ArmRows):
                described["compare"] = power.of_stage(stage, self.queries[stage.reads.of], self.expect)
            if stage.name in self._asked:
                usefulness.add_to(described, stage, expect)
            # What the job expects of a group is about those that it asked for, not about levels above or vocabularies.
            users = expect.users if expect is not None and stage.name in self._asked else None
            appearing_groups.add_to(described, stage, users)
        fit_choice.add_to(described, stage, self.trained)
        if stage.query.group is not None and stage.name not in self.trained:
            del described["share"]
        return described


def _share(name: str, asked: Query | TrainModel, given: Any, rule: Sharing) -> float:
    """Return the share that is given, or the default of the rule."""
    if given is not None:
        return checks.number(given, f"shares.{name}", above=0, below=1e6)
    return rule.best if isinstance(asked, Query) and asked.best is not None else 1.0


def _noises(choices: StageChoices) -> dict[str, Any]:
    # Pairs, as the ledgers of 0.1.0 have them.
    return {"noises": [[key, choice.to_json()] for key, choice in choices.noises.items()]}


def _refuse_several_units(stages: Mapping[str, Query | TrainModel]) -> None:
    """Refuse stages with different privacy units: the plan's cost covers a person only if all stages mean the same unit.

    Other columns, or the same in another order, are another unit: units are divided for training by their columns in order.

    Raises:
        RequestError: two stages have different units.
    """
    first, *others = stages
    unit = tuple(stages[first].unit_columns)
    for name in others:
        if tuple(stages[name].unit_columns) != unit:
            raise RequestError(
                field=f"stages.{name}.privacy_unit",
                message=f"is {', '.join(stages[name].unit_columns)}, but that of stage {first!r} is {', '.join(unit)}: "
                "a plan states its total for one privacy unit",
                hint="write the same columns in the same order, or make two plans, whose budgets add up",
            )
