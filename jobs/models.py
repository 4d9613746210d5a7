"""What all parts of a job file share: the base of its models, and common types.

May import pydantic. Imported by job_file, metric_models.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scalar = Annotated[Any, WithJsonSchema({"type": ["string", "number", "boolean", "null"]})]


class Model(BaseModel):
    """Base of all parts of a job file: unknown keys are errors, nothing is converted, nothing changes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
