"""A choice of the k best among public partitions by a statistic; nothing else about the statistic is released.

In: what is compared, how, with which epsilon. Out: the record of all choices; the chosen places. Holds: when one unit is added,
the changes of all scores lie in an interval of length `spread` (docs/proofs/exponential.md, 3), so that each choice has the
epsilon of the record. Not covered: the table of what was chosen (release.best_partitions).
"""

import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.lattice import Integers
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.mechanisms.permits import Permit
from dp_pipelines.selection.exponential import Choosing, top_k

if TYPE_CHECKING:  # a plan needs no kernels
    from dp_pipelines.kernels.accumulate import Totals


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestChoice:
    """The k choices of a stage.

    Args:
        statistic: what is compared: one whole number for each partition.
        k: how many are chosen, one after the other.
        mechanism: how each is chosen.
        max_rows_per_partition: of one unit in one partition.
    """

    statistic: Statistic
    k: int
    mechanism: Choosing
    max_rows_per_partition: int

    @property
    def spread(self) -> int:
        """Return the length of an interval in which the changes of all scores lie when one unit is added, at least 1.

        >>> from dp_pipelines.kernels.statistics import RowCount
        >>> BestChoice(statistic=RowCount(), k=1, mechanism="exponential", max_rows_per_partition=3).spread
        3
        """
        return self.statistic.score_range(self.max_rows_per_partition)

    def record(self, stage: str, epsilon: float) -> MechanismRecord:
        """Return the record of all choices of a stage. With ideal random words the choices are exact."""
        if self.mechanism == "exponential":
            return MechanismRecord(stage=stage, name="best", kind="bounded_range", epsilon=epsilon, l0=self.k)
        return MechanismRecord(stage=stage, name="best", kind="approximate_dp", epsilon=epsilon, delta=0.0, l0=self.k)

    def error_95(self, epsilon: float, candidates: int) -> float:
        """Return the most by which a choice is behind the best candidate left, 19 times of 20; in units of the statistic.

        McKenna, Sheldon 2020, section 3: P(gap > t) < candidates exp(-epsilon t / spread), for either mechanism.
        """
        steps = self.spread / epsilon * math.log(20 * candidates)
        return steps * (1.0 if self.statistic.lattice is None else self.statistic.lattice.step)

    def draw(self, totals: "Totals", place: int, epsilon: float, permit: Permit) -> Integers:
        """Choose once, and return the places of the chosen partitions, int64 of shape (k,), the first choice first.

        Args:
            totals: of every candidate.
            place: of the statistic among those of the stage.
            epsilon: of each choice. A float is a fraction: the one that the record states.
            permit: of the choice's record.
        """
        scores = totals.coarse(place, shift=0, step=1)
        exact = Fraction(epsilon)
        every = np.arange(len(scores))
        words = permit.words(epsilon=exact, delta=0.0, spread=self.spread, partitions=every)
        return top_k(scores, self.k, spread=self.spread, epsilon=exact, mechanism=self.mechanism, words=words)
