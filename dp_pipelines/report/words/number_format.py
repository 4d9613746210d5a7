"""How a job wants a number to be written: `,.0f`, `.2f` or `.1%`, as Python's formats are.

In: one of these formats, numbers. Out: texts for people, and cells of files. Holds: digits follow from the format and the number
alone; a cell of a file is a number without separators or signs of percent; what cannot be written so is written with an exponent.
Not covered: which number has which format (`presented`).
"""

import dataclasses
import decimal
import re
from collections.abc import Callable
from typing import TypeAlias

FORMAT = re.compile(r"(,?)\.([0-6])([f%])")
"""A comma for separators of thousands, the decimals, and whether the number is a share that is written in percent."""

RULE = "must be a format such as ',.0f', '.2f' or '.1%': a comma or none, a point, 0 to 6 decimals, f or %"

HINT = "write e.g. ',.0f' for 12,346, '.2f' for 12345.68 or '.1%' for 12.3%"

MOST = 1e15
"""From here on no float holds the last digits, and numbers for people are written with an exponent."""

NEAREST, DOWN, UP = decimal.ROUND_HALF_EVEN, decimal.ROUND_FLOOR, decimal.ROUND_CEILING


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """How a number is written.

    Args:
        decimals: behind the point.
        percent: whether it is a share that is written in percent.
        grouped: whether texts for people have separators of thousands.
    """

    decimals: int
    percent: bool = False
    grouped: bool = False

    @classmethod
    def read(cls, text: object) -> "NumberFormat | None":
        """Return what a text says; None where it is no such format.

        >>> NumberFormat.read(",.0f").text(12345.6), NumberFormat.read(".1%").text(0.12345), NumberFormat.read("d")
        ('12,346', '12.3%', None)
        """
        match = FORMAT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            return None
        return cls(decimals=int(match[2]), percent=match[3] == "%", grouped=bool(match[1]))

    def text(self, value: float, to: str = NEAREST) -> str:
        """Return a number for people.

        Args:
            value: a finite number.
            to: how it is rounded.

        >>> NumberFormat(decimals=1).text(-0.04), NumberFormat(decimals=0).text(0.2, UP), NumberFormat(decimals=2).text(1e20)
        ('0.0', '1', '1.000e+20')
        """
        sign = "%" if self.percent else ""
        if abs(value) >= MOST:
            return f"{value * (100 if self.percent else 1):.3e}{sign}"
        number = _rounded(decimal.Decimal(repr(float(value))).scaleb(2 if self.percent else 0), self.decimals, to)
        return format(number, f"{',' if self.grouped else ''}f") + sign

    def cell(self, value: float | decimal.Decimal, to: str = NEAREST) -> str:
        """Return a number for a file: a share in percent is the share itself, with two more decimals.

        Args:
            value: a finite number.
            to: how it is rounded.

        >>> NumberFormat(decimals=1, percent=True).cell(0.12345), NumberFormat(decimals=0, grouped=True).cell(12345.6)
        ('0.123', '12346')
        """
        number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(repr(float(value)))
        return format(_rounded(number, self.decimals + (2 if self.percent else 0), to), "f")

    def bar_parts(self, value: float, bar: float) -> tuple[str, str, str, str]:
        """Return a number, its error bar and both ends of that, for people. The bar is rounded up, so that none looks like 0.

        >>> NumberFormat(decimals=0, grouped=True).bar_parts(12345.6, 10.2)
        ('12,346', '11', '12,335', '12,357')
        >>> NumberFormat(decimals=1, percent=True).bar_parts(0.25, 0.0001)
        ('25.0%', '0.1%', '24.9%', '25.1%')
        """
        low, high = self._ends(value, bar)
        return self.text(value), self.text(bar, UP), self.text(low, DOWN), self.text(high, UP)

    def bar_cells(self, value: float, bar: float) -> tuple[str, str, str]:
        """Return a number and both ends of its error bar for a file.

        >>> NumberFormat(decimals=1, percent=True).bar_cells(0.25, 0.0123)
        ('0.250', '0.237', '0.263')
        """
        low, high = self._ends(value, bar)
        return self.cell(value), self.cell(low, DOWN), self.cell(high, UP)

    def _ends(self, value: float, bar: float) -> tuple[float, float]:
        """Return both ends of an error bar as it is shown, around the number as it is shown."""
        with decimal.localcontext(prec=400):
            middle, half = decimal.Decimal(self.cell(value)), decimal.Decimal(self.cell(bar, UP))
            low, high = middle - half, middle + half
        return float(low), float(high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberStyle:
    """How the numbers of a metric are written in sentences, beside marks and on axes.

    Args:
        whole: whether the true numbers are whole.
        measure: their unit of measure; empty if they have none.
        form: the format that the job asks for; None: in the digits that their error bars leave certain.
        within: the declared range of the values, beyond which no axis goes; None: there is none.
    """

    whole: bool = False
    measure: str = ""
    form: NumberFormat | None = None
    within: tuple[float, float] | None = None


PLAIN = NumberStyle()


def _rounded(number: decimal.Decimal, decimals: int, to: str) -> decimal.Decimal:
    """Return a number with some decimals, and no sign of a zero."""
    with decimal.localcontext(prec=400):  # any float
        rounded = number.quantize(decimal.Decimal(1).scaleb(-decimals), rounding=to)
    return rounded if rounded else abs(rounded)


FormOf: TypeAlias = Callable[[str], NumberFormat | None]
"""How the numbers of a metric are written; None: in the digits that their error bars leave certain."""
