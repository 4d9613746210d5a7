"""The rough estimate: its closed forms against 60 digits, and what a noise level means against records with so much noise.

In: noise, samples, orders. Holds: each formula is that of its source. Not covered: how rough the whole estimate is
(test_composition); which side of a limit it lies on (test_level_costs).
"""

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dp_pipelines.accounting import estimate
from dp_pipelines.accounting.accountant import epsilon_of
from dp_pipelines.accounting.estimate import ORDERS, Terms, gaussian_delta, rough
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of

NOISE = [
    MechanismRecord(stage="s", name="n", kind="gaussian", scale=Fraction(7, 2), l2_squared=5, l0=2),
    MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(9), linf=2, l0=3, l1=6),
    MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(9), linf=4, l0=3, l1=5),
    MechanismRecord(
        stage="s", name="n", kind="sampled_gaussian", scale=Fraction(3), l2_squared=4, l0=9, rate=0.1, times=40
    ),
]


@pytest.mark.parametrize("record", NOISE, ids=lambda record: record.kind)
@pytest.mark.parametrize("level", [Fraction(1, 2), Fraction(4)])
def test_a_noise_level_multiplies_the_noise(record: MechanismRecord, level: Fraction) -> None:
    assert record.scale is not None
    louder = dataclasses.replace(record, scale=record.scale * level)
    expected, found = kind_of(louder).terms(louder), kind_of(record).terms(record).at(float(level))
    assert (found.squares, found.log_not_failed) == pytest.approx(
        (expected.squares, expected.log_not_failed), rel=1e-12
    )
    for field in ("losses", "sampled"):
        numbers, others = (np.array(getattr(terms, field)) for terms in (found, expected))
        assert numbers == pytest.approx(others, rel=1e-12)


@pytest.mark.parametrize("rate", [1e-4, 0.03, 0.9])
@pytest.mark.parametrize("square", [1e-3, 0.2, 6.0])
@pytest.mark.parametrize("order", [2, 3, 12, 48])
def test_the_moment_of_a_sum_over_a_sample_is_that_of_its_binomial_law(rate: float, square: float, order: int) -> None:
    with mpmath.workdps(60):
        exact = mpmath.log(
            mpmath.fsum(
                mpmath.binomial(order, k)
                * (1 - mpmath.mpf(rate)) ** (order - k)
                * mpmath.mpf(rate) ** k
                * mpmath.exp(mpmath.mpf(square) * k * (k - 1) / 2)
                for k in range(order + 1)
            )
        )
    assert estimate._log_moment(rate, square, order) == pytest.approx(float(exact), rel=1e-9, abs=1e-13)


def test_a_sample_of_nearly_everybody_counts_as_the_whole_at_each_order() -> None:
    # The smaller the shift, the larger the order at which it is looked at: from the first to the last.
    for square in (10.0, 1.0, 0.1, 0.01, 1e-3, 1e-4):
        squares = estimate._of_samples([(1.0, 1 - 1e-12, square)], 0.0, 1e-6, 1)
        assert squares == pytest.approx(square, rel=1e-6)
    assert ORDERS[-1] ** 2 * 1e-3 < 2 * math.log(1e6) < ORDERS[1] ** 2 * 10.0


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("noise", [3, 10])
@pytest.mark.parametrize("runs", [1, 2])
def test_the_estimate_of_sums_over_samples_is_near_the_account(rate: float, noise: int, runs: int) -> None:
    record = dataclasses.replace(NOISE[-1], scale=Fraction(2 * noise), rate=rate, times=200)
    found = rough([kind_of(record).terms(record)], 1e-6, runs=runs)
    assert found == pytest.approx(epsilon_of([record], 1e-6, runs=runs, accuracy=0.01), rel=0.05)


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0, 9.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 4.0])
def test_the_delta_of_a_gaussian_is_its_closed_form(mu: float, epsilon: float) -> None:
    with mpmath.workdps(60):
        shift, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(shift / 2 - e / shift) - mpmath.exp(e) * mpmath.ncdf(-shift / 2 - e / shift)
    assert gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9, abs=1e-15)


def test_the_estimate_of_noise_is_where_its_delta_is_reached_and_losses_never_cost_more_than_their_sum() -> None:
    for squares in (1e-4, 0.5, 20.0):
        epsilon = rough([Terms(squares=squares / 4)], 1e-6, runs=4)
        assert (
            gaussian_delta(math.sqrt(squares), epsilon)
            <= 1e-6
            < gaussian_delta(math.sqrt(squares), epsilon / (1 + 2e-4))
        )
    assert rough([Terms(losses=((3, 0.25),)), Terms(losses=((1, 0.5),))], 1e-9, runs=2) == pytest.approx(2.5)
    many = rough([Terms(losses=((10**4, 0.01),))], 1e-6)
    assert many == pytest.approx(rough([Terms(squares=1.0)], 1e-6))
    assert rough([Terms(log_not_failed=math.log1p(-1e-3))], 1e-4) == math.inf
