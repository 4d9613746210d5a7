"""The command `describe`: a privacy impact assessment of a job as a page, or the entry of a registry with a checklist.

In: parsed arguments. Out: the page, and a line that says where it is. Holds: no row is read, no budget touched and no ledger
made; what is no page, or has answers in it, is never changed. Not covered: what the page says (`assessment`).
"""

import argparse
import datetime
import pathlib
from typing import TYPE_CHECKING

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.describe import assessment_page
from dp_pipelines.extensions.describe.assessment_page import Assessment
from dp_pipelines.jobs.cli import page_place
from dp_pipelines.jobs.cli.arguments.ledger_arguments import DEFAULT_LEDGER
from dp_pipelines.jobs.spec import job_file, job_kinds
from dp_pipelines.release.staging import write_whole
from dp_pipelines.report.key_text import visible

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

NO_LEDGER = "none"


def describe(given: argparse.Namespace) -> str:
    """Write the page and say where it is.

    Args:
        given: `job`, `output`, `ledger`, `anchor` and `param`.

    Raises:
        RequestError: the job, a parameter or the place of the page is wrong.
        BudgetError: the budget cannot be met.
        LedgerError: the ledger cannot be read or trusted.
        DiskError, PublishError: the page cannot be written.
    """
    target = pathlib.Path(given.output)
    page_place.refuse_unfit(target)
    page = _assessed(given)
    if target.suffix.lower() == ".md":
        text = page_place.marked(assessment_page.to_markdown(page))
    else:
        text = assessment_page.to_html(page)
    write_whole(target, text.encode())
    return f"wrote {visible(str(target))}: a privacy impact assessment of {visible(page.title)}, with questions for you to answer"


def describe_for_registry(given: argparse.Namespace) -> str:
    """Write the entry of a registry and a checklist, two files beside each other, and return where they are.

    Args:
        given: as for `describe`; the checklist has the name of `output`, with the ending .md.

    Raises:
        RequestError: the job, a parameter or a place is wrong, or the entry exists.
        BudgetError: the budget cannot be met.
        DiskError, PublishError: a file cannot be written.
    """
    from dp_pipelines.extensions.describe import checklist, guarantee, registry_entry
    from dp_pipelines.jobs.cli import shown_plan

    target = pathlib.Path(given.output)
    page = target.with_suffix(".md")
    if target.suffix.lower() not in (".yaml", ".yml"):
        raise RequestError(
            field="--output", message="must end with .yaml for an entry of a registry", hint="name it entry.yaml"
        )
    if target.exists():
        raise RequestError(
            field="--output", message="exists, and is not replaced: it may be filled in", hint="name another file"
        )
    page_place.refuse_in_release(target, "--output")
    page_place.refuse_unfit(page)
    content = job_file.content_of(given.job)
    if job_kinds.of(content) is not None:
        raise RequestError(field="--format", message="registry is only for jobs over tables", hint="leave it out")
    file = job_file.checked(content, pathlib.Path(given.job))
    shown = shown_plan.planned(file, given.param, guarantee.GROUPS)
    today = datetime.datetime.now(datetime.UTC).date()
    write_whole(target, registry_entry.entry_of(file.job, shown.stages, shown.plan, today).encode())
    questions = checklist.checklist_of(file.job, shown.stages, shown.plan, shown.groups)
    write_whole(page, page_place.marked(assessment_page.to_markdown(questions)).encode())
    return (
        f"wrote {visible(str(target))}: an entry for the registry of deployments, and {visible(str(page))}: a checklist after "
        "NIST SP 800-226, both with questions for you to answer"
    )


def _assessed(given: argparse.Namespace) -> Assessment:
    content, path = job_file.content_of(given.job), pathlib.Path(given.job)
    place = "" if given.ledger == NO_LEDGER else str(path.parent / DEFAULT_LEDGER)
    if (kind := job_kinds.of(content)) is not None:
        from dp_pipelines.extensions.describe import collected_assessment

        described = kind.describe(content, path, given.param)
        return collected_assessment.assessment_of(described, ledger=_ledger(given, path), place=place)
    from dp_pipelines.extensions.describe import assessment, guarantee
    from dp_pipelines.jobs.cli import shown_plan

    file = job_file.checked(content, path)
    shown = shown_plan.planned(file, given.param, guarantee.GROUPS)
    return assessment.assessment_of(
        file, shown.stages, shown.plan, request=shown.request, groups=shown.groups, ledger=_ledger(given, path), place=place
    )  # fmt: skip


def _ledger(given: argparse.Namespace, job: pathlib.Path) -> "Ledger | None":
    """The ledger that is named, or the one beside the job; None where there is none."""
    if given.ledger == NO_LEDGER:
        return None
    beside = job.resolve().parent / DEFAULT_LEDGER
    if given.ledger is None and not beside.exists():
        return None
    from dp_pipelines.ledger.ledger import Ledger  # loads SQLAlchemy

    return Ledger.open(given.ledger or str(beside), anchor=given.anchor)
