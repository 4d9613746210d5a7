"""The truncated geometric strategy: keeps a partition as often as any (epsilon, delta)-DP coin per partition can.

In: epsilon and delta of one partition's coin. Out: for each number of units the probability of keeping the partition,
in closed form for plans and reports, and as integers for comparison with 64 random bits. Holds: the integer table
alone makes the coin exactly (epsilon, delta)-DP when one unit is added or removed, with no float between the random
word and the decision (docs/proofs/selection.md); no (epsilon, delta)-DP strategy keeps a partition more often than the
closed form says. Not covered: a unit in several partitions flips several coins; the plan pays for each.

Source: Desfontaines, Voss, Gipson, Mandayam, "Differentially private partition selection", PoPETs 2022, theorem 1.
"""

import decimal
import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Thresholds = npt.NDArray[np.uint64]

ONE = 2**64
"""Probability 1 in the units of the coin."""

LONGEST_TABLE = 2**21
"""The largest number of units a table may hold: 16 MiB, 1 s to build. Beyond it nobody would use this strategy."""

SHRINK = 1e-12
"""The closed form lowers epsilon and delta by this relative amount, which far outweighs the rounding of float64."""

LARGEST_EPSILON = 200.0
"""A larger epsilon gains nothing: with a delta of at least 2**-64, one more unit already decides."""


def keep_probability(users: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
    """Compute the probability that a partition is kept, by its number of units.

    Args:
        users: whole numbers of any shape; with fewer than 1 a partition is never kept.
        epsilon: of the coin, above 0.
        delta: of the coin, above 0 and below 1.

    Returns:
        float64 probabilities of the same shape, at most the optimum and within a relative 1e-10 of it.

    Raises:
        RequestError: an argument is out of its range.

    >>> keep_probability([0, 1, 14, 30], 1.0, 1e-6).round(6).tolist()
    [0.0, 1e-06, 0.699887, 1.0]
    """
    counts = np.asarray(users)
    if counts.dtype.kind not in "iu":
        raise RequestError(field="users", message="must be whole numbers")
    epsilon, delta = _checked(epsilon, delta)
    first, last, at_first = _crossovers(epsilon, delta)
    n = np.clip(counts.astype(np.float64), 0, last + 1)
    rising = np.expm1(np.minimum(n, first) * epsilon) / math.expm1(epsilon) * delta
    m = np.maximum(n - first, 0) * epsilon
    settling = -np.expm1(-m) * (1 + delta / math.expm1(epsilon)) + np.exp(-m) * at_first
    below_one = np.where(n <= first, rising, settling) * (1 - 2**-50)
    probabilities: Floats = np.where(n <= last, below_one, 1.0)
    return probabilities


def half_keep_users(epsilon: float, delta: float) -> int:
    """Return the smallest number of units with which a partition is kept at least as often as not.

    >>> half_keep_users(1.0, 1e-6)
    14
    """
    smaller_epsilon, smaller_delta = _checked(epsilon, delta)
    # By symmetry (n units kept against last + 1 - n units dropped) it lies near the middle.
    middle = _crossovers(smaller_epsilon, smaller_delta)[1] / 2
    low, high = 0, max(1, math.ceil(2 * middle) + 2)
    while high - low > 1:
        half = (low + high) // 2
        if float(keep_probability(half, epsilon, delta)) >= 0.5:
            high = half
        else:
            low = half
    return high


def keep_table(epsilon: float, delta: float) -> Thresholds:
    """Return entries to compare a uniform 64-bit word with, by the number of units: keep if the word is below the entry.

    Entry n divided by 2**64 is the probability of keeping a partition with n units. It follows the optimal recursion in
    integers, rounded so that both sides of (epsilon, delta)-DP hold exactly between any entry and the next.

    Returns:
        uint64 entries for 0, 1, ... units, read-only. A partition with more units than there are entries is always kept.

    Raises:
        RequestError: an argument is out of its range; a delta below 2**-64 keeps nothing; an epsilon so small that
            more than two million units would still not decide.

    >>> table = keep_table(1.0, 1e-6)
    >>> len(table), int(table[0]), round(int(table[14]) / 2**64, 5)
    (28, 0, 0.69989)
    """
    checks.number(epsilon, "selection.epsilon", above=0)
    checks.number(delta, "selection.delta", above=0, below=1)
    # True equals 1 but is not a number; it must not reach the cache.
    return _table(float(epsilon), float(delta))


@functools.lru_cache(maxsize=64)
def _table(epsilon: float, delta: float) -> Thresholds:
    grain = math.floor(delta * ONE)
    if not grain >= 1:
        raise RequestError(
            field="selection.delta",
            message="must be at least 2**-64 for one partition",
            hint="raise delta or lower the bounds",
        )
    if not _crossovers(*_checked(epsilon, delta))[1] < LONGEST_TABLE:
        raise RequestError(
            field="strategy",
            message="truncated_geometric would need millions of units to keep a partition",
            hint="take weighted_gaussian, or raise epsilon or lower max_partitions_contributed",
        )
    growth, decay, bits = _powers(min(epsilon, LARGEST_EPSILON))
    entries = [0]
    while True:
        kept = entries[-1]
        dropped = ONE - kept - grain
        if dropped <= 0:
            break
        # Kept at most e^epsilon times as often plus delta; dropped at least as often as e^-epsilon allows.
        entries.append(min((kept * growth >> bits) + grain, ONE + (-dropped * decay >> bits)))
    table = np.array(entries, np.uint64)
    table.setflags(write=False)
    return table


def _checked(epsilon: Any, delta: Any) -> tuple[float, float]:
    """Return both parameters a little smaller, so that rounding in the closed form stays on the safe side."""
    epsilon = checks.number(epsilon, "selection.epsilon", above=0)
    delta = checks.number(delta, "selection.delta", above=0, below=1)
    return min(epsilon, LARGEST_EPSILON) * (1 - SHRINK), delta * (1 - SHRINK)


def _crossovers(epsilon: float, delta: float) -> tuple[float, float, float]:
    """Return where the probability stops rising by e^epsilon, where it reaches 1, and its value at the first of these."""
    over = math.expm1(epsilon)
    # Keep the logarithms separate: adding them first would lose a small delta or a large epsilon.
    ratio = math.log(over + 2 * delta) - math.log(delta) - math.log(over + 2)
    first = 1.0 + max(0, math.floor(ratio / epsilon))
    at_first = min(1.0, math.expm1(first * epsilon) / over * delta)
    last = first + math.floor(math.log1p(over * (1 - at_first) / delta) / epsilon)
    return first, last, at_first


def _powers(epsilon: float) -> tuple[int, int, int]:
    """Return e^epsilon from below and e^-epsilon from above, as integers in units of 2**-bits."""
    bits = 128
    context = decimal.Context(prec=150)
    exact = decimal.Decimal(epsilon)
    # Decimal.exp is rounded correctly at 150 digits; the integer parts below have at most 128 binary and 87 decimal digits.
    growth = math.floor(context.multiply(context.exp(exact), 2**bits)) - 1
    decay = math.floor(context.multiply(context.exp(-exact), 2**bits)) + 2
    return max(growth, 2**bits), min(decay, 2**bits), bits
