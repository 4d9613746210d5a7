"""Which columns of the features are told apart from nothing by their released moments; the others are dropped.

In: released second moments, the released number of units, the known noise. Out: the columns that stand out; a whitening matrix
that gives all others no weight. Holds: all of it is post-processing of the release; the
constant stays. A column is dropped for all examples alike: no row decides what becomes of it. Not covered: the release, and
how a matrix is whitened (`moments`).
"""

# The moment of a column of zeros and ones is the number of units that have it, in parts of their examples. Where it is within its
# noise, hardly anybody does: of a bin that no value falls into, or a place for a category that was not found. The model would
# give it a weight all the same, made of noise alone.

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.features import moments
from dp_pipelines.training.kept_draws import Released

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Sum = tuple[int, Sequence[int]]
"""A column, and others that add up to it in every row."""

STANDS_OUT = 3.0
"""Standard deviations of its noise above which a moment is one."""

TOGETHER = 0.0
"""Standard deviations of their noise above which columns that were dropped are had by somebody, taken together. To take nobody
for somebody costs a little noise; the other way round, what these examples share is lost (.002 of the AUC of Ta Feng at 0.5).
"""

TOGETHER_OF_PAIR = 2.0
"""The same of dropped cells of a pair. A feature's column stays for whoever has them, and each of its sums would add noise."""

DEPENDENT = 1e-9
"""What is left of a sum beside others, if it is so short, is rounding: it follows from them."""

LEAST_LEFT = 1e-6
"""What has to be left of each column that stands out, of 1. Sums that fit together leave 1 over their number or more."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SeenColumns:
    """What released moments say of the columns.

    Args:
        columns: (width,) whether each stands out.
        whitening: (width, width), symmetric, finite; zero in rows and columns of those that do not.
        moments: (width, width), symmetric: the mean of x x' over units, with the noise of the release; zero likewise.
        typical: the norm of a typical whitened row.
        one_of: columns of which each row has exactly one.
        parts: columns of features that pairs divide, each with its cells.
    """

    columns: Flags
    whitening: Floats
    moments: Floats
    typical: float
    one_of: Sequence[Sequence[int]] = ()
    parts: Sequence[Sum] = ()


def standing_out(noisy: Floats, noise_stddev: float) -> Flags:
    """Whether the moment of each column stands out of its noise. The constant always counts as if it did.

    Args:
        noisy: the release of `moments.clipped_moments`.
        noise_stddev: of each of its coordinates.

    >>> standing_out(np.array([400.0, 0.0, 2.0]), 1.0).tolist(), standing_out(np.array([400.0, 0.0, 2.0]), 0.5).tolist()
    ([True, False], [True, True])
    """
    width = width_of(noisy)
    rows, columns = np.triu_indices(width)
    found: Flags = noisy[rows == columns] > STANDS_OUT * noise_stddev
    found[0] = True
    return found


def seen(
    noisy: Floats,
    units: Released,
    noise_stddev: float,
    one_of: Sequence[Sequence[int]] = (),
    parts: Sequence[Sum] = (),
) -> SeenColumns:
    """The columns that stand out, and how they are whitened: as if the others did not exist.

    Args:
        noisy: the release of `moments.clipped_moments`.
        units: the released number of units.
        noise_stddev: of each coordinate of `noisy`.
        one_of: columns of which each row has exactly one, so that they add up to the constant: those of each feature. No example
            tells what a weight more on all of them and less on the constant would do, and noise has no part in it either.
        parts: columns of features, each with the cells of a pair that add up to it: likewise.

    >>> seen(np.array([400.0, 0.0, 0.0]), Released(100.0), 1.0).whitening[1].tolist()
    [0.0, 0.0]
    """
    columns = standing_out(noisy, noise_stddev)
    kept = np.flatnonzero(columns)
    rows, across = np.triu_indices(len(columns))
    of_these = noisy[columns[rows] & columns[across]]
    near, far = np.triu_indices(len(kept))
    root = np.where(near == far, 1.0, math.sqrt(2))  # off the diagonal, moments are released times sqrt(2)
    means = np.zeros((len(kept), len(kept)))
    means[near, far] = means[far, near] = of_these / root
    sums = [*((0, listed) for listed in one_of), *((whole, listed) for whole, listed in parts if columns[whole])]
    told = _told_by_examples(columns, _exhausted(noisy, noise_stddev, columns, sums))
    means = told @ means @ told
    of_these = means[near, far] * root
    found = moments.directions(of_these, units, noise_stddev)
    both = np.ix_(kept, kept)
    whitening, matrix = np.zeros((2, len(columns), len(columns)))
    whitening[both] = told @ found.whitening @ told
    matrix[both] = means / max(1.0, units)
    typical = math.sqrt(max(found.effective_width, 1.0))
    return SeenColumns(
        columns=columns, whitening=whitening, moments=matrix, typical=typical, one_of=one_of, parts=parts
    )


def all_columns(
    noisy: Floats,
    units: Released,
    noise_stddev: float,
    one_of: Sequence[Sequence[int]] = (),
    parts: Sequence[Sum] = (),
) -> SeenColumns:
    """All columns, whether they stand out or not, whitened as version 0.1.0 did. Arguments as for `seen`.

    >>> all_columns(np.array([400.0, 0.0, 100.0]), Released(100.0), 0.0).whitening.round(6).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    found = moments.directions(noisy, units, noise_stddev)
    width = width_of(noisy)
    near, far = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[near, far] = matrix[far, near] = noisy / np.where(near == far, 1.0, math.sqrt(2)) / max(1.0, units)
    return SeenColumns(
        columns=np.ones(width, np.bool_),
        whitening=found.whitening,
        moments=matrix,
        typical=math.sqrt(max(found.effective_width, 1.0)),
        one_of=one_of,
        parts=parts,
    )


def _exhausted(noisy: Floats, noise_stddev: float, columns: Flags, sums: Sequence[Sum]) -> list[Sum]:
    """The sums whose dropped columns together are nothing but noise: those that stand out add up to the whole.

    Of others they do not: an example that has none of them is told apart by that. A single dropped column never is: to tell its
    examples apart would bring back the column that was dropped.
    """
    rows, across = np.triu_indices(len(columns))
    own = noisy[rows == across]
    found = []
    for whole, listed in sums:
        dropped = [column for column in listed if not columns[column]]
        most = STANDS_OUT if len(dropped) == 1 else TOGETHER if whole == 0 else TOGETHER_OF_PAIR
        if float(own[dropped].sum()) <= most * noise_stddev * math.sqrt(len(dropped)):
            found.append((whole, listed))
    return found


def _told_by_examples(columns: Flags, sums: Sequence[Sum]) -> Floats:
    """The projection, of the columns that stand out, on the directions in which examples can differ.

    Noise may have dropped columns that somebody has, so that sums contradict each other: one says that nobody has a column,
    another that everybody has. A sum that would leave nothing of a column that stands out is ignored.

    Args:
        columns: which stand out.
        sums: what adds up, so that examples cannot differ in it; the first have precedence.
    """
    width = int(columns.sum())
    basis, left = np.zeros((width, 0)), np.ones(width)
    for whole, listed in sums:
        apart = np.zeros(len(columns))
        apart[whole], apart[list(listed)] = 1.0, -1.0
        direction = apart[columns]
        if not columns[list(listed)].any():
            continue
        length = float(np.linalg.norm(direction))
        for _ in range(2):  # the second time takes what rounding has left
            direction = direction - basis @ (basis.T @ direction)
        rest = float(np.linalg.norm(direction))
        if not rest > DEPENDENT * length:
            continue
        direction = direction / rest
        if float((left - direction**2).min()) < LEAST_LEFT:
            continue
        left = left - direction**2
        basis = np.column_stack([basis, direction])
    result: Floats = np.eye(width) - basis @ basis.T
    return result


def width_of(noisy: Floats) -> int:
    """How many columns moments are of.

    >>> width_of(np.zeros(6))
    3
    """
    return (math.isqrt(8 * len(noisy) + 1) - 1) // 2
