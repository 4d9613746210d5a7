"""What the sums of a training stage cost, and how much noise the plan gives them.

In: a description of the sums; choices of calibration. Out: a mechanism record; the noise multiplier of one sum. Holds: the record
says of `times` sums, each with Gaussian noise of `scale / steps` times the norm to which a unit's vector is clipped, what one
unit can change in them (docs/proofs/training.md).
"""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_pipelines.accounting.mechanism_record import Mechanism
from dp_pipelines.kernels.clipped_vectors import ClippedVectors

if TYPE_CHECKING:
    from dp_pipelines.planning.stage import StagePlan

DRAWS = 2
"""Noise on the fine lattice of a sum is made of two draws from tables for each coordinate (training.noise)."""

FINEST = 64
"""Steps that the norm of a clipped vector has at least, where a table of noise can be that large: the noise of training is
met to within half a part in so many before the last calibration."""


def record_of_sums(stage: str, name: str, scale: Fraction, steps: int, vectors: ClippedVectors) -> Mechanism:
    """The record of sums whose units of change are `steps` steps each.

    >>> record_of_sums("s", "sums", Fraction(1024), 64, ClippedVectors(size=3, times=80, rate=1.0)).l2_squared == 80 * 64**2
    True
    >>> record_of_sums("s", "sums", Fraction(1024), 64, ClippedVectors(size=3, times=80, rate=0.1)).kind
    'sampled_gaussian'
    """
    draws = DRAWS * vectors.size
    if vectors.rate == 1:
        # Vectors that differ by c each, one after the other, differ by c * sqrt(times) in all.
        squared = vectors.times * steps**2
        return Mechanism(
            stage=stage, name=name, kind="gaussian", scale=scale, l2_squared=squared, l0=draws * vectors.times
        )
    return Mechanism(
        stage=stage,
        name=name,
        kind="sampled_gaussian",
        scale=scale,
        l2_squared=steps**2,
        l0=draws,
        rate=vectors.rate,
        times=vectors.times,
    )


def influence(vectors: ClippedVectors) -> float:
    """About how much sums weigh beside one sum over all units: the root of the number of sums that a unit is in, by their cost.

    >>> influence(ClippedVectors(size=3, times=100, rate=0.1))
    1.0
    """
    return math.sqrt(vectors.times) * vectors.rate


def squares(vectors: ClippedVectors, scale: float) -> float:
    """About the square of the shift in scales that all sums together amount to (Bu, Dong, Long, Su 2020, section 3).

    >>> squares(ClippedVectors(size=3, times=100, rate=1.0), 5.0)
    4.0
    """
    if vectors.rate == 1:
        return vectors.times / scale**2
    return vectors.times * vectors.rate**2 * math.expm1(min(1 / scale**2, 50.0))


def multiplier(stage: "StagePlan") -> Fraction:
    """The noise of one sum of a planned stage: its standard deviation over the norm that vectors are clipped to."""
    ((key, choice),) = stage.choices.noises.items()
    noise = next(n for s, n in zip(stage.statistics, stage.noises, strict=True) if s.name == key)
    assert noise is not None
    return noise.law.scale / choice.steps
