"""Lower bounds of e^epsilon, which every chance of a local randomizer is rounded against.

In: epsilon as it was written. Out: an exact fraction that is at most e^epsilon, by less than one part in 10^40. Holds: the
module `decimal` rounds `exp` correctly, so one step below its result is a bound (a test encloses it by ball arithmetic).
Not covered: epsilons above `MOST_EPSILON`, which protect nobody.
"""

import decimal
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dp_pipelines.errors import RequestError

MOST_EPSILON = 12
"""At 12 an answer is true but for one in 160,000: already a promise in name only."""

DIGITS = 50


def epsilon_of(value: Any) -> Decimal:
    """Epsilon as the decimal number that was written: a float means the shortest text that stands for it.

    Raises:
        RequestError: not a number above 0 and at most `MOST_EPSILON`.

    >>> epsilon_of(0.1), epsilon_of("0.50"), epsilon_of(2)
    (Decimal('0.1'), Decimal('0.5'), Decimal('2'))
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            raise ValueError
        epsilon = Decimal(repr(value) if isinstance(value, float) else value)
        if not (epsilon.is_finite() and 0 < epsilon <= MOST_EPSILON and len(epsilon.as_tuple().digits) <= 20):
            raise ValueError
    except (ValueError, decimal.InvalidOperation):
        raise RequestError(
            field="epsilon",
            message=f"must be a number above 0, at most {MOST_EPSILON}, of at most 20 digits",
            hint="write e.g. epsilon: 1",
        ) from None
    return Decimal(plain_text(epsilon))


def plain_text(number: Decimal) -> str:
    """A decimal number, exactly, without an exponent and without zeros behind it.

    >>> plain_text(Decimal("1.50")), plain_text(Decimal("2E+1"))
    ('1.5', '20')
    """
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def exp_below(epsilon: Decimal) -> Fraction:
    """A fraction that is at most e^epsilon, and nearly as large.

    Source: Python's `decimal`: "exp: the result is correctly rounded", hence off by at most half a unit in the last place.

    >>> float(exp_below(Decimal(1)))
    2.718281828459045
    """
    with decimal.localcontext(decimal.Context(prec=DIGITS)) as context:
        return Fraction(context.next_minus(epsilon.exp(context)))
