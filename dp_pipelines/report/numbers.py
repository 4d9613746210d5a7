"""Formats numbers for readers: a value with its error bar, rounded to the digits that the error leaves certain.

In: released values and standard deviations of their noise. Out: text. Holds: no value crashes it, and what is no number shows
as a dash.
"""

import math
from collections.abc import Callable

from dp_pipelines.accounting.shown_costs import left_number, spent_number
from dp_pipelines.metrics.base import ERROR_BAR as ERROR_BAR

MOST_DECIMALS = 12

MOST_DIGITS = 1e15
"""From here on a number is written with an exponent: no float holds its last digits."""


def error_bar_parts(value: float | None, stddev: float | None, *, grouped: bool = False) -> tuple[str, str] | None:
    """A value and its error bar as two texts of the same precision, or None where one of them is no finite number.

    Args:
        value: the released number.
        stddev: the standard deviation of its noise, in the same unit.
        grouped: whether thousands are separated by commas.

    >>> error_bar_parts(13546.9, 14074.9, grouped=True)
    ('13,547', '27,587')
    >>> error_bar_parts(None, 1.0)
    """
    if value is None or stddev is None or not math.isfinite(value) or not math.isfinite(bar := ERROR_BAR * stddev):
        return None
    if not bar > 0:
        return f"{value + 0.0:{',' if grouped else ''}.6g}" if abs(value) < 1e6 else _fixed(value, 0, grouped), "0"
    digits = max(0, 1 - math.floor(math.log10(bar)))
    if digits > MOST_DECIMALS:  # of so narrow a bar only an exponent shows that it is there
        return f"{value + 0.0:.15g}", f"{bar:.1e}"
    return _fixed(value, digits, grouped), _fixed(bar, digits, grouped)


def with_error_bar(value: float | None, stddev: float | None, *, grouped: bool = False) -> str:
    """A value and its error bar, rounded to what the error leaves certain. Arguments as for `error_bar_parts`.

    >>> with_error_bar(1234.567, 12.3)
    '1235 ± 24'
    >>> with_error_bar(4.71828, 0.0123)
    '4.718 ± 0.024'
    >>> with_error_bar(float("nan"), 1.0), with_error_bar(2.5, None)
    ('-', '2.5')
    """
    parts = error_bar_parts(value, stddev, grouped=grouped)
    if parts is not None:
        return f"{parts[0]} ± {parts[1]}"
    if value is None or not math.isfinite(value) or not (stddev is None or math.isnan(stddev)):
        return "-"
    return f"{value:.6g}"  # it was chosen among candidates, and has no error bar


def public_number(value: object) -> str:
    """A public number, such as a budget, in few digits.

    >>> public_number(1.0), public_number(0.99995), public_number(1e-6), public_number(123456.7), public_number("x")
    ('1', '1', '1e-6', '123,457', '-')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        return "-"
    return _fixed(value, 0, True) if abs(value) >= 1000 else f"{value:.4g}".replace("e-0", "e-")


def cost_number(value: object) -> str:
    """An epsilon or a delta that is spent or allowed, rounded up as everywhere (`accounting.shown_costs`).

    >>> cost_number(0.93342), cost_number(1e-6), cost_number(12), cost_number(None)
    ('0.9335', '1e-6', '12', '-')
    """
    return _cost(value, spent_number)


def left_cost_number(value: object) -> str:
    """An epsilon or a delta that is left, rounded down likewise.

    >>> left_cost_number(0.93342)
    '0.9334'
    """
    return _cost(value, left_number)


def _cost(value: object, shown: Callable[[float], str]) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        return "-"
    return shown(value).replace("e-0", "e-")


def tick_number(value: float) -> str:
    """A number on an axis: short, exact for round ones.

    >>> [tick_number(x) for x in (0.0, 0.25, 250.0, 12500.0, -2e6, 3e9, 1e20)]
    ['0', '0.25', '250', '12.5k', '-2M', '3G', '1e+20']
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e4 * size and (suffix != "k" or abs(value) >= 1e4):
            return f"{value / size:.4g}{suffix}"
    return f"{value + 0:.4g}"


def _fixed(value: float, digits: int, grouped: bool) -> str:
    if abs(value) >= MOST_DIGITS:
        return f"{value:.3e}"
    text = f"{value:{',' if grouped else ''}.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False
