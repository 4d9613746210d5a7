"""The interface of all mechanisms (law, record, draw), and the calibration that they get.

In: a statistic with its noise, as calibration settled them. Out: the base class of the mechanisms in this folder.
Holds: the record of a statistic bounds the effect of all rows of one privacy unit on what `draw` returns
(docs/proofs/sensitivity.md). Not covered: which laws and scales are taken (planning).
"""

import abc
import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.lattice import Integers
from dp_pipelines.kernels.sensitivity import LatticeSteps, Shape
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.mechanisms.permits import Permit
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.metrics.good_from import Level
from dp_pipelines.noise.laws import Law

if TYPE_CHECKING:  # a plan needs no kernels
    from dp_pipelines.kernels.accumulate import Totals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of one statistic: coarse rounding, then an integer law.

    Args:
        law: the law, in steps.
        step: fine lattice steps in one step of the release.
        fine_bits: by how many bits totals are shifted left to the fine lattice.
        fine_step: the fine step in units of the statistic.
        draws: how many draws of the law are in a published number: several where parties add up their tables. A record is
            about one of these tables, with one draw.
    """

    law: Law
    step: int
    fine_bits: int
    fine_step: float
    draws: int = 1

    @property
    def unit(self) -> float:
        """Return one step of the release in units of the statistic."""
        return self.step * self.fine_step

    @property
    def stddev(self) -> float:
        """Return the standard deviation of the noise in units of the statistic."""
        return self.law.stddev * self.unit * math.sqrt(self.draws)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """All decisions of calibration about one statistic.

    Args:
        statistic: the statistic.
        noise: its noise.
        law: the name of the law: `laplace` or `gaussian`.
        steps: release steps of `units` units of change, at most.
        units: see `planning.stage_choices.Choice`.
        shape: how far one unit moves the statistic; None for one that has no shape in whole units.
        is_open: whether its lattice follows bounds that the run chooses: one unit is then `steps` steps on any of them.
        max_partitions: of one unit.
        max_rows_per_partition: of one unit in one partition.
        delta: what a mechanism that may fail gets of delta.
    """

    statistic: Statistic
    noise: Noise
    law: str
    steps: int
    units: int
    shape: Shape | None
    is_open: bool
    max_partitions: int
    max_rows_per_partition: int
    delta: float

    @property
    def moved(self) -> LatticeSteps:
        """Return how far one unit moves the statistic, in steps of its noise (docs/proofs/sensitivity.md, lemmas 6a and 6b)."""
        assert self.shape is not None
        if self.is_open:
            return self.shape.ideally(self.steps, self.units)
        return self.shape.steps(self.noise.step, joined=self.units > 1)

    @property
    def decision_epsilon(self) -> Fraction:
        """Return the epsilon of a decision in one partition: the cost of Laplace noise of this scale there."""
        return self.moved.linf / self.noise.law.scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exact:
    """The exact totals of one statistic in the partitions that are released.

    Args:
        totals: of the stage.
        place: of the statistic among those of the stage.
        partitions: rising codes.
        noisy: steps of all partitions with their noise, where selection may have compared them; else None.
    """

    totals: "Totals"
    place: int
    partitions: Integers
    noisy: Integers | None

    def lists(self, *, shift: int = 0, step: int = 1) -> Integers:
        """Return the integers of each partition, rounded as `Totals.coarse_lists` rounds."""
        return self.totals.coarse_lists(self.place, self.partitions, shift=shift, step=step)


class Mechanism(abc.ABC):
    """A way to release statistics of some kind. Stateless; `mechanisms.by_statistic` has the mechanism of each statistic."""

    law: ClassVar[str | None] = None
    """The law that it always takes; None if calibration chooses between `laplace` and `gaussian`."""
    words: ClassVar[str | None] = None
    """The text that `plan` prints in place of a law, if the error of a value depends on the data."""

    @abc.abstractmethod
    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        """Return the mechanism record of a statistic.

        Args:
            stage: the name of the stage.
            name: of the record within the stage.
            calibration: of the statistic.
        """

    def unit(self, shape: Shape | None) -> int:
        """Return the number of fine steps in one unit of change."""
        assert shape is not None
        return shape.unit

    def level(self, calibration: Calibration) -> Level | None:
        """Return how noisy the statistic is, as far as that is known before a row is read; None if the data decide it."""
        return Level(stddev=calibration.noise.stddev, law=calibration.law)

    @abc.abstractmethod
    def draw(self, calibration: Calibration, exact: Exact, permit: Permit) -> Noisy:
        """Release a statistic of some partitions, once.

        Args:
            calibration: of the statistic.
            exact: its totals in these partitions.
            permit: of the statistic's record, through which all of it is drawn.
        """
