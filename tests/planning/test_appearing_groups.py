"""From which size on groups appear: the numbers that `plan` prints are those with which groups are selected.

In: plans under each strategy. Out: chances of selection, by the laws of its noise and coins. Holds: nothing is drawn.
Not covered: selection itself (`tests/selection`).
"""

import copy
import math
import re

import numpy as np
import pytest

from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.planning import appearing_groups, resolve
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


def chosen(strategy: str, **asked: object) -> tuple[StagePlan, dict[str, object]]:
    """A stage whose bound on partitions the run chooses, and what `plan --json` says of it."""
    bounds = ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=(1, 4, 16), max_contributions_per_partition=1
    )
    query = Query(
        privacy_unit="who", partition_by="region", metrics={"n": Count()}, bounds=bounds,
        partitions=PrivatePartitions(strategy=strategy),
    )  # fmt: skip
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": query}, **asked)
    return plan["s"], next(stage for stage in plan.to_json()["stages"] if stage["name"] == "s")


@pytest.mark.parametrize("strategy", ["gaussian", "laplace"])
def test_chosen_bounds_have_the_sizes_of_the_smallest_and_the_largest(strategy: str) -> None:
    made, described = chosen(strategy)
    assert list(described["appear_by_bound"]) == ["1", "16"]
    for bound, entry in described["appear_by_bound"].items():
        ready = resolve.with_partitions(made, int(bound))
        noise, one = ready.selection.noise, 1 / ready.selection.noise.unit
        for users, chance in ((entry["half"], 0.5), (entry["thousandth"], RARELY)):
            low, high = (noise.law.tail(math.ceil(ready.selection.threshold - n * one)) for n in (users - 1, users))
            assert low <= chance * 1.001
            assert high >= chance * 0.999
    least, most = described["appear_by_bound"].values()
    assert least["thousandth"] < most["thousandth"] < most["half"]
    assert "appear" not in described


@pytest.mark.parametrize("strategy", ["gaussian", "laplace"])
def test_a_plan_warns_where_few_expected_groups_appear_with_any_bound(strategy: str) -> None:
    least = chosen(strategy)[1]["appear_by_bound"]["1"]
    for users in (least["half"], least["half"] - 1, least["thousandth"] - 1):
        described = chosen(strategy, expect=Expectation(users=users))[1]
        warning = appearing_groups.in_units({"stages": [described]}, "customers")["stages"][0].get("mostly_missing")
        assert ("mostly_missing" in described) == (warning is not None) == (users < least["half"])
        if warning is not None:
            often = "almost none" if users < least["thousandth"] else "less than half"
            assert f"of groups of {users} customers, as expect declares them, {often} will appear" in warning["words"]


def test_sentences_about_groups_have_the_name_of_the_unit() -> None:
    fixed, by_bound = stage("gaussian", expect=Expectation(users=5))[1], chosen("gaussian")[1]
    plan = {"stages": [fixed, by_bound]}
    before = copy.deepcopy(plan)
    first, second = appearing_groups.in_units(plan, "customers")["stages"]
    assert plan == before
    words = [first["appear"]["words"], first["mostly_missing"]["words"]]
    words += [sizes["words"] for sizes in second["appear_by_bound"].values()]
    assert len(words) == 4
    assert all(re.search(r"groups of [\d,]+ customers", text) for text in words)
    assert not any("users" in text for text in words)
    assert first["appear"] | {"words": ""} == fixed["appear"] | {"words": ""}
