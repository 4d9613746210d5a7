"""Notes about keys of a job that are often misread, and about how CSV files are written where the job leaves that out.

In: a job. Out: sentences. Holds: they follow from the job file alone, so that they say nothing of the rows. Not covered: what
the cells really are, which `dp-pipelines check` shows.
"""

from collections.abc import Sequence

from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.jobs.spec.source_models import SourceModel

NUMBERS = ("float", "float32", "float64", "double")


def before_run(job: Job) -> list[str]:
    """Return what a run should say: numbers that may all be null.

    Args:
        job: what is asked for.
    """
    return [_decimal(key) for key, source in job.sources.items() if _may_have_commas(source)]


def before_plan(job: Job) -> list[str]:
    """Return what `plan` says: the same, which cells of text are null, what a unit of several columns and `row_id` mean.

    Args:
        job: what is asked for.
    """
    encodings = [_encoding(key) for key, source in job.sources.items() if _may_be_latin(source)]
    units = [_of_several(job.unit)] if len(job.unit) > 1 else []
    return before_run(job) + encodings + units + ([ROW_ID] if job.row_id is not None else [])


ROW_ID = "row_id: tells the rows of one unit apart; it does not remove copies, and rows with the same row_id all count"


def _of_several(unit: Sequence[str]) -> str:
    members = " or ".join(f"each {column}" for column in unit)
    return (
        f"privacy_unit: protects each combination of {' and '.join(unit)}, not {members} by itself: somebody who is in several "
        "loses as much for each"
    )


def _may_have_commas(source: SourceModel) -> bool:
    if source.csv is None or "decimal" in source.model_fields_set or source.delimiter != ";":
        return False
    return any(kind in NUMBERS for kind in (source.types or {}).values())


def _may_be_latin(source: SourceModel) -> bool:
    if source.csv is None or "encoding" in source.model_fields_set:
        return False
    return "string" in (source.types or {}).values()


def _decimal(key: str) -> str:
    return (
        f"{key}: files with ; between cells often write numbers as 1,5, and such a cell is null here; add decimal: ',' to the "
        "source, or decimal: . if numbers are written as 1.5"
    )


def _encoding(key: str) -> str:
    return (
        f"{key}: cells that are not UTF-8 are null; if the files are in Latin-1 or Windows-1252, add encoding: cp1252 to the "
        "source, else encoding: utf-8"
    )
