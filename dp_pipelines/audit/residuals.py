"""Checks of noise: it has the standard deviation of its record, and no draw is used twice.

In: released numbers minus exact totals, divided by the record's standard deviation, some replays at a time. Out: the
ratio of the two standard deviations, and the evidence against it; the largest correlation, and the evidence for one.
Holds: only too little noise counts as wrong; too much costs only accuracy. Not covered: properties of a law other than
its variance (tests/noise checks those).
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.audit import evidence
from dp_pipelines.noise.laws import FlooredLaplace, Law

Floats = NDArray[np.float64]

MOST_COLUMNS = 256
"""The most draws of a replay to check for correlations with each other; of more draws, only this many are checked."""

FOURTH = {"gaussian": 3.0, "laplace": 6.0}
SMALL = 4
"""Below this scale the fourth moment of a rounded law is not that of the smooth one."""


def fourth_moment(law: Law) -> float:
    """Return an upper bound on the fourth moment of a draw, in its standard deviations.

    >>> from fractions import Fraction
    >>> round(fourth_moment(FlooredLaplace(Fraction(1000))), 6)
    6.06
    """
    smooth = FOURTH["laplace" if isinstance(law, FlooredLaplace) else "gaussian"]
    if law.scale >= SMALL:
        return smooth * 1.01
    offset, most = float(law.offset), math.ceil(60 * max(1.0, float(law.scale)))
    return 1.01 * math.fsum((x + offset) ** 4 * law.pmf(x) for x in range(-most, most)) / law.stddev**4


@dataclasses.dataclass(eq=False)
class Squares:
    """The mean square of residuals that belong to one record."""

    fourth: float
    n: int = 0
    total: float = 0.0

    def add(self, residuals: Floats) -> None:
        """Add residuals."""
        self.n += residuals.size
        self.total += float(np.sum(np.square(residuals)))

    @property
    def ratio(self) -> float:
        """Return the observed standard deviation over that of the record."""
        return math.sqrt(self.total / self.n)

    @property
    def error(self) -> float:
        """Return the standard error of the ratio."""
        return math.sqrt((self.fourth - 1) / self.n) / 2

    @property
    def evidence(self) -> float:
        """Return the evidence that the ratio is below 1."""
        return evidence.deficit(self.total / self.n, self.n, self.fourth)


@dataclasses.dataclass(eq=False)
class Steady:
    """A check that each step has exactly the noise that was drawn: any divisor but the given one would show."""

    worst: float = 0.0
    ratio: float = 1.0
    looked_at: int = 0

    def add(self, residuals: Floats) -> None:
        """Add residuals of replays that were trained together, over the standard deviation drawn: shape (replays, steps)."""
        n, steps = residuals.shape
        squares = np.mean(np.square(residuals), axis=0)
        evidences = n / 2 * (squares - 1 - np.log(np.maximum(squares, 1e-300)))
        farthest = int(np.argmax(evidences))
        self.looked_at += steps
        if evidences[farthest] >= self.worst:
            self.worst, self.ratio = float(evidences[farthest]), math.sqrt(squares[farthest])

    @property
    def evidence(self) -> float:
        """Return the evidence that some step has different noise: both tails of a mean of squares of normal variables."""
        return max(0.0, self.worst - math.log(2 * max(1, self.looked_at)))


class Products:
    """Mean products of draws: of the columns of matrices in which each row is a replay, and of rows with later rows."""

    def __init__(self) -> None:
        self._sums: Floats | None = None
        self._rows = 0
        self._before: Floats | None = None
        self._shifted = 0.0
        self._pairs = 0

    def add(self, residuals: Floats) -> None:
        """Add residuals of more replays, with the same number of columns each time."""
        columns = residuals
        if residuals.shape[1] > MOST_COLUMNS:
            # Check neighbours, since a draw that is used again is used soon, and some from far away.
            far = np.linspace(MOST_COLUMNS // 2, residuals.shape[1] - 1, MOST_COLUMNS // 2).astype(int)
            columns = residuals[:, np.r_[: MOST_COLUMNS // 2, far]]
        sums = columns.T @ columns
        self._sums = sums if self._sums is None else self._sums + sums
        self._rows += len(columns)
        first = columns[:, 0]
        if self._before is not None:
            size = min(len(first), len(self._before))
            self._shifted += float(first[:size] @ self._before[:size])
            self._pairs += size
        self._before = first.copy()

    @property
    def largest(self) -> float:
        """Return the largest correlation."""
        return max(self._within, self._between)

    @property
    def evidence(self) -> float:
        """Return the evidence that two draws of a replay, or draws of two replays, are related."""
        if self._sums is None:
            return 0.0
        size = len(self._sums)
        within = evidence.related(self._within, self._rows, size * (size - 1) // 2)
        return max(0.0, max(within, evidence.related(self._between, self._pairs, 1)) - math.log(2))

    @property
    def _within(self) -> float:
        """Return the largest correlation of two draws of one replay."""
        if self._sums is None or len(self._sums) < 2:
            return 0.0
        spread = np.sqrt(np.maximum(np.diag(self._sums), 1e-300))
        related = np.abs(self._sums / spread[:, None] / spread)
        np.fill_diagonal(related, 0.0)
        return float(related.max())

    @property
    def _between(self) -> float:
        """Return the correlation of the first draws of replays that follow each other, over all portions."""
        if self._sums is None or not self._pairs:
            return 0.0
        return abs(self._shifted) / self._pairs * self._rows / max(float(self._sums[0, 0]), 1e-300)
