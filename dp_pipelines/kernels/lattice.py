"""From floats to integers: clamp, centre, scale by a power of two, round. After this room only integers are added.

In: one Arrow array of values. Out: int64 lattice values of at most 2**30 in magnitude, and which rows are null. Holds: the
result of a row depends on that row alone; sums of lattice values do not depend on order, batch or engine. Not covered:
rounding a value moves it by at most half a lattice step (2**-30 of the range); sensitivities are those of the integers, so
this costs accuracy, never privacy.
"""

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import gather

VALUE_BITS = 30
"""A clamped value spans at most 2**30 lattice steps: 2**31 rows of them still fit into an int64."""

SUMMAND_BITS = 24
"""Lattice bits of a bound on a unit's sum per partition; each summand may be 2**16 times as large (`SummandLattice`)."""

SUMMAND_HEADROOM_BITS = 16

LARGEST_POWER = 1000
"""The largest power of two, up and down, that a float64 certainly holds."""

SMALLEST = 2.0**-1000
"""Below this size of a range a lattice step would be no float64 any more."""

LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
"""The logarithm of 2 in two parts: whole numbers below 2**20 times the first are exact (fdlibm, e_log.c)."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

Through = Callable[[Floats], Floats]
"""A function that is applied to each value before clamping: a rising function of one number alone, the same in every place of
every array on every machine, so of operations that IEEE 754 rounds (`np.sqrt`, not `np.log`). A module holds it under the name
by which it travels, and by which statistics are distinguished."""


def logarithms(values: Floats) -> Floats:
    """Return the natural logarithm of each value, to some units in the last place; that of 2**-1074 for values up to 0.

    From sums, products and quotients alone: libraries and vector units differ in the last bits of their own.

    Args:
        values: float64 without NaN; an infinity counts as the largest float.

    >>> logarithms(np.array([1.0, 8.0])).tolist() == [0.0, math.log(8.0)]
    True
    """
    fractions, powers = np.frexp(np.clip(values, math.ulp(0.0), np.finfo(np.float64).max))
    small = fractions < math.sqrt(0.5)
    # Fractions from sqrt(1/2) to sqrt(2), less 1 without rounding: log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 + ...).
    above, powers = np.where(small, 2 * fractions, fractions) - 1, powers - small
    s = above / (above + 2)
    square, series = s * s, np.full(len(s), 2 / 21)
    for odd in range(19, 1, -2):  # |s| < 0.172: what is left out is below 2**-60 of the sum
        series = series * square + 2 / odd
    return powers * LN2_HIGH + (2 * s + (s * square * series + powers * LN2_LOW))


def _named(through: Through) -> str:
    """Return the name under which a module holds a function.

    Raises:
        ValueError: none does, so that workers would not find it, and two such functions could share a name.
    """
    module, name = getattr(through, "__module__", None), getattr(through, "__qualname__", "")
    if module is None or getattr(sys.modules.get(module), name, None) is not through:
        raise ValueError("a function that values go through must be one that a module holds under its name")
    return name if module == __name__ else f"{module}.{name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lattice:
    """The integers for values clamped to [low, high]: `round((value - centre) * 2**exponent)`.

    Args:
        low, high: bounds of the clamp, finite, low <= high; with `through`, bounds of its results.
        centre: subtracted before scaling; the middle of the range for centred sums, else 0.
        square: whether the lattice is for squares of (value - centre) instead, less `square_centre`.
        square_centre: subtracted from the squares before scaling.
        through: applied to each value first, e.g. `logarithms`; all else here is about its results. None: values are unchanged.

    >>> lattice = Lattice.for_values(0.0, 200.0)
    >>> lattice.largest * lattice.step
    200.0
    """

    low: float
    high: float
    centre: float = 0.0
    square: bool = False
    square_centre: float = 0.0
    exponent: int = 0
    through: Through | None = None

    @classmethod
    def for_values(cls, low: float, high: float, *, centred: bool = False, through: Through | None = None) -> "Lattice":
        """Return the lattice of clamped values, or of the results of a rising function between `low` and `high`."""
        if through is not None:
            _named(through)
            low, high = through(np.array([low, high])).tolist()
        centre = low / 2 + high / 2 if centred else 0.0
        lattice = cls(low=low, high=high, centre=centre, through=through)
        return lattice.__fitted(max(abs(low - centre), abs(high - centre)), VALUE_BITS)

    @classmethod
    def for_squares(cls, low: float, high: float, *, centred: bool = False) -> "Lattice":
        """Return the lattice of squares: of the values, or of their distances from the middle less half the largest square."""
        centre = low / 2 + high / 2 if centred else 0.0
        half_width = max(abs(low - centre), abs(high - centre))
        largest = half_width * half_width
        square_centre = largest / 2 if centred else 0.0
        lattice = cls(low=low, high=high, centre=centre, square=True, square_centre=square_centre)
        return lattice.__fitted(largest - square_centre, VALUE_BITS)

    def __fitted(self, magnitude: float, bits: int) -> "Lattice":
        if not (SMALLEST < magnitude < math.inf):
            raise RequestError(
                field="min_value, max_value",
                message="span a range that is empty, or whose size (for a variance: its square) overflows or vanishes",
                hint="choose finite bounds with min_value below max_value",
            )
        # frexp: magnitude = m * 2**e with 0.5 <= m < 1, hence magnitude * 2**(bits - e) < 2**bits.
        return dataclasses.replace(self, exponent=bits - math.frexp(magnitude)[1])

    @property
    def step(self) -> float:
        """Return the width of one lattice step in units of the value (or of its square)."""
        return math.ldexp(1.0, -self.exponent)

    @property
    def offset(self) -> float:
        """Return the part of a row that its lattice value leaves out: the centre of the values, or of the squares."""
        return self.square_centre if self.square else self.centre

    @property
    def centre_used(self) -> bool:
        """Return True if values are counted from the middle of their range."""
        return self.centre != 0.0 or self.square_centre != 0.0

    @property
    def form(self) -> str:
        """Return the name of the summed quantity; for a function of another module, with the module's name."""
        if self.through is None:
            return "squares" if self.square else "values"
        return _named(self.through)

    @property
    def lowest(self) -> int:
        """Return the smallest integer that a row can have."""
        return self.__ends()[0]

    @property
    def highest(self) -> int:
        """Return the largest integer that a row can have."""
        return self.__ends()[1]

    @property
    def largest(self) -> int:
        """Return the largest magnitude of a row's integer: the sensitivity of a sum to one row."""
        return max(abs(self.lowest), abs(self.highest))

    def __ends(self) -> tuple[int, int]:
        if not self.square:
            ends = (self.low - self.centre, self.high - self.centre)
        else:
            distances = (abs(self.low - self.centre), abs(self.high - self.centre))
            nearest = 0.0 if self.low <= self.centre <= self.high else min(distances)
            ends = (nearest * nearest - self.square_centre, max(distances) ** 2 - self.square_centre)
        return round(math.ldexp(ends[0], self.exponent)), round(math.ldexp(ends[1], self.exponent))

    def integers(self, values: Floats) -> Integers:
        """Return the lattice values of numbers that hold no NaN.

        Args:
            values: float64, any shape of one dimension; infinities clamp.

        Returns:
            int64, each between `lowest` and `highest`: enforced on the integers, so no float detail can exceed them.
        """
        if self.through is not None:
            values = self.through(values)
        moved = np.clip(values, self.low, self.high) - self.centre
        if self.square:
            moved = moved * moved - self.square_centre
        # The product with a power of two that a double holds is rounded as `ldexp` rounds, and takes a fifth of its time.
        exact = abs(self.exponent) <= LARGEST_POWER
        scaled = moved * math.ldexp(1.0, self.exponent) if exact else np.ldexp(moved, self.exponent)
        return np.clip(np.rint(scaled).astype(np.int64), self.lowest, self.highest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummandLattice:
    """The integers of values whose SUM per unit and partition is clipped to [low, high].

    Each summand is clamped to 2**16 times the larger bound, so that a batch of 2**21 rows adds up within int64.

    >>> SummandLattice.for_sums(0.0, 10.0).clip_bounds
    (0, 10485760)
    """

    low: float
    high: float
    exponent: int

    @classmethod
    def for_sums(cls, low: float, high: float) -> "SummandLattice":
        """Return the lattice of summands for sums clipped to [low, high]."""
        magnitude = max(abs(low), abs(high))
        if not (SMALLEST < magnitude < 2.0**1000):
            raise RequestError(
                field="min_sum_per_partition, max_sum_per_partition",
                message="must be finite, not both zero, and of a size between 2**-1000 and 2**1000",
                hint="choose finite bounds, e.g. 0 and 500",
            )
        return cls(low=low, high=high, exponent=SUMMAND_BITS - math.frexp(magnitude)[1])

    @property
    def step(self) -> float:
        """Return the width of one lattice step in units of the value."""
        return math.ldexp(1.0, -self.exponent)

    @property
    def offset(self) -> float:
        """Return 0: sums are never centred."""
        return 0.0

    @property
    def clip_bounds(self) -> tuple[int, int]:
        """Return the integer bounds of a unit's sum in one partition."""
        return round(math.ldexp(self.low, self.exponent)), round(math.ldexp(self.high, self.exponent))

    @property
    def largest(self) -> int:
        """Return the largest magnitude of one unit's clipped sum."""
        return max(abs(bound) for bound in self.clip_bounds)

    def integers(self, values: Floats) -> Integers:
        """Return the lattice values of summands that hold no NaN; int64 of magnitude at most 2**(24 + 16)."""
        bound = 2.0 ** (SUMMAND_BITS + SUMMAND_HEADROOM_BITS)
        with np.errstate(over="ignore"):
            scaled = np.rint(np.ldexp(values, self.exponent))
        return np.clip(scaled, -bound, bound).astype(np.int64)


def numbers_and_nulls(column: pa.Array) -> tuple[Floats, Flags | None]:
    """Return one Arrow array of numbers as float64, and its nulls: null and NaN are null, and read as 0.0.

    Args:
        column: integers of any width, floats, decimals or booleans, possibly dictionary-encoded.

    Returns:
        values (float64, no NaN) and a mask of nulls, or None where there is none. Converting integers above 2**53 and
        decimals rounds to the nearest float64, which is monotone and looks at one row alone.

    >>> numbers_and_nulls(pa.array([1.5, float("nan"), None]))[1].tolist()
    [False, True, True]
    """
    if pa.types.is_dictionary(column.type):
        column = gather.decoded(column)
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        column = column.cast(pa.float64())
    elif not pa.types.is_float64(column.type):
        # safe=False: an int64 above 2**53 rounds instead of raising, which would show that there is one.
        column = column.cast(pa.float64(), safe=False)
    nulls = None
    if column.null_count:
        nulls = cast(Flags, pc.is_null(column).to_numpy(zero_copy_only=False))
        column = pc.fill_null(column, 0.0)
    values = cast(Floats, column.to_numpy(zero_copy_only=False))
    not_numbers = np.isnan(values)
    if not_numbers.any():
        nulls = not_numbers if nulls is None else nulls | not_numbers
    if nulls is not None:
        values = np.where(nulls, 0.0, values)
    return values, nulls


def coarse_words(high: Integers, low: Integers, *, shift: int, step: int) -> Integers:
    """Round totals high * 2**32 + low of any shape as `accumulate.Totals.coarse` does."""
    if high.size == 0 or max(-int(high.min()), int(high.max())) < 1 << (29 - shift):
        fine = ((high << np.int64(32)) + low) << np.int64(shift)
        if step < 1 << 61:
            # Clipped here too: which way is taken depends on all partitions, so it must not show in any.
            return np.clip((fine + np.int64(step // 2)) // np.int64(step), -(2**52), 2**52)
    exact = ((high.astype(object) << 32) + low.astype(object)) << shift
    return np.clip((exact + step // 2) // step, -(2**52), 2**52).astype(np.int64)


def coarse_counts(counts: Integers, *, shift: int, step: int) -> Integers:
    """Round counts * 2**shift in units of `step` as `accumulate.Totals.coarse` does; any shape.

    Counts above 2**40 are taken for 2**40, each by itself, which can only bring two of them closer.
    """
    fine = np.minimum(counts, np.int64(2**40)) << np.int64(shift)
    return np.clip((fine + np.int64(step // 2)) // np.int64(step), -(2**52), 2**52)
