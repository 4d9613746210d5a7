"""The release of a median with smooth sensitivity: one number for each partition, from the counts of all its values.

In: exact counts by point of the range, a stage. Out: for each partition a part of the range, from 0 to 1. Holds: each number has
the epsilon and delta of the stage's record, or less; nothing tells how much noise it has. Not covered: this step draws, as
`release.draw` does.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.lattice import Floats, Integers
from dp_pipelines.noise import smooth_sensitivity
from dp_pipelines.planning import decision_cost
from dp_pipelines.planning.stage import StagePlan


def smoothing_of(stage: StagePlan, index: int) -> smooth_sensitivity.Smoothing:
    """How the noise of a statistic of a stage follows its values.

    Args:
        stage: the frozen stage.
        index: the place of the statistic among `stage.statistics`.
    """
    return smooth_sensitivity.smoothing(stage.choice_epsilon(index), stage.choices.selection_delta)


def draw_medians(
    totals: Totals, stage: StagePlan, index: int, partitions: Integers, words: Callable[[int], NDArray[np.uint64]]
) -> Floats:
    """The median of each of some partitions with noise, once.

    Args:
        totals: of the stage.
        stage: the frozen stage.
        index: the place of the statistic among `stage.statistics`.
        partitions: rising codes.
        words: as for `release.draw.draw_release`.
    """
    found, points = smoothing_of(stage, index), decision_cost.points(stage.statistics[index])
    if not len(partitions):
        return np.zeros(0)
    counted = totals.coarse_lists(index, partitions, shift=0, step=1)
    known: dict[bytes, smooth_sensitivity.NoisyMedian] = {}  # replays of an audit are many times the same
    drawn = np.empty(len(counted))
    for row, counts in enumerate(counted):
        key = counts.tobytes()
        if key not in known:
            known[key] = smooth_sensitivity.NoisyMedian.of(points.middle(counts), points.steps, found)
        drawn[row] = known[key].draw(words=words)
    return drawn / (2 * smooth_sensitivity.FINER * points.steps)
