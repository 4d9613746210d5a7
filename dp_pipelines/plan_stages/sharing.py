"""How the parts of a stage share its budget, and what the parts of a train stage ask, by the rule that a plan was made with.

In: the number of a rule. Out: the shares of histograms, rounds of selection and parts of a train stage; what its parts ask where
the job leaves it open. Holds: a plan keeps the rule that it was made with, so that plans which a ledger has frozen keep their
shares and questions. Not covered: how weights become noise (planning.candidate).
"""

import dataclasses
import math
from collections.abc import Iterable

from dp_pipelines.frozen import FrozenMapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing:
    """One rule.

    Args:
        number: by which a plan keeps it.
        power: shares add up by this power: 1 where a share is a part of what adds up, epsilon or the inverse of a variance.
        histogram: of a stage's budget, for each noisy histogram by which the run chooses bounds.
        rounds: of selection in rounds, as weights.
        training: of a train stage, by part, as weights.
        best: the weight of a stage that chooses the best partitions, where it declares none, beside 1 for others.
        bin_ranks: of a train stage, from quantiles of at most so many ranks are the bins of a feature made; 0: from those that
            divide it into bins, and no others.
        caps_votes: whether a unit votes for no more values of a category than it may have examples.
        joint: of a stage's budget, for the two histograms by which the run chooses both bounds of a unit together.
        units_count_once: whether each held-out unit counts once in the evaluation, where the job leaves that open.
    """

    number: int
    power: int
    histogram: float
    rounds: tuple[float, ...]
    training: FrozenMapping[float]
    best: float
    bin_ranks: int = 0
    caps_votes: bool = False
    units_count_once: bool = False
    joint: float = 0.06

    def together(self, shares: Iterable[float]) -> float:
        """The share that costs as much as all of these."""
        total = math.fsum(share**self.power for share in shares)
        return total if self.power == 1 else math.sqrt(total)

    def of_statistics(self, share: float, number: int) -> float:
        """The share of a stage that is split evenly over so many statistics and is to cost `share`."""
        return share if self.power == 1 else share * math.sqrt(number)


FIRST = Sharing(
    number=1,
    power=2,
    histogram=0.1,
    rounds=(0.3, 0.55, 1.0),
    training=FrozenMapping({"bins": 0.15, "vocabulary": 0.1, "users": 0.05, "moments": 0.3, "steps": 0.6}),
    best=1.0,
)
"""The rule of plans of 0.1.0, in which a weight was a part of the inverse of the deviation, whatever the law of the noise."""

SECOND = Sharing(
    number=2,
    power=1,
    histogram=0.1,
    rounds=(0.09, 0.3, 1.0),
    training=FrozenMapping({"bins": 0.05, "vocabulary": 0.02, "users": 0.005, "moments": 0.185, "steps": 0.74}),
    best=0.25,
)
"""The rule of plans between 0.1.0 and the next. What prepares the features of a model is needed once and roughly, the steps are
many. A histogram mostly has Laplace noise, so that a fiftieth of the budget, which would do for Gaussian noise, would give it
five times the noise (docs/benchmarks/bounds.md)."""

NOW = dataclasses.replace(SECOND, number=3, bin_ranks=100, caps_votes=True, units_count_once=True)
"""The rule of plans that are made now: the same shares. More ranks of a tree of counts cost nothing more, and show which values
many rows share (training.features.bin_edges)."""

RULES = {rule.number: rule for rule in (FIRST, SECOND, NOW)}
