"""The rough estimate at many noise levels, for searches: sums over arrays instead of loops over objects.

In: what mechanisms do at noise level 1, as `estimate.Terms`. Out: a function of the level. Holds: sums have the bits of those
in `estimate.rough`, because numbers are added in the same order. Not covered: sums over samples, which `estimate.rough` adds.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dp_pipelines.accounting.estimate import Terms, epsilon_of_sums
from dp_pipelines.kernels.lattice import Floats


def columns(part: Terms, runs: int, *, scaled: bool) -> Floats:
    """Return what some mechanisms add to the sums, in the order in which `estimate.rough` adds it.

    Args:
        part: what they do at noise level 1, without samples.
        runs: how often.
        scaled: whether their noise follows the level.

    Returns:
        float64 of shape (4, mechanisms): the squared shift or the loss; how often it counts; 1 where it is a squared shift; 1
        where its noise follows the level.
    """
    assert not part.sampled
    squares = [(part.squares, float(runs), 1.0, float(scaled))] if part.squares else []
    losses = [(loss, float(runs * number), 0.0, float(scaled)) for number, loss in part.losses]
    return np.array([*squares, *losses], np.float64).reshape(-1, 4).T


def cost_by_level(
    parts: Sequence[Floats], log_not_failed: Iterable[float], delta: float, *, against: float
) -> Callable[[float], float]:
    """Return a function from a noise level to an epsilon on the same side of `against` as the one of `estimate.rough`.

    Args:
        parts: what `columns` returns, in order.
        log_not_failed: of all runs, in order.
        delta: of all runs.
        against: what the epsilon is compared with (`estimate.epsilon_of_sums`).

    >>> one = columns(Terms(losses=((1, 3.0),)), 1, scaled=True)
    >>> cost_by_level([one], [], 1e-6, against=1.5)(2.0)
    1.5
    """
    failed = 0.0
    for logarithm in log_not_failed:
        failed += logarithm
    rest = delta + math.expm1(failed)
    number, times, is_square, is_scaled = np.concatenate([np.empty((4, 0)), *parts], axis=1)
    # With noise in proportion to the level a loss falls with the level, and a squared shift with its square.
    power = np.where(is_scaled != 0, np.where(is_square != 0, 2, 1), 0)
    squared = np.flatnonzero(is_square)
    largest = [float(number[(power == n) & (is_square != 0)].max(initial=0.0)) for n in (0, 2)]

    def cost(level: float) -> float:
        shifts = number / np.array([1.0, level, level**2])[power]
        variances = np.minimum(shifts, shifts * shifts)
        variances[squared] = shifts[squared]
        any_square = largest[0] > 0 or largest[1] / level**2 > 0
        added = math.inf if any_square else _in_order(times * shifts)
        return epsilon_of_sums(_in_order(times * variances), added, rest, against=against)

    return cost


def _in_order(numbers: Floats) -> float:
    """Return the sum as a loop finds it. NumPy's own `sum` adds in pairs, which gives other last bits."""
    return float(np.add.accumulate(numbers)[-1]) if len(numbers) else 0.0
