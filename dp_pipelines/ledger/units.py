"""Costs as integers: charges are rounded up, caps are rounded down, and sums are exact.

In: numbers as people write them and as the accountant computes them. Out: integers: epsilon in units of 1e-12, delta in
units of 1e-60. Holds: a float counts as the shortest decimal that gives it, so that ten parts of 1e-7 fit into 1e-6, and a plan
of exactly 0.1 into an account of 0.1; no float is ever added. That decimal is within half of the float's last bit, and what the
accountant computes is above the truth by more.
"""

import math
from decimal import Decimal
from fractions import Fraction

from dp_pipelines.errors import RequestError

EPSILON_UNIT = Fraction(1, 10**12)
DELTA_UNIT = Fraction(1, 10**60)
LARGEST_EPSILON = 10**6


def written(value: float) -> Fraction:
    """Return a number as a person wrote it: the shortest decimal that gives this float, exactly.

    >>> written(0.1) * 10 == 1
    True
    """
    return Fraction(Decimal(repr(float(value))))


def epsilon_charge(value: float) -> int:
    """Convert a computed or declared epsilon to whole units, rounded up.

    Raises:
        RequestError: it is negative, NaN, infinite or absurdly large.

    >>> epsilon_charge(1.0), epsilon_charge(0.25)
    (1000000000000, 250000000000)
    """
    return math.ceil(_sound(value, "epsilon", LARGEST_EPSILON) / EPSILON_UNIT)


def charge(value: float, unit: Fraction) -> int:
    """Convert a computed amount of at least 0 to whole units, rounded up from the exact value of the float.

    Args:
        value: the amount.
        unit: the size of a unit.

    Raises:
        RequestError: it is negative, NaN, infinite or absurdly large.
    """
    _sound(value, "cost", LARGEST_EPSILON)
    return math.ceil(Fraction(value) / unit)


def delta_charge(value: float) -> int:
    """Convert a declared delta to whole units, rounded up. Errors as for `epsilon_charge`."""
    return math.ceil(_sound(value, "delta", 1) / DELTA_UNIT)


def epsilon_cap(value: float) -> int:
    """Convert a declared limit of epsilon to whole units, rounded down. Errors as for `epsilon_charge`."""
    return math.floor(_sound(value, "epsilon", LARGEST_EPSILON) / EPSILON_UNIT)


def delta_cap(value: float) -> int:
    """Convert a declared limit of delta to whole units, rounded down. Errors as for `epsilon_charge`."""
    return math.floor(_sound(value, "delta", 1) / DELTA_UNIT)


def epsilon_of(units: int) -> float:
    """Convert whole units of epsilon to a number to show.

    >>> epsilon_of(250_000_000_000)
    0.25
    """
    return float(units * EPSILON_UNIT)


def delta_of(units: int) -> float:
    """Convert whole units of delta to a number to show.

    >>> delta_of(10**54)
    1e-06
    """
    return float(units * DELTA_UNIT)


def _sound(value: float, field: str, most: int) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == math.inf:
        raise RequestError(field=field, message="must be a finite number", hint=f"write e.g. {field}: 0.5")
    if not 0 <= value <= most:
        raise RequestError(field=field, message=f"must be from 0 to {most}")
    return written(value)
