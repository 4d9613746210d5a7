"""Composition of dominating pairs: delta for epsilon and epsilon for delta, never below the truth.

In: the pairs of a plan, merged. Out: numbers. Holds, with floating point counted in: an answer is at or above the true
value, at any number of pairs, in less than a second and 100 MB. Aimed at, and met up to a delta of 0.1 and a hundred
thousand pairs: epsilon is above its true value by about a part of `accuracy` (docs/proofs/accounting.md, 3 to 5). Where a pair
is not its own mirror, both directions are composed and the larger number is given.
"""

# How. (1) Each pair becomes masses on a grid. (2) The masses are tilted by exp(theta * loss), which moves the part of the tail
# that decides delta into the middle, so that an FFT has a small relative error there whatever delta is. (3) The transforms are
# multiplied, each to the power of its count. (4) What the window cuts off and what rounding may have done is added. (1) is in
# accounting.dominating_pairs, (2) to (4) in accounting.convolution; here the interval and the tilt are chosen, and closed forms
# tried.
#
# Why not dp_accounting, with which the tests compare it: docs/proofs/accounting.md, 7.
#
# Sources: composition of dominating pairs, Zhu, Dong, Wang 2022, theorem 10; tilting before an FFT, Wilson and Keich 2016.
#
# Needs scipy, so the accountant imports it when it is asked.

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np

from dp_pipelines.accounting.convolution import MOST_NODES, MOST_OF_SAMPLED, ROUNDING, NodeWindow, Tilted, compose
from dp_pipelines.accounting.dominating_pairs import BoundedLoss, Floats, Gaussian, Pair

LARGEST_EPSILON = 500.0
"""Above this an epsilon is no number to be accurate about: the closed forms answer alone."""

ROUGH, ROUGH_ROUNDS = 1e-2, 6
"""Accuracy and greatest number of the rough answers before a fine one. Two are usual; each takes a few hundred nodes."""

THETAS = np.geomspace(1e-3, 1e12, 700)
"""Tilts to choose from, 5 % apart: accuracy hardly depends on the tilt, and soundness not at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Composition:
    """All that a plan does, as dominating pairs.

    Args:
        mu: of all Gaussian pairs together (their squares add up); 0 where there are none.
        bounded: how often each of the pairs of bounded loss is composed.
        sampled: how often each of the pairs is composed that are not their own mirrors. All of them look in one direction: from
            data with the unit to data without, or back.
        failure: the probability that something fails outright, from 0 to below 1: mass at infinity.

    >>> round(Composition(mu=1.0).epsilon(1e-6), 4)
    4.8866
    >>> from dp_pipelines.accounting.dominating_pairs import Laplace
    >>> round(Composition(bounded={Laplace(0.01): 100}).epsilon(1e-6), 4)
    0.3913
    """

    mu: float = 0.0
    bounded: Mapping[BoundedLoss, int] = dataclasses.field(default_factory=dict)
    sampled: Mapping[Pair, int] = dataclasses.field(default_factory=dict)
    failure: float = 0.0

    @functools.cached_property
    def mirror(self) -> "Composition":
        """The same in the other direction."""
        return dataclasses.replace(self, sampled={pair.mirror: count for pair, count in self.sampled.items()})

    def epsilon(self, delta: float, accuracy: float = 3e-5) -> float:
        """The smallest epsilon, from 0, for which `delta` is known to be enough; infinite where there is none."""
        answer = self._epsilon(delta, accuracy)
        if not self.sampled or self.mirror.least_epsilon(delta) <= answer:
            return answer
        return max(answer, self.mirror._epsilon(delta, accuracy))

    def delta(self, epsilon: float, accuracy: float = 3e-5) -> float:
        """A delta, at most 1, that is known to be enough for `epsilon`, from 0."""
        answer = self._delta(epsilon, accuracy)
        return max(answer, self.mirror._delta(epsilon, accuracy)) if self.sampled else answer

    def _epsilon(self, delta: float, accuracy: float) -> float:
        left = self._left(delta)
        answer = self.least_epsilon(delta)
        if not (self._others() and left > 0 and 0 < answer <= LARGEST_EPSILON):
            return answer
        if self.sampled:
            return self._epsilon_of_sampled(answer, left, accuracy)
        # The closed forms may be far off: rough answers lead to the tilt that the last one needs.
        for _ in range(ROUGH_ROUNDS):
            rough = self._nearer(answer, left, max(accuracy, ROUGH), slack=12.0)
            if rough > answer * 0.98:
                break
            answer = rough
        return self._nearer(answer, left, accuracy, slack=4.0)

    def _nearer(self, bound: float, left: float, accuracy: float, slack: float) -> float:
        """The answer of a grid that is made for epsilons near a bound, or the bound itself.

        Rounding reaches e^slack further up than for the best tilt, and the grid further down.
        """
        if bound == 0:
            return bound
        log_delta = math.log(left)
        theta, _ = self._tilt(bound, log_delta + slack)
        for lowest in (math.inf, 0.0):
            grid = self._grid(theta, log_delta, bound, accuracy, lowest)
            if grid is None:
                return bound
            answer = min(bound, grid.epsilon(left))
            # Where few large losses make jumps the answer may lie below the window.
            if answer > max(0.0, grid.losses[0]):
                break
        return answer

    def _delta(self, epsilon: float, accuracy: float) -> float:
        largest = self.largest_delta(epsilon)
        if not (self._others() and self.failure < largest and epsilon <= LARGEST_EPSILON):
            return largest
        if self.sampled:
            return self._delta_of_sampled(largest, epsilon, accuracy)
        theta, log_delta = self._tilt(epsilon, -math.inf)
        grid = self._grid(theta, log_delta, max(epsilon, 1 / theta), accuracy, lowest=epsilon)
        return largest if grid is None else min(largest, self._with_failure(grid.delta(epsilon)))

    def least_epsilon(self, delta: float) -> float:
        """What closed forms say, in this direction: epsilons added up, or Chernoff's bound. Exact for Gaussians alone.

        >>> from dp_pipelines.accounting.dominating_pairs import Laplace
        >>> round(Composition(bounded={Laplace(0.5): 3}).least_epsilon(0.0), 12)
        1.5
        """
        left = self._left(delta)
        if not left >= 0:
            return math.inf
        added = self._added()
        for pair in self._gaussian():
            added += _gaussian_epsilon(pair, left)
        if not left > 0:
            return added
        # P(L > e) <= exp(log_moment(theta) - theta e).
        chernoff = float(np.min((self._log_moments - math.log(left)) / THETAS)) * (1 + 1e-12)
        return max(0.0, min(added, chernoff))

    def largest_delta(self, epsilon: float) -> float:
        """What closed forms say, in this direction. Exact for Gaussians alone."""
        chernoff = float(np.min(self._log_moments - THETAS * epsilon))
        delta = math.exp(min(0.0, chernoff)) * (1 + 1e-12)
        left = epsilon - self._added()
        if left >= 0:
            delta = min(delta, math.fsum(_gaussian_delta(pair, left) for pair in self._gaussian()))
        return self._with_failure(delta)

    def _left(self, delta: float) -> float:
        """What may be used up where nothing fails: the inverse of `_with_failure`."""
        left = (delta - self.failure) / (1 - self.failure) if self.failure < 1 else -1.0
        return left * (1 - 8 * ROUNDING) if left > 0 else left

    def _with_failure(self, delta: float) -> float:
        return min(1.0, (self.failure + (1 - self.failure) * delta) * (1 + 8 * ROUNDING))

    def _added(self) -> float:
        """The largest loss of all but the Gaussians together."""
        return math.fsum(count * pair.ceiling for pair, count in self._others().items()) * (1 + 4 * ROUNDING)

    def _counts(self) -> dict[Pair, int]:
        gaussian: dict[Pair, int] = dict.fromkeys(self._gaussian(), 1)
        return gaussian | self._others()

    def _others(self) -> dict[Pair, int]:
        others: dict[Pair, int] = {}
        others.update(self.bounded.items())
        others.update(self.sampled.items())
        return others

    def _gaussian(self) -> list[Gaussian]:
        """One pair or none. Losses divided by a mu that is smaller still could overflow."""
        return [Gaussian(max(self.mu, 1e-100))] if self.mu else []

    @functools.cached_property
    def _log_moments(self) -> Floats:
        """The logarithm of the moment at each of `THETAS`, from above."""
        total = np.zeros_like(THETAS)
        for pair, count in self._counts().items():
            total += count * (pair.log_moment(THETAS) + 16 * ROUNDING)
        return total * (1 + 16 * ROUNDING)

    def _epsilon_of_sampled(self, bound: float, left: float, accuracy: float) -> float:
        """As `_epsilon`, from a bound, with gentle tilts; rough answers also lead to the interval that the last one needs."""
        log_delta, steepness = math.log(left), 0.0
        for rounds, wanted, slack in ((ROUGH_ROUNDS, max(accuracy, ROUGH), 17.0), (1, accuracy, 12.0)):
            for _ in range(rounds):
                theta, best = self._gentle_tilt(bound, log_delta, slack)
                grid = self._grid(theta, log_delta, bound, wanted, 0.0, steepness or best)
                if grid is None or bound == 0:
                    break
                before, bound = bound, min(bound, grid.epsilon(left))
                steepness = grid.steepness(bound)
                if bound > before * 0.98:
                    break
        return bound

    def _delta_of_sampled(self, largest: float, epsilon: float, accuracy: float) -> float:
        """As `_delta`, from the largest, with gentle tilts."""
        steepness = 0.0
        for wanted in (max(accuracy, ROUGH), max(accuracy, ROUGH), accuracy):
            left = self._left(largest)
            if not left > 0:
                break
            theta, best = self._gentle_tilt(epsilon, math.log(left), 12.0)
            near = max(epsilon, 1 / (steepness or best))
            grid = self._grid(theta, math.log(left), near, wanted, 0.0, steepness or best)
            if grid is None:
                break
            largest = min(largest, self._with_failure(grid.delta(epsilon)))
            steepness = grid.steepness(epsilon)
        return largest

    def _gentle_tilt(self, epsilon: float, log_delta: float, slack: float) -> tuple[float, float]:
        """A tilt at which rounding is small beside delta, and the one at which Chernoff's bound is the best.

        Sampling makes rare losses that are large: from some tilt on they alone would be left, and nothing of what is usual.
        So the tilt is the smallest at which Chernoff's bound on delta is at most e^slack times too large, if that is enough
        to have about 1 / epsilon; else at most half of the tilt at which losses begin to matter.
        """
        log_moments = np.zeros_like(THETAS)
        for pair, count in self._counts().items():
            log_moments += count * pair.log_moment_within(THETAS, log_delta)
        exponents = log_moments - THETAS * epsilon
        # Rounding grows with the number of pairs.
        slack -= math.log(sum(self._counts().values()))
        best = int(np.argmin(exponents))
        needed = int(np.argmax(exponents <= max(float(exponents[best]) + 0.5, log_delta + slack)))
        usual = 0.5 * float(THETAS[int(np.sum(log_moments[:-1] <= 0.5))])
        steepest = float(THETAS[best])
        if epsilon == 0:
            return max(float(THETAS[needed]), usual), steepest
        return max(float(THETAS[needed]), min(1 / epsilon, usual)), min(steepest, 1000 / epsilon)

    def _tilt(self, epsilon: float, enough: float) -> tuple[float, float]:
        """The smallest tilt that is nearly the best for an epsilon, and log of Chernoff's bound on delta there.

        The best tilt moves the mean loss to epsilon; with bounded losses it may be infinite. A smaller one knows more about
        smaller epsilons, and will do where its bound is at most exp(enough). It is at least about 1 / stddev of the loss.
        """
        log_moments = self._log_moments
        exponents = log_moments - THETAS * epsilon
        least = float(np.min(exponents))
        good = exponents <= max(least + 0.5, enough)
        index = max(int(np.argmax(good)), int(np.sum(log_moments[:-1] <= 0.5)))
        return float(THETAS[index]), min(-1.0, least)

    def _grid(
        self,
        theta: float,
        log_delta: float,
        epsilon: float,
        accuracy: float,
        lowest: float,
        steepness: float | None = None,
    ) -> "NodeWindow | None":
        """Compose on a grid that knows delta down to `lowest`; None where that would be too long, or mere rounding."""
        counts = self._counts()
        interval = _interval(counts, theta, log_delta, epsilon, accuracy, steepness)
        parts = [Tilted.of(*item, interval, theta, log_delta) for item in counts.items()]
        return compose(parts, log_delta, lowest, sampled=bool(self.sampled))


def _interval(
    counts: Mapping[Pair, int],
    theta: float,
    log_delta: float,
    epsilon: float,
    accuracy: float,
    steepness: float | None = None,
) -> float:
    """An interval at which connecting dots raises epsilon by at most `accuracy` of it, as far as nodes allow.

    Each composed pair adds at most theta (theta + 1) h^2 / 8 to the logarithm of the moment at theta, and so (theta + 1)
    h^2 / 8 to epsilon (docs/proofs/accounting.md, 5). Where the tilt is not the steepness of delta, that counts.
    """
    reaches = {pair: pair.reach(theta, log_delta) for pair in counts}
    spans = {pair: high - low for pair, (low, high) in reaches.items()}
    spread = ((theta if steepness is None else steepness) + 1) * sum(counts.values()) / 8
    # What connecting dots adds against rounding moves each mass up by about twice its error, all nodes of a pair together by
    # 4 * span * error / h: no finer grid than where both cost the same.
    errors = [float(pair.profile(np.array([low]))[1][0]) for pair, (low, _) in reaches.items()]
    moved = 4 * math.fsum(counts[pair] * spans[pair] * error for pair, error in zip(counts, errors, strict=True))
    around = theta * np.array([0.97, 1.0, 1.03])
    bend = sum(
        count * pair.log_moment_within(around, log_delta) @ np.array([1.0, -2.0, 1.0]) for pair, count in counts.items()
    )
    window = 25 * math.sqrt(max(0.0, float(bend))) / (0.03 * theta)
    window = min(window, math.fsum(count * spans[pair] for pair, count in counts.items()))
    interval: float = max(
        math.sqrt(accuracy * epsilon / spread),
        (moved / (2 * spread)) ** (1 / 3),
        max(window, *spans.values()) / (MOST_NODES if steepness is None else MOST_OF_SAMPLED),
    )
    bounded = [pair for pair in counts if isinstance(pair, BoundedLoss)]
    if bounded:
        # Atoms that lie on nodes are not spread at all: align with the pair that is composed most often, a little wider so
        # that the highest node is not below the atom.
        often = max(bounded, key=lambda pair: (counts[pair], pair.largest)).largest
        interval = often / math.ceil(often / interval) * (1 + 8 * ROUNDING) if often > interval else interval
    return interval


def _gaussian_delta(pair: Gaussian, epsilon: float) -> float:
    """The profile, from above."""
    profile, error = pair.profile(np.array([epsilon]))
    return float(profile[0] + error[0])


def _gaussian_epsilon(pair: Gaussian, delta: float) -> float:
    """The smallest epsilon, from 0, at which the profile is known to be at most delta; infinite for a delta of 0."""
    if not delta > 0:
        return math.inf
    if _gaussian_delta(pair, 0.0) <= delta:
        return 0.0
    low, high = 0.0, pair.mu * (pair.mu / 2 + math.sqrt(-2 * math.log(delta)) + 1)
    for _ in range(100):
        middle = (low + high) / 2
        if high - low < 1e-13 * high or not low < middle < high:
            break
        if _gaussian_delta(pair, middle) <= delta:
            high = middle
        else:
            low = middle
    return high
