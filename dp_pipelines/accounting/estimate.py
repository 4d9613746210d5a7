"""Rough estimates of epsilon in microseconds: for comparing plans, never for accounting.

In: what one run does, as a few numbers, and the number of runs. Out: roughly the epsilon that `accounting.accountant`
finds. Holds: nothing is guaranteed; only the accountant decides what is spent. Not covered: groups
(`comparison.rough_epsilon`).
"""

import dataclasses
import math
from collections.abc import Iterable

ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
"""Orders of Renyi divergences."""


WIDTH = 1e-4
"""Relative width at which the search for an epsilon ends; its answer is above by at most that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """Everything that a rough estimate needs to know about some mechanisms, as a few numbers.

    Args:
        squares: the sum of the squared shifts of Gaussian noise, in scales.
        sampled: Gaussian sums over samples: how many, the sampling rate, the square of the shift.
        losses: mechanisms of bounded loss: how many, and how large the loss is.
        log_not_failed: the logarithm of the probability that nothing fails outright.
    """

    squares: float = 0.0
    losses: tuple[tuple[float, float], ...] = ()
    sampled: tuple[tuple[float, float, float], ...] = ()
    log_not_failed: float = 0.0

    def at(self, level: float) -> "Terms":
        """Return the same terms with `level` times the noise."""
        return Terms(
            squares=self.squares / level**2,
            losses=tuple((number, loss / level) for number, loss in self.losses),
            sampled=tuple((times, rate, square / level**2) for times, rate, square in self.sampled),
            log_not_failed=self.log_not_failed,
        )


def laplace_loss(l0: int, linf: int, l1: int, scale: float) -> tuple[float, float]:
    """Estimate how many losses Laplace noise has, and how large they are.

    Args:
        l0: how many integers can change.
        linf: the largest change of one integer, in steps.
        l1: the sum of all changes, in steps.
        scale: of the noise, in steps.
    """
    return (l0, linf / scale) if l1 >= l0 * linf else (1, l1 / scale)


def rough(parts: Iterable[Terms], delta: float, *, runs: int = 1) -> float:
    """Estimate the epsilon of all runs at a delta.

    Each mechanism counts as a Gaussian whose privacy loss has about the same variance (Dong, Roth, Su 2022, section 3).
    If adding up all epsilons gives less, that is the answer.

    Args:
        parts: the terms of the mechanisms of one run.
        delta: of all runs together.
        runs: how many.

    >>> rough([Terms(losses=((1, 0.5),))], 1e-6)
    0.5
    """
    log_not_failed = squares = added = 0.0
    samples: list[tuple[float, float, float]] = []
    for part in parts:
        samples += part.sampled
        log_not_failed += runs * part.log_not_failed
        squares += runs * part.squares
        if part.squares or part.sampled:
            added = math.inf
        for number, loss in part.losses:
            squares += runs * number * min(loss, loss * loss)
            added += runs * number * loss
    rest = delta + math.expm1(log_not_failed)
    if rest > 0:
        squares += runs * _of_samples(samples, squares, rest, runs)
    return epsilon_of_sums(squares, added, rest)


def epsilon_of_sums(squares: float, added: float, rest: float, *, against: float | None = None) -> float:
    """Estimate the epsilon at a delta from the sums over all mechanisms.

    Args:
        squares: the squared shifts of the Gaussians that mechanisms count as, in scales.
        added: the sum of all epsilons; infinite if a mechanism has none.
        rest: what failures leave of delta.
        against: a number above 0 that the answer is compared with and not used for anything else. The search ends as soon as the
            answer is known to be at most this number, or above it; what is returned is on the same side.

    >>> round(epsilon_of_sums(1.0, math.inf, 1e-6), 2)
    4.89
    """
    if rest < 0:
        return math.inf
    mu = math.sqrt(squares)
    if mu == 0 or rest == 0 or (against is not None and added <= against):
        return added
    low, high = 0.0, mu * mu + mu * math.sqrt(2 * math.log(1 / rest))
    while high - low > WIDTH * high:
        if against is not None and not low < against < high:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > rest else (low, middle)
    return min(added, high)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Compute the delta of a Gaussian with this shift at an epsilon (Balle and Wang 2018, theorem 8); above it beyond 700.

    Args:
        mu: the shift, in scales; above 0.
        epsilon: from 0.

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    under_p = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
    under_q = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    return under_p - math.exp(min(epsilon, 700)) * under_q


def _of_samples(samples: list[tuple[float, float, float]], other: float, delta: float, runs: int) -> float:
    """Estimate the squares of Gaussians with about the same Renyi divergence as sums over samples.

    Taken at the largest order of interest at delta: at larger orders samples seem worse than they are.
    """
    total = 0.0
    for order in ORDERS if samples else ():
        moments = sum(times * _log_moment(rate, square, order) for times, rate, square in samples)
        squares = 2 * moments / (order * (order - 1))
        if total and order**2 * (other + runs * squares) > 2 * math.log(1 / delta):
            break
        total = squares
    return total


def _log_moment(rate: float, square: float, order: int) -> float:
    """Compute the log moment of a sum over a sample (Mironov, Talwar, Zhang 2019, section 3.3), for whole orders."""
    terms = [
        math.log(math.comb(order, k)) + (order - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1) / 2 * square
        for k in range(2, order + 1)
    ]
    most = max(terms)
    # The terms for 0 and 1 make up the rest to 1, except for this.
    usual = (1 - rate) ** (order - 1) * (1 + (order - 1) * rate)
    if most < 0:
        return math.log1p(usual - 1 + math.fsum(math.exp(term) for term in terms))
    return most + math.log(usual * math.exp(-most) + math.fsum(math.exp(term - most) for term in terms))
