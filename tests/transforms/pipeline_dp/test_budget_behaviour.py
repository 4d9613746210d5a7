"""What PipelineDP's own tests assert of its accountants, asserted of the drop-in's."""

from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from tests.helpers.drop_in import extractors, ours, theirs

ACCOUNTANTS = [ours.NaiveBudgetAccountant, ours.PLDBudgetAccountant]


def select(accountant: Any, *weights: float) -> None:
    """Selections of these weights."""
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    for weight in weights:
        engine.select_partitions([], theirs.SelectPartitionsParams(1, budget_weight=weight), extractors())


def epsilons(accountant: Any) -> list[float]:
    """Of the selections, as planned: their coins have no other noise."""
    return [record.epsilon for record in accountant.plan.mechanisms]


@pytest.mark.parametrize("of_kind", ACCOUNTANTS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-10), (0.5, -1e-10), (-1, 0)])
def test_a_budget_below_zero_is_refused(of_kind: Any, epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="epsilon|delta"):
        of_kind(total_epsilon=epsilon, total_delta=delta)


@pytest.mark.parametrize("of_kind", ACCOUNTANTS)
def test_budget_for_a_mechanism_of_ones_own_is_refused(of_kind: Any) -> None:
    accountant = of_kind(1, 1e-6)
    kind = theirs.aggregate_params.MechanismType.LAPLACE
    with pytest.raises(RequestError, match="SampleAndAggregate"):
        accountant.request_budget(kind, weight=4, count=2)
    accountant.compute_budgets()
    with pytest.raises(RequestError, match="does not exist yet"):
        _ = accountant.plan


def test_selections_share_the_budget_by_their_weights() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    select(accountant, 1, 3)
    accountant.compute_budgets()
    small, large = epsilons(accountant)
    assert large / small == pytest.approx(3, rel=0.05)


def test_scopes_share_the_budget_by_their_weights() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    with accountant.scope(weight=0.4):
        select(accountant, 1, 3)
    with accountant.scope(weight=0.6):
        select(accountant, 1, 4)
    accountant.compute_budgets()
    found = epsilons(accountant)
    shares = [number / sum(found) for number in found]
    assert shares == pytest.approx([0.4 / 4, 0.4 * 3 / 4, 0.6 / 5, 0.6 * 4 / 5], rel=0.05)


def test_an_aggregation_outside_of_scopes_weighs_one() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    select(accountant, 1)
    with accountant.scope(weight=0.5):
        select(accountant, 1)
    accountant.compute_budgets()
    whole, half = epsilons(accountant)
    assert whole / half == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("of_kind", ACCOUNTANTS)
def test_budgets_are_computed_once_and_nothing_is_asked_after_it(of_kind: Any) -> None:
    accountant = of_kind(1, 1e-6)
    select(accountant, 1)
    accountant.compute_budgets()
    with pytest.raises(Exception, match="twice"):
        accountant.compute_budgets()
    with pytest.raises(RequestError, match="after compute_budgets"):
        select(accountant, 1)


@pytest.mark.parametrize("declared", [{"num_aggregations": 2}, {"aggregation_weights": [1, 1]}])
def test_as_many_aggregations_as_declared_are_needed(declared: dict[str, Any]) -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6, **declared)
    select(accountant, 1)
    with pytest.raises(ValueError, match="aggregation"):
        accountant.compute_budgets()


def test_declared_weights_are_those_of_the_aggregations() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6, aggregation_weights=[1, 2, 5])
    select(accountant, 1, 2, 5)
    accountant.compute_budgets()
    found = epsilons(accountant)
    assert [number / sum(found) for number in found] == pytest.approx([1 / 8, 2 / 8, 5 / 8], rel=0.05)


def test_a_report_that_no_aggregation_was_given_says_so() -> None:
    with pytest.raises(ValueError, match="pass it as out_explain_computation_report"):
        ours.ExplainComputationReport().text()


def test_a_report_before_the_budgets_says_so() -> None:
    accountant, report = ours.NaiveBudgetAccountant(1, 1e-6), ours.ExplainComputationReport()
    params = theirs.AggregateParams(
        metrics=[theirs.Metrics.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1
    )
    ours.DPEngine(accountant, ours.LocalBackend()).aggregate([], params, extractors(), [1], report)
    with pytest.raises(RequestError, match="has no budget yet"):
        report.text()
