"""Groups of held-out examples in which a model is evaluated separately.

In: a column and values that the owner of the job declares. Out: a frozen description, validated at once. Holds: which groups
there are is public, and each example is in exactly one. Not covered: whether the column exists and has a type that fits
(`training.features.input_types`), how examples are counted (`training.evaluation`).
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

from dp_pipelines import checks
from dp_pipelines.auto_bounds.value_bounds import COLUMN
from dp_pipelines.errors import RequestError
from dp_pipelines.query.labels import distinct

MOST_GROUPS = 20
"""Declared groups: overall figures of a model add up the noise of all."""

OTHERS = "another or missing"
"""The name of the group of all other values and nulls."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationGroups:
    """By which groups of held-out examples a model is evaluated too: the values of a column.

    Args:
        column: text, whole numbers, truths or dates; it need not be a feature.
        groups: the declared values, 1 to 20. All other values and nulls are one more group.

    >>> EvaluationGroups(column="region", groups=["north", "south"]).count
    3
    """

    column: str
    groups: Sequence[Any]

    def __post_init__(self) -> None:
        checks.name(self.column, "column")
        if self.column == COLUMN:
            message = f"is {COLUMN!r}, which is a reserved name"
            raise RequestError(field="column", message=message, hint="rename it")
        field = "groups"
        if isinstance(self.groups, (str, bytes)) or not isinstance(self.groups, (list, tuple)):
            raise RequestError(field=field, message="must be a list", hint="write e.g. [north, south]")
        if not 1 <= len(self.groups) <= MOST_GROUPS or any(isinstance(value, float) for value in self.groups):
            message = f"must be 1 to {MOST_GROUPS} texts, whole numbers, truths or dates"
            raise RequestError(field=field, message=message, hint="all other values are one more group")
        if OTHERS in self.groups:
            message = f"contains {OTHERS!r}, which is what the group of all other values is called"
            raise RequestError(
                field=field,
                message=message,
                hint="leave it out, or rename the value first, in a job file under columns:",
            )
        plain = [value.isoformat() if isinstance(value, datetime.date) else value for value in self.groups]
        object.__setattr__(self, "groups", distinct(plain, field, 1))

    @property
    def count(self) -> int:
        """Return the number of groups: the declared ones, and that of all others."""
        return len(self.groups) + 1
