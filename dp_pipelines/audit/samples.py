"""Checks that samples are Poisson: how often each unit was in one, and how large samples were.

In: counts. Out: evidence that they do not follow their binomial laws. Holds: it counts a unit's coins over all steps,
and all units' coins in one step. So fixed batch sizes, a shuffled order that uses every unit once, and reused samples
all show. Not covered: dependence that leaves both laws unchanged (tests/training checks more).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.audit import evidence

Places = NDArray[np.int64]

CELLS = 16
"""The number of cells, of about equal probability, into which counts are put."""


def of_units(inside: Places, steps: int, rate: float) -> float:
    """Return the evidence that units were not in Binomial(steps, rate) samples.

    Args:
        inside: number of samples with each unit, int64 of shape (units,).
        steps: how many samples there were.
        rate: of each unit.

    >>> of_units(np.full(1000, 10), 100, 0.1) > 1000
    True
    """
    return _unlike_binomial(inside, steps, rate)


def of_sizes(trials: Iterable[tuple[Places, int]], rate: float) -> float:
    """Return the evidence that samples did not have Binomial(units, rate) units.

    Args:
        trials: sizes of samples, and how many units they were taken from.
        rate: of each unit.
    """
    sizes: dict[int, list[Places]] = {}
    for counts, units in trials:
        sizes.setdefault(units, []).append(counts)
    # One number of units is that of nearly all trials: the last has the rest.
    units, most = max(sizes.items(), key=lambda pair: len(pair[1]))
    return _unlike_binomial(np.concatenate(most), units, rate)


def _unlike_binomial(counts: Places, n: int, rate: float) -> float:
    from scipy import stats

    law = stats.binom(n, rate)
    ends = np.unique(law.ppf(np.arange(1, CELLS) / CELLS))
    claimed = np.diff(np.concatenate([[0.0], law.cdf(ends), [1.0]]))
    observed = np.bincount(np.searchsorted(ends, counts, side="left"), minlength=len(claimed))
    return evidence.unlike(observed.tolist(), claimed.tolist())
