"""What a question may be answered with: a public list of values, bins of numbers, or the points of a grid of numbers.

In: a person's value. Out: its index. Holds: an index is always within the public size, whatever the value. Not covered: chance.
"""

import bisect
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Any

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

MOST_VALUES = 1_000_000
STEPS = 1024
FAR = 60
"""Decimal places beyond which a number is as good as infinite, or as 0: bounds have at most 20."""

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Choices:
    """A list of values, one of which is true.

    Args:
        values: texts or whole numbers, at least 2, each once.
        otherwise: the value that a device reports on in place of one outside the list; None refuses such values on the device.

    >>> Choices(("yes", "no", "other"), otherwise="other").index_of("perhaps")
    2
    """

    values: tuple[str | int, ...]
    otherwise: str | int | None = None

    def __post_init__(self) -> None:
        values: Any = self.values
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise RequestError(field="values", message="must be a list", hint='write e.g. ["yes", "no"]')
        object.__setattr__(self, "values", tuple(values))
        if not 2 <= len(self.values) <= MOST_VALUES:
            raise RequestError(field="values", message=f"must be 2 to {MOST_VALUES:,} values")
        for place, value in enumerate(self.values):
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise RequestError(
                    field=f"values[{place}]", message=f"must be a text or a whole number, not {type(value).__name__}"
                )
            if isinstance(value, str) and _SURROGATES.search(value):
                raise RequestError(field=f"values[{place}]", message="must be a text that UTF-8 can hold")
        if len(self._places) < len(self.values):
            raise RequestError(field="values", message="names a value twice", hint="name each once")
        otherwise: Any = self.otherwise
        listed = isinstance(otherwise, str | int) and not isinstance(otherwise, bool) and otherwise in self._places
        if otherwise is not None and not listed:
            raise RequestError(field="otherwise", message="must be one of the values", hint="add it to values")

    @cached_property
    def _places(self) -> Mapping[Any, int]:
        return {value: place for place, value in enumerate(self.values)}

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    def index_of(self, value: Any) -> int:
        """The place of a value in the list.

        Raises:
            RequestError: the value is not in the list, and `otherwise` is not declared. The message does not say the value.
        """
        known = isinstance(value, str | int) and not isinstance(value, bool)
        place = self._places.get(value) if known else None
        place = self._places.get(self.otherwise) if place is None else place
        if place is None:
            raise RequestError(
                field="value",
                message="is not one of the question's values",
                hint="declare otherwise: a value that stands for all others, so that every device answers",
            )
        return place

    def to_json(self) -> dict[str, Any]:
        """As question files hold it."""
        return {"values": list(self.values)} | ({} if self.otherwise is None else {"otherwise": self.otherwise})


@dataclass(frozen=True)
class NumberBins:
    """Numbers in bins: how many people are in each is what a histogram shows.

    Args:
        edges: at least 3 growing numbers; a bin holds its lower edge. Numbers beyond the ends are
            in the first and in the last bin.
        otherwise: the number that a device reports on where it has none; None refuses on the device.

    >>> bins = NumberBins((0, 18, 40, 65, 120))
    >>> bins.size, bins.index_of(18), bins.index_of(-1), bins.index_of(200)
    (4, 1, 0, 3)
    """

    edges: tuple[Any, ...]
    otherwise: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.edges, str) or not isinstance(self.edges, Sequence):
            raise RequestError(field="edges", message="must be a list of numbers", hint="write e.g. [0, 18, 65, 120]")
        edges = tuple(_decimal(edge, f"edges[{place}]") for place, edge in enumerate(self.edges))
        if not 3 <= len(edges) <= MOST_VALUES or any(a >= b for a, b in itertools.pairwise(edges)):
            raise RequestError(field="edges", message="must be at least 3 numbers that grow")
        object.__setattr__(self, "edges", edges)
        if self.otherwise is not None:
            object.__setattr__(self, "otherwise", _decimal(self.otherwise, "otherwise"))

    @property
    def size(self) -> int:
        """How many bins there are."""
        return len(self.edges) - 1

    def index_of(self, value: Any) -> int:
        """The bin of a number.

        Raises:
            RequestError: the value is not a number, and `otherwise` is not declared. The message does not say the value.
        """
        return min(self.size - 1, max(0, bisect.bisect_right(self.edges, _number(value, self.otherwise)) - 1))

    def to_json(self) -> dict[str, Any]:
        """As question files hold it."""
        found: dict[str, Any] = {"edges": [f"{edge:f}" for edge in self.edges]}
        return found | ({} if self.otherwise is None else {"otherwise": f"{self.otherwise:f}"})


@dataclass(frozen=True)
class NumberGrid:
    """Numbers from `low` to `high`, each taken as the nearest point of a grid; beyond the ends, as the end.

    Args:
        low: the least, as a whole number or decimal text.
        high: the largest.
        steps: steps of the grid, a power of two, 2 to 1024. An average of answers is off by at most half a step.
        otherwise: the number that a device reports on where it has none; None refuses on the device.

    >>> NumberGrid(0, 24).index_of(6.01), NumberGrid("0", "1").index_of(5)
    (256, 1024)
    """

    low: Any
    high: Any
    steps: int = STEPS
    otherwise: Any = None

    def __post_init__(self) -> None:
        for field in ("low", "high"):
            object.__setattr__(self, field, _decimal(getattr(self, field), field))
        if not self.low < self.high:
            raise RequestError(field="high", message="must be above low")
        checks.whole(self.steps, "steps", low=2, high=STEPS, hint="a power of two")
        if self.steps & (self.steps - 1):
            raise RequestError(field="steps", message="must be a power of two", hint=f"take e.g. {STEPS}")
        if self.otherwise is not None:
            object.__setattr__(self, "otherwise", _decimal(self.otherwise, "otherwise"))
            if not self.low <= self.otherwise <= self.high:
                raise RequestError(field="otherwise", message="must lie between low and high")

    @property
    def size(self) -> int:
        """How many points there are."""
        return self.steps + 1

    def index_of(self, value: Any) -> int:
        """The nearest point of the grid; halves go up.

        Raises:
            RequestError: the value is not a number, and `otherwise` is not declared. The message does not say the value.
        """
        number = _number(value, self.otherwise)
        low, width = Fraction(self.low), Fraction(self.high) - Fraction(self.low)
        if isinstance(number, float):
            return self.steps if number > 0 else 0
        return min(self.steps, max(0, math.floor((number - low) / width * self.steps + Fraction(1, 2))))

    def to_json(self) -> dict[str, Any]:
        """As question files hold it: numbers as text, since not every reader of JSON has decimal ones."""
        found = {"low": f"{self.low:f}", "high": f"{self.high:f}", "steps": self.steps}
        return found | ({} if self.otherwise is None else {"otherwise": f"{self.otherwise:f}"})


def _decimal(value: Any, field: str) -> Decimal:
    """A public bound as it was written."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            raise ValueError
        found = Decimal(repr(value) if isinstance(value, float) else value)
        if not found.is_finite() or len(found.as_tuple().digits) > 20 or abs(found.adjusted()) > 20:
            raise ValueError
    except (ValueError, InvalidOperation):
        raise RequestError(
            field=field, message="must be a number of at most 20 digits", hint='write e.g. "0.5"'
        ) from None
    return found


def _number(value: Any, otherwise: Decimal | None) -> Fraction | float:
    """A person's number, or the one that stands for none."""
    number = _real(value)
    if number is None and otherwise is not None:
        number = Fraction(otherwise)
    if number is None:
        raise RequestError(
            field="value",
            message="is not a number",
            hint="declare otherwise: the number to report on in place of none, so that every device answers",
        )
    return number


def _real(value: Any) -> Fraction | float | None:
    """A person's number: exact, or an infinity; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        return None
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        # A text such as 1e999999999 has no exact fraction that a device could hold.
        if value.is_infinite() or value.adjusted() > FAR:
            return math.copysign(math.inf, value)
        return Fraction(0) if value.adjusted() < -FAR else Fraction(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else value
    return Fraction(value)
