"""From which size on groups appear: the numbers that `plan` prints are those with which groups are selected.

In: plans under each strategy. Out: chances of selection, by the laws of its noise and coins. Holds: nothing is drawn.
Not covered: selection itself (`tests/selection`).
"""

import math

import numpy as np
import pytest

from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.planning import appearing_groups
from dp_pipelines.planning.appearing_groups import RARELY, AppearingSizes
from dp_pipelines.planning.plan import Expectation, Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.partitions import PrivatePartitions, PublicPartitions
from dp_pipelines.query.query import ContributionBounds, Query
from dp_pipelines.selection import truncated_geometric


def stage(strategy: str, min_users: int = 0, expect: Expectation | None = None) -> tuple[StagePlan, dict[str, object]]:
    """A stage, and what `plan --json` says of it."""
    metric = Count() if strategy == "weighted_gaussian" else PrivacyIdCount()
    query = Query(
        privacy_unit="who",
        partition_by="region",
        metrics={"n": metric},
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        partitions=PrivatePartitions(strategy=strategy, min_users=min_users),
    )
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": query}, expect=expect)
    return plan["s"], plan.to_json()["stages"][0]


@pytest.mark.parametrize("strategy", ["gaussian", "laplace", "weighted_gaussian"])
def test_noise_lifts_a_group_of_the_stated_sizes_as_often_as_stated(strategy: str) -> None:
    made, described = stage(strategy)
    sizes = appearing_groups.appearing(made)
    assert described["appear"] == sizes.to_json()
    noise = made.selection.noise
    one = 1 / noise.unit  # steps of one user, who is in one group
    for users, chance in ((sizes.half, 0.5), (sizes.rarely, RARELY)):
        low, high = (noise.law.tail(math.ceil(made.selection.threshold - n * one)) for n in (users - 1, users))
        assert low <= chance * 1.001
        assert high >= chance * 0.999


@pytest.mark.parametrize("min_users", [0, 20])
def test_the_coin_shows_groups_of_the_stated_sizes_as_often_as_stated(min_users: int) -> None:
    made, _ = stage("truncated_geometric", min_users)
    sizes, of = appearing_groups.appearing(made), made.selection
    spare = max(min_users, 1) - 1
    for users, chance in ((sizes.half, 0.5), (sizes.rarely, RARELY)):
        below, at = truncated_geometric.keep_probability(
            np.array([users - spare - 1, users - spare]), of.epsilon, of.delta
        )
        assert below < chance <= at
    assert spare < sizes.rarely < sizes.half


def test_a_public_list_has_no_such_size() -> None:
    query = Query(
        privacy_unit="who",
        partition_by="region",
        metrics={"n": Count()},
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        partitions=PublicPartitions(keys=[("a",), ("b",)]),
    )
    assert "appear" not in Plan(epsilon=1.0, stages={"s": query}).to_json()["stages"][0]


@pytest.mark.parametrize(
    ("expected", "words"), [(66, None), (65, "less than half"), (41, "less than half"), (39, "almost none")]
)
def test_a_plan_warns_where_the_expected_groups_will_seldom_appear(expected: float, words: str | None) -> None:
    said = AppearingSizes(half=66, rarely=40).warning(expected)
    assert (said is None) == (words is None)
    if said is not None:
        assert f"of groups of {expected} users, as expect declares them, {words} will appear" in said["words"]
    assert AppearingSizes(half=66, rarely=40).warning(None) is None


def test_the_warning_is_part_of_the_plan() -> None:
    assert "mostly_missing" in stage("gaussian", expect=Expectation(users=5))[1]
    assert "mostly_missing" not in stage("gaussian", expect=Expectation(users=500))[1]
