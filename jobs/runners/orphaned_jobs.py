"""Finds jobs that a dead driver left with an engine, by name, cancels them and waits for their end.

In: what the ledger has recorded about a job. Out: the job has ended, or the engine no longer knows it, or a message
that the engine cannot be asked. Holds: only a job with exactly that name or id is cancelled; an engine's answer never
affects what is published: a job writes only into the private folder of its own attempt, which is destroyed. Not
covered: Dataflow, whose service refuses a second job of a name; clusters that require a password; Beam's job service in
Python, which reports a job as cancelled but lets it run. Beam is imported only when a job service is asked.
"""

import contextlib
import dataclasses
import http.client
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from dp_pipelines.errors import DpError
from dp_pipelines.jobs.runners import cluster_checks
from dp_pipelines.ledger.entries import EngineJob

PATIENCE = 120.0
"""Seconds that a cancelled job has to end."""

POLL_SECONDS = 0.5

ENDED = ("FINISHED", "FAILED", "CANCELED", "DONE", "CANCELLED", "DRAINED", "UPDATED")
"""The states of a job that no longer runs."""


class StillAtWork(DpError):
    """A job was cancelled but is still running. The message holds only public facts."""


@dataclasses.dataclass(frozen=True)
class _Seen:
    """An engine's answer about a job: its name there and its state; both empty if the engine does not know it."""

    job: str = ""
    state: str = ""

    @property
    def ended(self) -> bool:
        return not self.job or self.state in ENDED


def stop(job: EngineJob, tell: Callable[[str], None], patience: float = PATIENCE) -> None:
    """End a job if its engine still has it.

    Args:
        job: as the ledger has recorded it.
        tell: is told about progress, in public words.
        patience: seconds to wait for its end.

    Raises:
        StillAtWork: the engine was asked to cancel it, but it did not end in time.
    """
    if not job.endpoint:
        return
    seen = look(job)
    if seen is None:
        tell(
            f"{_named(job)} cannot be looked up: nothing answers there; if it is still running, cancel it by "
            "hand; whatever it writes is destroyed with its private folder"
        )
        return
    if seen.ended:
        return
    tell(f"{_named(job)} was left running by an attempt that is dead; cancelling it")
    end = time.monotonic() + patience
    while True:
        if seen is not None and seen.ended:
            return
        if time.monotonic() > end:
            break
        if seen is not None:
            _cancel(job, seen)
        time.sleep(POLL_SECONDS)
        seen = look(job)
    raise StillAtWork(
        f"{_named(job)} was cancelled but did not end within {patience:.0f} seconds; nothing was published; "
        "make sure that it ends, then run the same command again"
    )


def look(job: EngineJob) -> _Seen | None:
    """An engine's answer about a job; None if nothing answers.

    Args:
        job: identified by the engine's own id, or else by its name.
    """
    if not job.endpoint.startswith("grpc://"):
        return _at_flink(job)
    with contextlib.suppress(Exception), _service(job) as service:
        return _at_service(job, service)
    return None


def _at_flink(job: EngineJob) -> _Seen | None:
    overview = cluster_checks.rest(job.endpoint, "/jobs/overview")
    if overview is None:
        return None
    for listed in overview.get("jobs") or []:
        if isinstance(listed, dict) and listed.get("name") == job.name:
            return _Seen(str(listed.get("jid")), str(listed.get("state")))
    return _Seen()


def _at_service(job: EngineJob, service: Any) -> _Seen:
    from apache_beam.portability.api import beam_job_api_pb2 as api

    for listed in service.GetJobs(api.GetJobsRequest(), timeout=cluster_checks.PATIENCE).job_info:
        named = listed.pipeline_options.fields["beam:option:job_name:v1"].string_value
        if listed.job_id == job.job or job.name in (listed.job_name, named):
            return _Seen(listed.job_id, api.JobState.Enum.Name(listed.state))
    return _Seen()


def _cancel(job: EngineJob, seen: _Seen) -> None:
    """Ask for the end of a job; its state tells whether it ends."""
    if job.endpoint.startswith("grpc://"):
        from apache_beam.portability.api import beam_job_api_pb2 as api

        with contextlib.suppress(Exception), _service(job) as service:
            service.Cancel(api.CancelJobRequest(job_id=seen.job), timeout=cluster_checks.PATIENCE)
        return
    asked = urllib.request.Request(f"{job.endpoint}/jobs/{quote(seen.job, safe='')}?mode=cancel", method="PATCH")  # noqa: S310
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        urllib.request.urlopen(asked, timeout=cluster_checks.PATIENCE).close()  # noqa: S310


@contextlib.contextmanager
def _service(job: EngineJob) -> Iterator[Any]:
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2_grpc

    with grpc.insecure_channel(job.endpoint.removeprefix("grpc://")) as channel:
        grpc.channel_ready_future(channel).result(timeout=cluster_checks.PATIENCE)
        yield beam_job_api_pb2_grpc.JobServiceStub(channel)


def _named(job: EngineJob) -> str:
    return f"job {job.name!r} of {job.runner} at {job.endpoint.partition('://')[2]}"
