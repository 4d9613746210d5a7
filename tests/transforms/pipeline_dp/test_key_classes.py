"""Ids and keys of other classes than text and numbers: released as PipelineDP releases them; others cost their row."""

import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import typing
import uuid
from collections.abc import Hashable
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pytest
from apache_beam.testing.util import assert_that

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp.extract import RowReader
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


OTHERS = [
    [1],
    {"a": 1},
    {"b"},
    pd.NaT,
    np.ma.masked,
    datetime.time(1),
    1j,
    Place("secret place"),
    fractions.Fraction(1, 3),
]


@pytest.mark.parametrize("one", OTHERS, ids=lambda one: type(one).__name__)
def test_a_row_whose_id_or_key_is_of_any_other_class_costs_itself_alone(one: Any) -> None:
    """Which class an extractor returns may be a fact about one row: it never ends a run."""
    rows: list[Any] = [(number, "north", 1) for number in range(PEOPLE)]
    rows += [(one, "north", 1), (7, one, 1)]
    ((key, metrics),) = released(ours, rows, ours.LocalBackend())
    assert key == "north"
    assert abs(metrics.count - PEOPLE) < 20


def place_of(row: Any) -> Place:
    return Place("secret place")


def number_of(row: Any) -> "int | None":
    return 7


class Numbered(typing.Protocol):
    number: int


@pytest.mark.parametrize(
    ("hint", "is_refused"),
    [
        (Any, False), (object, False), ("int | Place", False), ("str | None", False), (tuple[int, str], False),
        (Hashable, False), (Numbered, False), (typing.TypeVar("T"), False), (None, False), ("NoSuchName", False),
        (typing.Literal["a"], False), (Colour, False), (np.int64, False), (list[int], True), (dict, True), (Place, True),
    ],
    ids=str,
)  # fmt: skip
def test_a_hint_is_refused_only_if_no_value_could_be_a_key(hint: Any, is_refused: bool) -> None:
    def extractor(row: Any) -> Any:
        return row

    extractor.__annotations__["return"] = hint
    expected = pytest.raises(RequestError, match="cannot be a key") if is_refused else contextlib.nullcontext()
    with expected:
        RowReader(unit=None, partition=extractor)


def test_a_hint_check_row_and_public_partitions_name_a_class_without_keys() -> None:
    rows = [(number, "north", 1) for number in range(PEOPLE)]
    message = "returns a Place, which cannot be a key"
    for field, options in {
        "privacy_id_extractor": {"identify": place_of},
        "partition_extractor": {"key": place_of},
    }.items():
        with pytest.raises(RequestError, match=message) as error:
            released(ours, rows, ours.LocalBackend(), **options)
        assert error.value.field == field
        assert "secret" not in str(error.value)
    extractors = ours.DataExtractors(privacy_id_extractor=number_of, partition_extractor=lambda row: place_of(row))
    with pytest.raises(RequestError, match=message):
        ours.check_row(extractors, rows[0])
    params = ours.AggregateParams(
        metrics=[ours.Metrics.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1
    )
    engine = ours.DPEngine(ours.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6), ours.LocalBackend())
    with pytest.raises(RequestError, match="holds a Place, which cannot be a key"):
        engine.aggregate(rows, params, extractors, public_partitions=[Place("secret place")])


def test_members_of_an_enumeration_come_out_of_a_pipeline_of_beam() -> None:
    rows = [(uuid.UUID(int=number), Colour.RED, 1) for number in range(PEOPLE)]
    with beam.Pipeline("FnApiRunner") as pipeline:
        assert_that(released(ours, pipeline | beam.Create(rows), ours.BeamBackend()), _one_red)


def _one_red(found: list[Any]) -> None:
    assert [key for key, _ in found] == [Colour.RED]
