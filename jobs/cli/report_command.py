"""The command `report`: one page of published runs, the page of one of them drawn anew, its files, or its tables as CSV.

In: published folders and the name of a page or of a folder. Out: the page, a folder or the tables. Holds: it reads published
files and writes nothing else; a published folder is never changed, nor a file that is no page.
"""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli import derived_folder, page_place
from dp_pipelines.jobs.outputs.ordered_rows import in_order_of_job
from dp_pipelines.jobs.outputs.text_tables import FORMATS, CsvText
from dp_pipelines.release import staging
from dp_pipelines.report import report
from dp_pipelines.report.derived import derived_columns
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.trends.published_runs import ReleasedRun, read_run
from dp_pipelines.report.trends.trends_page import render_trends

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import JobFile

CSV = FORMATS[CsvText.name]


def write(folders: Sequence[str], output: str | None, job: str | None = None) -> tuple[str, list[str]]:
    """Write a page, or a folder with the page and the files that a job asks for, and say what was written.

    Args:
        folders, job: as for `write_page`.
        output: the page's file, or with a job the folder, whose name does not end as that of a page.

    Returns:
        what was written, and notes about it.

    Raises:
        RequestError: as for `write_page`, or the folder cannot be made, or a format cannot hold a table.
        DiskError, PublishError: something cannot be written.
    """
    if output is None or job is None or not derived_folder.is_folder(output, job):
        return write_page(folders, output, job), []
    from dp_pipelines.jobs.spec import job_file

    _refuse_several(folders)
    derived_folder.refuse_unfit(output)
    run = read_run(pathlib.Path(folders[0]))
    with _shown(run, job) as (content, tables):
        page = _page(run, content, tables, folders[0])
        names, said = derived_folder.write(output, run, job_file.load(job), content, tables, page)
    return f"wrote {', '.join(visible(f'{output}/{name}') for name in names)}: run {visible(run.name)}", said


def write_page(folders: Sequence[str], output: str | None, job: str | None = None) -> str:
    """Write a page and say what it is.

    Args:
        folders: published; one gives the page of a release, several give trends.
        output: the page's file; None: a name of ours in the current folder.
        job: a job file whose titles, labels, order of rows and computed numbers the page has; for one folder.

    Raises:
        RequestError: a folder is no release or damaged, they do not belong together, or the page cannot stand there.
        DiskError, PublishError: the page cannot be written.
    """
    target = pathlib.Path(output if output is not None else "report.html" if len(folders) == 1 else "trends.html")
    page_place.refuse_unfit(target)
    if target.suffix.lower() not in derived_folder.PAGES:
        name = visible(str(target))
        message = "is not the name of a page, which ends in .html"
        hint = (
            f"write --output {name}.html, --csv {name} for its tables, or add --job JOB for a folder of page and files"
        )
        raise RequestError(field=f"--output {name!r}", message=message, hint=hint)
    if job is not None:
        _refuse_several(folders)
    runs = [read_run(pathlib.Path(folder)) for folder in folders]
    if len(runs) > 1:
        page, said = render_trends(runs), f"{len(runs)} runs"
    else:
        with _shown(runs[0], job) as (content, tables):
            page, said = _page(runs[0], content, tables, folders[0]), f"run {visible(runs[0].name)}"
    staging.write_whole(target, page.encode())
    return f"wrote {visible(str(target))}: {said} of {visible(str(runs[-1].content.get('dataset') or 'a release'))}"


def _refuse_several(folders: Sequence[str]) -> None:
    """Refuse several folders beside a job file. Raises: RequestError."""
    if len(folders) > 1:
        raise RequestError(field="--job", message="is for one folder", hint="drop it, or make one page after the other")


def _page(run: ReleasedRun, content: Mapping[str, Any], tables: Mapping[str, pathlib.Path], folder: str) -> str:
    """Return the page of a release. Raises: RequestError, if a table cannot be read."""
    try:
        return report.render(content, tables, run.models)
    except (OSError, pa.ArrowException):
        field = f"folder {visible(folder)!r}"
        raise RequestError(field=field, message="has a table that cannot be read", hint="name another folder") from None


def write_csv(folders: Sequence[str], output: str, page: str | None, job: str | None = None) -> str:
    """Write the tables of a release as CSV, with all digits, and say where they are.

    Args:
        folders: the published one.
        output: the folder that is made.
        page: the file of a page, if one is asked for.
        job: a job file whose numbers that are computed from released ones the tables have.

    Raises:
        RequestError: the folder is no release or damaged, it has no table, or CSV cannot hold one; nothing is left behind.
        DiskError, PublishError: a table cannot be written.
    """
    if len(folders) > 1 or page is not None:
        message = "is for one folder" if len(folders) > 1 else "makes no page"
        raise RequestError(field="--csv", message=message, hint="name one published folder, without --output")
    run, target = read_run(pathlib.Path(folders[0])), pathlib.Path(output)
    if not run.tables:
        field = f"folder {visible(folders[0])!r}"
        raise RequestError(field=field, message="has no table", hint="name a release of a job with aggregate stages")
    parent, field = target.absolute().parent, f"--csv {visible(output)!r}"
    page_place.refuse_in_release(target, field)
    if os.path.lexists(target) or not parent.is_dir():
        message = "exists" if os.path.lexists(target) else "is in a folder that does not exist"
        raise RequestError(field=field, message=message, hint="choose another name")
    with _shown(run, job) as (content, tables), staging.staging_folder(target) as folder:
        stages = {stage.get("name"): stage for stage in content.get("stages", ())}
        for name, path in tables.items():
            with pa.parquet.ParquetFile(path) as table:
                for column, message, hint in CSV.refused(table.schema_arrow):
                    raise RequestError(field=f"table {name!r}", message=f"column {column!r} {message}", hint=hint)
        whole = folder / "tables"
        whole.mkdir(mode=0o700)
        for name, path in tables.items():
            ordered = folder / f"{name}.ordered.parquet"
            CSV.write(in_order_of_job(path, stages.get(name, {}), ordered), whole / f"{name}.csv")
        staging.publish_folder(whole, target)
    return f"wrote {', '.join(visible(str(target / f'{name}.csv')) for name in run.tables)}"


def notes(folder: str, job: str | None) -> list[str]:
    """Return what a job file asks for that a release does not have.

    Args:
        folder: of the release.
        job: the job file; None: there is nothing to compare.
    """
    if job is None:
        return []
    from dp_pipelines.jobs.request import released_limits
    from dp_pipelines.jobs.spec import job_file

    return released_limits.differences(job_file.load(job), read_run(pathlib.Path(folder)).content)


@contextlib.contextmanager
def _shown(run: ReleasedRun, job: str | None) -> Iterator[tuple[Mapping[str, Any], Mapping[str, pathlib.Path]]]:
    """Give the manifest and the tables of a release with the presentation of a job file, while they are needed.

    Args:
        run: the release.
        job: the job file; None: as it was published.

    Raises:
        RequestError: the job is another one, or asks for what was not published.
        DiskError: a table cannot be written.
    """
    if job is None:
        yield run.content, run.tables
        return
    from dp_pipelines.jobs.request import released_limits
    from dp_pipelines.jobs.spec import job_file, presentation

    file = job_file.load(job)
    released_limits.refuse_other_weighted_means(file, run.content)
    rows, columns = {}, {}
    for name, path in run.tables.items():
        with pa.parquet.ParquetFile(path) as table:
            rows[name], columns[name] = table.metadata.num_rows, list(table.schema_arrow.names)
    try:
        content = presentation.presented(file.job, run.content, rows, columns)
    except RequestError as error:
        raise file.error((), error) if error.field.startswith("stages.") else error from None
    with tempfile.TemporaryDirectory(prefix="dp-pipelines-") as folder:  # of released numbers, which are no secret
        stages, tables = [], dict(run.tables)
        for stage in content["stages"]:
            name = stage["name"]
            formulas = presentation.formulas_of(file.job.stages[name])
            if name in tables and (formulas or stage.get(derived_columns.ENTRY)):
                made = pathlib.Path(folder) / tables[name].name
                try:
                    derived = derived_columns.write(tables[name], made, stage, formulas)
                except RequestError as error:
                    field = f"stages.{name}.metrics.{error.field}"
                    raise file.error((), RequestError(field=field, message=error.message, hint=error.hint)) from None
                _refuse_unknown(derived, name, file)
                tables[name] = made
                stored = stage.get(derived_columns.ENTRY) or {}
                added = {key: one | {derived_columns.ADDED: stored.get(key) != one} for key, one in derived.items()}
                stage = {key: value for key, value in stage.items() if key != derived_columns.ENTRY}
                stage |= {derived_columns.ENTRY: added} if added else {}
            stages.append(stage)
        yield {**content, "stages": stages}, tables


def _refuse_unknown(derived: Mapping[str, Any], stage: str, file: "JobFile") -> None:
    """Refuse numbers that cannot be computed from this release, such as those of a metric that a job has since.

    Args:
        derived: what manifests say of them.
        stage: its name.
        file: the job file.

    Raises:
        RequestError: there is one.
    """
    for name, entry in derived.items():
        if entry["why"] is not None:
            field = f"stages.{stage}.metrics.{name}"
            hint = "compute it from what was released"
            raise file.error((), RequestError(field=field, message=f"has no number: {entry['why']}", hint=hint))
