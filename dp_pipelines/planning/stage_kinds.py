"""The three kinds of stage: one that releases aggregates, one that chooses the best partitions, one that trains.

In: a query. Out: the facts about its kind that planning needs: the possible laws and strategies, statistics that are read
but not released, the cost of its decisions. Holds: nothing else in planning depends on the kind of a stage.
Not covered: what is released (dp_pipelines.release) and replayed (dp_pipelines.audit) of each.
"""

import abc
from collections.abc import Iterator, Mapping

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.statistics import Statistic, TrainingSums
from dp_pipelines.mechanisms.best_choice import BestChoice
from dp_pipelines.metrics.base import UNITS
from dp_pipelines.metrics.clipped_sums import ClippedSums
from dp_pipelines.planning.stage_choices import StageChoices
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, Query
from dp_pipelines.selection import thresholds

Way = tuple[str, str | None]
"""The law that all statistics with a choice get, and the strategy of selection; None where nothing is selected."""


class StageKind(abc.ABC):
    """The behaviour that depends on the kind of a stage.

    Args:
        query: what the stage asks for.
    """

    centres: bool = False
    """True if sums may be counted from the middle of their range."""

    def __init__(self, query: Query) -> None:
        self.query = query

    @abc.abstractmethod
    def ways(self, delta: float) -> Iterator[Way]:
        """Return the ways to run it that planning compares.

        Args:
            delta: of the plan.

        Raises:
            RequestError: the stage needs a delta above 0.
        """

    @property
    def one_law(self) -> bool:
        """Return True if all noise is Gaussian. One unit moves many counts, or levels of a rollup, so only L2 noise pays off."""
        return self.query.group is not None or self.query.level is not None

    @property
    def coins(self) -> int:
        """Return how many coins or choices depend on one unit."""
        return self.query.bounds.max_partitions

    @property
    def coin_weights(self) -> dict[str, float]:
        """Return the weight of its choices relative to its statistics, as `coin`; empty if selection flips the coins."""
        return {}

    @property
    def compared(self) -> dict[str, Statistic]:
        """Return statistics that are compared and not released, by name."""
        return {}

    def sums(self, released: Mapping[str, Statistic]) -> dict[str, ClippedVectors]:
        """Return the vector sums of training among these statistics."""
        return {}

    @abc.abstractmethod
    def fits(self, choices: StageChoices, released: Mapping[str, Statistic]) -> bool:
        """Return True if choices have the form that calibration makes for this kind: strategy, noises, selection parameters."""

    @abc.abstractmethod
    def decision_record(self, stage: str, strategy: str, epsilon: float, delta: float) -> MechanismRecord:
        """Return the record of decisions besides the noise that they compare: coins or choices, or the chance to fail.

        Args:
            stage: its name.
            strategy, epsilon, delta: see `StageChoices`.
        """


class AggregateKind(StageKind):
    """Noisy statistics of public or privately selected partitions."""

    centres = True

    def ways(self, delta: float) -> Iterator[Way]:
        strategies = self._strategies(delta)
        if self.query.takes_delta and delta == 0:
            message = "must be above 0 for a median with smooth sensitivity"
            raise RequestError(field="delta", message=message, hint="set it, e.g. delta: 1.0e-6, or use method: ranks")
        laws = ["gaussian", "laplace"]
        if self.query.level is not None and delta == 0:
            message, hint = "must be above 0 for a rollup", "set it, e.g. delta: 1.0e-6, or drop rollup"
            raise RequestError(field="delta", message=message, hint=hint)
        if delta == 0:
            laws = ["laplace"]
        elif self.one_law:
            laws = ["gaussian"]
        for law in laws:
            for strategy in strategies:
                yield law, strategy

    def _strategies(self, delta: float) -> list[str | None]:
        partitions = self.query.partitions
        if not isinstance(partitions, PrivatePartitions):
            return [None]
        if delta == 0:
            raise RequestError(
                field="delta",
                message="must be above 0 to select partitions privately",
                hint="set it, e.g. delta: 1.0e-6, or list public partitions",
            )
        if partitions.strategy != "auto":
            return [partitions.strategy]
        if self.query.level is not None:  # thresholds of all levels are on Gaussian noise, as what they release is
            return ["truncated_geometric", "gaussian"]
        strategies: list[str | None] = ["truncated_geometric", "laplace", "gaussian"]
        strategies += ["weighted_gaussian"] if partitions.min_users <= 1 else []
        # Coins share epsilon among partitions, and no number of them costs less than all others.
        return strategies[1:] if self.query.bounds.auto_partitions else strategies

    def fits(self, choices: StageChoices, released: Mapping[str, Statistic]) -> bool:
        partitions, strategy = self.query.partitions, choices.strategy
        laws = {key: choice.law for key, choice in choices.noises.items()}
        if not isinstance(partitions, PrivatePartitions):
            return strategy is None and set(laws) == set(released)
        fits, needed = partitions.strategy in ("auto", strategy) and 0 < choices.selection_delta < 1, set(released)
        if strategy == "weighted_gaussian":
            fits &= partitions.min_users <= 1 and laws.get("selection") == "gaussian"
            needed.add("selection")
        elif strategy in ("laplace", "gaussian"):
            compared = UNITS.name if UNITS.name in released else "selection"
            fits &= laws.get(compared) == strategy
            needed.add(compared)
        else:
            fits &= strategy == "truncated_geometric" and choices.selection_epsilon > 0
        return fits and set(laws) == needed

    def decision_record(self, stage: str, strategy: str, epsilon: float, delta: float) -> MechanismRecord:
        if strategy != "truncated_geometric":
            return MechanismRecord(stage=stage, name="selection threshold", kind="delta", delta=delta)
        most = self.query.bounds.max_partitions
        share = thresholds.for_each(delta, most)
        return MechanismRecord(
            stage=stage, name="selection", kind="approximate_dp", epsilon=epsilon, delta=share, l0=most
        )


class BestKind(StageKind):
    """A choice of the best public partitions."""

    @property
    def choice(self) -> BestChoice:
        """Return the choice of the best partitions."""
        best = self.query.best
        assert best is not None
        rows = self.query.bounds.max_rows_per_partition
        return BestChoice(statistic=best.statistic, k=best.k, mechanism=best.mechanism, max_rows_per_partition=rows)

    @property
    def candidates(self) -> int:
        """Return the number of partitions that are chosen from."""
        assert isinstance(self.query.partitions, PublicPartitions)
        return self.query.partitions.count

    def ways(self, delta: float) -> Iterator[Way]:
        yield "laplace", self.choice.mechanism

    @property
    def coins(self) -> int:
        return self.choice.k

    @property
    def coin_weights(self) -> dict[str, float]:
        return {"coin": 1.0}

    @property
    def compared(self) -> dict[str, Statistic]:
        return {self.choice.statistic.name: self.choice.statistic}

    def fits(self, choices: StageChoices, released: Mapping[str, Statistic]) -> bool:
        alone = not choices.noises and not released
        return alone and choices.strategy == self.choice.mechanism and choices.selection_epsilon > 0

    def decision_record(self, stage: str, strategy: str, epsilon: float, delta: float) -> MechanismRecord:
        return self.choice.record(stage, epsilon)


class TrainingKind(AggregateKind):
    """Sums of clipped vectors that training releases, one after the other."""

    centres = False

    def ways(self, delta: float) -> Iterator[Way]:
        if delta == 0:
            message, hint = "must be above 0 to train a model", "set it, e.g. delta: 1.0e-6"
            raise RequestError(field="delta", message=message, hint=hint)
        yield "gaussian", None

    def sums(self, released: Mapping[str, Statistic]) -> dict[str, ClippedVectors]:
        return {name: statistic.of_units for name, statistic in released.items() if isinstance(statistic, TrainingSums)}


def kind_of(query: Query) -> StageKind:
    """Return the kind of the stage of a query.

    >>> from dp_pipelines import ContributionBounds, Count, PrivatePartitions
    >>> type(kind_of(Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
    ...     partitions=PrivatePartitions(), bounds=ContributionBounds(max_partitions_contributed=2,
    ...     max_contributions_per_partition=3)))).__name__
    'AggregateKind'
    """
    if query.best is not None:
        return BestKind(query)
    trains = any(isinstance(metric, ClippedSums) for metric in query.metrics.values())
    return TrainingKind(query) if trains else AggregateKind(query)
