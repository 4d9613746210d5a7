"""One stage of a plan, frozen: what workers need to bound, accumulate, select and add noise, and nothing about budgets.

In: a query and the choices that calibration made (integers). Out: statistics, noises, thresholds, and the mechanism records
of the whole stage. Holds: everything is derived from the query and the choices, so that a plan can be stored as its choices;
each record bounds the effect of all rows of one privacy unit on what the stage releases (docs/proofs/sensitivity.md).
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, Protocol

from dp_pipelines.accounting.mechanism_record import Mechanism
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.moments import Moments
from dp_pipelines.kernels.sensitivity import LatticeSteps, Shape
from dp_pipelines.kernels.statistics import WEIGHT_BITS, Statistic, cells_of, distinct_of, vectors_of
from dp_pipelines.kernels.vectors import VectorLattice
from dp_pipelines.metrics.base import UNITS, Basis, Metric
from dp_pipelines.noise.laws import FlooredLaplace, Law, RoundedGaussian
from dp_pipelines.plan_stages.reads import Reads, Rows
from dp_pipelines.planning import decision_cost as choosing
from dp_pipelines.planning import reserve
from dp_pipelines.planning.payment import Payment
from dp_pipelines.planning.training_noise import record_of_sums
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, Query
from dp_pipelines.selection import thresholds, truncated_geometric

WEIGHTS = Statistic(kind="weights")

FIXED_LAWS = {"ranks": "laplace", "smooth_median": "laplace", "clipped_vectors": "gaussian"}
"""Statistics whose law is no choice."""

FIXED_SCALE = 1024
"""The scale, in steps, that a noise level is given which a metric asks for; it is met to within a part in 10^5."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What calibration decided about one noisy statistic.

    Args:
        law: `laplace` or `gaussian`.
        steps: release-lattice steps of one unit of change (`Shape.unit`) at most. Where a metric asks for a noise level it is not
            read: noise and lattice follow from the query.
    """

    law: str
    steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageChoices:
    """What calibration decided about a stage; with the query it determines the stage.

    Args:
        strategy: how partitions are selected: `truncated_geometric`, `laplace`, `gaussian`, `weighted_gaussian`, or None for
            public partitions; where the best of these are chosen, how (`Best.mechanism`).
        noises: by name of statistic, for each statistic that gets noise (`selection` for one that only selection uses).
        selection_delta: the probability with which selection may fail, over all partitions of one unit and one run; where there
            is no selection, the delta of medians with smooth sensitivity.
        selection_epsilon: epsilon of one partition's coin, for the truncated geometric strategy; of one choice of the best.
        centred: the families of metrics whose sums are centred.
    """

    strategy: str | None
    noises: FrozenMapping[Choice]
    selection_delta: float = 0.0
    selection_epsilon: float = 0.0
    centred: tuple[tuple[str, float, float], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of one statistic: coarse rounding, then an integer law.

    Args:
        law: the law, in steps.
        step: fine lattice steps in one step of the release.
        fine_bits: by how many bits totals are shifted left to the fine lattice.
        fine_step: the fine step in units of the statistic.
    """

    law: Law
    step: int
    fine_bits: int
    fine_step: float

    @property
    def unit(self) -> float:
        """One step of the release in units of the statistic."""
        return self.step * self.fine_step

    @property
    def stddev(self) -> float:
        """The standard deviation of the noise in units of the statistic."""
        return self.law.stddev * self.unit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """How private partitions are selected.

    Args:
        strategy: see `StageChoices`.
        min_users: partitions with fewer units are never kept.
        statistic: index of the statistic that is compared with the threshold.
        noise: its noise; None for the truncated geometric coin. The released noise of the same statistic, where `released`.
        released: whether the noisy value that is compared is itself published.
        threshold: in steps of the noise: kept at or above.
        epsilon, delta: of one partition's coin, for the truncated geometric strategy.
    """

    strategy: str
    min_users: int
    statistic: int
    noise: Noise | None = None
    released: bool = False
    threshold: int = 0
    epsilon: float = 0.0
    delta: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One aggregate stage, ready to run. Frozen, picklable, public."""

    name: str
    query: Query
    layout: Layout
    statistics: tuple[Statistic, ...]
    noises: tuple[Noise | None, ...]
    selection: Selection | None
    choices: StageChoices
    mechanisms: tuple[Mechanism, ...]
    statement: FrozenMapping[Any] = FrozenMapping({})
    """What the whole plan costs and how it is named, as JSON values: for the manifest."""
    payment: Payment | None = dataclasses.field(default=None, compare=False)
    """The run that pays for it: no part of what it is."""
    reads: Reads = dataclasses.field(kw_only=True)
    """What its rows are."""

    def basis(self, metric: Metric) -> Basis:
        """The basis in which the sums of a metric are taken."""
        return basis_of(metric, self.query, self.choices.centred)

    @property
    def threshold_users(self) -> float | None:
        """The noisy number of users from which a partition is kept; None where there is no such number."""
        if self.selection is None or self.selection.noise is None or self.selection.strategy == "weighted_gaussian":
            return None
        return self.selection.threshold * self.selection.noise.unit

    def choice_epsilon(self, place: int) -> Fraction:
        """Epsilon in one partition of a statistic that is chosen or scaled by ranks.

        Args:
            place: of the statistic among `statistics`.
        """
        statistic, noise = self.statistics[place], self.noises[place]
        assert noise is not None
        return choosing.epsilon_of_ranks(noise.law.scale, shape_of(statistic, self.query).steps(noise.step))

    @property
    def half_keep_users(self) -> float | None:
        """How many users a partition needs to be kept with probability 1/2 (weighted: users with all their partitions)."""
        if self.selection is None:
            return None
        if self.selection.noise is None:
            half = truncated_geometric.half_keep_users(self.selection.epsilon, self.selection.delta)
            return float(half + max(self.selection.min_users, 1) - 1)
        users = self.selection.threshold * self.selection.noise.unit
        return (
            users * math.sqrt(self.layout.max_partitions) if self.selection.strategy == "weighted_gaussian" else users
        )


def basis_of(metric: Metric, query: Query, centred: tuple[tuple[str, float, float], ...]) -> Basis:
    """The basis of a metric: its family's, nullable if any metric of the family says so."""
    family = [m for m in query.metrics.values() if m.family == metric.family and metric.family is not None]
    declared = [getattr(m, "nullable", None) for m in family]
    nullable = True in declared or not any(d is False for d in declared)
    return Basis(centred=metric.family is not None and metric.family in centred, nullable=nullable)


@functools.lru_cache(maxsize=1024)
def noisy_statistics(query: Query, centred: tuple[tuple[str, float, float], ...]) -> FrozenMapping[float]:
    """The statistics that metrics need, by name, with the weights that the metrics give them."""
    weights: dict[str, float] = {}
    for metric in query.metrics.values():
        needed = metric.statistics(basis_of(metric, query, centred))
        for statistic in needed:
            weights[statistic.name] = weights.get(statistic.name, 0.0) + metric.weight / len(needed)
    return FrozenMapping(weights)


def released_statistics(query: Query, centred: tuple[tuple[str, float, float], ...]) -> dict[str, Statistic]:
    """The statistics that metrics need, by name, in a fixed order."""
    return {
        statistic.name: statistic
        for metric in query.metrics.values()
        for statistic in metric.statistics(basis_of(metric, query, centred))
    }


def fixed_statistic(metric: Metric) -> Statistic:
    """The one statistic of a metric that asks for a noise level; no basis of its is centred."""
    return metric.statistics(Basis(centred=False, nullable=True))[0]


def fixed_noise(query: Query) -> FrozenMapping[float]:
    """The standard deviations that metrics ask for, by name of statistic, in units of the statistic."""
    asked = (metric for metric in query.metrics.values() if metric.stddev is not None)
    return FrozenMapping({fixed_statistic(metric).name: metric.stddev or 0.0 for metric in asked})


def shape_of(statistic: Statistic, query: Query) -> Shape:
    """How far one unit of this query moves a statistic."""
    bounds = query.bounds
    shape = statistic.shape(
        max_partitions=bounds.max_partitions,
        max_rows_per_partition=bounds.max_rows_per_partition,
        max_rows=bounds.max_contributions,
    )
    return reserve.reserved(shape, bounds.candidates) if bounds.auto else shape


class Scales(Protocol):
    """The scales of the two laws, one of each for a whole plan."""

    @property
    def gaussian_scale(self) -> Fraction:
        """The standard deviation, before rounding, in release steps."""
        ...

    @property
    def laplace_scale(self) -> Fraction:
        """The scale of the Laplace law in release steps."""
        ...


def build_stage(
    name: str, query: Query, choices: StageChoices, scales: Scales, reads: Reads | None = None
) -> StagePlan:
    """The stage that a query, the choices of calibration and the plan's two noise scales determine.

    Args:
        reads: what its rows are; left out, those of the stage of this name.

    Raises:
        RequestError: the choices were made for another query.
    """
    released = released_statistics(query, choices.centred)
    _refuse_misfit(query, choices, released)
    noises = {key: _noise(statistic, query, choices.noises[key], scales) for key, statistic in released.items()}
    statistics = dict(released)
    if query.best is not None:
        statistics[query.best.statistic.name] = query.best.statistic
    # Units decide whether a partition has anyone in it at all, whatever is released.
    statistics.setdefault(UNITS.name, UNITS)
    if choices.strategy == "weighted_gaussian":
        statistics[WEIGHTS.name] = WEIGHTS
    return StagePlan(
        name=name,
        query=query,
        layout=_layout(query, statistics),
        statistics=tuple(statistics.values()),
        noises=tuple(noises.get(key) for key in statistics),
        selection=_selection(query, choices, scales, list(statistics), noises.get(UNITS.name)),
        choices=choices,
        mechanisms=tuple(records(name, query, choices, scales)),
        reads=Rows(of=name) if reads is None else reads,
    )


def _refuse_misfit(query: Query, choices: StageChoices, released: dict[str, Statistic]) -> None:
    """Choices may have been stored: they must be such as calibration makes for this very query."""
    partitions, strategy = query.partitions, choices.strategy
    fits = (strategy is not None) == (isinstance(partitions, PrivatePartitions) or query.best is not None)
    if query.best is not None:
        fits &= strategy == query.best.mechanism and choices.selection_epsilon > 0
    needed, laws = set(released), {key: choice.law for key, choice in choices.noises.items()}
    if isinstance(partitions, PrivatePartitions):
        fits &= partitions.strategy in ("auto", strategy)
        fits &= 0 < choices.selection_delta < 1
        if strategy == "weighted_gaussian":
            fits &= partitions.min_users <= 1 and laws.get("selection") == "gaussian"
            needed.add("selection")
        elif strategy in ("laplace", "gaussian"):
            compared = UNITS.name if UNITS.name in released else "selection"
            fits &= laws.get(compared) == strategy
            needed.add(compared)
        else:
            fits &= strategy == "truncated_geometric" and choices.selection_epsilon > 0
    own = {metric.family for metric in query.metrics.values() if metric.stddev is not None}
    fits &= not own & set(choices.centred)
    fits &= set(laws) == needed and set(laws.values()) <= {"laplace", "gaussian"}
    fits &= not choosing.takes_delta(query) or 0 < choices.selection_delta < 1
    # A choice by ranks, and a median, have their epsilon from the scale of the Laplace law.
    fits &= all(laws.get(key) == FIXED_LAWS.get(s.kind, laws.get(key)) for key, s in released.items())
    if not (fits and all(choice.steps >= 1 for choice in choices.noises.values())):
        raise RequestError(field="plan", message="was made for another query", hint="plan anew")


def auto_statistics(query: Query, centred: tuple[tuple[str, float, float], ...]) -> frozenset[str]:
    """The statistics whose lattice depends on bounds that are not chosen yet."""
    needed = ((m, m.statistics(basis_of(m, query, centred))) for m in query.metrics.values() if m.auto)
    return frozenset(s.name for _, statistics in needed for s in statistics if s.lattice is not None)


def records(name: str, query: Query, choices: StageChoices, scales: Scales) -> list[Mechanism]:
    """The mechanism records of a stage: all that one privacy unit can change in what it releases."""
    released = released_statistics(query, choices.centred)
    open_yet = auto_statistics(query, choices.centred)
    made = []
    for key, choice in choices.noises.items():
        statistic = released.get(key) or (WEIGHTS if choices.strategy == "weighted_gaussian" else UNITS)
        noise = _noise(statistic, query, choice, scales)
        if statistic.kind == "weights":
            most = query.bounds.max_partitions
            squared = thresholds.weighted_l2_squared(1 << WEIGHT_BITS, noise.step, most)
            made.append(
                Mechanism(stage=name, name=key, kind="gaussian", scale=noise.law.scale, l2_squared=squared, l0=most)
            )
            continue
        if isinstance(statistic.vectors, ClippedVectors):
            made.append(record_of_sums(name, key, noise.law.scale, choice.steps, statistic.vectors))
            continue
        shape = shape_of(statistic, query)
        # A unit is at most `choice.steps` steps on any lattice (docs/proofs/sensitivity.md, lemmas 6a and 6b).
        open_now = query.bounds.auto or key in open_yet
        moved = shape.ideally(choice.steps) if open_now else shape.steps(noise.step)
        if statistic.kind == "ranks":
            made.append(choosing.record_of_ranks(name, key, noise.law.scale, moved))
        elif statistic.kind == "smooth_median":
            made.append(choosing.record_of_median(name, key, noise.law.scale, moved, choices.selection_delta))
        else:
            made.append(record(name, key, choice.law, noise.law.scale, moved))
    if choices.strategy is not None:
        made.append(
            selection_failure(name, query, choices.strategy, choices.selection_epsilon, choices.selection_delta)
        )
    return [grouped(record, query) for record in made]


def grouped(record: Mechanism, query: Query) -> Mechanism:
    """The record with the group of units that the query reads."""
    return record if query.group is None else dataclasses.replace(record, group=query.group)


def record(stage: str, name: str, law: str, scale: Fraction, moved: LatticeSteps) -> Mechanism:
    """The record of one noisy statistic that one unit moves by so many steps."""
    if law == "gaussian":
        squared = moved.l2_squared
        return Mechanism(stage=stage, name=name, kind="gaussian", scale=scale, l2_squared=squared, l0=moved.l0)
    return Mechanism(stage=stage, name=name, kind="laplace", scale=scale, l0=moved.l0, linf=moved.linf, l1=moved.l1)


def selection_failure(stage: str, query: Query, strategy: str, epsilon: float, delta: float) -> Mechanism:
    """The record of what selection costs beside the noise that it compares: its coins or choices, or its chance to fail."""
    if query.best is not None:
        return choosing.record(stage, query, epsilon)
    if strategy != "truncated_geometric":
        return Mechanism(stage=stage, name="selection threshold", kind="delta", delta=delta)
    most = query.bounds.max_partitions
    return Mechanism(
        stage=stage,
        name="selection",
        kind="approximate_dp",
        epsilon=epsilon,
        delta=thresholds.for_each(delta, most),
        l0=most,
    )


def _noise(statistic: Statistic, query: Query, choice: Choice, scales: Scales) -> Noise:
    """The noise of a statistic, on a lattice where its unit of change is at most `choice.steps` steps, or as it was asked for."""
    unit = 1 << WEIGHT_BITS if statistic.kind == "weights" else shape_of(statistic, query).unit
    scale = scales.gaussian_scale if choice.law == "gaussian" else scales.laplace_scale
    step, asked = -(-unit // choice.steps), fixed_noise(query).get(statistic.name)
    if asked is not None:
        spread = asked / statistic.fine_step / (1.0 if choice.law == "gaussian" else math.sqrt(2))
        step = min(unit, max(1, round(spread / FIXED_SCALE)))
        scale = Fraction(max(1, round(spread / step * 64)), 64)
    law: Law = RoundedGaussian(scale) if choice.law == "gaussian" else FlooredLaplace(scale)
    return Noise(law=law, step=step, fine_bits=statistic.fine_bits, fine_step=statistic.fine_step)


def _selection(
    query: Query, choices: StageChoices, scales: Scales, statistics: list[str], released: Noise | None
) -> Selection | None:
    if not isinstance(query.partitions, PrivatePartitions):
        return None
    strategy, delta, most = choices.strategy, choices.selection_delta, query.bounds.max_partitions
    assert strategy is not None
    first = max(query.partitions.min_users, 1)
    units = statistics.index(UNITS.name)
    if strategy == "truncated_geometric":
        return Selection(
            strategy=strategy,
            min_users=first,
            statistic=units,
            epsilon=choices.selection_epsilon,
            delta=thresholds.for_each(delta, most),
        )
    if strategy == "weighted_gaussian":
        noise = _noise(WEIGHTS, query, choices.noises["selection"], scales)
        threshold = thresholds.weighted_threshold(noise.law, 1 << WEIGHT_BITS, noise.step, most, delta)
        at = statistics.index(WEIGHTS.name)
        return Selection(strategy=strategy, min_users=first, statistic=at, noise=noise, threshold=threshold)
    own = choices.noises.get("selection")
    compared = released if own is None else _noise(UNITS, query, own, scales)
    assert compared is not None
    # Where a partition may be kept for the first time, it must stay hidden but with probability delta.
    at_first = ((first << compared.fine_bits) + compared.step // 2) // compared.step
    return Selection(
        strategy=strategy,
        min_users=first,
        statistic=units,
        noise=compared,
        released=own is None,
        threshold=thresholds.count_threshold(compared.law, at_first, most, delta),
    )


def _layout(query: Query, released: dict[str, Statistic]) -> Layout:
    pairs = list(dict.fromkeys((s.column or "", s.lattice) for s in released.values() if s.lattice is not None))
    public, vectors = None, vectors_of(list(released.values()))
    if isinstance(query.partitions, PublicPartitions):
        public = tuple(tuple(column) for column in zip(*query.partitions.keys, strict=True))
    return Layout(
        units=query.unit_columns,
        partitions=query.partition_columns,
        values=tuple((column, lattice) for column, lattice in pairs if isinstance(lattice, Lattice)),
        row_id=query.row_id,
        summands=tuple((column, lattice) for column, lattice in pairs if isinstance(lattice, SummandLattice)),
        max_partitions=query.bounds.max_partitions,
        max_rows_per_partition=query.bounds.max_rows_per_partition,
        max_rows=query.bounds.max_contributions,
        public=public,
        cells=tuple(cells_of(list(released.values()))),
        distinct=tuple(distinct_of(list(released.values()))),
        vectors=tuple((s.column or "", s.vectors) for s in vectors if isinstance(s.vectors, VectorLattice)),
        moments=tuple(s.vectors for s in vectors if isinstance(s.vectors, Moments)),
    )
