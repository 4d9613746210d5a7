"""The metric `Histogram`: what it declares, what it refuses, and what it publishes of noisy counts."""

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, Histogram, Plan, PrivatePartitions, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.base import Basis, Noisy
from dp_pipelines.metrics.histogram import MOST_BINS

BASIS = Basis(centred=False, nullable=True)


def query(metric: Any, **bounds: int) -> Query:
    """A query of one histogram."""
    bounds = bounds or {"max_partitions_contributed": 2, "max_contributions_per_partition": 3}
    return Query(privacy_unit="u", partition_by="p", bounds=ContributionBounds(**bounds), metrics={"h": metric})


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        ({"edges": [1]}, "edges", "at least 2"),
        ({"edges": list(range(MOST_BINS + 2))}, "edges", f"at most {MOST_BINS + 1}"),
        ({"edges": [0, 1, 1]}, "edges[2]", "above the edge before"),
        ({"edges": [0, 2, 1]}, "edges[2]", "above the edge before"),
        ({"edges": [0.0, -0.0]}, "edges[1]", "above the edge before"),
        ({"edges": [0, math.nan]}, "edges[1]", "finite"),
        ({"edges": [-math.inf, 0]}, "edges[0]", "finite"),
        ({"edges": [0, 10**400]}, "edges[1]", "finite"),
        ({"edges": [False, True]}, "edges[0]", "must be a number"),
        ({"edges": ["0", "1"]}, "edges[0]", "must be a number"),
        ({"edges": "01"}, "edges", "must be a list"),
        ({"edges": 7}, "edges", "must be a list"),
        ({}, "edges", "one of the two"),
        ({"edges": [0, 1], "categories": ["a"]}, "edges", "one of the two"),
        ({"categories": []}, "categories", "at least 1"),
        ({"categories": list(range(MOST_BINS + 1))}, "categories", f"at most {MOST_BINS}"),
        ({"categories": ["a", 1]}, "categories", "one kind"),
        ({"categories": [True, 1]}, "categories", "one kind"),
        ({"categories": ["a", None]}, "categories", "no nulls"),
        ({"categories": [0.5]}, "categories", "no floats"),
        ({"categories": [["a"]]}, "categories", "one kind"),
        ({"categories": [bytearray(b"a")]}, "categories", "plain values"),
        ({"categories": ["a", "a"]}, "categories", "twice"),
        ({"categories": "ab"}, "categories", "must be a list"),
        ({"edges": [0, 1], "stddev": 3.0}, "stddev", "is not for Histogram"),
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused_at_once(arguments: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        Histogram("amount", **arguments)
    assert caught.value.field == field
    assert message in caught.value.message


def test_as_many_bins_as_are_allowed_are_allowed() -> None:
    assert Histogram("amount", edges=list(range(MOST_BINS + 1))).statistics(BASIS)[0].width == MOST_BINS
    assert Histogram("amount", categories=list(range(MOST_BINS))).statistics(BASIS)[0].width == MOST_BINS


def test_edges_are_numbers_of_any_kind_and_equal_declarations_are_one_statistic() -> None:
    mixed = Histogram("a", edges=[np.float64(-1), -0.0, np.int64(7)])
    assert mixed == Histogram("a", edges=(-1.0, 0.0, 7.0))
    assert mixed.statistics(BASIS)[0].name == Histogram("a", edges=[-1, 0, 7]).statistics(BASIS)[0].name


@pytest.mark.parametrize(
    ("metric", "kind", "sound"),
    [
        (Histogram("a", edges=[0, 1]), pa.decimal128(9, 2), True),
        (Histogram("a", edges=[0, 1]), pa.bool_(), True),
        (Histogram("a", edges=[0, 1]), pa.string(), False),
        (Histogram("a", categories=["x"]), pa.dictionary(pa.int8(), pa.string()), True),
        (Histogram("a", categories=["x"]), pa.int64(), False),
        (Histogram("a", categories=[1]), pa.float64(), False),
        (Histogram("a", categories=[datetime.date(2026, 1, 1)]), pa.date32(), True),
        (Histogram("a", categories=[decimal.Decimal("0.5")]), pa.decimal64(9, 2), True),
        (Histogram("a", categories=[True]), pa.bool_(), True),
    ],
    ids=str,
)
def test_the_column_has_the_type_that_the_declaration_asks_for(
    metric: Histogram, kind: pa.DataType, sound: bool
) -> None:
    if sound:
        metric.check_column(kind)
        return
    with pytest.raises(RequestError, match="column 'a'"):
        metric.check_column(kind)


def test_counts_come_out_as_they_are_with_one_error_bar_each() -> None:
    metric = Histogram("a", edges=[0, 1, 2])
    noisy = {metric.statistics(BASIS)[0]: Noisy(values=np.array([[3.5, -1.0], [0.0, 2.0]]), stddev=4.0)}
    values, stddevs = metric.finish(noisy, BASIS)
    assert values.tolist() == [[3.5, -1.0], [0.0, 2.0]]
    assert stddevs.tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_a_histogram_needs_a_bound_on_rows() -> None:
    with pytest.raises(RequestError, match="max_contributions_per_partition"):
        query(Histogram("a", edges=[0, 1]), max_partitions_contributed=2)


def test_bins_cost_no_more_than_a_count_however_many_they_are() -> None:
    def noise(metric: Any) -> float:
        plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": query(metric)})
        return next(noise.stddev for noise in plan["s"].noises if noise is not None)

    one, many = noise(Histogram("a", edges=[0, 1])), noise(Histogram("a", edges=list(range(1000))))
    assert many == pytest.approx(one, rel=0.01)


def test_a_histogram_beside_private_selection_is_planned() -> None:
    made = Query(
        privacy_unit="u",
        partition_by="p",
        bounds=ContributionBounds(max_contributions=4),
        metrics={"h": Histogram("a", categories=["x", "y"])},
        partitions=PrivatePartitions(),
    )
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": made})
    assert plan["s"].statistics[0].width == 2
