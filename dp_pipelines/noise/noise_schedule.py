"""Schedules that spread a budget over the rounds of one plan: runs of the plan, or the rounds of one federated stage.

In: the name of a schedule, the number of rounds. Out: the part of each round over the smallest part. Holds: everything is derived
in integers and fractions, so a stored plan has the same rounds on every machine. Not covered: what the rounds cost together,
which the accountant computes from all of their records.
"""

import decimal
from fractions import Fraction
from typing import Literal

Schedule = Literal["constant", "linear", "exponential", "linear_decreasing", "exponential_decreasing"]
"""`constant`: every round gets the same part. `linear`: round r gets r times the part of round 1. `exponential`: each round
gets the same multiple of the part of the one before, twice as much or less: see `GROWTH`. `linear_decreasing` and
`exponential_decreasing`: the same parts in reverse order, so that the first round has the largest part and the least noise."""

GROWTH = 16
"""In an exponential schedule the largest part is at most this many times the smallest, however many rounds there are.
Each round gets `min(2, GROWTH ** (1 / (rounds - 1)))` times the part of the one before: with 5 rounds or fewer twice as much,
with 52 rounds 5.6 % more."""

_DIGITS = 20
"""Parts of an exponential schedule are whole 2**-20 of the smallest."""

_DECREASING = "_decreasing"


def ratio(schedule: Schedule, rounds: int, number: int) -> Fraction:
    """Return the part of a round, divided by the smallest part of all rounds. Its noise is in inverse proportion to it.

    Args:
        schedule: its name.
        rounds: how many.
        number: of the round, from 1.

    >>> [str(ratio("linear", 52, number)) for number in (1, 2, 52)]
    ['1', '2', '52']
    >>> [float(ratio("exponential", 4, number)) for number in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 8.0]
    >>> float(ratio("exponential", 52, 52))
    16.0
    >>> [str(ratio("linear_decreasing", 3, number)) for number in (1, 2, 3)]
    ['3', '2', '1']
    """
    if schedule.endswith(_DECREASING):
        number = rounds + 1 - number
    if schedule == "constant" or rounds == 1:
        return Fraction(1)
    if schedule.startswith("linear"):
        return Fraction(number)
    if 2 ** (rounds - 1) <= GROWTH:
        return Fraction(2 ** (number - 1))
    # Not floats: these differ by machine in their last place.
    with decimal.localcontext(decimal.Context(prec=40)):
        part = decimal.Decimal(GROWTH) ** (decimal.Decimal(number - 1) / (rounds - 1))
        return Fraction(round(part * 2**_DIGITS), 2**_DIGITS)


def parts(schedule: Schedule, rounds: int) -> tuple[Fraction, ...] | None:
    """Return the parts of all rounds, each over the smallest; None if all are the same.

    Args:
        schedule: its name.
        rounds: how many.

    >>> parts("exponential_decreasing", 3)
    (Fraction(4, 1), Fraction(2, 1), Fraction(1, 1))
    """
    if schedule == "constant" or rounds == 1:
        return None
    return tuple(ratio(schedule, rounds, number) for number in range(1, rounds + 1))
