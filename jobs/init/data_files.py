"""From files as a shell names them to the `source:` of a job file: one pattern, a format, a schema.

In: names of files, a folder or a pattern; for CSV and JSON lines the declared types, or where they stand. Out: a `FirstSource`.
Holds: it reads footers of Parquet files and header lines of CSV files, never a row; no cell of a CSV file is repeated, since
without a header its first line is somebody's row, unless the user says that the header is public. Not covered: what the job says
of the columns (`first_job`); rows of a public sample (`public_sample`).
"""

import dataclasses
import glob
import os
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from dp_pipelines.engine import compressed
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.init import public_sample
from dp_pipelines.jobs.sources import added_columns, source_files
from dp_pipelines.jobs.spec import csv_arguments, job_parameters
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.source_models import CsvOptions
from dp_pipelines.jobs.spec.validation_errors import from_validation, nearest, raise_all
from dp_pipelines.kernels.columns.csv_format import CsvFormat
from dp_pipelines.steps import folder_columns

FORMATS: Mapping[str, str] = {
    end: kind for kind in ("parquet", "csv", "jsonl") for end in source_files.ENDINGS[kind] if end != ".json"
}
"""The key of `source:` by the end of a file's name."""

OTHER_NAMES = {"datetime": "write timestamp"}
"""Hints for names of types in other programs to which a wrong one of ours is nearest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstSource:
    """What a first job reads.

    Args:
        pattern: of the files, relative to the job file.
        files: what it matches now.
        types: of CSV and JSON lines: the declared type of each column; empty of Parquet.
        schema: the columns that all files have.
        written: of CSV: how it is written, as `source:` says it; what is not usual.
        file_format: the key of `source:`.
        hive: types of the columns that names of folders say.
        fill_in: whether types are left for the user to fill in.
    """

    pattern: str
    files: tuple[str, ...]
    types: Mapping[str, str]
    schema: pa.Schema
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    file_format: str = "parquet"
    hive: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fill_in: bool = False


def look(
    names: Sequence[str],
    unit: Sequence[str],
    types: str | None,
    written: Mapping[str, Any],
    folder: pathlib.Path,
    *,
    sample: str | None = None,
    header_is_public: bool = False,
) -> FirstSource:
    """The source that some names are.

    Args:
        names: files, one folder, or one pattern; relative to the current folder.
        unit: the columns of the privacy unit; of CSV they are text unless declared; none where each row is a person.
        types: of CSV: `name=type,name=type`.
        written: of CSV: how it is written, as `source:` says it.
        folder: of the job file.
        sample: a file of rows that are nobody's, written as the others are, from which types are taken.
        header_is_public: whether the first line of each CSV file may be repeated.

    Raises:
        RequestError: no such files, files of two formats, a file that cannot be read, an unknown column or type.
    """
    pattern = _pattern(names)
    files = source_files.find(pattern, pathlib.Path(), "FILES", packed=True)
    file_format, declared, fill_in = _format(files), {}, False
    if file_format == "parquet":
        given = {"--types": types, "--like": sample, "--header-is-public": header_is_public or None}
        wrong = [option for option, value in given.items() if value is not None]
        if wrong := wrong + [csv_arguments.option(key) for key in written]:
            message = "is for CSV files only; Parquet files have types"
            raise RequestError(field=wrong[0], message=message, hint="drop it")
        source_files.refuse_compressed(files)
        source = source_files.look_at_parquet(files)
    else:
        fill_in = header_is_public and sample is None
        if sample is not None:
            found = public_sample.look(sample, file_format, written)
            declared, written = dict(found.types), found.written
        elif header_is_public:
            declared, written = _from_header(files[0], file_format, written)
        declared = _declared(types, unit, declared, pattern)
        if file_format == "csv":
            source = source_files.look_at_csv(files, declared, _form(written), csv_arguments.shown)
        else:
            source = source_files.look_at_json_lines(files, declared, _form(written))
    hive = _hive(files, source.schema.names)
    source = added_columns.with_folders(source, hive)
    problems = [source.missing[name] for name in unit if name in source.missing]
    for name in unit:
        if name not in source.missing and name not in source.schema.names:
            hint = nearest(name, source.schema.names, "columns")
            problems.append(RequestError(field=f"--unit {name}", message="is not a column of the files", hint=hint))
    raise_all(problems)
    return FirstSource(
        pattern=_from(folder, pattern), files=files, types=declared, schema=source.schema, written=written,
        file_format=file_format, hive=hive, fill_in=fill_in,
    )  # fmt: skip


def _from_header(path: str, file_format: str, written: Mapping[str, Any]) -> tuple[dict[str, str], Mapping[str, Any]]:
    """The columns that a public header names, all as text, and how the file is written. Raises: RequestError."""
    if file_format != "csv":
        message = "is for CSV: JSON lines have no header"
        raise RequestError(field="--header-is-public", message=message, hint="give --like SAMPLE, or --types")
    written = public_sample.with_separator(path, written)
    names = public_sample.header_of(path, _form(written))
    return dict.fromkeys(names, "string"), written


def _hive(files: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Types of the columns that the folders of all files say and that no file has: names of folders are public."""
    said = [folder_columns.said_in(path) for path in files]
    names = [name for name in said[0] if all(name in one for one in said) and name not in columns]
    return {name: _narrowest([one[name] for one in said], name) for name in names}


def _narrowest(texts: Sequence[str], name: str) -> str:
    """The narrowest type that all values fit."""
    values = [text for text in texts if text != folder_columns.NO_VALUE]
    for kind in ("date", "int64"):
        if values and not any(folder_columns.value_of(t, name, source_files.TYPES[kind]).null_count for t in values):
            return kind
    return "string"


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
        return _inside(names[0])
    wanted = {os.path.abspath(name) for name in names}
    for pattern in _patterns(names):
        if {os.path.abspath(path) for path in glob.glob(pattern, recursive=True)} == wanted:
            return pattern
    message = "no pattern matches these files and no others"
    raise RequestError(
        field="FILES", message=message, hint="name a folder, or a pattern in quotes: 'data/2026-*.parquet'"
    )


def _inside(folder: str) -> str:
    """A pattern of the files in a folder: of those of the first format that it has, at any depth."""
    found: list[str] = []
    for file_format in dict.fromkeys(FORMATS.values()):
        found = found or source_files.files_inside(folder, file_format, packed=file_format != "parquet")
    ends = sorted({_ending(path) for path in found}) or list(FORMATS)
    deep = any(os.path.dirname(path) != os.path.abspath(folder) for path in found)
    return os.path.join(glob.escape(folder), *(["**"] if deep else []), f"*{ends[0]}")


def _ending(path: str) -> str:
    """The end of a file's name, with that of its compression: `.csv.gz`."""
    bare, end = os.path.splitext(path)
    return os.path.splitext(bare)[1] + end if compressed.codec_of(path) else end


def _patterns(names: Sequence[str]) -> Iterator[str]:
    ends = {_ending(name) for name in names}
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
    kinds = {FORMATS.get(compressed.ending_of(path), "") for path in files}
    if "" in kinds:
        wrong = next(path for path in files if compressed.ending_of(path) not in FORMATS)
        message = "is neither .parquet nor .csv, .tsv or .txt, nor .jsonl"
        raise RequestError(field=f"file {wrong!r}", message=message, hint="convert it, or name other files")
    if len(kinds) > 1:
        hint = "name files of one format, e.g. 'data/*.parquet'"
        raise RequestError(field="FILES", message=f"are of two formats, {' and '.join(sorted(kinds))}", hint=hint)
    return kinds.pop()


def _declared(types: str | None, unit: Sequence[str], known: Mapping[str, str], pattern: str) -> dict[str, str]:
    """The types of columns of CSV and JSON lines, as the job file takes them: those declared before those known otherwise.

    Raises:
        RequestError: there are none, or one is wrong.
    """
    example = f"--types {(*unit, 'region')[0]}=string,amount=double,sold_at=timestamp"
    if types is None and not known:
        message = "is required for CSV and JSON lines: names and types must not follow from the rows"
        out = "data.parquet"
        copy = f"COPY (FROM {job_parameters.sql_text(pattern)}) TO {job_parameters.sql_text(out)}"
        program = shlex.quote(f"import duckdb; duckdb.sql({copy!r})")
        whose = " ".join(f"--unit {shlex.quote(name)}" for name in unit) or "--one-row-per-person"
        hint = (
            f"write e.g. {example}, or --like SAMPLE with a file of made-up rows, or for CSV --header-is-public; "
            "or make Parquet of it with DuckDB, which is installed, and take the types from there:\n"
            f"  python -c {program}\n"
            f"  dp-pipelines init {out} {whose}"
        )
        raise RequestError(field="--types", message=message, hint=hint)
    found = dict.fromkeys(unit, "string") | dict(known)
    for part in types.split(",") if types is not None else ():
        name, equals, kind = (piece.strip() for piece in part.rpartition("="))
        if not equals or not name:
            raise RequestError(field=f"--types {part}", message="must be NAME=TYPE", hint=f"write e.g. {example}")
        if kind not in source_files.TYPES:
            hint = OTHER_NAMES.get(kind) or nearest(kind, source_files.TYPES, "types")
            raise RequestError(field=f"--types {part}", message=f"unknown type {kind!r}", hint=hint)
        found[name] = kind
    return found


def _from(folder: pathlib.Path, pattern: str) -> str:
    """A pattern as a job file in a folder names it."""
    if "://" in pattern or os.path.isabs(pattern):
        return pattern
    return os.path.relpath(pattern, folder)
