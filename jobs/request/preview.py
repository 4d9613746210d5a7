"""What `plan` can know before a run: the queries, checked against the files where they are there.

In: a job file and parameters. Out: queries and, where the files were not checked, a note that says why. Holds: a plan needs no
data; but what is wrong with files that are there is told as early as here.
"""

from collections.abc import Sequence

from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.request.request import Request, asked_for, check, check_expressions
from dp_pipelines.jobs.request.train_tasks import models
from dp_pipelines.jobs.sources import declared_source
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel


def preview(file: JobFile, given: Sequence[str]) -> tuple[dict[str, Query | TrainModel], str]:
    """What each stage of a job asks for, and a note where its files were not checked.

    Raises:
        RequestError: the job file, a parameter or a file that is there is wrong.
    """
    stages, note, _ = looked_at(file, given)
    return stages, note


def looked_at(file: JobFile, given: Sequence[str]) -> tuple[dict[str, Query | TrainModel], str, Request | None]:
    """The same, with the checked request where the files could be looked at.

    Raises:
        RequestError: as for `preview`.
    """
    declared = {name: param.type for name, param in file.job.params.items()}
    if declared and not given:
        checked = "the values of parameters in expressions" if _checks_names(file) else "files and expressions"
        return _asked(file), f"{checked} were not checked: give the parameters with --param", None
    values = job_parameters.take(declared, given)
    for key, source in file.job.sources.items():
        why = declared_source.why_absent(source, file.path.parent, values)
        if why:
            return _asked(file), f"files and expressions were not checked: {key} {why}", None
    request = check(file, given)
    return request.stages, "", request


def _checks_names(file: JobFile) -> bool:
    """Check the names in a job's expressions without values of its parameters; return False where no columns are known yet.

    Raises:
        RequestError: what is wrong.
    """
    if file.job.tables is not None:
        return False
    declared, folder = file.job.one_source("this reads one"), file.path.parent
    if not declared_source.why_absent(declared, folder, {}):
        source: Source | None = declared_source.look(declared, folder, {}, file.document)
    else:
        source = None if declared.hive else declared_source.without_files(declared)
    if source is not None:
        check_expressions(file, source)
    return source is not None


def _asked(file: JobFile) -> dict[str, Query | TrainModel]:
    """As far as it can be known without files."""
    return asked_for(file, queries(file), models(file))
