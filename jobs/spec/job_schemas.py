"""The JSON schema of job files of all kinds: over tables, and of the kinds that installed extensions add.

In: the models. Out: one schema. Holds: the schema decides as `job_kinds.of` does which model a job must fit, so that editors
complete and mark the keys of the right one. Not covered: what no schema can say (`job_file`).
"""

from typing import Any

from dp_pipelines.jobs.spec import job_file, job_kinds


def schema() -> dict[str, Any]:
    """Return the schema that `dp-pipelines schema` prints.

    >>> schema()["$defs"]["Job"]["title"]
    'dp-pipelines job'
    """
    tables = job_file.schema()
    defined = {**tables.pop("$defs"), "Job": tables}
    chosen: dict[str, Any] = {"$ref": "#/$defs/Job"}
    for name, kind in job_kinds.installed():
        of_kind = kind.schema()
        defined = {**of_kind.pop("$defs"), **defined, kind.part: of_kind}
        stage = {"type": "object", "required": ["kind"], "properties": {"kind": {"const": name}}}
        some = {"type": "object", "not": {"additionalProperties": {"not": stage}}}
        chosen = {
            "if": {"required": ["stages"], "properties": {"stages": some}},
            "then": {"$ref": f"#/$defs/{kind.part}"},
            "else": chosen,
        }
    return {"title": "dp-pipelines job file", **chosen, "$defs": dict(sorted(defined.items()))}
