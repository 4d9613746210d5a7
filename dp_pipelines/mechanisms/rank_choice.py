"""A quantile among candidates: one choice for each partition, by exact ranks (permute and flip).

In: exact counts around the candidates, a calibrated statistic. Out: for each partition the place of the chosen candidate.
Holds: when one unit is added, the changes of a partition's scores lie in an interval of length `spread`
(docs/proofs/exponential.md, 5), so that a choice has the epsilon of its record, or less.
"""

import math

import numpy as np

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.cells import Around
from dp_pipelines.mechanisms.mechanism import Calibration, Exact, Mechanism
from dp_pipelines.mechanisms.permits import Permit
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.metrics.good_from import Level
from dp_pipelines.selection.exponential import permute_and_flip


class RankChoice(Mechanism):
    """A choice among candidates in each partition; its epsilon is that of the Laplace law of its calibration."""

    law = "laplace"
    words = "permute_and_flip"

    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        return decision_record(stage, name, calibration, delta=0.0)

    def level(self, calibration: Calibration) -> Level:
        """Return how far the chosen candidate is behind the best: P(gap > t) < candidates exp(-epsilon t / spread).

        McKenna, Sheldon 2020, section 3. Scores are ranks times `whole`.
        """
        cells = calibration.statistic.cells
        assert isinstance(cells, Around)
        far = spread(cells, calibration.max_rows_per_partition) / float(calibration.decision_epsilon)
        behind = far * math.log(20 * len(cells.candidates)) / cells.whole
        return Level(stddev=0.0, law=calibration.law, behind=behind)

    def draw(self, calibration: Calibration, exact: Exact, permit: Permit) -> Noisy:
        if not len(exact.partitions):
            return Noisy(values=np.zeros(0), stddev=0.0)
        cells = calibration.statistic.cells
        assert isinstance(cells, Around)
        epsilon, within = calibration.decision_epsilon, spread(cells, calibration.max_rows_per_partition)
        words = permit.words(epsilon=epsilon, delta=0.0, spread=within, partitions=exact.partitions)
        chosen = permute_and_flip(cells.scores(exact.lists()), spread=within, epsilon=epsilon, words=words)
        return Noisy(values=chosen.astype(np.float64), stddev=0.0)


def spread(cells: Around, rows: int) -> int:
    """Return the length of an interval in which the changes of a partition's scores lie when one unit is added.

    A row moves (whole - part) less - part more by at most the larger of the two factors, either way
    (docs/proofs/exponential.md, 5).

    >>> spread(Around(candidates=(1.0, 2.0), part=9, whole=10), 3)
    54
    """
    return 2 * rows * max(cells.part, cells.whole - cells.part)


def decision_record(stage: str, name: str, calibration: Calibration, *, delta: float) -> MechanismRecord:
    """Return the record of one decision in each partition of a unit, with epsilon rounded up."""
    epsilon = math.nextafter(float(calibration.decision_epsilon), math.inf)
    return MechanismRecord(
        stage=stage, name=name, kind="approximate_dp", epsilon=epsilon, delta=delta, l0=calibration.moved.l0
    )
