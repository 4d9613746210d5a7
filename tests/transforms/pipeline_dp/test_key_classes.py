"""Ids and keys of other classes than text and numbers: released as PipelineDP releases them, or refused; never nothing."""

import dataclasses
import decimal
import enum
import fractions
import uuid
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pytest
from apache_beam.testing.util import assert_that

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.errors import RequestError
from tests.helpers.drop_in import ours, theirs


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Place:
    name: str


PEOPLE = 1000
IDS = {
    "UUID": lambda number: uuid.UUID(int=number),
    "frozenset": lambda number: frozenset({number, "a"}),
    "Decimal": lambda number: decimal.Decimal(number) / 8,
    "a pair": lambda number: (uuid.UUID(int=number), number),
}
KEYS = {
    "UUID": uuid.UUID(int=5),
    "Decimal": decimal.Decimal("2.50"),
    "Enum": Colour.RED,
    "frozenset": frozenset({"a", "b"}),
    "pandas time": pd.Timestamp("2026-01-05"),
    "a pair": (Colour.RED, decimal.Decimal(1)),
}


def released(
    library: Any, rows: Any, backend: Any, *, identify: Any = lambda row: row[0], key: Any = lambda row: row[1]
) -> Any:
    """Counts and sums by key."""
    accountant = library.NaiveBudgetAccountant(total_epsilon=20, total_delta=1e-6)
    engine = library.DPEngine(accountant, backend)
    params = library.AggregateParams(
        metrics=[library.Metrics.COUNT, library.Metrics.SUM],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=0,
        max_value=2,
    )
    extractors = library.DataExtractors(
        privacy_id_extractor=identify, partition_extractor=key, value_extractor=lambda row: row[2]
    )
    result = engine.aggregate(rows, params, extractors)
    accountant.compute_budgets()
    return result


@pytest.mark.parametrize("identify", IDS.values(), ids=IDS)
@pytest.mark.parametrize("library", [ours, theirs], ids=["ours", "theirs"])
def test_ids_of_these_classes_are_counted(library: Any, identify: Any) -> None:
    rows = [(identify(number), "north", 1) for number in range(PEOPLE)]
    ((key, metrics),) = released(library, rows, library.LocalBackend())
    assert key == "north"
    assert abs(metrics.count - PEOPLE) < 20


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("library", [ours, theirs], ids=["ours", "theirs"])
def test_keys_of_these_classes_come_out_as_they_went_in(library: Any, key: Any) -> None:
    rows = [(number, key, 1) for number in range(PEOPLE)]
    ((found, metrics),) = released(library, rows, library.LocalBackend())
    assert found == key
    assert hash(found) == hash(key)
    assert abs(metrics.count - PEOPLE) < 20


def test_values_that_are_arrays_of_no_dimensions_are_numbers() -> None:
    rows = [(number, "north", np.array(1)) for number in range(PEOPLE)]
    ((_, metrics),) = released(ours, rows, ours.LocalBackend())
    assert abs(metrics.sum - PEOPLE) < 40


@pytest.mark.parametrize("one", [Place("secret place"), fractions.Fraction(1, 3), 1j])
def test_ids_and_keys_of_other_classes_are_refused_by_class_with_no_value(one: Any) -> None:
    rows = [(number, "north", 1) for number in range(PEOPLE)]
    for field, options in {
        "privacy_id_extractor": {"identify": lambda row: one},
        "partition_extractor": {"key": lambda row: one},
    }.items():
        with pytest.raises(RequestError) as error:
            list(released(ours, rows, ours.LocalBackend(), **options))
        assert error.value.field == field
        assert str(error.value.message) == f"returns a {type(one).__name__}, which cannot be a key"
        assert "secret" not in str(error.value)


def test_a_row_whose_id_is_of_a_class_that_data_may_have_costs_itself_alone() -> None:
    rows: list[Any] = [(number, "north", 1) for number in range(PEOPLE)]
    rows += [([1], "north", 1), ({"a": 1}, "north", 1), (7, {"b"}, 1), (pd.NaT, "north", 1)]
    ((key, metrics),) = released(ours, rows, ours.LocalBackend())
    assert key == "north"
    assert abs(metrics.count - PEOPLE) < 20


def test_members_of_an_enumeration_come_out_of_a_pipeline_of_beam() -> None:
    rows = [(uuid.UUID(int=number), Colour.RED, 1) for number in range(PEOPLE)]
    with beam.Pipeline("FnApiRunner") as pipeline:
        assert_that(released(ours, pipeline | beam.Create(rows), ours.BeamBackend()), _one_red)


def _one_red(found: list[Any]) -> None:
    assert [key for key, _ in found] == [Colour.RED]
