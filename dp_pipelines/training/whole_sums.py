"""Sums of vectors of whole numbers, exact in whatever order and however many.

In: float64 vectors that hold whole numbers below 2**53. Out: their sum as float64. Holds: nothing is rounded but the result,
once, and that only beyond 2**53. Not covered: more than 2**39 vectors.

May import nothing of this project. Imported by training.mlp.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ADDED_BEFORE_CARRY = 2**9


class WholeSum:
    """A sum of vectors of whole numbers, exact up to 2**93."""

    def __init__(self, size: int) -> None:
        self.low, self.high = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._step = np.empty(size, np.int64)
        self._added, self._carried = 0, False

    def clear(self) -> "WholeSum":
        """Begin again."""
        self.low.fill(0)
        self.high.fill(0)
        self._added, self._carried = 0, False
        return self

    def add(self, parts: Sequence[Floats]) -> None:
        """Add a vector of whole numbers below 2**53, given in parts of any shape."""
        begin = 0
        for part in parts:
            place = slice(begin, begin + part.size)
            np.copyto(self._step[place], part.reshape(-1), casting="unsafe")
            begin += part.size
        self.low += self._step
        self._added += 1
        if self._added >= ADDED_BEFORE_CARRY:
            self._carry()

    def _carry(self) -> None:
        self.high += self.low >> 40
        self.low &= 2**40 - 1
        self._added, self._carried = 1, True

    def merge(self, other: "WholeSum") -> None:
        """Add another sum."""
        self._added += other._added
        if self._added >= ADDED_BEFORE_CARRY or other._carried:
            self._carry()
            other._carry()
            self.high += other.high
        self.low += other.low

    def value(self) -> Floats:
        """The sum, rounded once: exact below 2**53."""
        result: Floats = self.low.astype(np.float64)
        return result + self.high.astype(np.float64) * 2.0**40 if self._carried else result
