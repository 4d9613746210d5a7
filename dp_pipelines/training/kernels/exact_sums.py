"""Sums of float64 vectors in two words, and the number of units up to which our bounds hold.

In: vectors, one after another. Out: their sum. Holds: as long as the sum of magnitudes spans fewer than 2**105 units of
the smallest last place, nothing is lost; otherwise the loss is below 2**-100 of the sum of magnitudes. The result is
rounded to float64 once, at the end. Not covered: overflow; vectors of clipped gradients are far from it.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_UNITS = 2**31
"""A training set has fewer units than this: the proofs of sensitivity rely on it (docs/proofs/training.md)."""

SLACK = MOST_UNITS * 2.0**-52
"""The change from rounding a sum to float64 and multiplying it once, relative to the norm: twice 2**-53 of MOST_UNITS
norms."""


class Total:
    """A running sum.

    >>> total = Total(1)
    >>> for number in (2.0**60, 1.0, -(2.0**60)):
    ...     total.add(np.array([number]))
    >>> total.value().tolist()
    [1.0]
    """

    def __init__(self, size: int) -> None:
        self._high, self._low = np.zeros(size), np.zeros(size)
        self._empty = True

    def add(self, vector: Floats) -> None:
        """Add a vector. Knuth's two-sum finds exactly what rounding takes from the sum; it goes to the second word."""
        if self._empty:  # as in most steps of a network, which take one chunk
            np.add(vector, 0.0, out=self._high)
            self._empty = False
            return
        high = self._high + vector
        before = high - vector
        self._low += (self._high - before) + (vector - (high - before))
        self._high = high

    def value(self) -> Floats:
        """The sum, rounded to float64."""
        result: Floats = self._high + self._low
        return result
