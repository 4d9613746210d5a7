"""What a job publishes its tables as, beside Parquet: text files in the output folder, Delta tables outside of it.

In: `outputs:` of a job file. Out: a checked model. Holds: Parquet is always written, and is the table of record. Not covered:
whether a format can hold the tables' columns (`jobs.outputs`).
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel


class OutputsModel(JobModel):
    """Other formats of the published tables, beside Parquet, with the same rows."""

    files: Annotated[
        list[Literal["csv", "jsonl"]] | None,
        Field(
            min_length=1, description="Files beside each <stage>.parquet: csv, jsonl (one JSON object a row), or both."
        ),
    ] = None
    delta: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The folder of Delta tables, one for each published table under its name, to which a run adds one "
            "commit; relative to the job file, or s3://BUCKET/FOLDER.",
        ),
    ] = None
    delta_mode: Annotated[
        Literal["append", "overwrite"],
        Field(
            description="append: a run's rows are added, with the run's id in a column run_id; overwrite: they replace those "
            "of earlier runs."
        ),
    ] = "append"

    @model_validator(mode="after")
    def _says_something(self) -> "OutputsModel":
        if self.files is None and self.delta is None:
            raise RequestError(field="", message="must hold files: or delta:", hint="write e.g. files: [csv]")
        if self.files is not None and len(set(self.files)) != len(self.files):
            raise RequestError(field="files", message="names a format twice", hint="name each once")
        if self.delta is None and "delta_mode" in self.model_fields_set:
            raise RequestError(field="delta_mode", message="is for delta: only", hint="drop it, or add delta:")
        return self
