"""The only three ways in which a train stage draws: tables, sums of vectors, samples of units.

In: the stage of a release and its input. Out: what the stage releases. Holds: `fit` draws nothing elsewhere, so an
observer here sees everything it reads. Not covered: the laws (`release.draw`, `training.gaussian_noise`,
`noise.poisson_samples`).

INTERNAL: the audit and the tests give `Fit` a `Drawing` that takes notes; no public function passes one on.
"""

from fractions import Fraction

import pyarrow as pa

from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training.gaussian_noise import NoisySum


class Drawing:
    """Draws anew at each call."""

    def table(self, stage: StagePlan, totals: Totals) -> pa.Table:
        """Select partitions and add noise to exact totals, once."""
        return draw_release(totals, stage)

    def noisy_sum(self, stage: StagePlan, *, size: int, norm: float, multiplier: Fraction, slack: float) -> NoisySum:
        """The object that adds noise to the sums of vectors of a stage."""
        return NoisySum(size=size, norm=norm, multiplier=multiplier, slack=slack)

    def sampler(self, stage: StagePlan, rate: float) -> PoissonSampler:
        """The object that draws the samples of units of a stage."""
        return PoissonSampler(rate)
