"""The mechanism of each class of statistics.

In: a statistic. Out: its mechanism. Holds: every class of statistics has one; a class inherits that of its base.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from dp_pipelines.kernels.statistics import MedianCounts, RankCounts, Statistic, TrainingSums, UnitWeights
from dp_pipelines.mechanisms.added_noise import AddedNoise, WeightedCount
from dp_pipelines.mechanisms.mechanism import Mechanism
from dp_pipelines.mechanisms.rank_choice import RankChoice
from dp_pipelines.mechanisms.smooth_median import MedianByPoints
from dp_pipelines.mechanisms.training_sums import NoisyTrainingSums

Value = TypeVar("Value")

MECHANISMS: dict[type[Statistic], Mechanism] = {
    Statistic: AddedNoise(),
    UnitWeights: WeightedCount(),
    RankCounts: RankChoice(),
    MedianCounts: MedianByPoints(),
    TrainingSums: NoisyTrainingSums(),
}
"""The mechanism of a class of statistics and of all classes that inherit from it."""


def mechanism_of(statistic: Statistic) -> Mechanism:
    """Return the mechanism of a statistic.

    >>> from dp_pipelines.kernels.statistics import RowCount
    >>> type(mechanism_of(RowCount())).__name__
    'AddedNoise'
    """
    return inherited(MECHANISMS, type(statistic))


def by_mechanism(table: Mapping[type[Mechanism], Value], statistic: Statistic) -> Value:
    """Look up the mechanism of a statistic in a table by class of mechanism."""
    return inherited(table, type(mechanism_of(statistic)))


def inherited(table: Mapping[type[Any], Value], known: type[Any]) -> Value:
    """Look up a class, or the nearest class that it inherits from, in a table by class.

    >>> inherited({int: "whole", object: "anything"}, bool)
    'whole'
    """
    return next(table[parent] for parent in known.__mro__ if parent in table)
