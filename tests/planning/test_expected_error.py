"""The fast scores of a search are those of the straightforward computation, bit for bit, and so are the choices.

In: drawn plans of several stages. Holds: each plan that a search compares has the score that adding up all stages anew gives.
Not covered: whether the score is a good one (test_weights).
"""

import cProfile
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.accounting import comparison
from dp_pipelines.accounting.comparison import rough_epsilon
from dp_pipelines.accounting.estimate import epsilon_of_sums, rough
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of as record_kind_of
from dp_pipelines.errors import BudgetError
from dp_pipelines.metrics.base import UNITS
from dp_pipelines.planning import expected_error, reserve, stage
from dp_pipelines.planning.candidate import SELECTION_DELTA, Candidate, Chosen, Queries, TotalBudget
from dp_pipelines.planning.noise_levels import noise_search
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import PrivatePartitions, Query

PUBLIC = dp.PublicPartitions(keys=[("a",), ("b",)])


class Straightforward:
    """Scores by their definition: every sum is made anew for every plan."""

    def __init__(self, queries: Queries, budget: TotalBudget, chosen: Chosen) -> None:
        self.queries, self.budget, self.chosen = queries, budget, dict(chosen)

    def level(self) -> float:
        return self._level(self.chosen)

    @property
    def score(self) -> float:
        return self._score(self.chosen)

    def score_with(self, name: str, candidate: Candidate) -> float:
        return self._score({**self.chosen, name: candidate})

    def take(self, name: str, candidate: Candidate) -> None:
        self.chosen[name] = candidate

    def _level(self, chosen: Chosen) -> float:
        budget, stages = self.budget, len(self.queries)
        free, asked = (
            [expected_error.terms(self.queries[n], chosen[n], budget, stages, asked=fixed) for n in chosen]
            for fixed in (False, True)
        )

        def cost(level: float) -> float:
            return rough([*asked, *(terms.at(level) for terms in free)], budget.delta, runs=budget.runs)

        if not any(candidate.weights for candidate in chosen.values()):
            if cost(1.0) <= budget.epsilon:
                return 1 / budget.epsilon
            raise BudgetError(field="budget", message="is too small")
        return noise_search.least_level(cost, budget.epsilon, start=1 / budget.epsilon, tolerance=1e-3)

    def _score(self, chosen: Chosen) -> float:
        try:
            level = self._level(chosen)
        except BudgetError:
            return math.inf
        total = 0.0
        for name, candidate in chosen.items():
            query, score = self.queries[name], 0.0
            for item, law in candidate.laws.items():
                if item != "selection":
                    noise = candidate.multiplier(item, level, self.budget) * (math.sqrt(2) if law == "laplace" else 1)
                    noise *= reserve.at_middle(query.bounds.candidates, law)
                    score += stage.noisy_statistics(query, candidate.centred)[item] * math.log(noise)
            if isinstance(query.partitions, PrivatePartitions):
                half = expected_half_keep(query, candidate, level, self.budget, len(self.queries))
                score += query.partitions.weight * math.log(half)
            total += candidate.of_weight * score
        return total


def expected_half_keep(query: Query, candidate: Candidate, level: float, budget: TotalBudget, stages: int) -> float:
    most = query.bounds.max_partitions
    delta = SELECTION_DELTA * budget.delta / (budget.runs * stages * most)
    if candidate.strategy == "truncated_geometric":
        epsilon = candidate.coin_epsilon(level, query)
        return 1 + math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon if epsilon < 700 else 1.0
    item = "selection" if "selection" in candidate.laws else UNITS.name
    noise = candidate.multiplier(item, level, budget)
    if candidate.strategy != "weighted_gaussian":
        noise *= reserve.at_middle(query.bounds.candidates, candidate.laws[item])
    if candidate.laws[item] == "laplace":
        return 1 + noise * max(0.0, math.log(1 / (2 * delta)))
    tail = NormalDist().inv_cdf(1 - delta) if delta > 1e-15 else math.sqrt(2 * math.log(1 / delta))
    if candidate.strategy == "weighted_gaussian":
        return math.sqrt((1 + most) / 2) * (1 / math.sqrt(most) + noise * tail)
    return 1 + noise * tail


class Both(expected_error.ChosenPlan):
    """Fails where the two differ in a bit."""

    def __init__(self, errors: expected_error.ExpectedErrors, chosen: Chosen) -> None:
        super().__init__(errors, chosen)
        self.straightforward = Straightforward(errors.queries, errors.budget, chosen)

    def score_with(self, name: str, candidate: Candidate) -> float:
        fast = super().score_with(name, candidate)
        assert fast == self.straightforward.score_with(name, candidate)
        return fast

    def take(self, name: str, candidate: Candidate) -> None:
        super().take(name, candidate)
        self.straightforward.take(name, candidate)

    def level(self) -> float:
        fast = super().level()
        assert fast == self.straightforward.level()
        return fast


@st.composite
def metrics(draw: st.DrawFn, stddevs: bool) -> dict[str, dp.Metric]:
    weight = st.floats(0.1, 4)
    made: dict[str, dp.Metric] = {"rows": dp.Count(weight=draw(weight))}
    if stddevs and draw(st.booleans()):
        made["rows"] = dp.Count(stddev=draw(st.floats(200, 500)))
    if draw(st.booleans()):
        made["total"] = dp.Sum("v", min_value=draw(st.integers(-9, 0)), max_value=draw(st.integers(1, 99)))
    if draw(st.booleans()):
        made["mean"] = dp.Mean("v", min_value=0, max_value=60, weight=draw(weight))
    if draw(st.booleans()):
        made["users"] = dp.PrivacyIdCount(weight=draw(weight))
    return made


@st.composite
def queries(draw: st.DrawFn, pure: bool) -> Query:
    strategies = ("laplace", "gaussian", "weighted_gaussian", "truncated_geometric", "auto")
    private = None if pure else dp.PrivatePartitions(strategy=draw(st.sampled_from(strategies)))
    return Query(
        privacy_unit="u",
        partition_by="k",
        metrics=draw(metrics(not pure)),
        bounds=dp.ContributionBounds(
            max_partitions_contributed=draw(st.integers(1, 40)),
            max_contributions_per_partition=draw(st.integers(1, 4)),
        ),
        partitions=draw(st.sampled_from([PUBLIC, private])) if private else PUBLIC,
    )


@st.composite
def plans(draw: st.DrawFn) -> dict[str, object]:
    pure = draw(st.booleans()) and draw(st.booleans())
    stages = draw(st.lists(queries(pure), min_size=1, max_size=5))
    return {
        "epsilon": draw(st.sampled_from([0.05, 0.5, 1.0, 3.0, 8.0])),
        "delta": 0.0 if pure else draw(st.sampled_from([1e-9, 1e-6, 1e-3])),
        "runs": draw(st.sampled_from([1, 2, 30])),
        "stages": {f"s{number}": query for number, query in enumerate(stages)},
        "shares": {f"s{number}": draw(st.floats(0.1, 3)) for number in range(len(stages))},
    }


@given(plans())
@settings(deadline=None, max_examples=15)
def test_every_score_of_a_search_is_that_of_the_straightforward_computation(arguments: dict[str, object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected_error, "ChosenPlan", Both)
        fast = _calibrated(arguments)

        def straightforward(errors: expected_error.ExpectedErrors, chosen: Chosen) -> Straightforward:
            return Straightforward(errors.queries, errors.budget, chosen)

        patch.setattr(expected_error, "ChosenPlan", straightforward)
        assert fast == _calibrated(arguments)


@pytest.mark.parametrize("mixed", [False, True])
def test_scores_of_plans_all_of_whose_noise_is_asked_for_are_the_same_too(mixed: bool) -> None:
    """There is no level to look for: each way to run them costs what it costs, and is good as long as that fits."""
    bounds = dp.ContributionBounds(max_partitions_contributed=9, max_contributions_per_partition=2)
    asked: dict[str, dp.Metric] = {"rows": dp.Count(stddev=300.0), "users": dp.PrivacyIdCount(stddev=90.0)}
    free: dict[str, dp.Metric] = {"rows": dp.Count()}
    stages = {
        f"s{number}": Query(privacy_unit="u", partition_by="k", metrics=metrics, bounds=bounds, partitions=PUBLIC)
        for number, metrics in enumerate([asked, free if mixed else asked])
    }
    arguments: dict[str, object] = {"epsilon": 2.0, "delta": 1e-6, "stages": stages}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected_error, "ChosenPlan", Both)
        assert not isinstance(_calibrated(arguments), str)


def _calibrated(arguments: dict[str, object]) -> object:
    try:
        return Plan(**arguments).calibrated  # type: ignore[arg-type]
    except BudgetError as error:
        return error.message


@given(plans())
@settings(deadline=None, max_examples=10)
def test_the_noise_of_others_without_a_stage_is_that_of_the_straightforward_computation(
    arguments: dict[str, object],
) -> None:
    try:
        plan = Plan(**arguments)  # type: ignore[arg-type]
    except BudgetError:
        return
    fixed = {(name, item) for name, query in plan.queries.items() for item in stage.fixed_noise(query)}
    whole = rough_epsilon(plan.mechanisms, plan.delta, runs=plan.runs)
    for described in plan.to_json()["stages"]:
        left = [record for record in plan.mechanisms if record.stage != described["name"]]

        def cost(level: float, left: list[MechanismRecord] = left) -> float:
            levels = [1.0 if (r.stage, r.name) in fixed else level for r in left]
            terms = [record_kind_of(r).terms(r).at(at) for r, at in zip(left, levels, strict=True)]
            return rough(terms, plan.delta, runs=plan.runs)

        if "noise_of_others_without" in described:
            expected = noise_search.least_level(cost, whole, start=1.0, tolerance=1e-3)
            assert described["noise_of_others_without"] == expected


@given(
    squares=st.floats(1e-6, 1e4),
    added=st.floats(1e-3, 1e4) | st.just(math.inf),
    rest=st.floats(1e-12, 0.1),
    against=st.floats(1e-3, 1e3),
)
def test_an_epsilon_that_is_only_compared_is_on_the_side_of_the_whole_one(
    squares: float, added: float, rest: float, against: float
) -> None:
    whole = epsilon_of_sums(squares, added, rest)
    limits = (against, whole, math.nextafter(whole, 0), math.nextafter(whole, math.inf))
    for limit in (limit for limit in limits if limit > 1e-300):
        compared = epsilon_of_sums(squares, added, rest, against=limit)
        assert (compared <= limit) == (whole <= limit)


def test_each_further_stage_takes_about_as_many_calls_as_the_one_before() -> None:
    counts = {number: _calls(number) for number in (2, 20, 40, 80)}
    first, then = (counts[40] - counts[20]) / 20, (counts[80] - counts[40]) / 40
    assert then < 1.15 * first
    assert then < 60_000  # 118,000 where each score adds up all stages


def test_stages_that_differ_in_names_alone_are_priced_once() -> None:
    def compared(number: int) -> int:
        return len(set(map(repr, _plan(number, 10).explain()["stages"].values())))

    with pytest.MonkeyPatch.context() as patch:
        counter = _Counter(comparison.compare)
        patch.setattr(comparison, "compare", counter)
        assert compared(6) == 1
    assert counter.calls == 2  # all stages together, and one alone


class _Counter:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.function(*arguments)


def _plan(number: int, step: int = 1) -> Plan:
    stages = {
        f"s{n}": Query(
            privacy_unit="u",
            partition_by="k",
            metrics={"rows": dp.Count(), "total": dp.Sum("v", min_value=0, max_value=10 + n * step)},
            bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
            partitions=dp.PrivatePartitions(),
        )
        for n in range(number)
    }
    return Plan(epsilon=1.0, delta=1e-6, stages=stages)


def _calls(number: int) -> int:
    with cProfile.Profile() as profile:
        _plan(number).to_json()
    return sum(entry.callcount for entry in profile.getstats())
