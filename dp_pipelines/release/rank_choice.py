"""The release of a quantile among candidates: one choice for each partition, from exact ranks.

In: exact counts around the candidates, a stage. Out: for each partition the place of the chosen candidate. Holds: a choice has
the epsilon of the stage's record, or less. Not covered: this step draws, as `release.draw` does.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.lattice import Floats, Integers
from dp_pipelines.planning import decision_cost
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.selection.exponential import permute_and_flip


def draw_ranks(
    totals: Totals, stage: StagePlan, index: int, partitions: Integers, words: Callable[[int], NDArray[np.uint64]]
) -> Floats:
    """Choose a candidate for each of some partitions, once.

    Args:
        totals: of the stage.
        stage: the frozen stage.
        index: the place of the statistic among `stage.statistics`.
        partitions: rising codes.
        words: as for `release.draw.draw_release`.
    """
    around = decision_cost.around(stage.statistics[index])
    if not len(partitions):
        return np.zeros(0)
    chosen = permute_and_flip(
        around.scores(totals.coarse_lists(index, partitions, shift=0, step=1)),
        spread=decision_cost.spread_of_ranks(around, stage.query.bounds.max_rows_per_partition),
        epsilon=stage.choice_epsilon(index),
        words=words,
    )
    return chosen.astype(np.float64)
