"""What a job publishes its tables as, beside Parquet: text files in the output folder, and what extensions add outside of it.

In: `outputs:` of a job file. Out: a checked model. Holds: Parquet is always written, and is the table of record. Not covered:
whether a format can hold the tables' columns (`jobs.outputs`).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import extension_keys
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.extension_keys import OutputKeys


def _with_built_in_outputs(base: "type[OutputsModel]") -> "type[OutputsModel]":
    """Add the keys of installed extensions that publish tables. A class decorator."""
    return with_outputs(base, extension_keys.installed(extension_keys.OUTPUT, OutputKeys))


def with_outputs(base: "type[OutputsModel]", added: Mapping[str, OutputKeys]) -> "type[OutputsModel]":
    """Return a model of outputs with more places. A key that the model has already stays as it is.

    Args:
        base: the model.
        added: the keys of what extensions publish outside of the output folder, by the first of them.
    """
    new = {
        place: {name: field for name, field in keys.fields.items() if name not in base.model_fields}
        for place, keys in added.items()
    }
    added = {place: dataclasses.replace(keys, fields=new[place]) for place, keys in added.items()}
    fields: dict[str, Any] = {name: field for of_place in new.values() for name, field in of_place.items()}
    made = create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **fields)
    made.elsewhere = MappingProxyType({**base.elsewhere, **added})
    return made


@_with_built_in_outputs
class OutputsModel(JobModel):
    """Other formats of the published tables, beside Parquet, with the same rows."""

    elsewhere: ClassVar[Mapping[str, OutputKeys]] = MappingProxyType({})
    """What extensions publish outside of the output folder, by the key that says where."""

    files: Annotated[
        list[Literal["csv", "jsonl"]] | None,
        Field(
            min_length=1, description="Files beside each <stage>.parquet: csv, jsonl (one JSON object a row), or both."
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _extensions_are_installed(cls, value: Any) -> Any:
        extension_keys.refuse_missing(extension_keys.OUTPUT, value, cls.model_fields)
        return value

    @model_validator(mode="after")
    def _says_something(self) -> "OutputsModel":
        if self.files is None and not self.places:
            message = f"must hold {' or '.join(f'{name}:' for name in ('files', *self.elsewhere))}"
            raise RequestError(field="", message=message, hint="write e.g. files: [csv]")
        if self.files is not None and len(set(self.files)) != len(self.files):
            raise RequestError(field="files", message="names a format twice", hint="name each once")
        for name, option in self._options():
            if name not in self.places and option in self.model_fields_set:
                message, hint = f"is for {name}: only", f"drop it, or add {name}:"
                raise RequestError(field=option, message=message, hint=hint)
        return self

    def _options(self) -> Iterator[tuple[str, str]]:
        """The keys that belong to another key, each after that one."""
        for name, keys in self.elsewhere.items():
            yield from ((name, option) for option in keys.fields if option != name)

    @property
    def places(self) -> dict[str, Any]:
        """What the job says of each place outside of the output folder, by key."""
        said = {name: getattr(self, name) for name in self.elsewhere}
        return {name: value for name, value in said.items() if value is not None}
