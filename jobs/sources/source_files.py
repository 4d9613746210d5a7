"""Finds the files of a job, and checks their footers and headers before anything is read.

In: a glob and the columns that are needed. Out: a `Source`: the files, their common schema, their size. Holds: every
file is checked; errors name file and column, and depend on names, headers and schemas alone, which are public; how many rows
and bytes there are is private. Not covered: damage inside the data (the readers name the file when they find it).

Files of other file systems are named by URL (`jobs.stores.remote_files`).
"""

import concurrent.futures
import contextlib
import dataclasses
import glob
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.engine import compressed
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources.readers import CsvReader, JsonLinesReader, ParquetReader, TableReader
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all
from dp_pipelines.jobs.stores import remote_files
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import csv_lines
from dp_pipelines.kernels.columns.column_types import has_fixed_lists_inside, readable_schema
from dp_pipelines.kernels.columns.csv_format import DEFAULT, SEPARATORS, CsvFormat
from dp_pipelines.kernels.columns.type_names import TYPES as TYPES
from dp_pipelines.steps import folder_columns
from dp_pipelines.steps.folder_columns import FolderColumns
from dp_pipelines.steps.read_files import open_parquet

Looked = TypeVar("Looked")

MOST_ERRORS = 20
LOOKS_AT_ONCE = 16
"""Files of another file system that are looked at together: each takes some round trips."""

ENDINGS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv", ".txt"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "avro": (".avro",),
}
"""By which ends of names files of a folder are chosen."""

SHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")

ARCHIVES = (".zip", ".7z", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".xz")
UNPACK: Mapping[str, str] = {
    ".zip": "unzip",
    ".7z": "7z x",
    ".tar": "tar -xf",
    ".tar.gz": "tar -xf",
    ".tgz": "tar -xf",
    ".tar.zst": "tar -xf",
    ".tar.bz2": "tar -xf",
    ".xz": "unxz",
    ".gz": "gunzip",
    ".zst": "unzstd",
    ".bz2": "bunzip2",
}
"""What unpacks files, by the end of their names."""

EXPORT = "write Parquet with DuckDB: COPY (FROM ...) TO 'data.parquet'"
"""The way in for everything that is no format of a source."""

UTF_16_HEADER = "\0UTF-16"
"""Stands for the header of a file in UTF-16: no name of a column begins with this character."""

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The marks at the start of files in UTF-16."""

IN_FILES = Content(data={})
"""How a job file says things."""

_LOOK = "check the header line and the names in types:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Files with one schema.

    Args:
        files: absolute paths or URLs, sorted.
        schema: all columns that every file has with one type; dictionaries and large layouts are plain.
        sizes: for each column, its bytes in all files, uncompressed where the format tells. Private, as `rows` is.
        types: for CSV and JSON lines, the declared types; None where files tell theirs.
        missing: columns that some file lacks or has with another type, with the error that using one of them is.
        table: names a table in this process's memory, which is read instead of files (`tables`); empty for files.
        rows: in all files, estimated for CSV. They are somebody's: they steer shards and batches, and decide nothing that can be
            seen, no message, figure or exit code.
        reader: reads the files.
        snapshot: names what was read of a table that changes: part of what a run id fixes; empty for mere files.
        undeclared: whether some CSV file has columns that `types` does not name.
    """

    files: tuple[str, ...]
    schema: pa.Schema
    sizes: Mapping[str, int]
    types: Mapping[str, pa.DataType] | None
    missing: Mapping[str, RequestError]
    table: str = ""
    rows: int = 0
    reader: TableReader = dataclasses.field(default_factory=ParquetReader)
    snapshot: str = ""
    undeclared: bool = False

    @property
    def added(self) -> FolderColumns:
        """The columns that its files do not hold themselves, or not all of them."""
        reader = self.reader
        return reader.added if isinstance(reader, ParquetReader | CsvReader | JsonLinesReader) else folder_columns.NONE

    def bytes_of(self, columns: Iterable[str]) -> int:
        """The size of some columns."""
        return sum(self.sizes.get(name, 0) for name in columns)


def find(
    pattern: str, folder: pathlib.Path, field: str = "source", file_format: str | None = None, packed: bool = False
) -> tuple[str, ...]:
    """The files that a glob or a folder names, sorted.

    Args:
        pattern: the glob, or the name of a folder: all files of the format in it, at any depth.
        folder: of the job file; relative patterns start there.
        field: the key of the job file that names the files.
        file_format: by which files of a folder are chosen: a key of `ENDINGS`; None: a folder is no source.
        packed: whether they may be compressed.

    Raises:
        RequestError: there are none, or one is not a file.
    """
    refuse_elsewhere(pattern, field)
    if "://" in pattern:
        if field != "source":
            message = f"names {pattern!r}, but only a source may be on another file system"
            raise RequestError(field=field, message=message, hint="name local files")
        found_there = remote_files.find(pattern, field)
        refuse_compressed(found_there, packed=packed)
        return found_there
    place = glob_under(folder, pattern)
    found = sorted({os.path.abspath(path) for path in glob.glob(place, recursive=True)})
    is_folder = (
        len(found) == 1 and os.path.isdir(found[0]) and not glob.has_magic(os.path.basename(pattern.rstrip("/")))
    )
    if is_folder and file_format is not None:
        found = files_inside(found[0], file_format, packed=packed)
        if not found:
            message = f"names a folder without files that end in {' or '.join(ENDINGS[file_format])}: {pattern!r}"
            raise RequestError(field=field, message=message, hint="name the files: e.g. data/*.csv")
    if not found:
        message = f"matches no file: {pattern!r} under {str(folder) or '.'!r}"
        hint = "check the path" + ("; it is relative to the job file" if field != "FILES" else "")
        if variable := re.search(r"\$\w+", pattern):
            message += f"; {variable[0]} is not replaced: variables of a shell are none here"
            hint = "write the path, or a parameter in braces"
        raise RequestError(field=field, message=message, hint=hint)
    refuse_compressed(found, packed=packed)
    for path in found:
        try:
            path.encode()
        except UnicodeEncodeError:
            message = "has a name that is not UTF-8"
            raise RequestError(field=f"file {path!r}", message=message, hint="rename the file or its folder") from None
        if not os.path.isfile(path):
            raise RequestError(
                field=f"file {path!r}", message="is not a file", hint="change the pattern so that it only matches files"
            )
    return tuple(found)


def files_inside(folder: str, file_format: str, *, packed: bool) -> list[str]:
    """The files of a format in a folder, at any depth, sorted; names that begin with `.` or `_` are marks of other programs.

    Args:
        folder: its path.
        file_format: a key of `ENDINGS`.
        packed: whether they may be compressed.
    """
    inside = pathlib.Path(folder)
    own = (path for path in inside.rglob("*") if not any(p[0] in "._" for p in path.relative_to(inside).parts))
    named = ((path, compressed.ending_of(str(path)) if packed else path.suffix.lower()) for path in own)
    return sorted(str(path.absolute()) for path, ending in named if ending in ENDINGS[file_format] and path.is_file())


def refuse_elsewhere(pattern: str, field: str) -> None:
    """Refuse what is no file that can be read here, by its name alone.

    Args:
        pattern: what a job names.
        field: the key of the job file that names it.

    Raises:
        RequestError: a web address, or a file of a spreadsheet program.
    """
    if pattern.lower().startswith(("https://", "http://", "ftp://")):
        message = f"names a web address: {pattern!r}; files are not fetched from the web"
        raise RequestError(field=field, message=message, hint=f"fetch it first, e.g. curl -O {shlex.quote(pattern)}")
    if os.path.splitext(pattern)[1].lower() in SHEETS:
        message = f"names a file of a spreadsheet program: {pattern!r}; such files are not read"
        raise RequestError(field=field, message=message, hint=f"save it as CSV, or {EXPORT}")


def refuse_compressed(paths: Sequence[str], *, packed: bool = False) -> None:
    """Refuse files that are compressed by their names, in one message.

    Args:
        paths: of the files.
        packed: whether those of `compressed.CODECS` are read.

    Raises:
        RequestError: there is one that is not read.
    """
    wrong = ARCHIVES if packed else (*ARCHIVES, *compressed.CODECS)
    found = [path for path in paths if path.lower().endswith(wrong)]
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        message = "is compressed; only CSV and JSON lines of a source are read from .gz, .zst and .bz2"
        hint = f"unpack it with {UNPACK[next(end for end in UNPACK if found[0].lower().endswith(end))]}"
        raise RequestError(field=f"file {found[0]!r}{more}", message=message, hint=hint)


@contextlib.contextmanager
def _readable(path: str) -> Iterator[Any]:
    """What Arrow reads a file from: its path, or a stream where a URL names it. Errors as for `remote_files.opened`."""
    if "://" not in path:
        yield path
        return
    with remote_files.opened(path) as stream:
        yield stream


def glob_under(folder: pathlib.Path, pattern: str) -> str:
    """A pattern relative to a folder whose own name is taken literally.

    >>> glob_under(pathlib.Path("a[1]"), "*.csv")
    'a[[]1]/*.csv'
    """
    pattern = os.path.expanduser(pattern)  # a shell leaves ~ alone in quotes and in files
    return pattern if os.path.isabs(pattern) else os.path.join(glob.escape(str(folder)), pattern)


def look_at_parquet(files: Sequence[str], optional: Sequence[str] = ()) -> Source:
    """The common schema of Parquet files, from every footer.

    Args:
        files: paths.
        optional: columns that some files may lack; they are null there.

    Raises:
        RequestError: a file is not a complete Parquet file, or no file has a column that is optional.
    """
    schemas: dict[str, pa.Schema] = {}
    sizes: dict[str, int] = {}
    rows = 0
    problems = []
    for path, footer in zip(files, each(footer_of, files), strict=True):
        if footer is None:
            message = "is not a complete Parquet file: its footer cannot be read"
            problems.append(
                RequestError(field=f"file {path!r}", message=message, hint="write it again, or leave it out")
            )
        else:
            schemas[path] = footer[0]
            add_sizes(sizes, footer[1])
            rows += max(footer[1].num_rows, 0)
    raise_all(problems[:MOST_ERRORS])
    filled, lacking = _filled_up(schemas, optional)
    schema, missing = common(filled)
    reader = ParquetReader(FolderColumns(optional={n: schema.field(n).type for n in lacking if n in schema.names}))
    return Source(files=tuple(files), schema=schema, sizes=sizes, types=None, missing=missing, rows=rows, reader=reader)


def _filled_up(schemas: Mapping[str, pa.Schema], optional: Sequence[str]) -> tuple[dict[str, pa.Schema], list[str]]:
    """Schemas with optional columns where files lack them, and the columns that some file lacks.

    Raises:
        RequestError: no file has one.
    """
    filled, lacking = dict(schemas), []
    for name in optional:
        having = next((schema for schema in schemas.values() if name in schema.names), None)
        if having is None:
            known = dict.fromkeys(name for schema in schemas.values() for name in schema.names)
            hint = nearest(name, known, "columns")
            raise RequestError(field="source.optional", message=f"names column {name!r}, which no file has", hint=hint)
        field = having.field(having.get_all_field_indices(name)[0])
        for path, schema in filled.items():
            if name not in schema.names:
                filled[path] = schema.append(field)
                lacking.append(name)
    return filled, list(dict.fromkeys(lacking))


def look_at_csv(
    files: Sequence[str],
    declared: Mapping[str, str],
    form: CsvFormat = DEFAULT,
    delimiter: Callable[[str], str] = IN_FILES.delimiter,
) -> Source:
    """The declared schema of CSV files, checked against every header.

    Args:
        files: paths.
        declared: type of each column, by name.
        form: how the files are written.
        delimiter: how somebody declares another separator.

    Raises:
        RequestError: a declared type is unknown, or a file has no header with the declared columns.
    """
    types, problems = declared_types(declared)
    line_bytes: list[int] = []
    undeclared = False
    for path, found in zip(files, each(lambda path: _header(path, form), files), strict=True):
        header, bytes_of_line = found or (None, 0)
        line_bytes.append(bytes_of_line)
        if header is not None and header[:1] == (UTF_16_HEADER,):
            problems.append(
                RequestError(
                    field=f"file {path!r}",
                    message="is UTF-16, as programs for Windows write it; CSV is read as UTF-8",
                    hint="convert it: iconv -f UTF-16 -t UTF-8 OLD.csv > NEW.csv",
                )
            )
            continue
        if header is None:
            message = "has no readable header line"
            written = "UTF-8" if form.is_utf_8 else form.encoding
            hint = f"write CSV with column names, in {written}, each line ended by a line feed"
            problems.append(RequestError(field=f"file {path!r}", message=message, hint=hint))
            continue
        doubled = [name for name in dict.fromkeys(header) if header.count(name) > 1 and name in types]
        absent = [name for name in types if name not in header]
        undeclared = undeclared or len(header) > len(types)
        mark = csv_lines.other_separator(header, types)
        if mark:
            message = f"has a header of one column; its separator seems to be {SEPARATORS[mark]}"
            hint = f"add {delimiter(mark)}"
            problems.append(RequestError(field=f"file {path!r}", message=message, hint=hint))
            continue
        if doubled:
            problems.append(
                RequestError(field=f"file {path!r}", message=f"has column {doubled[0]!r} twice", hint="rename one")
            )
        for name in absent:
            # Never repeat a cell of the line or guess from it: if the header is missing, it is somebody's row.
            alike = any(name.casefold() == other.strip().casefold() for other in header)
            hint = (
                "the file has it with different capitals, or with spaces around it; write types: the same way"
                if alike
                else _LOOK
            )
            problems.append(RequestError(field=f"file {path!r}", message=f"has no column {name!r}", hint=hint))
    raise_all(problems[:MOST_ERRORS])
    sizes = list(each(size_of, files))
    rows = sum(size // of_line for size, of_line in zip(sizes, line_bytes, strict=True))
    return dataclasses.replace(_of_lines(files, types, sum(sizes), rows, CsvReader(form)), undeclared=undeclared)


def look_at_json_lines(files: Sequence[str], declared: Mapping[str, str], form: CsvFormat = DEFAULT) -> Source:
    """The declared schema of files of JSON lines, in which nothing is public but their names.

    Args:
        files: paths.
        declared: type of each column, by name.
        form: how dates and times are written.

    Raises:
        RequestError: a declared type is unknown, or a file cannot be opened.
    """
    types, problems = declared_types(declared)
    looks = list(each(_first_lines, files))
    for path, look in zip(files, looks, strict=True):
        if look is None:
            problems.append(
                RequestError(field=f"file {path!r}", message="cannot be opened", hint="check who may read it")
            )
    raise_all(problems[:MOST_ERRORS])
    sizes = list(each(size_of, files))
    rows = sum(size // (of_line or 1) for size, of_line in zip(sizes, looks, strict=True))
    return _of_lines(files, types, sum(sizes), rows, JsonLinesReader(form))


def declared_types(
    declared: Mapping[str, str], field: str = "source.types"
) -> tuple[dict[str, pa.DataType], list[RequestError]]:
    """Declared types, and what is wrong with others."""
    unknown = {name: kind for name, kind in declared.items() if kind not in TYPES}
    problems = [
        RequestError(field=f"{field}.{name}", message=f"unknown type {kind!r}", hint=nearest(kind, TYPES, "types"))
        for name, kind in unknown.items()
    ]
    return {name: TYPES[kind] for name, kind in declared.items() if kind in TYPES}, problems


def declared_schema(declared: Mapping[str, str]) -> pa.Schema:
    """The columns that a job declares.

    Args:
        declared: type of each column, by name.

    Raises:
        RequestError: a type is unknown.
    """
    types, problems = declared_types(declared)
    raise_all(problems[:1])
    return pa.schema(types.items())


def _of_lines(
    files: Sequence[str], types: Mapping[str, pa.DataType], size: int, rows: int, reader: TableReader
) -> Source:
    """Files of lines, with as many bytes for each column."""
    share = {name: size // len(types) for name in types}
    return Source(
        files=tuple(files), schema=pa.schema(types.items()), sizes=share, types=types, missing={}, rows=rows,
        reader=reader,
    )  # fmt: skip


def each(look: Callable[[str], Looked], files: Sequence[str]) -> Iterator[Looked]:
    """What each file shows, in order; files of other file systems are read several at a time."""
    if not any("://" in path for path in files):
        yield from map(look, files)
        return
    with concurrent.futures.ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        yield from pool.map(look, files)


def footer_of(path: str) -> tuple[pa.Schema, pa.parquet.FileMetaData] | None:
    """The schema and the sizes of a Parquet file, or None."""
    try:
        with _readable(path) as opened, open_parquet(opened) as file:
            return readable_schema(file.schema_arrow), file.metadata
    except RequestError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        return None


def size_of(path: str) -> int:
    """The bytes of a file; 0 where nobody tells."""
    size = os.path.getsize(path) if "://" not in path else remote_files.size_of(path)
    return size * compressed.USUAL_RATIO if compressed.codec_of(path) else size


def common(schemas: Mapping[str, pa.Schema]) -> tuple[pa.Schema, dict[str, RequestError]]:
    """The fields that all files share, and for every other name what is wrong with it."""
    (first, reference), *others = schemas.items()
    fields: dict[str, pa.DataType] = {}
    missing: dict[str, RequestError] = {}
    for name in dict.fromkeys(reference.names):
        if reference.names.count(name) > 1:
            missing[name] = RequestError(
                field=f"file {first!r}", message=f"has column {name!r} twice", hint="rename one"
            )
        else:
            fields[name] = keys.plain_type(reference.field(name).type)
            if has_fixed_lists_inside(fields[name]):
                message = f"has lists of a fixed size inside column {name!r}, of which Arrow can read no nulls"
                hint = "write them as lists without a fixed size"
                missing[name] = RequestError(field=f"file {first!r}", message=message, hint=hint)
                del fields[name]
    for path, schema in others:
        for name in schema.names:
            if name not in fields and name not in missing:
                missing[name] = _absent(first, name)
        for name, kind in list(fields.items()):
            at = schema.get_all_field_indices(name)
            error = None
            if not at:
                error = _absent(path, name)
            elif len(at) > 1:
                error = RequestError(field=f"file {path!r}", message=f"has column {name!r} twice", hint="rename one")
            elif keys.plain_type(schema.field(at[0]).type) != kind:
                other = keys.plain_type(schema.field(at[0]).type)
                message = f"has column {name!r} as {other}, but {os.path.basename(first)!r} has it as {kind}"
                error = RequestError(
                    field=f"file {path!r}", message=message, hint="give the column one type in all files"
                )
            if error is not None:
                missing[name] = error
                del fields[name]
    return pa.schema(fields.items()), missing


def _absent(path: str, name: str) -> RequestError:
    message = f"has no column {name!r}, which other files have"
    hint = f"write all files with the same columns, or add optional: [{name}] to the source: it is null where a file lacks it"
    return RequestError(field=f"file {path!r}", message=message, hint=hint)


def add_sizes(sizes: dict[str, int], metadata: pa.parquet.FileMetaData) -> None:
    """Add what each column takes in a file, uncompressed."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name = column.path_in_schema.partition(".")[0]
            sizes[name] = sizes.get(name, 0) + max(column.total_uncompressed_size, 0)


@contextlib.contextmanager
def stream_of(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file.

    Raises:
        OSError: it cannot be read.
    """
    with contextlib.ExitStack() as stack:
        readable = stack.enter_context(_readable(path))
        yield stack.enter_context(open(path, "rb")) if readable == path else readable


def _header(path: str, form: CsvFormat) -> tuple[tuple[str, ...], int] | None:
    """The names in the first line of a CSV file and the bytes of one of its first lines, or None."""
    try:
        with stream_of(path) as stream:
            start = csv_lines.start_of(compressed.plain(path, stream))
            if form.names is None and start.startswith(UTF_16):
                return (UTF_16_HEADER,), 0
            found = csv_lines.header(start, form)
    except RequestError:
        raise
    except compressed.DAMAGES:
        return None
    return (found.names, _bytes_of_line(start)) if found is not None else None


def _first_lines(path: str) -> int | None:
    """The bytes of one of the first lines of a file, or None where it cannot be read."""
    try:
        with stream_of(path) as stream:
            return _bytes_of_line(csv_lines.start_of(compressed.plain(path, stream)))
    except compressed.DAMAGES:
        return None


def _bytes_of_line(start: bytes) -> int:
    return len(start) // (start.count(csv_lines.END) + 1) + 1
