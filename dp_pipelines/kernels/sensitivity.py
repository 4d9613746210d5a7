"""Sensitivities of statistics: how far one privacy unit moves them, on the fine lattice and in steps of the release.

In: whole numbers that a statistic declares. Out: `Shape` and, after coarse rounding, `LatticeSteps`. Holds: `steps` bounds the
change of `floor((a + step // 2) / step)` in each coordinate, in number of coordinates, in L1 and in L2
(docs/proofs/sensitivity.md, 4; docs/proofs/vectors.md, 3).
"""

import dataclasses
import math
from fractions import Fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatticeSteps:
    """The most that one unit's rows can move a statistic on the lattice of its release.

    Args:
        l0: how many integers change.
        linf: by how much each, at most.
        l1: the sum of all changes.
        l2_squared: the sum of their squares.
    """

    l0: int
    linf: int
    l1: int
    l2_squared: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """The most that one privacy unit's rows can move a statistic, in units of `unit` fine lattice steps.

    Args:
        unit: fine lattice steps of one unit of change.
        coordinates: in how many integers the statistic can change (L0): partitions, times the coordinates of a vector.
        per_coordinate: units of change in one of them (Linf).
        in_total: units of change over all of them (L1).
        squares: the square of the L2 norm of all change, in units; None: it follows from `per_coordinate` and `in_total`, and
            changes that are whole units.
    """

    unit: int
    coordinates: int
    per_coordinate: int
    in_total: int
    squares: int | None = None

    @property
    def l2_squared(self) -> int:
        """Return the square of the L2 norm of all change, in units."""
        # Hoelder: the squares add up to at most the largest times the sum.
        return self.per_coordinate * self.in_total if self.squares is None else self.squares

    def steps(self, step: int, *, joined: bool = False) -> LatticeSteps:
        """Return the change in steps of `step` fine lattice steps.

        Args:
            step: fine lattice steps.
            joined: whether all units of change that fall on one integer are rounded together, which is never more than each
                rounded alone (docs/proofs/sensitivity.md, lemma 6c). Plans of 0.1.0 have records of the latter.

        >>> Shape(unit=100, coordinates=8, per_coordinate=1, in_total=8).steps(30)
        LatticeSteps(l0=8, linf=4, l1=32, l2_squared=128)
        >>> Shape(unit=100, coordinates=8, per_coordinate=8, in_total=8).steps(60, joined=True)
        LatticeSteps(l0=8, linf=14, l1=16, l2_squared=196)
        >>> Shape(unit=100, coordinates=8, per_coordinate=1, in_total=3, squares=1).steps(1).l2_squared
        10000
        """
        if self.squares is None:
            # Rounding turns r units in one partition into at most r * ceil(unit / step) steps.
            whole = -(-self.unit // step)
            if joined and self.joins:
                return self._joined(Fraction(self.unit, step))
            linf, l1 = self.per_coordinate * whole, self.in_total * whole
            return LatticeSteps(l0=self.coordinates, linf=linf, l1=l1, l2_squared=linf * l1)
        linf = -(-self.per_coordinate * self.unit // step)
        # A change by w becomes at most ceil(w / step) <= (w + step - 1) / step.
        l1 = (self.in_total * self.unit + self.coordinates * (step - 1)) // step
        before, rounding = self.squares * self.unit**2, self.coordinates * (step - 1) ** 2
        l2_squared = (before + rounding + _root_above(4 * before * rounding)) // step**2
        return LatticeSteps(
            l0=self.coordinates, linf=linf, l1=max(l1, linf), l2_squared=max(1, min(l2_squared, linf * l1))
        )

    def in_groups(self, most: int | None, groups: int | None) -> "Shape":
        """Return the change of sums over groups of the integers that this is about (docs/proofs/rollup.md, lemma 1).

        Args:
            most: integers in one group, at most; None: any number.
            groups: how many there are; None: any number.

        >>> Shape(unit=1, coordinates=8, per_coordinate=1, in_total=8).in_groups(None, 1)
        Shape(unit=1, coordinates=1, per_coordinate=8, in_total=8, squares=None)
        """
        assert self.squares is None
        together = self.in_total if most is None else min(self.in_total, most * self.per_coordinate)
        if groups is None:
            return dataclasses.replace(self, per_coordinate=together)
        total = min(self.in_total, groups * together)
        return dataclasses.replace(
            self, coordinates=min(self.coordinates, groups), per_coordinate=together, in_total=total
        )

    def in_tables(self, times: int) -> "Shape":
        """Return the change of several tables side by side, each of other rows of the unit (docs/proofs/parties.md, lemma 1).

        Args:
            times: in how many of them the unit may have rows.

        >>> Shape(unit=1, coordinates=8, per_coordinate=1, in_total=8).in_tables(2).l2_squared
        16
        """
        squares = None if self.squares is None else times * self.squares
        return dataclasses.replace(
            self, coordinates=times * self.coordinates, in_total=times * self.in_total, squares=squares
        )

    @property
    def joins(self) -> bool:
        """Return True if all of the change may fall on one integer, so that units of it are better rounded together."""
        return self.squares is None and self.per_coordinate == self.in_total > 1

    def ideally(self, steps: int, units: int = 1) -> LatticeSteps:
        """Return the change if so many units are so many steps exactly, and rounding adds nothing: to compare plans with.

        Args:
            steps: of the lattice of a release.
            units: 1, or `per_coordinate` where the shape `joins`.
        """
        if units > 1:
            return self._joined(Fraction(steps, units))
        linf, l1 = self.per_coordinate * steps, self.in_total * steps
        return LatticeSteps(l0=self.coordinates, linf=linf, l1=l1, l2_squared=self.l2_squared * steps**2)

    def _joined(self, steps: Fraction) -> LatticeSteps:
        """Return the change if one unit of it is so many steps, and rounding is to the next one (lemma 6c)."""
        most = self.per_coordinate
        linf, l1 = math.ceil(most * steps), most * math.ceil(steps)
        l2_squared = linf**2
        if steps < 1:
            l2_squared = min(math.ceil(max((most * steps + 1) ** 2, most * (steps + 1) ** 2)), linf * l1)
        return LatticeSteps(l0=self.coordinates, linf=linf, l1=l1, l2_squared=l2_squared)

    def rounding(self, law: str) -> float:
        """Return the number of steps of a unit of change below which rounding may double it; 0 if it cannot."""
        if self.squares is None:
            return 0.0
        return math.sqrt(self.coordinates / self.squares) if law == "gaussian" else self.coordinates / self.in_total


def _root_above(square: int) -> int:
    """Return the square root, rounded up.

    >>> _root_above(16), _root_above(17)
    (4, 5)
    """
    root = math.isqrt(square)
    return root + (root * root < square)
