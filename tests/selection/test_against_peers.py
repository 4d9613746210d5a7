"""The truncated geometric strategy against Google's own library, which PipelineDP selects with: the same probabilities.

In: budgets, numbers of partitions and of units. Out: both libraries' probabilities of keeping a partition. Holds: ours are
within a relative 1e-8 in closed form, and the coin, which is rounded down by 2**-64 at each step, within 1e-5.
"""

import itertools
import math

import pytest

from dp_pipelines.selection.truncated_geometric import keep_probability, keep_table
from tests.helpers import peers

SCRIPT = """
from pydp.algorithms.partition_selection import create_partition_strategy
answer = []
for epsilon, delta, partitions in question["budgets"]:
    strategy = create_partition_strategy("truncated_geometric", epsilon, delta, partitions)
    answer.append([strategy.probability_of_keep(users) for users in question["users"]])
print(json.dumps(answer))
"""
BUDGETS = list(itertools.product((0.01, 0.1, 1.0, 5.0), (1e-12, 1e-6, 1e-2), (1, 3, 50)))
USERS = [0, *range(1, 60), 100, 211, 657, 1000, 5000, 100_000]

Budget = tuple[float, float, int]
Kept = list[list[float]]


@pytest.fixture(scope="module")
def theirs() -> Kept:
    """Their probabilities, by budget and number of users."""
    answer: Kept = peers.ask(SCRIPT, {"budgets": BUDGETS, "users": USERS})
    return answer


def share(budget: Budget) -> tuple[float, float]:
    """Epsilon and delta of one of the partitions of a unit, as they split them."""
    epsilon, delta, partitions = budget
    return epsilon / partitions, -math.expm1(math.log1p(-delta) / partitions)


def by_formula(budget: Budget, users: int) -> float:
    """Our probability in closed form."""
    return float(keep_probability(users, *share(budget)))


def by_coin(budget: Budget, users: int) -> float:
    """The probability of our coin."""
    table = keep_table(*share(budget))
    return int(table[users]) / 2**64 if users < len(table) else 1.0


def farthest(ours: Kept, theirs: Kept, relative: float, absolute: float) -> float:
    """The largest distance, in units of what is tolerated."""
    return max(
        abs(a - b) / (relative * b + absolute)
        for row, other in zip(ours, theirs, strict=True)
        for a, b in zip(row, other, strict=True)
    )


@pytest.mark.slow
def test_their_library_keeps_as_often_as_the_closed_form_says(theirs: Kept) -> None:
    ours = [[by_formula(budget, users) for users in USERS] for budget in BUDGETS]
    assert farthest(ours, theirs, 1e-8, 1e-18) <= 1


@pytest.mark.slow
def test_their_library_keeps_as_often_as_our_coin(theirs: Kept) -> None:
    ours = [[by_coin(budget, users) for users in USERS] for budget in BUDGETS]
    assert farthest(ours, theirs, 1e-5, 1e-12) <= 1


@pytest.mark.slow
def test_a_budget_split_in_another_way_and_a_unit_too_many_would_be_found(theirs: Kept) -> None:
    one_more = [[by_coin(budget, users + 1) for users in USERS] for budget in BUDGETS]
    assert farthest(one_more, theirs, 1e-5, 1e-12) > 100
    plain = [[float(keep_probability(n, e / p, d)) for n in USERS] for e, d, p in BUDGETS]
    assert farthest(plain, theirs, 1e-8, 1e-18) > 100
    # Even the small difference between both ways to split delta is seen.
    linear = [[float(keep_probability(n, e / p, d / p)) for n in USERS] for e, d, p in BUDGETS]
    assert farthest(linear, theirs, 1e-8, 1e-18) > 100
