"""Second moments of the features, clipped by unit, and the whitening matrix that follows from their release.

In: examples; then the released sum, the released number of units and the known noise. Out: a vector, the sum over units
of the mean of x x' over the unit's examples; then the whitening matrix. Holds: one unit changes the vector by at most
the square of `row_norm` in L2, whatever its rows are, and nothing else in the data matters, bit for bit, because sums
are of whole numbers (docs/proofs/training.md, 3). Columns that are always zero do no harm. Not covered: adding the
noise (`training.gaussian_noise`).
"""

# Entries off the diagonal are multiplied by sqrt(2). So the vector has the L2 norm of the whole symmetric matrix, and
# the noise is the same in every direction.

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.examples.coded import CodedChunk
from dp_pipelines.training.features.code_layout import CodeLayout
from dp_pipelines.training.kept_draws import Released
from dp_pipelines.training.kernels.exact_sums import SLACK as ROUNDING
from dp_pipelines.training.kernels.exact_sums import Total

Floats = NDArray[np.float64]

SLACK = 3 * ROUNDING
"""For `NoisySum`: six roundings. Five happen: the sum, its unit, sqrt(2), the product with it, the product with
`steps`."""

UNITS = 2**13
"""Units of a chunk: sums of this many matrices of norm 2**40 are exact."""

BLOCK = 2**20
"""How many numbers are in memory at a time."""

_BITS = 20
"""Bits of a row's norm."""


class HasChunks(Protocol):
    """Examples by fixed chunks of whole units."""

    @property
    def width(self) -> int:
        """The number of columns."""
        ...

    def chunks(self, units_per_chunk: int) -> Iterator[Any]:
        """All units, this many at a time."""
        ...


@runtime_checkable
class HasCodedChunks(Protocol):
    """Coded examples by fixed chunks of whole units: `examples.coded.CodedExamples`."""

    @property
    def width(self) -> int:
        """The number of columns that the codes stand for."""
        ...

    @property
    def layout(self) -> CodeLayout:
        """What the codes stand for."""
        ...

    def chunks(self, units_per_chunk: int) -> Iterator[CodedChunk]:
        """All units, this many at a time."""
        ...


def size(width: int) -> int:
    """The number of coordinates of the vector: the matrix from its diagonal up.

    >>> size(3)
    6
    """
    return width * (width + 1) // 2


def norm(row_norm: float) -> float:
    """The most that one unit changes the vector in L2."""
    return row_norm**2


def clipped_moments(examples: HasChunks | HasCodedChunks, row_norm: float) -> Floats:
    """The sum over units of the mean of x x' over the unit's examples.

    Args:
        examples: of fewer than `exact_sums.MOST_UNITS` units. A row that is not finite counts as zero. Coded ones need
            no matrix products: see `coded_moments`.
        row_norm: longer rows are scaled down to it.

    Returns:
        float64 (size(width),): release it with norm `norm(row_norm)` and slack `SLACK`.
    """
    if isinstance(examples, HasCodedChunks):
        from dp_pipelines.training.features.coded_moments import matrix_of

        return _vector(matrix_of(examples))
    width = examples.width
    found = Total(width * width)
    chunk: Any
    for chunk in examples.chunks(UNITS):
        of_chunk = np.zeros((width, width))
        for rows in _whole_rows(chunk.features, chunk.starts, row_norm):
            of_chunk += rows.T @ rows
        found.add(of_chunk.ravel())
    matrix = found.value().reshape(width, width) * (norm(row_norm) * 2.0 ** (-2 * _BITS))
    return _vector(matrix)


def _vector(matrix: Floats) -> Floats:
    return _weights(len(matrix)) * matrix[np.triu_indices(len(matrix))]


def _whole_rows(features: NDArray[np.float32], starts: NDArray[np.int64], row_norm: float) -> Iterator[Floats]:
    """Rows times 2**20 / row_norm / sqrt(n), towards zero: squares add up to at most 2**40 / n, n the unit's examples."""
    counts = np.repeat(np.diff(starts), np.diff(starts)).astype(np.float64)
    step = max(1, BLOCK // features.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        for begin in range(0, len(features), step):
            count = counts[begin : begin + step]
            rows = features[begin : begin + step] * (2.0**_BITS / row_norm / np.sqrt(count))[:, None]
            np.trunc(rows, out=rows)
            most = np.floor(2.0 ** (2 * _BITS) / count)
            squares = np.einsum("ij,ij->i", rows, rows)
            if not (squares <= most).all():
                long = np.flatnonzero(~(squares <= most))
                scaled = np.trunc(rows[long] * (np.sqrt(most[long] / squares[long]) * (1 - 2.0**-40))[:, None])
                scaled[~(np.einsum("ij,ij->i", scaled, scaled) <= most[long])] = 0.0
                rows[long] = scaled
            yield rows


def _weights(width: int) -> Floats:
    """1 on the diagonal, sqrt(2) off it."""
    rows, columns = np.triu_indices(width)
    return np.where(rows == columns, 1.0, math.sqrt(2))


@dataclasses.dataclass(frozen=True, eq=False)
class Directions:
    """The main directions of the features, from released numbers alone.

    Args:
        moments: of the features along these directions, at least 0: (width,).
        vectors: the directions, in columns: (width, width).
        ridge: what is added to the moments.
    """

    moments: Floats
    vectors: Floats
    ridge: float

    @property
    def whitening(self) -> Floats:
        """The regularised inverse root of the moments: (width, width), symmetric, finite. It multiplies rows of features.

        >>> found = directions(np.array([400.0, 0.0, 100.0]), 100.0, 0.0)
        >>> np.round(found.whitening, 6).tolist()
        [[0.5, 0.0], [0.0, 1.0]]
        """
        matrix = (self.vectors / np.sqrt(self.moments + self.ridge)) @ self.vectors.T
        result: Floats = (matrix + matrix.T) / 2
        return result

    @property
    def effective_width(self) -> float:
        """How many directions of the features rise above the noise: the mean of the squared norm of a whitened row.

        >>> round(directions(np.array([400.0, 0.0, 0.0]), 100.0, 0.0).effective_width, 6)
        1.0
        """
        return float(np.sum(self.moments / (self.moments + self.ridge)))


def directions(noisy: Floats, units: Released, noise_stddev: float) -> Directions:
    """The main directions of the features.

    Args:
        noisy: the release of `clipped_moments`.
        units: the released number of units; a number below 1 counts as 1.
        noise_stddev: of a coordinate of `noisy`.
    """
    width = (math.isqrt(8 * len(noisy) + 1) - 1) // 2
    divisor = max(1.0, units)
    upper = np.zeros((width, width))
    upper[np.triu_indices(width)] = noisy / _weights(width) / divisor
    values, vectors = np.linalg.eigh(upper + np.triu(upper, 1).T)
    values = np.maximum(values, 0.0)
    # The eigenvalues of the noise alone reach about twice this (Wigner), so directions below it are not stretched
    # fully.
    ridge = noise_stddev / divisor * math.sqrt(width / 2)
    return Directions(values, vectors, max(ridge, 1e-9 * float(values.max()), 1e-12))
