"""The noise that a plan gives to the sums of a training stage.

In: a planned stage. Out: the noise multiplier of each sum, and the largest. Not covered: the record of the sums
(mechanisms.training_sums).
"""

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_pipelines.planning.stage import StagePlan

FINEST = 64
"""Steps that the norm of a clipped vector has at least, where a table of noise can be that large: the noise of training is
met to within half a part in so many before the last calibration."""


def multiplier(stage: "StagePlan") -> Fraction:
    """Return the largest noise multiplier of a planned stage: standard deviation over the norm to which vectors are clipped."""
    return max(multipliers(stage))


def multipliers(stage: "StagePlan") -> tuple[Fraction, ...]:
    """Return the noise multiplier of each sum, in their order."""
    ((key, choice),) = stage.choices.noises.items()
    noise = next(n for s, n in zip(stage.statistics, stage.noises, strict=True) if s.name == key)
    assert noise is not None
    (vectors,) = stage.sums
    return tuple(noise.law.scale / steps for steps in vectors.steps_of_sums(choice.steps))
