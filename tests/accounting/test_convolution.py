"""Windows: what is lost outright, what rounding may have done and where an answer lies between nodes, against exact numbers."""

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dp_pipelines.accounting.composition import Composition
from dp_pipelines.accounting.convolution import NodeWindow, Tilted, compose
from dp_pipelines.accounting.dominating_pairs import Floats, Laplace, Response

LOST = 0.1


@dataclasses.dataclass(frozen=True)
class Failing(Response):
    """A randomized response that says everything once in ten times."""

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        profile, error = super().profile(losses)
        return LOST + (1 - LOST) * profile, error


def composed(theta: float, times: int) -> tuple[Tilted, NodeWindow]:
    part = Tilted.of(Failing(1.0), times, 0.25, theta, -20.0)
    window = compose([part], -20.0, 0.0)
    assert window is not None
    return part, window


@pytest.mark.parametrize("times", [1, 2, 3, 7, 40])
def test_what_is_lost_outright_is_lost_as_often_as_independent_losses_say_and_not_less(times: int) -> None:
    part, window = composed(1.0, times)
    lost = Fraction(part.masses.infinite)
    assert lost >= Fraction(LOST)
    truth = 1 - (1 - lost) ** times
    assert truth <= Fraction(window.extra) <= truth * (1 + Fraction(1, 10**9))
    assert window.delta(1000.0) >= truth


def test_what_is_said_of_rounding_covers_the_exponents_of_the_tilt() -> None:
    # Each exponent up to theta * loss is off by half a unit in its last place, and so is each factor of a mass.
    theta, times = 100.0, 3
    part, window = composed(theta, times)
    assert len(window.losses) < 64
    assert window.relative >= 1e-12 + times * theta * part.masses.last * part.interval * 2.0**-53


def test_between_two_nodes_the_answer_is_never_below_the_exact_one() -> None:
    for loss in (10.0, 300.0, 490.0):
        window = NodeWindow(
            losses=np.array([0.0, loss]),
            masses=np.array([0.0, 1.0]),
            extra=0.0,
            relative=0.0,
            log_noise=-math.inf,
            theta=1.0,
        )
        for part in range(1, 64):
            delta = part / 64
            with mpmath.workdps(50):
                truth = loss + mpmath.log1p(-mpmath.mpf(delta))
            assert truth <= window.epsilon(delta) <= truth * (1 + 1e-14)


def test_what_is_left_beside_a_failure_is_below_the_exact_quotient() -> None:
    for failure in (0.0, 1e-9, 0.125, 0.3):
        for part in range(1, 40):
            delta = failure + part / 64
            exact = (Fraction(delta) - Fraction(failure)) / (1 - Fraction(failure))
            left = Fraction(Composition(failure=failure)._left(delta))
            assert exact * (1 - Fraction(1, 10**14)) < left < exact


def test_one_grid_finds_an_answer_that_lies_below_the_window_that_was_looked_at_first() -> None:
    # Both say the truth with probability `both`; then the loss is 24. There is no other loss above 0.
    pairs, delta = Composition(bounded={Response(12.0): 2}), 0.6254252609525888
    both = (1 / (1 + math.exp(-12))) ** 2
    truth = 24 + math.log1p(-delta / both)
    for bound in (24.0, 49.0):
        assert truth <= pairs._nearer(bound, delta, 3e-5, slack=4.0) <= truth * (1 + 1e-4)


def test_the_largest_epsilon_that_grids_answer_is_answered_by_one() -> None:
    pairs = Composition(bounded={Laplace(1.0): 700})
    assert pairs.delta(500.0) < pairs.largest_delta(500.0) / 10
    assert pairs.delta(500.5) == pairs.largest_delta(500.5)


@pytest.mark.parametrize("rate", [0.5, 3.0])
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_the_steepness_of_losses_that_thin_out_exponentially_is_one_more_than_their_rate(
    rate: float, epsilon: float
) -> None:
    # delta(e) is the integral of (1 - exp(e - l)) exp(-rate l) over l > e, in proportion to exp(-rate e) / (rate (rate + 1)).
    interval = 1e-4
    losses = np.arange(0.0, epsilon + 40 / rate, interval)
    masses = -np.expm1(-rate * interval) * np.exp(-rate * losses)
    window = NodeWindow(losses=losses, masses=masses, extra=0.0, relative=0.0, log_noise=-700.0, theta=0.0)
    assert window.steepness(epsilon) == pytest.approx(1 + rate, rel=0.03)
    assert window.steepness(float(losses[-1])) == 0.0


@pytest.mark.parametrize("theta", [1e-9, 1e-4, 1.0])
@pytest.mark.parametrize("interval", [1e-4, 0.25])
def test_what_is_said_of_noise_covers_one_rounding_of_each_tilted_mass(theta: float, interval: float) -> None:
    part = Tilted.of(Failing(1.0), 1, interval, theta, -20.0)
    window = compose([part], -20.0, 0.0)
    assert window is not None
    # A delta at epsilon 0 weighs the error of each mass from 0 upwards by exp(log_z - theta * loss): Cauchy-Schwarz, and a
    # geometric series.
    weights = part.log_z - math.log(-math.expm1(-2 * theta * interval)) / 2
    assert math.log(2.0**-53 * np.linalg.norm(part.values)) + weights <= window.log_noise
