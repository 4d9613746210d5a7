"""Correlated noise for rounds: the coefficients that make the noise of sums over rounds small.

In: public numbers: how many rounds, how many lie between two of one client, the momentum of the published model. Out: the
coefficients of a lower triangular Toeplitz matrix C, or none where independent noise is as good; what is gained. Holds: the
coefficients are whole numbers of 2**-16, not negative, in fewer rounds than lie between two of a client; they follow from the
public numbers alone, by operations that IEEE 754 rounds alike on every machine. Not covered: privacy, which holds for any
coefficients (docs/proofs/correlated_noise.md).
"""

# C = sum of c_i B^i, with B the shift by a round and c_0 = 1. What is drawn anew in a round is s N(0, 1), and the noise of the
# rounds n solves C n = s z. A client in the rounds j, j + b, ... moves C x by s^2(C) = sum of the squares of its columns, which
# share no row while C has at most b coefficients. The published models are sums over rounds (with momentum, of sums), so their
# mean square error is s^2(C) |A C^-1|^2 / rounds. The best c is near (1 - r B)^-a, cut off: with a = 1/2, r = 1 that is the
# square root of sums (Fichtenberger, Henzinger, Upadhyay 2023); momentum wants a larger a. A search over a, r and the length
# comes within one part in a hundred of a free search over all coefficients (tests/noise/test_correlation.py).

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BITS = 16
"""Coefficients are whole numbers of 2**-16."""

ONE = 1 << BITS
"""The coefficient of a round's own noise."""

POWERS = tuple(tenth / 10 for tenth in range(3, 11))
RATES = (0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
PARTS = (1.0, 0.95, 0.9, 0.75, 0.5, 0.25)
"""The lengths of the memory of noise that are tried, as parts of the number of rounds between two of one client."""

LEAST_GAIN = 1e-3
"""The least relative gain for which noise is correlated at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correlation:
    """The noise of rounds that is least in sums over them.

    Args:
        coefficients: of the noise of the rounds before, the last one first, in 2**-16; none: independent noise is as good.
        published: the root mean square error of the published models over that of independent noise with the same participants
            and the same budget.
        result: the same of the model that is the mean of the last ones.

    >>> found = choose(40, 10, 0.0, 20)
    >>> len(found.coefficients), round(found.published, 3), round(found.result, 3)
    (9, 0.488, 0.398)
    >>> choose(40, 1, 0.8, 20).coefficients
    ()
    """

    coefficients: tuple[int, ...]
    published: float
    result: float


@functools.lru_cache(maxsize=256)
def choose(rounds: int, separation: int, momentum: float, averaged: int) -> Correlation:
    """Return the coefficients with the least error of the published models.

    Args:
        rounds: how many.
        separation: a client takes part in one of so many.
        momentum: of the published model.
        averaged: how many of the last models are averaged.
    """
    alone = error(rounds, separation, momentum, ())
    best: tuple[int, ...] = ()
    least = alone * (1 - LEAST_GAIN) * (1 - LEAST_GAIN)  # no power, which libraries round differently
    for coefficients in _tried(min(separation, rounds)):
        mean_square = error(rounds, separation, momentum, coefficients)
        if mean_square < least:
            best, least = coefficients, mean_square
    if not best:
        return Correlation(coefficients=(), published=1.0, result=1.0)
    of_result = [_error_of_mean(rounds, separation, momentum, averaged, each) for each in (best, ())]
    return Correlation(
        coefficients=best, published=math.sqrt(least / alone), result=math.sqrt(of_result[0] / of_result[1])
    )


def error(rounds: int, separation: int, momentum: float, coefficients: tuple[int, ...]) -> float:
    """Compute the mean square error of the published models, if all rounds together cost as much as one with an error of 1.

    >>> error(4, 1, 0.0, ())
    10.0
    """
    reached = _reached(rounds, momentum, coefficients)
    total = math.fsum(((rounds - np.arange(rounds)) * reached * reached).tolist())
    return sensitivity_squared(rounds, separation, coefficients) * total / rounds


def sensitivity_squared(rounds: int, separation: int, coefficients: tuple[int, ...]) -> float:
    """Compute the largest sum of the squares of the columns in which one client takes part."""
    squares = np.cumsum(np.array([ONE, *coefficients], np.float64) ** 2) / float(ONE) ** 2
    # Of two clients who come one round apart, none of whose columns is cut off sooner, the first has more of them.
    return math.fsum(float(squares[min(len(coefficients), rounds - 1 - at)]) for at in range(0, rounds, separation))


def inverse(rounds: int, coefficients: tuple[int, ...]) -> Floats:
    """Compute the coefficients of the inverse of C: how the noise drawn in a round counts in it and in later ones."""
    left, taken = np.zeros(rounds + len(coefficients)), np.array(coefficients, np.float64) / ONE
    left[0] = 1.0
    for at in range(rounds):
        left[at + 1 : at + 1 + len(taken)] -= taken * left[at]
    return left[:rounds]


def _tried(longest: int) -> Iterator[tuple[int, ...]]:
    for length in dict.fromkeys(max(1, int(longest * part)) for part in PARTS):
        for power in POWERS:
            for rate in RATES:
                coefficient, whole = 1.0, list[int]()
                for at in range(1, length):
                    coefficient = coefficient * (at - 1 + power) / at * rate
                    whole.append(round(coefficient * ONE))
                while whole and whole[-1] == 0:
                    whole.pop()
                yield tuple(whole)


def _reached(rounds: int, momentum: float, coefficients: tuple[int, ...]) -> Floats:
    """Compute how the noise that one round draws counts in each model published after it, float64 of shape (rounds,)."""
    moved, total, effects = 0.0, 0.0, np.empty(rounds)
    for at, noise in enumerate(inverse(rounds, coefficients).tolist()):
        moved = momentum * moved + noise
        total += moved
        effects[at] = total
    return effects


def _error_of_mean(
    rounds: int, separation: int, momentum: float, averaged: int, coefficients: tuple[int, ...]
) -> float:
    """Compute the mean square error of the mean of the last models."""
    reached = np.concatenate([np.zeros(rounds), _reached(rounds, momentum, coefficients)])
    summed = np.concatenate([[0.0], np.cumsum(reached)])
    # The noise of the round `at` is in the models `rounds - averaged` to `rounds - 1`, from its own on.
    ends = 2 * rounds - np.arange(rounds)
    means = (summed[ends] - summed[ends - averaged]) / averaged
    return sensitivity_squared(rounds, separation, coefficients) * math.fsum((means * means).tolist())
