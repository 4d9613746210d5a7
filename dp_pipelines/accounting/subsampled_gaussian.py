"""Gaussian sums over a Poisson sample: the two dominating pairs, one for each direction, and a bound on their moments.

In: the sampling rate, and the shift mu of the sum in standard deviations of its noise. Out: a `Removed` or `Added` pair
for `dominating_pairs.connect_dots`. Holds: profiles and their stated errors as for all pairs; moments are upper bounds
for every order (docs/proofs/accounting.md, 2 and 10). Not covered: samples of a fixed size, and rates that differ
between units.
"""

# Both profiles are those of a Gaussian with the same mu at another loss: subsampling is a change of variable, which
# costs no precision.
#
# Sources: dominating pairs of the two directions, Zhu, Dong, Wang 2022, theorem 11; Renyi divergence, Mironov, Talwar, Zhang
# 2019; the trapezoidal rule, Trefethen and Weideman 2014, theorem 5.1.

import dataclasses
import functools
import math

import numpy as np

from dp_pipelines.accounting.dominating_pairs import Floats, Gaussian, Pair

FARTHEST = 400.0
"""Up to this value of order times mu the moment is integrated; beyond it, a closed form bounds the moment."""

LARGEST_MU = 15.0
"""If mu is larger, the closed form answers for all orders."""

ENDLESS = 700.0
"""A loss this large counts as infinite: no epsilon of interest is near it."""

NODES = 200
"""The outcomes at which estimates are taken; no guarantee depends on them."""

ENDS = 14.0
"""The sum covers this many standard deviations around the mass of the integrand; a bound covers the rest."""


@dataclasses.dataclass(frozen=True)
class Removed(Pair):
    """(1 - rate) N(0, 1) + rate N(mu, 1) against N(0, 1): with the unit, and without it.

    Its loss log(1 - rate + rate exp(mu x - mu^2 / 2)) is above log(1 - rate), and has no upper end.

    >>> profile, _ = Removed(0.5, 1.0).profile(np.array([math.log(1.5)]))
    >>> round(float(profile[0]), 8) == round(float(Gaussian(1.0).profile(np.array([math.log(2)]))[0][0]) / 2, 8)
    True
    """

    rate: float
    mu: float

    @property
    def mirror(self) -> "Added":
        """See `Pair`."""
        return Added(self.rate, self.mu)

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """See `Pair`: rate times the Gaussian profile at `_of_sample`; 1 - exp(e) at losses too low to occur."""
        inside, under_p = _gaussian(self.mu, _of_sample(self.rate, losses))
        below = losses <= math.log1p(-self.rate)
        all_of_it = -np.expm1(np.minimum(losses, 0))
        error = np.where(below, all_of_it * 2.0**-48, self.rate * under_p * 2.0**-40)
        return np.where(below, all_of_it, self.rate * inside), error

    def reach(self, theta: float, log_delta: float) -> tuple[float, float]:
        """See `Pair`: at the upper end the profile is exp(-25) delta, whatever the tilt, or the loss counts as infinite."""
        top = _loss(self.rate, self.mu, self.mu + _width(log_delta - math.log(self.rate)))
        return _loss(self.rate, self.mu, -9.0), min(ENDLESS, top)

    def log_moment(self, theta: Floats) -> Floats:
        """See `Pair`: an upper bound."""
        return _log_moment(self.rate, self.mu, theta)

    def log_moment_within(self, theta: Floats, log_delta: float) -> Floats:
        """See `Pair`: beyond the reach, outcomes that never happen would decide large moments."""
        top = self.mu + _width(log_delta - math.log(self.rate))
        return _integral(np.linspace(-9.0, top, NODES), self.rate, self.mu, 1 + theta)


@dataclasses.dataclass(frozen=True)
class Added(Pair):
    """N(0, 1) against (1 - rate) N(0, 1) + rate N(mu, 1): without the unit, and with it.

    >>> round(Added(0.5, 1.0).ceiling, 12) == round(math.log(2), 12)
    True
    """

    rate: float
    mu: float

    @property
    def ceiling(self) -> float:
        """See `Pair`: the loss of a unit that is not in the sample; nobody learns whether it is."""
        return -math.log1p(-self.rate) * (1 + 2.0**-48)

    @property
    def mirror(self) -> Removed:
        """See `Pair`."""
        return Removed(self.rate, self.mu)

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """See `Pair`: (1 - (1 - rate) exp(e)) times the Gaussian profile at minus `_of_sample` of minus e."""
        inside, under_p = _gaussian(self.mu, -_of_sample(self.rate, -losses))
        part = -np.expm1(np.minimum(losses + math.log1p(-self.rate), 0))
        rounded = self.rate * np.exp(np.minimum(losses, self.ceiling)) + self.ceiling
        error = (part * 2.0**-40 + rounded * 2.0**-48) * under_p
        return part * inside, np.where(losses < self.ceiling, error, 0.0)

    def reach(self, theta: float, log_delta: float) -> tuple[float, float]:
        """See `Pair`."""
        top = -_loss(self.rate, self.mu, -_width(log_delta))
        # A reach just below the ceiling gains nothing: at the ceiling itself no mass is left above.
        return -_loss(self.rate, self.mu, 9.0), self.ceiling if top > 0.9 * self.ceiling else top

    def log_moment(self, theta: Floats) -> Floats:
        """See `Pair`: that of the other direction, which is never smaller (Mironov, Talwar, Zhang 2019, theorem 5)."""
        return np.minimum(_log_moment(self.rate, self.mu, theta), theta * self.ceiling)

    def log_moment_within(self, theta: Floats, log_delta: float) -> Floats:
        """See `Pair`."""
        return _integral(np.linspace(-_width(log_delta), 9.0, NODES), self.rate, self.mu, -theta)


def log_moment(rate: float, mu: float, theta: float) -> float:
    """Return an upper bound on theta times the Renyi divergence of order theta + 1, in the worse direction.

    >>> round(log_moment(0.01, 1.0, 1.0), 9) == round(math.log1p(0.01**2 * math.expm1(1)), 9)
    True
    """
    return float(_log_moment(rate, mu, np.array([theta], np.float64))[0])


def _loss(rate: float, mu: float, x: float) -> float:
    """Return the loss of the first direction at an outcome."""
    exponent = mu * x - mu * mu / 2
    if exponent > 1:
        return exponent + math.log(rate) + math.log1p((1 - rate) / rate * math.exp(-exponent))
    return math.log1p(rate * math.expm1(exponent))


def _width(log_delta: float) -> float:
    """Return a number of standard deviations that a normal variable exceeds with probability exp(-25) times delta."""
    return math.sqrt(2 * max(8.0, 25 - log_delta))


def _integral(x: Floats, rate: float, mu: float, powers: Floats) -> Floats:
    """Estimate log E[B^power], as in `_log_moments`, for each power, over evenly spaced outcomes x."""
    exponents = powers[:, None] * np.logaddexp(math.log1p(-rate), math.log(rate) + mu * x - mu * mu / 2) - x * x / 2
    highest = exponents.max(axis=1)
    sums = np.exp(exponents - highest[:, None]).sum(axis=1)
    integral: Floats = highest + np.log(sums * ((x[-1] - x[0]) / (len(x) - 1) / math.sqrt(2 * math.pi)))
    return integral


def _of_sample(rate: float, losses: Floats) -> Floats:
    """Return the Gaussian's loss, given that of the mixture: log(1 + (exp(e) - 1) / rate), from log(2^-48) upwards."""
    low = np.log1p(np.maximum(np.expm1(np.minimum(losses, 1.0)) / rate, 2.0**-48 - 1))
    high = np.maximum(losses, 1.0)
    above: Floats = high - math.log(rate) + np.log1p((rate - 1) * np.exp(-high))
    return np.where(losses < 1, low, above)


def _gaussian(mu: float, losses: Floats) -> tuple[Floats, Floats]:
    """Return the Gaussian profile, and the probability of a larger loss under P; its error is proportional to that."""
    profile, error = Gaussian(mu).profile(losses)
    return profile, error * 2.0**40


def _log_moment(rate: float, mu: float, theta: Floats) -> Floats:
    return np.array(_log_moments(rate, mu, np.asarray(theta, np.float64).tobytes()))


@functools.lru_cache(maxsize=32)
def _log_moments(rate: float, mu: float, thetas: bytes) -> Floats:
    """Return upper bounds on log E[B^(1 + theta)] by theta, for B = 1 - rate + rate exp(mu x - mu^2 / 2), x standard normal.

    There are two: convexity of B^(1 + theta) in rate; and the trapezoidal rule, whose relative error is known because
    off the real axis the integrand is larger by at most a known factor.
    """
    orders = 1 + np.frombuffer(thetas, np.float64)
    bound = np.logaddexp(math.log1p(-rate), math.log(rate) + orders * (orders - 1) * (mu * mu / 2)) * (1 + 2.0**-48)
    bound = np.maximum(bound, 0) + 2.0**-48
    farthest = min(FARTHEST, 600 / mu, 20 - 3 * math.log(rate) / mu)
    near = orders * mu <= farthest
    if mu > LARGEST_MU or not near.any():
        return bound
    step = 0.5 if mu < 0.238 else min(0.5, 6 * math.pi * mu / (45 * mu * mu + 4.5))
    x = np.arange(math.floor(-ENDS / step), math.ceil((float(orders[near].max()) * mu + ENDS) / step) + 1) * step
    loss = np.log1p(rate * np.expm1(mu * x - mu * mu / 2))
    exponents = orders[near, None] * loss - x * x / 2
    highest = exponents.max(axis=1)
    terms = np.exp(exponents - highest[:, None])
    # Add the ends three more times: beyond them terms fall by a factor of at most exp(-ENDS * step).
    total = terms.sum(axis=1) + 3 * (terms[:, 0] + terms[:, -1])
    integral = highest + np.log(total * (step / math.sqrt(2 * math.pi)))
    rounding = 2.0**-47 * (8 + (orders[near] * mu + ENDS) ** 2)
    bound[near] = np.minimum(bound[near], np.maximum(integral, 0) + rounding)
    return bound
