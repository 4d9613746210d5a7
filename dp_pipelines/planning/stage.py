"""One stage of a plan, frozen: what workers need to bound, accumulate, select and add noise, and nothing about budgets.

In: a query and the choices that calibration made (integers). Out: statistics, noises, thresholds, and the mechanism records
of the whole stage. Holds: everything is derived from the query and the choices, so that a plan can be stored as its choices;
each record bounds the effect of all rows of one privacy unit on what the stage releases (docs/proofs/sensitivity.md).
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.columns.type_names import declared_types
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.moments import Moments
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.kernels.statistics import WEIGHT_BITS, Statistic, UnitWeights, cells_of, distinct_of, vectors_of
from dp_pipelines.kernels.vectors import VectorLattice
from dp_pipelines.mechanisms.by_statistic import mechanism_of
from dp_pipelines.mechanisms.mechanism import Calibration, Noise
from dp_pipelines.metrics.base import UNITS, Basis, Metric
from dp_pipelines.noise.laws import FlooredLaplace, Law, RoundedGaussian
from dp_pipelines.plan_stages.reads import Reads, Rows
from dp_pipelines.planning import reserve
from dp_pipelines.planning.payment import Payment
from dp_pipelines.planning.stage_choices import Choice, Scales, StageChoices
from dp_pipelines.planning.stage_kinds import StageKind, kind_of
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, Query
from dp_pipelines.query.released_schema import released_schema
from dp_pipelines.query.windows import Windows
from dp_pipelines.selection import thresholds, truncated_geometric

WEIGHTS = UnitWeights()

# Equal stages have equal thresholds, which take milliseconds of exact arithmetic each.
_weighted_threshold = functools.lru_cache(maxsize=1024)(thresholds.weighted_threshold)
_count_threshold = functools.lru_cache(maxsize=1024)(thresholds.count_threshold)

FIXED_SCALE = 1024
"""The scale, in steps, that a noise level is given which a metric asks for; it is met to within a part in 10^5."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The parameters of private selection in a stage.

    Args:
        strategy: see `StageChoices`.
        min_users: partitions with fewer units are never kept.
        statistic: index of the statistic that is compared with the threshold.
        noise: its noise; None for the truncated geometric coin. The released noise of the same statistic, where `released`.
        released: True if the noisy value that is compared is itself published.
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
    mechanisms: tuple[MechanismRecord, ...]
    statement: FrozenMapping[Any] = FrozenMapping({})
    """Cost and name of the whole plan, as JSON values: for the manifest."""
    payment: Payment | None = dataclasses.field(default=None, compare=False)
    """The run that pays for it: no part of what it is."""
    reads: Reads = dataclasses.field(kw_only=True)
    """The rows that it reads."""
    coarser: tuple["StagePlan", ...] = ()
    """For a rollup: the levels above this one, which is the finest, from the coarsest."""

    @property
    def levels(self) -> tuple["StagePlan", ...]:
        """Return all levels of a rollup, from the coarsest; for other stages only itself."""
        return (*self.coarser, self)

    def basis(self, metric: Metric) -> Basis:
        """Return the basis in which the sums of a metric are taken."""
        return basis_of(metric, self.query, self.choices.centred)

    @property
    def threshold_users(self) -> float | None:
        """Return the noisy number of users from which a partition is kept; None where there is no such number."""
        if self.selection is None or self.selection.noise is None or self.selection.strategy == "weighted_gaussian":
            return None
        return self.selection.threshold * self.selection.noise.unit

    @property
    def kind(self) -> StageKind:
        """Return its kind: it releases aggregates, chooses the best partitions, or trains."""
        return kind_of(self.query)

    @property
    def sums(self) -> tuple[ClippedVectors, ...]:
        """Return the vector sums that training releases in it."""
        return tuple(self.kind.sums({statistic.name: statistic for statistic in self.statistics}).values())

    def calibration(self, place: int) -> Calibration:
        """Return the calibration of a statistic with noise.

        Args:
            place: of the statistic among `statistics`.
        """
        statistic, noise = self.statistics[place], self.noises[place]
        assert noise is not None
        return _calibration(statistic.name, statistic, self.query, self.choices, noise)

    @property
    def windows(self) -> Windows | None:
        """Return the windows of event time whose start and end its rows have as columns."""
        return self.reads.windows if isinstance(self.reads, Rows) else None

    def output_schema(self, types: pa.Schema | Mapping[str, pa.DataType | str]) -> pa.Schema:
        """Return the columns of the released table: partition columns, then the values and standard deviations of each metric.

        Args:
            types: of the input's columns, of which those that partition are looked up: a schema, or types by name.

        Raises:
            RequestError: a partition column has no type there.

        >>> from dp_pipelines import *
        >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
        ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
        >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
        >>> plan["weekly"].output_schema({"region": "string"})
        region: string
        orders: double
        orders_stddev: double
        """
        known = dict(zip(types.names, types.types, strict=True)) if isinstance(types, pa.Schema) else types
        known = declared_types(known) if known else {}
        for column in self.query.partition_by:
            if column not in known:
                hint = nearest(column, known, "known columns") or f'write e.g. {{"{column}": "string"}}'
                raise RequestError(field=f"types[{column!r}]", message="is missing, and partitions", hint=hint)
        return released_schema(self.query, pa.schema(known))

    @property
    def half_keep_users(self) -> float | None:
        """Return how many users a partition needs to be kept with probability 1/2 (weighted: users with all their partitions)."""
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
    """Return the basis of a metric: its family's, nullable if any metric of the family is; its own if it has no family."""
    family = [m for m in query.metrics.values() if m.family == metric.family and metric.family is not None] or [metric]
    declared = [getattr(m, "nullable", None) for m in family]
    nullable = True in declared or not any(d is False for d in declared)
    return Basis(centred=metric.family is not None and metric.family in centred, nullable=nullable)


@functools.lru_cache(maxsize=1024)
def noisy_statistics(query: Query, centred: tuple[tuple[str, float, float], ...]) -> FrozenMapping[float]:
    """Return the statistics that metrics need, by name, with the weights that the metrics give them."""
    weights: dict[str, float] = {}
    for _, metric in query.sorted_metrics:
        needed = metric.statistics(basis_of(metric, query, centred))
        for statistic in needed:
            weights[statistic.name] = weights.get(statistic.name, 0.0) + metric.weight / len(needed)
    return FrozenMapping(weights)


@functools.lru_cache(maxsize=1024)
def released_statistics(query: Query, centred: tuple[tuple[str, float, float], ...]) -> FrozenMapping[Statistic]:
    """Return the statistics that metrics need, by name, in an order that does not depend on the order of the metrics."""
    return FrozenMapping(
        {
            statistic.name: statistic
            for _, metric in query.sorted_metrics
            for statistic in metric.statistics(basis_of(metric, query, centred))
        }
    )


def fixed_statistic(metric: Metric) -> Statistic:
    """Return the one statistic of a metric that asks for a noise level; no basis of its is centred."""
    return metric.statistics(Basis(centred=False, nullable=True))[0]


def fixed_noise(query: Query) -> FrozenMapping[float]:
    """Return the standard deviations that metrics ask for, by name of statistic, in units of the statistic."""
    with_stddev = (metric for metric in query.metrics.values() if metric.stddev is not None)
    return FrozenMapping({fixed_statistic(metric).name: metric.stddev or 0.0 for metric in with_stddev})


def shape_of(statistic: Statistic, query: Query) -> Shape:
    """Return how far one unit of this query moves a statistic."""
    bounds = query.bounds
    shape = statistic.shape(
        max_partitions=bounds.max_partitions,
        max_rows_per_partition=bounds.max_rows_per_partition,
        max_rows=bounds.max_contributions,
    )
    if query.level is not None:
        return query.level.shape(shape, adds_up=statistic.adds_up)
    if query.parties is not None:
        return shape.in_tables(query.parties.times)
    return reserve.reserved(shape, bounds.candidates) if bounds.auto else shape


def build_stage(
    name: str, query: Query, choices: StageChoices, scales: Scales, reads: Reads | None = None
) -> StagePlan:
    """Return the stage that a query, the choices of calibration and the plan's two noise scales determine.

    Args:
        reads: what its rows are; left out, those of the stage of this name.

    Raises:
        RequestError: the choices were made for another query.
    """
    released = released_statistics(query, choices.centred)
    _refuse_misfit(query, choices, released)
    noises = {key: _noise(statistic, query, choices.noises[key], scales) for key, statistic in released.items()}
    statistics = {**released, **kind_of(query).compared}
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


def _refuse_misfit(query: Query, choices: StageChoices, released: Mapping[str, Statistic]) -> None:
    """Refuse stored choices that calibration would not make for this query."""
    laws = {key: choice.law for key, choice in choices.noises.items()}
    own = {metric.family for metric in query.metrics.values() if metric.stddev is not None}
    fits = kind_of(query).fits(choices, released) and not own & set(choices.centred)
    fits &= set(laws.values()) <= {"laplace", "gaussian"}
    fits &= not query.takes_delta or 0 < choices.selection_delta < 1
    # A choice by ranks, and a median, have their epsilon from the scale of the Laplace law.
    fits &= all(mechanism_of(s).law in (None, laws.get(key)) for key, s in released.items())
    if not (fits and all(min(choice.steps, choice.units) >= 1 for choice in choices.noises.values())):
        raise RequestError(field="plan", message="was made for another query", hint="make a new plan")


@functools.lru_cache(maxsize=1024)
def auto_statistics(query: Query, centred: tuple[tuple[str, float, float], ...]) -> frozenset[str]:
    """Return the statistics whose lattice depends on bounds that are not chosen yet."""
    needed = ((m, m.statistics(basis_of(m, query, centred))) for m in query.metrics.values() if m.auto)
    return frozenset(s.name for _, statistics in needed for s in statistics if s.lattice is not None)


def records(name: str, query: Query, choices: StageChoices, scales: Scales) -> list[MechanismRecord]:
    """Return the mechanism records of a stage: all that one privacy unit can change in what it releases."""
    released = released_statistics(query, choices.centred)
    stage_records = []
    for key, choice in choices.noises.items():
        statistic = released.get(key) or (WEIGHTS if choices.strategy == "weighted_gaussian" else UNITS)
        settled = _calibration(key, statistic, query, choices, _noise(statistic, query, choice, scales))
        stage_records.append(mechanism_of(statistic).record(name, key, settled))
    if choices.strategy is not None:
        epsilon, delta = choices.selection_epsilon, choices.selection_delta
        stage_records.append(kind_of(query).decision_record(name, choices.strategy, epsilon, delta))
    return [grouped(record, query) for record in stage_records]


def _calibration(key: str, statistic: Statistic, query: Query, choices: StageChoices, noise: Noise) -> Calibration:
    """Return the calibration of a statistic, or of the one that selection alone compares, under its key."""
    choice = choices.noises[key]
    return Calibration(
        statistic=statistic,
        noise=noise,
        law=choice.law,
        steps=choice.steps,
        units=choice.units,
        shape=_whole_units(statistic, query),
        is_open=query.bounds.auto or key in auto_statistics(query, choices.centred),
        max_partitions=query.bounds.max_partitions,
        max_rows_per_partition=query.bounds.max_rows_per_partition,
        delta=choices.selection_delta,
    )


def _whole_units(statistic: Statistic, query: Query) -> Shape | None:
    """Return the shape of a statistic; None for weights, which have a bounded L2 norm."""
    return None if statistic == WEIGHTS else shape_of(statistic, query)


def grouped(record: MechanismRecord, query: Query) -> MechanismRecord:
    """Return the record with the group of units that the query reads."""
    return record if query.group is None else dataclasses.replace(record, group=query.group)


def _noise(statistic: Statistic, query: Query, choice: Choice, scales: Scales) -> Noise:
    """Return the noise of a statistic.

    One unit of change is at most `choice.steps` steps of its lattice, unless a metric asks for a noise level.
    """
    unit = mechanism_of(statistic).unit(_whole_units(statistic, query))
    scale = scales.gaussian_scale if choice.law == "gaussian" else scales.laplace_scale
    step, stddev = choice.step(unit), fixed_noise(query).get(statistic.name)
    if stddev is not None:
        spread = stddev / statistic.fine_step / (1.0 if choice.law == "gaussian" else math.sqrt(2))
        step = min(unit, max(1, round(spread / FIXED_SCALE)))
        scale = Fraction(max(1, round(spread / step * 64)), 64)
    law: Law = RoundedGaussian(scale) if choice.law == "gaussian" else FlooredLaplace(scale)
    draws = 1 if query.parties is None else query.parties.draws
    return Noise(law=law, step=step, fine_bits=statistic.fine_bits, fine_step=statistic.fine_step, draws=draws)


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
        threshold = _weighted_threshold(noise.law, 1 << WEIGHT_BITS, noise.step, most, delta)
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
        threshold=_count_threshold(compared.law, at_first, most, delta),
    )


def _layout(query: Query, released: dict[str, Statistic]) -> Layout:
    pairs = list(dict.fromkeys((s.column or "", s.lattice) for s in released.values() if s.lattice is not None))
    vectors = vectors_of(list(released.values()))
    return Layout(
        units=query.unit_columns,
        partitions=query.partition_columns,
        values=tuple((column, lattice) for column, lattice in pairs if isinstance(lattice, Lattice)),
        row_id=query.row_id,
        summands=tuple((column, lattice) for column, lattice in pairs if isinstance(lattice, SummandLattice)),
        max_partitions=query.bounds.max_partitions,
        max_rows_per_partition=query.bounds.max_rows_per_partition,
        max_rows=query.bounds.max_contributions,
        public=query.partitions.columns if isinstance(query.partitions, PublicPartitions) else None,
        other=query.other_column is not None,
        cells=tuple(cells_of(list(released.values()))),
        distinct=tuple(distinct_of(list(released.values()))),
        vectors=tuple((s.column or "", s.vectors) for s in vectors if isinstance(s.vectors, VectorLattice)),
        moments=tuple(s.vectors for s in vectors if isinstance(s.vectors, Moments)),
    )
