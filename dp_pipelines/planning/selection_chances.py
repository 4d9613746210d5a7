"""The chance that a partition is selected, and how selection biases its released numbers.

In: a planned stage; for each partition the mean and variance of the number that selection uses (kept units, or their
weights). Out: probabilities; how being kept shifts and narrows other numbers about the same units; the error of
a published number of units that itself had to reach a threshold. Holds: the laws of the noise and the coin, and the
threshold, are those of a release; the kept number is assumed to be normal, and everything is integrated over that law.
Not covered: privacy; that a partition without a kept unit is never released, whatever the noise.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.metrics.base import UNITS
from dp_pipelines.noise.laws import FlooredLaplace
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.selection import truncated_geometric

Floats = NDArray[np.float64]

POINTS, WEIGHTS = (np.asarray(found) for found in np.polynomial.hermite_e.hermegauss(15))
MASS = WEIGHTS / math.sqrt(2 * math.pi)
"""Points and weights that integrate over a standard normal law."""

SMALLEST = 1e-300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selects:
    """The parameters of a selection of partitions.

    Args:
        by_weight: True if the weights of units decide, 1 over the square root of how many partitions each keeps; otherwise
            their number does.
        law: `gaussian`, `laplace` or `coin`.
        stddev: of the noise, in units of what decides.
        threshold: kept at or above, in units of what decides.
        epsilon, delta: of the coin.
        min_users: see `PrivatePartitions`.
        released: whether the compared number itself is published as the number of units.
    """

    by_weight: bool = False
    law: str = "coin"
    stddev: float = 0.0
    threshold: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    min_users: int = 0
    released: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selected:
    """The effects of a selection on each partition.

    Args:
        keep: the probability that it is kept.
        shift: how far another mean moves in kept partitions, per unit of its covariance with the compared number.
        narrowing: how much its variance changes, per unit of the square of that covariance.
        mean, square: the expectation of the compared number with its noise, and of its square, if the partition is
            kept.
    """

    keep: Floats
    shift: Floats
    narrowing: Floats
    mean: Floats
    square: Floats


def selects_of(planned: StagePlan) -> Selects | None:
    """Return how a stage selects its partitions; None where they are public."""
    selection = planned.selection
    if selection is None:
        return None
    if selection.noise is None:
        return Selects(epsilon=selection.epsilon, delta=selection.delta, min_users=selection.min_users)
    noise = selection.noise
    laplace = isinstance(noise.law, FlooredLaplace)
    return Selects(
        by_weight=selection.strategy == "weighted_gaussian",
        law="laplace" if laplace else "gaussian",
        stddev=noise.stddev,
        # A rounded number reaches T if it is at least T - 1/2; a floored one if it is at least T.
        threshold=(selection.threshold - (0.0 if laplace else 0.5)) * noise.unit,
        min_users=selection.min_users,
        released=selection.released and any(s == UNITS for s in planned.statistics),
    )


def public(size: int) -> Selected:
    """Return the effects of public partitions: all are kept, and nothing else changes."""
    none = np.zeros(size)
    return Selected(keep=np.ones(size), shift=none, narrowing=none, mean=none, square=none)


def selected(selects: Selects, mean: Floats, variance: Floats) -> Selected:
    """Compute the effects of a selection.

    Args:
        selects: its parameters.
        mean, variance: of the number (or weight) of kept units in each partition, over the choice of what is kept.

    >>> law = Selects(law="gaussian", stddev=10.0, threshold=100.0)
    >>> found = selected(law, np.array([100.0, 200.0]), np.array([0.0, 0.0]))
    >>> found.keep.round(3).tolist(), found.mean.round(2).tolist()
    ([0.5, 1.0], [107.98, 200.0])
    """
    if selects.law == "gaussian":
        return _gaussian(selects, mean, variance)
    return _by_points(selects, mean, variance)


def _gaussian(selects: Selects, mean: Floats, variance: Floats) -> Selected:
    """Compute the effects of a normal law that reaches a threshold, by closed forms."""
    from scipy import special

    stddev = np.sqrt(variance + selects.stddev**2)
    a = (selects.threshold - mean) / stddev
    # phi(a) / Q(a) without a quotient of two vanishing numbers.
    hazard = math.sqrt(2 / math.pi) / special.erfcx(a / math.sqrt(2))
    curve = hazard * (hazard - a)
    mean_kept = mean + stddev * hazard
    return Selected(
        keep=special.ndtr(-a),
        shift=hazard / stddev,
        narrowing=-curve / stddev**2,
        mean=mean_kept,
        square=mean_kept**2 + stddev**2 * np.maximum(1 - curve, 0),
    )


def _by_points(selects: Selects, mean: Floats, variance: Floats) -> Selected:
    """Compute the effects of other laws: integrate over the compared number, point by point."""
    stddev = np.sqrt(np.maximum(variance, 0))
    keep, first, second, compared, square = (np.zeros(len(mean)) for _ in range(5))
    for point, mass in zip(POINTS, MASS, strict=True):
        units = np.maximum(mean + point * stddev, 0)
        chance, noise, noise_square = _coin(selects, units) if selects.law == "coin" else _laplace(selects, units)
        keep += mass * chance
        first += mass * chance * point
        second += mass * chance * point**2
        compared += mass * (units * chance + noise)
        square += mass * (units**2 * chance + 2 * units * noise + noise_square)
    whole = np.maximum(keep, SMALLEST)
    first, second = first / whole, second / whole
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.where(stddev > 0, first / stddev, 0.0)
        narrowing = np.where(stddev > 0, (second - first**2 - 1) / stddev**2, 0.0)
    return Selected(
        keep=np.minimum(keep, 1.0), shift=shift, narrowing=narrowing, mean=compared / whole, square=square / whole
    )


def _coin(selects: Selects, units: Floats) -> tuple[Floats, Floats, Floats]:
    table = truncated_geometric.keep_table(selects.epsilon, selects.delta).astype(np.float64) / truncated_geometric.ONE
    table = np.append(table, 1.0)
    counted = units - (max(selects.min_users, 1) - 1)
    nothing = np.zeros(len(units))
    return np.interp(counted, np.arange(len(table)), table), nothing, nothing


def _laplace(selects: Selects, units: Floats) -> tuple[Floats, Floats, Floats]:
    """Return P(X >= t), and the expectations of X and its square over X >= t."""
    scale = selects.stddev / math.sqrt(2)
    t = selects.threshold - units
    far = np.abs(t)
    tail = 0.5 * np.exp(-far / scale)
    square = tail * (far**2 + 2 * scale * far + 2 * scale**2)
    above = t > 0
    allowed = (units >= max(selects.min_users, 1) - 0.5).astype(np.float64)
    return (
        allowed * np.where(above, tail, 1 - tail),
        allowed * tail * (far + scale),
        allowed * np.where(above, square, 2 * scale**2 - square),
    )
