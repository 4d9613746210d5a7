"""Labels: what a model predicts, which is true or false, one of some classes, or a number.

In: names and numbers that the owner of the job declares. Out: frozen descriptions, validated at once. Holds: nothing here
depends on data. Not covered: whether a column exists and has a type that fits (`training.features.input_types`).
"""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Any

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

MOST_VALUES = 500
"""Declared values of a label, a category or groups."""

LONGEST_TEXT = 256
"""Bytes of a text in UTF-8: a longer one counts as null (`steps.whole_units`)."""

LEFT_OUT = "is left out of training and evaluation"
"""What happens to a row without a label, in words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinaryLabel:
    """True or false, or 1 and 0: the model gives the probability of true. An example without a label is left out.

    Args:
        column: the column.
    """

    column: str

    def __post_init__(self) -> None:
        checks.name(self.column, "label")

    outputs = 1

    @property
    def rule(self) -> str:
        """Return in words how values count. It is public and does not depend on the column's type."""
        return f"{self.column}: 1 and true count as true, 0 and false as false; a row with any other value, or none, {LEFT_OUT}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassLabel:
    """One of the declared classes: the model gives the probability of each. An example with another value is left out.

    Args:
        column: the column.
        classes: its values: 2 to 500 different plain ones.
    """

    column: str
    classes: Sequence[Any]

    def __post_init__(self) -> None:
        checks.name(self.column, "label")
        object.__setattr__(self, "classes", distinct(self.classes, "classes", 2))

    @property
    def outputs(self) -> int:
        """Return the number of classes."""
        return len(self.classes)

    @property
    def rule(self) -> str:
        """Return in words how values count."""
        return f"{self.column}: one of the {len(self.classes)} declared classes; a row with any other value, or none, {LEFT_OUT}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberLabel:
    """A number: the model gives its expected value. Values outside of the range count as its ends.

    Args:
        column: the column.
        min_value, max_value: the declared range.
    """

    column: str
    min_value: float
    max_value: float

    def __post_init__(self) -> None:
        checks.name(self.column, "label")
        low = checks.number(self.min_value, "min_value", above=-1e300, below=1e300)
        high = checks.number(self.max_value, "max_value", above=-1e300, below=1e300)
        if not low < high:
            raise RequestError(field="min_value", message="must be below max_value", hint="widen the range")

    outputs = 1

    @property
    def rule(self) -> str:
        """Return in words how values count."""
        ends = f"from {self.min_value:g} to {self.max_value:g}; values outside count as its ends"
        return f"{self.column}: a number {ends}; a row without one {LEFT_OUT}"


Label = BinaryLabel | ClassLabel | NumberLabel


def distinct(values: Any, field: str, least: int) -> tuple[Any, ...]:
    """Check declared values and return them: a list of different plain ones.

    Args:
        values: the list.
        field: its name, for messages.
        least: the smallest allowed number of values.

    Raises:
        RequestError: it is not a list, or some values are not plain, or two are equal.
    """
    if not isinstance(values, (list, tuple)):
        raise RequestError(field=field, message="must be a list", hint="write e.g. [north, south]")
    if len(values) > MOST_VALUES or len(values) < least:
        raise RequestError(
            field=field, message=f"must be {least} to {MOST_VALUES} values", hint="write e.g. [north, south]"
        )
    plain = [(type(value), value) for value in values if isinstance(value, (str, int, float, bool)) and value == value]
    if len(plain) != len(values):
        hint = "all other values are one more of them" if field == "groups" else "null stands for no value"
        raise RequestError(field=field, message="must be texts, numbers, truths or dates", hint=hint)
    if len(set(plain)) != len(values):
        raise RequestError(field=field, message="must be different values", hint="write each value once")
    if any(len(value.encode(errors="replace")) > LONGEST_TEXT for value in values if isinstance(value, str)):
        message = f"contains a text of more than {LONGEST_TEXT} bytes, which in a row counts as null"
        raise RequestError(
            field=field,
            message=message,
            hint="shorten it first, in a job file by an expression under columns:, and here as well",
        )
    if any(unicodedata.category(sign) == "Cs" for value in values if isinstance(value, str) for sign in value):
        hint = "leave it out: no text column can hold it"
        raise RequestError(field=field, message="contains half of a surrogate pair, which is not valid text", hint=hint)
    return tuple(values)
