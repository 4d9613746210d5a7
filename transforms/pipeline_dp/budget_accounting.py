"""Budget accountants under PipelineDP's names: aggregations are collected, then one plan is made for all of them.

In: (epsilon, delta), aggregations with weights and scopes. Out: on `compute_budgets`, a `dp_pipelines.Plan` with a stage for
each aggregation, which every aggregation reads when the pipeline is sent off. Holds: the privacy loss distribution of all that
is released, selection included, meets (epsilon, delta); both accountants do the same. Not covered: budget for mechanisms of
one's own.
"""

import logging
import math
from typing import Any, NoReturn

import pipeline_dp as original
from pipeline_dp.aggregate_params import MechanismType as MechanismType
from pipeline_dp.budget_accounting import Budget as Budget
from pipeline_dp.budget_accounting import BudgetAccountantScope as BudgetAccountantScope
from pipeline_dp.budget_accounting import MechanismSpec as MechanismSpec
from pipeline_dp.budget_accounting import MechanismSpecInternal as MechanismSpecInternal

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.planning.plan import LARGEST
from dp_pipelines.planning.stage import StagePlan

MOST_EPSILON = math.nextafter(LARGEST, 0)
"""A larger one is held to this: at LARGEST nobody is protected any more, and a plan refuses it."""

_log = logging.getLogger(__name__)


class Planned:
    """A stage that exists from `compute_budgets` on.

    Args:
        name: of the stage.
        query: what it releases.
    """

    def __init__(self, name: str, query: dp.Query) -> None:
        self.name, self.query = name, query
        self.budgets: list[Budget] = []
        """Its share, as PipelineDP tells it to annotators: where the accountant knows the number or the weights of all
        aggregations beforehand, and as if epsilons were added up."""
        self._stage: StagePlan | None = None

    def fill(self, stage: StagePlan) -> None:
        """The stage as it was planned."""
        self._stage = stage

    @property
    def ready(self) -> bool:
        """Whether it is planned."""
        return self._stage is not None

    @property
    def stage(self) -> StagePlan:
        """The stage.

        Raises:
            RequestError: the budgets are not computed yet.
        """
        if self._stage is None:
            raise RequestError(
                field=f"aggregation {self.name!r}",
                message="has no budget yet",
                hint="call compute_budgets() of the budget accountant after the last aggregation and before the pipeline runs",
            )
        return self._stage


class BudgetAccountant(original.BudgetAccountant):
    """What both accountants do. Scopes, weights and the checks of numbers of aggregations are PipelineDP's own."""

    def __init__(
        self,
        total_epsilon: float,
        total_delta: float,
        num_aggregations: int | None = None,
        aggregation_weights: list[float] | None = None,
    ) -> None:
        super().__init__(total_epsilon, total_delta, num_aggregations, aggregation_weights)
        self._collected: list[tuple[Planned, MechanismSpecInternal]] = []
        self._plan: dp.Plan | None = None

    @property
    def plan(self) -> dp.Plan:
        """The plan of all aggregations.

        Raises:
            RequestError: the budgets are not computed yet.
        """
        if self._plan is None:
            raise RequestError(field="plan", message="does not exist yet", hint="call compute_budgets() first")
        return self._plan

    def register(self, query: dp.Query, weight: float) -> Planned:
        """Ask for a stage in the plan.

        Raises:
            RequestError: the budgets are computed already.
        """
        if self._finalized:
            raise RequestError(
                field="aggregation",
                message="comes after compute_budgets()",
                hint="call compute_budgets() after the last aggregation",
            )
        planned = Planned(f"aggregation{len(self._collected) + 1}", query)
        with self.scope(weight=weight):
            spec = MechanismSpec(original.aggregate_params.MechanismType.GENERIC, name=planned.name)
            one = self._register_mechanism(MechanismSpecInternal(sensitivity=1, weight=1, mechanism_spec=spec))
            shares = self._compute_budgets_for_aggregation(weight)  # notes the weight, too
        per_epsilon = self.total_delta / self.total_epsilon  # noise of either law may come out of a plan
        planned.budgets = [one._replace(delta=one.epsilon * per_epsilon) for one in shares]
        self._collected.append((planned, one))
        return planned

    def request_budget(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: what a mechanism outside of the plan does with a budget, no plan can account for."""
        raise RequestError(
            field="request_budget",
            message="requests budget for a mechanism that the plan does not know",
            hint="use metrics, or SampleAndAggregate for a function of your own",
        )

    def compute_budgets(self) -> None:
        """Make the plan: noise, thresholds and what they cost, before a row is read.

        Raises:
            RequestError: what is asked cannot be planned.
            BudgetError: the budget does not allow it.
        """
        self._check_aggregation_restrictions()
        if self._scopes_stack:
            raise RequestError(
                field="compute_budgets", message="is called inside a scope", hint="call it after the scope"
            )
        self._finalize()
        if not self._collected:
            _log.warning("compute_budgets: no aggregation has requested budget")
            return
        epsilon = min(self.total_epsilon, MOST_EPSILON)
        if epsilon < self.total_epsilon:
            _log.warning(
                "total_epsilon: the plan spends %g, not %g; more than that protects nobody", LARGEST, self.total_epsilon
            )
        self._plan = dp.Plan(
            epsilon=epsilon,
            delta=self.total_delta,
            stages={planned.name: planned.query for planned, _ in self._collected},
            shares={planned.name: one.weight for planned, one in self._collected},
        )
        for planned, _ in self._collected:
            planned.fill(self._plan[planned.name])


class NaiveBudgetAccountant(BudgetAccountant):
    """Takes what PipelineDP's accountant of this name takes. The account is by privacy loss distributions all the same.

    >>> NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6).total_epsilon
    1
    """


class PLDBudgetAccountant(BudgetAccountant):
    """Takes what PipelineDP's accountant of this name takes.

    Args:
        total_epsilon, total_delta, num_aggregations, aggregation_weights: as there.
        pld_discretization: is not needed here and decides nothing.
    """

    def __init__(
        self,
        total_epsilon: float,
        total_delta: float,
        pld_discretization: float = 1e-4,
        num_aggregations: int | None = None,
        aggregation_weights: list[float] | None = None,
    ) -> None:
        super().__init__(total_epsilon, total_delta, num_aggregations, aggregation_weights)


def refuse_foreign(accountant: object) -> None:
    """Refuse an accountant that makes no plan.

    Raises:
        RequestError: it is not of this package.
    """
    if not isinstance(accountant, BudgetAccountant):
        raise RequestError(
            field="budget_accountant",
            message="is not from this package, so no plan can be made",
            hint="import NaiveBudgetAccountant or PLDBudgetAccountant from dp_pipelines.transforms.pipeline_dp",
        )
