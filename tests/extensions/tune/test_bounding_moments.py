"""Moments of what bounding keeps, for all pairs of bounds at once, beside the sum over every choice that there is."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.tune import bounding_moments
from dp_pipelines.extensions.tune.bounding_moments import KeptMoments, Pairs
from dp_pipelines.extensions.tune.variables import ROWS, UNITS, WEIGHTS, ClampedSum, ClippedSum, KeptValues

SUM = ClampedSum("x", low=-1.0, high=5.0, centre=2.0)
VARIABLES = (ROWS, UNITS, KeptValues("x"), SUM, ClippedSum("x", low=0.0, high=9.0), WEIGHTS)
NO_BOUND = 10**6


@st.composite
def some_pairs(draw: st.DrawFn) -> Pairs:
    """A few pairs, some of the same partition, with nulls among their numbers."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=7))
    numbers = st.one_of(st.just(float("nan")), st.integers(-3, 9).map(float))
    length = len(sizes)
    return Pairs(
        partitions=np.array(draw(st.lists(st.integers(0, 2), min_size=length, max_size=length)), np.int64),
        size=3,
        of_unit=np.array(draw(st.lists(st.integers(1, 8), min_size=length, max_size=length)), np.int64),
        rows=np.array(sizes, np.int64),
        values={"x": np.array(draw(st.lists(numbers, min_size=sum(sizes), max_size=sum(sizes))))},
    )


def by_hand(pairs: Pairs, partition: int, most_partitions: int, most_rows: int) -> tuple[Any, Any]:
    """Means and covariances of all variables of one partition, over every choice of rows of every pair."""
    mean, covariance = np.zeros(len(VARIABLES)), np.zeros((len(VARIABLES),) * 2)
    for i in np.flatnonzero(pairs.partitions == partition):
        numbers = pairs.values["x"][pairs.starts[i] : pairs.starts[i] + pairs.rows[i]]
        there = ~np.isnan(numbers)
        clamped = np.where(there, np.clip(numbers, -1, 5) - 2, 0)
        clipped = float(np.clip(np.nansum(numbers), 0, 9))
        chance = min(1.0, most_partitions / pairs.of_unit[i])
        outcomes = []
        for chosen in itertools.combinations(range(pairs.rows[i]), min(pairs.rows[i], most_rows)):
            at = list(chosen)
            weight = 1 / np.sqrt(min(pairs.of_unit[i], most_partitions))
            outcomes.append([len(at), 1, there[at].sum(), clamped[at].sum(), clipped, weight])
        found = np.array(outcomes, float)
        once = found.mean(axis=0)
        mean += chance * once
        covariance += chance * (found[:, :, None] * found[:, None, :]).mean(axis=0) - chance**2 * np.outer(once, once)
    return mean, covariance


def farthest(pairs: Pairs, of: KeptMoments, most_partitions: list[int], most_rows: list[int]) -> float:
    """How far the farthest moment is from that over every choice."""
    worst = 0.0
    for (a, k), (b, m) in itertools.product(enumerate([*most_partitions, NO_BOUND]), enumerate([*most_rows, NO_BOUND])):
        for partition in range(pairs.size):
            mean, covariance = by_hand(pairs, partition, k, m)
            for i, one in enumerate(VARIABLES):
                worst = max(worst, abs(of.mean(one)[a, b, partition] - mean[i]))
                for j, other in enumerate(VARIABLES):
                    worst = max(worst, abs(of.covariance(one, other)[a, b, partition] - covariance[i, j]))
    return float(worst)


@given(
    pairs=some_pairs(),
    most_partitions=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(sorted),
    most_rows=st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True).map(sorted),
)
def test_all_bounds_at_once_give_what_each_gives_alone(
    pairs: Pairs, most_partitions: list[int], most_rows: list[int]
) -> None:
    of = KeptMoments(pairs, most_partitions, most_rows)
    assert farthest(pairs, of, most_partitions, most_rows) < 1e-9


PLANTED = Pairs(
    partitions=np.array([0, 0, 1]),
    size=3,
    of_unit=np.array([2, 4, 3]),
    rows=np.array([3, 1, 2]),
    values={"x": np.array([1.0, np.nan, 4.0, 7.0, 0.0, 5.0])},
)


@pytest.mark.parametrize("fault", ["a bucket too far", "drawn with replacement", "units that depend on each other"])
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert farthest(PLANTED, KeptMoments(PLANTED, [1, 3], [1, 2]), [1, 3], [1, 2]) < 1e-9
    if fault == "a bucket too far":
        monkeypatch.setattr(
            bounding_moments, "_above", lambda sums, axis=2: np.flip(np.cumsum(np.flip(sums, axis), axis), axis)
        )
    elif fault == "drawn with replacement":
        true = KeptMoments._of_choice
        monkeypatch.setattr(KeptMoments, "_of_choice", lambda of, spread, power=0: true(of, spread, power) * 1.1)
    else:
        monkeypatch.setattr(KeptMoments, "_of_rows_squared", lambda of, totals, power: of._of_rows(totals, power))
    assert farthest(PLANTED, KeptMoments(PLANTED, [1, 3], [1, 2]), [1, 3], [1, 2]) > 1e-3


def test_without_any_pair_there_is_nothing() -> None:
    none = np.zeros(0, np.int64)
    of = KeptMoments(Pairs(partitions=none, size=2, of_unit=none, rows=none, values={"x": np.zeros(0)}), [1], [1])
    for one, other in itertools.product(VARIABLES, VARIABLES):
        assert not of.mean(one).any()
        assert not of.covariance(one, other).any()


def test_an_infinite_value_spoils_its_own_partition_alone() -> None:
    values = {"x": np.array([1.0, 2.0, 4.0, 7.0, np.inf, 5.0])}
    pairs = Pairs(partitions=PLANTED.partitions, size=3, of_unit=PLANTED.of_unit, rows=PLANTED.rows, values=values)
    with np.errstate(invalid="ignore"):
        of = KeptMoments(pairs, [1], [1])
        raw = of.whole(ClampedSum("x"))
    assert raw.tolist() == [14.0, np.inf, 0.0]
    assert np.isfinite(of.mean(SUM)).all()
