"""What a decision costs: a choice among public partitions or candidates, by how far one unit moves two scores apart; a median.

In: a query with `best`, or a statistic of ranks. Out: the spread of its scores in whole numbers, a mechanism record. Holds: when
one unit is added, the changes of all scores lie in an interval of length `spread` (docs/proofs/exponential.md, 3 and 5). Not
covered: the draw (`release.best_partitions`, `release.rank_choice`, `release.smooth_median`).
"""

import dataclasses
import math
from fractions import Fraction

from dp_pipelines.accounting.mechanism_record import Mechanism
from dp_pipelines.kernels.cells import Around, Points
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.sensitivity import LatticeSteps
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.query.query import Query


def spread(query: Query) -> int:
    """The length of an interval in which the changes of all scores lie when one unit is added, at least 1.

    >>> from dp_pipelines import Best, ContributionBounds, PublicPartitions
    >>> spread(Query(privacy_unit="customer", partition_by="region", best=Best(by="rows"),
    ...     partitions=PublicPartitions(keys=[["north"], ["south"]]),
    ...     bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)))
    3
    """
    assert query.best is not None
    return spread_of(query.best.statistic, query.bounds.max_rows_per_partition)


def spread_of(statistic: Statistic, rows: int) -> int:
    """The same for a statistic, with at most so many rows of one unit in one partition."""
    if statistic.kind == "units":
        return 1
    if statistic.kind == "distinct":
        return statistic.most or rows
    if isinstance(statistic.lattice, SummandLattice):
        low, high = statistic.lattice.clip_bounds
        return max(high, 0) - min(low, 0)
    if isinstance(statistic.lattice, Lattice):
        return rows * (max(statistic.lattice.highest, 0) - min(statistic.lattice.lowest, 0))
    assert statistic.kind in ("rows", "not_null"), "nothing else is one whole number for each partition"
    return rows


def record(stage: str, query: Query, epsilon: float) -> Mechanism:
    """The record of all choices of a stage, each with epsilon: in ideal words they are exact."""
    assert query.best is not None
    if query.best.mechanism == "exponential":
        return Mechanism(stage=stage, name="best", kind="bounded_range", epsilon=epsilon, l0=query.best.k)
    return Mechanism(stage=stage, name="best", kind="approximate_dp", epsilon=epsilon, delta=0.0, l0=query.best.k)


def around(statistic: Statistic) -> Around:
    """The candidates of a statistic of kind `ranks`."""
    assert isinstance(statistic.cells, Around)
    return statistic.cells


def spread_of_ranks(cells: Around, rows: int) -> int:
    """The length of an interval in which the changes of a partition's scores lie, with at most so many rows of one unit.

    A row moves (whole - part) less - part more by at most the larger of the two factors, either way
    (docs/proofs/exponential.md, 5).

    >>> spread_of_ranks(Around(candidates=(1.0, 2.0), part=9, whole=10), 3)
    54
    """
    return 2 * rows * max(cells.part, cells.whole - cells.part)


def epsilon_of_ranks(scale: Fraction, moved: LatticeSteps) -> Fraction:
    """Epsilon of the choice in one partition: what Laplace noise of this scale would cost there."""
    return moved.linf / scale


def record_of_ranks(stage: str, name: str, scale: Fraction, moved: LatticeSteps) -> Mechanism:
    """The record of a choice in each partition of a unit, with epsilon rounded up."""
    epsilon = math.nextafter(float(epsilon_of_ranks(scale, moved)), math.inf)
    return Mechanism(stage=stage, name=name, kind="approximate_dp", epsilon=epsilon, delta=0.0, l0=moved.l0)


def points(statistic: Statistic) -> Points:
    """The points of a statistic of kind `smooth_median`."""
    assert isinstance(statistic.cells, Points)
    return statistic.cells


def takes_delta(query: Query) -> bool:
    """Whether a part of delta goes to medians with smooth sensitivity."""
    return any(metric.takes_delta for metric in query.metrics.values())


def record_of_median(stage: str, name: str, scale: Fraction, moved: LatticeSteps, delta: float) -> Mechanism:
    """The record of a median in each partition of a unit, with epsilon rounded up."""
    ranked = record_of_ranks(stage, name, scale, moved)
    return dataclasses.replace(ranked, delta=delta)
