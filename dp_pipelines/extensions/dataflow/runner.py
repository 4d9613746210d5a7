"""The runner `dataflow`: what it needs, what it refuses, and how a pipeline of it stages.

In: options of Beam, a checked request, frozen stages. Out: missing options, refusals, staged files. Holds: Beam is imported when
a job runs on it, and not before. Not covered: the rules themselves (`dataflow_requirements`), staging (`bucket_staging`).
"""

import importlib
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.dataflow import dataflow_requirements

if TYPE_CHECKING:
    import pyarrow as pa
    from apache_beam.runners.runner import PipelineRunner

    from dp_pipelines.jobs.request.request import Request
    from dp_pipelines.jobs.runners.engines import Engine
    from dp_pipelines.jobs.runners.extension_runner import Runner
    from dp_pipelines.jobs.terminal.progress import Progress
    from dp_pipelines.planning.stage import StagePlan


class _Dataflow:
    """The runner `dataflow`."""

    names_jobs_after_runs = True

    def defaults(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """See `Runner`."""
        return dataflow_requirements.defaults(given)

    def refuse(self, request: "Request") -> None:
        """See `Runner`."""
        dataflow_requirements.refuse_local(request)

    def beam_runner(self) -> "PipelineRunner":
        """See `Runner`. It needs the extra `dataflow`."""
        try:
            from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

            importlib.import_module("google.cloud.storage")  # says whether the extra is there
        except ImportError:
            hint = "pip install 'dp-pipelines[dataflow]'"
            raise RequestError(
                field="--runner dataflow", message="needs Google's libraries, which are not installed", hint=hint
            ) from None
        return DataflowRunner()

    def unreachable(self) -> RequestError:
        """See `Runner`. Beam's validator asks the bucket, and an error of Google's client may quote a key."""
        message = "cannot be checked for dataflow: the service or its credentials cannot be reached from here"
        hint = "log in, e.g. `gcloud auth application-default login`"
        return RequestError(field="--temp_location", message=message, hint=hint)

    def run_pipeline(
        self, request: "Request", stages: "Mapping[str, StagePlan]", folder: pathlib.Path, engine: "Engine",
        progress: "Progress", without: "Mapping[str, pa.Table]", run_id: str,
    ) -> dict[str, pathlib.Path]:  # fmt: skip
        """See `Runner`."""
        from dp_pipelines.extensions.dataflow import bucket_staging

        account, temp_location = request.file.job.dataset, str(engine.given["temp_location"])
        return bucket_staging.run_pipeline(
            request, stages, folder, engine, progress, without,
            place=dataflow_requirements.place(temp_location, account, run_id),
            job_name=dataflow_requirements.job_name(account, run_id),
        )  # fmt: skip


DATAFLOW: "Runner" = _Dataflow()
