"""A stage whose bounds were chosen: the lattices change, what was accounted for does not.

In: a stage of a plan with bounds that say `auto`; what was chosen: the bounds on partitions and on rows in each, and a pair of
bounds for each metric that says so. Out: the stage, ready to run. Holds: the mechanism records stay those of the plan. They hold
for any bounds of values: noise has a law in release steps, which does not change, and a release step is `ceil(unit / steps)` of
the lattice on which a unit of change is `unit`; so that unit is `ceil(unit / step) <= steps` release steps, whatever the unit is
(`step >= unit / steps`, hence `unit / step <= steps`, a whole number: docs/proofs/sensitivity.md, lemma 6a). For the bounds on
partitions and rows see `planning.reserve` (lemma 6b). The plan's record is made with `steps` itself; and what the resolved
lattices do is compared with it all the same.
"""

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.lattice import Lattice
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.mechanisms.added_noise import noise_record
from dp_pipelines.mechanisms.mechanism import Noise
from dp_pipelines.metrics.base import UNITS, Metric
from dp_pipelines.planning import reserve
from dp_pipelines.planning.stage import WEIGHTS, StagePlan, basis_of, build_stage, shape_of

Ends = tuple[float, float]
Families = dict[tuple[str, float, float], tuple[str, float, float]]


def is_open(stage: StagePlan) -> bool:
    """Return True if the stage has bounds that must be chosen before it can run."""
    return stage.query.bounds.auto or any(metric.auto for metric in stage.query.metrics.values())


@dataclasses.dataclass(frozen=True)
class _Scales:
    """The scales of a plan, as the records of one of its stages have them; 1 for a law that the stage does not use."""

    gaussian_scale: Fraction
    laplace_scale: Fraction


def with_partitions(stage: StagePlan, partitions: int | None, rows: int | None = None) -> StagePlan:
    """Return the stage with these bounds on the contributions of a unit; bounds of values may still be open.

    Args:
        stage: a stage of a plan with a bound that is to be chosen.
        partitions: one of the candidates of the bound on partitions; None if it is fixed.
        rows: one of those of the bound on rows in a partition; None if it is fixed.
    """
    query = dataclasses.replace(stage.query, bounds=stage.query.bounds.choosing(partitions, rows))
    named = {statistic.name: statistic for statistic in stage.statistics}
    noises = {}
    for name, choice in stage.choices.noises.items():
        compared = WEIGHTS if stage.choices.strategy == "weighted_gaussian" else UNITS
        statistic = named.get(name, compared)
        steps = choice.steps  # weights have an L2 norm that is bounded for any number of partitions
        if statistic != WEIGHTS:
            steps = reserve.steps_at(shape_of(statistic, stage.query), choice.law, steps, shape_of(statistic, query))
        noises[name] = dataclasses.replace(choice, steps=steps)
    scales = {record.kind: record.scale for record in stage.mechanisms if record.scale is not None}
    of_plan = _Scales(*(scales.get(law, Fraction(1)) for law in ("gaussian", "laplace")))
    choices = dataclasses.replace(stage.choices, noises=FrozenMapping(noises))
    ready = build_stage(stage.name, query, choices, of_plan, stage.reads)
    planned = {record.name: record for record in stage.mechanisms}
    if not all(_dominates(planned[mechanism.name], mechanism) for mechanism in ready.mechanisms):
        raise AssertionError("a bound on contributions that was chosen costs more than the plan says")
    return dataclasses.replace(ready, mechanisms=stage.mechanisms, statement=stage.statement, payment=stage.payment)


def resolve(stage: StagePlan, bounds: Mapping[str, Ends]) -> StagePlan:
    """Return the stage with these bounds.

    Args:
        stage: a stage of a plan.
        bounds: lower and upper bound of each metric that says `auto`, within its range; the same for metrics of one family.
    """
    metrics, families = _bounded(stage, bounds)
    query = dataclasses.replace(stage.query, metrics=metrics)
    centred = tuple(families.get(family, family) for family in stage.choices.centred)
    renamed: dict[Statistic, Statistic] = {}
    for name, metric in stage.query.metrics.items():
        if metric.auto:
            basis = basis_of(query.metrics[name], query, centred)
            both = zip(metric.statistics(stage.basis(metric)), query.metrics[name].statistics(basis), strict=True)
            renamed.update(both)
    statistics = tuple(renamed.get(statistic, statistic) for statistic in stage.statistics)
    names = {old.name: new.name for old, new in zip(stage.statistics, statistics, strict=True)}
    if len(set(statistics)) != len(statistics):
        raise AssertionError("two statistics have become one")
    noises: list[Noise | None] = []
    records: list[MechanismRecord] = []
    planned = {mechanism.name: mechanism for mechanism in stage.mechanisms}
    for old, new, noise in zip(stage.statistics, statistics, stage.noises, strict=True):
        if noise is not None and old != new:
            choice, shape = stage.choices.noises[old.name], shape_of(new, query)
            noise = dataclasses.replace(
                noise, step=choice.step(shape.unit), fine_bits=new.fine_bits, fine_step=new.fine_step
            )
            moved = shape.steps(noise.step, joined=choice.units > 1)
            records.append(noise_record(stage.name, new.name, choice.law, noise.law.scale, moved))
            if not _dominates(planned[old.name], records[-1]):
                raise AssertionError("bounds that were chosen cost more than the plan says")
        noises.append(noise)
    choices = {names.get(key, key): choice for key, choice in stage.choices.noises.items()}
    mechanisms = tuple(dataclasses.replace(m, name=names.get(m.name, m.name)) for m in stage.mechanisms)
    lattices = {
        (old.column, old.lattice): new.lattice for old, new in renamed.items() if isinstance(new.lattice, Lattice)
    }
    values = tuple((column, lattices.get((column, lattice), lattice)) for column, lattice in stage.layout.values)
    return dataclasses.replace(
        stage,
        query=query,
        layout=dataclasses.replace(stage.layout, values=values),
        statistics=statistics,
        noises=tuple(noises),
        choices=dataclasses.replace(stage.choices, noises=FrozenMapping(choices), centred=centred),
        mechanisms=mechanisms,
    )


def _bounded(stage: StagePlan, bounds: Mapping[str, Ends]) -> tuple[dict[str, Metric], Families]:
    """Return the metrics with their bounds, and the families that have changed. No two families become one."""
    taken = {metric.family for metric in stage.query.metrics.values() if not metric.auto}
    families: Families = {}
    metrics = {}
    for name, metric in stage.query.sorted_metrics:
        family = metric.family
        if metric.auto and family is not None:
            column, (low, high) = family[0], bounds[name]
            if not family[1] <= low < high <= family[2]:
                raise AssertionError("bounds lie outside of their range")
            while family not in families and (column, low, high) in taken:
                # Two metrics with noises of their own must not come to share a sum: the next float is as good.
                low, high = (
                    (low, math.nextafter(high, low)) if metric.max_is_auto else (math.nextafter(low, high), high)
                )
            families.setdefault(family, (column, low, high))
            taken.add(families[family])
            metric = metric.bounded(*families[family][1:])
        metrics[name] = metric
    return {name: metrics[name] for name in stage.query.metrics}, families


def _dominates(planned: MechanismRecord, made: MechanismRecord) -> bool:
    """Return True if the planned record allows at least as much as another one of the same noise."""
    same = planned.kind == made.kind and planned.scale == made.scale
    changes = ("l0", "linf", "l1", "l2_squared", "epsilon", "delta")
    return same and all(getattr(made, c) <= getattr(planned, c) for c in changes if getattr(made, c) is not None)
