"""Composition of dominating pairs: delta for epsilon and epsilon for delta, never below the truth.

In: the pairs of a plan, merged. Out: numbers. Holds, with floating point counted in: an answer is at or above the true
value, at any number of pairs, in less than a second and 100 MB. Aimed at, and met up to a delta of 0.1 and a hundred
thousand pairs: epsilon is above its true value by about a part of `accuracy` (docs/proofs/accounting.md, 3 to 5). Not
covered: subsampled mechanisms, whose two directions would have to be composed apart.

How. (1) Each pair becomes masses on a grid. (2) The masses are tilted by exp(theta * loss), which moves the part of the tail
that decides delta into the middle, so that an FFT has a small relative error there whatever delta is. (3) The transforms
are multiplied, each to the power of its count. (4) What the window cuts off and what rounding may have done is added.

Why not dp_accounting, with which the tests compare it: docs/proofs/accounting.md, 7.

Sources: composition of dominating pairs, Zhu, Dong, Wang 2022, theorem 10; tilting before an FFT, Wilson and Keich 2016;
rounding of an FFT, Higham 2002, theorem 24.2.

Imports budget.losses; needs scipy, so the accountant imports it when it is asked.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from dp_pipelines.budget.losses import Bounded, Floats, Gaussian, Masses, Pair, connect_dots, nodes

MOST_NODES = 2**18
"""Nodes of a window. Where an accuracy would need more, the grid is coarser and the answer higher."""

LARGEST_EPSILON = 500.0
"""Above this an epsilon is no number to be accurate about: the closed forms answer alone."""

ROUGH, ROUGH_ROUNDS = 1e-2, 6
"""Accuracy and greatest number of the rough answers before a fine one. Two are usual; each takes a few hundred nodes."""

ROUNDING = 2.0**-53

THETAS = np.geomspace(1e-3, 1e12, 700)
"""Tilts to choose from, 5 % apart: accuracy hardly depends on the tilt, and soundness not at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Composition:
    """All that a plan does, as dominating pairs.

    Args:
        mu: of all Gaussian pairs together (their squares add up); 0 where there are none.
        bounded: how often each of the other pairs is composed.
        failure: the probability that something fails outright, from 0 to below 1: mass at infinity.

    >>> round(Composition(mu=1.0).epsilon(1e-6), 4)
    4.8866
    >>> from dp_pipelines.budget.losses import Laplace
    >>> round(Composition(bounded={Laplace(0.01): 100}).epsilon(1e-6), 4)
    0.3913
    """

    mu: float = 0.0
    bounded: Mapping[Bounded, int] = dataclasses.field(default_factory=dict)
    failure: float = 0.0

    def epsilon(self, delta: float, accuracy: float = 3e-5) -> float:
        """The smallest epsilon, from 0, for which `delta` is known to be enough; infinite where there is none."""
        left = self._left(delta)
        answer = self.least_epsilon(delta)
        if not (self.bounded and left > 0 and 0 < answer <= LARGEST_EPSILON):
            return answer
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

    def delta(self, epsilon: float, accuracy: float = 3e-5) -> float:
        """A delta, at most 1, that is known to be enough for `epsilon`, from 0."""
        largest = self.largest_delta(epsilon)
        if not (self.bounded and self.failure < largest and epsilon <= LARGEST_EPSILON):
            return largest
        theta, log_delta = self._tilt(epsilon, -math.inf)
        grid = self._grid(theta, log_delta, max(epsilon, 1 / theta), accuracy, lowest=epsilon)
        return largest if grid is None else min(largest, self._with_failure(grid.delta(epsilon)))

    def least_epsilon(self, delta: float) -> float:
        """What closed forms say: epsilons added up, or Chernoff's bound on the loss. Exact for Gaussians alone.

        >>> from dp_pipelines.budget.losses import Laplace
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
        chernoff = float(np.min((self._log_moments() - math.log(left)) / THETAS)) * (1 + 1e-12)
        return max(0.0, min(added, chernoff))

    def largest_delta(self, epsilon: float) -> float:
        """What closed forms say. Exact for Gaussians alone."""
        chernoff = float(np.min(self._log_moments() - THETAS * epsilon))
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
        """The largest loss of the bounded pairs together."""
        return math.fsum(count * pair.largest for pair, count in self.bounded.items()) * (1 + 4 * ROUNDING)

    def _counts(self) -> dict[Pair, int]:
        gaussian: dict[Pair, int] = dict.fromkeys(self._gaussian(), 1)
        return gaussian | dict(self.bounded)

    def _gaussian(self) -> list[Gaussian]:
        """One pair or none. Losses divided by a mu that is smaller still could overflow."""
        return [Gaussian(max(self.mu, 1e-100))] if self.mu else []

    def _log_moments(self) -> Floats:
        """The logarithm of the moment at each of `THETAS`, from above."""
        total = np.zeros_like(THETAS)
        for pair, count in self._counts().items():
            total += count * (pair.log_moment(THETAS) + 16 * ROUNDING)
        return total * (1 + 16 * ROUNDING)

    def _tilt(self, epsilon: float, enough: float) -> tuple[float, float]:
        """The smallest tilt that is nearly the best for an epsilon, and log of Chernoff's bound on delta there.

        The best tilt moves the mean loss to epsilon; with bounded losses it may be infinite. A smaller one knows more about
        smaller epsilons, and will do where its bound is at most exp(enough). It is at least about 1 / stddev of the loss.
        """
        log_moments = self._log_moments()
        exponents = log_moments - THETAS * epsilon
        least = float(np.min(exponents))
        good = exponents <= max(least + 0.5, enough)
        index = max(int(np.argmax(good)), int(np.sum(log_moments[:-1] <= 0.5)))
        return float(THETAS[index]), min(-1.0, least)

    def _grid(self, theta: float, log_delta: float, epsilon: float, accuracy: float, lowest: float) -> "_Grid | None":
        """Compose on a grid that knows delta down to `lowest`; None where that would be too long, or mere rounding."""
        counts = self._counts()
        interval = _interval(counts, theta, log_delta, epsilon, accuracy)
        return _compose([_Tilted.of(*item, interval, theta, log_delta) for item in counts.items()], log_delta, lowest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tilted:
    """A pair's masses, and the same times exp(theta * loss) and divided by their sum exp(log_z).

    Args:
        interval, theta: of the grid.
        count: how often the pair is composed.
        masses: not tilted.
        values: tilted.
        log_z: see above.
        mean, variance: of the loss under `values`.
    """

    interval: float
    theta: float
    count: int
    masses: Masses
    values: Floats
    log_z: float
    mean: float
    variance: float

    @classmethod
    def of(cls, pair: Pair, count: int, interval: float, theta: float, log_delta: float) -> "_Tilted":
        masses = connect_dots(pair, interval, pair.reach(theta, log_delta))
        losses = nodes(masses.first, masses.last, interval)
        values = masses.values * np.exp(theta * (losses - losses[-1]))
        total = float(np.sum(values))
        values = values / total
        mean = _dot(values, losses)
        return cls(
            interval=interval,
            theta=theta,
            count=count,
            masses=masses,
            values=values,
            log_z=math.log(total) + theta * float(losses[-1]),
            mean=mean,
            variance=_dot(values, (losses - mean) ** 2),
        )

    def log_moment(self, theta: float) -> float:
        """Log of the sum of masses * exp(theta * loss)."""
        below_last = nodes(1 - len(self.values), 0, self.interval)
        return math.log(_dot(self.masses.values, np.exp(theta * below_last))) + theta * self.masses.last * self.interval

    @property
    def widest(self) -> float:
        """The largest loss in magnitude."""
        return max(abs(self.masses.first), abs(self.masses.last)) * self.interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Grid:
    """Composed masses in a window of nodes, not tilted, and what must be added to a delta computed from them.

    Args:
        losses: the nodes, rising.
        masses: at the nodes.
        extra: mass at infinity and above the window.
        relative: relative error of masses and sums.
        log_noise: log of the error of delta(epsilon) by the FFT, plus theta * epsilon.
        theta: the tilt.
    """

    losses: Floats
    masses: Floats
    extra: float
    relative: float
    log_noise: float
    theta: float

    def delta(self, epsilon: float) -> float:
        above = self.losses > epsilon
        masses = self.masses[above]
        delta = float(np.sum(masses * -np.expm1(epsilon - self.losses[above])))
        noise = math.exp(min(0.0, self.log_noise - self.theta * epsilon))
        return min(1.0, max(0.0, delta) + self.relative * float(np.sum(np.abs(masses))) + noise + self.extra)

    def epsilon(self, delta: float) -> float:
        # Mass, and mass * exp(-loss), strictly above each node.
        above = np.append(np.cumsum(self.masses[::-1])[::-1][1:], 0.0)
        weighted = np.append(np.cumsum((self.masses * np.exp(-self.losses))[::-1])[::-1][1:], 0.0)
        noise = np.exp(np.minimum(0.0, self.log_noise - self.theta * self.losses))
        rest = noise + self.extra + self.relative * np.abs(above)
        short = np.flatnonzero(~(above - np.exp(self.losses) * weighted + rest <= delta))
        if not len(short):
            return max(0.0, float(self.losses[0]))
        node = int(short[-1])
        if node == len(self.losses) - 1:
            return math.inf
        # Up to the next node delta(e) is above - exp(e) * weighted + rest, where rest falls.
        epsilon = float(self.losses[node + 1])
        needed = float(above[node] + rest[node]) - delta
        if needed > 0 and weighted[node] > 0:
            epsilon = min(epsilon, math.log(needed / float(weighted[node])) + 4 * ROUNDING * (1 + epsilon))
        return max(0.0, float(self.losses[node]), epsilon)


def _compose(parts: list[_Tilted], log_delta: float, lowest: float) -> _Grid | None:
    """Convolve, in a window that holds all that decides delta from the epsilon `lowest` on."""
    interval, theta = parts[0].interval, parts[0].theta
    log_z = math.fsum(part.count * part.log_z for part in parts)
    mean = math.fsum(part.count * part.mean for part in parts)
    stddev = max(interval, math.sqrt(math.fsum(part.count * part.variance for part in parts)))
    last = sum(part.count * part.masses.last for part in parts)
    first = sum(part.count * part.masses.first for part in parts)

    # Upwards until Chernoff's bound makes the rest negligible, downwards to where no mass is left or none is asked for.
    negligible = log_delta - 25
    ends = []
    for further in (3.0, 6.0, 10.0):
        steeper = theta + further / stddev
        ends.append((math.fsum(part.count * part.log_moment(steeper) for part in parts) - negligible) / steeper)
    top = min(last, math.ceil(min(ends) / interval))
    bottom = max(first, math.floor(min(mean - 9 * stddev, lowest) / interval))
    if not 0 <= top - bottom < 4 * MOST_NODES:
        return None
    size = 1 << max(1, (top - bottom).bit_length())

    folded = [_folded(part.values, size) for part in parts]
    transforms = [np.fft.rfft(values, size) for values in folded]
    spectrum = np.ones(size // 2 + 1, np.complex128)
    # All powers at once, from the highest binary digit of the counts downwards.
    for digit in reversed(range(max(part.count for part in parts).bit_length())):
        spectrum *= spectrum
        for part, transform in zip(parts, transforms, strict=True):
            if part.count >> digit & 1:
                spectrum *= transform
    masses = np.roll(np.fft.irfft(spectrum, size), -((bottom - first) % size))[: top - bottom + 1]

    # Rounding, in the L2 norm: of each transform, times its count; of powers and products; of the way back.
    composed = sum(part.count for part in parts)
    of_transform = 16 * ROUNDING * math.log2(size)
    norms = [math.sqrt(_dot(values, values)) for values in folded]
    from_parts = of_transform * math.fsum(part.count * norm for part, norm in zip(parts, norms, strict=True))
    if not from_parts * math.sqrt(size) < 0.05:
        return None
    on_the_way = (of_transform + 8 * ROUNDING * (composed + len(parts))) * math.sqrt(_dot(masses, masses))
    losses = nodes(bottom, top, interval)
    infinite = -math.expm1(math.fsum(part.count * math.log1p(-part.masses.infinite) for part in parts))
    return _Grid(
        losses=losses,
        # Where the exponent is cut off, `log_noise` alone makes delta 1.
        masses=masses * np.exp(np.minimum(log_z - theta * losses, 600)),
        extra=infinite * (1 + 1e-12) + (0.0 if top == last else math.exp(negligible + 1e-6)),
        # Of masses, of tilting there and back, and of adding up to `size` of them.
        relative=1e-12 + 16 * ROUNDING * (math.fsum(p.count * (8 + theta * p.widest) for p in parts) + size),
        # The weights exp(-theta * loss) of the errors above epsilon 0 have this L2 norm.
        log_noise=math.log(2 * (from_parts + on_the_way))
        + log_z
        + 1e-9
        - math.log(-math.expm1(-2 * theta * interval)) / 2,
        theta=theta,
    )


def _interval(counts: Mapping[Pair, int], theta: float, log_delta: float, epsilon: float, accuracy: float) -> float:
    """An interval at which connecting dots raises epsilon by at most `accuracy` of it, as far as nodes allow.

    Each composed pair adds at most theta (theta + 1) h^2 / 8 to the logarithm of the moment at theta, and so (theta + 1)
    h^2 / 8 to epsilon (docs/proofs/accounting.md, 5).
    """
    reaches = {pair: pair.reach(theta, log_delta) for pair in counts}
    spans = {pair: high - low for pair, (low, high) in reaches.items()}
    spread = (theta + 1) * sum(counts.values()) / 8
    # What connecting dots adds against rounding moves each mass up by about twice its error, all nodes of a pair together by
    # 4 * span * error / h: no finer grid than where both cost the same.
    errors = [float(pair.profile(np.array([low]))[1][0]) for pair, (low, _) in reaches.items()]
    moved = 4 * math.fsum(counts[pair] * spans[pair] * error for pair, error in zip(counts, errors, strict=True))
    around = theta * np.array([0.97, 1.0, 1.03])
    bend = sum(count * pair.log_moment(around) @ np.array([1.0, -2.0, 1.0]) for pair, count in counts.items())
    window = 25 * math.sqrt(max(0.0, float(bend))) / (0.03 * theta)
    window = min(window, math.fsum(count * spans[pair] for pair, count in counts.items()))
    interval: float = max(
        math.sqrt(accuracy * epsilon / spread),
        (moved / (2 * spread)) ** (1 / 3),
        max(window, *spans.values()) / MOST_NODES,
    )
    bounded = [pair for pair in counts if isinstance(pair, Bounded)]
    if bounded:
        # Atoms that lie on nodes are not spread at all: align with the pair that is composed most often, a little wider so
        # that the highest node is not below the atom.
        often = max(bounded, key=lambda pair: (counts[pair], pair.largest)).largest
        interval = often / math.ceil(often / interval) * (1 + 8 * ROUNDING) if often > interval else interval
    return interval


def _dot(left: Floats, right: Floats) -> float:
    """The sum of products, added up in pairs, without the threads of a linear algebra library."""
    return float(np.sum(left * right))


def _folded(values: Floats, size: int) -> Floats:
    """Values added up modulo `size`, as a circular convolution of that size sees them."""
    if len(values) <= size:
        return values
    folded: Floats = np.pad(values, (0, -len(values) % size)).reshape(-1, size).sum(axis=0)
    return folded


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
