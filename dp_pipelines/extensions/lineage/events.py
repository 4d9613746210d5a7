"""The OpenLineage events of a run, with a facet on its guarantee.

In: a job, the arguments of `run`, the manifest. Out: a file with a START and a COMPLETE or FAIL event. Holds: events hold public
facts alone: names, the privacy unit, epsilon, delta and the account. They hold no number of rows, no statistics and no message,
and both have the time at which the command began, so that they do not tell how long the run took. No other file is replaced than
one of events (a slip of the pen names a job file or a ledger). Not covered: sending events.

Schema: OpenLineage 2-0-2, https://openlineage.io/spec/2-0-2/OpenLineage.json.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

import dp_pipelines
from dp_pipelines.disk_errors import DiskError, told_of_disk
from dp_pipelines.errors import DpError, PublishError
from dp_pipelines.jobs.run.run import NO_LEDGER, PublishedRun
from dp_pipelines.jobs.sources import event_window
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.release.manifest import unit_in_words
from dp_pipelines.release.staging import write_whole
from dp_pipelines.report.key_text import visible

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACET = "dpPipelines_privacy"
"""The name of the facet."""

FACET_SCHEMA = "urn:dp-pipelines:schema:privacy-run-facet:1"
"""Names docs/reference/privacy_run_facet.json."""

NAMESPACE = "dp-pipelines"


BEGINNING = b'{"eventType": '
"""How each file of events begins."""


def is_replaceable(target: pathlib.Path) -> bool:
    """Return True if a path has no file, an empty one or one of events."""
    if not target.exists():
        return True
    if not target.is_file():  # such as /dev/null
        return False
    with told_of_disk(target.parent), target.open("rb") as file:
        return file.read(len(BEGINNING)) in (b"", BEGINNING)


class Events:
    """The events of one run.

    Args:
        file: the job.
        given: the arguments of `run`, with filled names.
        target: the file to write.
    """

    def __init__(self, file: JobFile, given: argparse.Namespace, target: pathlib.Path) -> None:
        self._file, self._given, self._target = file, given, target
        self._began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._run = str(_run_uuid(file, given))

    def published(self, run: PublishedRun) -> str:
        """Write START and COMPLETE, and return a note.

        Raises:
            PublishError: the file cannot be written. It says that the release is there.
        """
        place = str(run.folder.absolute()) if run.place is None else str(run.place.shown)
        outputs = [_dataset(f"{place}/{name}") for name in self._file.job.stages]
        accounted, plan = run.manifest["accounted"], run.manifest["plan"]
        more = {"plan": plan, "accountedEpsilon": accounted["epsilon"], "accountedDelta": accounted["delta"]}
        try:
            self._write([self._event("START", [], {}), self._event("COMPLETE", outputs, more)])
        except DpError as error:
            reason = error.reason if isinstance(error, DiskError) else str(error)
            raise PublishError(
                f"--lineage: {reason}; the release is published in {place}, and the same command tries to write its events again"
            ) from None
        return f"wrote lineage events to {visible(str(self._target))}"

    def failed(self) -> None:
        """Write START and FAIL, if the file can be written."""
        with contextlib.suppress(DpError):
            self._write([self._event("START", [], {}), self._event("FAIL", [], {})])

    def _write(self, events: list[dict[str, Any]]) -> None:
        if not is_replaceable(self._target):  # made since the run began, such as a ledger
            raise PublishError(f"file {str(self._target)!r}: is a file without lineage events, and is not replaced")
        write_whole(self._target, "".join(json.dumps(event) + "\n" for event in events).encode())

    def _event(self, kind: str, outputs: list[dict[str, str]], more: Mapping[str, object]) -> dict[str, Any]:
        job, producer = self._file.job, f"urn:dp-pipelines:{dp_pipelines.__version__}"
        budget = job.budget
        facet = {
            "_producer": producer,
            "_schemaURL": FACET_SCHEMA,
            "unit": event_window.in_words(unit_in_words(job.unit), job),
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "runs": budget.all_runs,
            "account": None if self._given.ledger == NO_LEDGER else job.dataset,
            **more,
        }
        folder = self._file.path.absolute().parent
        inputs = [_dataset(source.pattern, folder) for source in job.sources.values()]
        return {
            "eventType": kind,
            "eventTime": self._began,
            "run": {"runId": self._run, "facets": {FACET: facet}},
            "job": {"namespace": NAMESPACE, "name": _job_name(self._file)},
            "inputs": inputs,
            "outputs": outputs,
            "producer": producer,
            "schemaURL": SCHEMA,
        }


def _job_name(file: JobFile) -> str:
    return f"{file.job.dataset}.{file.path.stem}"


def _run_uuid(file: JobFile, given: argparse.Namespace) -> uuid.UUID:
    """Return the id of a run: the same for a retry, and another for each run without a ledger.

    Where the command gives no run id, the run has its job for a name: a changed job is another run.
    """
    if given.ledger == NO_LEDGER:
        return uuid.uuid4()
    words = [NAMESPACE, _job_name(file), given.run_id or file.job.model_dump_json(), *sorted(given.param)]
    return uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(words))


def _dataset(name: str, folder: pathlib.Path | None = None) -> dict[str, str]:
    """Return a dataset by OpenLineage's rules of names: a bucket is a namespace, and so are the local files.

    Args:
        name: a path or a URL, or a pattern of either.
        folder: where a relative path starts.

    >>> _dataset("s3://shop/out/weekly")
    {'namespace': 's3://shop', 'name': 'out/weekly'}
    """
    scheme, separator, rest = name.partition("://")
    if separator:
        host, _, path = rest.partition("/")
        return {"namespace": f"{scheme}://{host}", "name": path or "/"}
    return {"namespace": "file", "name": name if folder is None else str(folder / name)}
