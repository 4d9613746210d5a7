"""`tune --sample`: the job over rows that somebody declares public, in place of its own.

In: a job file, what `--sample` says: files, or for each of several tables its files. Out: a checked request over these. Holds:
rows of the job's own sources are refused, behind links too; each table of a job of several has a sample, or none has. Not
covered: whether the rows are public; copies of the job's own.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.spec import validation_errors
from dp_pipelines.jobs.spec.job_file import Job, JobFile
from dp_pipelines.jobs.spec.source_models import SourceModel
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.ledger import sources as registered


def over(file: JobFile, given: Sequence[str], params: Sequence[str]) -> Request:
    """The job over other rows, of the same formats, checked.

    Args:
        file: the job.
        given: files; of a job with tables `NAME=FILES` for each of them.
        params: `NAME=VALUE` for each parameter.

    Raises:
        RequestError: there is no such sample, it is the job's own rows, or the job does not fit it.
    """
    named = _by_source(file.job, given)
    changed = {place: _changed(file, source, named[place]) for place, source in file.job.sources.items()}
    if file.job.tables is None:
        update: dict[str, object] = {"source": changed["source"]}
    else:
        update = {"tables": {name: changed[f"tables.{name}"] for name in file.job.tables}}
    try:
        return check(JobFile(file.path, file.job.model_copy(update=update), file.document), params)
    except RequestError as error:
        validation_errors.raise_within(f"--sample {' '.join(given)}", error)


def _by_source(job: Job, given: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """By the key of the job file that names a source, the option and the files in it.

    Raises:
        RequestError: a source has none or several.
    """
    if job.tables is None:
        if len(given) > 1:
            raise RequestError(
                field=f"--sample {given[1]}", message="is a second one, and the job has one source", hint="use a glob"
            )
        return {"source": (given[0], given[0])}
    found: dict[str, tuple[str, str]] = {}
    for text in given:
        name, equals, files = text.partition("=")
        if not equals or name not in job.tables:
            hint = nearest(name, job.tables, "tables") if equals else "write NAME=FILES for each table"
            message = "must be NAME=FILES, with the name of a table of the job"
            raise RequestError(field=f"--sample {text}", message=message, hint=hint or "")
        if f"tables.{name}" in found:
            message = f"is a second one of table {name!r}"
            raise RequestError(field=f"--sample {text}", message=message, hint="use a glob")
        found[f"tables.{name}"] = (text, files)
    for name in job.tables:
        if f"tables.{name}" not in found:
            message = f"has no rows of table {name!r}, and none of the job's own are read beside public ones"
            raise RequestError(field="--sample", message=message, hint=f"add --sample {name}=FILES")
    return found


def _changed(file: JobFile, source: SourceModel, named: tuple[str, str]) -> SourceModel:
    """A source over the files of its sample.

    Raises:
        RequestError: there are none, or they are the job's own.
    """
    option, sample = named
    pattern = sample if "://" in sample else str(source_files.glob_under(pathlib.Path.cwd(), sample))
    _refuse_own_rows(file, f"--sample {option}", pattern)
    if not isinstance(getattr(source, source.format_of_files), str):
        message = "is for jobs over files, and this one reads a table"
        raise RequestError(field="--sample", message=message, hint="tune a copy of the job over Parquet files")
    return source.model_copy(update={source.format_of_files: pattern})


def _refuse_own_rows(file: JobFile, field: str, pattern: str) -> None:
    """Refuse a sample that cannot be public: rows that the job protects, of any of its sources, on any file system."""
    elsewhere = "://" in pattern
    try:
        files = source_files.find(pattern, pathlib.Path.cwd(), "source" if elsewhere else "--sample")
    except RequestError as error:
        hint = "name a file, or a glob in quotes; it is relative to the folder you are in"
        raise RequestError(field=field, message=error.message, hint=error.hint if elsewhere else hint) from None
    resolved = {os.path.realpath(path) for path in files} if not elsewhere else set()
    for source in file.job.sources.values():
        own = registered.absolute(source.pattern, str(file.path.parent))
        real = {os.path.realpath(path) for path in registered.matching(own)}
        if registered.first_match(own, files) or real & resolved:
            message = "names files of the job's own source, whose rows are private"
            raise RequestError(
                field=field, message=message, hint="leave out --sample: the ledger then records the look"
            )
