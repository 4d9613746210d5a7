"""Refuses a public file that is a file of the source too: what is joined or listed as public is read and shown without noise.

In: the files of the source, the files that a job names as public. Out: nothing, or what is wrong. Holds: files are compared by
what they are, under whatever name, before any of them is read. Not covered: copies of rows in other files, old snapshots of a
table and its lists of deleted rows among them.
"""

import glob
import os
from collections.abc import Collection, Iterable, Iterator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.spec.job_file import Job, JobFile
from dp_pipelines.jobs.spec.table_models import TableModel
from dp_pipelines.jobs.spec.validation_errors import raise_all

_LISTS = ("public_file", "public_sorted_file")


def refuse_shared(files: Iterable[str], private: Collection[str], field: str = "") -> None:
    """Refuse public files of which the source has one too.

    Args:
        files: that are named as public.
        private: those of the source.
        field: the key of the job file that names the public ones.

    Raises:
        RequestError: as said.
    """
    somebodys = {*map(_identity, private)}
    both = sorted(path for path in files if _identity(path) in somebodys)
    if both:
        message = f"is a file of the source too, whose rows are somebody's: {os.path.realpath(both[0])!r}"
        hint = "name a table that holds nobody's rows, outside of the source"
        raise RequestError(field=field, message=message, hint=hint)


def _identity(path: str) -> tuple[int, int] | str:
    """What two names of one file have in common: links of every kind are followed."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # a URL, or no name of a file at all, which is told elsewhere
        return path
    return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)


def refuse_all(file: JobFile, private: Collection[str]) -> None:
    """The same for every public file of a job: lookups, those of its tables, lists of partitions.

    Args:
        file: the job.
        private: the files of the source, of all tables where there are several.

    Raises:
        RequestError: all that is wrong.
    """
    raise_all(list(_refused(file, private)))


def _refused(file: JobFile, private: Collection[str]) -> Iterator[RequestError]:
    try:
        _refuse_lookups(file, file.job, private)
    except RequestError as error:
        yield file.error((), error)
    for name, table in (file.job.tables or {}).items():
        try:
            _refuse_lookups(file, table, private)
        except RequestError as error:
            yield file.error(("tables", name), error)
    for name, stage in file.job.stages.items():
        for key in _LISTS:
            listed = getattr(getattr(stage, "partitions", None), key, None)
            if listed is None:
                continue
            try:
                refuse_shared([str(file.path.parent / listed)], private)
            except RequestError as error:
                yield file.error(("stages", name, "partitions", key), error)


def _refuse_lookups(file: JobFile, said: Job | TableModel, private: Collection[str]) -> None:
    """Refuse those of a job, or of one of its tables. Raises: RequestError."""
    for number, declared in enumerate(said.lookups):
        field = f"lookup.{number}" if isinstance(said.lookup, list) else "lookup"
        if "://" not in declared.pattern:
            pattern = str(source_files.glob_under(file.path.parent, declared.pattern))
            refuse_shared(glob.glob(pattern, recursive=True), private, field)
