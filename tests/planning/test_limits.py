"""The limits of a stage in words: every bound is said, and only what is public."""

import pathlib

import pytest

import dp_pipelines as dp
from dp_pipelines.metrics.lookup_bound import LookupBound
from dp_pipelines.planning import limits
from dp_pipelines.query.large_list import Condition, LargeList
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query
from tests.helpers.key_files import key_file

COUNT = {"rows": dp.Count()}


def said(bounds: ContributionBounds, **changes: object) -> list[str]:
    fields: dict[str, object] = {"privacy_unit": "customer", "partition_by": "city", "bounds": bounds, "metrics": COUNT}
    return limits.in_words(Query(**{**fields, **changes}))  # type: ignore[arg-type]


def test_rows_and_groups_are_said_with_their_bounds() -> None:
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    assert said(bounds) == [
        "at most 1 row of one customer is counted in each group by city",
        "at most 1 group by city is counted of one customer",
    ]
    assert said(ContributionBounds(max_contributions=2000), partition_by=["city", "day", "shop"]) == [
        "at most 2,000 rows of one customer are counted in all"
    ]


def test_groups_that_are_all_listed_are_no_limit() -> None:
    bounds = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)
    for listed, number in (([("a",), ("b",)], 1), ([("a",), ("b",), ("c",)], 2)):
        assert len(said(bounds, partitions=PublicPartitions(keys=listed))) == number


def test_beside_a_list_on_disk_unlisted_groups_may_take_a_place_and_the_limit_is_said(tmp_path: pathlib.Path) -> None:
    bounds = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)
    listed = LargeList(keys=key_file(tmp_path / "list", ["a", "b"]), conditions=(Condition(metric="rows", low=9.0),))
    assert len(said(bounds, partitions=listed)) == 2


def test_a_bound_that_a_run_chooses_is_said_to_be_one() -> None:
    bounds = ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=[1, 4, 16], max_contributions_per_partition=3
    )
    assert said(bounds)[1] == (
        "at most as many groups by city as the run chooses are counted of one customer: one of 1, 4, 16"
    )


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (dp.Sum("paid", min_value=-1.5, max_value=12000), "paid below -1.5 counts as -1.5, above 12,000 as 12,000"),
        (
            dp.Sum("paid", min_value=0, max_value=LookupBound(lookup="most", default=5)),
            "paid is clamped to 0 … most (5 by default), by partition",
        ),
        (dp.Median("paid", min_value=0, max_value=9), "paid below 0 counts as 0, above 9 as 9"),
        (
            dp.Mean("paid", min_value=0, max_value="auto", within=(0, 500)),
            "paid is clamped to a range that the run chooses, within 0 and 500",
        ),
        (
            dp.Sum("paid", min_sum_per_partition=0, max_sum_per_partition=50),
            "the sum of paid of one customer in one group by city counts as 0 at least and 50 at most",
        ),
    ],
)
def test_what_becomes_of_values_is_said(metric: dp.Metric, sentence: str) -> None:
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    assert said(bounds, metrics={"m": metric, "again": metric})[2:] == [sentence]


def test_examples_of_a_model_are_said() -> None:
    model = dp.TrainModel(
        privacy_unit="customer", label=dp.BinaryLabel(column="bought"), max_examples_per_unit=8,
        features={"age": dp.Number(column="age", min_value=0, max_value=120, bins=4)},
    )  # fmt: skip
    assert limits.in_words(model) == ["at most 8 examples of one customer are learned from"]


def test_several_columns_are_listed_with_an_and_before_the_last() -> None:
    bounds = ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2)
    for columns, named in ((["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c", "d"], "a, b, c and d")):
        rows, groups = said(bounds, partition_by=columns)
        assert rows == f"at most 2 rows of one customer are counted in each group by {named}"
        assert groups == f"at most 3 groups by {named} are counted of one customer"


def test_rows_that_a_run_chooses_are_said_to_be_so() -> None:
    bounds = ContributionBounds(
        max_partitions_contributed=1, max_contributions_per_partition="auto", row_candidates=[1, 20, 3000]
    )
    assert said(bounds) == [
        "at most as many rows of one customer as the run chooses are counted in each group by city: one of 1, 20, 3,000",
        "at most 1 group by city is counted of one customer",
    ]


def test_rows_of_a_total_are_in_no_group() -> None:
    bounds = ContributionBounds(max_contributions=1)
    assert said(bounds) == ["at most 1 row of one customer is counted in all"]


@pytest.mark.parametrize(
    ("metrics", "first"),
    [({"rows": dp.Count()}, "rows"), (COUNT | {"paid": dp.Sum("x", min_value=-1, max_value=2)}, "rows and paid")],
)
@pytest.mark.parametrize("private", [False, True])
def test_readers_of_a_rollup_are_told_that_its_parts_add_up(
    metrics: dict[str, dp.Metric], first: str, private: bool
) -> None:
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    listed = dp.PrivatePartitions() if private else PublicPartitions(keys=[("a", "b"), ("a", "c")])
    sentences = said(
        bounds, partition_by=["city", "shop"], rollup=[["city"], ["city", "shop"]], metrics=metrics, partitions=listed
    )[-2:]
    rest = ", with the row of the rest" if private else ""
    assert sentences[0] == f"{first}: a group is exactly the sum of its parts{rest}; add up no raw numbers instead"
    assert sentences[1].startswith("rows: numbers below 0 were moved to 0")
    assert sentences[1].endswith("and rows_raw the numbers as noise left them")
