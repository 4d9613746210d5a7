"""PeopleEstimates as numbers of people: none negative, all together the number of reports.

In: unbiased estimates and their total. Out: consistent ones. Holds: they are nearer to the truth than the unbiased ones (the
nearest point of a convex set that has the truth in it). Not covered: bars, which nobody knows for them; those of the unbiased
estimates stay.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def norm_sub(estimates: Floats, total: float) -> Floats:
    """The same amount is taken from (or added to) each estimate, and what is negative is 0, such that all add up to the total.

    Source: Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li, NDSS 2020 (Norm-Sub): the Euclidean projection onto the scaled simplex.

    Args:
        estimates: float64 of shape (size,).
        total: what they add up to, at least 0.

    >>> norm_sub(np.array([5.0, 3.0, -2.0]), 6.0).tolist()
    [4.0, 2.0, 0.0]
    """
    ordered = np.sort(estimates)[::-1]
    taken = (np.cumsum(ordered) - total) / np.arange(1, len(ordered) + 1)
    last = int(np.flatnonzero(ordered - taken >= 0)[-1])
    found: Floats = np.maximum(estimates - taken[last], 0)
    return found
