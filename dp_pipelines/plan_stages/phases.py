"""Stages that need several pipelines: what each releases is a constant of the next.

In: queries as they are asked. Out: plain queries, one for each thing that is released, and the order of pipelines. Holds: all of
them are in the plan before a row is read, whatever the earlier ones will release; a draw on which something later depends ends
its pipeline, and whoever runs them must fix its first complete result before the next begins (jobs.run.ledgered_run).
"""

# Selection in rounds (Swanberg, Desfontaines, Haney 2023, DP-SIPS): three selections by weighted Gaussian with growing
# budget. What a round releases leaves the game, so that in the next one each unit's weight falls on fewer, smaller
# partitions; then the metrics are released over the union, which is a constant list. Each round is an ordinary selection of
# the rows of other partitions than those released: which rows take part is a function of what was released, so the rounds
# compose as mechanisms that are chosen one after the other (docs/proofs/accounting.md, lemma 1).
#
# Bounds that say `auto`: a histogram of the column over all rows comes first, in groups of partitions (`partition_groups`; one
# for a total), with a contribution bound and a share of its own; what it shows decides the bounds of the stage
# (dp_pipelines.auto_bounds.value_bounds), whose records hold for any bounds (planning.resolve). A bound on partitions that says
# `auto` is decided in the same way by a histogram of units: one row of each, with the number of its partitions, made by whoever
# runs the pipeline (dp_pipelines.auto_bounds.partition_bound, planning.reserve). Where the bound on rows in a partition says
# `auto` too, that row has also the number of rows in one of the unit's partitions, and one decision picks both bounds
# (dp_pipelines.auto_bounds.joint_bounds).
#
# What bounds cut off (`kept`) is a stage of its own beside the last phase: one vector of each unit, made by whoever runs the
# pipeline (dp_pipelines.plan_stages.kept_counts).
#
# Arms of a test (`compare`) are a stage of their own beside it too, whose sums the comparison is computed from
# (dp_pipelines.plan_stages.arm_moments).
#
# The levels of a rollup are stages of their own in the plan, and of one pipeline: it bounds contributions once, for the finest
# level, and releases all levels together (`rollup_levels`, docs/proofs/rollup.md).
#
# A train stage becomes its parts (dp_pipelines.plan_stages.training_parts), which read examples and no pipeline's rows.

import dataclasses
import math
from collections.abc import Mapping

from dp_pipelines.auto_bounds import joint_bounds, partition_bound, value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.plan_stages import (
    arm_moments,
    kept_counts,
    one_partition,
    partition_groups,
    rollup_levels,
    sharing,
    training_parts,
)
from dp_pipelines.plan_stages.reads import (
    ArmRows,
    Groups,
    Reads,
    Rows,
    StagedExamples,
    UnitFacts,
    UnitPartitionCounts,
)
from dp_pipelines.plan_stages.sharing import Sharing
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, Query, ReleasedPartitions
from dp_pipelines.query.train_model import TrainModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expanded:
    """Queries, each for one pipeline step.

    Args:
        queries: by name of stage, those that only select among them.
        shares: of the budget.
        phases: names of the stages of each pipeline, in order. A stage of the last one that is not in `queries` releases nothing
            of its own: it is the union of what was selected.
        selections: for each stage that was asked for and needs them, the names of its selections.
        auto: for each stage with bounds of values that say `auto`, the name of the stage that releases its histograms.
        auto_contributions: for each stage with a bound on contributions that says `auto`, the name of the stage that releases
            how many partitions, and rows in one of them, units have.
        reads: what each of the queries reads.
        kept: for each stage that says what its bounds cut off, the name of the stage that releases it. It runs with the last
            phase, when the bounds are known, and is published with the stage.
        compared: for each stage that compares arms, the name of the stage that releases their sums; likewise.
        rolled: for each stage with a rollup, the names of the levels above the finest, which has the name of the stage; they run
            with it.
        trained: the train stages. Their parts are in `queries`, and in no phase: they run after all pipelines.
    """

    queries: FrozenMapping[Query]
    shares: FrozenMapping[float]
    phases: tuple[tuple[str, ...], ...]
    selections: FrozenMapping[tuple[str, ...]]
    reads: FrozenMapping[Reads]
    auto: FrozenMapping[str] = FrozenMapping({})
    auto_contributions: FrozenMapping[str] = FrozenMapping({})
    kept: FrozenMapping[str] = FrozenMapping({})
    compared: FrozenMapping[str] = FrozenMapping({})
    rolled: FrozenMapping[tuple[str, ...]] = FrozenMapping({})
    trained: FrozenMapping[TrainModel] = FrozenMapping({})


def expand(
    asked: Mapping[str, Query | TrainModel], shares: Mapping[str, float], rule: Sharing = sharing.NOW
) -> Expanded:
    """The plain queries of what is asked.

    Args:
        asked: by name.
        shares: of the budget, by name.
        rule: how the parts of a stage share what the stage has.

    Raises:
        RequestError: a name is taken.

    >>> from dp_pipelines import ContributionBounds, Count
    >>> query = Query(privacy_unit="u", partition_by="k", metrics={"rows": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
    ...               partitions=PrivatePartitions(strategy="sips"))
    >>> expand({"weekly": query}, {"weekly": 1.0}).phases
    (('weekly.select1',), ('weekly.select2',), ('weekly.select3',), ('weekly',))
    """
    queries: dict[str, Query] = {}
    parts: dict[str, float] = {}
    reads: dict[str, Reads] = {}
    rounds: list[list[str]] = [[] for _ in rule.rounds]
    selections: dict[str, tuple[str, ...]] = {}
    auto: dict[str, str] = {}
    auto_contributions: dict[str, str] = {}
    kept: dict[str, str] = {}
    compared: dict[str, str] = {}
    rolled: dict[str, tuple[str, ...]] = {}
    shares = dict(shares)
    asked = {n: training_parts.settled(of, rule) if isinstance(of, TrainModel) else of for n, of in asked.items()}
    trained = {name: task for name, task in asked.items() if isinstance(task, TrainModel)}
    training_parts.check_together(trained, tuple(asked))
    for name, query in asked.items():
        if isinstance(query, TrainModel):
            for part, asked_of in training_parts.parts(name, query, shares[name], rule).items():
                if part in asked and part != name:
                    raise RequestError(
                        field=f"stages.{part}", message=f"is what a part of {name!r} is called", hint="rename it"
                    )
                queries[part], parts[part], reads[part] = asked_of.query, asked_of.share, StagedExamples(of=name)
            continue
        partitions = query.partitions
        reads[name] = Rows(of=name)
        left = 1.0
        for beside_of, asks, what in ((kept, query.kept, "kept"), (compared, query.compare, "compare")):
            if asks is None:
                continue
            beside_of[name] = beside = f"{name}.{what}"
            if beside in asked:
                called = {"kept": "the kept rows", "compare": "the compared arms"}[what]
                raise RequestError(
                    field=f"stages.{beside}", message=f"is what {called} of {name!r} are called", hint="rename it"
                )
            parts[beside], left = shares[name] * asks.share, left - asks.share
        shares[name] *= left
        if query.rolled is not None:
            levels = rollup_levels.queries(query)
            rolled[name] = tuple(rollup_levels.part(name, number) for number in range(len(levels) - 1))
            for part, level, weight in zip((*rolled[name], name), levels, query.rolled.weights, strict=True):
                if part in asked and part != name:
                    raise RequestError(
                        field=f"stages.{part}", message=f"is what a level of {name!r} is called", hint="rename it"
                    )
                queries[part], parts[part], reads[part] = level, shares[name] * weight, Rows(of=name)
            continue
        first: dict[str, tuple[Query, Reads]] = {}
        if histograms := histograms_of(query):
            auto[name] = f"{name}.bounds"
            # A total has no partitions to put into groups.
            seen: Reads = Rows(of=name) if query.is_total else Groups(of=name)
            first[auto[name]] = _everything(query, histograms), seen
        if query.bounds.auto:
            auto_contributions[name] = f"{name}.partitions"
            counted = UnitPartitionCounts(of=name, rows=query.bounds.auto_rows)
            first[auto_contributions[name]] = _by_contributions(query), counted
        for before, (released, read) in first.items():
            if before in asked:
                raise RequestError(
                    field=f"stages.{before}", message=f"is what the bounds of {name!r} are called", hint="rename it"
                )
            queries[before], reads[before] = released, read
            both = isinstance(read, UnitPartitionCounts) and read.rows
            taken = rule.joint if both else rule.histogram
            parts[before] = shares[name] * taken
            shares[name] *= 1 - taken
            rounds[0].append(before)
        if not isinstance(partitions, PrivatePartitions) or partitions.strategy != "sips":
            queries[name], parts[name] = query, shares[name]
            continue
        names = tuple(f"{name}.select{number}" for number in range(1, len(rule.rounds) + 1))
        for selection in names:
            if selection in asked:
                raise RequestError(
                    field=f"stages.{selection}", message=f"is what a round of {name!r} is called", hint="rename it"
                )
        of_metrics = math.fsum(metric.weight for metric in query.metrics.values() if metric.stddev is None)
        of_selection = shares[name] * partitions.weight / (partitions.weight + of_metrics)
        alone = dataclasses.replace(partitions, strategy="weighted_gaussian")
        for place, (selection, of_round) in enumerate(zip(names, rule.rounds, strict=True)):
            queries[selection] = dataclasses.replace(query, metrics={}, partitions=alone, top=None, kept=None)
            reads[selection] = Rows(of=name)
            parts[selection] = of_selection * of_round / math.fsum(rule.rounds)
            rounds[place].append(selection)
        selections[name] = names
        if query.metrics:
            queries[name] = dataclasses.replace(query, partitions=ReleasedPartitions(stages=names))
            parts[name] = shares[name] * of_metrics / (partitions.weight + of_metrics) or shares[name]
    for name, beside in kept.items():
        asker = asked[name]
        assert isinstance(asker, Query)
        queries[beside], reads[beside] = kept_counts.query_of(asker), UnitFacts(of=name)
    for name, beside in compared.items():
        asker = asked[name]
        assert isinstance(asker, Query)
        queries[beside], reads[beside] = arm_moments.query_of(asker), ArmRows(of=name)
    phases = [tuple(names) for names in rounds if names]
    return Expanded(
        queries=FrozenMapping(queries),
        shares=FrozenMapping(parts),
        phases=(*phases, tuple(name for name in asked if name not in trained)),
        selections=FrozenMapping(selections),
        reads=FrozenMapping({name: reads[name] for name in queries}),
        auto=FrozenMapping(auto),
        auto_contributions=FrozenMapping(auto_contributions),
        kept=FrozenMapping(kept),
        compared=FrozenMapping(compared),
        rolled=FrozenMapping(rolled),
        trained=FrozenMapping(trained),
    )


def histograms_of(query: Query) -> dict[str, tuple[Metric, ...]]:
    """The histograms that the bounds of a query need: the name of each, and the metrics that read it.

    A histogram has the name of the first of the sorted metrics with its column and range.
    """
    found: dict[tuple[str | None, tuple[float, float]], tuple[str, list[Metric]]] = {}
    for name, metric in query.sorted_metrics:
        if metric.auto:
            found.setdefault((metric.column, within_of(metric)), (name, []))[1].append(metric)
    return {name: tuple(metrics) for name, metrics in found.values()}


def within_of(metric: Metric) -> tuple[float, float]:
    """The declared range of a metric whose bounds are chosen."""
    low, high = getattr(metric, "within")  # noqa: B009 - metrics without bounds have none
    return low, high


def _everything(query: Query, histograms: Mapping[str, tuple[Metric, ...]]) -> Query:
    """Histograms over all rows, in groups of partitions."""
    rows = min(query.bounds.max_rows, value_bounds.MOST_ROWS)
    metrics = {
        name: Histogram(str(readers[0].column), edges=value_bounds.bins(*within_of(readers[0])))
        for name, readers in histograms.items()
    }
    if query.is_total:
        bounds = ContributionBounds(max_contributions=rows)
        unit, row_id = query.privacy_unit, query.row_id
        return Query(privacy_unit=unit, partition_by=(), bounds=bounds, metrics=metrics, row_id=row_id)
    return partition_groups.query(query.privacy_unit, metrics, rows=rows, row_id=query.row_id)


def _by_contributions(query: Query) -> Query:
    """Histograms of units over the one row of each, by how many partitions it has, and by how many rows in one of them."""
    bounds, metrics = query.bounds, dict[str, Metric]()
    if bounds.auto_partitions:
        at = joint_bounds.edges(bounds.candidates) if bounds.auto_rows else partition_bound.edges(bounds.candidates)
        metrics[partition_bound.HISTOGRAM] = Histogram(partition_bound.COLUMN, edges=at)
    if bounds.row_candidates is not None:
        metrics[joint_bounds.HISTOGRAM] = Histogram(
            joint_bounds.COLUMN, edges=joint_bounds.row_edges(bounds.row_candidates)
        )
    return one_partition.query(query.privacy_unit, metrics)
