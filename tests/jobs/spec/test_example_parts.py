"""Examples of job files: the models take each of them, and none of their keys is without one.

In: the models of a job file, and `example_parts`. Out: what is wrong with a part, the keys that no part has. Holds: a new key,
and a key that is gone, are found. Not covered: whether several parts work together, and their columns exist.
"""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from dp_pipelines import extensions
from dp_pipelines.jobs.spec import example_parts
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.declared import DeclaredFields
from tests.helpers.job_schema import SCHEMA

OF_EXTENSIONS = {"SelectStage"} & set(SCHEMA["$defs"])
"""Parts whose schema an extension makes, examples included."""


def models() -> dict[str, type[BaseModel]]:
    """The models that job files are made of, by the names that their schema has."""
    found: dict[str, type[BaseModel]] = {}
    above: list[type[BaseModel]] = [JobModel]
    while above:
        below = above.pop().__subclasses__()
        above += below
        # What models and other tests have above their models is in no schema.
        found |= {m.__name__: m for m in below if m.__module__.startswith("dp_pipelines.") and m.__name__ in PARTS}
    return found


def parts(schema: object) -> dict[str, dict[str, Any]]:
    """The schemas of all parts with keys of their own, by name."""
    found: dict[str, dict[str, Any]] = {}
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("additionalProperties") is False:
            found[schema["title"]] = schema
        for name, held in schema.items():
            if name != "examples":
                found |= parts(held)
    elif isinstance(schema, list):
        for held in schema:
            found |= parts(held)
    return found


WHOLE = {"dp-pipelines job": "Job", "dp-pipelines job of collected stages": "CollectedJob"}
PARTS = {WHOLE.get(name, name): part for name, part in parts(SCHEMA).items()}
MODELS = models()


def without_examples(shown: dict[str, dict[str, Any]]) -> list[str]:
    """The keys of a schema's parts that have no example."""
    return [
        f"{name}.{key}"
        for name, part in shown.items()
        for key, held in part["properties"].items()
        if not held.get("examples")
    ]


def test_every_key_of_a_job_file_has_an_example_in_its_schema() -> None:
    assert without_examples(PARTS) == [], "write one into jobs/spec/example_parts.py"


def test_a_key_without_an_example_is_found() -> None:
    class New(JobModel):
        """A part that nobody gave an example."""

        key: int = 1

    assert without_examples(parts(New.model_json_schema())) == ["New.key"]


def test_there_are_examples_of_parts_that_exist_and_of_no_others() -> None:
    missing = {"PartiesModel", "Member"} if not extensions.has_folder("two_organisations") else set()
    assert sorted({*example_parts.PARTS, *OF_EXTENSIONS} - missing) == sorted(PARTS)
    assert sorted([*MODELS, *OF_EXTENSIONS]) == sorted(PARTS)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_model_takes_its_examples(name: str) -> None:
    for part in example_parts.of_part(name):
        made = MODELS[name].model_validate(part)
        assert set(part) == made.model_fields_set
        if isinstance(made, DeclaredFields):
            assert json.loads(json.dumps(part)) == part


def test_an_example_that_is_wrong_would_be_found() -> None:
    [right, *_] = example_parts.of_part("MedianMetric")
    with pytest.raises(ValidationError, match="min_value"):
        MODELS["MedianMetric"].model_validate({**right, "min_value": 2000})
