"""A whole stage in one transform: bound, accumulate, select, add noise.

In: a PCollection of Arrow tables of events and a stage of a plan. Out: a PCollection of released tables (partition columns,
metrics, standard deviations), behind the barrier. Holds: two shuffles of data for any number of metrics and columns; the
order and the splitting of the input affect only the noise. Not covered: who may see the output: only one attempt of
a pipeline may be published (`PublishRelease`).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.sizes import MOST_SHARDS, places
from dp_pipelines.metrics.lookup_bound import Join
from dp_pipelines.noise import entropy
from dp_pipelines.plan_stages.reads import UnitFacts
from dp_pipelines.planning import payment, resolve
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind, TrainingKind
from dp_pipelines.query.query import ReleasedPartitions
from dp_pipelines.release.all_partitions import published
from dp_pipelines.transforms import once
from dp_pipelines.transforms.aggregate import BoundedWire, ToPartials, ToShards
from dp_pipelines.transforms.release import DrawRelease


@dataclasses.dataclass
class PrivateAggregate(beam.PTransform):
    """Release a stage of a plan from tables of events.

    Args:
        stage: `plan["name"]`; in a plan for several runs, `plan["name", 2]` is the second one. It is released once: a second
            `run()` of this pipeline, and a second pipeline with this stage, are refused before a row is read, whatever
            happened to the first. The library cannot see pipelines that are templates, are rebuilt from their description
            (`Pipeline.from_runner_api`), or run in an interactive runner or another process.
        num_shards: the number of groups of units into which the data are split; about one per 16 MiB. Does not affect the
            result.
        salt: a 64-bit number for the hashes of this run; drawn at random by default. It only balances the load and decides
            which contributions are kept; a repeated run with the same salt keeps the same ones.

    Input: a PCollection of pa.Table, bounded and in the global window; at least one table, possibly without rows, to define
    the types of the partitions (our readers provide one). Output: a PCollection of pa.Table, sorted by key. Write it to one
    place: a restarted pipeline may write a different draw to a second place.

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> rows = pa.table({"customer": range(1000), "region": ["north"] * 1000})
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     released = pipeline | beam.Create([rows]).with_output_types(pa.Table) | PrivateAggregate(plan["weekly"])
    """

    stage: StagePlan
    num_shards: int = 32
    salt: int | None = None

    made_of_units: ClassVar[bool] = False
    """Whether its input are facts about units, and not events."""

    def __post_init__(self) -> None:
        super().__init__()
        _check_stage(self.stage)
        if not self.made_of_units and isinstance(self.stage.reads, UnitFacts):
            of = self.stage.reads.of
            raise RequestError(
                field=f"stage {self.stage.name!r}",
                message=f"says what the bounds of {of!r} cut off, out of facts about units",
                hint=f'use KeptShares(plan["{of}"], plan["{self.stage.name}"])',
            )
        self._check_scales()
        self._check_payment()
        checks.whole(self.num_shards, "num_shards", low=1, high=MOST_SHARDS)
        if self.salt is None:
            self.salt = int(entropy.words(1)[0])

    def _check_payment(self) -> None:
        payment.named_run(self.stage.name, self.stage.payment)
        payment.refuse_paid(self.stage.name, self.stage.payment)

    def _check_scales(self) -> None:
        _refuse_scales(self.stage)

    @property
    def _join(self) -> Join | None:
        return None

    def _note_draw(self, pipeline: beam.Pipeline) -> None:
        stage = self.stage  # the one that is drawn, whatever is assigned later
        once.note(pipeline, lambda: stage)

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Shard, bound and accumulate, merge and release, barrier."""
        check_input(pcoll)
        _refuse_second_draw(pcoll.pipeline, self.stage)
        self._note_draw(pcoll.pipeline)
        assert self.salt is not None
        # A choice among all candidates needs them in one place.
        count = 1 if isinstance(self.stage.kind, BestKind) else places(self.num_shards)
        steps = StageSteps.of(self.stage, self.num_shards, self.salt, count, self._join)
        names = [field.name for field in dataclasses.fields(steps)]
        return self._wired(pcoll, {name: beam.ParDo(getattr(steps, name)) for name in names}, count)

    def _wired(
        self, pcoll: beam.PCollection[Any], steps: Mapping[str, beam.ParDo], count: int
    ) -> beam.PCollection[pa.Table]:
        return wired(pcoll, steps, count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSteps:
    """The DoFns of a stage, in the order of the data flow."""

    to_shards: beam.DoFn
    to_partials: beam.DoFn
    draw: beam.DoFn
    ungroup: beam.DoFn

    @classmethod
    def of(cls, stage: StagePlan, num_shards: int, salt: int, count: int, join: Join | None = None) -> "StageSteps":
        """Those of a planned stage; `count` is the number of places, `join` is for bounds that differ by partition."""
        return cls(
            to_shards=ToShards(stage.layout, num_shards, salt),
            to_partials=ToPartials(stage, count, salt),
            draw=DrawRelease(stage, count),
            ungroup=_Ungroup(stage, join),
        )


def wired(pcoll: beam.PCollection[Any], steps: Mapping[str, beam.ParDo], count: int) -> beam.PCollection[pa.Table]:
    """The graph of a stage: two shuffles of data, and the barrier.

    Args:
        pcoll: tables of events.
        steps: a ParDo for each field of `StageSteps`.
        count: the number of places.
    """
    keyed = tuple[int, pa.Table]
    contributions = (
        pcoll
        | "ToShards" >> steps["to_shards"].with_output_types(keyed)
        | "ByShard" >> beam.GroupByKey()
        | "ToPartials" >> steps["to_partials"].with_output_types(keyed)
    )
    return drawn(contributions, steps, count)


def drawn(
    contributions: beam.PCollection[Any], steps: Mapping[str, beam.ParDo], count: int
) -> beam.PCollection[pa.Table]:
    """The second half of the graph of a stage.

    Args:
        contributions: partial aggregates, each with its place.
        steps, count: as for `wired`.
    """
    keyed = tuple[int, pa.Table]
    # Every place appears, whatever the data hold; an empty table stands for it.
    everywhere = contributions.pipeline | "Places" >> beam.Create(
        [(place, pa.table({})) for place in range(count)], reshuffle=False
    ).with_output_types(keyed)
    return (
        (contributions, everywhere)
        | "WithPlaces" >> beam.Flatten()
        | "ByPlace" >> beam.GroupByKey()
        | "DrawRelease" >> steps["draw"].with_output_types(keyed)
        | "Barrier" >> beam.GroupByKey()
        | "Released" >> steps["ungroup"].with_output_types(pa.Table)
    )


@dataclasses.dataclass
class AttemptOfARun(PrivateAggregate):
    """The same, for `dp_pipelines.jobs` only: one attempt of a run, which a retry repeats with the same plan.

    The driver admits a run once and makes sure that only one attempt is ever visible (`jobs.run.ledgered_run`), so a plan may be
    in several pipelines of one process. Not exported: without such a driver, two draws would be released for one budget.

    Args:
        join: adds the columns of the job's public table, for bounds that differ by partition; the rows are scaled before this.
    """

    join: Join | None = None

    def _check_payment(self) -> None:
        pass

    def _check_scales(self) -> None:
        pass

    @property
    def _join(self) -> Join | None:
        return self.join

    def _note_draw(self, pipeline: beam.Pipeline) -> None:
        pass


@dataclasses.dataclass
class SelectPartitions(PrivateAggregate):
    """Release only the partitions of a stage, whose query has no metrics.

    Arguments, input and output as for `PrivateAggregate`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage.query.metrics or self.stage.selection is None:
            raise RequestError(
                field="stage",
                message="must have no metrics and private partitions",
                hint="use PrivateAggregate for metrics",
            )


@dataclasses.dataclass
class BoundContributions(beam.PTransform):
    """Keep the rows of each privacy unit that the bounds of a stage allow. NOT private: for use inside the same trust boundary.

    Arguments and input as for `PrivateAggregate`. Output: a PCollection of pa.Table in wire form: columns u0.. (unit), p0..
    (partition), v0.. (lattice values of clamped values), c0.. (cells), d0.. (lists of different values), r (row id), s0..
    (summands) and what else `kernels.layout` names.
    """

    stage: StagePlan
    num_shards: int = 32
    salt: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        _check_stage(self.stage)
        _refuse_scales(self.stage)
        checks.whole(self.num_shards, "num_shards", low=1, high=MOST_SHARDS)
        if self.salt is None:
            self.salt = int(entropy.words(1)[0])

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Shard, then bound."""
        check_input(pcoll)
        assert self.salt is not None
        return (
            pcoll
            | "ToShards"
            >> beam.ParDo(ToShards(self.stage.layout, self.num_shards, self.salt)).with_output_types(
                tuple[int, pa.Table]
            )
            | "ByShard" >> beam.GroupByKey()
            | "Bound" >> beam.ParDo(BoundedWire(self.stage.layout, self.salt)).with_output_types(pa.Table)
        )


def check_input(pcoll: beam.PCollection[Any]) -> None:
    """Refuse input that cannot be released as one batch.

    Raises:
        RequestError: for an unbounded or windowed PCollection, one with a trigger, or one that is known not to hold Arrow tables.
    """
    if not pcoll.is_bounded:
        raise RequestError(field="input", message="is unbounded", hint="release batches: read a bounded source")
    if not isinstance(pcoll.windowing.windowfn, GlobalWindows):
        raise RequestError(
            field="input", message="is windowed", hint="partition by a time column instead, in the global window"
        )
    if not isinstance(pcoll.windowing.triggerfn, DefaultTrigger):
        message = "has a trigger, which may release the same rows repeatedly"
        raise RequestError(field="input", message=message, hint="put WindowInto(GlobalWindows()) before it")
    if isinstance(pcoll.element_type, type) and pcoll.element_type not in (pa.Table, object):
        raise RequestError(
            field="input",
            message=f"holds {pcoll.element_type.__name__}, not pyarrow tables",
            hint="put FromRows(types=...) before it",
        )


def _check_stage(stage: object) -> None:
    if isinstance(stage, Plan):
        raise RequestError(field="stage", message="is a whole plan", hint='name the stage: plan["..."]')
    if not isinstance(stage, StagePlan):
        raise RequestError(field="stage", message="must be a stage of a Plan", hint='write plan["..."]')
    if isinstance(stage.query.partitions, ReleasedPartitions) and not stage.query.partitions.known:
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="releases partitions that other pipelines must select first",
            hint="run it with `dp-pipelines run`, or choose a strategy other than sips",
        )
    if stage.query.group is not None or isinstance(stage.kind, TrainingKind):
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="is a part of a train stage, which reads only some of the units",
            hint="train with dp_pipelines.training.fit.train, or with `dp-pipelines run`",
        )
    if resolve.is_open(stage):
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="has bounds that another pipeline must release first",
            hint="run it with `dp-pipelines run`, or write the bounds as numbers",
        )


def _refuse_scales(stage: StagePlan) -> None:
    """Refuse bounds that differ by partition: rows of a pipeline of one's own have no public table to join.

    Raises:
        RequestError: a metric has such a bound.
    """
    for name, metric in stage.query.metrics.items():
        if metric.scale is not None:
            raise RequestError(
                field=f"stage {stage.name!r}",
                message=f"has metric {name!r}, with a bound from the public lookup of a job",
                hint="run it with `dp-pipelines run`, or write the bounds as numbers",
            )


def _refuse_second_draw(pipeline: beam.Pipeline, stage: StagePlan) -> None:
    """Refuse a stage that the pipeline already releases: its plan pays for one draw.

    Raises:
        RequestError: this stage of this plan is in the pipeline already.
    """
    drawn: set[tuple[str, str]] = pipeline.__dict__.setdefault("_dp_pipelines_drawn", set())
    paid = stage.payment
    key = (str(stage.statement.get("plan")) if paid is None else f"{paid.plan} {paid.run}", stage.name)
    if key in drawn:
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="is released twice in this pipeline, but its plan pays for it once",
            hint="use the output of the first PrivateAggregate, or put a second stage into the plan",
        )
    drawn.add(key)


class _Ungroup(beam.DoFn):
    def __init__(self, stage: StagePlan, join: Join | None) -> None:
        super().__init__()
        self._stage, self._join = stage, join

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        # Sorted again: the order in which places arrive must not be seen.
        released = pa.concat_tables(list(element[1]), promote_options="permissive")
        yield published(released, self._stage, self._join)
