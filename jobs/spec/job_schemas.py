"""The JSON schema of job files of both sorts: over tables, and over reports of devices.

In: the models. Out: one schema. Holds: which of the two a job must fit is decided as `is_collected` decides it, so that
editors complete and mark the keys of the right one. Not covered: what no schema can say (`job_file`, `collected_job`).
"""

from typing import Any

from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.collected_job import CollectedJob
from dp_pipelines.jobs.spec.content import COLLECTED

A_COLLECTED_STAGE = {"type": "object", "required": ["kind"], "properties": {"kind": {"const": COLLECTED}}}


def schema() -> dict[str, Any]:
    """The schema that `dp-pipelines schema` prints.

    >>> whole = schema()
    >>> whole["then"], whole["else"]
    ({'$ref': '#/$defs/CollectedJob'}, {'$ref': '#/$defs/Job'})
    """
    tables, collected = job_file.schema(), CollectedJob.model_json_schema()
    defined = {**collected.pop("$defs"), **tables.pop("$defs"), "Job": tables, "CollectedJob": collected}
    some_collected = {"type": "object", "not": {"additionalProperties": {"not": A_COLLECTED_STAGE}}}
    return {
        "title": "dp-pipelines job file",
        "if": {"required": ["stages"], "properties": {"stages": some_collected}},
        "then": {"$ref": "#/$defs/CollectedJob"},
        "else": {"$ref": "#/$defs/Job"},
        "$defs": dict(sorted(defined.items())),
    }
