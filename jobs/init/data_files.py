"""From files as a shell names them to the `source:` of a job file: one pattern, a format, a schema.

In: names of files, a folder or a pattern; for CSV the declared types. Out: a `FirstSource`. Holds: it reads footers of Parquet
files and header lines of CSV files, never a row; no cell of a CSV file is repeated, since without a header its first line is
somebody's row. Not covered: what the job says of the columns (`first_job`).
"""

import dataclasses
import glob
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.spec import csv_arguments
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.source_models import CsvOptions
from dp_pipelines.jobs.spec.validation_errors import from_validation, nearest, raise_all
from dp_pipelines.kernels.columns.csv_format import CsvFormat

FORMATS: Mapping[str, str] = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "csv"}
"""The key of `source:` by the end of a file's name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstSource:
    """What a first job reads.

    Args:
        pattern: of the files, relative to the job file.
        files: what it matches now.
        types: of CSV: the declared type of each column; empty of Parquet.
        schema: the columns that all files have.
        written: of CSV: how it is written, as `source:` says it; what is not usual.
    """

    pattern: str
    files: tuple[str, ...]
    types: Mapping[str, str]
    schema: pa.Schema
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def look(
    names: Sequence[str], unit: Sequence[str], types: str | None, written: Mapping[str, Any], folder: pathlib.Path
) -> FirstSource:
    """The source that some names are.

    Args:
        names: files, one folder, or one pattern; relative to the current folder.
        unit: the columns of the privacy unit; of CSV they are text unless declared.
        types: of CSV: `name=type,name=type`.
        written: of CSV: how it is written, as `source:` says it.
        folder: of the job file.

    Raises:
        RequestError: no such files, files of two formats, a file that cannot be read, an unknown column or type.
    """
    pattern = _pattern(names)
    files = source_files.find(pattern, pathlib.Path(), "FILES")
    declared: dict[str, str] = {}
    if _format(files) == "csv":
        declared = _declared(types, unit)
        source = source_files.look_at_csv(files, declared, _form(written), csv_arguments.shown)
    else:
        wrong = ["--types"] if types is not None else [csv_arguments.option(key) for key in written]
        if wrong:
            message = "is for CSV files only; Parquet files have types"
            raise RequestError(field=wrong[0], message=message, hint="drop it")
        source = source_files.look_at_parquet(files)
    problems = [source.missing[name] for name in unit if name in source.missing]
    for name in unit:
        if name not in source.missing and name not in source.schema.names:
            hint = nearest(name, source.schema.names, "columns")
            problems.append(RequestError(field=f"--unit {name}", message="is not a column of the files", hint=hint))
    raise_all(problems)
    return FirstSource(
        pattern=_from(folder, pattern), files=files, types=declared, schema=source.schema, written=written
    )


def _form(written: Mapping[str, Any]) -> CsvFormat:
    """How files are written. Raises: RequestError by the option that is wrong."""
    try:
        return CsvOptions.model_validate(dict(written)).form
    except ValidationError as error:
        problems = from_validation(error, Content(data=written), CsvOptions)
    except RequestError as error:
        problems = [error]
    raise_all([RequestError(field=csv_arguments.option(p.field), message=p.message, hint=p.hint) for p in problems])
    raise AssertionError("there is a problem")


def _pattern(names: Sequence[str]) -> str:
    """One pattern that matches these files and no others.

    Raises:
        RequestError: there is none.
    """
    if len(names) == 1:
        if "://" in names[0] or not os.path.isdir(names[0]):
            return glob.escape(names[0]) if os.path.exists(names[0]) else names[0]
        inside = glob.escape(names[0])
        found = [end for end in FORMATS if glob.glob(os.path.join(inside, f"*{end}"))]
        return os.path.join(inside, f"*{(found or list(FORMATS))[0]}")
    wanted = {os.path.abspath(name) for name in names}
    for pattern in _patterns(names):
        if {os.path.abspath(path) for path in glob.glob(pattern, recursive=True)} == wanted:
            return pattern
    message = "no pattern matches these files and no others"
    raise RequestError(
        field="FILES", message=message, hint="name a folder, or a pattern in quotes: 'data/2026-*.parquet'"
    )


def _patterns(names: Sequence[str]) -> Iterator[str]:
    ends = {os.path.splitext(name)[1] for name in names}
    if len(ends) != 1:
        return
    (end,) = ends
    first, last = min(names), max(names)
    shared = first[
        : next((at for at, both in enumerate(zip(first, last, strict=False)) if len(set(both)) > 1), len(first))
    ]
    parent, stem = os.path.split(shared)
    folder = glob.escape(parent)
    for inside in (f"*{end}", f"{glob.escape(stem)}*{end}", f"*/*{end}", f"{glob.escape(stem)}*/*{end}", f"**/*{end}"):
        yield os.path.join(folder, inside)


def _format(files: Sequence[str]) -> str:
    """The format of all files, by their names."""
    kinds = {FORMATS.get(os.path.splitext(path)[1].lower(), "") for path in files}
    if "" in kinds:
        wrong = next(path for path in files if os.path.splitext(path)[1].lower() not in FORMATS)
        message = "is neither .parquet nor .csv, .tsv or .txt"
        raise RequestError(field=f"file {wrong!r}", message=message, hint="convert it, or name other files")
    if len(kinds) > 1:
        hint = "name files of one format, e.g. 'data/*.parquet'"
        raise RequestError(field="FILES", message="are of two formats, Parquet and CSV", hint=hint)
    return kinds.pop()


def _declared(types: str | None, unit: Sequence[str]) -> dict[str, str]:
    """The declared types of CSV columns, as the job file takes them."""
    example = f"--types {unit[0]}=string,amount=double,sold_at=timestamp"
    if types is None:
        message = "is required for CSV: names and types must not follow from the rows"
        raise RequestError(field="--types", message=message, hint=f"write e.g. {example}")
    found = dict.fromkeys(unit, "string")
    for part in types.split(","):
        name, equals, kind = (piece.strip() for piece in part.rpartition("="))
        if not equals or not name:
            raise RequestError(field=f"--types {part}", message="must be NAME=TYPE", hint=f"write e.g. {example}")
        if kind not in source_files.TYPES:
            hint = nearest(kind, source_files.TYPES, "types")
            raise RequestError(field=f"--types {part}", message=f"unknown type {kind!r}", hint=hint)
        found[name] = kind
    return found


def _from(folder: pathlib.Path, pattern: str) -> str:
    """A pattern as a job file in a folder names it."""
    if "://" in pattern or os.path.isabs(pattern):
        return pattern
    return os.path.relpath(pattern, folder)
