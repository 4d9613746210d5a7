"""The least noise that meets a budget: searches over a noise level, on the total of all records.

In: the cost of a noise level. Out: the smallest level that costs no more than a budget. Holds: what is returned was itself
accounted for and meets the budget: searches end on their safe side.
"""

import math
from collections.abc import Callable

from dp_pipelines.errors import BudgetError

DOUBLINGS = 60
"""After so many doublings of the noise a budget counts as one that no noise can meet."""


def least_level(
    cost: Callable[[float], float], epsilon: float, *, start: float, tolerance: float, factor: float = 2.0
) -> float:
    """Return the smallest noise level, within a relative tolerance, that costs at most epsilon.

    Args:
        cost: epsilon of a level; falls as the level rises.
        epsilon: what may be spent.
        start: where to begin.
        tolerance: of the level, above 0.
        factor: of the first steps; a factor near 1 where `start` is a good guess.

    Returns:
        A level that was itself found to cost at most epsilon.

    Raises:
        BudgetError: no level meets the budget.

    >>> round(least_level(lambda level: 3 / level, 1.5, start=1.0, tolerance=1e-6), 3)
    2.0
    """
    low = high = start
    if cost(start) <= epsilon:
        while cost(low) <= epsilon:
            low, high, factor = low / factor, low, factor**1.5
            if high < start * 2.0**-DOUBLINGS:
                raise BudgetError(field="budget", message="is met without any noise, because nothing is released")
    else:
        while cost(high) > epsilon:
            low, high, factor = high, high * factor, factor**1.5
            if high > start * 2.0**DOUBLINGS:
                raise BudgetError(field="budget", message="cannot be met with any amount of noise")
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > epsilon else (low, middle)
    return high


def least_integer(cost: Callable[[int], float], epsilon: float, *, start: int, high: int) -> int:
    """Return the smallest whole number, near `start` and at most `high`, that costs at most epsilon.

    Raises:
        BudgetError: not even `high` does.

    >>> least_integer(lambda number: 3000 / number, 1.5, start=1900, high=10**6)
    2000
    """
    step, below, above = 1, start, start
    costs = {start: cost(start)}

    def known(number: int) -> float:
        return costs[number] if number in costs else costs.setdefault(number, cost(number))

    if known(start) <= epsilon:
        while below > 0 and known(below) <= epsilon:
            below, above, step = below - step, below, 2 * step
        below = max(below, 0)
    else:
        while known(above) > epsilon:
            if above >= high:
                raise BudgetError(field="budget", message="cannot be met with any amount of noise")
            below, above, step = above, min(above + step, high), 2 * step
    turn = 0
    while above - below > 1:
        middle = (below + above) // 2
        # Costs are smooth but for rounding: a straight line between the ends finds the place, halving bounds the search.
        if (
            turn % 3 < 2
            and below in costs
            and math.isfinite(costs[below] - costs[above])
            and costs[below] > costs[above]
        ):
            share = (costs[below] - epsilon) / (costs[below] - costs[above])
            middle = min(max(below + math.ceil(share * (above - below)), below + 1), above - 1)
        turn += 1
        below, above = (middle, above) if known(middle) > epsilon else (below, middle)
    return above
