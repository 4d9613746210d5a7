"""What an (epsilon, delta) means to somebody who attacks a release, in numbers that a reader can picture.

In: epsilon and delta. Out: short texts. Holds: each number is rounded up, since nothing may be promised that is not held; none
follows from more than the (epsilon, delta). Not covered: what the attacker knew before, which no release changes.
"""

import math
from decimal import Decimal
from fractions import Fraction

MOST_EXPONENT = 100
"""e to the power of this is certainty as far as any number on a page can tell."""


def factor(epsilon: float | None) -> str | None:
    """e^epsilon, rounded up.

    >>> factor(1.0), factor(0.1), factor(50.0), factor(None)
    ('2.72', '1.11', 'more than a million', None)
    """
    if epsilon is None:
        return None
    times = math.exp(min(epsilon, MOST_EXPONENT))
    if times > 1e6:
        return "more than a million"
    digits = 2 if times < 10 else 1 if times < 100 else 0
    return f"{math.ceil(times * 10**digits - 1e-9) / 10**digits:,.{digits}f}"


def one_in(delta: float | None) -> str | None:
    """A small probability as one in so many, rounded down.

    >>> one_in(1e-6), one_in(3e-7), one_in(0.0)
    ('1,000,000', '3,333,333', None)
    """
    if delta is None or not 0 < delta < 1:
        return None
    count = math.floor(1 / Fraction(Decimal(repr(delta))))
    return f"{count:,}" if count < 10**12 else f"{count:.1e}"


def example(epsilon: float | None, delta: float | None) -> str | None:
    """The most that a guess of one half can become: the probability of a right guess after seeing the release.

    >>> example(1.0, 1e-6), example(0.0, 0.0), example(80.0, 0.0)
    ('74', '50', None)
    """
    if epsilon is None or delta is None:
        return None
    right = (
        1 + (math.exp(min(epsilon, MOST_EXPONENT)) - 1 + 2 * delta) / (math.exp(min(epsilon, MOST_EXPONENT)) + 1)
    ) / 2
    percent = math.ceil(right * 100 - 1e-9)
    return str(percent) if percent < 100 else None


def found_at_most(epsilon: float, delta: float, false_alarms: float) -> float:
    """How many of the people in the data any test finds that is wrong about so many of those who are not.

    The bound of Kairouz, Oh and Viswanath 2015 (theorem 2.1), solved for the share that is found.

    Args:
        epsilon: of the release.
        delta: of the release.
        false_alarms: the share of people outside of the data whom the test takes for one inside, from 0 to 1.

    Returns:
        A share from 0 to 1.

    >>> round(found_at_most(1.0, 1e-6, 0.01), 4), found_at_most(0.0, 0.0, 0.25), found_at_most(1e9, 0.0, 0.01)
    (0.0272, 0.25, 1.0)
    """
    high = math.exp(min(epsilon, MOST_EXPONENT))
    return max(0.0, min(1.0, high * false_alarms + delta, 1 - (1 - delta - false_alarms) / high))


def in_a_hundred(share: float) -> str:
    """A share as so many in a hundred, rounded up to a tenth.

    >>> in_a_hundred(0.02719), in_a_hundred(0.5), in_a_hundred(1.0)
    ('2.8', '50', '100')
    """
    return f"{min(100.0, math.ceil(share * 1000 - 1e-9) / 10):g}"
