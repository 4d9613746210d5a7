"""Queries: what is asked is refused at once where it is wrong, with field, message and hint, or else is frozen."""

import dataclasses
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dp_pipelines.auto_bounds import joint_bounds
from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.metrics.lookup_bound import LookupBound
from dp_pipelines.metrics.quantiles import Median
from dp_pipelines.metrics.sums import Mean, Sum, Variance
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.contribution_bounds import AUTO_BOUNDS
from dp_pipelines.query.kept import Kept
from dp_pipelines.query.query import LARGEST_BOUND, ContributionBounds, PrivatePartitions, PublicPartitions, Query

BOUNDS = ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=3)
AMOUNT = Mean("amount", min_value=0, max_value=200)
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, False, "3", b"3", None, [3], 3 + 0j, ...]
NO_WHOLE_NUMBERS = [*NO_NUMBERS, 2.0, 2.5, Fraction(3, 2), np.float64(2)]


def query(**changes: Any) -> Query:
    fields: dict[str, Any] = {
        "privacy_unit": "customer",
        "partition_by": ["region", "week"],
        "bounds": BOUNDS,
        "metrics": {"orders": Count(), "buyers": PrivacyIdCount(), "basket": AMOUNT},
    }
    return Query(**{**fields, **changes})


def bounds(**fields: Any) -> ContributionBounds:
    return ContributionBounds(**fields)


def both(*of_partitions: Any) -> dict[str, Any]:
    return dict(zip(["max_partitions_contributed", "max_contributions_per_partition"], of_partitions, strict=True))


Wrong = tuple[Callable[[], Any], str, str]

WRONG_BOUNDS: list[Wrong] = [
    (lambda: query(bounds=bounds()), "bounds", "must say how much one privacy unit may contribute; set max_partitions"),
    (
        lambda: query(bounds=bounds(max_contributions_per_partition=3)),
        "bounds",
        "must say how much one privacy unit may contribute",
    ),
    (lambda: bounds(**both(0, 1)), "max_partitions_contributed", f"must be a whole number from 1 to {LARGEST_BOUND}"),
    (lambda: bounds(**both(1, -1)), "max_contributions_per_partition", "must be a whole number from 1 to"),
    (lambda: bounds(**both(LARGEST_BOUND + 1, 1)), "max_partitions_contributed", "must be a whole number from 1 to"),
    (lambda: bounds(max_contributions=0), "max_contributions", "must be a whole number from 1 to"),
    (
        lambda: bounds(max_contributions=3, max_partitions_contributed=2),
        "max_contributions",
        "cannot be combined with other bounds; drop it",
    ),
    (
        lambda: bounds(max_contributions=3, max_contributions_per_partition=2),
        "max_contributions",
        "cannot be combined with other bounds; drop it",
    ),
]

WRONG_PARTITIONS: list[Wrong] = [
    (lambda: PrivatePartitions(strategy="best"), "strategy", "must be one of auto, truncated_geometric, laplace"),
    (lambda: PrivatePartitions(strategy=None), "strategy", "must be one of"),
    (lambda: PrivatePartitions(min_users=-1), "min_users", "must be a whole number from 0 to"),
    (lambda: PrivatePartitions(weight=0), "weight", "must be a finite number above 0"),
    (
        lambda: PrivatePartitions(strategy="weighted_gaussian", min_users=2),
        "min_users",
        "must be 0 or 1 with strategy weighted_gaussian, .*; choose another strategy",
    ),
    (lambda: PublicPartitions(keys=[]), "public", "must name at least one partition"),
    (lambda: PublicPartitions(keys="ab"), "public", "must be a list with one list of values"),
    (lambda: PublicPartitions(keys={("a",): 1}), "public", "must be a list with one list of values"),
    (lambda: PublicPartitions(keys=[("a",), "b"]), r"public[1]", "must be a list with one value for each"),
    (lambda: PublicPartitions(keys=[{"region": "n"}]), r"public[0]", "must be a list with one value for each"),
    (lambda: PublicPartitions(keys=[("a",), (["b"],)]), r"public[1]", "must hold plain values"),
]

WRONG_QUERIES: list[Wrong] = [
    (lambda: query(privacy_unit=None), "privacy_unit", "must be a column name or a list of column names"),
    (lambda: query(privacy_unit=""), "privacy_unit", "must be a name"),
    (lambda: query(privacy_unit=[]), "privacy_unit", "at least one"),
    (lambda: query(privacy_unit=["a", 1]), "privacy_unit", "must be a name"),
    (lambda: query(privacy_unit=["a", "a"]), "privacy_unit", "names a column twice; name each column once"),
    (lambda: query(privacy_unit="__index"), "privacy_unit", "must not start with two underscores; rename it"),
    (lambda: query(partition_by=None), "partition_by", "at least one"),
    (lambda: query(partition_by={"a"}), "partition_by", "must be a column name or a list"),
    (lambda: query(partition_by=["week", "week"]), "partition_by", "names a column twice"),
    (
        lambda: query(partition_by=["week", "customer"]),
        "partition_by",
        "contains the whole privacy unit.*; partition by",
    ),
    (lambda: query(bounds={"max_contributions": 3}), "bounds", "must be ContributionBounds"),
    (lambda: query(bounds=None), "bounds", "must be ContributionBounds"),
    (lambda: query(partitions="auto"), "partitions", "must be PrivatePartitions or PublicPartitions"),
    (lambda: query(row_id=5), "row_id", "must be a name"),
    (lambda: query(row_id=""), "row_id", "must be a name"),
    (lambda: query(metrics=[Count()]), "metrics", "must map names to metrics"),
    (lambda: query(metrics={"orders": "count"}), "metrics.orders", r"must be a metric; write e.g. Count\(\)"),
    (lambda: query(metrics={"orders": Count}), "metrics.orders", "must be a metric"),
    (lambda: query(metrics={"": Count()}), "metrics", "must be a name"),
    (lambda: query(metrics={3: Count()}), "metrics", "must be a name"),
    (lambda: query(metrics={"week": Count()}), "metrics.week", "would publish column 'week' twice; rename the metric"),
    (
        lambda: query(partition_by="a_stddev", metrics={"a": Count()}),
        "metrics.a",
        "would publish column 'a_stddev' twice; rename the metric",
    ),
    (
        lambda: query(metrics={"a": Count(), "a_stddev": Count()}),
        "metrics.a_stddev",
        "would publish column 'a_stddev' twice",
    ),
    (
        lambda: query(bounds=bounds(max_partitions_contributed=3), metrics={"orders": Count()}),
        "max_contributions_per_partition",
        "is needed by metrics.orders, which looks at rows; set it in the bounds",
    ),
    (
        lambda: query(
            bounds=bounds(max_contributions=3),
            metrics={"total": Sum("a", min_sum_per_partition=0, max_sum_per_partition=1)},
        ),
        "metrics.total",
        "clips sums per partition, which max_contributions does not bound; set max_partitions_contributed instead",
    ),
    (
        lambda: query(partitions=PublicPartitions(keys=[("n", 1), ("s",)])),
        r"public[1]",
        "must have 2 values, one for each column of partition_by",
    ),
]


@pytest.mark.parametrize(("make", "field", "message"), [*WRONG_BOUNDS, *WRONG_PARTITIONS, *WRONG_QUERIES])
def test_what_is_wrong_is_refused_with_field_message_and_hint(
    make: Callable[[], Any], field: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        make()
    error = caught.value
    assert error.field == field
    assert str(error).startswith(f"{field}: {error.message}")
    assert error.hint or "must" in error.message, "a message without a hint says itself what to write"
    assert isinstance(error, DpError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("value", [value for value in NO_WHOLE_NUMBERS if value is not None], ids=repr)
@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(ContributionBounds) if f.name.startswith("max_")])
def test_a_bound_that_is_no_whole_number_is_refused(field: str, value: Any) -> None:
    others = {} if field == "max_contributions" else {**both(2, 2)}
    with pytest.raises(RequestError, match=f"^{field}: must be a whole number"):
        ContributionBounds(**{**others, field: value})


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS, ids=repr)
def test_min_users_that_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(RequestError, match=r"^min_users: must be a whole number from 0"):
        PrivatePartitions(min_users=value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, -1, 1e6, 10**400, np.float64("nan")], ids=repr)
@pytest.mark.parametrize("make", [PrivatePartitions, Count, PrivacyIdCount])
def test_a_weight_that_is_no_number_above_zero_is_refused(make: Callable[..., Any], value: Any) -> None:
    with pytest.raises(RequestError, match=r"^weight: must be a "):
        make(weight=value)


@pytest.mark.parametrize("value", [2, np.int32(2), np.uint8(2)], ids=repr)
def test_whole_numbers_of_other_libraries_become_pythons(value: Any) -> None:
    assert type(bounds(max_contributions=value).max_contributions) is int
    assert type(PrivatePartitions(min_users=value).min_users) is int
    assert type(Count(weight=value).weight) is float


def test_what_bounds_say_about_rows_and_partitions() -> None:
    of_partitions = bounds(**both(8, 3))
    assert (of_partitions.max_partitions, of_partitions.max_rows_per_partition, of_partitions.max_rows) == (8, 3, 24)
    in_all = bounds(max_contributions=20)
    assert (in_all.max_partitions, in_all.max_rows_per_partition, in_all.max_rows) == (20, 20, 20)
    without_rows = bounds(max_partitions_contributed=8)
    assert (without_rows.max_partitions, without_rows.max_rows_per_partition) == (8, 1)
    assert (of_partitions.bounds_rows, in_all.bounds_rows, without_rows.bounds_rows) == (True, True, False)


def test_metrics_that_do_not_look_at_rows_need_no_bound_on_rows() -> None:
    clipped = Sum("amount", min_sum_per_partition=0, max_sum_per_partition=500)
    asked = query(bounds=bounds(max_partitions_contributed=8), metrics={"buyers": PrivacyIdCount(), "revenue": clipped})
    assert list(asked.metrics) == ["buyers", "revenue"]
    query(bounds=bounds(max_partitions_contributed=8), metrics={})


def test_a_public_list_without_metrics_is_no_query() -> None:
    with pytest.raises(RequestError, match="only their list would be published") as caught:
        query(metrics={}, partitions=PublicPartitions(keys=[("a",)]))
    assert caught.value.field == "metrics"


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[1m", "a\x00", "a\u2028b", "a\udcff"])
def test_a_name_of_two_lines_or_with_control_characters_is_none(name: str) -> None:
    for wrong in ({"metrics": {name: Count()}}, {"partition_by": name}, {"privacy_unit": [name]}, {"row_id": name}):
        with pytest.raises(RequestError, match="line breaks or control characters") as caught:
            query(**wrong)
        assert str(caught.value).isprintable()
    query(metrics={"価格　計\u00a0": Count()})


@pytest.mark.parametrize(
    "metric",
    [Count(), AMOUNT, Sum("a", min_value=0, max_value=1), Variance("a", min_value=0, max_value=1)],
    ids=lambda m: type(m).__name__,
)
def test_metrics_that_look_at_rows_need_one(metric: Any) -> None:
    with pytest.raises(RequestError, match=r"is needed by metrics\.m, which looks at rows"):
        query(bounds=bounds(max_partitions_contributed=8), metrics={"m": metric})
    query(bounds=bounds(max_contributions=8), metrics={"m": metric})


def test_the_columns_of_a_query_are_named_once_in_order() -> None:
    asked = query(
        privacy_unit=["customer", "shop"],
        metrics={"a": AMOUNT, "b": Sum("week", min_value=0, max_value=9), "c": Sum("amount", min_value=0, max_value=1)},
        row_id="amount",
    )
    assert asked.value_columns == ("amount", "week")
    assert asked.columns == ("customer", "shop", "region", "week", "amount")
    assert query(row_id="id").columns == ("customer", "region", "week", "amount", "id")


def test_part_of_the_unit_may_partition() -> None:
    assert query(privacy_unit=["customer", "week"]).partition_columns == ("region", "week")


def test_a_query_is_frozen_hashable_and_picklable() -> None:
    asked = query(partitions=PublicPartitions(keys=[["n", 1], ("s", None)]))
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert hash(asked) == hash(query(partitions=PublicPartitions(keys=[("n", 1), ("s", None)])))
    with pytest.raises(dataclasses.FrozenInstanceError):
        asked.bounds = BOUNDS  # type: ignore[misc]
    with pytest.raises(TypeError):
        asked.metrics["more"] = Count()  # type: ignore[index]


def test_what_was_given_can_change_without_changing_the_query() -> None:
    metrics, keys, by = {"orders": Count()}, [["n", 1]], ["region", "week"]
    asked = query(metrics=metrics, partition_by=by, partitions=PublicPartitions(keys=keys))
    metrics["more"] = Count()
    keys[0][0] = "s"
    by.append("shop")
    assert list(asked.metrics) == ["orders"]
    assert asked.partition_columns == ("region", "week")
    assert asked.partitions.keys == (("n", 1),)  # type: ignore[union-attr]


def test_a_frozen_mapping_is_a_mapping_in_the_order_given() -> None:
    mapping = FrozenMapping({"b": 1, "a": 2})
    assert list(mapping.items()) == [("b", 1), ("a", 2)]
    assert mapping == {"a": 2, "b": 1}
    assert len(mapping) == 2
    assert repr(mapping) == "{'b': 1, 'a': 2}"


def test_what_bounds_cut_off_is_not_told_of_bounds_that_differ_by_partition() -> None:
    bound = LookupBound(lookup="most", default=10)
    with pytest.raises(RequestError, match="kept: cannot stand beside bounds that differ by partition"):
        Query(
            privacy_unit="u",
            partition_by="k",
            bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
            metrics={"total": Sum("x", min_value=0, max_value=bound)},
            kept=Kept(share=0.1),
        )


@pytest.mark.parametrize(
    "metric", [Median("amount", min_value=0, max_value=100), Histogram("amount", edges=[0, 10, 20, 50, 100])]
)
def test_metrics_with_cells_have_a_plan_where_runs_choose_the_bounds(metric: Metric) -> None:
    asked = query(bounds=AUTO_BOUNDS, metrics={"orders": Count(), "cells": metric})
    assert asked.bounds.row_candidates == joint_bounds.CANDIDATES
    assert Plan(stages={"weekly": asked}, epsilon=3.0, delta=1e-6).digest


def test_only_the_default_candidates_of_rows_depend_on_the_metrics() -> None:
    median, declared = Median("amount", min_value=0, max_value=100), (1, 128, 512)
    assert query(bounds=AUTO_BOUNDS).bounds.row_candidates == joint_bounds.ROW_CANDIDATES
    one = bounds(max_partitions_contributed=1, max_contributions_per_partition="auto")
    assert query(bounds=one, metrics={"middle": median}).bounds.row_candidates == joint_bounds.ROW_CANDIDATES
    listed = dataclasses.replace(AUTO_BOUNDS, row_candidates=declared)
    assert query(bounds=listed, metrics={"middle": median}).bounds.row_candidates == declared
