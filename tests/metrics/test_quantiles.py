"""The metrics `Quantiles`, `Median`, `Min`, `Max`: what they refuse, what they find, what their error bars cover."""

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines import ContributionBounds, Max, Median, Min, Plan, PublicPartitions, Quantiles, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.base import Basis, Noisy
from dp_pipelines.metrics.quantiles import BRANCHING, DEPTH, consistent, descend

BASIS = Basis(centred=False, nullable=True)
RANGE = {"min_value": 0.0, "max_value": 100.0}
LEAF = 100.0 / BRANCHING**DEPTH


def released(metric: Quantiles, rows: Any, *, stddev: float = 1e-9, noise: float = 0.0, random: Any = None) -> Any:
    """What a metric makes of rows (one partition a row of the array) with Gaussian noise on each count."""
    noisy = {}
    for statistic in metric.statistics(BASIS):
        assert statistic.cells is not None
        counts = np.stack([
            np.bincount(statistic.cells.finest.of(pa.array(of)).drop_null(), minlength=statistic.cells.finest.count)
            for of in rows
        ])  # fmt: skip
        counts = counts.reshape(len(rows), statistic.cells.count, -1).sum(axis=2).astype(float)
        if noise:
            counts += random.normal(0.0, noise, counts.shape)
        noisy[statistic] = Noisy(values=counts, stddev=stddev)
    return metric.finish(noisy, BASIS)


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"quantiles": [0.5, 1.5]}, "quantiles[1]", "from 0 to 1"),
        ({"quantiles": [-0.1]}, "quantiles[0]", "from 0 to 1"),
        ({"quantiles": [math.nan]}, "quantiles[0]", "finite"),
        ({"quantiles": [10**400]}, "quantiles[0]", "finite"),
        ({"quantiles": [0.5, 0.5]}, "quantiles[1]", "above the one before"),
        ({"quantiles": [0.5, 0.25]}, "quantiles[1]", "above the one before"),
        ({"quantiles": [True]}, "quantiles[0]", "must be a number"),
        ({"quantiles": []}, "quantiles", "1 to 100"),
        ({"quantiles": list(np.linspace(0, 1, 101))}, "quantiles", "1 to 100"),
        ({"quantiles": "0.5"}, "quantiles", "must be a list"),
        ({"quantiles": 0.5}, "quantiles", "must be a list"),
        ({"min_value": 100.0}, "min_value", "below max_value"),
        ({"min_value": math.nan}, "min_value", "finite"),
        ({"max_value": math.inf}, "max_value", "finite"),
        ({"max_value": None}, "max_value", "must be a number"),
        ({"min_value": 1e15, "max_value": 1e15 + 8}, "min_value", "far enough"),
        ({"min_value": 0.0, "max_value": 5e-324}, "min_value", "far enough"),
        ({"stddev": 2.0}, "stddev", "is not for Quantiles"),
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused_at_once(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        Quantiles("amount", **{"quantiles": [0.5], **RANGE, **changes})
    assert caught.value.field == field
    assert message in caught.value.message


@pytest.mark.parametrize("kind", [Median, Min, Max])
def test_which_quantile_a_median_is_cannot_be_said(kind: Any) -> None:
    with pytest.raises(TypeError):
        kind("amount", quantiles=[0.3], **RANGE)


def test_all_quantiles_of_one_range_are_paid_for_once() -> None:
    def stddevs(**metrics: Any) -> list[float]:
        bounds = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)
        query = Query(
            privacy_unit="u", partition_by="p", bounds=bounds, metrics=metrics, partitions=PublicPartitions(keys=[(1,)])
        )
        plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": query})
        return [noise.stddev for noise in plan["s"].noises if noise is not None]

    median = Median("a", **RANGE)
    together = stddevs(
        m=median, low=Min("a", **RANGE), high=Max("a", **RANGE), five=Quantiles("a", quantiles=[0, 0.2, 1], **RANGE)
    )
    assert together == pytest.approx(stddevs(m=median), rel=1e-3)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.floats(-50, 150), min_size=1, max_size=60), min_size=1, max_size=3),
    st.lists(st.floats(0.01, 0.99), min_size=1, max_size=5, unique=True),
)
def test_without_noise_a_quantile_lies_within_a_leaf_of_the_rows_about_its_rank(
    rows: list[list[float]], quantiles: list[float]
) -> None:
    values, stddevs = released(Quantiles("a", quantiles=sorted(quantiles), **RANGE), rows)
    assert values.shape == stddevs.shape == (len(rows), len(quantiles))
    assert (np.diff(values, axis=1) >= -1e-6).all()
    for of, found in zip(rows, values, strict=True):
        ordered = np.sort(np.clip(of, 0, 100))
        for quantile, value in zip(sorted(quantiles), found, strict=True):
            rank = quantile * len(of)
            # A rank that is whole but for rounding may fall to either side.
            below = ordered[max(0, math.floor(rank - 1e-6) - (abs(rank - round(rank)) < 1e-6))]
            above = ordered[min(len(of) - 1, math.ceil(rank + 1e-6) - 1)]
            assert min(below, above) - LEAF - 1e-6 <= value <= max(below, above) + LEAF + 1e-6


def test_without_noise_the_ends_are_those_of_the_rows() -> None:
    rows = [[20.0, 30.0, 77.0], [50.0], [-3.0, 103.0]]
    low, high = (released(kind("a", **RANGE), rows)[0] for kind in (Min, Max))
    assert low == pytest.approx([20, 50, 0], abs=LEAF)
    assert high == pytest.approx([77, 50, 100], abs=LEAF)
    assert low.shape == (3,)


def test_a_partition_without_rows_has_a_value_in_the_range_and_an_error_bar_over_it() -> None:
    metric = Quantiles("a", quantiles=[0, 0.5, 1], **RANGE)
    values, stddevs = released(metric, [[], [math.nan]])
    assert values.tolist() == [[50.0] * 3] * 2
    noisy, bars = released(metric, [[]] * 40, stddev=10.0, noise=10.0, random=np.random.default_rng(1))
    assert ((noisy >= 0) & (noisy <= 100)).all()
    assert np.isfinite(stddevs).all()
    assert np.mean(bars[:, 1] * 1.96 >= 50) > 0.95


def test_the_ends_are_not_inside_of_what_is_found_between_them() -> None:
    random = np.random.default_rng(2)
    rows = [random.normal(50, 5, 500) for _ in range(50)]
    metric = Quantiles("a", quantiles=[0, 0.001, 0.5, 0.999, 1], **RANGE)
    values, _ = released(metric, rows, stddev=20.0, noise=20.0, random=random)
    assert (np.diff(values, axis=1) >= 0).all()


def test_the_ends_are_found_where_noise_would_hide_them() -> None:
    # 5,000 rows between 30 and 40: half of the empty parts have noisy counts above zero.
    random = np.random.default_rng(3)
    rows = [random.uniform(30, 40, 5000) for _ in range(40)]
    low, high = (released(kind("a", **RANGE), rows, stddev=20.0, noise=20.0, random=random)[0] for kind in (Min, Max))
    assert np.mean(np.abs(low - 30) < 2) > 0.7
    assert np.mean(np.abs(high - 40) < 2) > 0.7


# Least squares.


@given(st.integers(2, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_consistent_tree_is_that_of_least_squares(branching: int, depth: int, random: Any) -> None:
    levels = [np.array([[random.uniform(-5, 5) for _ in range(branching**level)]]) for level in range(1, depth + 1)]
    stddevs = [random.uniform(0.5, 3) for _ in levels]
    tree, of_nodes, of_rank = consistent(levels, stddevs)
    # Plainly: each level is a matrix times the leaves, each equation weighted by its noise.
    leaves = branching**depth
    matrix = np.concatenate([
        np.kron(np.eye(branching**level), np.ones((1, branching ** (depth - level)))) / stddev
        for level, stddev in zip(range(1, depth + 1), stddevs, strict=True)
    ])  # fmt: skip
    wanted = np.concatenate([level[0] / stddev for level, stddev in zip(levels, stddevs, strict=True)])
    solution = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    for level, found in enumerate(tree, start=1):
        assert found[0] == pytest.approx(solution.reshape(branching**level, -1).sum(axis=1), abs=1e-7)
    covariance = np.linalg.inv(matrix.T @ matrix)
    for level, bound in enumerate(of_nodes, start=1):
        nodes = np.kron(np.eye(branching**level), np.ones((1, branching ** (depth - level))))
        assert (np.sqrt(np.diag(nodes @ covariance @ nodes.T)) <= bound * (1 + 1e-9)).all()
    # The rank of a quantile: what lies below, less its part of the whole.
    ranks = [np.arange(leaves) < k for k in range(leaves)]
    moves = np.array(ranks, float) - np.arange(leaves)[:, None] / leaves
    mean = float(np.sqrt(np.mean(np.diag(moves @ covariance @ moves.T))))
    assert 0.7 * mean <= of_rank <= 1.6 * mean


@given(st.lists(st.floats(-3, 9), min_size=16, max_size=16), st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_a_larger_rank_lies_no_lower(counts: list[float], ranks: list[float]) -> None:
    leaves = np.array([counts])
    tree = [leaves.reshape(1, 4, 4).sum(axis=2), leaves]
    places = descend(tree, np.array([sorted(ranks)]))[0].tolist()
    assert all(0 <= place <= 1 for place in places)
    assert all(low <= high + 1e-12 for low, high in itertools.pairwise(places))


# Error bars.

COVERAGE, ALARMS, PARTITIONS = 0.9, 1e-9, 400
SHAPES = {
    "normal": lambda random, n: random.normal(50, 10, n),
    "uniform": lambda random, n: random.uniform(0, 100, n),
    "heavy tail": lambda random, n: np.exp(random.normal(1, 1, n)),
    "whole prices": lambda random, n: np.round(np.exp(random.normal(2.5, 0.6, n))),
}
QUANTILES = [0.1, 0.25, 0.5, 0.75, 0.9]


def covered(shape: str, rows: int, random: Any, *, more: float = 1.0) -> Any:
    """For each quantile in how many partitions the error bar (1.96 standard deviations) holds that of the rows."""
    data = [np.clip(SHAPES[shape](random, rows), 0, 100) for _ in range(PARTITIONS)]
    metric = Quantiles("a", quantiles=QUANTILES, **RANGE)
    values, stddevs = released(metric, data, stddev=25.0, noise=25.0 * more, random=random)
    truth = np.quantile(np.array(data), QUANTILES, axis=1).T
    return (np.abs(values - truth) <= 1.96 * stddevs).sum(axis=0)


FEWEST = stats.binom.ppf(ALARMS / (4 * 2 * 5), PARTITIONS, COVERAGE)
"""Fewer covered partitions than this come with probability 1e-9 over all cases, were the coverage 0.9."""


@pytest.mark.parametrize("rows", [1500, 10_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_error_bars_cover_at_least_nine_tenths(shape: str, rows: int, seed: int) -> None:
    assert (covered(shape, rows, np.random.default_rng(seed)) >= FEWEST).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_error_bars_of_a_quarter_of_the_noise_would_be_found(shape: str) -> None:
    assert (covered(shape, 10_000, np.random.default_rng(4), more=4.0) < FEWEST).any()
