"""The plan: every stage with its noise, calibrated on the total, before a row is read.

In: (epsilon, delta), queries with shares, the number of runs. Out: frozen stages, the mechanism records, what they cost
together, a digest that names the plan. Holds: the privacy loss distribution of all records of all runs meets the budget
(docs/proofs/accounting.md); nothing here sees data. Not covered: what other plans over the same people spend.

May import errors, checks, frozen, query, budget. Imported by release, transforms, jobs.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from dp_pipelines import checks
from dp_pipelines.budget import accountant, describe
from dp_pipelines.budget.mechanism import Mechanism
from dp_pipelines.budget.search import Budget, Calibrated, search
from dp_pipelines.budget.stage import Choice, StageChoices, StagePlan, build_stage
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.query import Query

LARGEST = accountant.LARGEST_EPSILON
"""Budgets stay below this epsilon, at which nothing is protected any more."""

FORMAT = 1
"""Part of every digest; raised when the meaning of a plan changes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectation:
    """A declared guess about a typical partition, from which relative errors are printed. It decides nothing else.

    Args:
        users: units in a typical partition.
        rows_per_partition: rows in it.
    """

    users: float | None = None
    rows_per_partition: float | None = None

    def __post_init__(self) -> None:
        for field in ("users", "rows_per_partition"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, checks.number(getattr(self, field), f"expect.{field}", above=0))


class Plan:
    """All stages of a job under one budget.

    Args:
        epsilon: of all runs together, above 0.
        delta: of all runs together, from 0 (public partitions only) to below 1.
        stages: queries by name.
        shares: weight of each stage in the budget; equal where left out.
        runs: how often the plan will be run under this budget.
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
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = 0.0,
        stages: Mapping[str, Query],
        shares: Mapping[str, float] | None = None,
        runs: int = 1,
        expect: Expectation | None = None,
    ) -> None:
        self._take(epsilon, delta, stages, shares, runs, expect)
        self._finish(search(self.queries, self.shares, self._budget))

    def _take(
        self,
        epsilon: Any,
        delta: Any,
        stages: Mapping[str, Query],
        shares: Mapping[str, float] | None,
        runs: Any,
        expect: Expectation | None,
    ) -> None:
        self.epsilon = checks.number(epsilon, "epsilon", above=1e-6, below=LARGEST, mend="write e.g. epsilon: 1.0")
        if delta == 0 and not isinstance(delta, bool):
            self.delta = 0.0
        else:
            mend = "write e.g. delta: 1.0e-6, well below one in the number of people"
            self.delta = checks.number(delta, "delta", above=1e-50, below=1, mend=mend)
        self.runs = checks.whole(runs, "runs", low=1, high=10**6)
        if not isinstance(stages, Mapping) or not stages:
            raise RequestError(field="stages", rule="must map names to queries, at least one")
        for name, query in stages.items():
            checks.name(name, "stages")
            if not isinstance(query, Query):
                raise RequestError(field=f"stages.{name}", rule="must be a Query")
        self.queries = FrozenMapping(stages)
        given = dict.fromkeys(stages, 1.0) if shares is None else dict(shares)
        if set(given) != set(stages):
            raise RequestError(field="shares", rule="must name exactly the stages")
        self.shares = FrozenMapping({n: checks.number(given[n], f"shares.{n}", above=0, below=1e6) for n in stages})
        if expect is not None and not isinstance(expect, Expectation):
            raise RequestError(field="expect", rule="must be an Expectation")
        self.expect = expect
        self._budget = Budget(epsilon=self.epsilon, delta=self.delta, runs=self.runs)

    def _finish(self, calibrated: Calibrated) -> None:
        self.calibrated = calibrated
        self.stages: FrozenMapping[StagePlan] = FrozenMapping(
            {
                name: build_stage(name, query, calibrated.choices[name], calibrated)
                for name, query in self.queries.items()
            }
        )
        self.accounted = FrozenMapping(self._account(self.runs))
        self.accounted_one_run = self.accounted if self.runs == 1 else FrozenMapping(self._account(1))

        statement = FrozenMapping(self.statement())
        self.stages = FrozenMapping(
            {name: dataclasses.replace(stage, statement=statement) for name, stage in self.stages.items()}
        )

    def statement(self) -> dict[str, Any]:
        """The budget and what the plan costs, for a manifest."""
        return {
            "plan": self.digest,
            "budget": {"epsilon": self.epsilon, "delta": self.delta, "runs": self.runs},
            "accounted": dict(self.accounted),
            "accounted_one_run": dict(self.accounted_one_run),
        }

    def _account(self, runs: int) -> dict[str, float]:
        budget = dataclasses.replace(self._budget, runs=runs)
        return {"epsilon": budget.cost(self.mechanisms), "delta": budget.allowed_delta(self.mechanisms)}

    def verify(self) -> None:
        """Refuse if the records exceed the budget: for plans that were stored.

        Raises:
            RequestError: the records cost more than the budget.
        """
        if not self.accounted["epsilon"] <= self.epsilon:
            raise RequestError(field="plan", rule="costs more than its budget", mend="plan anew")

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """All records of one run."""
        return tuple(record for stage in self.stages.values() for record in stage.mechanisms)

    def __getitem__(self, name: str) -> StagePlan:
        if name not in self.stages:
            raise RequestError(
                field=f"stage {name!r}", rule="is not in the plan", mend="stages: " + ", ".join(self.stages)
            )
        return self.stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stages)

    @property
    def digest(self) -> str:
        """SHA-256 over everything that the plan fixes, in hexadecimal digits."""
        content = {
            "format": FORMAT,
            "budget": [self.epsilon, self.delta, self.runs],
            "queries": {name: describe.query_to_json(query) for name, query in self.queries.items()},
            "shares": dict(self.shares),
            "calibrated": self.frozen()["calibrated"],
            "mechanisms": [record.to_json() for record in self.mechanisms],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def frozen(self) -> dict[str, Any]:
        """What `restore` needs beside the queries, as JSON values."""
        return {
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
        stages: Mapping[str, Query],
        shares: Mapping[str, float] | None = None,
        runs: int = 1,
        expect: Expectation | None = None,
    ) -> "Plan":
        """The plan with the same arguments and stored choices, without searching: accounted for anew.

        Raises:
            RequestError: the choices are not of this query, or cost more than the budget.
        """
        plan = cls.__new__(cls)
        plan._take(epsilon, delta, stages, shares, runs, expect)
        stored = frozen["calibrated"]
        choices = {}
        for name in plan.queries:
            fields = dict(stored["choices"][name])
            fields["noises"] = FrozenMapping({k: Choice(**v) for k, v in fields["noises"].items()})
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
        """What `dp-pipelines plan --json` prints."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "runs": self.runs,
            "digest": self.digest,
            "accounted": dict(self.accounted),
            "accounted_one_run": dict(self.accounted_one_run),
            "stages": [describe.stage_to_json(stage, self._cost(stage), self.expect) for stage in self.stages.values()],
            "mechanisms": [record.to_json() for record in self.mechanisms],
        }

    def _cost(self, stage: StagePlan) -> float:
        return self.shares[stage.name] / math.fsum(self.shares.values())


def _noises(choices: StageChoices) -> dict[str, Any]:
    return {"noises": {key: dataclasses.asdict(choice) for key, choice in choices.noises.items()}}
