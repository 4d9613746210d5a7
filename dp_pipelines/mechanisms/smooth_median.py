"""A median with smooth sensitivity: one number for each partition, from the counts of all its values.

In: exact counts by point of the range, a calibrated statistic. Out: for each partition a part of the range, from 0 to 1.
Holds: each number has the epsilon and delta of its record, or less; nothing reveals how much noise it has
(docs/proofs/smooth_sensitivity.md).
"""

import numpy as np

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.cells import Points
from dp_pipelines.mechanisms.mechanism import Calibration, Exact, Mechanism
from dp_pipelines.mechanisms.permits import Permit
from dp_pipelines.mechanisms.rank_choice import decision_record
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.noise import smooth_sensitivity


class MedianByPoints(Mechanism):
    """Laplace noise that follows how far one value can move the median of these values."""

    law = "laplace"
    words = "smooth_sensitivity"

    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        return decision_record(stage, name, calibration, delta=calibration.delta)

    def level(self, calibration: Calibration) -> None:
        """Return None: the distances between values decide how much noise there is."""

    def draw(self, calibration: Calibration, exact: Exact, permit: Permit) -> Noisy:
        smooth, points = smoothing(calibration), calibration.statistic.cells
        assert isinstance(points, Points)
        if not len(exact.partitions):
            return Noisy(values=np.zeros(0), stddev=0.0)
        counted = exact.lists()
        epsilon, delta = calibration.decision_epsilon, calibration.delta
        words = permit.words(epsilon=epsilon, delta=delta, partitions=exact.partitions)
        known: dict[bytes, smooth_sensitivity.NoisyMedian] = {}  # replays of an audit are many times the same
        drawn = np.empty(len(counted))
        for row, counts in enumerate(counted):
            key = counts.tobytes()
            if key not in known:
                known[key] = smooth_sensitivity.NoisyMedian.of(points.middle(counts), points.steps, smooth)
            drawn[row] = known[key].draw(words=words)
        return Noisy(values=drawn / (2 * smooth_sensitivity.FINER * points.steps), stddev=0.0)


def smoothing(calibration: Calibration) -> smooth_sensitivity.Smoothing:
    """Return how the noise of a median follows its values."""
    return smooth_sensitivity.smoothing(calibration.decision_epsilon, calibration.delta)
