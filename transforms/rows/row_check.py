"""Shows what the cells of one invented row become, since rows of a pipeline never cause an error.

In: a stage, declared types, a row that the caller made up. Out: a description of each cell that the stage reads. Holds: the row
is read as `PrivateAggregate` reads rows, by the same code. Not covered: rows of people, whose values this shows.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.transforms.rows import cell_values
from dp_pipelines.transforms.rows.element_types import type_of_hint
from dp_pipelines.transforms.rows.input_tables import Types, check_layout, known_types
from dp_pipelines.transforms.rows.to_tables import reader
from dp_pipelines.transforms.rows.window_stamps import STAMPS


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedCell:
    """One cell of an invented row.

    Args:
        column: its name.
        value: as the row has it.
        declared: the type of the column.
        becomes: the value in the column; None is null.
        why_null: in words; None where it is not null.
    """

    column: str
    value: Any
    declared: pa.DataType
    becomes: Any
    why_null: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedRow:
    """An invented row, cell by cell; its text is a table.

    Args:
        cells: those that the stage reads.
        is_dropped: whether the row counts for nothing, because its privacy unit is null.
    """

    cells: tuple[CheckedCell, ...]
    is_dropped: bool

    def __getitem__(self, column: str) -> CheckedCell:
        """Return the cell of a column."""
        return next(cell for cell in self.cells if cell.column == column)

    def __str__(self) -> str:
        lines = [("column", "value", "declared", "becomes")]
        for cell in self.cells:
            becomes = repr(cell.becomes) if cell.why_null is None else f"null: the value {cell.why_null}"
            lines.append((cell.column, _text_of(cell.value), str(cell.declared), becomes))
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        shown = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        if self.is_dropped:
            shown.append("The row is dropped: it has no privacy unit.")
        return "\n".join(line.rstrip() for line in shown)


def check_row(stage: StagePlan, types: Types | None, row: Any) -> CheckedRow:
    """Show what each cell of an invented row becomes in `PrivateAggregate`, where a cell that does not fit is null, silently.

    Args:
        stage: `plan["name"]`.
        types: as for `PrivateAggregate`; None for a NamedTuple or a dataclass, which brings its types.
        row: a mapping, or an object with attributes. Invent it: the result shows its values.

    Raises:
        RequestError: `PrivateAggregate` would refuse these types.

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="day", metrics={"paid": Sum("amount", min_value=0, max_value=9)},
    ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> types = {"customer": "int64", "day": "date", "amount": "double"}
    >>> print(check_row(plan["weekly"], types, {"customer": 7.5, "day": "2026-01-05", "amount": 20}))
    column    value         declared     becomes
    customer  7.5           int64        null: the value is not a whole number
    day       '2026-01-05'  date32[day]  datetime.date(2026, 1, 5)
    amount    20            double       20.0
    The row is dropped: it has no privacy unit.
    """
    if not isinstance(stage, StagePlan):
        raise RequestError(field="stage", message="must be a stage of a Plan", hint='write plan["..."]')
    element = type_of_hint(dict if isinstance(row, Mapping) else type(row))
    if element.brings_types:
        raise RequestError(field="row", message=f"is one of {element.words}", hint="invent one row, e.g. as a dict")
    columns = [name for name in stage.query.columns if stage.windows is None or name not in STAMPS]
    known = known_types(element, types, columns)
    stamps = {} if stage.windows is None else STAMPS
    check_layout(stage.layout, {**known, **stamps})
    checked = tuple(_checked(row, name, known[name]) for name in columns)
    units = [cell for cell in checked if cell.column in stage.query.unit_columns]
    return CheckedRow(cells=checked, is_dropped=any(cell.why_null is not None for cell in units))


def _checked(row: Any, name: str, kind: pa.DataType) -> CheckedCell:
    value, why = None, None
    try:
        value = reader(row)(name)
        if value is None and not _has(row, name):
            why = "is not in the row"
    except Exception as error:
        why = f"raises {type(error).__name__} when it is read"
    column = cell_values.column([value], kind)
    why = cell_values.why_null(value, kind) if why is None else why
    return CheckedCell(column=name, value=value, declared=kind, becomes=_shown(column), why_null=why)


def _has(row: Any, name: str) -> bool:
    return name in row if isinstance(row, Mapping) else hasattr(row, name)


def _text_of(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # a class of the user's may raise anything
        return f"a {type(value).__name__}"


def _shown(column: pa.Array) -> Any:
    try:
        return column[0].as_py()
    except (ValueError, OverflowError):  # nanoseconds without pandas, which Python's own times do not have
        return column.to_string(indent=0, skip_new_lines=True)[1:-1]
