"""How wide the rows of a job are as they are shuffled, by which shards, batches and bundles are sized.

In: a checked request, stages of its plan. Out: bytes of a row. Holds: they follow from types and layouts, which are public; no
row decides them. Not covered: how many rows there are (`sources`), which is private.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from dp_pipelines.jobs.request.request import Request
from dp_pipelines.plan_stages.reads import StagedExamples, UnitFacts
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps import row_bytes
from dp_pipelines.steps.read_files import Shuffled

CELL_BYTES = 4
"""The cell of a value: `kernels.layout` calls it `c`."""


def of_stages(request: Request, stages: Mapping[str, StagePlan]) -> Shuffled:
    """Rows of a pipeline that releases stages.

    Args:
        request: what is read.
        stages: what is released, by name.
    """
    return _of(request, (_of_stage(request, stage) for stage in stages.values()))


def of_plan(request: Request, plan: Plan) -> int:
    """Bytes of a row in all shuffles of the pipeline in which it takes most: what whoever shuffles in memory holds of it.

    Args:
        request: what is read.
        plan: of its stages, which several pipelines may release.
    """
    stages = plan.round(1).stages
    beside = {name: stages[name] for name in (*plan.kept.values(), *plan.compared.values())}
    pipelines = [{name: stages[name] for name in phase if name in stages} for phase in plan.phases]
    released = [of_stages(request, {**made, **(beside if made is pipelines[-1] else {})}) for made in pipelines]
    every = [*released, *(of_examples(request, name) for name in request.tasks)]
    return max(max(shuffled.widest, shuffled.together) for shuffled in every)


def of_examples(request: Request, name: str) -> Shuffled:
    """Rows of the pipeline that writes the examples of a train stage.

    Args:
        request: what is read.
        name: of the stage.
    """
    return _of(request, [[row_bytes.of_columns(_types_before(request), request.tasks[name].columns)]])


def of_unbounded(request: Request, stage: StagePlan) -> Shuffled:
    """Rows of a pipeline that sees those of a stage before any bound: with all columns that metrics read, whole.

    Args:
        request: what is read.
        stage: whose rows these are.
    """
    columns = row_bytes.of_columns(_types(request, stage.reads.of), stage.query.columns)
    return _of(request, [[*_of_stage(request, stage), columns]])


def _of_stage(request: Request, stage: StagePlan) -> list[int]:
    """Bytes of a row in each shuffle of whole rows, the first one first."""
    asked = stage.reads.of
    if isinstance(stage.reads, StagedExamples):
        return [0]
    types = _types(request, asked)
    if isinstance(stage.reads, UnitFacts):  # its own layout is of a unit's vector, which is made after the shuffle
        query = request.queries[asked]
        keys = row_bytes.of_columns(types, (*query.unit_columns, *query.partition_by))
        found = [keys + row_bytes.OTHER_BYTES + CELL_BYTES * len(query.metrics)]
    else:
        found = [row_bytes.of_wire(stage.layout, types)]
    if asked in request.units:
        found.insert(0, row_bytes.of_columns(_types_before(request), request.units[asked].columns))
    return found


def _of(request: Request, stages: Iterable[list[int]]) -> Shuffled:
    """Of the shuffles of each stage; what is read goes into the first, and may be joined to several rows of a table."""
    found = list(stages)
    grows = 1 if request.lookup is None else request.lookup.most_rows
    widest = max((size for sizes in found for size in sizes), default=0) * grows
    return Shuffled(widest=widest, together=sum(sizes[0] for sizes in found) * grows)


def _types_before(request: Request) -> pa.Schema:
    """The columns of rows before any are computed from all rows of a unit."""
    added = request.lookup.fields if request.lookup is not None else []
    return pa.schema([*request.rows.output_schema, *added])


def _types(request: Request, asked: str) -> pa.Schema:
    """The columns of rows as a stage sees them."""
    return request.units[asked].expressions.output_schema if asked in request.units else _types_before(request)
