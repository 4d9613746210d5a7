"""Bounds of values that are chosen from a noisy histogram, where a metric says `auto`.

In: a declared range; noisy counts of rows over log-spaced bins. Out: the edges of these bins; a pair of bounds. Holds: bounds are
a function of released counts and public numbers (post-processing); they lie within the declared range, the lower one below the
upper one, whatever the counts are. Not covered: which share of the budget the histogram has (`phases`), and the noise of what is
released with the bounds (`budget.resolve`).

What is minimised is the squared error of the sum of a typical partition: what clamping takes from it, squared, and the
variance of the noise, which grows with the square of the bound. Clamping is judged by the histogram over all rows, as if each
partition had its values; what it takes at one end and what it adds at the other are taken to cancel, but for a part `APART` of
both together, since partitions may differ. How many rows the typical partition has is a guess:

* the histogram holds at most `MOST_ROWS` rows of a unit, the stage up to r times as many: it is taken to have sqrt(r) times as
  many rows, the middle between 1 and r;
* of a public list, the partition has `SKEW` times as many rows as an average one, since squared errors are mostly those of large
  partitions;
* of private ones, whose number is not known, it has the geometric middle between as many rows as it takes to stand out of the
  noise, and all of them.

docs/benchmarks/bounds.md has what the guesses cost. The bounds of a mean or a variance are chosen as those of its sum.

May import numpy.
"""

import math
from collections.abc import Sequence

import numpy as np

COLUMN = "_all"
"""The constant column by which the rows of a histogram over everything are partitioned."""

MOST_ROWS = 4
"""Rows of one unit in the histogram: noise grows with it, and what it shows, for most data, does not."""

PART = 0.1
"""The part of its stage's budget that the histogram has. Squared noise adds up to about 1 - 2 * PART of it for Gaussian noise, so
that the stage's own noise grows by less than a hundredth."""

APART = 0.25
"""How far partitions are taken to differ in what clamping does to them at its two ends. Without such a term, losses that cancel
over all rows would count for nothing, though partitions of large positive and of large negative values had them."""

SKEW = 2.0
"""The root of the mean square of partition sizes over their mean: 2.1 for Zipf's law with exponent 0.8 over 200 partitions."""

PER_SIGN = 64
"""Edges of each sign: by factors of sqrt(2), from the larger end of the range down to a part in 2**32 of it."""

FALSE_ALARM = 0.01
"""The probability with which noise alone makes any empty bin look as if it held rows."""

OUTERMOST = 1.7e308
"""Finite values beyond the declared range are in the two outermost bins."""


def edges(low: float, high: float) -> tuple[float, ...]:
    """The rising edges of the bins of a declared range, the two outermost bins left out.

    Args:
        low, high: finite, low < high.

    >>> [round(edge, 3) for edge in edges(0.0, 8.0)[-4:]]
    [2.828, 4.0, 5.657, 8.0]
    >>> edges(-8.0, 8.0)[0], 0.0 in edges(-8.0, 8.0), len(edges(-8.0, 8.0))
    (-8.0, True, 131)
    """
    largest = max(abs(low), abs(high))
    sizes = [largest * 2.0 ** (-place / 2) for place in range(PER_SIGN + 1)]
    inner = [sign * size for sign in (-1.0, 1.0) for size in sizes] + [0.0]
    return tuple(sorted({low, high, *(edge for edge in inner if low < edge < high)}))


def bins(low: float, high: float) -> tuple[float, ...]:
    """The edges of all bins: those of the range, and one beyond it on each side."""
    return (-OUTERMOST, *edges(low, high), OUTERMOST)


def choose(
    counts: Sequence[float],
    *,
    within: tuple[float, float],
    stddev: float,
    law: str,
    multiple: float,
    centred: bool,
    partitions: int | None = None,
    rows_beyond: float = 1.0,
    low: float | None = None,
    high: float | None = None,
) -> tuple[float, float]:
    """The bounds with the least expected error.

    Args:
        counts: noisy numbers of rows, one for each of the `bins` of the range.
        within: the declared range.
        stddev: of the noise of each count.
        law: of that noise, `laplace` or `gaussian`.
        multiple: standard deviation of the noise of a sum, per unit of the largest magnitude that a summand may have.
        centred: whether summands are distances from the middle of the bounds.
        partitions: their public number; None where they are private.
        rows_beyond: how many times as many rows the stage may have as the histogram.
        low, high: the bound that is given; None chooses it.

    Returns:
        low < high, both within the range. The whole range where no bin stands out of the noise.

    >>> seen = [0.0] * (len(bins(0.0, 1024.0)) - 1)
    >>> seen[edges(0.0, 1024.0).index(16.0)] = 10_000.0  # bin 0 lies below the range
    >>> choose(seen, within=(0.0, 1024.0), stddev=10.0, law="gaussian", multiple=4.0, centred=False)
    (0.0, 16.0)
    """
    lows = np.array(edges(*within) if low is None else [low])
    highs = np.array(edges(*within) if high is None else [high])
    kept = np.asarray(counts, float)
    kept = np.where(kept >= stands_out(len(kept), stddev, law), kept, 0.0)
    total = float(kept.sum())
    if total <= 0:
        return float(lows[0]), float(highs[-1])
    inner = np.array(edges(*within))
    values = np.concatenate([inner[:1], inner[:-1] / 2 + inner[1:] / 2, inner[-1:]])
    total *= math.sqrt(max(rows_beyond, 1.0))
    typical = total / partitions * SKEW if partitions is not None else math.sqrt(total * max(multiple, 1.0))
    typical = min(typical, total)
    scale = max(abs(within[0]), abs(within[1]))  # squares of ranges near the ends of float64 would overflow
    shares, values, low_of, high_of = kept / kept.sum(), values / scale, lows / scale, highs / scale
    below = np.array([float(shares @ np.maximum(at - values, 0.0)) for at in low_of]) * typical
    above = np.array([float(shares @ np.maximum(values - at, 0.0)) for at in high_of]) * typical
    if centred:
        largest = (high_of[None, :] - low_of[:, None]) / 2
    else:
        largest = np.maximum(np.abs(low_of)[:, None], np.abs(high_of)[None, :])
    balance, both = above[None, :] - below[:, None], above[None, :] + below[:, None]
    error = balance**2 + (APART * both) ** 2 + (multiple * largest) ** 2
    error = np.where(lows[:, None] < highs[None, :], error, math.inf)
    # Of bounds that are equally good the widest: what lies between was not seen, and costs nothing.
    width = highs[None, :] - lows[:, None]
    best = np.where(error <= error.min() * (1 + 1e-12), width, -1.0)
    row, column = np.unravel_index(int(np.argmax(best)), best.shape)
    return float(lows[row]), float(highs[column])


def stands_out(count: int, stddev: float, law: str, false_alarm: float = FALSE_ALARM) -> float:
    """What so many noises stay below together, but with a small probability (by the union bound)."""
    if law == "laplace":
        return stddev / math.sqrt(2) * math.log(count / (2 * false_alarm))
    return stddev * math.sqrt(2 * math.log(count / (2 * false_alarm)))
