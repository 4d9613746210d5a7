"""Per key: pairs in, pairs out, by the same engine; pairs of undeclared types are refused when the pipeline is built.

In: made-up pairs. Out: released pairs with noise that hardly counts. Not covered: what the engine does with tables.
"""

import typing
from typing import Any, Optional

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows

from dp_pipelines import ContributionBounds, PrivatePartitions, RequestError
from dp_pipelines.transforms import PrivateCountPerKey, PrivateMeanPerKey, PrivateSumPerKey
from dp_pipelines.transforms.rows.per_key import PairType
from tests.helpers import graph

BOUNDS = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
SETTINGS = {"bounds": BOUNDS, "epsilon": 39.0, "delta": 1e-6}
LIMITS = {"min_value": 0.0, "max_value": 4.0}
PAIRS = [("ab"[number % 2], (number, 2.0)) for number in range(400)]


def rounded(pair: tuple[Any, float]) -> tuple[Any, float]:
    """A pair whose value is rounded to what noise cannot move."""
    return pair[0], round(pair[1] / 20) * 20 if pair[1] > 10 else round(pair[1])


def test_pairs_are_counted_summed_and_averaged_by_key() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pairs = pipeline | beam.Create(PAIRS)
        units = pairs | beam.MapTuple(lambda key, rest: (key, rest[0])).with_output_types(tuple[str, int])
        expected = {"counts": [200, 200], "units": [200, 200], "sums": [400, 400], "means": [2, 2]}
        found = {
            "counts": pairs | "C" >> PrivateCountPerKey(**SETTINGS),
            "units": units | "U" >> PrivateCountPerKey(**SETTINGS, public_keys=["a", "b"]),
            "sums": pairs | "S" >> PrivateSumPerKey(**SETTINGS, **LIMITS),
            "means": pairs | "M" >> PrivateMeanPerKey(**SETTINGS, **LIMITS),
        }
        assert {str(one.element_type) for one in found.values()} == {"Tuple[<class 'str'>, <class 'float'>]"}
        assert [step for step in graph.pickled_collections(pipeline) if step != "Create"] == []
        for name, one in found.items():
            both = zip("ab", expected[name], strict=True)
            assert_that(one | f"R {name}" >> beam.Map(rounded), equal_to(list(both)), label=name)


def test_keys_of_several_parts_are_tuples_and_columns_of_rows() -> None:
    deep = [((key, number % 3), (number, value)) for key, (number, value) in PAIRS[:6] * 50]
    keys = [("a", 0), ("b", 1), ("c", 2)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pairs = pipeline | beam.Create(deep)
        counts = pairs | PrivateCountPerKey(bounds=BOUNDS, epsilon=39.0, public_keys=keys)
        rows = pairs | "R" >> PrivateSumPerKey(bounds=BOUNDS, epsilon=39.0, public_keys=keys, as_rows=True, **LIMITS)
        assert [name for name, _ in rows.element_type._fields] == ["key0", "key1", "sum", "sum_stddev"]
        assert_that(counts | beam.Keys(), equal_to(keys))
        assert_that(rows | beam.Map(lambda row: (row.key0, row.key1)), equal_to(keys), label="rows")


def test_a_pair_that_is_not_what_was_declared_costs_itself_alone() -> None:
    pairs = PairType.of(tuple[str, tuple[int, float]], with_value=True)
    strange: list[Any] = [(None, (1, 2.0)), None, 7, ("a",), ("a", None), ("a", ("x", 2.0)), (b"\xff", (2, 2.0))]
    made = pairs.table([*PAIRS[:2], *strange, ("a", (3, "x")), *PAIRS[2:3]])
    counted = made.filter(made["unit"].is_valid())
    assert counted["key"].to_pylist() == ["a", "b", "a", "a"]
    assert counted["unit"].to_pylist() == [0, 1, 3, 2]
    assert counted["value"].to_pylist() == [2.0, 2.0, None, 2.0]


@pytest.mark.parametrize("strange", ["ab", b"ab", {0: "a", 1: "b"}, ("a", "bc"), np.array(["a", "b"])])
def test_text_and_mappings_are_no_pairs(strange: Any) -> None:
    for with_value in (False, True):
        inner: Any = tuple[str, str] if with_value else str
        pairs = PairType.of(tuple[str, inner], with_value=with_value)
        good: Any = ("a", ("ann", "x")) if with_value else ("a", "ann")
        is_pair = isinstance(strange, tuple) and not with_value
        expected = ["ann", "bc"] if is_pair else ["ann"]
        assert pairs.table([good, strange])["unit"].drop_null().to_pylist() == expected


def test_a_key_that_may_be_null_is_a_key() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        nulls = [(None, (number, 1.0)) for number in range(400)]
        pairs = (
            pipeline
            | beam.Create(nulls)
            | beam.Map(lambda pair: pair).with_output_types(
                tuple[Optional[str], tuple[int, float]]  # noqa: UP045 - as users write it
            )
        )
        assert_that(pairs | PrivateCountPerKey(**SETTINGS) | beam.Map(rounded), equal_to([(None, 400)]))


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (
            typing.Any,
            "input: holds elements of type Any, and .* pairs with declared types are read here; say their types",
        ),
        (tuple[str, int, float], "pairs with declared types are read here"),
        (tuple[str, int], "pairs with declared types are read here"),
        (tuple[str, tuple[int, float, float]], "pairs with declared types"),
        (str, "elements of type <class 'str'>"),
        (tuple[str, tuple[int, typing.Any]], "value: has type Any, which cannot be read here; declare plain types"),
        (tuple[dict[str, int], tuple[int, float]], "key: has type Dict"),
        (tuple[float, tuple[int, float]], "column 'key': is a float"),
        (tuple[str, tuple[int, str]], "column 'value': has type string, which is no number"),
    ],
)
def test_pairs_that_cannot_be_read_are_refused_when_the_pipeline_is_built(hint: Any, said: str) -> None:
    pairs = beam.Pipeline(runner=FnApiRunner()) | beam.Create([0]) | beam.Map(lambda x: x).with_output_types(hint)
    with pytest.raises(RequestError, match=said):
        pairs | PrivateSumPerKey(**SETTINGS, **LIMITS)


def test_wrong_settings_are_refused_when_the_pipeline_is_built() -> None:
    with pytest.raises(RequestError, match="public_keys: stands beside partitions"):
        PrivateCountPerKey(**SETTINGS, public_keys=["a"], partitions=PrivatePartitions(min_users=3))
    pairs = beam.Pipeline(runner=FnApiRunner()) | beam.Create(PAIRS)
    with pytest.raises(RequestError, match="windowed"):
        pairs | beam.WindowInto(FixedWindows(60)) | PrivateCountPerKey(**SETTINGS)
    with pytest.raises(RequestError, match="min_value"):
        pairs | PrivateSumPerKey(**SETTINGS)
