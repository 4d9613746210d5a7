"""Bounds of values that are chosen from a noisy histogram, where a metric says `auto`.

In: a declared range; noisy counts of rows over log-spaced bins. Out: the edges of these bins; a pair of bounds. Holds: bounds are
a function of released counts and public numbers (post-processing); they lie within the declared range, the lower one below the
upper one, whatever the counts are. Not covered: which share of the budget the histogram has (`phases`), and the noise of what is
released with the bounds (`planning.resolve`).
"""

# What is minimised is the squared error of the sum of a typical partition, which has four parts: what clamping takes from
# it on average, squared, where what is taken at one end and what is added at the other cancel; the variance of that, as if
# rows came to partitions by chance; more variance since they do not; and the variance of the noise, which grows with the
# square of the bound. The third part is a part of all that clamping takes and adds together: that of partitions that have
# values of one sign each is 1, that of partitions that have the same values is 0. It is estimated: the histogram is
# released for groups of partitions (`partition_groups`), and groups differ as far as partitions do (`apart`). What is rare
# and large is few rows in each bin: bins that do not stand out of the noise alone are counted with their neighbours
# (`seen`); and noise that makes one end heavier than the other is not taken for a difference (`balanced`). How many rows
# the typical partition has is a guess:
#
# * the histogram holds at most `MOST_ROWS` rows of a unit, the stage up to r times as many: it is taken to have sqrt(r)
#   times as many rows, the middle between 1 and r;
# * of a public list, the partition has `SKEW` times as many rows as an average one, since squared errors are mostly those
#   of large partitions;
# * of private ones, whose number is not known, it has the geometric middle between as many rows as it takes to stand out of
#   the noise, and all of them.
#
# docs/benchmarks/bounds.md has what the guesses cost. The bounds of a mean or a variance are chosen as those of its sum.

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

COLUMN = "_all"
"""The column by which the rows of what is released over everything are partitioned: constant, or a group of partitions."""

MOST_ROWS = 4
"""Rows of one unit in the histogram: noise grows with it, and what it shows, for most data, does not."""

APART = 0.15
"""How far partitions are taken to differ in what clamping does to them, where groups have not been looked at yet, or where there
is one alone. It settles where they are looked at: at the bounds that would be chosen."""

LEAST_APART = 0.04
"""How far partitions are taken to differ at least, where groups show no difference that stands out of chance."""

SKEW = 2.0
"""The root of the mean square of partition sizes over their mean: 2.1 for Zipf's law with exponent 0.8 over 200 partitions."""

PER_SIGN = 64
"""Edges of each sign: by factors of sqrt(2), from the larger end of the range down to a part in 2**32 of it."""

EXACT = 64
"""Laplace noises that are added up exactly; the terms for many more are beyond float64."""

FALSE_ALARM = 0.0005
"""The probability with which noise alone makes any run of so many empty bins look as if it held rows: a false one at large values
makes bounds far too wide."""

UNCANCELLED = 0.25
"""The least where squares of values are summed too."""

ALIKE = 3.0
"""Standard deviations by which two bins of the same size and other sign differ at least, if they are not taken to be equal."""

LONGEST = 4
"""Bins that may stand out of the noise together: longer runs would spread rows over values too far apart."""

LAST_RESORT = 16
"""Bins that may stand out together where no shorter run does, of those whose rows say how wide bounds should be."""

LAST_ALARM = 0.005
"""The probability for them: a false one replaces the whole range, not bounds that are better."""

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
    counts: Sequence[float] | Sequence[Sequence[float]],
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
    cancels: bool = True,
) -> tuple[float, float]:
    """The bounds with the least expected error.

    Args:
        counts: noisy numbers of rows, one for each of the `bins` of the range; or such numbers for each group of partitions.
        within: the declared range.
        stddev: of the noise of each count.
        law: of that noise, `laplace` or `gaussian`.
        multiple: standard deviation of the noise of a sum, per unit of the largest magnitude that a summand may have.
        centred: whether summands are distances from the middle of the bounds.
        partitions: their public number; None where they are private.
        rows_beyond: how many times as many rows the stage may have as the histogram.
        low, high: the bound that is given; None chooses it.
        cancels: whether what clamping does at the two ends cancels; of squares it does not.

    Returns:
        low < high, both within the range. The whole range where no bin of `votes` stands out of the noise.

    >>> seen = [0.0] * (len(bins(0.0, 1024.0)) - 1)
    >>> seen[edges(0.0, 1024.0).index(16.0)] = 10_000.0  # bin 0 lies below the range
    >>> choose(seen, within=(0.0, 1024.0), stddev=10.0, law="gaussian", multiple=4.0, centred=False)
    (0.0, 16.0)
    """
    lows = np.array(edges(*within) if low is None else [low])
    highs = np.array(edges(*within) if high is None else [high])
    groups = np.atleast_2d(np.asarray(counts, float))
    noisy = balanced(groups.sum(axis=0), bins(*within), stddev * math.sqrt(len(groups)))
    kept = seen(noisy, stddev, law, FALSE_ALARM, added=len(groups), longest=LONGEST)
    voting = votes(*within, given=(low, high))
    longest = 0
    while not kept[voting].any():
        longest += 1
        if longest > LAST_RESORT:
            return float(lows[0]), float(highs[-1])
        # Where the whole range is all that is left, a rough idea of how large values are is better.
        alone = np.where(voting, noisy, -math.inf)
        kept[voting] = seen(alone, stddev, law, LAST_ALARM, added=len(groups), longest=longest)[voting]
    total = float(kept.sum())
    inner = np.array(edges(*within))
    values = np.concatenate([inner[:1], inner[:-1] / 2 + inner[1:] / 2, inner[-1:]])
    beyond = math.sqrt(max(rows_beyond, 1.0))
    total *= beyond
    typical = total / partitions * SKEW if partitions is not None else math.sqrt(total * max(multiple, 1.0))
    typical = min(typical, total)
    scale = max(abs(within[0]), abs(within[1]))  # squares of ranges near the ends of float64 would overflow
    shares, values, low_of, high_of = kept / kept.sum(), values / scale, lows / scale, highs / scale
    below = np.maximum(low_of[:, None] - values, 0.0)
    above = np.maximum(values - high_of[:, None], 0.0)
    if centred:
        largest = (high_of[None, :] - low_of[:, None]) / 2
    else:
        largest = np.maximum(np.abs(low_of)[:, None], np.abs(high_of)[None, :])
    added, taken = below @ shares * typical, above @ shares * typical
    balance, both = taken[None, :] - added[:, None], taken[None, :] + added[:, None]
    by_chance = (below**2 @ shares)[:, None] + (above**2 @ shares)[None, :]
    known = balance**2 + by_chance * typical + (multiple * largest) ** 2
    known = np.where(lows[:, None] < highs[None, :], known, math.inf)
    # Of bounds that are equally good the widest: what lies between was not seen, and costs nothing.
    width = highs[None, :] - lows[:, None]

    def best(part: float) -> tuple[int, int]:
        error = known + (part * both) ** 2
        good = np.where(error <= error.min() * (1 + 1e-12), width, -1.0)
        row, column = np.unravel_index(int(np.argmax(good)), good.shape)
        return int(row), int(column)

    row, column = best(APART)
    if len(groups) > 1:
        ends = (above[column] > 0) * shares - (below[row] > 0) * shares
        found = apart(groups, kept, ends, stddev=stddev, typical=typical / beyond)
        row, column = best(found if cancels else max(found, UNCANCELLED))
    return float(lows[row]), float(highs[column])


def votes(low: float, high: float, *, given: tuple[float | None, float | None]) -> npt.NDArray[np.bool_]:
    """The bins whose rows say how wide bounds should be.

    Rows at or beyond an end that is given are clamped to it, whatever the other end is; rows in the bins next to 0 may all be 0,
    which adds nothing to a sum. If these alone were seen, the narrowest bounds would look best, however many other rows there
    are below the noise.

    Args:
        low, high: the declared range.
        given: the lower and the upper bound; None for one that is chosen.

    >>> votes(0.0, 1.0, given=(0.0, None))[:4].tolist()
    [False, False, True, True]
    >>> votes(2.0, 8.0, given=(2.0, None)).tolist()
    [False, True, True, True, True, True]
    """
    begins, ends = np.array(bins(low, high)[:-1]), np.array(bins(low, high)[1:])
    voting: npt.NDArray[np.bool_] = (begins != 0.0) & (ends != 0.0)
    if given[0] is not None:
        voting &= ends > given[0]
    if given[1] is not None:
        voting &= begins < given[1]
    return voting


def apart(groups: Floats, kept: Floats, ends: Floats, *, stddev: float, typical: float) -> float:
    """How far partitions differ in what lies at the two ends: the root of the mean square, as a part of both ends together.

    Groups of partitions differ by the noise, by chance, and as far as partitions differ. The first two are known; what is left
    of the third after as much again as both would vary is its estimate, and at least `LEAST_APART`.

    Args:
        groups: noisy numbers of rows by group and bin.
        kept: by bin, the sum over groups, 0 where it does not stand out of the noise.
        ends: weights of bins: positive at one end, negative at the other. The share of a bin is the best one, since noise is
            the same in all bins.
        stddev: of the noise of each number.
        typical: rows of a typical partition, of those that are counted.

    >>> noiseless = np.array([[100.0, 800.0, 100.0]] * 4)
    >>> opposite = noiseless + np.array([[90.0, 0.0, -90.0], [-90.0, 0.0, 90.0]] * 2)
    >>> [round(apart(seen, seen.sum(axis=0), np.array([-0.1, 0.0, 0.1]), stddev=1.0, typical=500.0), 2)
    ...  for seen in (noiseless, opposite)]
    [0.04, 1.03]
    """
    total, free = float(kept.sum()), len(groups) - 1
    shares, held = kept / total, np.where(kept > 0, groups, 0.0)
    size = float(np.abs(ends) @ shares)
    if not size > 0:
        return LEAST_APART
    more = ends - float(ends @ shares)
    found = (held - held.sum(axis=1)[:, None] * shares) @ more
    explained = free * stddev**2 * float(more**2 @ (kept > 0)) + free / len(groups) * total * float(more**2 @ shares)
    explained *= 1 + math.sqrt(2 / free)
    # Partitions of n rows that differ by a part each: the sum of n**2 is `SKEW * typical` times that of n.
    whole = total * typical * SKEW * free / len(groups) * size**2
    return max(LEAST_APART, math.sqrt(max(float(found @ found) - explained, 0.0) / whole))


def balanced(noisy: Floats, at: Sequence[float], stddev: float) -> Floats:
    """The numbers with those of bins averaged that differ in sign and else in nothing that could not be noise or chance.

    Where values have both signs alike, one end alone would else look heavy, and bounds be moved to make up for that.

    Args:
        noisy: numbers by bin.
        at: edges of the bins.
        stddev: of the noise of each number.

    >>> balanced(np.array([90.0, 500.0, 300.0, 110.0]), [-2.0, -1.0, 0.0, 1.0, 2.0], 20.0).tolist()
    [100.0, 500.0, 300.0, 100.0]
    """
    bounds_of = np.asarray(at, float)
    mirror = np.searchsorted(bounds_of, -bounds_of[1:]).clip(0, len(noisy) - 1)
    found = (bounds_of[mirror] == -bounds_of[1:]) & (bounds_of[mirror + 1] == -bounds_of[:-1])
    other = noisy[mirror]
    varies = 2 * stddev**2 + np.maximum(noisy + other, 0.0)
    alike = found & ((noisy - other) ** 2 < ALIKE**2 * varies)
    return np.where(alike, noisy / 2 + other / 2, noisy)


def seen(
    noisy: Floats, stddev: float, law: str, false_alarm: float, *, added: int = 1, longest: int | None = None
) -> Floats:
    """The number of each bin as far as it stands out of the noise: alone, else together with those of neighbouring bins.

    A run of bins that stands out is spread evenly over them. Shorter runs come first, of runs of one length that with the last
    bins. Noise alone makes a run of some length stand out with the given probability at most.

    Args:
        noisy: numbers by bin.
        stddev, law: of a noise.
        false_alarm: the probability.
        added: how many noises each number has.
        longest: run; None for any.

    >>> seen(np.array([500.0, 9.0, -9.0, 22.0, 26.0, 24.0]), 10.0, "gaussian", 0.001).tolist()
    [500.0, 0.0, 0.0, 24.0, 24.0, 24.0]
    """
    size = len(noisy)
    found, free = np.zeros(size), np.ones(size, bool)
    for length in range(1, min(longest or size, size) + 1):
        least = stands_out(size, stddev, law, false_alarm, added=added * length)
        for begin in range(size - length, -1, -1):
            run = slice(begin, begin + length)
            if free[run].all() and noisy[run].sum() >= least:
                found[run], free[run] = noisy[run].sum() / length, False
    return found


def stands_out(count: int, stddev: float, law: str, false_alarm: float = FALSE_ALARM, *, added: int = 1) -> float:
    """What so many noises stay below together, but with a small probability (by the union bound).

    Args:
        count: how many.
        stddev, law: of a noise.
        false_alarm: the probability.
        added: how many noises each of them is the sum of.
    """
    each = false_alarm / count
    if law != "laplace":
        return stddev * math.sqrt(-2 * added * math.log(2 * each))
    tail = _tail if added <= EXACT else _tail_at_most
    low, high = 0.0, 2.0 * added - 2 * math.log(each)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, added) > each else (low, middle)
    return stddev / math.sqrt(2) * high


def _tail(least: float, added: int) -> float:
    """The probability that so many Laplace noises of scale 1 add up to at least so much, from 0.

    Their sum is the difference of two variables of Erlang's law with that shape; the sum is over the law of the second one.

    >>> _tail(3.0, 1) == math.exp(-3) / 2, round(_tail(0.0, 4), 12)
    (True, 0.5)
    """
    parts = [
        least ** (power - other) / math.factorial(power - other) * math.comb(added - 1 + other, other) / 2**other
        for power in range(added)
        for other in range(power + 1)
    ]
    return math.exp(-least) * math.fsum(parts) / 2.0**added


def _tail_at_most(least: float, added: int) -> float:
    """The same, or somewhat more: Chernoff's bound, at the best exponent, of the moments (1 - s**2)**-added.

    >>> all(_tail(least, 8) <= _tail_at_most(least, 8) <= 30 * _tail(least, 8) for least in (8.0, 20.0))
    True
    """
    if least <= 0:
        return 1.0
    best = least / (added + math.hypot(added, least))
    return math.exp(-best * least - added * math.log1p(-(best**2)))
