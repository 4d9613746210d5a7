"""What a job publishes its tables as, beside Parquet: text files in the output folder, and what extensions add outside of it.

In: `outputs:` of a job file. Out: a checked model. Holds: Parquet is always written, and is the table of record. Not covered:
whether a format can hold the tables' columns (`jobs.outputs`).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, create_model, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import extension_keys
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.extension_keys import OutputKeys

IN_CELLS = "\"'`\\+-.:"
"""Characters that cells without quotation marks hold, or that readers of CSV take for quotation marks."""


class SpreadsheetOptions(JobModel):
    """How CSV is written for people who open it in a spreadsheet."""

    rounded: Annotated[
        bool,
        Field(
            description="Whether numbers of people and rows are whole, and others have the digits that their noise leaves "
            "meaningful, as on the page."
        ),
    ] = False
    interval: Annotated[
        bool,
        Field(description="Whether <metric>_from and <metric>_to say the 95% interval of the noise of each number."),
    ] = False
    wide: Annotated[
        bool,
        Field(
            description="Whether a row is a combination of all keys but the last one of partition_by, with a column for each "
            "value of the last one and each metric."
        ),
    ] = False
    delimiter: Annotated[str, Field(description="The character between cells, e.g. ';' or a tab.")] = ","
    decimal: Annotated[
        Literal[".", ","],
        Field(description="The decimal separator of numbers; with a comma, the delimiter must be another character."),
    ] = "."
    bom: Annotated[bool, Field(description="Whether the file begins with a byte order mark, which Excel needs.")] = (
        False
    )

    @model_validator(mode="after")
    def _separates_cells(self) -> "SpreadsheetOptions":
        mark = self.delimiter
        plain = len(mark) == 1 and mark.isascii() and (mark.isprintable() or mark == "\t")
        if not plain or mark.isalnum() or mark in IN_CELLS:
            message = "must be one ASCII character, and no letter, digit, quotation mark, backslash or part of a number or time"
            raise RequestError(field="delimiter", message=message, hint='write e.g. delimiter: ";", or "\\t" for a tab')
        if self.decimal == mark:
            message = f"must not be the delimiter, and both are {mark!r}"
            raise RequestError(field="decimal", message=message, hint='add delimiter: ";" beside it')
        return self


class SpreadsheetFile(JobModel):
    """A file for spreadsheets beside each table."""

    csv: Annotated[SpreadsheetOptions, Field(description="CSV with options.")]


def _plainest(entry: Any) -> Any:
    """Return the name of a format in place of the same without options: both are one job."""
    return "csv" if isinstance(entry, SpreadsheetFile) and entry.csv == SpreadsheetOptions() else entry


FileFormat = Annotated[
    Annotated[Literal["csv", "jsonl"], Tag("text")] | Annotated[SpreadsheetFile, Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, (dict, SpreadsheetFile)) else "text"),
    AfterValidator(_plainest),
]
"""A format of text files, by its name or with options."""


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
        list[FileFormat] | None,
        Field(
            min_length=1,
            description="Files beside each <stage>.parquet: csv, jsonl (one JSON object a row), or both. CSV may have options.",
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
        if self.files is not None and len(set(self.formats)) != len(self.formats):
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
    def formats(self) -> tuple[str, ...]:
        """The names of the text formats, in the order of the job file."""
        return tuple(entry if isinstance(entry, str) else "csv" for entry in self.files or ())

    @property
    def spreadsheet(self) -> tuple[int, SpreadsheetOptions] | None:
        """The entry of `files` that gives CSV options: its place and the options; None where none does."""
        for place, entry in enumerate(self.files or ()):
            if isinstance(entry, SpreadsheetFile):
                return place, entry.csv
        return None

    @property
    def places(self) -> dict[str, Any]:
        """What the job says of each place outside of the output folder, by key."""
        said = {name: getattr(self, name) for name in self.elsewhere}
        return {name: value for name, value in said.items() if value is not None}
