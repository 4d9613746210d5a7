"""Builds the job that Dataflow would receive, without a network, for the command `dataflow`.

In: a job file, parameters, the options of Beam that a run would have. Out: the job as JSON, its pipeline, and reasons
why a run with them would be refused. Holds: Beam's own Dataflow runner builds it, up to the call of the service; no row
is read, and no ledger is opened. Not covered: what the service does with it; pipelines after the first, which depend on
what that one releases. Needs the extra `dataflow`.
"""

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.dataflow import bucket_staging, dataflow_requirements
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import build, shuffled_rows
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.runners import beam_options, error_masking
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.transforms.beam_flow import beginning

OF_THIS_RUN_ONLY = ("no_auth", "template_location")
"""Options that make Beam stop before the service; a run has none of them."""

DRY = "dry-run"
"""The run id if none is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Produced:
    """What Dataflow would receive.

    Args:
        job: the job, as JSON values; `environment` has image, machines and experiments.
        pipeline: the graph staged beside it.
        pipelines: the number of pipelines of a run; this is the first.
        refused: reasons why a run would be refused, in words.
    """

    job: dict[str, Any]
    pipeline: beam_runner_api_pb2.Pipeline
    pipelines: int
    refused: tuple[str, ...]

    @property
    def steps(self) -> list[str]:
        """The names of all steps that do something, in alphabetical order."""
        transforms = self.pipeline.components.transforms.values()
        return sorted(found.unique_name for found in transforms if not found.subtransforms and found.spec.urn)

    @property
    def shuffles(self) -> list[str]:
        """The names of the steps that move data between workers."""
        group = common_urns.primitives.GROUP_BY_KEY.urn
        return sorted(t.unique_name for t in self.pipeline.components.transforms.values() if t.spec.urn == group)

    @property
    def text(self) -> str:
        """For people."""
        environment = self.job["environment"]
        (pool,) = environment["workerPools"]
        lines = [
            f"job          {self.job['name']}, the first of {self.pipelines} pipelines",
            f"image        {pool['workerHarnessContainerImage']}",
            f"machines     {pool.get('machineType', 'chosen by Dataflow')}, "
            f"at most {pool.get('autoscalingSettings', {}).get('maxNumWorkers', 'what Dataflow chooses')}",
            f"experiments  {', '.join(environment['experiments'])}",
            f"steps        {len(self.steps)}, of them {len(self.shuffles)} shuffles: {', '.join(self.shuffles)}",
        ]
        return "\n".join([*lines, *(f"refused      {line}" for line in self.refused)])


def produce(file: JobFile, arguments: Sequence[str], *, given: Sequence[str] = (), run_id: str = DRY) -> Produced:
    """The job that a run would submit first.

    Args:
        file: the job file. Its rows may be on this machine, although a run would then be refused.
        arguments: options of Beam.
        given: parameters, `NAME=VALUE`.
        run_id: names the run.

    Raises:
        RequestError: the request is wrong by public facts, or the extra `dataflow` is not installed.
        BudgetError: the budget cannot be met.
    """
    request = check(file, given)
    account = file.job.dataset
    name = dataflow_requirements.job_name(account, run_id)
    given_options = beam_options.pipeline_options_of(arguments).get_all_options()
    options = beam_options.pipeline_options_of([*arguments, *dataflow_requirements.defaults(given_options, name)])
    plan = plan_of(file, request.stages)
    frozen = plan.round(1).stages
    first = {stage: frozen[stage] for stage in plan.phases[0] if stage in frozen}
    if len(plan.phases) == 1:
        first |= {stage: frozen[stage] for stage in (*plan.kept.values(), *plan.compared.values())}
    pipeline = beam.Pipeline(runner=FnApiRunner())
    google = options.view_as(GoogleCloudOptions)
    writer = bucket_staging.writer_into(f"{dataflow_requirements.place(google.temp_location, account, run_id)}/{DRY}")
    shards = build.num_shards(request, options.get_all_options(), shuffled_rows.of_stages(request, first))
    build.build(beginning(pipeline), request, first, pathlib.Path("staging"), {}, shards, writer)
    error_masking.guard(pipeline)
    job, graph = _handed_over(pipeline, options)
    try:
        dataflow_requirements.refuse_local(request)
        refused: tuple[str, ...] = ()
    except RequestError as error:
        refused = tuple(str(error).splitlines())
    return Produced(job=job, pipeline=graph, pipelines=len(plan.phases), refused=refused)


def _handed_over(pipeline: beam.Pipeline, options: Any) -> tuple[dict[str, Any], beam_runner_api_pb2.Pipeline]:
    """What Beam's runner would give to the service: we have it write a template into a private folder of this machine."""
    google = options.view_as(GoogleCloudOptions)
    real = (google.staging_location or google.temp_location).rstrip("/")
    with tempfile.TemporaryDirectory(prefix="dp-dataflow-") as folder:
        google.no_auth, google.staging_location, google.template_location = True, folder, f"{folder}/job.json"
        try:
            DataflowRunner().run_pipeline(pipeline, options)
        except ImportError:
            raise dataflow_requirements.extra_missing("--runner dataflow") from None
        job = json.loads((pathlib.Path(folder) / "job.json").read_text(encoding="utf-8"))
        graph = beam_runner_api_pb2.Pipeline.FromString((pathlib.Path(folder) / "pipeline.pb").read_bytes())
        told = job["environment"]["sdkPipelineOptions"]
        for option in OF_THIS_RUN_ONLY:
            told["options"].pop(option, None)
        told["display_data"] = [item for item in told["display_data"] if item["key"] not in OF_THIS_RUN_ONLY]
        return _moved(job, folder, f"{real}/{google.job_name}"), graph


def _moved(value: Any, old: str, new: str) -> Any:
    """JSON values with a folder's name replaced."""
    if isinstance(value, dict):
        return {key: _moved(held, old, new) for key, held in value.items()}
    if isinstance(value, list):
        return [_moved(held, old, new) for held in value]
    return value.replace(old, new) if isinstance(value, str) else value
