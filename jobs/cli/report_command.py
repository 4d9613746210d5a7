"""The command `report`: one page of published runs, or the page of one of them drawn anew.

In: published folders and the name of a page. Out: the page. Holds: it reads published files and writes that one page; a published
folder is never changed, nor a file that is no page.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli import page_place
from dp_pipelines.release.staging import write_whole
from dp_pipelines.report import report
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.trends.published_runs import ReleasedRun, read_run
from dp_pipelines.report.trends.trends_page import render_trends


def write_page(folders: Sequence[str], output: str | None, job: str | None = None) -> str:
    """Write a page and say what it is.

    Args:
        folders: published; one gives the page of a release, several give trends.
        output: the page's file; None: a name of ours in the current folder.
        job: a job file whose titles, labels and order of rows the page has; for one folder.

    Raises:
        RequestError: a folder is no release or damaged, they do not belong together, or the page cannot stand there.
        DiskError, PublishError: the page cannot be written.
    """
    target = pathlib.Path(output if output is not None else "report.html" if len(folders) == 1 else "trends.html")
    page_place.refuse_unfit(target)
    if job is not None and len(folders) > 1:
        raise RequestError(field="--job", message="is for one folder", hint="drop it, or make one page after the other")
    runs = [read_run(pathlib.Path(folder)) for folder in folders]
    if job is not None:
        runs = [_presented(runs[0], job)]
    if len(runs) > 1:
        page, said = render_trends(runs), f"{len(runs)} runs"
    else:
        try:
            page, said = report.render(runs[0].content, runs[0].tables, runs[0].models), f"run {visible(runs[0].name)}"
        except (OSError, pa.ArrowException):
            field = f"folder {visible(folders[0])!r}"
            raise RequestError(
                field=field, message="has a table that cannot be read", hint="name another folder"
            ) from None
    write_whole(target, page.encode())
    return f"wrote {visible(str(target))}: {said} of {visible(str(runs[-1].content.get('dataset') or 'a release'))}"


def _presented(run: ReleasedRun, job: str) -> ReleasedRun:
    """Return a release with the presentation of a job file. Raises: RequestError."""
    from dp_pipelines.jobs.spec import job_file, presentation

    file = job_file.load(job)
    rows, columns = {}, {}
    for name, path in run.tables.items():
        with pa.parquet.ParquetFile(path) as table:
            rows[name], columns[name] = table.metadata.num_rows, list(table.schema_arrow.names)
    try:
        content = presentation.presented(file.job, run.content, rows, columns)
    except RequestError as error:
        raise file.error((), error) if error.field.startswith("stages.") else error from None
    return dataclasses.replace(run, content=content)
