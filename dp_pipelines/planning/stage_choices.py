"""Decisions of calibration about a stage, in integers: together with the query they determine the stage.

In: a strategy, a law and a number of steps for each noisy statistic. Out: frozen values that a plan stores and a ledger keeps.
Not covered: how they are found (planning.choose, planning.noise_levels.integer_noise) and what they mean (planning.stage).
"""

import dataclasses
from fractions import Fraction
from typing import Protocol

from dp_pipelines.frozen import FrozenMapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The decisions of calibration about one noisy statistic.

    Args:
        law: `laplace` or `gaussian`.
        steps: release-lattice steps of one unit of change (`Shape.unit`) at most. Where a metric asks for a noise level it is not
            read: noise and lattice follow from the query.
        units: the units of change that `steps` are for. More than one where one privacy unit may put that many into one number:
            one step more or less is then a small part of the noise.
    """

    law: str
    steps: int
    units: int = 1

    def step(self, unit: int) -> int:
        """Return the width of a release step, in fine lattice steps, where one unit of change is `unit` of these."""
        return -(-unit * self.units // self.steps)

    def to_json(self) -> dict[str, str | int]:
        """Return the choice as a plan stores it; those of 0.1.0 have no `units`."""
        fields = dataclasses.asdict(self)
        if self.units == 1:
            del fields["units"]
        return fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageChoices:
    """The decisions of calibration about a stage; together with the query they determine it.

    Args:
        strategy: how partitions are selected: `truncated_geometric`, `laplace`, `gaussian`, `weighted_gaussian`, or None for
            public partitions; where the best of these are chosen, how (`Best.mechanism`).
        noises: by name of statistic, for each statistic that gets noise (`selection` for one that only selection uses).
        selection_delta: the probability with which selection may fail, over all partitions of one unit and one run; where there
            is none, the delta of medians with smooth sensitivity.
        selection_epsilon: epsilon of one partition's coin, for the truncated geometric strategy; of one choice of the best.
        centred: the families of metrics whose sums are centred.

    Choices that were stored in another order are the same choices.
    """

    strategy: str | None
    noises: FrozenMapping[Choice]
    selection_delta: float = 0.0
    selection_epsilon: float = 0.0
    centred: tuple[tuple[str, float, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "noises", FrozenMapping(dict(sorted(self.noises.items()))))
        object.__setattr__(self, "centred", tuple(sorted(self.centred)))


class Scales(Protocol):
    """The scales of the two laws, one of each for a whole plan."""

    @property
    def gaussian_scale(self) -> Fraction:
        """Return the standard deviation, before rounding, in release steps."""
        ...

    @property
    def laplace_scale(self) -> Fraction:
        """Return the scale of the Laplace law in release steps."""
        ...
