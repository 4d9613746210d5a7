"""The release of a choice: which k public partitions are best, in the order in which they were chosen, and nothing else.

In: exact totals of all public partitions, a stage with `best`. Out: their keys and ranks, sorted by key. Holds: only the choices
leave, each with the epsilon of the stage's record. Not covered: this step draws, as `release.draw` does.
"""

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.mechanisms.permits import Permits
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query.best import RANK
from dp_pipelines.release.staging import sorted_by_key


def draw_best(totals: Totals, stage: StagePlan, permits: Permits) -> pa.Table:
    """Choose, once, among all candidates of the stage.

    Args:
        totals: of every candidate: a stage with `best` has all of them in one place.
        stage: the frozen stage.
        permits: of the stage.
    """
    kind = stage.kind
    assert isinstance(kind, BestKind)
    place = stage.statistics.index(kind.choice.statistic)
    chosen = kind.choice.draw(totals, place, stage.choices.selection_epsilon, permits.of("best"))
    names = stage.query.partition_columns
    columns = dict(zip(names, totals.keys(chosen), strict=True))
    columns[RANK] = pa.array(np.arange(1, len(chosen) + 1))
    return sorted_by_key(pa.table(columns), names)
