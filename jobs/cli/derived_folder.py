"""A folder with the page and the files of a release as a job file asks for them now, at no cost.

In: a published folder, a job file. Out: a new folder with the page and the text files that `outputs:` names. Holds: nothing but
the published folder and the job file is read, no ledger and no row; the folder appears whole or not at all. Not covered: places
outside of the folder, such as Delta tables, which a run alone writes.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli import page_place
from dp_pipelines.jobs.outputs import outputs, released_layouts
from dp_pipelines.jobs.outputs.outputs import Outputs
from dp_pipelines.jobs.spec import presentation
from dp_pipelines.release import staging
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.trends.published_runs import PAGE, ReleasedRun

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import JobFile

PAGES = (".html", ".htm")
"""How the names of pages end; any other name is that of a folder."""


def is_folder(output: str | None, job: str | None) -> bool:
    """Return True if the output of `report` is a folder: with a job file, and a name that is not that of a page.

    >>> is_folder("new", "job.yaml"), is_folder("new.html", "job.yaml"), is_folder("page", None), is_folder(None, "job.yaml")
    (True, False, False, False)
    """
    return job is not None and output is not None and pathlib.PurePath(output).suffix.lower() not in PAGES


def refuse_unfit(output: str) -> None:
    """Refuse a place where no folder may be made.

    Args:
        output: the folder.

    Raises:
        RequestError: something is there, it is inside a release, or its parent does not exist.
    """
    target, field = pathlib.Path(output), f"--output {visible(output)!r}"
    page_place.refuse_in_release(target, field)
    if os.path.lexists(target):
        raise RequestError(
            field=field,
            message="exists",
            hint="name a new folder, or a page whose name ends in .html, which is replaced",
        )
    if not target.absolute().parent.is_dir():
        message = "is in a folder that does not exist"
        raise RequestError(field=field, message=message, hint="make that folder first, or choose another place")


def write(
    output: str,
    run: ReleasedRun,
    file: "JobFile",
    content: Mapping[str, Any],
    shown: Mapping[str, pathlib.Path],
    page: str,
) -> tuple[list[str], list[str]]:
    """Write the folder.

    Args:
        output: its name, which `refuse_unfit` has let pass.
        run: the release.
        file: the job.
        content: the manifest with the presentation of the job.
        shown: the tables of stages, with what the job computes from released numbers.
        page: the page.

    Returns:
        the names of the files, and what must be said of them.

    Raises:
        RequestError: a format cannot hold a table; nothing is left behind.
        DiskError, PublishError: a file cannot be written.
    """
    tables = {**run.every_table, **shown}
    said = _outputs(file, content, tables)
    with staging.staging_folder(output) as folder:
        whole = folder / "derived"
        whole.mkdir(mode=0o700)
        (whole / PAGE).write_text(page, encoding="utf-8")
        published = {f"{name}{outputs.PARQUET}": path for name, path in tables.items()}
        notes = [f"{name} {words}" for name, words in said.notes(published).items()]
        copies = said.copies(published, whole, content["stages"])
        staging.publish_folder(whole, output)
    elsewhere = () if file.job.outputs is None else file.job.outputs.places
    notes += [f"{place} of the job is not written: a run alone does" for place in elsewhere]
    return [PAGE, *copies], notes


def _outputs(file: "JobFile", content: Mapping[str, Any], tables: Mapping[str, pathlib.Path]) -> Outputs:
    """Return which files a job asks for. Raises: RequestError, if a format cannot hold a table."""
    schemas = {}
    for name, path in tables.items():
        with pa.parquet.ParquetFile(path) as table:
            schemas[name] = table.schema_arrow
    layouts = released_layouts.layouts_of_release(content, schemas, presentation.forms_of(file.job))
    return outputs.bind_files(file, schemas, layouts)
