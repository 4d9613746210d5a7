"""A user's own pipeline as Dataflow would receive it: text in a bucket, a private release, text in a bucket.

In: an environment with the extra `dataflow`. Out: facts about the graph as JSON on standard output; exit code 1 if one of them is
not as it should be. Holds: Beam's own Dataflow runner builds the graph up to the call of the service; no network is used. Not
covered: what the service does with it.
"""

import contextlib
import json
import pathlib
import sys
import tempfile
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

import dp_pipelines as dp
from dp_pipelines.transforms import PrivateAggregate

OPTIONS = [
    *("--project=project", "--region=europe-west4", "--temp_location=gs://bucket/tmp", "--job_name=orders"),
    "--sdk_container_image=europe-docker.pkg.dev/project/dp/dp-pipelines:2026-01",
]

GOOD = {
    "group_by_keys": ["PrivateAggregate/Barrier", "PrivateAggregate/ByPlace", "PrivateAggregate/ByShard"],
    "pickled": [],
    "environments": 1,
    "staged": [],
    "packages": [],
    "paths": [],
}
"""Three shuffles; no element is pickled; one image; nothing is uploaded; nothing names this machine."""

OWN_CODER = b"ArrowTableCoder"
"""Beam sends a registered coder by name, under the same urn as a pickler."""


def pipeline() -> beam.Pipeline:
    """Return the pipeline of a user who counts orders by region."""
    query = dp.Query(
        privacy_unit="customer",
        partition_by="region",
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=3),
        metrics={"orders": dp.Count(), "revenue": dp.Sum("amount", min_value=0, max_value=100)},
    )
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"by_region": query})
    types = {"customer": "int64", "region": "string", "amount": "double"}
    built = beam.Pipeline(runner=FnApiRunner())  # a pipeline of Dataflow's runner asks for credentials when it is made
    lines = built | beam.io.ReadFromText("gs://bucket/orders/*.jsonl", validate=False)
    rows = lines | beam.Map(json.loads) | PrivateAggregate(plan["by_region"], types=types, as_rows=True)
    rows | beam.Map(str) | beam.io.WriteToText("gs://bucket/out/by_region")
    return built


def facts(job: dict[str, Any], graph: beam_runner_api_pb2.Pipeline, folder: str) -> dict[str, Any]:
    """Return what a reader of the graph wants to know.

    Args:
        job: the job as JSON values.
        graph: the pipeline that is staged with it.
        folder: the folder of this machine into which both were written.
    """
    components = graph.components
    ours = [step for step in components.transforms.values() if "PrivateAggregate" in step.unique_name]

    def pickles(coder_id: str) -> bool:
        coder = components.coders[coder_id]
        own = OWN_CODER in coder.spec.payload[:40]
        return ("pickled_python" in coder.spec.urn and not own) or any(map(pickles, coder.component_coder_ids))

    # Beam's own Reshuffle pickles time stamps and pane numbers with each element.
    outputs = [(step.unique_name, place) for step in ours for place in step.outputs.values()]
    outputs = [(name, place) for name, place in outputs if "/ReshufflePerKey/" not in name]
    group, docker = common_urns.primitives.GROUP_BY_KEY.urn, common_urns.environments.DOCKER.urn
    environments = components.environments.values()
    machine = {
        folder,
        str(pathlib.Path.cwd()),
        str(pathlib.Path.home()),
        sys.prefix,
        str(pathlib.Path(__file__).parent),
    }
    text = graph.SerializeToString()
    return {
        "group_by_keys": sorted(step.unique_name for step in ours if step.spec.urn == group),
        "pickled": sorted(name for name, place in outputs if pickles(components.pcollections[place].coder_id)),
        "environments": sum(environment.urn == docker for environment in environments),
        "staged": sorted(file.role_urn for environment in environments for file in environment.dependencies),
        "packages": [package for pool in job["environment"]["workerPools"] for package in pool.get("packages", [])],
        "paths": sorted(path for path in machine if len(path) > 1 and path.encode() in text),
        "bytes": len(text),
    }


def main() -> int:
    """Build the job, print the facts about it."""
    with tempfile.TemporaryDirectory(prefix="user-dataflow-") as folder, contextlib.redirect_stdout(sys.stderr):
        options = PipelineOptions([*OPTIONS, f"--template_location={folder}/job.json"])
        google = options.view_as(GoogleCloudOptions)
        google.no_auth, google.staging_location = True, folder
        DataflowRunner().run_pipeline(pipeline(), options)
        job = json.loads(pathlib.Path(folder, "job.json").read_text())
        graph = beam_runner_api_pb2.Pipeline.FromString(pathlib.Path(folder, "pipeline.pb").read_bytes())
        found = facts(job, graph, folder)
    print(json.dumps(found, indent=1))
    wrong = [name for name, value in GOOD.items() if found[name] != value]
    if wrong:
        print(f"not as they should be: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
