"""What is said beforehand of noise that passes the conditions of a large list: the expected number, never too low, and a warning.

In: lists on disk, guesses. Out: sentences. Holds: nothing is drawn. Not covered: the chances (tests/release/test_large_lists.py).
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.mechanisms.added_noise import published_values
from dp_pipelines.planning.noise_levels import passing_noise
from dp_pipelines.planning.plan import Expectation
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.large_list import Condition, LargeList
from tests.helpers.key_files import key_file


@given(st.floats(1, 1e12))
def test_a_number_that_readers_see_is_not_below_the_expected_one_and_less_than_its_last_digit_above(
    expected: float,
) -> None:
    shown = passing_noise.shown_number(expected)
    value, digit = float(shown.replace(",", "")), 1.0 if expected >= 100 else 0.1
    assert expected * (1 - 1e-6) <= value < expected * (1 + 1e-6) + digit
    assert ("." in shown) <= (expected < 100)


@given(st.floats(1e-9, 0.99))
def test_less_than_one_is_shown_with_two_digits(expected: float) -> None:
    shown = passing_noise.shown_number(expected)
    assert float(shown) == pytest.approx(expected, rel=0.051)
    assert len(shown.partition("e")[0].replace(".", "").lstrip("0")) <= 2


@pytest.mark.parametrize(
    ("expected", "shown"), [(99.04, "99.1"), (99.5, "99.5"), (100.0, "100"), (100.2, "101"), (1.0, "1"), (0.0, "0")]
)
def test_from_a_hundred_on_there_are_whole_numbers(expected: float, shown: str) -> None:
    assert passing_noise.shown_number(expected) == shown


def stage_of(folder: pathlib.Path, **condition: Any) -> StagePlan:
    listed = key_file(folder, [f"p{number:04}" for number in range(1000)])
    query = dp.Query(
        privacy_unit="unit",
        partition_by=["page"],
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics={"views": dp.Count()},
        partitions=LargeList(keys=listed, conditions=(Condition(metric="views", **condition),)),
    )
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"pages": query})["pages"]


def passes(stage: StagePlan, steps: int) -> bool:
    """Whether the number that is published of so many noisy steps meets the condition."""
    partitions, (noise,) = stage.query.partitions, [noise for noise in stage.noises if noise is not None]
    assert isinstance(partitions, LargeList)
    (value,) = published_values(np.array([steps]), noise)
    return all(condition.passes(float(value)) for condition in partitions.conditions)


@pytest.mark.parametrize(
    "condition", [{"low": 3.0}, {"low": -2.0, "high": 9.0}, {"high": 0.5}, {"low": 3.0, "high": 3.2}]
)
def test_the_steps_that_pass_are_those_whose_published_number_meets_the_condition_and_they_have_their_chance(
    condition: dict[str, float], tmp_path: pathlib.Path
) -> None:
    stage = stage_of(tmp_path, **condition)
    (noise,) = [noise for noise in stage.noises if noise is not None]
    ((law, (first, last)),) = passing_noise.compared_noises(stage).values()
    assert law == noise.law
    for end, beyond in ((first, first - 1), (last, last + 1)):
        if abs(end) < passing_noise.FARTHEST:
            assert (passes(stage, end), passes(stage, beyond)) == (True, False)
    assert ("high" in condition) == (last < passing_noise.FARTHEST)
    assert ("low" in condition) == (first > -passing_noise.FARTHEST)
    wanted = law.tail(first) - law.tail(last + 1) if first > -passing_noise.FARTHEST else 1 - law.tail(last + 1)
    assert float(passing_noise.chance(stage)) == pytest.approx(wanted, rel=1e-6)


def test_both_ends_may_be_written_as_two_conditions_and_what_nothing_meets_has_no_chance(
    tmp_path: pathlib.Path,
) -> None:
    between = stage_of(tmp_path / "one", low=-2.0, high=9.0)
    conditions = tuple(Condition(metric="views", **end) for end in ({"low": -2.0}, {"high": 9.0}))
    partitions = between.query.partitions
    assert isinstance(partitions, LargeList)
    split = dataclasses.replace(partitions, conditions=conditions)
    two = dataclasses.replace(between, query=dataclasses.replace(between.query, partitions=split))
    assert passing_noise.passing_steps(two) == passing_noise.passing_steps(between)
    assert passing_noise.chance(two) == passing_noise.chance(between)
    nothing = dataclasses.replace(split, conditions=(conditions[1], Condition(metric="views", low=10.0)))
    never = dataclasses.replace(between, query=dataclasses.replace(between.query, partitions=nothing))
    assert passing_noise.chance(never) == 0


def test_a_plan_warns_where_more_than_one_in_a_hundred_of_the_expected_partitions_would_be_false(
    tmp_path: pathlib.Path,
) -> None:
    stage = stage_of(tmp_path, low=3.0)
    said = passing_noise.described(stage)
    assert said is not None
    assert said["keys"] == 1000
    assert said["by_noise"] == pytest.approx(1000 * float(passing_noise.chance(stage)))
    assert (said["having"], said["metrics"]) == ("views >= 3", ["views"])
    assert said["words"].startswith("of 1,000 listed partitions at most ")
    assert "warning" not in said
    for expected, warned in ((99 * said["by_noise"], True), (101 * said["by_noise"], False)):
        found = passing_noise.described(stage, Expectation(partitions=expected))
        assert found is not None
        assert ("warning" in found) == warned
        assert {key: value for key, value in found.items() if key != "warning"} == said
    found = passing_noise.described(stage, Expectation(users=5))
    assert found == said
    plain = dp.Query(
        privacy_unit="unit",
        partition_by=["page"],
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics={"views": dp.Count()},
    )
    assert passing_noise.described(dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": plain})["s"]) is None
