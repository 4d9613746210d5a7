"""The largest partitions: chosen by released numbers and keys alone."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import ContributionBounds, Count, Histogram, Query, Top
from dp_pipelines.errors import RequestError
from dp_pipelines.release.top_partitions import largest


def query(**changes: Any) -> Query:
    """A query with a count and a histogram."""
    given_ = {
        "privacy_unit": "u",
        "partition_by": ["p", "week"],
        "bounds": ContributionBounds(max_contributions=3),
        "metrics": {"orders": Count(), "bins": Histogram("a", edges=[0, 1])},
    }
    return Query(**{**given_, **changes})


ROWS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3) | st.none(), st.sampled_from([1.5, -2.0, 7.0, 0.0])),
                max_size=12, unique_by=lambda row: row[:2])  # fmt: skip


def table(rows: list[Any]) -> pa.Table:
    """Released rows."""
    kinds = {"p": pa.string(), "week": pa.int64(), "orders": pa.float64()}
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(kinds.items())})


@given(ROWS, st.integers(1, 15), st.randoms(use_true_random=False))
def test_the_largest_come_out_by_key_in_whatever_order_they_arrive(rows: list[Any], k: int, shuffle: Any) -> None:
    by_key = sorted(rows, key=lambda row: (row[0], row[1] is None, row[1]))
    kept = sorted(by_key, key=lambda row: -row[2])[:k]
    shuffle.shuffle(rows)
    found = largest(table(rows), query(top=Top(k=k, by="orders")))
    assert found.to_pylist() == table([row for row in by_key if row in kept]).to_pylist()


def test_without_top_all_rows_come_out() -> None:
    rows = table([("b", 1, 2.0), ("a", 1, 1.0)])
    assert largest(rows, query()).column("p").to_pylist() == ["a", "b"]


def test_more_than_there_are_is_all_there_are() -> None:
    rows = table([("b", 1, 2.0), ("a", 1, 1.0)])
    assert largest(rows, query(top=Top(k=2**31, by="orders"))).num_rows == 2
    assert largest(rows.slice(0, 0), query(top=Top(k=1, by="orders"))).num_rows == 0


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", 2**31 + 1])
def test_k_is_a_whole_number_from_one(k: Any) -> None:
    with pytest.raises(RequestError, match=r"top\.k"):
        Top(k=k, by="orders")


@pytest.mark.parametrize("by", ["bins", "nothing", "p"])
def test_what_is_compared_is_a_metric_of_one_number(by: str) -> None:
    with pytest.raises(RequestError, match=r"top\.by: must name a metric that is a single number; name one of orders"):
        query(top=Top(k=1, by=by))


def test_no_metric_to_compare_is_told_what_to_add() -> None:
    with pytest.raises(RequestError, match=r"add a count, for example"):
        query(metrics={}, top=Top(k=1, by="orders"))


def test_top_is_a_top() -> None:
    with pytest.raises(RequestError, match="must be a Top"):
        query(top=3)
