"""The release of a choice: keys and ranks of the best partitions, as the exact scores order them where noise is next to nothing.

In: totals whose scores lie millions apart, so that another choice has a probability below exp(-100000). Out: published tables.
Holds: every comparison is exact. Not covered: the law of the choices (tests/query/test_best.py).
"""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import Best, ContributionBounds, Plan, PublicPartitions, Query
from dp_pipelines.errors import GateError
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate
from dp_pipelines.release.best_partitions import draw_best

KEYS = [("shoes", 2), ("hats", 7), ("shoes", 1), ("belts", 7), ("hats", 1), ("belts", 3)]


def stage_of(k: int, mechanism: str = "permute_and_flip") -> StagePlan:
    """A stage that chooses k of the keys."""
    asked = Query(
        privacy_unit="customer",
        partition_by=["kind", "week"],
        partitions=PublicPartitions(keys=KEYS),
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        best=Best(k=k, by="rows", mechanism=mechanism),  # type: ignore[arg-type]
    )
    return Plan(epsilon=1.0, delta=1e-6, stages={"best": asked})["best"]


def totals_of(scores: list[int], stage: StagePlan) -> Totals:
    """Totals of the keys with these numbers of rows; of everything else a partition has none."""
    compared = stage.kind.choice.statistic  # type: ignore[attr-defined]
    exact = [np.array(scores if one == compared else [0] * len(scores), np.int64) for one in stage.statistics]
    return Totals(
        partitions=(pa.array([kind for kind, _ in KEYS]), pa.array([week for _, week in KEYS])),
        high=tuple(whole >> 32 for whole in exact),
        low=tuple(whole & 0xFFFFFFFF for whole in exact),
    )


def chosen(scores: list[int], stage: StagePlan) -> list[dict[str, Any]]:
    """The published rows."""
    permits = gate.open_gate(stage).over(len(scores))
    return draw_best(totals_of(scores, stage), stage, permits).to_pylist()


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_ranks_count_from_one_in_falling_order_of_the_scores_and_rows_are_sorted_by_key(k: int, mechanism: str) -> None:
    stage, dice = stage_of(k, mechanism), random.Random(k)
    for _ in range(3):
        scores = [10**7 * place for place in range(len(KEYS))]
        dice.shuffle(scores)
        falling = sorted(range(len(KEYS)), key=lambda place: -scores[place])[:k]
        wanted = sorted((*KEYS[place], rank) for rank, place in enumerate(falling, start=1))
        assert chosen(scores, stage) == [{"kind": kind, "week": week, "rank": rank} for kind, week, rank in wanted]


def test_the_choice_takes_the_draw_that_its_record_pays_for_and_no_second_one() -> None:
    stage = stage_of(2)
    permits = gate.open_gate(stage).over(len(KEYS))
    totals = totals_of([5, 4, 3, 2, 1, 0], stage)
    draw_best(totals, stage, permits)
    permits.check_drawn(np.arange(len(KEYS)))
    with pytest.raises(GateError):
        draw_best(totals, stage, permits)
