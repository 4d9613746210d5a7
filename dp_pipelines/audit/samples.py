"""Whether samples are Poisson: how often each unit was in one, and how large samples were.

In: counts. Out: evidence that they do not have their binomial laws. Holds: a unit's coins of all steps together, and all units'
coins of one step, are what is counted: batches of one size, a shuffled order that deals everybody out once, a sample that is used
again all show. Not covered: relations that leave both laws as they are (tests/training looks at more).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.audit import evidence

Places = NDArray[np.int64]

CELLS = 16
"""Into so many cells of about equal probability counts are put."""


def of_units(inside: Places, steps: int, rate: float) -> float:
    """Evidence that units were not in Binomial(steps, rate) samples.

    >>> of_units(np.full(1000, 10), 100, 0.1) > 1000
    True
    """
    return _unlike_binomial(inside, steps, rate)


def of_sizes(trials: Iterable[tuple[Places, int]], rate: float) -> float:
    """Evidence that samples did not have Binomial(units, rate) units.

    Args:
        trials: sizes of samples, and from how many units they were taken.
        rate: of each unit.
    """
    sizes: dict[int, list[Places]] = {}
    for found, units in trials:
        sizes.setdefault(units, []).append(found)
    # One number of units is that of nearly all trials: the last has the rest.
    units, most = max(sizes.items(), key=lambda pair: len(pair[1]))
    return _unlike_binomial(np.concatenate(most), units, rate)


def _unlike_binomial(counts: Places, n: int, rate: float) -> float:
    from scipy import stats

    law = stats.binom(n, rate)
    ends = np.unique(law.ppf(np.arange(1, CELLS) / CELLS))
    claimed = np.diff(np.concatenate([[0.0], law.cdf(ends), [1.0]]))
    found = np.bincount(np.searchsorted(ends, counts, side="left"), minlength=len(claimed))
    return evidence.unlike(found.tolist(), claimed.tolist())
