"""Base of metrics over one column's values with declared bounds: numbers, `auto`, or a column of a public table.

In: the bounds that a job declares. Out: the base of sums, means and variances: its bounds, its family, its statistics. Holds:
metrics with one column and equal bounds are of one family, whose sums and basis they share. Not covered: what clamping cuts off.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import Floats, Lattice
from dp_pipelines.kernels.statistics import NotNullCount, Statistic, ValueSum
from dp_pipelines.metrics.base import ROWS, Basis, Metric, ReleasedValues
from dp_pipelines.metrics.lookup_bound import LARGEST, LookupBound, PartitionScale

AUTO: Literal["auto"] = "auto"
"""A bound that is chosen from a noisy histogram, within a declared range."""

Bound = float | Literal["auto"] | LookupBound | None


@dataclasses.dataclass(frozen=True)
class OverColumn(Metric):
    """A metric of one column's values, each clamped to [min_value, max_value]; `auto` is chosen within a declared range."""

    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    min_value: Bound = dataclasses.field(default=None, kw_only=True)
    max_value: Bound = dataclasses.field(default=None, kw_only=True)
    within: Sequence[float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")
        self._check_bounds()

    def _check_bounds(self) -> None:
        for field in ("min_value", "max_value"):
            if getattr(self, field) == AUTO or isinstance(getattr(self, field), LookupBound):
                continue
            hint = "declare what a value can be, from public knowledge: what lies outside is clamped"
            bound = checks.number(getattr(self, field), field, above=-1e300, below=1e300, hint=hint)
            object.__setattr__(self, field, bound + 0.0)  # -0.0 and 0.0 are one bound, so that metrics share their sums
        self._check_within()
        if self.scale is not None:
            self._check_scale(self.scale)
            return
        if not self.low <= self.high:
            raise RequestError(field="min_value", message="must not be above max_value", hint="swap the two")
        if self.within is not None and not (self.within[0] <= self.low < self.high <= self.within[1]):
            message = "must hold the bound that is given, and leave room beside it"
            raise RequestError(field="within", message=message, hint="widen it")

    def _check_scale(self, scale: PartitionScale) -> None:
        by_partition = "max_value" if isinstance(self.max_value, LookupBound) else "min_value"
        if self.auto:
            message, hint = (
                "differs by partition, beside a bound that the run chooses",
                "write a number for the other one",
            )
            raise RequestError(field=by_partition, message=message, hint=hint)
        if self.stddev is not None:
            message = "stands beside a bound that differs by partition, to which the noise is in proportion"
            raise RequestError(field="stddev", message=message, hint="write a weight instead, or bounds as numbers")
        for field in ("min_value", "max_value"):
            if not isinstance(getattr(self, field), LookupBound):
                checks.number(getattr(self, field), field, above=-LARGEST, below=LARGEST)
        scale.refuse_defaults()

    def _check_within(self) -> None:
        if not self.auto:
            if self.within is not None:
                message, hint = "is for bounds that are chosen", "drop it, or write max_value: auto"
                raise RequestError(field="within", message=message, hint=hint)
            return
        hint = "write e.g. within: [0, 1000000], from public knowledge: what lies outside is clamped"
        if self.stddev is not None:
            message = "stands beside bounds that are chosen, with which the noise grows"
            raise RequestError(field="stddev", message=message, hint="write a weight instead, or the bounds")
        if self.within is None:
            raise RequestError(field="within", message="is needed where a bound is auto", hint=hint)
        if not isinstance(self.within, (list, tuple)) or len(self.within) != 2:
            raise RequestError(field="within", message="must be two numbers", hint=hint)
        low, high = (checks.number(end, "within", above=-1e100, below=1e100, hint=hint) + 0.0 for end in self.within)
        if not low < high or max(abs(low), abs(high)) < 1e-100:
            raise RequestError(field="within", message="must rise", hint=hint)
        object.__setattr__(self, "within", (low, high))

    @property
    def auto(self) -> bool:  # type: ignore[override]
        """Return True if a bound is chosen from a noisy histogram."""
        return AUTO in (self.min_value, self.max_value)

    @property
    def max_is_auto(self) -> bool:  # type: ignore[override]
        """Return True if the upper bound is chosen."""
        return self.max_value == AUTO

    def bounded(self, low: float, high: float) -> "Metric":
        """Return the same metric with the bounds that were chosen."""
        return dataclasses.replace(self, min_value=low, max_value=high, within=None)

    @property
    def low(self) -> float:
        """Return the lower bound; the least possible one if it is not chosen yet; that of `scale` if it differs by partition."""
        return self._end(self.min_value, 0)

    @property
    def high(self) -> float:
        """Return the upper bound; the greatest possible one if it is not chosen yet; otherwise as `low`."""
        return self._end(self.max_value, 1)

    def _end(self, bound: Bound, place: int) -> float:
        if self.scale is not None:
            return (0.0, 1.0)[place] if self.scale.of_range else self._end_of_multiples(place)
        if isinstance(bound, str):
            assert self.within is not None
            return self.within[place]
        assert isinstance(bound, float)
        return bound

    def _end_of_multiples(self, place: int) -> float:
        """Return an end of multiples of the larger bound: 0 if a bound says that all values have one sign."""
        if place == 0:
            return 0.0 if isinstance(self.min_value, float) and self.min_value >= 0 else -1.0
        return 0.0 if isinstance(self.max_value, float) and self.max_value <= 0 else 1.0

    @property
    def scale(self) -> PartitionScale | None:  # type: ignore[override]
        """Return how values are scaled if a bound differs by partition: as shares of its range."""
        return self._scale(of_range=True)

    def _scale(self, *, of_range: bool) -> PartitionScale | None:
        if not (isinstance(self.min_value, LookupBound) or isinstance(self.max_value, LookupBound)):
            return None
        # Combinations that such a bound does not allow are refused later; until then the scale is unknown.
        low, high = (0.0 if end is None or isinstance(end, str) else end for end in (self.min_value, self.max_value))
        return PartitionScale(column=self.column, low=low, high=high, of_range=of_range)

    def unscaled(self, scaled: ReleasedValues, low: Floats, high: Floats) -> ReleasedValues:
        assert self.scale is not None
        values, stddevs = scaled
        unit = self.scale.unit(low, high)
        return low + unit * values, unit * stddevs

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column, *(() if self.scale is None else self.scale.lookups))

    @property
    def _added(self) -> str:
        """Return the column that statistics read."""
        return self.column if self.scale is None else self.scale.name

    @property
    def family(self) -> tuple[str, float, float] | None:
        return (self._added, self.low, self.high)

    def _count(self, basis: Basis) -> Statistic:
        return NotNullCount(column=self._added) if basis.nullable else ROWS

    def _sum(self, basis: Basis) -> Statistic:
        return ValueSum(column=self._added, lattice=Lattice.for_values(self.low, self.high, centred=basis.centred))

    def _squares(self, basis: Basis) -> Statistic:
        return ValueSum(column=self._added, lattice=Lattice.for_squares(self.low, self.high, centred=basis.centred))
