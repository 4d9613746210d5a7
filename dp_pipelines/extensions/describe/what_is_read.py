"""Which data a job takes: its files, columns and filters, as an assessment lists them.

In: a checked job file, what its stages ask for and, where its files were there, the checked request. Out: blocks of a page.
Holds: names, types and expressions of the job file and the files' schemas, never a value or a number of rows. Not covered: what
the values of a column mean, which only their owner knows.
"""

from collections.abc import Iterator, Mapping

from dp_pipelines.extensions.describe.assessment_page import Block, Cells, Listed, ToFillIn
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.spec.job_file import Job, JobFile
from dp_pipelines.jobs.spec.source_models import LookupModel
from dp_pipelines.jobs.spec.train_models import PateStage
from dp_pipelines.query.query import Query
from dp_pipelines.query.row_unit import ROW_UNIT, is_row_unit
from dp_pipelines.query.train_model import TrainModel

Stages = Mapping[str, Query | TrainModel]

UNIT, EXPRESSIONS = "says whose the row is", "read by an expression, a filter or a join"

NOT_CHECKED = (
    "The files were not there when this page was written: columns that only expressions read are in those, and types are "
    "not known. Run the command again beside the files, with --param where the job has parameters, for the whole list."
)


def blocks_of(file: JobFile, stages: Stages, request: Request | None) -> Iterator[Block]:
    """The section.

    Args:
        file: the job.
        stages: what each stage asks for.
        request: of the checked files; None where they were not checked.
    """
    job = file.job
    yield Cells(caption="Files", head=("in the job file", "format", "files"), rows=_files(job))
    yield Cells(
        caption="Columns that are read" if request is not None else "Columns that stages name",
        head=("column", "type", "what for"),
        rows=list(_columns(job, stages, request)),
    )
    if request is None:
        yield NOT_CHECKED
    defined = list(_defined(job))
    if defined:
        yield Cells(caption="Columns that are computed from them", head=("column", "where", "how"), rows=defined)
    chosen = list(_filters(job))
    if chosen:
        yield "Not all rows count:"
        yield Listed(items=chosen)
    nobody = f"A row without a value in {', '.join(job.unit)} belongs to nobody and is dropped. "
    whose = "Each row is a person of its own. " if is_row_unit(job.unit) else nobody
    yield f"{whose}Columns that are not listed are not read."
    yield ToFillIn(question="Where do the rows come from, who collected them, and what were the people told?")
    yield ToFillIn(
        question="Are there special categories of data among the columns (health, beliefs, origin, ...), or data of children?"
    )


def _files(job: Job) -> list[tuple[str, str, str]]:
    rows = [(key, source.format_of_files, source.pattern) for key, source in job.sources.items()]
    for number, lookup in enumerate(job.lookups):
        rows.append((f"{job.place_of_lookup(number)} (declared public)", lookup.format_of_files, lookup.pattern))
    for name, table in (job.tables or {}).items():
        rows += [(f"lookup of {name} (declared public)", one.format_of_files, one.pattern) for one in table.lookups]
    for name, stage in job.stages.items():
        listed = getattr(stage, "partitions", None)
        for path in (getattr(listed, "public_file", None), getattr(listed, "public_sorted_file", None)):
            if path is not None:
                rows.append((f"list of partitions of {name} (declared public)", "list", path))
        if isinstance(stage, PateStage):
            public = stage.public
            rows.append((f"public table of {name} (declared public)", public.format_of_files, public.pattern))
    return rows


def _columns(job: Job, stages: Stages, request: Request | None) -> Iterator[tuple[str, str, str]]:
    uses = _uses(stages)
    if request is None:
        computed = {name for name, _, _ in _defined(job)}
        for name, said in uses.items():
            if name not in computed and name != ROW_UNIT:
                yield name, "not known", "; ".join(said)
        return
    if request.tables is None:
        for name in request.columns:
            if name == ROW_UNIT:
                continue
            yield name, str(request.source.schema.field(name).type), "; ".join(uses.get(name, [EXPRESSIONS]))
        return
    for part in request.tables.parts:
        for name in part.columns:
            said = [UNIT] if name in part.unit else uses.get(name, [EXPRESSIONS])
            yield f"{part.name}: {name}", str(part.source.schema.field(name).type), "; ".join(said)


def _uses(stages: Stages) -> dict[str, list[str]]:
    """What stages read each column for."""
    found: dict[str, list[str]] = {}

    def note(name: str, words: str) -> None:
        said = found.setdefault(name, [])
        if words not in said:
            said.append(words)

    for name, asked in stages.items():
        for column in asked.unit_columns:
            note(column, UNIT)
        if isinstance(asked, Query):
            for column in asked.partition_by:
                note(column, f"groups of {name}")
            for called, metric in asked.metrics.items():
                for column in metric.reads:
                    note(column, f"{called} of {name}")
        else:
            note(asked.label.column, f"label of {name}")
            for feature in asked.features.values():
                note(feature.column, f"feature of {name}")
        for column in asked.columns:
            if column not in found:
                note(column, f"read by {name}")
    return found


def _defined(job: Job) -> Iterator[tuple[str, str, str]]:
    yield from ((name, "each row", how) for name, how in job.columns.items())
    for table, declared in (job.tables or {}).items():
        yield from ((name, f"each row of {table}", how) for name, how in declared.columns.items())
    for stage, said in job.stages.items():
        yield from ((name, f"all rows of a unit, for {stage}", how) for name, how in said.unit_columns.items())


def _filters(job: Job) -> Iterator[str]:
    if job.where is not None:
        yield f"rows with: {job.where}"
    for table, declared in (job.tables or {}).items():
        if declared.where is not None:
            yield f"of table {table} those with: {declared.where}"
    for stage, said in job.stages.items():
        if said.where is not None:
            yield f"in stage {stage} those with: {said.where}"
    if job.window is not None:
        yield f"in each run those of {job.window.days} days by {job.window.column}, from parameter {job.window.param} on"
    for name, param in job.params.items():
        yield f"parameter {name}, of type {param.type}, is given with each run; its value is published"
    if job.join is not None:
        yield "tables are joined, on the privacy unit among others: a row meets rows of the same unit alone"
    if job.union is not None:
        yield f"tables are put one under the other: {', '.join(job.union)}"


def public_tables(job: Job) -> list[LookupModel]:
    """All tables that the job declares public."""
    return [*job.lookups, *(one for table in (job.tables or {}).values() for one in table.lookups)]
