"""A metric for sums of one clipped vector per privacy unit: the steps of training and the releases before them.

In: the length of the vectors, how many sums, over which part of the units. Out: the metric `ClippedSums`. Holds: a plan pays for
it as for any other; its noise follows from the plan's records alone. Not covered: releasing it, which `dp_pipelines.training`
does: no job file can ask for it by itself.
"""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction

from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.statistics import Statistic, TrainingSums
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues


@dataclasses.dataclass(frozen=True)
class ClippedSums(Metric):
    """A sequence of sums of vectors, one vector per unit, each clipped to an L2 norm of one unit of change.

    Args:
        size: coordinates of a vector.
        times: how many sums; each may depend on those before.
        rate: the probability with which a sum takes a unit.
        parts: of each sum, how many times less noise it has than the one with the most; None: all have the same.
        separation, coefficients: see `ClippedVectors`.

    >>> ClippedSums(size=10, times=80).statistics(Basis(centred=False, nullable=True))[0].width
    10
    """

    needs_row_bound = False
    many = True
    size: int = dataclasses.field(kw_only=True)
    times: int = dataclasses.field(default=1, kw_only=True)
    rate: float = dataclasses.field(default=1.0, kw_only=True)
    parts: tuple[Fraction, ...] | None = dataclasses.field(default=None, kw_only=True)
    separation: int | None = dataclasses.field(default=None, kw_only=True)
    coefficients: tuple[int, ...] = dataclasses.field(default=(), kw_only=True)

    @property
    def vectors(self) -> ClippedVectors:
        """Return the size, number, rate and noise parts of the sums."""
        return ClippedVectors(
            size=self.size,
            times=self.times,
            rate=self.rate,
            parts=self.parts,
            separation=self.separation,
            coefficients=self.coefficients,
        )

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (TrainingSums(vectors=self.vectors),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        raise NotImplementedError("dp_pipelines.training releases these sums")
