"""The benchmark of compared arms: its gates can fail, and intervals drawn with a seed hold the truth as often as they say."""

import math
import statistics

import numpy as np
import pytest

from tests.helpers import seeded

GOOD = {
    "covered": {"revenue": (0.95, 0.951), "orders": (0.949, 0.95)},
    "misled": {"revenue": 0.67},
    "stated": (3.0, 2.0),
    "found": 0.8,
}

TESTS, UNITS = 4000, 1500
NEVER = -statistics.NormalDist().inv_cdf(1e-11)
"""Deviations that a share is away with a probability of 1e-11, so that the thirty shares here together are not, once in 1e9."""


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({}, []),
        ({"covered": {"revenue": (0.939, 0.95)}}, ["coverage, least"]),
        ({"covered": {"revenue": (0.95, 0.961)}}, ["coverage, largest"]),
        ({"found": 0.76}, ["power, least"]),
        ({"found": 0.84}, ["power, largest"]),
        ({"misled": {"revenue": 0.4}}, ["called different"]),
        ({"covered": {"revenue": (math.nan, math.nan)}}, ["coverage, least", "coverage, largest"]),
    ],
)
def test_a_gate_holds_for_good_figures_alone(load, changes, fails) -> None:
    compare = load("compare")
    gates = compare.judged([compare.Level(epsilon=1.0, **{**GOOD, **changes})])
    failed = [gate.name for gate in gates if not gate.holds]
    assert len(failed) == len(fails)
    assert all(end in name for name, end in zip(failed, fails, strict=True))


@pytest.fixture(scope="module")
def sums():
    """Sums of equal arms, the same in each run of the tests, by the benchmark's module that made them."""
    made: dict = {}

    def of(compare):
        return made.setdefault("sums", compare.made(np.random.default_rng(11), TESTS, UNITS))

    return of


def deviation(share: float) -> float:
    """Of the share of so many tests."""
    return math.sqrt(share * (1 - share) / TESTS)


@pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0, 16.0, 32.0])
def test_intervals_hold_the_truth_as_often_as_they_say_at_five_noise_levels(load, sums, epsilon) -> None:
    compare = load("compare")
    found = compare.level(epsilon, sums(compare), seeded.release(int(epsilon)))
    # To first order intervals are exact; what is left of higher orders is below one percent with so few units.
    near = NEVER * deviation(0.95) + 0.01
    for both in found.covered.values():
        assert both == (pytest.approx(0.95, abs=near), pytest.approx(0.95, abs=near))
    assert found.found == pytest.approx(0.8, abs=NEVER * deviation(0.8) + 0.02)


def test_intervals_of_the_noise_alone_would_be_found_out(load, sums) -> None:
    compare = load("compare")
    found = compare.level(32.0, sums(compare), seeded.release(5))
    near = NEVER * deviation(0.95) + 0.01
    assert 1 - found.misled["revenue"] < 0.95 - near
