"""Files that a job file names: the rows, and public tables; and how CSV files among them are written.

In: `source:` and `lookup:` of a job file. Out: checked models. Holds: what stands for CSV stands beside `csv:` only, and does not
contradict itself; a source has one format. Not covered: whether the files are so (`jobs.sources`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, create_model, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import extension_keys
from dp_pipelines.jobs.spec.base_models import JobModel, Names, refuse_credentials
from dp_pipelines.jobs.spec.extension_keys import SourceKey
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.kernels.columns import csv_times
from dp_pipelines.kernels.columns.csv_format import CsvFormat

Source = TypeVar("Source", bound="SourceModel")

_TIMES = ("date", "timestamp", "timestamptz")

_OF_LINES, _TYPES_ARE = "Of CSV and JSON lines", ": the type of each column that is used."


class CsvOptions(JobModel):
    """How CSV files are written: UTF-8 with commas and a header line unless something else is declared."""

    types: Annotated[
        dict[str, str] | None,
        Field(description=f"{_OF_LINES}{_TYPES_ARE}"),
    ] = None
    quoted: Annotated[
        bool, Field(description="Of CSV: whether cells may stand in quotation marks. Each line is one row either way.")
    ] = True
    delimiter: Annotated[str, Field(description="Of CSV: the character between cells, e.g. ';' or a tab.")] = ","
    quote: Annotated[
        str, Field(description="Of CSV: the quotation mark. Two of them inside a quotation stand for one.")
    ] = '"'
    decimal: Annotated[Literal[".", ","], Field(description="Of CSV: the decimal separator of numbers.")] = "."
    thousands: Annotated[
        str | None, Field(description="Of CSV: what may separate groups of three digits, e.g. ',' in 1,234.56.")
    ] = None
    nulls: Annotated[
        list[str] | None,
        Field(
            description="Of CSV: the cells that are null. Left out: an empty cell, NULL, NA, N/A, nan and their like."
        ),
    ] = None
    header: Annotated[
        bool, Field(description="Of CSV: whether the first line names the columns. If not, names: does.")
    ] = True
    names: Annotated[
        list[str] | None,
        Field(min_length=1, description="Of CSV without a header: the names of all columns in their order."),
    ] = None
    encoding: Annotated[
        str, Field(description="Of CSV: UTF-8, or an encoding of one byte for each character: latin-1, cp1252, ...")
    ] = "utf-8"
    date_format: Annotated[
        Names | None,
        Field(
            description="Of CSV and JSON lines: how date columns are written, as for strptime; of several the first that fits."
        ),
    ] = None
    timestamp_format: Annotated[
        Names | None,
        Field(
            description="Of CSV and JSON lines: how timestamp and timestamptz columns are written, e.g. '%d.%m.%Y %H:%M'."
        ),
    ] = None
    formats: Annotated[
        dict[str, Names] | None,
        Field(description="Of CSV and JSON lines: the format of single columns of dates or timestamps, by name."),
    ] = None

    @property
    def form(self) -> CsvFormat:
        """How the files are written.

        Raises:
            RequestError: by the field that is wrong.
        """
        said: dict[str, Any] = {name: getattr(self, name) for name in ("delimiter", "decimal", "thousands", "encoding")}
        said |= {"quote": self.quote if self.quoted else None, "names": self.names}
        said |= {"nulls": self.nulls} if self.nulls is not None else {}
        said |= {"date_formats": self.date_format or (), "timestamp_formats": self.timestamp_format or ()}
        return CsvFormat(**said, formats=self.formats or {})


_OF_JSON_LINES = ("types", "date_format", "timestamp_format", "formats")
"""The options of CSV that values in JSON lines have too."""


class _Files(CsvOptions):
    formats_of_files: ClassVar[tuple[str, ...]] = ("parquet", "csv")
    readers: ClassVar[Mapping[str, SourceKey]] = MappingProxyType({})
    """The formats among them that extensions read, by their keys."""

    parquet: Annotated[str | None, Field(description="A file name or glob of Parquet files.")] = None
    csv: Annotated[str | None, Field(description="A file name or glob of CSV files.")] = None

    @model_validator(mode="after")
    def _one_format(self) -> "_Files":
        named = [name for name in self.formats_of_files if getattr(self, name) is not None]
        if len(named) != 1:
            *others, last = [f"{name}:" for name in self.formats_of_files]
            one, two = ("one of", "them") if len(others) > 1 else ("either", "the two")
            message = f"must name files as {one} {', '.join(others)} or {last}"
            raise RequestError(field="", message=message, hint=f"write one of {two}")
        if isinstance(value := getattr(self, named[0]), str):
            refuse_credentials(value, named[0])
        given = [name for name in CsvOptions.model_fields if name in self.model_fields_set]
        self._refuse_options(named[0], given)
        if self.csv is not None:
            self._check_csv()
        elif given:
            self._check_cells()
        return self

    def _refuse_options(self, chosen: str, given: list[str]) -> None:
        """Refuse what is not for the format. Raises: RequestError by field."""
        reader = self.readers.get(chosen)
        of_reader = ("types",) if reader is not None and reader.types_of else ()
        allowed = {"csv": tuple(CsvOptions.model_fields), "jsonl": _OF_JSON_LINES}.get(chosen, of_reader)
        for name in given:
            if name not in allowed:
                where = "csv: and jsonl:" if name in _OF_JSON_LINES and "jsonl" in self.formats_of_files else "csv:"
                called = "Parquet files" if reader is None else reader.called
                what = f"; {called} have types" if name == "types" else ""
                raise RequestError(field=name, message=f"is for {where} only{what}", hint="drop it")

    def _check_csv(self) -> None:
        """Refuse what contradicts itself. Raises: RequestError by field."""
        if not self.quoted and "quote" in self.model_fields_set:
            raise RequestError(field="quote", message="is not used with quoted: false", hint="drop one of the two")
        if self.header and self.names is not None:
            hint = "add header: false if the first line is a row"
            raise RequestError(field="names", message="is for files without a header line", hint=hint)
        if not self.header and self.names is None:
            hint = "write names: with the name of each column in the order of the cells"
            raise RequestError(field="header", message="is false, and names: is missing", hint=hint)
        self.form  # noqa: B018 - raises
        for name in self.types or {}:
            if self.names is not None and name not in self.names:
                hint = nearest(name, self.names, "columns")
                raise RequestError(field=f"types.{name}", message="is a column that names: lacks", hint=hint)
        self._check_cells()

    def _check_cells(self) -> None:
        """Refuse forms of dates and times that fit no column. Raises: RequestError by field."""
        types = self.types or {}
        for name in self.formats or {}:
            if types.get(name) not in _TIMES:
                message = "is the format of a column that types: declares as no date, timestamp or timestamptz"
                raise RequestError(field=f"formats.{name}", message=message, hint="declare its type, or drop it")
        for name, declared in types.items():
            if declared in _TIMES:
                self._check_times(name, declared)

    def _check_times(self, name: str, declared: str) -> None:
        own = name in (self.formats or {})
        date = declared == _TIMES[0]
        shared = "date_format" if date else "timestamp_format"
        for text in self.form.formats_of(name, date=date):
            field = f"formats.{name}" if own else shared
            if date and csv_times.has_time(text):
                message, hint = f"has a time of day, and {name!r} is a date", "declare it as timestamp"
            elif declared == _TIMES[2] and not csv_times.has_zone(text):
                message = f"has no %z, and {name!r} is a timestamptz, an instant"
                hint = "declare it as timestamp, or add %z where the cells have an offset"
            else:
                continue
            raise RequestError(field=field, message=message, hint=hint)

    @property
    def format_of_files(self) -> str:
        """The key that names the files."""
        return next(name for name in self.formats_of_files if getattr(self, name) is not None)

    @property
    def pattern(self) -> str:
        """The file name or glob; of a table, everything in its folder."""
        named = getattr(self, self.format_of_files)
        return named if isinstance(named, str) else str(named.pattern)


def _with_built_in_readers(base: "type[SourceModel]") -> "type[SourceModel]":
    """Add the keys of installed extensions that read formats. A class decorator."""
    return with_readers(base, extension_keys.installed(extension_keys.READER, SourceKey))


def with_readers(base: "type[Source]", added: Mapping[str, SourceKey]) -> "type[Source]":
    """Return a model of sources with more formats.

    Args:
        base: the model.
        added: the keys by which extensions add formats, by name.
    """
    readers = {**base.readers, **added}
    fields: dict[str, Any] = {
        name: (Annotated[key.model | None, Field(description=key.description)], None) for name, key in added.items()
    }
    if typed := [key.types_of for key in readers.values() if key.types_of]:
        words = f"{_OF_LINES}, and if you like of {' and '.join(typed)}{_TYPES_ARE}"
        fields["types"] = (Annotated[dict[str, str] | None, Field(description=words)], None)
    made = create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **fields)
    made.readers = MappingProxyType(readers)
    made.formats_of_files = (*base.formats_of_files, *added)
    return made


@_with_built_in_readers
class SourceModel(_Files):
    """The rows: files named by a glob, relative to the job file. CSV and JSON lines need types of all columns that are used."""

    formats_of_files: ClassVar[tuple[str, ...]] = ("parquet", "csv", "jsonl")
    jsonl: Annotated[
        str | None, Field(description="A file name or glob of files of JSON lines: one JSON object a line.")
    ] = None
    hive: Annotated[
        dict[str, str] | None,
        Field(
            min_length=1,
            description="Types of columns that names of folders say, e.g. {week: date} where files lie in week=2026-01-05/.",
        ),
    ] = None
    optional: Annotated[
        list[str] | None,
        Field(
            min_length=1,
            description="Of Parquet: columns that some of the files may lack, e.g. older ones. Null there.",
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _extensions_are_installed(cls, value: Any) -> Any:
        extension_keys.refuse_missing(extension_keys.READER, value, cls.model_fields)
        return value

    @model_validator(mode="after")
    def _lines_have_types(self) -> "SourceModel":
        named = self.format_of_files
        for key, formats in (("hive", ("parquet", "csv", "jsonl")), ("optional", ("parquet",))):
            if getattr(self, key) is not None and named not in formats:
                allowed = ", ".join(f"{one}:" for one in formats)
                raise RequestError(field=key, message=f"is for {allowed} only", hint="drop it")
        if doubled := [name for name in self.hive or {} if name in (self.types or {})]:
            message = f"names column {doubled[0]!r}, which types: declares as one of the files"
            raise RequestError(field="hive", message=message, hint="declare it in one of the two")
        if named in ("csv", "jsonl") and not self.types:
            raise RequestError(
                field="",
                message=f"must declare types: for {named}:, since types must not follow from the data",
                hint="write e.g. types: {CUSTOMER_ID: string, AMOUNT: double}",
            )
        return self

    @property
    def snapshot_keys(self) -> dict[str, set[str]]:
        """Keys that only say which snapshot of a table is read, by the format's key."""
        return {name: set(key.snapshot_keys) for name, key in self.readers.items() if key.snapshot_keys}


class PublicModel(_Files):
    """A public table: Parquet files, or CSV files, whose types follow from the cells where none are declared."""


def _on(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    listed = [(name, name) for name in names] if isinstance(names, list) else []
    named = list(names.items()) if isinstance(names, dict) else listed
    if not isinstance(names, (list, dict)) or not all(isinstance(name, str) for pair in named for name in pair):
        message = "must be the name of a column, a list of them, or a mapping from columns of the rows to columns of the table"
        raise RequestError(field="", message=message, hint="write e.g. on: STORE, on: [STORE, DAY] or on: {STORE: ID}")
    for names_of_one in zip(*named, strict=True) if named else ((),):
        if not names_of_one or len(set(names_of_one)) != len(names_of_one):
            message = "names a column twice" if names_of_one else "must not be empty"
            raise RequestError(field="", message=message, hint="name each column of the key once")
    return value


class LookupModel(_Files):
    """A public table whose columns are added to each row by the value of one column or of several."""

    on: Annotated[
        Any,
        AfterValidator(_on),
        Field(
            description="The columns of rows and table by which they are joined: one, a list, or names in the rows, each with "
            "its name in the table."
        ),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
                ]
            }
        ),
    ]
    max_rows_per_key: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Rows of the table that a key may have: a row becomes one for each of them, before it is bounded.",
        ),
    ] = 1

    @property
    def pairs(self) -> dict[str, str]:
        """The columns of the key in the rows, each with its name in the table."""
        if isinstance(self.on, dict):
            return dict(self.on)
        return {name: name for name in ([self.on] if isinstance(self.on, str) else self.on)}


SomeLookups = Annotated[
    Annotated[LookupModel, Tag("mapping")] | Annotated[list[LookupModel], Tag("list"), Field(min_length=1)],
    Discriminator(lambda value: "list" if isinstance(value, (list, tuple)) else "mapping"),
]
"""One lookup, or several in their order."""
