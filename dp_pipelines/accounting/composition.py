"""Composition of dominating pairs: delta for epsilon and epsilon for delta, never below the truth.

In: the merged pairs of a plan. Out: numbers. Holds: an answer is at or above the true value, rounding errors included,
for any number of pairs, in less than a second and 100 MB. The goal, met up to a delta of 0.1 and a hundred thousand
pairs: epsilon exceeds its true value by a relative error of about `accuracy` (docs/proofs/accounting.md, 3 to 5). If a
pair is not its own mirror, both directions are composed and the larger number is returned.
"""

# How it works. (1) Each pair becomes masses on a grid. (2) The masses are tilted by exp(theta * loss). This moves the
# part of the tail that decides delta into the middle, where an FFT has a small relative error whatever delta is. (3)
# The transforms are raised to the power of their counts and multiplied. (4) Whatever the window cuts off and whatever
# rounding may have changed is added. (1) is in accounting.dominating_pairs, (2) to (4) in accounting.convolution; this
# module chooses the interval and the tilt, and tries closed forms.
#
# docs/proofs/accounting.md, 7, says why we do not use dp_accounting; the tests compare with it.
#
# Sources: composition of dominating pairs, Zhu, Dong, Wang 2022, theorem 10; tilting before an FFT, Wilson and Keich 2016.

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np

from dp_pipelines.accounting.convolution import MOST_NODES, MOST_OF_SAMPLED, ROUNDING, NodeWindow, Tilted, compose
from dp_pipelines.accounting.dominating_pairs import BoundedLoss, Floats, Gaussian, Pair

LARGEST_EPSILON = 500.0
"""Above this, accuracy in epsilon is pointless: only the closed forms answer."""

ROUGH, ROUGH_ROUNDS = 1e-2, 6
"""Accuracy and largest number of the rough answers before a fine one. Two are usual; each takes a few hundred nodes."""

THETAS = np.geomspace(1e-3, 1e12, 700)
"""Tilts to choose from, 5 % apart: accuracy hardly depends on the tilt, and soundness does not depend on it."""


TINY = 2e-9
"""Below this delta an epsilon of sampled mechanisms is compared with the deltas of smaller ones."""

CLOSE = 0.9995
"""If an epsilon is above this part of another, the two count as equally good. Epsilons grow with steps up to that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Composition:
    """Everything a plan does, as dominating pairs.

    Args:
        mu: of all Gaussian pairs together (their squares add up); 0 if there are none.
        bounded: how often each pair of bounded loss is composed.
        sampled: how often each pair that is not its own mirror is composed. All of them look in one direction: from
            data with the unit to data without it, or back.
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
        """Return the same composition in the other direction."""
        return dataclasses.replace(self, sampled={pair.mirror: count for pair, count in self.sampled.items()})

    def epsilon(self, delta: float, accuracy: float = 3e-5) -> float:
        """Compute the smallest epsilon, from 0, for which `delta` is known to be enough; infinite if there is none."""
        answer = self._epsilon(delta, accuracy)
        if not self.sampled:
            return answer
        if self.mirror.least_epsilon(delta) > answer:
            answer = max(answer, self.mirror._epsilon(delta, accuracy))
        return self._lowered(answer, delta, accuracy) if 0 < delta < TINY else answer

    def _lowered(self, answer: float, delta: float, accuracy: float) -> float:
        """Search for a smaller epsilon whose own delta is known to be small enough; otherwise return `answer`.

        A grid for a tiny delta begins at the closed forms, which sampling may leave ten times too high. The delta at a given
        epsilon has its own proof, so that each epsilon that is returned is proven, however it was chosen.
        """
        low, high = 0.0, answer
        if not 0 < answer <= LARGEST_EPSILON or self.delta(CLOSE * answer, accuracy) > delta:
            return answer
        high *= CLOSE
        while high - low > (1 - CLOSE) * high:
            middle = (low + high) / 2
            if self.delta(middle, accuracy) <= delta:
                high = middle
            else:
                low = middle
        return high

    def delta(self, epsilon: float, accuracy: float = 3e-5) -> float:
        """Compute a delta, at most 1, that is known to be enough for `epsilon`."""
        answer = self._delta(epsilon, accuracy)
        return max(answer, self.mirror._delta(epsilon, accuracy)) if self.sampled else answer

    def _epsilon(self, delta: float, accuracy: float) -> float:
        left = self._left(delta)
        answer = self.least_epsilon(delta)
        if not (self._others() and left > 0 and 0 < answer <= LARGEST_EPSILON):
            return answer
        if self.sampled:
            return self._epsilon_of_sampled(answer, left, accuracy)
        # The closed forms may be far off, so rough answers come first and lead to the tilt that the final one needs.
        for _ in range(ROUGH_ROUNDS):
            rough = self._nearer(answer, left, max(accuracy, ROUGH), slack=12.0)
            if rough > answer * 0.98:
                break
            answer = rough
        return self._nearer(answer, left, accuracy, slack=4.0)

    def _nearer(self, bound: float, left: float, accuracy: float, slack: float) -> float:
        """Return the epsilon that a grid made for epsilons near `bound` finds, or `bound` itself if that is smaller.

        Compared with the best tilt, rounding reaches e^slack further up and the grid reaches further down.
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
            # If a few large losses cause jumps, the answer may lie below the window.
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
        """Compute the epsilon of closed forms in this direction: the sum of epsilons, or Chernoff's bound.

        Exact for Gaussians alone.

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
        """Compute the delta of closed forms, in this direction. Exact if all pairs are Gaussian."""
        chernoff = float(np.min(self._log_moments - THETAS * epsilon))
        delta = math.exp(min(0.0, chernoff)) * (1 + 1e-12)
        left = epsilon - self._added()
        if left >= 0:
            delta = min(delta, math.fsum(_gaussian_delta(pair, left) for pair in self._gaussian()))
        return self._with_failure(delta)

    def _left(self, delta: float) -> float:
        """Return the part of delta that is left if nothing fails: the inverse of `_with_failure`."""
        left = (delta - self.failure) / (1 - self.failure) if self.failure < 1 else -1.0
        return left * (1 - 8 * ROUNDING) if left > 0 else left

    def _with_failure(self, delta: float) -> float:
        return min(1.0, (self.failure + (1 - self.failure) * delta) * (1 + 8 * ROUNDING))

    def _added(self) -> float:
        """Return the largest total loss of all pairs but the Gaussians."""
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
        """Return the one Gaussian pair, or an empty list. Dividing losses by an even smaller mu could overflow."""
        return [Gaussian(max(self.mu, 1e-100))] if self.mu else []

    @functools.cached_property
    def _log_moments(self) -> Floats:
        """Return an upper bound on the logarithm of the moment at each of `THETAS`."""
        total = np.zeros_like(THETAS)
        for pair, count in self._counts().items():
            total += count * (pair.log_moment(THETAS) + 16 * ROUNDING)
        return total * (1 + 16 * ROUNDING)

    def _epsilon_of_sampled(self, bound: float, left: float, accuracy: float) -> float:
        """Compute `_epsilon` from a bound, with gentle tilts; rough answers also give the interval for the final one."""
        log_delta, steepness = math.log(left), 0.0
        for rounds, relative_error, slack in ((ROUGH_ROUNDS, max(accuracy, ROUGH), 17.0), (1, accuracy, 12.0)):
            for _ in range(rounds):
                theta, best = self._gentle_tilt(bound, log_delta, slack)
                grid = self._grid(theta, log_delta, bound, relative_error, 0.0, steepness or best)
                if grid is None or bound == 0:
                    break
                before, bound = bound, min(bound, grid.epsilon(left))
                steepness = grid.steepness(bound)
                if bound > before * 0.98:
                    break
        return bound

    def _delta_of_sampled(self, largest: float, epsilon: float, accuracy: float) -> float:
        """Compute `_delta` from the largest, with gentle tilts."""
        steepness = 0.0
        for relative_error in (max(accuracy, ROUGH), max(accuracy, ROUGH), accuracy):
            left = self._left(largest)
            if not left > 0:
                break
            theta, best = self._gentle_tilt(epsilon, math.log(left), 12.0)
            near = max(epsilon, 1 / (steepness or best))
            grid = self._grid(theta, math.log(left), near, relative_error, 0.0, steepness or best)
            if grid is None:
                break
            largest = min(largest, self._with_failure(grid.delta(epsilon)))
            steepness = grid.steepness(epsilon)
        return largest

    def _gentle_tilt(self, epsilon: float, log_delta: float, slack: float) -> tuple[float, float]:
        """Return a tilt at which rounding is small compared with delta, and the tilt at which Chernoff's bound is best.

        Sampling causes rare, large losses: from some tilt on only they would be left, and nothing of the usual ones. So
        the tilt is the smallest at which Chernoff's bound on delta is at most e^slack times too large, but at least
        1 / epsilon or, if that is less, half of the tilt at which losses begin to matter.
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
        """Return the smallest tilt that is nearly the best for an epsilon, and the log of Chernoff's bound on delta there.

        The best tilt moves the mean loss to epsilon; with bounded losses it may be infinite. A smaller tilt knows more
        about smaller epsilons, and is enough if its bound is at most exp(enough). It is at least about 1 / stddev of
        the loss.
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
        """Compose on a grid that knows delta down to `lowest`; None if that is too long or would be mere rounding."""
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
    """Return an interval at which connecting dots raises epsilon by a share of at most `accuracy`, as far as nodes allow.

    Each composed pair adds at most theta (theta + 1) h^2 / 8 to the logarithm of the moment at theta, and therefore
    (theta + 1) h^2 / 8 to epsilon (docs/proofs/accounting.md, 5). If the tilt differs from the steepness of delta, the
    steepness counts.
    """
    reaches = {pair: pair.reach(theta, log_delta) for pair in counts}
    spans = {pair: high - low for pair, (low, high) in reaches.items()}
    spread = ((theta if steepness is None else steepness) + 1) * sum(counts.values()) / 8
    # To make up for rounding, connecting dots moves each mass up by about twice its error, and all nodes of a pair
    # together by 4 * span * error / h. The grid is never finer than where both cost the same.
    errors = [float(pair.profile(np.array([low]))[1][0]) for pair, (low, _) in reaches.items()]
    moved = 4 * math.fsum(counts[pair] * spans[pair] * error for pair, error in zip(counts, errors, strict=True))
    around = theta * np.array([0.97, 1.0, 1.03])
    bend = sum(count * np.diff(pair.log_moment_within(around, log_delta), 2)[0] for pair, count in counts.items())
    window = 25 * math.sqrt(max(0.0, float(bend))) / (0.03 * theta)
    window = min(window, math.fsum(count * spans[pair] for pair, count in counts.items()))
    interval: float = max(
        math.sqrt(accuracy * epsilon / spread),
        (moved / (2 * spread)) ** (1 / 3),
        max(window, *spans.values()) / (MOST_NODES if steepness is None else MOST_OF_SAMPLED),
    )
    bounded = [pair for pair in counts if isinstance(pair, BoundedLoss)]
    if bounded:
        # Atoms on nodes are not spread at all, so align with the pair that is composed most often. Make the interval a
        # little wider, to keep the highest node from falling below the atom.
        often = max(bounded, key=lambda pair: (counts[pair], pair.largest)).largest
        interval = often / math.ceil(often / interval) * (1 + 8 * ROUNDING) if often > interval else interval
    return interval


def _gaussian_delta(pair: Gaussian, epsilon: float) -> float:
    """Return an upper bound on the profile."""
    profile, error = pair.profile(np.array([epsilon]))
    return float(profile[0] + error[0])


def _gaussian_epsilon(pair: Gaussian, delta: float) -> float:
    """Return the smallest epsilon, from 0, at which the profile is known to be at most delta; infinite for a delta of 0."""
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
