"""What stands beside a statement: ranges of values, `clips: {price: [0, 1000]}`, and what else a metric says.

In: ranges by column, or by the name of a metric; other settings by metric. Out: the bounds and settings of each metric. Holds: no
range is left over or has two meanings; ranges are public: they are declared and never follow from the rows. Not covered: whether
a range makes sense (the metric says so).
"""

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sql_select.aggregate_calls import AggregateCall
from dp_pipelines.extensions.sql_select.syntax import SelectStatement
from dp_pipelines.metrics import registry

AUTO = "auto"
KEYS = ("min_value", "max_value", "within")
BOUNDS = (*KEYS, "min_sum_per_partition", "max_sum_per_partition")
"""Settings that are bounds of values."""


class Clips:
    """Ranges of values.

    Args:
        given: by column or by the name of a metric: `[low, high]`, or min_value, max_value and within as a metric says them.
        settings: what else metrics say, by name.

    Raises:
        RequestError: a range is none.
    """

    def __init__(self, given: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
        self.given = {name: _bounds(name, value) for name, value in given.items()}
        self.settings = settings
        self._columns: dict[str, str] = {}
        """Of each range that is used the column that it is of."""

    def of(self, statement: SelectStatement, call: AggregateCall, name: str, column: str) -> dict[str, Any]:
        """The bounds of a metric.

        Args:
            statement: the statement.
            call: the aggregate.
            name: of the metric.
            column: that it reads.

        Raises:
            StatementError: it has none.
        """
        if any(key in self.settings.get(name, {}) for key in BOUNDS):
            return {}
        key = next((key for key in (name, column) if key in self.given), None)
        if key is None:
            hint = f"declare what a value can be: {column}: [0, 1000] under clips:, --clip {column}=0:1000, or clips={{...}}"
            auto = "; or have the bounds chosen within a range: [auto, 0, 100000], --clip " + f"{column}=auto:0:100000"
            message = f"needs bounds of the values of {column!r}"
            raise statement.error(call.node, message, hint + (auto if _takes_auto(call) else ""))
        if self._columns.setdefault(key, column) != column:
            message = (
                f"is the name of one metric and the column of another, so that its range could be of either: {key!r}"
            )
            raise RequestError(field=f"clips.{key}", message=message, hint="give the metric another name with AS")
        bounds = dict(self.given[key])
        if AUTO in bounds.values() and not _takes_auto(call):
            # The range in which a bound is chosen is public, and all that a quantile needs.
            low, high = bounds.pop("within", (None, None))
            return {"min_value": low, "max_value": high}
        return bounds

    def settings_of(self, name: str, metric: Mapping[str, Any]) -> Mapping[str, Any]:
        """What else a metric says.

        Args:
            name: of the metric.
            metric: what the statement says of it.

        Raises:
            RequestError: it is said twice.
        """
        found = self.settings.get(name, {})
        for key in found:
            if key in metric:
                message = "is said by the statement or by clips already"
                raise RequestError(field=f"settings.{name}.{key}", message=message, hint="say it once")
        return found

    def refuse_unused(self, columns: Collection[str], names: Collection[str]) -> None:
        """Refuse a range that no metric has taken, and one whose name means two things.

        Raises:
            RequestError: as said.
        """
        for name in self.given:
            if name not in self._columns:
                near = difflib.get_close_matches(name, [*columns, *names], n=1, cutoff=0.6)
                hint = f"did you mean {near[0]!r}?" if near else "drop it"
                message = "is the range of a column or metric that has no use for one here"
                raise RequestError(field=f"clips.{name}", message=message, hint=hint)
        for name in self.settings:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]!r}?" if near else "metrics: " + ", ".join(names)
                raise RequestError(field=f"settings.{name}", message="is no metric of the statement", hint=hint)


def _takes_auto(call: AggregateCall) -> bool:
    return "within" in {field.name for field in dataclasses.fields(registry.metrics()[call.kind])}


def _bounds(name: str, value: Any) -> Mapping[str, Any]:
    """Bounds as a metric says them."""
    field, hint = f"clips.{name}", "write e.g. [0, 1000], or [auto, 0, 100000] to have bounds chosen in that range"
    if isinstance(value, Mapping):
        for key in value:
            if key not in KEYS:
                raise RequestError(
                    field=field, message=f"has an unknown key: {key}", hint="known keys: " + ", ".join(KEYS)
                )
        return value
    if isinstance(value, list | tuple) and len(value) == 3 and value[0] == AUTO:
        low, high = value[1:]
        least = low if isinstance(low, int | float) and low >= 0 else AUTO
        return {"min_value": least, "max_value": AUTO, "within": [low, high]}
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise RequestError(field=field, message="must be a range", hint=hint)
    return {"min_value": value[0], "max_value": value[1]}
