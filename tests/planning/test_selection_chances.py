"""How often partitions are kept, beside the laws of the noise and coins that are really drawn."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dp_pipelines as dp
from dp_pipelines.planning.selection_chances import Selected, Selects, selected, selects_of
from dp_pipelines.selection import truncated_geometric

MEANS = np.array([0.0, 3.0, 40.0, 60.0, 95.0, 100.0, 104.0, 180.0])
LAPLACE = Selects(law="laplace", stddev=9.0, threshold=100.0)
GAUSSIAN = Selects(law="gaussian", stddev=9.0, threshold=100.0)
COIN = Selects(epsilon=0.3, delta=1e-6)


def by_integration(selects: Selects, mean: float, stddev: float) -> tuple[float, float, float]:
    """The probability of being kept, and mean and square of the noisy number where kept: on a grid of a million points."""
    units = np.linspace(mean - 8 * stddev, mean + 8 * stddev, 1501)
    units_mass = stats.norm.pdf(units, mean, stddev)
    law = (
        stats.laplace(scale=selects.stddev / np.sqrt(2))
        if selects.law == "laplace"
        else stats.norm(scale=selects.stddev)
    )
    noise = np.linspace(-20 * selects.stddev, 20 * selects.stddev, 4001)
    mass = units_mass[:, None] * law.pdf(noise)[None, :]
    compared = units[:, None] + noise[None, :]
    kept = compared >= selects.threshold
    keep = (mass * kept).sum() / mass.sum()
    return (
        float(keep),
        float((mass * kept * compared).sum() / (mass * kept).sum()),
        float((mass * kept * compared**2).sum() / (mass * kept).sum()),
    )


@pytest.mark.parametrize("selects", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("mean", [85.0, 100.0, 112.0])
def test_a_threshold_keeps_as_often_as_its_law_says(selects: Selects, mean: float) -> None:
    found = selected(selects, np.array([mean]), np.array([16.0]))
    keep, compared, square = by_integration(selects, mean, 4.0)
    assert found.keep[0] == pytest.approx(keep, rel=0.03)
    assert found.mean[0] == pytest.approx(compared, rel=0.01)
    assert found.square[0] == pytest.approx(square, rel=0.02)


def test_another_threshold_is_found() -> None:
    other = Selects(law="gaussian", stddev=9.0, threshold=103.0)
    assert selected(other, np.array([100.0]), np.array([16.0])).keep[0] < 0.9 * by_integration(GAUSSIAN, 100.0, 4.0)[0]


def test_a_coin_keeps_as_its_table_says() -> None:
    table = truncated_geometric.keep_table(COIN.epsilon, COIN.delta).astype(float) / 2**64
    users = np.array([0.0, 1.0, 20.0, 45.0, 400.0])
    found = selected(COIN, users, np.zeros(5))
    wanted = [table[int(n)] if n < len(table) else 1.0 for n in users]
    assert found.keep == pytest.approx(wanted)
    later = Selects(epsilon=COIN.epsilon, delta=COIN.delta, min_users=11)
    assert selected(later, users + 10, np.zeros(5)).keep == pytest.approx(wanted)


@pytest.mark.parametrize("selects", [GAUSSIAN, LAPLACE, COIN])
def test_more_users_are_kept_more_often_and_what_is_kept_had_more(selects: Selects) -> None:
    found: Selected = selected(selects, MEANS, np.full(len(MEANS), 25.0))
    assert (np.diff(found.keep) >= -1e-12).all()
    assert (found.keep >= 0).all()
    assert (found.keep <= 1).all()
    assert (found.shift[found.keep > 1e-6] >= -1e-12).all()
    assert np.isfinite([found.shift, found.narrowing, found.mean, found.square]).all()


@pytest.mark.parametrize("selects", [GAUSSIAN, LAPLACE])
def test_by_how_much_a_number_moves_that_depends_on_the_same_users(selects: Selects) -> None:
    """X = N itself has the covariance Var(N) with what is compared."""
    mean, variance = 98.0, 36.0
    found = selected(selects, np.array([mean]), np.array([variance]))
    units = np.linspace(mean - 50, mean + 50, 20_001)
    law = (
        stats.laplace(scale=selects.stddev / np.sqrt(2))
        if selects.law == "laplace"
        else stats.norm(scale=selects.stddev)
    )
    mass = stats.norm.pdf(units, mean, 6.0) * law.sf(selects.threshold - units)
    wanted = np.average(units, weights=mass)
    spread = np.average((units - wanted) ** 2, weights=mass)
    assert mean + variance * found.shift[0] == pytest.approx(wanted, abs=0.1)
    assert variance + variance**2 * found.narrowing[0] == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("mean", [70.0, 95.0, 100.0, 140.0])
def test_the_compared_number_where_kept_has_the_moments_of_a_truncated_normal_law(mean: float) -> None:
    found = selected(GAUSSIAN, np.array([mean]), np.array([16.0]))
    stddev = math.hypot(GAUSSIAN.stddev, 4.0)
    law = stats.truncnorm((GAUSSIAN.threshold - mean) / stddev, np.inf, loc=mean, scale=stddev)
    assert found.mean[0] == pytest.approx(law.mean(), rel=1e-9)
    assert found.square[0] == pytest.approx(law.moment(2), rel=1e-9)
    assert found.square[0] - found.mean[0] ** 2 == pytest.approx(law.var(), rel=1e-6)


@pytest.mark.parametrize("least", [1, 5])
def test_fewer_units_than_the_least_are_never_kept_whatever_the_noise(least: int) -> None:
    selects = dataclasses.replace(LAPLACE, threshold=-(10.0**6), min_users=least)
    found = selected(selects, np.array([0.0, least - 1.0, float(least), least + 1.0]), np.zeros(4))
    assert found.keep.tolist() == pytest.approx([0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize("strategy", ["truncated_geometric", "laplace", "gaussian", "weighted_gaussian"])
def test_what_a_stage_selects_by_is_what_its_release_compares(strategy: Any) -> None:
    query = dp.Query(
        privacy_unit="who",
        partition_by="k",
        bounds=dp.ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=1),
        metrics={"users": dp.PrivacyIdCount()},
        partitions=dp.PrivatePartitions(strategy=strategy, min_users=1),
    )
    stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]
    found = selects_of(stage)
    assert found is not None
    assert stage.selection is not None
    assert found.law == {"truncated_geometric": "coin", "laplace": "laplace"}.get(strategy, "gaussian")
    assert found.by_weight == (strategy == "weighted_gaussian")
    assert found.released == (strategy in ("laplace", "gaussian"))
    assert found.min_users == 1
    if stage.selection.noise is None:
        assert (found.epsilon, found.delta) == (stage.selection.epsilon, stage.selection.delta)
    else:
        # A number of whole steps is at least the threshold where the number before rounding is at least half a step below.
        half = stage.selection.noise.unit * (0.0 if strategy == "laplace" else 0.5)
        assert found.threshold == pytest.approx(stage.selection.threshold * stage.selection.noise.unit - half)
        assert found.stddev == stage.selection.noise.stddev
