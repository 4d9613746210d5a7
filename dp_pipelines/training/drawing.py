"""The three doors through which a train stage draws: tables, sums of vectors, samples of units.

In: the stage of a release and what it is made of. Out: what the stage releases. Holds: nothing that `fit` releases is drawn
elsewhere, so that whoever stands here sees all that it reads. Not covered: the laws (`release.draw`, `training.gaussian_noise`,
`training.sampling`).

INTERNAL: the audit and the tests hand `Fit` a `Drawing` that notes what comes through; no public function passes one on.
"""

from fractions import Fraction

import pyarrow as pa

from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.sampling import UnitSampler


class Drawing:
    """Draws, each time it is asked."""

    def table(self, stage: StagePlan, totals: Totals) -> pa.Table:
        """Select partitions and add noise to exact totals, once."""
        return draw_release(totals, stage)

    def noisy_sum(self, stage: StagePlan, *, size: int, norm: float, multiplier: Fraction, slack: float) -> NoisySum:
        """What adds noise to the sums of vectors of a stage."""
        return NoisySum(size=size, norm=norm, multiplier=multiplier, slack=slack)

    def sampler(self, stage: StagePlan, rate: float) -> UnitSampler:
        """What draws the samples of units of a stage."""
        return UnitSampler(rate)
