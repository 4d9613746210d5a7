"""The only three ways in which a train stage draws: tables, sums of vectors, samples of units.

In: the stage of a release and its input. Out: what the stage releases. Holds: `fit` draws nothing elsewhere, so an
observer here sees everything it reads. Not covered: the laws (`release.draw`, `training.gaussian_noise`,
`noise.poisson_samples`).

INTERNAL: the audit and the tests give `Fit` a `Drawing` that takes notes; no public function passes one on.
"""

from fractions import Fraction

import pyarrow as pa

from dp_pipelines.errors import GateError
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.mechanisms.permits import TWO_DRAWS, SumsPermit
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training.gaussian_noise import NoisySum


class Drawing:
    """Draws what the records of the stages pay for, each table once and each sum as often as its record says."""

    def __init__(self) -> None:
        self._tables, self._sums = set[str](), dict[str, SumsPermit]()

    def table(self, stage: StagePlan, totals: Totals) -> pa.Table:
        """Select partitions and add noise to exact totals, once.

        Raises:
            GateError: its records do not pay for it, or it was drawn before.
        """
        if stage.name in self._tables:
            raise GateError(TWO_DRAWS, stage.name, "")
        self._tables.add(stage.name)
        return draw_release(totals, stage, gate.open_gate(stage))

    def noisy_sum(self, stage: StagePlan, *, size: int, norm: float, multiplier: Fraction, slack: float) -> NoisySum:
        """The object that adds noise to the sums of vectors of a stage.

        Raises:
            GateError: the record pays for other sums; when one is released, that all of them are drawn.
        """
        take = self._permit(stage).for_sums(size, multiplier)
        return NoisySum(size=size, norm=norm, multiplier=multiplier, slack=slack, take=take)

    def sampler(self, stage: StagePlan, rate: float) -> PoissonSampler:
        """The object that draws the samples of units of a stage.

        Raises:
            GateError: the record states a lower rate.
        """
        self._permit(stage).check_rate(rate)
        return PoissonSampler(rate)

    def _permit(self, stage: StagePlan) -> SumsPermit:
        if stage.name not in self._sums:
            self._sums[stage.name] = gate.open_sums(stage)
        return self._sums[stage.name]
