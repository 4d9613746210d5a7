"""Costs as people read them: what is spent is rounded up, what is left is rounded down, the same wherever it is shown.

In: an epsilon or a delta. Out: a few digits as text. Holds: no text promises more privacy than is kept, or more budget than is
left. Not covered: what a ledger adds up, which is exact (`ledger.units`).
"""

import decimal

DIGITS = 4


def number(value: float | None) -> str:
    """Format a public number with few digits.

    >>> number(1.0), number(0.99987654), number(1e-6), number(123456.7), number(None)
    ('1', '0.9999', '1e-06', '123457', '-')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 10 ** (DIGITS - 1) else f"{value:.{DIGITS}g}"


def spent_number(value: float | None) -> str:
    """Format what is spent, or may be, with few digits, rounded up.

    >>> spent_number(0.43911), spent_number(0.5), spent_number(1e-6), spent_number(1234.1)
    ('0.4392', '0.5', '1e-06', '1235')
    """
    return number(None if value is None else _rounded(value, decimal.ROUND_CEILING))


def left_number(value: float | None) -> str:
    """Format what is left with few digits, rounded down.

    >>> left_number(0.56089), left_number(0.0)
    ('0.5608', '0')
    """
    return number(None if value is None else _rounded(value, decimal.ROUND_FLOOR))


def _rounded(value: float, way: str) -> float:
    # The computation may have rounded the last digits either way already, so they are dropped first.
    return float(decimal.Context(prec=DIGITS, rounding=way).create_decimal(f"{value:.12g}"))
