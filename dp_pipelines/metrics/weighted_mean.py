"""The weighted mean of a column: two sums that are released, and their quotient, which is computed from them.

In: a `Mean` with a weight column. Out: the expressions of what one row adds, the bounds of their sums, the formula of the mean.
Holds: the sums clamp what a row adds, whatever an expression gives, so no weight moves a sum by more than these bounds. Values
are counted from the middle of their range, since such distances are half as large. Not covered: noise and interval, which are
those of two sums and of their quotient.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import Floats, Lattice

if TYPE_CHECKING:
    from dp_pipelines.metrics.sums import Mean

LARGEST_WEIGHT = 1e100
"""The upper bound of `max_weight`."""

WEIGHTS, WEIGHTED = "weights", "weighted"
"""How the names of the two sums end."""

_DISTANCE = re.compile(
    r"(?P<weight>.+ \(0 to (?P<most>[^ ()]+)\)) \* \((?P<value>.+) \((?P<low>[^ ()]+) to (?P<high>[^ ()]+)\) - [^ ()]+\)",
    re.DOTALL,
)
"""The column of weight times distance, as `weighted` names it."""

_SUM = re.compile(r"sum\((?P<column>.*) in \[[^\[\],]+, [^\[\],]+\], values( from the middle)?\)", re.DOTALL)
"""The name of a sum in a manifest (`kernels.statistics`)."""

_ALONE = "write a stage with the two sums, or a mean without weights"


def check(mean: "Mean", weight_column: str, max_weight: float | None) -> None:
    """Refuse what a weighted mean cannot have.

    Args:
        mean: whose bounds are checked already.
        weight_column, max_weight: its fields.

    Raises:
        RequestError: by field.
    """
    checks.name(weight_column, "weight_column")
    hint = "write the largest weight, from what is known of the survey: larger ones are clamped"
    largest = checks.number(max_weight, "max_weight", above=0, below=LARGEST_WEIGHT, hint=hint)
    object.__setattr__(mean, "max_weight", largest)
    if mean.auto or mean.scale is not None:
        field = next(end for end in ("max_value", "min_value") if not isinstance(getattr(mean, end), float))
        message = "must be a number beside weight_column: it bounds weight times value"
        raise RequestError(field=field, message=message, hint="write a number, from public knowledge")
    if mean.shrink:
        raise RequestError(field="shrink", message="is not for weighted means", hint=_ALONE)
    if not mean.nullable:
        message = "is not for weighted means, which leave out rows without a value or a weight"
        raise RequestError(field="nullable", message=message, hint="drop it")
    Lattice.for_values(0.0, largest)
    Lattice.for_values(-_farthest(mean), _farthest(mean))


def refused_here() -> RequestError:
    """Return the error of a pipeline that has no released table to compute the quotient from."""
    message = "makes a weighted mean, which is computed from a released table, and not in a pipeline"
    hint = "use a job file or a session, or publish the sums of weights and of weight times value"
    return RequestError(field="weight_column", message=message, hint=hint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumOfExpression:
    """One of the two sums.

    Args:
        column: the name of what one row adds, which states both clamps: another clamp is another column, and limits name it.
        expression: what one row adds, in SQL over one row; null for a row without a weight or a value.
        low, high: between which it is clamped.
        label: what it is, for readers.
    """

    column: str
    expression: str
    low: float
    high: float
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumPair:
    """The two sums of a weighted mean among the metrics of a stage.

    Args:
        name: of the mean.
        weighted, weights: the names of its sums.
        low, high: the range of its values.
        largest: the largest weight.
    """

    name: str
    weighted: str
    weights: str
    low: float
    high: float
    largest: float

    @property
    def middle(self) -> float:
        """Return the number from which its values are counted."""
        return self.low / 2 + self.high / 2

    def mean_of(
        self, weighted: Floats, noise: Floats, weights: Floats, noise_of_weights: Floats
    ) -> tuple[Floats, Floats]:
        """Return the means and about the deviation of their noise, as for means of rows, each within its range.

        Args:
            weighted, noise: the sums of weight times distance, and the deviations of their noise.
            weights, noise_of_weights: the same of the sums of weights.

        Returns:
            NaN where weights do not add up to more than zero.
        """
        total = np.where(weights > 0, weights, np.nan)
        mean = np.clip(self.middle + weighted / total, self.low, self.high)
        return mean, np.hypot(noise, (mean - self.middle) * noise_of_weights) / total


def released_pairs(metrics: Mapping[str, Any]) -> list[SumPair]:
    """Return the weighted means of a stage, by what its manifest says of their sums.

    Args:
        metrics: the entries of the manifest, by name.

    >>> weights = "sum(w (0 to 4) of v in [0.0, 4.0], values)"
    >>> weighted = "sum(w (0 to 4) * (v (0 to 12) - 6) in [-24.0, 24.0], values)"
    >>> metrics = {"a_weights": {"statistics": {weights: {}}}, "a_weighted": {"statistics": {weighted: {}}}}
    >>> [(pair.name, pair.low, pair.high) for pair in released_pairs(metrics)]
    [('a', 0.0, 12.0)]
    """
    columns = {}
    for name, entry in metrics.items():
        statistics = entry.get("statistics") if isinstance(entry, Mapping) else None
        names = statistics if isinstance(statistics, Mapping) else ()
        columns[str(name)] = [match["column"] for one in names if (match := _SUM.fullmatch(str(one)))]
    return sum_pairs(columns)


def sum_pairs(columns: Mapping[str, Collection[str]]) -> list[SumPair]:
    """Return the weighted means of a stage, by the names of their sums and of the columns that these add up.

    Args:
        columns: by metric.

    >>> columns = {"a_weights": ["w (0 to 4) of v"], "a_weighted": ["w (0 to 4) * (v (-2 to 10) - 4)"], "n": []}
    >>> [(pair.name, pair.low, pair.high, pair.largest) for pair in sum_pairs(columns)]
    [('a', -2.0, 10.0, 4.0)]
    >>> sum_pairs({"a_weighted": ["w (0 to 4) * (v (0 to 12) - 6)"], "a_weights": ["u (0 to 4) of v"]})
    []
    """
    pairs = []
    for weighted, of_weighted in columns.items():
        name = weighted.removesuffix(f"_{WEIGHTED}")
        match = next((found for column in of_weighted if (found := _DISTANCE.fullmatch(column))), None)
        of_weights = columns.get(f"{name}_{WEIGHTS}", ())
        if name == weighted or match is None or f"{match['weight']} of {match['value']}" not in of_weights:
            continue
        try:
            low, high, largest = (float(match[part]) for part in ("low", "high", "most"))
        except ValueError:
            continue
        pairs.append(
            SumPair(name=name, weighted=weighted, weights=f"{name}_{WEIGHTS}", low=low, high=high, largest=largest)
        )
    return pairs


def weights(mean: "Mean", value: str, weight: str) -> SumOfExpression:
    """Return the sum of the weights of all rows that have a value.

    Args:
        mean: with a weight column.
        value, weight: both columns, or what defines them, in SQL.

    >>> from dp_pipelines.metrics.sums import Mean
    >>> mean = Mean("v", min_value=0, max_value=12, weight_column="w", max_weight=4)
    >>> weights(mean, "v", "w").expression
    'CASE WHEN NOT isnan(v * 1e0) AND NOT isnan(w * 1e0) THEN least(greatest(w * 1e0, 0e0), 4.0e0) END'
    """
    return SumOfExpression(
        column=f"{_clamped_weight(mean)} of {mean.column}",
        expression=_where_both(mean, value, weight),
        low=0.0,
        high=_largest(mean),
        label="weights",
    )


def weighted(mean: "Mean", value: str, weight: str) -> SumOfExpression:
    """Return the sum of weight times the distance of the value from the middle of its range. Arguments as for `weights`."""
    low, high, middle = (_double(number) for number in (mean.low, mean.high, middle_of(mean)))
    distance = f"(least(greatest({value} * 1e0, {low}), {high}) - ({middle}))"
    label = f"weight times distance from {middle_of(mean):g}" if middle_of(mean) else "weight times value"
    most, middle_text = _farthest(mean), _short(middle_of(mean))
    clamped = f"{mean.column} ({_short(mean.low)} to {_short(mean.high)})"
    return SumOfExpression(
        column=f"{_clamped_weight(mean)} * ({clamped} - {middle_text})",
        expression=_where_both(mean, value, weight, f" * {distance}"),
        low=-most,
        high=most,
        label=label,
    )


def _clamped_weight(mean: "Mean") -> str:
    return f"{mean.weight_column} (0 to {_short(_largest(mean))})"


def _short(number: float) -> str:
    """Return a number with all of its digits, and no point behind a whole one."""
    return repr(number).removesuffix(".0")


def formula(mean: "Mean", of: str, to: str) -> str:
    """Return the mean as a formula of the two sums.

    Args:
        mean: with a weight column.
        of, to: the names of the sums of distances and of weights, as formulas write them.

    >>> from dp_pipelines.metrics.sums import Mean
    >>> formula(Mean("v", min_value=0, max_value=12, weight_column="w", max_weight=4), "a", "b")
    '6.0 + a / b'
    """
    return f"{middle_of(mean)!r} + {of} / {to}" if middle_of(mean) else f"{of} / {to}"


def middle_of(mean: "Mean") -> float:
    """Return the number from which values are counted: the middle of their range."""
    return mean.low / 2 + mean.high / 2


def _largest(mean: "Mean") -> float:
    assert mean.max_weight is not None
    return mean.max_weight


def _farthest(mean: "Mean") -> float:
    """Return the most that weight times distance can be."""
    return _largest(mean) * max(mean.high - middle_of(mean), middle_of(mean) - mean.low)


def _where_both(mean: "Mean", value: str, weight: str, times: str = "") -> str:
    """Return the clamped weight of a row, null where value or weight is null or no number.

    `x * 1e0` is x as a DOUBLE, and refused of columns that hold no numbers.
    """
    clamped = f"least(greatest({weight} * 1e0, 0e0), {_double(_largest(mean))})"
    return f"CASE WHEN NOT isnan({value} * 1e0) AND NOT isnan({weight} * 1e0) THEN {clamped}{times} END"


def _double(number: float) -> str:
    """Return a number as SQL's DOUBLE; written without an exponent it would be a DECIMAL."""
    text = repr(number)
    return text if "e" in text else f"{text}e0"
