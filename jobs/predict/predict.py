"""`dp-pipelines predict`: apply a published model to new rows.

In: the folder of a model, files of rows like those of the job that trained it (or of examples), an output file. Out: a
Parquet or text file with the declared ids, the requested columns and the prediction for each example. Holds: memory does
not grow with the input: rows are processed table by table or, if the model needs windows, by shards of whole units in a
private folder beside the output; the file is written completely or not at all. Not covered: the guarantee of the release: a
prediction is computed from one unit's own rows.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines import interrupts
from dp_pipelines.disk_errors import reason_of, told_of_disk
from dp_pipelines.engine import compressed
from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.jobs.outputs import text_tables
from dp_pipelines.jobs.outputs.text_tables import TextFormat
from dp_pipelines.jobs.predict import preprocessing
from dp_pipelines.jobs.predict.output_format import as_named, refused_first, text_format
from dp_pipelines.jobs.predict.preprocessing import Prepared
from dp_pipelines.jobs.sources import public_tables, source_files
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.jobs.terminal.silence import silence
from dp_pipelines.kernels import shard
from dp_pipelines.kernels.columns import csv_lines
from dp_pipelines.kernels.columns.column_types import readable
from dp_pipelines.kernels.columns.csv_format import CsvFormat
from dp_pipelines.release import staging
from dp_pipelines.release.manifest import MADE_UP
from dp_pipelines.steps.read_files import batches_of, open_parquet
from dp_pipelines.training import artefact, scoring
from dp_pipelines.training.artefact import Artefact

NOTE = (
    "note: the guarantee of the release does not cover predictions about individuals: each one reveals something about the "
    "rows it is computed from; guard them as you guard those rows"
)

WORTHLESS = "the model was trained on made-up rows (run --synthetic): its predictions mean nothing"

BATCH_ROWS = 2**17
SHARD_BYTES = 64 * 2**20
MOST_SHARDS = 256
"""How many files are open at a time."""

SALT = 0x707265646963740A
"""Decides where a unit is put, and so the order of predictions, and nothing else."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predicted:
    """What was written.

    Args:
        model: the folder of the model.
        output: the file.
        rows: predictions in it.
        columns: of it.
        made_up: whether the model was trained on made-up rows.
        notes: for standard error: why predictions lack the row id.
    """

    model: pathlib.Path
    output: pathlib.Path
    rows: int
    columns: tuple[str, ...]
    made_up: bool = False
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        listed = {"model": str(self.model), "output": str(self.output), "predictions": self.rows}
        return {**listed, "columns": list(self.columns), **({"synthetic_model": True} if self.made_up else {})}

    @property
    def text(self) -> str:
        """A line for people; two of a model that has learnt nothing."""
        unsaid = (
            ""
            if self.output.suffix or self.output.name.startswith(".")
            else ", as Parquet, since the name has no ending"
        )
        said = f"{self.rows} predictions in {self.output}{unsaid}"
        return f"{said}\nwarning: {WORTHLESS}" if self.made_up else said


def predict(given: argparse.Namespace) -> Predicted:
    """Run the command.

    Args:
        given: the arguments, as `predict_arguments` declares them.

    Raises:
        RequestError: the model, the input or an argument is wrong; nothing was written.
        DamagedInputError: a file of the input cannot be read to its end.
        DiskError, PublishError: the output cannot be written.
    """
    with silence():  # what a library says may quote a row
        return _predict(given)


def _predict(given: argparse.Namespace) -> Predicted:
    folder = model_folder(given.model)
    model = artefact.load(folder)
    jax_model = scoring.own_code(model.task, given.jax_model, "--jax-model")
    output = staging.local_path(given.output)
    text = text_format(output)
    staging.refuse_existing(output)
    results, examples, notes = _examples(given, model, _input(given, model), text)
    repeated = [name for name in model.results if name in results]
    if repeated:
        message = f"would have column {repeated[0]!r} twice: a prediction has the same name"
        raise RequestError(field=f"output {str(output)!r}", message=message, hint="rename that column in the input")

    def predicted(table: pa.Table) -> pa.Table:
        try:
            said = model.predict(table, jax_model=jax_model)
        except BaseException as error:
            interrupts.end_if_asked()
            if jax_model is None or isinstance(error, RequestError):
                raise
            message = f"names {given.jax_model!r}, whose scores(...) fails on these rows: {type(error).__name__}"
            hint = "try it on such rows yourself; what it says may quote one, so it is not shown"
            raise RequestError(field="--jax-model", message=message, hint=hint) from None
        both = zip((*results, *said.column_names), (*(table[n] for n in results), *said.columns), strict=True)
        return pa.table(dict(both))

    with private_folder(output) as beside:
        tables = refused_first((predicted(table) for table in examples(beside)), text, output)
        rows, columns = _write(tables, beside / "predictions")
        staging.give_name(as_named(beside / "predictions", text, output), output)
    made_up = MADE_UP in model.privacy.not_covered
    return Predicted(model=folder, output=output, rows=rows, columns=columns, made_up=made_up, notes=notes)


def model_folder(path: str) -> pathlib.Path:
    """The folder of a model: the one named, or the only one in the release named.

    Raises:
        RequestError: there is none, or there are several.
    """
    folder = pathlib.Path(path)
    if (folder / artefact.MODEL).is_file():
        return folder
    found = sorted(file.parent for file in folder.glob(f"*/{artefact.MODEL}"))
    if len(found) == 1:
        return found[0]
    if not found:
        message, hint = "is not a model folder", f"name the folder that holds {artefact.MODEL}"
    else:
        message = "is a release with several models: " + ", ".join(repr(each.name) for each in found)
        hint = f"name one of them, e.g. {str(found[0])!r}"
    raise RequestError(field=f"model {path!r}", message=message, hint=hint)


def _input(given: argparse.Namespace, model: Artefact) -> "_Files":
    """The files that are named.

    Raises:
        RequestError: there are none, or they are of several kinds.
    """
    files = source_files.find(given.input, pathlib.Path.cwd(), "input")
    as_csv = [path.lower().endswith(".csv") for path in files]
    if any(as_csv) and not all(as_csv):
        raise RequestError(
            field=f"input {given.input!r}", message="matches both CSV and other files", hint="choose files of one kind"
        )
    if any(as_csv):
        return _Csv(files, _csv_types(given, model), model.preparation.form, _ids(model), _typed(given))
    if given.type:
        raise RequestError(field="--type", message="only applies to CSV; Parquet files have types", hint="leave it out")
    return _Parquet(files)


def _ids(model: Artefact) -> tuple[str, ...]:
    """Return the columns by which a job tells units and rows apart; each prediction has those that the input has."""
    row_id = model.preparation.row_id
    return (*model.task.unit_columns, *([] if row_id is None else [row_id]))


class _Files:
    """Files of rows, with the columns they have or must have."""

    schema: pa.Schema

    def check(self, columns: Sequence[str]) -> None:
        """Refuse files that lack a column. Raises: RequestError by file and column."""
        raise NotImplementedError

    def read(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows in tables of moderate size, the first without rows."""
        raise NotImplementedError

    def size(self, columns: Sequence[str]) -> int:
        """About how many bytes these columns take."""
        raise NotImplementedError

    def lacks(self, name: str) -> str:
        """Return why a column cannot be read from every file, in words; empty if it can."""
        raise NotImplementedError

    def copy_only(self, name: str) -> None:
        """Read a column as it is written, since it is only copied to the output."""


class _Parquet(_Files):
    def __init__(self, files: Sequence[str]) -> None:
        self.source = source_files.look_at_parquet(files)
        self.schema = pa.schema([*self.source.schema, *((name, pa.null()) for name in self.source.missing)])

    def check(self, columns: Sequence[str]) -> None:
        for name in columns:
            if name in self.source.missing:
                error = self.source.missing[name]
                hint = str(error.hint).partition(", or add optional")[0]  # a key of job files
                raise RequestError(field=error.field, message=error.message, hint=hint)

    def read(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield pa.schema([self.source.schema.field(name) for name in columns]).empty_table()
        for path in self.source.files:
            try:
                # Text as it is coded: a file may hold one text for a million rows.
                with open_parquet(path, read_dictionary=self._texts(columns)) as file:
                    for batch in batches_of(path, file, columns, _batch_rows(file, columns)):
                        yield readable(pa.Table.from_batches([batch])).select(list(columns))
            except (pa.ArrowException, OSError, ValueError):
                raise DamagedInputError(f"file {path!r}: a row group cannot be read; it is damaged") from None

    def _texts(self, columns: Sequence[str]) -> list[str]:
        kinds = {name: self.source.schema.field(name).type for name in columns}
        return [name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_binary(kind)]

    def size(self, columns: Sequence[str]) -> int:
        return self.source.bytes_of(columns)

    def lacks(self, name: str) -> str:
        if name in self.source.missing:
            return "not every file of the input has it with the same type"
        return "" if name in self.schema.names else "the input has no such column"


def _batch_rows(file: pa.parquet.ParquetFile, columns: Sequence[str]) -> int:
    """How many rows to read at once: about `SHARD_BYTES` of their columns, according to the footer."""
    groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(file.metadata.num_columns)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns)
    return int(min(max(SHARD_BYTES * file.metadata.num_rows // max(size, 1), 1), BATCH_ROWS))


class _Csv(_Files):
    """CSV, whose columns have declared types.

    Args:
        files: paths.
        declared: the type of each column, by name.
        form: how the files are written.
        ids: columns that files may lack.
        typed: the columns whose types the command line says.
    """

    def __init__(
        self,
        files: Sequence[str],
        declared: Mapping[str, str],
        form: CsvFormat,
        ids: Sequence[str],
        typed: Collection[str],
    ) -> None:
        self.files, self.declared, self.form, self.typed = files, dict(declared), form, typed
        self.headers = [header for path in files if (header := _header(path, form)) is not None]
        absent = {name for name in ids if any(name not in header for header in self.headers)}
        kinds = {name: source_files.TYPES.get(kind, pa.null()) for name, kind in declared.items() if name not in absent}
        self.schema = pa.schema(kinds.items())

    def check(self, columns: Sequence[str]) -> None:
        source_files.look_at_csv(self.files, {name: self.declared[name] for name in columns}, self.form)

    def read(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        from dp_pipelines.steps import read_files

        reader = read_files.ReadCsvFile({name: self.schema.field(name).type for name in columns}, self.form)
        for path in self.files:
            yield from reader.process(path)

    def size(self, columns: Sequence[str]) -> int:
        return sum(os.path.getsize(path) for path in self.files)

    def lacks(self, name: str) -> str:
        counts = {header.count(name) for header in self.headers}
        if max(counts, default=1) > 1:
            return "a file of the input has it twice"
        if 0 in counts:
            return "not every file of the input has it" if len(counts) > 1 else "the input has no such column"
        return ""

    def copy_only(self, name: str) -> None:
        if name in self.schema.names and name not in self.typed:
            self.declared[name] = "string"
            self.schema = self.schema.set(self.schema.get_field_index(name), pa.field(name, pa.string()))


def _header(path: str, form: CsvFormat) -> tuple[str, ...] | None:
    """Return the columns of a CSV file; None where its header cannot be read, which `_Csv.check` tells."""
    try:
        with source_files.stream_of(path) as stream:
            header = csv_lines.header(csv_lines.start_of(compressed.plain(path, stream)), form)
    except compressed.DAMAGES:
        return None
    return None if header is None else header.names


def _typed(given: argparse.Namespace) -> set[str]:
    """Return the columns whose types the command line says."""
    return {item.partition("=")[0] for item in given.type}


def _csv_types(given: argparse.Namespace, model: Artefact) -> dict[str, str]:
    """The types of columns in CSV: those of the training's source, or of what the features declare; or as `--type` says.

    Raises:
        RequestError: `--type` is malformed.
    """
    names = {str(kind): name for name, kind in reversed(list(source_files.TYPES.items()))}
    declared = dict.fromkeys(_ids(model), "string")
    if given.examples:
        declared |= {name: names[str(kind)] for name, kind in model.input_types.items()}
    for name, text in model.preparation.source.items():
        declared[name] = names.get(str(preprocessing.type_of(name, text)), text)
    for item in given.type:
        name, equals, kind = item.partition("=")
        if not equals or not name or kind not in source_files.TYPES:
            hint = "write e.g. --type visits=int; " + (nearest(kind, source_files.TYPES, "types") or "")
            raise RequestError(field=f"--type {item}", message="must be COLUMN=TYPE", hint=hint.strip("; "))
        declared[name] = kind
    return declared


def _with_row_id(
    given: argparse.Namespace,
    model: Artefact,
    files: _Files,
    text: TextFormat | None,
    read: Collection[str],
    *,
    windows: bool = False,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the row id of the job if each prediction gets it, and otherwise a note that says why not.

    Args:
        given: the arguments. A row id that --keep names is never left out: what is wrong with it is refused.
        model: knows the row id.
        files: the input. A row id that nothing else reads is read from it as it is written.
        text: the format of the output; None for Parquet.
        read: the columns that are read for other reasons.
        windows: whether rows are grouped by unit, which nested values cannot be.
    """
    name = model.preparation.row_id
    if name is None or name in model.task.unit_columns:
        return (), ()
    if name not in read:
        files.copy_only(name)
    if name in given.keep:
        return (name,), ()
    why = files.lacks(name)
    if not why and name in model.results:
        why = "predictions have a column of that name"
    elif not why:
        kind = files.schema.field(name).type
        if text is not None and not text_tables.held(kind):
            why = f"it is {kind}, which {text.called} cannot hold"
        elif windows and pa.types.is_nested(kind):
            why = f"it is {kind}, and the model needs windows, which take no nested columns"
    return ((), (f"note: predictions have no column {name!r}, the job's row_id: {why}",)) if why else ((name,), ())


def _examples(
    given: argparse.Namespace, model: Artefact, files: _Files, text: TextFormat | None
) -> tuple[tuple[str, ...], Callable[[pathlib.Path], Iterator[pa.Table]], tuple[str, ...]]:
    """The columns written with each prediction, a function that yields the examples, and notes.

    Raises:
        RequestError: a column is missing, or does not fit what the model says of it.
    """
    unit = model.task.unit_columns
    ids = [name for name in unit if name in files.schema.names]
    keep = [name for name in given.keep if name != model.preparation.row_id or name in unit]
    features = tuple(dict.fromkeys(feature.column for feature in model.encoder.features.values()))
    field = f"input {given.input!r}"
    if given.examples:
        if given.param or given.lookup or given.every_row:
            raise RequestError(
                field="--examples",
                message="cannot be combined with --param, --lookup or --every-row",
                hint="drop those",
            )
        row_id, notes = _with_row_id(given, model, files, text, (*ids, *keep, *features))
        columns = tuple(dict.fromkeys((*ids, *row_id, *keep, *features)))
        for name in columns:
            if name not in files.schema.names:
                hint = nearest(name, files.schema.names, "columns") or "predict from source rows, without --examples"
                raise RequestError(field=field, message=f"has no column {name!r}, which is required", hint=hint)
        files.check(columns)
        return tuple(dict.fromkeys((*ids, *row_id, *keep))), lambda _: files.read(columns), notes
    preparation = model.preparation
    wanted = preprocessing.lookups_of(preparation)
    if len(given.lookup) < len(wanted):
        names = ", ".join(repr(name) for name in wanted[len(given.lookup)]["on"])
        again = "is required" if len(wanted) == 1 else f"is required {len(wanted)} times, in the order of the job"
        message = f"{again}: the model joins a public table by {names}"
        raise RequestError(field="--lookup", message=message, hint="name its file")
    if wanted and len(given.lookup) > len(wanted):
        message = f"is given {len(given.lookup)} times, and the model joins {len(wanted)} public tables"
        raise RequestError(field="--lookup", message=message, hint="name one file for each, in the order of the job")
    tables = [_looked_up(pattern, joined) for pattern, joined in zip(given.lookup, wanted, strict=False)]
    values = preprocessing.parameters(preparation, given.param)

    def bound_to(row_id: Sequence[str], any_type: Collection[str]) -> Prepared:
        return preprocessing.bind(
            preparation,
            files.schema,
            unit=unit,
            features=features,
            kept=tuple(dict.fromkeys((*keep, *ids, *row_id))),
            any_type=any_type,
            values=values,
            tables=tables,
            every=given.every_row,
            told=field,
        )

    bound = bound_to((), ())
    row_id, notes = _with_row_id(given, model, files, text, bound.columns, windows=bound.units is not None)
    if row_id:
        bound = bound_to(row_id, [name for name in row_id if name not in bound.columns])
    files.check(bound.columns)
    kept = [name for name in bound.results if name in unit or name in keep]
    results = tuple(dict.fromkeys((*ids, *row_id, *kept)))
    if bound.units is None:
        return results, lambda _: _by_rows(bound, files), notes
    return results, lambda beside: _by_units(bound, files, unit, beside), notes


def _looked_up(pattern: str, joined: Mapping[str, Any]) -> pa.Table:
    """A public table of the model."""
    paths = source_files.find(pattern, pathlib.Path.cwd(), "--lookup")
    is_csv = all(path.lower().endswith(".csv") for path in paths)
    form, types = CsvFormat(**joined.get("csv", {})), joined.get("types")
    return public_tables.read_public(paths, csv_types=types, is_csv=is_csv, field="--lookup", form=form)


def _by_rows(bound: Prepared, files: _Files) -> Iterator[pa.Table]:
    """Examples of rows one by one."""
    for table in files.read(bound.columns):
        for shaped in bound.shapes(table):
            yield from bound.examples(shaped)


def _by_units(bound: Prepared, files: _Files, unit: Sequence[str], beside: pathlib.Path) -> Iterator[pa.Table]:
    """Examples that need all rows of their unit: shard by shard.

    Args:
        bound: what to compute.
        files: the rows.
        unit: the columns of the unit.
        beside: a private folder.
    """
    from dp_pipelines.steps.whole_units import bounded, canonical

    shards = min(max(1, -(-files.size(bound.columns) // SHARD_BYTES)), MOST_SHARDS)
    paths = [beside / f"shard-{number}" for number in range(shards)]
    schema, columns = None, ()
    with contextlib.ExitStack() as stack:
        writers: dict[int, Any] = {}
        for shaped in (shaped for table in files.read(bound.columns) for shaped in bound.shapes(table)):
            columns = tuple(shaped.column_names)
            rows = canonical(shaped, columns, unit)
            schema = rows.schema if schema is None else schema
            for number, part in shard.slices(rows.cast(schema), unit, SALT, shards):
                if number not in writers:
                    file = stack.enter_context(pa.OSFile(str(paths[number]), "wb"))  # closed whatever fails
                    writers[number] = stack.enter_context(pa.ipc.new_file(file, schema))
                writers[number].write_table(part)
    assert schema is not None
    yield from bound.examples(schema.empty_table())
    for number in sorted(writers):
        with pa.ipc.open_file(str(paths[number])) as reader:
            rows = reader.read_all()
        paths[number].unlink()
        if bound.max_rows_per_unit is not None:
            rows = bounded(rows, unit, bound.max_rows_per_unit, SALT)
        yield from bound.examples(rows)


def _write(tables: Iterator[pa.Table], path: pathlib.Path) -> tuple[int, tuple[str, ...]]:
    """Write tables of one schema, of which there is at least one. Returns: rows and columns."""
    rows, writer = 0, None
    with contextlib.ExitStack() as stack:
        for table in tables:
            if writer is None:
                file = stack.enter_context(pa.OSFile(str(path), "wb"))  # closed whatever fails
                writer = stack.enter_context(pa.parquet.ParquetWriter(file, table.schema, compression="zstd"))
            if table.num_rows:
                writer.write_table(table.cast(writer.schema))
            rows += table.num_rows
        assert writer is not None
        return rows, tuple(writer.schema.names)


@contextlib.contextmanager
def private_folder(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder beside the output that nobody else may read, removed at the end, whatever happens.

    Raises:
        RequestError: it cannot be created.
        DiskError: its disk is full, read-only or failing, now or at any time before the end of the block.
    """
    with told_of_disk(output.parent):
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            folder = pathlib.Path(tempfile.mkdtemp(prefix=f".{output.name[:100]}.", dir=output.parent))
        except OSError as error:
            if reason_of(error):
                raise
            message = "cannot be created"
            raise RequestError(
                field=f"output {str(output)!r}", message=message, hint="choose a place where this user may write"
            ) from None
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
