"""Intervals of formulas over noisy numbers: 95% of what noise alone may have changed.

In: a formula, noisy numbers with the deviations of their noise, which noise they share. Out: values and both ends, NaN for no
number. Holds: a function of released numbers, public facts and a public text; the same input gives the same numbers. Where a
divisor may be zero there is no number, and never an infinite one. Not covered: what contribution bounds cut off.
"""

import functools
import hashlib
import math
import statistics
from collections.abc import Mapping

import numpy as np

from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.metrics.error_bars import ERROR_BAR
from dp_pipelines.report.derived.formula import Formula, WeightedSum, undivided
from dp_pipelines.report.derived.part_noise import LAWS, PartNoise

DRAWS = 10_000
"""Draws of the noise for each row."""

LEFT_OUT = DRAWS // 40
"""Draws beyond each end: 2.5% of all."""

PUBLIC_TEXT = "dp_pipelines: noise of formulas over released numbers"
"""From this text alone come the draws, so that everybody gets the same. No secret noise is drawn here."""

ROWS = 64
"""Rows that are computed at a time: DRAWS numbers for each."""

FIELLER, NORMAL, OF_DRAWS = "Fieller", "normal", f"{DRAWS:,} draws"
"""How an interval is made, as manifests name it."""

Interval = tuple[Floats, Floats]
"""Low and high ends, NaN for none."""


def fieller(above: Floats, below: Floats, loads_above: Floats, loads_below: Floats) -> Interval:
    """Return the 95% intervals of quotients whose noise is Gaussian.

    Fieller (J. R. Statist. Soc. B 16, 1954): all r for which `above - r below` is within 1.96 of its deviations of zero. The set
    is an interval only if `below` is more than 1.96 of its deviations away from zero. Its two ends are
    apart by the root of `|above l - below k|^2 - z^2 (|k|^2 |l|^2 - (k l)^2)` with the loads k and l of both: computed so, large
    numbers with little noise keep their digits.

    Args:
        above, below: noisy numerators and denominators.
        loads_above, loads_below: how much of each independent noise of deviation 1 both have: one row for each noise.

    Returns:
        ends; NaN where the set is unbounded.

    >>> one, loads = np.ones(1), (np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]))
    >>> low, high = fieller(100 * one, 10 * one, *loads)
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (8.351, 12.448)
    >>> fieller(100 * one, 1.9 * one, *loads)[0].tolist()
    [nan]
    """
    sizes = [_size(*of) for of in ((above, loads_above), (below, loads_below))]
    above, loads_above, below, loads_below = (
        above / sizes[0],
        loads_above / sizes[0],
        below / sizes[1],
        loads_below / sizes[1],
    )
    square, variance = ERROR_BAR**2, (loads_below**2).sum(axis=0)
    lead = np.where(below**2 > square * variance, below**2 - square * variance, np.nan)
    covariance = (loads_above * loads_below).sum(axis=0)
    middle = above * below - square * covariance
    within = (loads_above**2).sum(axis=0) * variance - covariance**2
    inside = ((above * loads_below - below * loads_above) ** 2).sum(axis=0) - square * np.maximum(within, 0.0)
    root = ERROR_BAR * np.sqrt(np.maximum(inside, 0.0))
    scale = sizes[0] / sizes[1]
    return (middle - root) / lead * scale, (middle + root) / lead * scale


def _size(values: Floats, loads: Floats) -> Floats:
    """Return by what numbers and their loads are divided, so that no square of them is too large or too small for a float."""
    largest = np.maximum(np.abs(values), np.abs(loads).max(axis=0))
    return np.where((largest > 0) & np.isfinite(largest), largest, 1.0)


@functools.cache
def _uniform(number: int) -> Floats:
    """Return DRAWS numbers between 0 and 1, one in each of as many equal parts, in the order of public random words.

    A Latin hypercube (McKay, Beckman and Conover 1979) of several such columns has exact margins.

    Args:
        number: of the column.
    """
    words = hashlib.shake_256(f"{PUBLIC_TEXT} {number}".encode()).digest(8 * DRAWS)
    order = np.argsort(np.frombuffer(words, dtype="<u8"), kind="stable")
    found = np.empty(DRAWS)
    found[order] = (np.arange(DRAWS) + 0.5) / DRAWS
    return found


@functools.cache
def _standard(law: str, number: int) -> Floats:
    """Return DRAWS draws of a law with deviation 1.

    Args:
        law: one of `LAWS`.
        number: of the column; different columns are independent.

    >>> [round(float(_standard(law, 0).std()), 2) for law in LAWS]
    [1.0, 1.0]
    """
    uniform = _uniform(number)
    if law == LAWS[0]:
        quantile = statistics.NormalDist().inv_cdf
        return np.array([quantile(each) for each in uniform.tolist()])
    sides = uniform - 0.5
    return -np.sign(sides) * np.log1p(-2 * np.abs(sides)) / math.sqrt(2)


def interval_of(
    formula: Formula, values: Mapping[str, Floats], stddevs: Mapping[str, Floats], noise: PartNoise
) -> tuple[Floats, Interval]:
    """Return values and 95% intervals of a formula.

    Args:
        formula: over released numbers.
        values, stddevs: of each of its names, in the order of `noise`.
        noise: of the names.

    Returns:
        values and ends; NaN in all three where there is no number.

    >>> from dp_pipelines.report.derived import formula
    >>> values, stddevs = {"a": np.array([100.0, 1.0]), "b": np.array([10.0, 1.0])}, {"a": np.ones(2), "b": np.ones(2)}
    >>> noise = PartNoise(laws=("gaussian", "gaussian"), shares=np.eye(2))
    >>> found, (low, high) = interval_of(formula.read("a / b"), values, stddevs, noise)
    >>> found.tolist(), low.round(3).tolist()
    ([10.0, nan], [8.351, nan])
    """
    parts = _quotient(formula, noise)
    with np.errstate(all="ignore"):
        if parts is not None:
            low, high = _of_quotient(*parts, values, stddevs, noise)
        else:
            low, high = _of_draws(formula, values, stddevs, noise)
        result = formula.compute(values)
    known = undivided(result) & np.isfinite(low) & np.isfinite(high)
    found, low, high = (np.where(known, numbers, np.nan) for numbers in (result.values, low, high))
    return found, (low, high)


def method_of(formula: Formula, noise: PartNoise) -> str:
    """Return how the intervals of a formula are made.

    Args:
        formula: over released numbers.
        noise: of its names.

    >>> from dp_pipelines.report.derived import formula
    >>> laws = ("gaussian", "gaussian"), ("laplace", "gaussian")
    >>> [method_of(formula.read("a / b"), PartNoise(laws=each, shares=np.eye(2))) for each in laws]
    ['Fieller', '10,000 draws']
    """
    parts = _quotient(formula, noise)
    return OF_DRAWS if parts is None else FIELLER if parts[1].factors else NORMAL


def _quotient(formula: Formula, noise: PartNoise) -> tuple[WeightedSum, WeightedSum] | None:
    """Return the two sums of which a formula is a quotient, where all noise is Gaussian; else None."""
    return formula.quotient() if noise.gaussian else None


def _of_quotient(
    above: WeightedSum,
    below: WeightedSum,
    values: Mapping[str, Floats],
    stddevs: Mapping[str, Floats],
    noise: PartNoise,
) -> Interval:
    """Return the intervals of a quotient of two sums."""
    loads = [_loads(part, stddevs, noise) for part in (above, below)]
    return fieller(above.compute(values), below.compute(values), *loads)


def _loads(part: WeightedSum, stddevs: Mapping[str, Floats], noise: PartNoise) -> Floats:
    """Return how much of each independent noise a sum has: one row for each noise, one column for each row of the table."""
    found = np.zeros((len(noise.laws), len(next(iter(stddevs.values())))))
    for number, (name, stddev) in enumerate(stddevs.items()):
        found += part.factors.get(name, 0.0) * noise.shares[number][:, None] * stddev
    return found


def _of_draws(
    formula: Formula, values: Mapping[str, Floats], stddevs: Mapping[str, Floats], noise: PartNoise
) -> Interval:
    """Return between which numbers 95% of the draws of a formula lie.

    A draw is the formula over the released numbers less a draw of their noise. Of a quotient whose denominator is above zero in
    all draws, the interval is the set of all r that a test of `above - r below` does not refuse, as Fieller's is, for any law.

    A draw in which a divisor has another sign than the released one says nothing; it counts as beyond both ends, so that ends
    are farther out, and there is none if more than 2.5% of the draws do.
    """
    draws = noise.shares @ np.array([_standard(law, number) for number, law in enumerate(noise.laws)])
    rows = len(next(iter(values.values())))
    low, high = np.full(rows, np.nan), np.full(rows, np.nan)
    for start in range(0, rows, ROWS):
        chunk = slice(start, start + ROWS)
        columns = {
            name: values[name][chunk, None] - stddevs[name][chunk, None] * draws[number]
            for number, name in enumerate(formula.names)
        }
        result = formula.compute(columns)
        sound = undivided(result)
        released = formula.compute({name: values[name][chunk] for name in formula.names})
        for drawn, divisor in zip(result.divisors, released.divisors, strict=True):
            sound &= np.sign(drawn) == np.sign(divisor)[:, None]
        at = LEFT_OUT, DRAWS - 1 - LEFT_OUT
        low[chunk] = np.partition(np.where(sound, result.values, -np.inf), at[0], axis=1)[:, at[0]]
        high[chunk] = np.partition(np.where(sound, result.values, np.inf), at[1], axis=1)[:, at[1]]
    return low, high
