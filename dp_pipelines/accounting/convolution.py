"""The convolution of masses on one grid: tilt, transform, and add back everything this may have lost.

In: pairs, how often each is composed, an interval, a tilt. Out: a `NodeWindow` of composed masses that answers for
epsilon and delta. Holds: answers are at or above those of the composed masses, rounding included
(docs/proofs/accounting.md, 4). Not covered: the choice of interval and tilt (accounting.composition).

Source: rounding of an FFT, Higham 2002, theorem 24.2.
"""

import dataclasses
import math

import numpy as np

from dp_pipelines.accounting.dominating_pairs import Floats, Masses, Pair, connect_dots, nodes

MOST_NODES = 2**18
"""Nodes of a window. If an accuracy would need more, the grid is coarser and the answer higher."""

MOST_OF_SAMPLED = 2**20
"""The same for sums over samples, of which there may be a hundred thousand."""

FURTHER, GENTLY = (3.0, 6.0, 10.0), (0.03, 0.1, 0.3, 1.0)
"""Tilts, in standard deviations: one of them decides where a window may end. If losses are rare and large, some tilts are
much too large, so there are more to choose from."""

ROUNDING = 2.0**-53


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tilted:
    """A pair's masses, and the same multiplied by exp(theta * loss) and divided by their sum exp(log_z).

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
    def of(cls, pair: Pair, count: int, interval: float, theta: float, log_delta: float) -> "Tilted":
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
        """Return the log of the sum of masses * exp(theta * loss)."""
        below_last = nodes(1 - len(self.values), 0, self.interval)
        return math.log(_dot(self.masses.values, np.exp(theta * below_last))) + theta * self.masses.last * self.interval

    @property
    def widest(self) -> float:
        """Return the largest loss in magnitude."""
        return max(abs(self.masses.first), abs(self.masses.last)) * self.interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeWindow:
    """Composed masses in a window of nodes, not tilted, and what must be added to a delta computed from them.

    Args:
        losses: the nodes, in ascending order.
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

    def steepness(self, epsilon: float) -> float:
        """Estimate how fast the slope of delta falls with epsilon: blurring the losses has an effect proportional to it."""
        above = self.losses > epsilon
        slope = float(np.sum(self.masses[above] * np.exp(epsilon - self.losses[above])))
        near = np.abs(self.losses - epsilon) <= max(2 * (self.losses[1] - self.losses[0]), 0.02 * epsilon)
        width = float(np.ptp(self.losses[near])) if near.any() else 0.0
        density = float(np.sum(self.masses[near])) / width if width else 0.0
        return max(0.0, density / slope) if slope > 0 else 0.0

    def epsilon(self, delta: float) -> float:
        # Mass, and mass * exp(-loss), strictly above each node. Cutting off exponents is safe: it makes losses seem
        # larger.
        above = np.append(np.cumsum(self.masses[::-1])[::-1][1:], 0.0)
        small = np.exp(-np.maximum(self.losses, -700.0))
        weighted = np.append(np.cumsum((self.masses * small)[::-1])[::-1][1:], 0.0)
        noise = np.exp(np.minimum(0.0, self.log_noise - self.theta * self.losses))
        rest = noise + self.extra + self.relative * np.abs(above)
        short = np.flatnonzero(~(above - np.exp(np.minimum(self.losses, 700.0)) * weighted + rest <= delta))
        if not len(short):
            return max(0.0, float(self.losses[0]))
        node = int(short[-1])
        if node == len(self.losses) - 1:
            return math.inf
        # Up to the next node delta(e) is `above - exp(e) * weighted + rest`, and rest falls.
        epsilon = float(self.losses[node + 1])
        needed = float(above[node] + rest[node]) - delta
        if needed > 0 and weighted[node] > 0:
            epsilon = min(epsilon, math.log(needed / float(weighted[node])) + 4 * ROUNDING * (1 + epsilon))
        return max(0.0, float(self.losses[node]), epsilon)


def compose(parts: list[Tilted], log_delta: float, lowest: float, *, sampled: bool = False) -> NodeWindow | None:
    """Convolve in a window that holds all that decides delta from epsilon `lowest` upwards; None if it is too long."""
    interval, theta = parts[0].interval, parts[0].theta
    log_z = math.fsum(part.count * part.log_z for part in parts)
    mean = math.fsum(part.count * part.mean for part in parts)
    stddev = max(interval, math.sqrt(math.fsum(part.count * part.variance for part in parts)))
    last = sum(part.count * part.masses.last for part in parts)
    first = sum(part.count * part.masses.first for part in parts)

    # Go up until Chernoff's bound makes the rest negligible, and down until no mass is left or none is asked for.
    negligible = log_delta - 25
    ends = []
    for further in (*GENTLY, *FURTHER) if sampled else FURTHER:
        steeper = theta + further / stddev
        ends.append((math.fsum(part.count * part.log_moment(steeper) for part in parts) - negligible) / steeper)
    top = min(last, math.ceil(min(ends) / interval))
    bottom = max(first, math.floor(min(mean - 9 * stddev, lowest) / interval))
    if not 0 <= top - bottom < 4 * (MOST_OF_SAMPLED if sampled else MOST_NODES):
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

    # Rounding, in the L2 norm: of each transform, times its count; of powers and products; of the inverse transform.
    composed = sum(part.count for part in parts)
    of_transform = 16 * ROUNDING * math.log2(size)
    norms = [math.sqrt(_dot(values, values)) for values in folded]
    from_parts = of_transform * math.fsum(part.count * norm for part, norm in zip(parts, norms, strict=True))
    if not from_parts * math.sqrt(size) < 0.05:
        return None
    on_the_way = (of_transform + 8 * ROUNDING * (composed + len(parts))) * math.sqrt(_dot(masses, masses))
    losses = nodes(bottom, top, interval)
    infinite = -math.expm1(math.fsum(part.count * math.log1p(-part.masses.infinite) for part in parts))
    return NodeWindow(
        losses=losses,
        # If the exponent is cut off, `log_noise` alone makes delta 1.
        masses=masses * np.exp(np.minimum(log_z - theta * losses, 600)),
        extra=infinite * (1 + 1e-12) + (0.0 if top == last else math.exp(negligible + 1e-6)),
        # The error of the masses, of tilting them and undoing it, and of adding up to `size` of them.
        relative=1e-12 + 16 * ROUNDING * (math.fsum(p.count * (8 + theta * p.widest) for p in parts) + size),
        # The weights exp(-theta * loss) of the errors above epsilon 0 have this L2 norm.
        log_noise=math.log(2 * (from_parts + on_the_way))
        + log_z
        + 1e-9
        - math.log(-math.expm1(-2 * theta * interval)) / 2,
        theta=theta,
    )


def _dot(left: Floats, right: Floats) -> float:
    """Return the sum of products by pairwise summation, without the threads of a linear algebra library."""
    return float(np.sum(left * right))


def _folded(values: Floats, size: int) -> Floats:
    """Add up values modulo `size`, as a circular convolution of that size does."""
    if len(values) <= size:
        return values
    folded: Floats = np.pad(values, (0, -len(values) % size)).reshape(-1, size).sum(axis=0)
    return folded
