"""The metric `DistinctCount`: what it declares, what it refuses, what it costs."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, DistinctCount, Plan, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.base import Basis, Noisy

BASIS = Basis(centred=False, nullable=True)


def query(metric: Any, **bounds: int) -> Query:
    """A query of one count of different values."""
    return Query(privacy_unit="u", partition_by="p", bounds=ContributionBounds(**bounds), metrics={"d": metric})


@pytest.mark.parametrize("most", [0, -1, 2.5, True, "3", 2**24 + 1])
def test_the_bound_is_a_whole_number_from_one(most: Any) -> None:
    with pytest.raises(RequestError, match="max_values_per_partition"):
        DistinctCount("a", max_values_per_partition=most)


def test_the_bound_on_rows_stands_in_for_the_bound_on_values() -> None:
    with pytest.raises(RequestError, match="max_contributions_per_partition"):
        query(DistinctCount("a"), max_partitions_contributed=2)
    query(DistinctCount("a", max_values_per_partition=3), max_partitions_contributed=2)
    in_rows = query(DistinctCount("a"), max_partitions_contributed=2, max_contributions_per_partition=3)
    own = query(DistinctCount("a", max_values_per_partition=3), max_partitions_contributed=2)
    noises = [Plan(epsilon=1.0, delta=1e-6, stages={"s": q})["s"].noises[0] for q in (in_rows, own)]
    assert noises[0].stddev == noises[1].stddev


def test_rows_in_all_do_not_bound_values_per_partition() -> None:
    with pytest.raises(RequestError, match="max_contributions does not bound"):
        query(DistinctCount("a", max_values_per_partition=3), max_contributions=5)


def test_more_values_of_a_unit_cost_more_noise_in_proportion() -> None:
    def stddev(most: int) -> float:
        one = query(DistinctCount("a", max_values_per_partition=most), max_partitions_contributed=2)
        return float(Plan(epsilon=1.0, delta=1e-6, stages={"s": one})["s"].noises[0].stddev)  # type: ignore[union-attr]

    assert stddev(10) == pytest.approx(10 * stddev(1), rel=0.02)


def test_a_noise_level_can_be_asked_for() -> None:
    asked = query(DistinctCount("a", max_values_per_partition=1, stddev=40.0), max_partitions_contributed=1)
    assert Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"].noises[0].stddev == pytest.approx(40, rel=1e-3)


def test_the_noisy_number_is_published_with_its_error_bar() -> None:
    metric = DistinctCount("a", max_values_per_partition=2)
    noisy = {metric.statistics(BASIS)[0]: Noisy(values=np.array([3.5, -1.0]), stddev=4.0)}
    values, stddevs = metric.finish(noisy, BASIS)
    assert (values.tolist(), stddevs.tolist()) == ([3.5, -1.0], [4.0, 4.0])


def test_floats_are_cast_first() -> None:
    DistinctCount("a").check_column(pa.dictionary(pa.int8(), pa.string()))
    with pytest.raises(RequestError, match="cast it first"):
        DistinctCount("a").check_column(pa.float32())
