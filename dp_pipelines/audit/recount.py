"""A second count of the numbers that planning derives: sensitivities, fan-outs of rollups, the joint cost of all records.

In: the bounds and the public lists of a job, the lattices on which statistics are counted. Out: the numbers that records must
state, and findings where a plan has others. Holds: nothing here calls planning, or reads a number that it has derived; formulas
are those of docs/proofs, written down again. Not covered: how far kernels let a unit move a statistic (tests/privacy); the
accountant, which composes both totals.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.query.rollup import RollupLevel

ACCURACY = 1e-5
"""Relative accuracy of the recomposed total: a correct plan states at least the truth, and ours is at most this part above it."""


def levels(plan: Plan) -> dict[str, RollupLevel]:
    """Count the groups of each level of each rollup and the partitions of the largest group, from the public list.

    >>> from dp_pipelines import ContributionBounds, Count
    >>> query = Query(privacy_unit="customer", partition_by=["region", "week"], metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2),
    ...               partitions=PublicPartitions(keys=[("n", 1), ("n", 2), ("s", 1)]),
    ...               rollup=[[], ["region"], ["region", "week"]])
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> [(level.most_leaves, level.groups) for level in levels(plan).values()]
    [(3, 1), (2, 2), (1, 3)]
    """
    counted: dict[str, RollupLevel] = {}
    for name, coarser in plan.rolled.items():
        finest = plan.queries[name]
        for number, part in enumerate((*coarser, name)):
            counted[part] = _level(finest, plan.queries[part].partition_columns, number, leaves=part == name)
    return counted


def _level(finest: Query, by: Sequence[str], number: int, *, leaves: bool) -> RollupLevel:
    if not isinstance(finest.partitions, PublicPartitions):
        groups = None if leaves or by else 1
        return RollupLevel(number=number, most_leaves=1 if leaves else None, groups=groups, leaves=leaves)
    places = [finest.partition_columns.index(column) for column in by]
    listed = finest.partitions.columns
    if isinstance(listed, KeyFile) and not by:
        return RollupLevel(number=number, groups=1)
    if isinstance(listed, KeyFile) and leaves:
        return RollupLevel(number=number, most_leaves=1, groups=listed.count, leaves=True)
    sizes = Counter(tuple(key[place] for place in places) for key in _keys(finest))
    # A list on disk lets rows of some unlisted partitions pass, so that a group may hold all partitions of a unit.
    most = None if isinstance(listed, KeyFile) else max(sizes.values())
    return RollupLevel(number=number, most_leaves=1 if leaves else most, groups=len(sizes), leaves=leaves)


def _keys(query: Query) -> Iterator[tuple[Any, ...]]:
    """Yield the listed keys as Python values that are equal if the keys are equal."""
    assert isinstance(query.partitions, PublicPartitions)
    listed = query.partitions.columns
    if isinstance(listed, KeyFile):
        tables: Iterable[Sequence[Any]] = (listed.bucket(number).columns for number in range(1 << listed.bits))
    else:
        tables = [listed.arrays(query.partition_columns)]
    for columns in tables:
        for key in zip(*(column.to_pylist() for column in columns), strict=True):
            yield tuple(_comparable(value) for value in key)


def _comparable(value: Any) -> Any:
    """Return a value for which `==` agrees with equality of keys: all NaN are one key, and so are both zeros."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def recounted(stage: StagePlan, counted: Mapping[str, RollupLevel]) -> StagePlan:
    """Return a stage whose query has the recounted level in place of the plan's; others are returned as they are."""
    level = counted.get(stage.name)
    return stage if level is None else dataclasses.replace(stage, query=dataclasses.replace(stage.query, level=level))


def understated_total(plan: Plan, rounds: Sequence[tuple[Sequence[MechanismRecord], int]]) -> str:
    """Describe a total that is below what all records cost together, or above the budget; empty if there is none.

    Args:
        plan: the plan.
        rounds: recomputed records of each kind of round, and how often it runs.
    """
    stated, delta = plan.accounted["epsilon"], plan.accounted["delta"]
    wrong = []
    if plan.delta > 0:
        cost, allowed = accountant.epsilon_of_rounds(rounds, plan.delta, accuracy=ACCURACY), 1 + 2 * ACCURACY
        if delta > plan.delta:
            wrong.append(f"delta {delta} is stated, the budget has {plan.delta}")
    else:
        every = [record for records, runs in rounds for _ in range(runs) for record in records]
        pure, allowed = accountant.pure_epsilon_of(every), 1 + 1e-12
        cost = math.inf if pure is None else float(pure)
    if not cost <= stated * allowed:
        wrong.append(f"epsilon {stated} is stated, all records together cost {cost}")
    if not cost <= plan.epsilon * allowed:
        wrong.append(f"epsilon {cost} is spent, the budget has {plan.epsilon}")
    return "; ".join(wrong)
