"""How a budget is spread over rounds: the parts are those that the schedule's name says, the smallest of which is 1.

In: schedules, numbers of rounds. Out: fractions. Holds: parts of linear and doubling schedules are exact; others
are true to half of 2**-20. Not covered: what rounds cost together (tests/planning/test_rounds.py).
"""

from fractions import Fraction
from itertools import pairwise
from typing import get_args

import pytest

from dp_pipelines.noise.noise_schedule import GROWTH, Schedule, parts, ratio

ROUNDS = [2, 3, 5, 6, 7, 52]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_parts_rise_as_the_schedule_says_from_one_to_at_most_the_growth(rounds: int) -> None:
    assert parts("linear", rounds) == tuple(Fraction(number) for number in range(1, rounds + 1))
    found = parts("exponential", rounds)
    assert found is not None
    assert (len(found), found[0], max(found)) == (rounds, 1, found[-1])
    times = min(2.0, GROWTH ** (1 / (rounds - 1)))
    assert [float(after / before) for before, after in pairwise(found)] == pytest.approx(
        [times] * (rounds - 1), abs=2e-6
    )
    assert found[-1] == min(2 ** (rounds - 1), GROWTH)
    if rounds <= 5:
        assert found == tuple(Fraction(2**number) for number in range(rounds))


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("schedule", ["linear", "exponential"])
def test_decreasing_parts_are_the_same_ones_backwards(schedule: str, rounds: int) -> None:
    rising, falling = parts(schedule, rounds), parts(f"{schedule}_decreasing", rounds)  # type: ignore[arg-type]
    assert rising is not None
    assert falling == rising[::-1]


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_equal_parts_are_not_listed_and_each_is_one(schedule: Schedule) -> None:
    assert parts(schedule, 1) is None
    assert ratio(schedule, 1, 1) == 1
    assert (parts(schedule, 3) is None) == (schedule == "constant")
    assert [ratio("constant", 3, number) for number in (1, 2, 3)] == [1, 1, 1]
