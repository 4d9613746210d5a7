"""Formats numbers for readers: a value with its error bar, rounded to the digits that the error leaves certain.

In: released values and standard deviations of their noise. Out: text. Holds: no value crashes it, and what is no number shows
as a dash.
"""

import decimal
import math
from collections.abc import Callable, Sequence

from dp_pipelines.accounting.shown_costs import left_number, spent_number
from dp_pipelines.metrics.error_bars import ERROR_BAR as ERROR_BAR
from dp_pipelines.metrics.error_bars import cut_at_range
from dp_pipelines.report.words.number_format import NumberFormat

MOST_DECIMALS = 12

ANYWHERE = (-math.inf, math.inf)
"""The range of a number of which nothing is known."""

MOST_DIGITS = 1e15
"""From here on a number is written with an exponent: no float holds its last digits."""

FLOAT_DIGITS = 10**17
"""Below it, 17 significant digits write a number out in full: no float has more."""

LARGEST = 1e100
"""A number beyond this is not drawn: axes are made with floats."""

WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
"""What large numbers are called on axes, and in headlines from a billion on."""


def error_bar_parts(
    value: float | None,
    stddev: float | None,
    *,
    grouped: bool = False,
    whole: bool = False,
    form: NumberFormat | None = None,
) -> tuple[str, str] | None:
    """A value and its error bar as two texts of the same precision, or None where one of them is no finite number.

    Args:
        value: the released number.
        stddev: the standard deviation of its noise, in the same unit.
        grouped: whether thousands are separated by commas.
        whole: whether it estimates a whole number, such as one of people; then the bar is rounded up.
        form: how the job wants it to be written; None: in the digits that its error bar leaves certain.

    >>> error_bar_parts(0.1234, 0.001, form=NumberFormat(decimals=0, percent=True))
    ('12%', '1%')
    >>> error_bar_parts(13546.9, 14074.9, grouped=True)
    ('13,547', '27,587')
    >>> error_bar_parts(2087.7, 3.5, grouped=True), error_bar_parts(2087.7, 3.5, grouped=True, whole=True)
    (('2,087.7', '6.9'), ('2,088', '7'))
    >>> error_bar_parts(None, 1.0)
    """
    if value is None or stddev is None or not math.isfinite(value) or not math.isfinite(bar := ERROR_BAR * stddev):
        return None
    if form is not None:
        return form.bar_parts(value, bar)[:2]
    if whole and bar > 0:
        return _fixed(value, 0, grouped), _fixed(math.ceil(bar - 1e-9) if bar < 10 else bar, 0, grouped)
    if not bar > 0:
        return _alone(value, grouped), "0"
    digits = max(0, 1 - math.floor(math.log10(bar)))
    if digits > MOST_DECIMALS:  # of so narrow a bar only an exponent shows that it is there
        return f"{value + 0.0:.15g}", f"{bar:.1e}"
    return _fixed(value, digits, grouped), _fixed(bar, digits, grouped)


def with_error_bar(
    value: float | None,
    stddev: float | None,
    *,
    grouped: bool = False,
    whole: bool = False,
    form: NumberFormat | None = None,
) -> str:
    """A value and its error bar, rounded to what the error leaves certain. Arguments as for `error_bar_parts`.

    >>> with_error_bar(1234.567, 12.3)
    '1235 ± 24'
    >>> with_error_bar(4.71828, 0.0123)
    '4.718 ± 0.024'
    >>> with_error_bar(float("nan"), 1.0), with_error_bar(2.5, None), with_error_bar(1234567.0, None, grouped=True)
    ('-', '2.5', '1,234,567')
    """
    parts = error_bar_parts(value, stddev, grouped=grouped, whole=whole, form=form)
    if parts is not None:
        return f"{parts[0]} ± {parts[1]}"
    if value is None or not math.isfinite(value) or not (stddev is None or math.isnan(stddev)):
        return "-"
    return (
        _alone(value, grouped) if form is None else form.text(value)
    )  # it was chosen among candidates, and has no error bar


def rounded_cells(
    value: float | None,
    stddev: float | None,
    *,
    whole: bool = False,
    deviations: float = ERROR_BAR,
    form: NumberFormat | None = None,
    within: tuple[float, float] = ANYWHERE,
) -> tuple[str, str, str, str]:
    """Return a number, its standard deviation and both ends of its error bar for a file, with the digits that tables show.

    Args:
        value, stddev, whole, form: as for `error_bar_parts`.
        deviations: half the length of the error bar, in standard deviations.
        within: the range of the true number, where the ends of its error bar are cut off.

    Returns:
        texts without separators, empty where there is no number. A number without an error bar keeps all of its digits.

    >>> rounded_cells(2087.7, 3.5), rounded_cells(2087.7, 3.5, whole=True)
    (('2087.7', '3.5', '2080.8', '2094.6'), ('2088', '3.5', '2081', '2095'))
    >>> rounded_cells(-3.0, 3.5, whole=True, within=(0.0, math.inf)), rounded_cells(11.5, 0.5, within=(0.0, 12.25))
    (('-3', '3.5', '0', '7'), ('11.50', '0.50', '10.52', '12.25'))
    >>> rounded_cells(1.2345678e16, 1e6), rounded_cells(123456.75, None), rounded_cells(None, 1.0)
    (('12345678000000000', '1000000', '12345677998040000', '12345678001960000'), ('123456.75', '', '', ''), ('', '', '', ''))
    """
    cells = _bar_cells(value, stddev, whole=whole, deviations=deviations, form=form)
    if value is None or not (cells[2] and cells[3]) or within == ANYWHERE:
        return cells
    middle, bar = float(value), deviations * (stddev or 0.0)
    free = middle - bar, middle + bar
    ends = cut_at_range(middle, *free, within)
    digits = _decimals(cells[0])

    def cell(end: float) -> str:
        if form is not None:
            return form.cell(end)
        return exact_number(end + 0.0) if end in within else _fixed(end, digits, False)

    low, high = (text if end == before else cell(end) for text, end, before in zip(cells[2:], ends, free, strict=True))
    return cells[0], cells[1], low, high


def _decimals(text: str) -> int:
    """Return how many digits follow the point of a number."""
    return len(text.partition(".")[2])


def _bar_cells(
    value: float | None, stddev: float | None, *, whole: bool, deviations: float, form: NumberFormat | None
) -> tuple[str, str, str, str]:
    """Return the cells of a number, whose error bar ends where the noise does. Arguments as for `rounded_cells`."""
    if value is None or not math.isfinite(value):
        return "", "", "", ""
    if stddev is None or math.isnan(stddev):
        return exact_number(value) if form is None else form.cell(value), "", "", ""
    bar = deviations * stddev
    if not math.isfinite(bar):
        return "", "", "", ""
    if form is not None:
        middle_text, *ends = form.bar_cells(value, bar)
        return middle_text, _stddev_text(stddev) if bar > 0 else "0", ends[0], ends[1]
    if not bar > 0:
        return exact_number(value), "0", exact_number(value), exact_number(value)
    digits = 0 if whole else max(0, 1 - math.floor(math.log10(bar)))
    up = math.ceil(bar - 1e-9) if whole and bar < 10 else bar
    if digits > MOST_DECIMALS or not max(abs(value), bar) < MOST_DIGITS:
        low, high = (_end(value, sign * up, digits) for sign in (-1, 1))
        return written_out(value, digits), _stddev_text(stddev), low, high
    middle, half = (decimal.Decimal(_fixed(number, digits, False)) for number in (value, up))
    low, high = (format(end, "f") for end in (middle - half, middle + half))
    low, high = (end if end.strip("-0.") else end.removeprefix("-") for end in (low, high))
    return format(middle, "f"), _stddev_text(stddev), low, high


def written_out(value: float | decimal.Decimal, digits: int) -> str:
    """Return a large number, or one with a narrow error bar, for a file: with all the digits that a float has.

    Args:
        value: the number.
        digits: decimals after which nothing is certain.

    Returns:
        a text; empty where the number is beyond any float.

    >>> written_out(1.2345678e16, 0), written_out(1.2345678e20, 0), written_out(1e15 + 0.125, 2)
    ('12345678000000000', '1.2345678e+20', '1000000000000000.12')
    """
    number = decimal.Decimal(value)
    if digits > MOST_DECIMALS or number.copy_abs() >= FLOAT_DIGITS:
        return exact_number(float(value)) if math.isfinite(float(value)) else ""
    with decimal.localcontext(prec=64):
        text = format(number.quantize(decimal.Decimal(1).scaleb(-digits)), "f")
    return text if text.strip("-0.") else text.removeprefix("-")


def _end(value: float, bar: float, digits: int) -> str:
    """Return an end of an error bar of a number that is not rounded before."""
    with decimal.localcontext(prec=64):
        end = decimal.Decimal(value) + decimal.Decimal(bar)
    return written_out(end, digits)


def exact_number(value: float) -> str:
    """Return the shortest text that reads back as the same number, as CSV without rounding has it.

    >>> exact_number(123456.75), exact_number(2.0), exact_number(1e-7), exact_number(1.5e15), exact_number(7)
    ('123456.75', '2', '1e-7', '1.5e+15', '7')
    """
    if isinstance(value, int):
        return str(value)
    number = decimal.Decimal(repr(value))
    sign, digits, power = number.as_tuple()
    assert isinstance(power, int)
    if -7 < number.adjusted() < 10 or not value:
        text = format(number, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    shown = "".join(map(str, digits)).rstrip("0")
    point = "." if len(shown) > 1 else ""
    return f"{'-' if sign else ''}{shown[0]}{point}{shown[1:]}e{number.adjusted():+d}"


def _stddev_text(stddev: float) -> str:
    """Return a standard deviation with two digits, and all of those before the point."""
    digits = max(0, 1 - math.floor(math.log10(stddev)))
    if stddev >= MOST_DIGITS:
        return written_out(stddev, 0)
    return f"{stddev:.1e}" if digits > MOST_DECIMALS else _fixed(stddev, digits, False)


def finite(value: object) -> float | None:
    """Return a number of a published file that can be drawn; None for anything else.

    >>> finite(2), finite("2"), finite(float("nan"))
    (2.0, None, None)
    """
    sound = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    return float(value) if sound and isinstance(value, int | float) else None


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


def rounded_parts(
    value: float, stddev: float, *, whole: bool = False, form: NumberFormat | None = None
) -> tuple[str, str, str, str] | None:
    """A headline number: the value, its error bar and both ends, rounded to two digits of the bar; None where there is none.

    Args:
        value, stddev, whole, form: as for `error_bar_parts`.

    >>> rounded_parts(5668806.2, 5603.0), rounded_parts(24936.7, 4.7, whole=True)
    (('5,669,000', '11,000', '5,658,000', '5,680,000'), ('24,937', '10', '24,927', '24,947'))
    >>> rounded_parts(4.123e9, 2.5e6)
    ('4.1230 billion', '0.0049 billion', '4.1181 billion', '4.1279 billion')
    """
    bar = ERROR_BAR * stddev
    if not (math.isfinite(value) and math.isfinite(bar) and bar >= 0):
        return None
    if form is not None:
        return form.bar_parts(value, bar)
    size, word = next(((size, f" {word}") for size, word in WORDS if size >= 1e9 and abs(value) >= size), (1.0, ""))
    place = math.floor(math.log10(bar / size)) - 1 if bar / size > 0 else 0 if whole else -2
    place = max(0, place) if whole and not word else place
    step = 10.0**place
    if not 1e-12 < step < MOST_DIGITS or not max(abs(value), bar) / size < MOST_DIGITS * step:
        return None  # no float tells these digits
    up = math.ceil(bar / size / step - 1e-9) * step if whole and bar < 10 else round(bar / size / step) * step
    middle = round(value / size / step) * step
    texts = [_fixed(number, max(0, -place), True) + word for number in (middle, up, middle - up, middle + up)]
    return texts[0], texts[1], texts[2], texts[3]


def tick_number(value: float, form: NumberFormat | None = None) -> str:
    """Return a number on an axis or in a legend, on its own: with separators, exact for round ones.

    >>> [tick_number(x) for x in (0.0, 0.25, 12500.0, -2e6, 3.5e9, 1e20)]
    ['0', '0.25', '12,500', '-2 million', '3.5 billion', '1e+20']
    """
    texts, word = axis_numbers([value], form)
    return f"{texts[0]} {word}" if word else texts[0]


def axis_numbers(values: Sequence[float], form: NumberFormat | None = None) -> tuple[list[str], str]:
    """Return the numbers of an axis as texts, all in the same unit, and the word for it: thousands are written out.

    Args:
        values: the numbers.
        form: how the job wants them to be written. Numbers that it would round keep the digits that distinguish them, and
            millions keep their word.

    >>> axis_numbers([0.0, 50_000.0, 100_000.0]), axis_numbers([0.0, 1.5e9, 3e9])
    ((['0', '50,000', '100,000'], ''), (['0', '1.5', '3'], 'billion'))
    >>> axis_numbers([0.0, 0.05, 0.1], NumberFormat(decimals=0, percent=True)), axis_numbers([0.0, 0.5], NumberFormat(decimals=2))
    ((['0%', '5%', '10%'], ''), (['0.00', '0.50'], ''))
    >>> axis_numbers([0.0, 0.5], NumberFormat(decimals=0)), axis_numbers([0.0, 2e6], NumberFormat(decimals=2))
    ((['0', '0.5'], ''), (['0', '2'], 'million'))
    """
    most = max(map(abs, values), default=0.0)
    if form is not None and most < (MOST_DIGITS if form.percent else WORDS[-1][0]):
        if all(math.isclose(float(form.cell(value)), value, rel_tol=1e-9, abs_tol=0.0) for value in values):
            return [form.text(value) for value in values], ""
        if form.percent:
            return [f"{_short(100 * value)}%" for value in values], ""
    size, word = next(((size, word) for size, word in WORDS if size <= most < MOST_DIGITS), (1.0, ""))
    if most >= MOST_DIGITS:
        return [f"{value + 0.0:.4g}" for value in values], ""
    return [_short(value / size) for value in values], word


def _short(value: float) -> str:
    """Six digits with separators, none of them a needless zero; with an exponent where they are small."""
    if value and abs(value) < 1e-4:
        return f"{value:.6g}"
    text = f"{value + 0.0:,.{max(0, 5 - math.floor(math.log10(abs(value)))) if value else 0}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _fixed(value: float, digits: int, grouped: bool) -> str:
    if abs(value) >= MOST_DIGITS:
        return f"{value:.3e}"
    text = f"{value:{',' if grouped else ''}.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _alone(value: float, grouped: bool) -> str:
    """A number that is exact: six digits, all of them before the point."""
    return f"{value + 0.0:{',' if grouped else ''}.6g}" if abs(value) < 1e6 else _fixed(value, 0, grouped)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False
