"""A whole stage in one transform: bound, accumulate, select, add noise.

In: a PCollection of events, as rows or Arrow tables, and a stage of a plan. Out: a PCollection of released tables (partition
columns, metrics, standard deviations), behind the barrier. Holds: two shuffles of data for any number of metrics and columns; the
order and the splitting of the input affect only the noise. Not covered: who may see the output: only one attempt of
a pipeline may be published (`PublishRelease`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.type_names import declared_types
from dp_pipelines.noise import entropy
from dp_pipelines.plan_stages.reads import UnitFacts
from dp_pipelines.planning import payment, resolve
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import TrainingKind
from dp_pipelines.query.query import ReleasedPartitions
from dp_pipelines.steps.aggregate import BoundedWire, ToShards
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.release_stage import released
from dp_pipelines.steps.row_bytes import of_wire
from dp_pipelines.transforms import once
from dp_pipelines.transforms.beam_flow import BeamFlow
from dp_pipelines.transforms.display import stage_facts
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows.input_tables import Types, check_batch, input_tables
from dp_pipelines.transforms.rows.schema_rows import ToSchemaRows
from dp_pipelines.transforms.shard_counts import check_shards, shards_of


@dataclasses.dataclass(eq=False)
class PrivateAggregate(ReleaseTransform):
    """Release a stage of a plan from events.

    Args:
        stage: `plan["name"]`; in a plan for several runs, `plan["name", 2]` is the second one. It is released once: a second
            `run()` of this pipeline, and a second pipeline with this stage, are refused before a row is read, whatever
            happened to the first. The library cannot see pipelines that are templates, are rebuilt from their description
            (`Pipeline.from_runner_api`), or run in an interactive runner or another process.
        num_shards: the number of groups of units into which the data are split. Does not affect the result. Left out: from
            `rows`, or 32 on runners in this process and 1,024 on others, enough for 100 GB (docs/scale.md).
        salt: a 64-bit number for the hashes of this run; drawn at random by default. It only balances the load and decides
            which contributions are kept; a repeated run with the same salt keeps the same ones.
        types: the types of the columns that the stage reads, as pyarrow types or by names such as "int64" and "string": for
            mappings and pandas frames, which bring none.
        as_rows: whether the output is rows with a schema, as of `ToRows`.
        rows: about how many rows there are, a public estimate from which the number of shards follows: say it for more than
            100 GB, and for small inputs on a cluster.

    Input: a bounded PCollection in the global window, or in the windows that the query declares, of rows with a schema
    (NamedTuples, `beam.Row`), of mappings, Arrow tables, record batches or pandas frames. Of Arrow tables without `types` at
    least one, possibly without rows, to define the types of the partitions (our readers provide one). Output: a PCollection of
    pa.Table, sorted by key. Write it to one place: a restarted pipeline may write a different draw to a second place.

    Raises:
        RequestError: when the pipeline is built: the input cannot be read, or the stage cannot be released here.

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> rows = pa.table({"customer": range(1000), "region": ["north"] * 1000})
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     released = pipeline | beam.Create([rows]).with_output_types(pa.Table) | PrivateAggregate(plan["weekly"])
    """

    stage: StagePlan
    num_shards: int | None = None
    salt: int | None = None
    types: Types | None = None
    as_rows: bool = False
    rows: int | None = None

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
        _refuse_scales(self.stage)
        payment.named_run(self.stage.name, self.stage.payment)
        payment.refuse_paid(self.stage.name, self.stage.payment)
        check_shards(self.num_shards, self.rows)
        if self.salt is None:
            self.salt = entropy.salt_number()
        if self.types is not None:
            self.types = declared_types(self.types)
        self._known: Mapping[str, pa.DataType] = {}

    def _tables(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """What the first step reads."""
        if self.made_of_units:
            check_batch(pcoll)
            return pcoll
        tables, self._known = input_tables(
            pcoll, self.types, self.stage.query.columns, self.stage.layout, self.stage.windows
        )
        return tables

    @staticmethod
    def producing(pcoll: beam.PCollection[Any]) -> "PrivateAggregate | None":
        """The release of which a PCollection is the output; None: of none."""
        producer = pcoll.producer
        while producer is not None and not isinstance(producer.transform, PrivateAggregate):
            producer = producer.parent
        return None if producer is None else producer.transform

    def to_rows(self, *, times_as_text: bool = False) -> ToSchemaRows:
        """What turns its tables into rows.

        Args:
            times_as_text: as for `ToRows`.

        Raises:
            RequestError: the type of a partition column is unknown, or none that rows have.
        """
        for column in self.stage.query.partition_by:
            if column not in self._known:
                raise RequestError(
                    field=f"types[{column!r}]",
                    message="is missing, and the rows of a release have types that are known before",
                    hint=f'write e.g. types={{"{column}": "string"}} in PrivateAggregate',
                )
        schema = self.stage.output_schema(self._known)
        rows = ToSchemaRows(schema, times_as_text)
        for field in schema:
            if field.name not in rows.names:
                raise RequestError(
                    field=f"column {field.name!r}",
                    message=f"has type {field.type}, which rows cannot have",
                    hint="cast it before the release",
                )
        return rows

    def display_data(self) -> dict[str, Any]:
        """What Beam's pages show of the step: the plan's budget, the stage's bounds and its noise, all of them public."""
        return stage_facts(self.stage)

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Shard, bound and accumulate, merge and release, barrier."""
        tables = self._tables(pcoll)
        rows = self.to_rows() if self.as_rows else None
        stage = self.stage  # the one that is drawn, whatever is assigned later
        once.refuse_second_draw(pcoll.pipeline, stage)
        once.note(pcoll, lambda: stage)
        found = self._wired(BeamFlow(tables), _shards(self, pcoll, self._known)).pcoll
        return found if rows is None else found | "Rows" >> rows

    def _wired(self, tables: Flow, num_shards: int) -> Any:
        assert self.salt is not None
        return released(tables, self.stage, num_shards, self.salt)


@dataclasses.dataclass(eq=False)
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


@dataclasses.dataclass(eq=False)
class BoundContributions(ReleaseTransform):
    """Keep the rows of each privacy unit that the bounds of a stage allow. NOT private: for use inside the same trust boundary.

    Arguments and input as for `PrivateAggregate`. Output: a PCollection of pa.Table in wire form: columns u0.. (unit), p0..
    (partition), v0.. (lattice values of clamped values), c0.. (cells), d0.. (lists of different values), r (row id), s0..
    (summands) and what else `kernels.layout` names.
    """

    stage: StagePlan
    num_shards: int | None = None
    salt: int | None = None
    types: Types | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        _check_stage(self.stage)
        _refuse_scales(self.stage)
        check_shards(self.num_shards, self.rows)
        if self.salt is None:
            self.salt = entropy.salt_number()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Shard, then bound."""
        tables, known = input_tables(pcoll, self.types, self.stage.query.columns, self.stage.layout, self.stage.windows)
        shards = _shards(self, pcoll, known)
        assert self.salt is not None
        return (
            BeamFlow(tables)
            .each("ToShards", ToShards(self.stage.layout, shards, self.salt))
            .by_key("ByShard")
            .each("Bound", BoundedWire(self.stage.layout, self.salt))
            .pcoll
        )


def _shards(
    transform: PrivateAggregate | BoundContributions, pcoll: beam.PCollection[Any], known: Mapping[str, pa.DataType]
) -> int:
    """Return the number of shards, from what the program says, the types of columns and the runner: all of it public."""
    row_bytes = of_wire(transform.stage.layout, known)
    return shards_of(pcoll.pipeline, transform.num_shards, transform.rows, row_bytes)


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
    if stage.query.level is not None and not stage.coarser:
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="is a level of a rollup, which is released with the other levels",
            hint="name the stage that has the rollup",
        )
    if stage.query.parties is not None:
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="is released by several parties together",
            hint="run it with `dp-pipelines run --party`",
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
