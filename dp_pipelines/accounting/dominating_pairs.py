"""Dominating pairs: an upper bound on how different two neighbouring data sets look, and their masses on a grid of losses.

In: a sensitivity in units of the noise, or the epsilon of a decision. Out: a `Pair` with its privacy profile; masses on a
grid. Holds: the profile of the masses is at or above that of the pair at every epsilon, rounding errors included
(docs/proofs/accounting.md, 3). Not covered: which mechanism a pair dominates (accounting.accountant); composition
(accounting.composition); pairs of subsampled mechanisms, whose two directions differ (accounting.subsampled_gaussian).
"""

# Sources: dominating pairs, Zhu, Dong, Wang 2022; connecting the dots, Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022.

import abc
import dataclasses
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LARGEST_EXPONENT = 709.0
"""The largest exponent for which `math.exp` does not overflow."""

FEW = 64
"""Up to so many numbers, computing them one by one is faster than importing scipy."""

FAR = 35.0
"""Below minus this, the normal law gets close to the smallest double, where only its logarithm has all digits."""


@dataclasses.dataclass(frozen=True)
class Pair(abc.ABC):
    """A pair (P, Q) of distributions. It is symmetric, (Q, P) having the same losses, unless `mirror` says otherwise.

    Its loss is L = log(P / Q) under P; its profile is d(e) = P(L > e) - exp(e) Q(L > e), for e of either sign.
    """

    @property
    def ceiling(self) -> float:
        """Return the largest possible loss."""
        return math.inf

    @property
    def mirror(self) -> "Pair":
        """Return the pair (Q, P)."""
        return self

    @abc.abstractmethod
    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """Return the profile, from 0 to 1, at losses between -1000 and 1000, and a bound on its error."""

    @abc.abstractmethod
    def reach(self, theta: float, log_delta: float) -> tuple[float, float]:
        """Return two losses with all mass that matters between them."""

    @abc.abstractmethod
    def log_moment(self, theta: Floats) -> Floats:
        """Return log E[exp(theta L)], or a bound above it.

        Exact to some units in the last place of 1 + theta * max loss.
        """

    def log_moment_within(self, theta: Floats, log_delta: float) -> Floats:
        """Estimate `log_moment` for losses within `reach`: only for choosing tilts and intervals."""
        return self.log_moment(theta)


@dataclasses.dataclass(frozen=True)
class Gaussian(Pair):
    """N(0, 1) and N(mu, 1); the profile is that of Balle and Wang 2018, theorem 8.

    >>> profile, error = Gaussian(1.0).profile(np.array([1.0]))
    >>> round(float(profile[0]), 8), float(error[0]) < 1e-12
    (0.12693674, True)
    """

    mu: float

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """See `Pair`: the normal law is good to 3e-13 (`normal_law`), and its argument, up to 30 in magnitude, adds 4e-13."""
        under_p, log_under_q = normal_law(self.mu / 2 - losses / self.mu, -self.mu / 2 - losses / self.mu)
        under_q = np.exp(losses + log_under_q)
        return np.clip(under_p - under_q, 0, 1), under_p * 2.0**-40

    def reach(self, theta: float, log_delta: float) -> tuple[float, float]:
        """See `Pair`: the tilted loss is normal with mean (theta + 1/2) mu^2 and standard deviation mu."""
        width = max(theta * self.mu + 9, math.sqrt(50 - 2 * log_delta))
        return ((theta + 0.5) * self.mu - 9) * self.mu, (self.mu / 2 + width) * self.mu

    def log_moment(self, theta: Floats) -> Floats:
        """See `Pair`: the loss is normal with mean mu^2 / 2 and variance mu^2."""
        return theta * (theta + 1) * (self.mu**2 / 2)


@dataclasses.dataclass(frozen=True)
class BoundedLoss(Pair):
    """A pair whose loss lies between -largest and largest."""

    largest: float

    @property
    def ceiling(self) -> float:
        """See `Pair`."""
        return self.largest

    def reach(self, theta: float, log_delta: float) -> tuple[float, float]:
        """See `Pair`."""
        return -self.largest, self.largest

    def _error(self, losses: Floats) -> Floats:
        """Return some units in the last place of the loss; from the largest loss upwards the profile is exactly 0."""
        error: Floats = np.where(losses < self.largest, (1 + self.largest) * 2.0**-49, 0.0)
        return error


@dataclasses.dataclass(frozen=True)
class Laplace(BoundedLoss):
    """Laplace(0, 1) and Laplace(largest, 1).

    >>> float(Laplace(1.0).profile(np.array([0.5]))[0][0]) == -math.expm1(-0.25)
    True
    """

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """See `Pair`: 1 - min(1, exp((e - largest) / 2), exp(e))."""
        exponents = np.minimum(np.minimum((losses - self.largest) / 2, losses), 0)
        return -np.expm1(exponents), self._error(losses)

    def log_moment(self, theta: Floats) -> Floats:
        """See `Pair`: with s the largest loss, 1/2 at s, exp(-s) / 2 at -s, and a density of exp((l - s) / 2) / 4 between."""
        fall = np.exp(-(1 + 2 * theta) * self.largest)
        return theta * self.largest + np.log((1 + fall) / 2 + (1 - fall) / (4 * theta + 2))


@dataclasses.dataclass(frozen=True)
class Response(BoundedLoss):
    """Randomized response: the truth e^largest times as often as the lie. It dominates every (largest, 0)-DP mechanism.

    Source: Kairouz, Oh, Viswanath 2015, theorem 3.2. (With a probability delta of failing, every (largest, delta)-DP
        one.)

    >>> round(float(Response(math.log(3)).profile(np.array([0.0]))[0][0]), 12)
    0.5
    """

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """See `Pair`."""
        truth, lie = 1 / (1 + math.exp(-self.largest)), 1 / (1 + math.exp(min(self.largest, LARGEST_EXPONENT)))
        below_top, below_bottom = np.minimum(losses - self.largest, 0), np.minimum(losses + self.largest, 0)
        return -truth * np.expm1(below_top) - lie * np.expm1(below_bottom), self._error(losses)

    def log_moment(self, theta: Floats) -> Floats:
        """See `Pair`."""
        both: Floats = np.logaddexp((theta + 1) * self.largest, -theta * self.largest)
        return both - float(np.logaddexp(self.largest, 0))


@dataclasses.dataclass(frozen=True)
class BoundedRange(BoundedLoss):
    """A loss of density exp(l / 2) on its range. It dominates mechanisms whose loss lies in some interval of that length.

    Source: Dong, Durfee, Rogers 2020. It covers their two-point laws wherever the interval lies
    (docs/proofs/exponential.md, lemma 5).

    >>> round(float(BoundedRange(1.0).profile(np.array([0.0]))[0][0]), 12) == round(math.tanh(0.25), 12)
    True
    """

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        """See `Pair`: (1 - exp((e - E) / 2))^2 / (1 - exp(-E)), and 1 - exp(e) below -E."""
        inside = np.expm1(np.minimum(losses - self.largest, 0) / 2) ** 2 / -math.expm1(-self.largest)
        below = -np.expm1(np.minimum(losses, -self.largest))
        return np.clip(np.where(losses < -self.largest, below, inside), 0, 1), self._error(losses)

    def log_moment(self, theta: Floats) -> Floats:
        """See `Pair`."""
        whole = 2 * theta + 1
        ratio: Floats = np.expm1(-whole * self.largest) / (whole * math.expm1(-self.largest))
        return theta * self.largest + np.log(ratio)


def normal_law(at: Floats, log_at: Floats) -> tuple[Floats, Floats]:
    """Return the standard normal law at some numbers, and its logarithm at others.

    Relative errors stay below 3e-13 for numbers up to 30 in magnitude: those of the C library's erfc, some units in the last
    place, and z^2 units from rounding z / sqrt(2); scipy's functions are as good (docs/proofs/accounting.md, 3).
    """
    # A plan of Gaussian noise alone asks for one number at a time. Importing scipy's takes longer than all else in planning.
    if len(at) <= FEW and min(*at, *log_at, math.inf, math.inf) > -FAR:
        under = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in at.tolist()])
        return under, np.array([math.log(0.5 * math.erfc(-z / math.sqrt(2))) for z in log_at.tolist()])
    from scipy import special

    return special.ndtr(at), special.log_ndtr(log_at)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masses:
    """A pair on a grid: `values[i]` at loss (first + i) * interval, `infinite` at infinity."""

    first: int
    values: Floats
    infinite: float

    @property
    def last(self) -> int:
        """Return the number of the highest node."""
        return self.first + len(self.values) - 1


def nodes(first: int, last: int, interval: float) -> Floats:
    """Return the losses at the nodes from `first` to `last`."""
    return np.arange(first, last + 1) * np.float64(interval)


def connect_dots(pair: Pair, interval: float, reach: tuple[float, float]) -> Masses:
    """Return masses on a grid whose profile is at or above that of the pair and, up to rounding, equal to it at the nodes.

    The mass at node i and above is d(i - 1) + (d(i - 1) - d(i)) / (exp(h) - 1), where d is the profile at the nodes. It
    is raised by what rounding may have taken away: moving mass up never lowers a profile.

    >>> masses = connect_dots(Laplace(1.0), 0.25, (-1.0, 1.0))
    >>> len(masses.values), round(float(masses.values[-1]), 3), masses.infinite
    (9, 0.531, 0.0)
    """
    first, last = math.floor(reach[0] / interval), math.ceil(reach[1] / interval)
    # If the quotient was rounded down, mass would be left above the highest node.
    last += last * interval < reach[1]
    d, error = pair.profile(nodes(first, last, interval))
    step = math.expm1(interval)
    above = d[:-1] + (d[:-1] - d[1:]) / step + error[:-1] + (error[:-1] + error[1:]) / step
    above = np.append(1.0, np.maximum.accumulate(np.clip(above, 0, 1)[::-1])[::-1])
    infinite = float(min(d[-1] + error[-1], above[-1]))
    return Masses(first=first, values=above - np.append(above[1:], infinite), infinite=infinite)
