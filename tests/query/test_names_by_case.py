"""Names that differ only by case are refused wherever a table or a folder would have both."""

import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query
from dp_pipelines.errors import RequestError


def query(metrics: dict[str, Count], columns: tuple[str, ...] = ("k",)) -> Query:
    return Query(
        privacy_unit="u",
        partition_by=columns,
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics=metrics,
        partitions=PublicPartitions(keys=[("a",) * len(columns)]),
    )


@pytest.mark.parametrize(
    ("metrics", "columns"),
    [
        (("n", "N"), ("k",)),
        (("K",), ("k",)),
        (("n", "N_stddev"), ("k",)),
        (("n",), ("k", "K")),
        (("straße", "STRASSE"), ("k",)),
    ],
)
def test_columns_of_one_table_that_differ_only_by_case_are_refused(
    metrics: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    with pytest.raises(RequestError, match="differ only by case"):
        query({name: Count() for name in metrics}, columns)


def test_stages_whose_names_differ_only_by_case_are_refused() -> None:
    stages = {name: query({"n": Count()}) for name in ("weekly", "Weekly")}
    with pytest.raises(RequestError, match="treat as one"):
        Plan(epsilon=1.0, delta=1e-6, stages=stages)


def test_a_column_that_would_be_published_twice_is_refused_as_such() -> None:
    with pytest.raises(RequestError, match="twice"):
        query({"k": Count()})
