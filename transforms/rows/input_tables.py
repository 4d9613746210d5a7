"""The input of a release as Arrow tables, whatever its elements are: rows, mappings, tables, record batches, pandas frames.

In: a PCollection, the columns that are read and, where elements bring none, their declared types. Out: a PCollection of tables.
Holds: what public facts show to be wrong (type hints, schemas, declared types, windows) is refused when the pipeline is built; a
cell that does not fit its column is null, and so are all cells of an element that is no row (`to_tables`). Not covered: such
elements whose hint is Any; `check_row` shows what becomes of an invented one.
"""

import datetime
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.typehints import native_type_compatibility, typehints
from apache_beam.utils.timestamp import Timestamp

from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.kernels.columns.type_names import declared_types
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.query.windows import Windows
from dp_pipelines.transforms.program_words import for_programs
from dp_pipelines.transforms.rows import cell_values
from dp_pipelines.transforms.rows.element_types import ElementType, element_type
from dp_pipelines.transforms.rows.row_batches import with_types
from dp_pipelines.transforms.rows.table_steps import has_tables_before, refuse_steps_for_rows, refuse_unsaid_tables
from dp_pipelines.transforms.rows.to_tables import ToTables, absent, table_of
from dp_pipelines.transforms.rows.window_stamps import STAMPS, StampedTables

Types = Mapping[str, pa.DataType | str]
"""The types of columns, as pyarrow types or by the names that job files use."""


def input_tables(
    pcoll: beam.PCollection[Any],
    types: Types | None,
    columns: Sequence[str] | None = None,
    layout: Layout | None = None,
    windows: Windows | None = None,
) -> tuple[beam.PCollection[pa.Table], dict[str, pa.DataType]]:
    """The tables of a PCollection, and the types that are known of their columns.

    Args:
        pcoll: bounded and in the global window, or in these windows.
        types: of columns; needed for elements that bring none.
        columns: that are read; None: all of which types are known.
        layout: what reads them, which refuses types that cannot play their part.
        windows: whose start and end become columns.

    Raises:
        RequestError: the input cannot be read so.
    """
    check_batch(pcoll, windows)
    element = element_type(pcoll)
    if columns is not None and windows is not None:
        columns = [name for name in columns if name not in STAMPS]
    known = known_types(element, types, columns)
    stamped = known if windows is None else {**known, **STAMPS}
    missing = tuple(name for name in columns or () if name not in known)
    _refuse_missing(element, types, known, missing, windows)
    if element.unsaid and (missing or types is None):
        _refuse_unsaid(pcoll, types, missing)
    if layout is not None and not missing:
        check_layout(layout, stamped)
    if element.is_table and types is None and windows is None:
        return pcoll, known
    declared = known if known or types is not None else None
    if windows is None:
        to_tables = ToTables(declared, missing=missing, unsaid=element.unsaid)
    else:
        to_tables = StampedTables(declared, windows, missing=missing, unsaid=element.unsaid)
    made = pcoll | "ToTables" >> beam.ParDo(to_tables).with_output_types(pa.Table)
    if windows is not None:
        made = made | "Global" >> beam.WindowInto(GlobalWindows())
    if declared is None or missing:
        return made, stamped
    return with_types(made, [table_of([], stamped)]), stamped


def _refuse_unsaid(pcoll: beam.PCollection[Any], types: Types | None, missing: Sequence[str]) -> None:
    """Refuse elements of which nothing gives the types: neither a hint nor a step before says tables, and types are missing.

    Raises:
        RequestError: rows among them would be dropped.
    """
    refuse_unsaid_tables(pcoll)
    if has_tables_before(pcoll):
        return
    listed = ", ".join(f'"{name}": ...' for name in missing or ("customer", "amount"))
    lacking = "no types are declared" if types is None else f"types lacks {', '.join(map(repr, missing))}"
    raise RequestError(
        field="input",
        message=f"holds elements without a type hint, and {lacking}",
        hint=f'write types={{{listed}}} with names such as "string", "int64", "double", "date"; if its elements are pyarrow '
        "tables, say so in the step that makes them: .with_output_types(pyarrow.Table)",
    )


def check_layout(layout: Layout, types: Mapping[str, pa.DataType]) -> None:
    """Refuse types that cannot play their part in a layout, with hints for programs: kernels speak of a job's `columns:`.

    Raises:
        RequestError: a type is refused.
    """
    try:
        layout.wire(pa.schema(types.items()).empty_table())
    except RequestError as error:
        raise for_programs(error) from None


def known_types(element: ElementType, types: Types | None, columns: Sequence[str] | None) -> dict[str, pa.DataType]:
    """The types of the columns that are read, as far as they are known when the pipeline is built.

    Raises:
        RequestError: a column is absent, or its declared type is not that of the rows; or types are needed and missing.
    """
    declared = {} if types is None else declared_types(types)
    if element.schema is not None:
        return _of_schema(element, declared, columns)
    if types is None and not element.brings_types:
        listed = ", ".join(f'"{name}": ...' for name in columns or ("customer", "amount"))
        raise RequestError(
            field="input",
            message=f"holds {element.words}, whose columns have no declared types",
            hint=f'write types={{{listed}}} with names such as "string", "int64", "double", "date"',
        )
    if columns is None:
        return declared
    for name in columns:
        if name not in declared and not element.brings_types:
            hint = nearest(name, declared, "declared columns")
            raise RequestError(
                field=f"types[{name!r}]", message="is missing, and the stage reads this column", hint=hint
            )
    return {name: declared[name] for name in columns if name in declared}


def _refuse_missing(
    element: ElementType,
    types: Types | None,
    known: Mapping[str, pa.DataType],
    missing: Sequence[str],
    windows: Windows | None,
) -> None:
    """Refuse columns of unknown type, where tables might bring the type but need not be there, or a name looks mistyped."""
    if missing and windows is not None:  # a release of no table would have other types than one of some
        listed = ", ".join(f'"{name}": ...' for name in missing)
        raise RequestError(
            field="input",
            message=f"holds {element.words} in windows, and types lacks columns that the stage reads",
            hint=f'write types={{{listed}}} with names such as "string", "int64", "double", "date"',
        )
    unread = [name for name in types or () if name not in known]
    for name in missing if element.unsaid else ():
        if difflib.get_close_matches(name.casefold(), [one.casefold() for one in unread], n=1):
            raise RequestError(
                field=f"types[{name!r}]",
                message="is missing, and the stage reads this column",
                hint=nearest(name, unread, "declared columns"),
            )


def _of_schema(
    element: ElementType, declared: dict[str, pa.DataType], columns: Sequence[str] | None
) -> dict[str, pa.DataType]:
    assert element.schema is not None
    everything = [*element.schema, *element.unreadable]
    wanted = (declared or element.schema) if columns is None else columns
    for name in (*declared, *wanted):
        if name not in everything:
            raise absent(name, everything, "rows")
        if name in element.unreadable and name not in declared:
            raise _untyped_field(name, element.unreadable[name])
    for name, kind in declared.items():
        has = element.schema.get(name)
        if has is not None and not _converts(has, kind):
            raise RequestError(
                field=f"types[{name!r}]",
                message=f"declares {kind}, and the rows have {has}, so that every value would be null",
                hint="leave types out: rows with a schema bring their own",
            )
        cls = _plain_class(element.unreadable.get(name))
        if cls is not None and cell_values.fits_never(cls, kind):
            raise RequestError(
                field=f"types[{name!r}]",
                message=f"declares {kind}, and the rows have {cls.__name__}, so that every value would be null",
                hint="declare a type that it converts to (docs/beam.md has the table)",
            )
    return {name: declared[name] if name in declared else element.schema[name] for name in wanted}


def _untyped_field(name: str, kind: Any) -> RequestError:
    """Return the error for a field of rows whose Python type does not say the type of a column."""
    message, hint = "has no type in the rows", f'write types={{"{name}": ...}}'
    if _plain_class(kind) is not None:
        message = f"has the type {kind} in the rows, which does not say the type of a column"
    elif not _is_any(kind):
        message = f"has the type {kind} in the rows, which cannot be read here"
        hint = "give it a plain type before, e.g. str, int, float or Timestamp"
    return RequestError(field=f"column {name!r}", message=message, hint=hint)


def _is_any(kind: Any) -> bool:
    return str(kind).rpartition(".")[2] == "Any"


def _plain_class(hint: Any) -> type | None:
    """Return the class of cells by their hint; None where it says several, or none."""
    hint = native_type_compatibility.convert_to_beam_type(hint)
    if isinstance(hint, typehints.UnionConstraint):
        inside = [one for one in hint.union_types if one is not type(None)]
        hint = inside[0] if len(inside) == 1 else None
    return hint if isinstance(hint, type) and hint is not object and not _is_any(hint) else None


def _converts(has: pa.DataType, declared: pa.DataType) -> bool:
    """Return True if some value of one type becomes a value of another, as cells are converted."""
    samples = _samples(has)
    made = cell_values.column(samples, declared)
    return not samples or has == declared or made.null_count < len(samples)


def _samples(kind: pa.DataType) -> list[Any]:
    if pa.types.is_list(kind):
        return [[inner] for inner in _samples(kind.value_type)]
    plain: tuple[tuple[Any, list[Any]], ...] = (
        (pa.types.is_boolean, [True]),
        (pa.types.is_integer, [1]),
        (pa.types.is_floating, [1.0]),
        (pa.types.is_string, ["x", "2026-01-05"]),
        (pa.types.is_binary, [b"x"]),
        (pa.types.is_date, [datetime.date(2026, 1, 5)]),
        (pa.types.is_timestamp, [Timestamp(1767571200)]),
    )
    return next((values for fits, values in plain if fits(kind)), [])


def tables_alone(pcoll: beam.PCollection[Any], label: str = "OnlyTables") -> beam.PCollection[pa.Table]:
    """Return the Arrow tables of an input, where nothing else is read.

    Args:
        pcoll: a batch of tables. Other elements, which no type hint announces, are dropped.
        label: of the step that drops them.

    Raises:
        RequestError: it is no batch, or neither its type hint nor a step before says that it holds tables.
    """
    check_batch(pcoll)
    element = element_type(pcoll)
    if element.is_table:
        return pcoll
    if not element.unsaid:
        raise RequestError(
            field="input",
            message=f"holds {element.words}, not pyarrow tables",
            hint="put FromRows(types=...) before it",
        )
    if not has_tables_before(pcoll):
        raise RequestError(
            field="input",
            message="holds elements without a type hint, and pyarrow tables are read here",
            hint="say so in the step that makes them, .with_output_types(pyarrow.Table), or put FromRows(types=...) before it",
        )
    return pcoll | label >> beam.ParDo(ToTables(None, unsaid=True)).with_output_types(pa.Table)


def check_batch(pcoll: beam.PCollection[Any], windows: Windows | None = None) -> None:
    """Refuse input that cannot be released as one batch.

    Args:
        pcoll: the input.
        windows: that are declared; None: it must be in the global window.

    Raises:
        RequestError: for an unbounded PCollection, one with a trigger or late rows, one in other windows, or one that a step
            for rows has made of Arrow tables.
    """
    refuse_steps_for_rows(pcoll)
    if not pcoll.is_bounded:
        message = "is unbounded: which of a person's rows are late would depend on the rows of others"
        raise RequestError(field="input", message=message, hint="release batches: read a bounded source")
    if windows is not None:
        _check_windows(pcoll.windowing.windowfn, windows)
    elif not isinstance(pcoll.windowing.windowfn, GlobalWindows):
        raise RequestError(
            field="input",
            message="is windowed",
            hint="declare its windows, Query(..., windows=Windows(first=..., size=..., count=...)), or put "
            "WindowInto(GlobalWindows()) before it and partition by a time column",
        )
    again = None if isinstance(pcoll.windowing.triggerfn, DefaultTrigger) else "has a trigger"
    if again is None and pcoll.windowing.allowed_lateness.micros:
        again = "allows late rows"
    if again is not None:
        hint = "put WindowInto without trigger and allowed_lateness before it"
        raise RequestError(field="input", message=f"{again}, which may release the same rows repeatedly", hint=hint)


def _check_windows(window_fn: Any, windows: Windows) -> None:
    size = windows.size.total_seconds()
    offset = windows.first.timestamp() % size if isinstance(windows.first, datetime.datetime) else 0.0
    shown = f"FixedWindows({size:g}, offset={offset:g})" if offset else f"FixedWindows({size:g})"
    hint = f"put beam.WindowInto({shown}) before it"
    if not isinstance(window_fn, FixedWindows):
        message = "is not in FixedWindows, and the query declares windows"
        raise RequestError(field="input", message=message, hint=hint)
    shift = windows.start_micros - window_fn.offset.micros
    if window_fn.size.micros != windows.size_micros or shift % windows.size_micros:
        message = "is in windows of another size or start than the query declares"
        raise RequestError(field="input", message=message, hint=hint)
