"""What a rollup may say: each refusal names the key, the rule and what to do; shapes and shares follow from public numbers."""

import dataclasses
from typing import Any

import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.lookup_bound import LookupBound
from dp_pipelines.plan_stages import rollup_levels
from dp_pipelines.planning import describe

CHAIN = [[], ["region"], ["region", "week"]]
AUTO = dp.ContributionBounds(
    max_partitions_contributed="auto", max_contributions_per_partition=1, partition_candidates=[1, 4]
)
KEYS = [("n", 1), ("n", 2), ("s", 1)]


def asked(**changes: Any) -> dp.Query:
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "partition_by": ["region", "week"],
        "metrics": {"orders": dp.Count()},
        "bounds": dp.ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2),
        "rollup": CHAIN,
    }
    given = {**base, **changes}
    if isinstance(given["rollup"], dict):
        given["rollup"] = dp.Rollup(**given["rollup"])
    return dp.Query(**given)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no chain": ({"rollup": [["week"], ["region"], ["region", "week"]]}, "rollup[0]", "is no chain"),
    "the same level twice": ({"rollup": [[], [], ["region", "week"]]}, "rollup[0]", "is no chain"),
    "from fine to coarse": ({"rollup": CHAIN[::-1]}, "rollup[0]", "is no chain"),
    "not the finest at the end": ({"rollup": [[], ["region"]]}, "rollup[1]", "must end with the finest level"),
    "a column that is none of them": ({"rollup": [[], ["shop"]]}, "rollup[1]", "must end with the finest level"),
    "one level": ({"rollup": [["region", "week"]]}, "rollup", "must list from 2 to 16 levels"),
    "a column for a level": ({"rollup": [[], "region"]}, "rollup", "must list levels"),
    "no list": ({"rollup": "region"}, "rollup", "must list levels"),
    "a column twice": ({"rollup": [[], ["region", "region"], ["region", "week"]]}, "rollup", ""),
    "a total": (
        {
            "partition_by": [],
            "bounds": dp.ContributionBounds(max_contributions_per_partition=2),
            "rollup": [[], ["region"]],
        },
        "rollup", "has levels, and an empty partition_by",
    ),
    "a column called level": (
        {"partition_by": ["level", "week"], "rollup": [[], ["level", "week"]]}, "rollup", "adds a column 'level'",
    ),
    "a metric called rest": ({"metrics": {"rest": dp.Count()}}, "rollup", "adds a column 'rest'"),
    "two metrics of one column": (
        {"metrics": {"orders": dp.Count(), "orders_raw": dp.Count()}}, "metrics.orders_raw", "would publish column",
    ),
    "top": ({"top": dp.Top(k=3, by="orders")}, "top", "cannot stand beside rollup"),
    "a bound that the run chooses": (
        {"bounds": AUTO}, "max_partitions_contributed", "is chosen by the run",
    ),
    "a selection by weights": (
        {"partitions": dp.PrivatePartitions(strategy="weighted_gaussian")}, "strategy", "must be one of auto",
    ),
    "rounds of selection": ({"partitions": dp.PrivatePartitions(strategy="sips")}, "strategy", "must be one of auto"),
    "no metric": ({"metrics": {}}, "rollup", "needs a metric"),
    "a median": (
        {"metrics": {"typical": dp.Median("paid", min_value=0, max_value=1)}}, "metrics.typical", "takes no part",
    ),
    "a variance": (
        {"metrics": {"spread": dp.Variance("paid", min_value=0, max_value=1)}}, "metrics.spread", "takes no part",
    ),
    "different values": ({"metrics": {"kinds": dp.DistinctCount("kind")}}, "metrics.kinds", "takes no part"),
    "a clamp by partition": (
        {"metrics": {"paid": dp.Sum("paid", min_value=0, max_value=LookupBound(lookup="most", default=9))}},
        "metrics.paid", "sums do not add up",
    ),
    "a clamp that the run chooses": (
        {"metrics": {"paid": dp.Sum("paid", min_value=0, max_value="auto", within=[0, 9])}}, "metrics.paid", "chooses",
    ),
    "shrinkage": (
        {"metrics": {"paid": dp.Mean("paid", min_value=0, max_value=1, shrink=True)}}, "metrics.paid.shrink", "pulls",
    ),
    "values whose squares are no numbers": (
        {"metrics": {"paid": dp.Sum("paid", min_value=0, max_value=1e90)}}, "metrics.paid", "has bounds above 1e+40",
    ),
    "means whose squares are no numbers": (
        {"metrics": {"paid": dp.Mean("paid", min_value=-1e160, max_value=0)}}, "metrics.paid", "has bounds above 1e+40",
    ),
    "values whose squares vanish": (
        {"metrics": {"paid": dp.Sum("paid", min_sum_per_partition=0, max_sum_per_partition=1e-60)}},
        "metrics.paid", "or below 1e-40",
    ),
    "a noise level": ({"metrics": {"orders": dp.Count(stddev=3.0)}}, "metrics.orders.stddev", "noise of their own"),
    "shares of other levels": ({"rollup": {"levels": CHAIN, "shares": [1, 2]}}, "rollup.shares", "for each of the 3"),
    "a share of nothing": ({"rollup": {"levels": CHAIN, "shares": [0, 1, 2]}}, "rollup.shares", "above 0"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_stand_beside_a_rollup_is_refused(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError) as error:
        asked(**changes)
    assert error.value.field == field
    assert message in error.value.message


def test_levels_of_a_total_need_a_delta() -> None:
    with pytest.raises(RequestError, match="must be above 0 for a rollup"):
        dp.Plan(epsilon=1.0, stages={"weekly": asked(partitions=dp.PublicPartitions(keys=KEYS))})


def test_a_part_of_a_rollup_is_no_question() -> None:
    [top, *_] = rollup_levels.queries(asked())
    with pytest.raises(RequestError, match=r"weekly\.level: is only for parts of a rollup"):
        dp.Plan(epsilon=1.0, delta=1e-6, stages={"weekly": top})


def test_a_stage_may_not_have_the_name_of_a_level() -> None:
    with pytest.raises(RequestError, match="is what a level of 'weekly' is called"):
        dp.Plan(epsilon=1.0, delta=1e-6, stages={"weekly": asked(), "weekly.level1": asked(rollup=None)})


def test_levels_have_the_order_of_partition_by() -> None:
    levels = rollup_levels.queries(asked(rollup=[["week"], ["week", "region"]]))
    assert [level.partition_columns for level in levels] == [("week",), ("region", "week")]


@pytest.mark.parametrize(
    ("bounds", "squares"),
    [
        # 9 leaves in the list, 3 regions of 3 weeks; of one customer 4 leaves with 2 rows each, or 5 rows in all.
        (dp.ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2), (4 * 4, 3 * 4, 1 * 4)),
        (dp.ContributionBounds(max_contributions=5), (25, 25, 25)),
    ],
    ids=["rows of partitions", "rows in all"],
)
def test_fan_outs_come_from_the_public_list(bounds: dp.ContributionBounds, squares: tuple[int, ...]) -> None:
    keys = [(region, week) for region in "nse" for week in range(3)]
    plan = dp.Plan(
        epsilon=1.0, delta=1e-6, stages={"weekly": asked(partitions=dp.PublicPartitions(keys=keys), bounds=bounds)}
    )
    found = [level.calibration(0).shape for level in plan["weekly"].levels]
    assert [shape.l2_squared for shape in found if shape is not None] == list(squares)


def test_without_a_rollup_a_query_says_what_it_said_before() -> None:
    said = describe.query_to_json(asked(rollup=None))
    assert not {"rollup", "level"} & set(said)
    assert describe.query_to_json(asked())["rollup"] == {
        "levels": ((), ("region",), ("region", "week")),
        "shares": None,
    }


def test_shares_are_parts_of_the_budget() -> None:
    keys = dp.PublicPartitions(keys=KEYS)
    given = dp.Rollup(levels=CHAIN, shares=[1, 1, 2])
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"weekly": asked(rollup=given, partitions=keys)})
    costs = [record.l2_squared / record.scale**2 for level in plan["weekly"].levels for record in level.mechanisms]
    assert [cost / sum(costs) for cost in costs] == pytest.approx([0.25, 0.25, 0.5], rel=0.02)


def test_equal_rollups_are_equal() -> None:
    assert asked() == asked(rollup=dp.Rollup(levels=CHAIN))
    assert dataclasses.replace(asked(), rollup=CHAIN) == asked()
