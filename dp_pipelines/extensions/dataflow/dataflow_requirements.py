"""The requirements of Dataflow, decided by public facts before anything is charged.

In: options of Beam, a checked request. Out: the missing options, or a refusal. Holds: workers run one named program,
the image; a job reads from and stages to places that workers can see; a run that is started twice has one job name, so
the service refuses the second job while the first is running. Not covered: whether project, bucket, image and
permissions exist; the service reports that. None of this was run on the service: docs/dataflow.md. Imports no Beam.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners.runner_rules import run_key
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.query.large_list import LargeList

if TYPE_CHECKING:
    from dp_pipelines.jobs.request.request import Request

SCHEME = "gs://"

WAREHOUSE = "bigquery://"
"""How tables of BigQuery are called among the files of a source."""

NEEDED = {
    "project": ("the project that pays", "--project=NAME"),
    "region": ("where workers run; the bucket should be there too", "--region=europe-west4"),
    "temp_location": ("a folder of a private bucket, for staged files", "--temp_location=gs://BUCKET/tmp"),
    "sdk_container_image": ("the image with this package: Beam's own lacks it", "--sdk_container_image=IMAGE:TAG"),
}
"""Options that every job needs: what they name, and how to write them."""

OTHER_PROGRAMS = ("setup_file", "requirements_file", "extra_packages", "prebuild_sdk_container_engine")
"""Options that add programs to workers besides those of the image."""

DEFAULTS = {
    "sdk_location": "--sdk_location=container",  # download and upload nothing: the image has everything
    "shuffle_mode": "--experiments=shuffle_mode=service",  # shuffled data outlive workers
}
"""Options that are set unless given."""


def defaults(given: Mapping[str, Any], name: str = "") -> tuple[str, ...]:
    """The options that a job on Dataflow needs but were not given.

    Args:
        given: all options of Beam by name, as Beam's parser gives them.
        name: of the job, unless one is given; see `job_name`.

    Raises:
        RequestError: an option is missing, or the job could not work with it.

    >>> defaults({"project": "p", "region": "r", "temp_location": "gs://b/t", "sdk_container_image": "host/dp:1"})
    ('--sdk_location=container', '--experiments=shuffle_mode=service')
    """
    problems = [
        RequestError(field=f"--{option}", message=f"is required on Dataflow: {what}", hint=f"write {how}")
        for option, (what, how) in NEEDED.items()
        if not given.get(option)
    ]
    for option in ("temp_location", "staging_location"):
        place = str(given.get(option) or SCHEME + "b/")
        if not re.fullmatch(r"gs://[^/*?\[\]]+/[^*?\[\]]*", place + "/"):
            message = "is not a plainly named folder in a bucket, and workers see no other place"
            problems.append(RequestError(field=f"--{option}", message=message, hint="write gs://BUCKET/FOLDER"))
    image = str(given.get("sdk_container_image") or "x:1")
    tag = image.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        message = "has no fixed tag, so that a run would depend on the day"
        problems.append(
            RequestError(field="--sdk_container_image", message=message, hint="write IMAGE:TAG or IMAGE@sha256:...")
        )
    for option in OTHER_PROGRAMS:
        if given.get(option):
            message = "adds code to workers that is not in the image"
            problems.append(RequestError(field=f"--{option}", message=message, hint="put it into the image"))
    if given.get("dataflow_job_file"):
        message = "writes the job, with its parameters, to a file"
        hint = "leave it out; `python -m dp_pipelines.extensions.dataflow.job_graph` shows the job"
        problems.append(RequestError(field="--dataflow_job_file", message=message, hint=hint))
    raise_all(problems)
    experiments = [str(item).partition("=")[0] for item in given.get("experiments") or []]
    unset = (None, "", "default")  # Beam downloads and uploads for "default"
    missing = [text for option, text in DEFAULTS.items() if given.get(option) in unset and option not in experiments]
    return (*missing, *([f"--job_name={name}"] if name and not given.get("job_name") else []))


def refuse_local(request: "Request") -> None:
    """Refuse a job if Dataflow's workers could not do part of it.

    Raises:
        RequestError: its rows are where workers cannot see them, or it trains a model.
    """
    problems = []
    outside = [path for path in request.source.files if not path.startswith((SCHEME, WAREHOUSE))]
    if outside:
        message = f"names files that Dataflow's workers do not see, e.g. {outside[0]!r}"
        hint = f"put them into a bucket and name them with {SCHEME}"
        problems.append(request.file.error(("source",), RequestError(field="source", message=message, hint=hint)))
    for name in request.tasks:
        message = (
            "trains a model, which needs its examples on the machine of this command; this is not supported on Dataflow"
        )
        problems.append(
            request.file.error(
                ("stages", name), RequestError(field=f"stage {name!r}", message=message, hint="use another runner")
            )
        )
    for name, query in request.queries.items():
        if isinstance(query.partitions, LargeList):
            message = "names a list sorted on the disk of this machine, which Dataflow's workers do not see"
            error = RequestError(field="public_sorted_file", message=message, hint="use another runner")
            problems.append(request.file.error(("stages", name, "partitions"), error))
    raise_all(problems)


def extra_missing(field: str) -> RequestError:
    """The error for missing Google packages.

    >>> extra_missing("--runner dataflow").hint
    "install the extra: pip install 'dp-pipelines[dataflow]'"
    """
    hint = "install the extra: pip install 'dp-pipelines[dataflow]'"
    return RequestError(field=field, message="needs packages that are not installed", hint=hint)


def job_name(account: str, run_id: str) -> str:
    """The name of a run's jobs: the service accepts no second job of a name while one is running.

    >>> job_name("Shop", "2026-W01").startswith("dp-")
    True
    """
    return f"dp-{run_key(account, run_id)}"


def place(temp_location: str, account: str, run_id: str) -> str:
    """The folder of a bucket in which the attempts of a run stage, and nothing else.

    Args:
        temp_location: the value of `--temp_location`.
        account, run_id: of the run.

    >>> place("gs://b/tmp/", "shop", "2026-W01").rpartition("/")[0]
    'gs://b/tmp/dp-pipelines-staging'
    """
    return f"{temp_location.rstrip('/')}/dp-pipelines-staging/{run_key(account, run_id)}"
