"""Which mechanism releases which statistic.

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
"""By class of statistic, for all that inherit from it."""


def mechanism_of(statistic: Statistic) -> Mechanism:
    """The mechanism of a statistic.

    >>> from dp_pipelines.kernels.statistics import RowCount
    >>> type(mechanism_of(RowCount())).__name__
    'AddedNoise'
    """
    return inherited(MECHANISMS, type(statistic))


def by_mechanism(table: Mapping[type[Mechanism], Value], statistic: Statistic) -> Value:
    """What a table by class of mechanism says of the mechanism of a statistic."""
    return inherited(table, type(mechanism_of(statistic)))


def inherited(table: Mapping[type[Any], Value], known: type[Any]) -> Value:
    """What a table by class says of a class, or of the nearest that it inherits from.

    >>> inherited({int: "whole", object: "anything"}, bool)
    'whole'
    """
    return next(table[parent] for parent in known.__mro__ if parent in table)
