"""The ends of a feature's bins, from released quantiles: values that many rows share get bins of their own.

In: quantiles of evenly spaced ranks, with the width of a leaf of the tree they were found in; whether the column holds whole
numbers, by its type. Out: cut points, one less than bins. Holds: all of it follows from what is released and from public facts
(post-processing); quantiles without a run in one leaf give the ranks that divide the mass evenly. Not covered: the release
itself (`metrics.quantiles`); runs of less than a bin's part of the mass, which are cut like any others.
"""

# A run of quantiles in one leaf is a value that many rows share, such as zero. Its ranks tell how many: with quantiles of 100
# ranks, 92 in the leaf of zero leave eight for the rest. Cut evenly by rank, nine of ten bins would lie inside of that leaf,
# where no row ever is, and the tenth would hold all other values.

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EXACT = 2.0**50
"""Whole numbers below it have halves between them, as floats."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """Quantiles of one leaf.

    Args:
        low, high: of the leaf, or of the one whole number in it.
        first, last: ranks between which the mass of the leaf lies, in ranks of one quantile.
    """

    low: float
    high: float
    first: float
    last: float

    @property
    def mass(self) -> float:
        return self.last - self.first


def cut_points(
    quantiles: Sequence[float], bins: int, *, low: float, high: float, leaves: int, whole: bool = False
) -> tuple[float, ...]:
    """Where a feature is cut into bins.

    Args:
        quantiles: released, of the ranks 1 / n, 2 / n, ... with n - 1 of them; they need not rise.
        bins: how many, from 2.
        low, high: the declared range.
        leaves: into how many leaves the tree divides it.
        whole: whether all values are whole numbers. Then cuts lie halfway between two of them, which moves no value to another
            bin.

    Returns:
        `bins - 1` numbers from low to high, ascending. Some are equal where there are fewer values to tell apart than bins.

    >>> cut_points([10, 20, 30], 4, low=0, high=40, leaves=4096)
    (10.0, 20.0, 30.0)
    >>> cut_points([0, 0, 0, 0, 0, 0, 0, 5, 20], 4, low=0, high=100, leaves=100, whole=True)  # 75 of 100 rows are zero
    (0.5, 9.5, 33.5)
    """
    values = np.maximum.accumulate(np.clip(np.asarray(quantiles, np.float64), low, high))
    whole = whole and max(abs(low), abs(high)) < EXACT
    runs = _runs(values, low, high, leaves, whole)
    apart = _set_apart(runs, bins, len(values) + 1, low, high)
    fixed = _ends(apart, low, high)
    ranks, places = _without(values, apart, low, high)
    free = bins - 1 - len(fixed)
    targets = ranks[-1] * np.arange(1, free + 1) / (free + 1)
    cuts = np.sort(np.concatenate([fixed, _at(targets, ranks, places)]))
    if whole:
        cuts = _between(cuts, low, high)
    return tuple(float(cut) + 0.0 for cut in np.clip(cuts, low, high))


def _runs(values: Floats, low: float, high: float, leaves: int, whole: bool) -> list[_Run]:
    """Neighbouring quantiles of one leaf, where there are several."""
    width = (high - low) / leaves
    places = np.clip(np.floor((values - low) / width), 0, leaves - 1)
    begins = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
    found = []
    for begin, end in zip(begins, [*begins[1:], len(values)], strict=True):
        if end - begin < 2:
            continue
        start = low + float(places[begin]) * width
        stop = min(low + (float(places[begin]) + 1) * width, high)
        if whole and math.ceil(start) < stop <= math.ceil(start) + 1:  # one whole number is in it
            start, stop = math.ceil(start) - 0.5, math.ceil(start) + 0.5
        # Half a rank beyond its first and last quantile, and all that can be at an end of the range.
        first = 0.0 if start <= low else begin + 0.5
        last = len(values) + 1.0 if stop >= high else end + 0.5
        found.append(_Run(low=start, high=stop, first=first, last=last))
    return found


def _set_apart(runs: Sequence[_Run], bins: int, ranks: int, low: float, high: float) -> list[_Run]:
    """The runs that get a bin of their own: those with more mass than a bin of the rest would have, the largest first."""
    apart: list[_Run] = []
    rest = float(ranks)
    for run in sorted(runs, key=lambda each: -each.mass):
        more = sorted([*apart, run], key=lambda each: each.low)
        if run.mass * (bins - len(apart)) < rest or len(_ends(more, low, high)) > bins - 1:
            break
        apart = more
        rest -= run.mass
    return apart


def _ends(apart: Sequence[_Run], low: float, high: float) -> list[float]:
    """The ends of runs inside the range; one between two runs where no quantile lies between them."""
    ends: list[float] = []
    before: _Run | None = None
    for run in apart:
        if before is None or run.first > before.last:
            ends.append(run.low)
        ends.append(run.high)
        before = run
    return sorted({end for end in ends if low < end < high})


def _without(values: Floats, apart: Sequence[_Run], low: float, high: float) -> tuple[Floats, Floats]:
    """The ranks and places of what is left: straight lines between these points, with the runs taken out.

    Returns:
        ranks from 0 up to the mass that is left, and where in the range they lie; ascending.
    """
    ranks, places, taken = [0.0], [low], 0.0
    at = 0
    for run in (*apart, None):
        until = len(values) if run is None else int(np.searchsorted(values, run.low))
        for index in range(at, max(at, until)):
            ranks.append(index + 1 - taken)
            places.append(float(values[index]))
        if run is None:
            ranks.append(len(values) + 1 - taken)
            places.append(high)
            break
        # The end of what lies below the run, and the beginning of what lies above it, have one rank.
        ranks += [run.first - taken] * 2
        places += [run.low, run.high]
        taken += run.mass
        at = int(np.searchsorted(values, run.high))
    return np.maximum.accumulate(np.array(ranks)), np.maximum.accumulate(np.array(places))


def _at(targets: Floats, ranks: Floats, places: Floats) -> Floats:
    """The places of some ranks."""
    keep = np.concatenate([ranks[1:] > ranks[:-1], [True]])  # above a jump, not below it
    return np.asarray(np.interp(targets, ranks[keep], places[keep]))


def _between(cuts: Floats, low: float, high: float) -> Floats:
    """Cuts halfway between whole numbers. Those that fall together move to free places beside them, where there are any."""
    halves = np.ceil(cuts) - 0.5
    least, most = math.floor(low) + 0.5, math.ceil(high) - 0.5
    wanted, free = np.clip(halves, least, most), []
    taken: set[float] = set()
    for cut in wanted.tolist():
        while cut in taken and cut < most:
            cut += 1.0
        while cut in taken and cut > least:
            cut -= 1.0
        taken.add(cut)
        free.append(cut)
    return np.sort(np.array(free))
