"""Several private tables in one job, and how they become one: joined on the privacy unit, or one under the other.

In: `tables:`, `join:`, `union:` and `privacy_unit:` of a job file. Out: checked models. Holds: the privacy unit is always part of
a join's condition, and has as many columns in each table; every table is used. Not covered: columns and types, which the files
tell (`jobs.request.joined_tables`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.source_models import LookupModel, SomeLookups, SourceModel
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.query.row_unit import ROW_UNIT
from dp_pipelines.steps.unit_join import KEEPS_UNMATCHED

MOST_ROWS_PER_UNIT = 2**20

_ONE_OR_MORE: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}

_ROW: dict[str, Any] = {"const": {"row": True}}

Unit = Sequence[str] | Mapping[str, Sequence[str]]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _unit(value: Any) -> Any:
    """Lists for single names; by table where there are several; of `{row: true}` the column that readers add."""
    if isinstance(value, Mapping) and list(value) == ["row"] and isinstance(value["row"], bool):
        if not value["row"]:
            raise RequestError(
                field="row", message="must be true", hint="write privacy_unit: {row: true}, or name columns"
            )
        return [ROW_UNIT]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _names(_listed(columns), name) for name, columns in value.items()}
    return _names(_listed(value), "")


def _names(value: Any, field: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        message = "must be the name of a column or a list of them"
        raise RequestError(field=field, message=message, hint="write e.g. privacy_unit: CUSTOMER_ID")
    if not value:
        raise RequestError(field=field, message="must not be empty", hint="name the columns of the privacy unit")
    if ROW_UNIT in value:
        message = f"names column {ROW_UNIT!r}, which tells rows apart"
        raise RequestError(field=field, message=message, hint="write privacy_unit: {row: true}")
    return value


UnitNames = Annotated[
    Any,
    BeforeValidator(_unit),
    WithJsonSchema({"anyOf": [*_ONE_OR_MORE["anyOf"], _ROW, {"type": "object", "additionalProperties": _ONE_OR_MORE}]}),
]
"""The columns of the privacy unit: one name, a list, or these for each table; `{row: true}`: each row is a unit."""


def _pairs(value: Any) -> Any:
    listed = value if isinstance(value, list) else [value]
    pairs = [[pair, pair] if isinstance(pair, str) else pair for pair in listed]
    if not all(isinstance(p, list) and len(p) == 2 and all(isinstance(name, str) for name in p) for p in pairs):
        message = "must list pairs of columns, the left table's first"
        raise RequestError(field="", message=message, hint="write e.g. on: [[day, visit_day]]")
    for names in zip(*pairs, strict=True):
        if len(set(names)) != len(names):
            raise RequestError(field="", message="names a column twice", hint="name each column once")
    return pairs


class JoinModel(JobModel):
    """A join of two private tables. The privacy unit is always part of its condition."""

    left: Annotated[str, Field(description="A table. Joined rows have its unit's columns.")]
    right: Annotated[str, Field(description="Another table.")]
    on: Annotated[
        Any,
        AfterValidator(_pairs),
        Field(description="Columns that must be equal besides the unit: pairs, or names that both tables have."),
        WithJsonSchema(
            {
                "type": "array",
                "items": {
                    "anyOf": [
                        {"type": "string"},
                        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
                    ]
                },
            }
        ),
    ] = Field(default_factory=list)
    kind: Annotated[
        Literal["inner", "left"],
        Field(description="inner: rows that meet a row of the other table. left: all of the left table, with nulls."),
    ] = "inner"
    max_rows_per_unit: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=MOST_ROWS_PER_UNIT)]],
        Field(description="For each table, rows of a unit that are joined; others are dropped by a hash."),
    ]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The columns that must be equal besides the unit."""
        return [(left, right) for left, right in self.on]

    @property
    def keeps_unmatched(self) -> bool:
        """Whether rows of the left table stay that meet nothing."""
        return KEEPS_UNMATCHED[self.kind]


class TableModel(SourceModel):
    """One of several private tables: its files, and what becomes of its rows before it is joined."""

    where: Annotated[str | None, Field(description="Which rows are read, in SQL over one row.")] = None
    columns: Annotated[
        dict[str, str],
        Field(max_length=checks.MOST_DEFINED, description="Columns that are defined in SQL over one row, by name."),
    ] = Field(default_factory=dict)
    lookup: Annotated[
        SomeLookups | None, Field(description="A public table whose columns are added, or several in their order.")
    ] = None

    @property
    def lookups(self) -> tuple[LookupModel, ...]:
        """The public tables in their order."""
        return listed_lookups(self.lookup)


def listed_lookups(lookup: LookupModel | list[LookupModel] | None) -> tuple[LookupModel, ...]:
    """Lookups in their order.

    Args:
        lookup: one, several, or none.
    """
    if lookup is None:
        return ()
    return tuple(lookup) if isinstance(lookup, list) else (lookup,)


def unit_of_rows(unit: Unit, first: str | None) -> list[str]:
    """The columns of the privacy unit under the names that joined rows have.

    Args:
        unit: as the job says it.
        first: the table whose names those are; None where the job has one source.
    """
    if isinstance(unit, Mapping):
        return list(unit.get(first or "", ()))
    return list(unit)


def check_tables(
    *, source: object | None, tables: Mapping[str, TableModel] | None, join: JoinModel | None,
    union: Sequence[str] | None, unit: Unit,
) -> None:  # fmt: skip
    """Refuse what contradicts itself.

    Args:
        source, tables, join, union, unit: of the job.

    Raises:
        RequestError: by the field that is wrong.
    """
    if (source is None) == (tables is None):
        message = "is missing" if source is None else "stands beside tables:"
        hint = "name the files with source:, or with tables: if there are several" if source is None else "drop one"
        raise RequestError(field="source", message=message, hint=hint)
    if tables is None:
        for field, said in (("join", join), ("union", union)):
            if said is not None:
                raise RequestError(field=field, message="is for tables:", hint="name the tables under tables:")
        if isinstance(unit, Mapping):
            raise RequestError(
                field="privacy_unit", message="is a mapping by table, and there are no tables:",
                hint="name the columns, e.g. privacy_unit: CUSTOMER_ID",
            )  # fmt: skip
        return
    if (join is None) == (union is None):
        message = "need either join: or union:, which says how they become one"
        raise RequestError(field="tables", message=message, hint="write one of the two")
    used = _used_by_join(join, tables) if join is not None else _used_by_union(union or (), tables)
    idle = [name for name in tables if name not in used]
    if idle:
        raise RequestError(field=f"tables.{idle[0]}", message="is not used", hint="drop it")
    _check_unit(unit, list(tables), join)


def _used_by_join(join: JoinModel, tables: Mapping[str, TableModel]) -> list[str]:
    used = [join.left, join.right]
    for side, name in zip(("left", "right"), used, strict=True):
        if name not in tables:
            hint = nearest(name, tables, "tables")
            raise RequestError(field=f"join.{side}", message=f"names no table: {name!r}", hint=hint)
    if join.left == join.right:
        raise RequestError(field="join.right", message="is the left table", hint="name another table")
    for name in join.max_rows_per_unit:
        if name not in used:
            hint = nearest(name, used, "tables")
            raise RequestError(field=f"join.max_rows_per_unit.{name}", message="is not a table of the join", hint=hint)
    for name in used:
        if name not in join.max_rows_per_unit:
            raise RequestError(
                field="join.max_rows_per_unit", message=f"lacks table {name!r}",
                hint=f"add how many rows of a unit are joined, e.g. {name}: 1000",
            )  # fmt: skip
    return used


def _used_by_union(union: Sequence[str], tables: Mapping[str, TableModel]) -> list[str]:
    for place, name in enumerate(union):
        if name not in tables:
            hint = nearest(name, tables, "tables")
            raise RequestError(field=f"union.{place}", message=f"names no table: {name!r}", hint=hint)
    if len(set(union)) != len(union):
        raise RequestError(field="union", message="names a table twice", hint="name each table once")
    return list(union)


def _check_unit(unit: Unit, tables: Sequence[str], join: JoinModel | None) -> None:
    """The unit has columns in every table, as many in each, and is not said again by the join."""
    if isinstance(unit, Mapping):
        for name in unit:
            if name not in tables:
                raise RequestError(
                    field=f"privacy_unit.{name}", message="is not a table", hint=nearest(name, tables, "tables")
                )
        for name in tables:
            if name not in unit:
                raise RequestError(
                    field="privacy_unit", message=f"lacks table {name!r}: tables meet on the privacy unit and on nothing else",
                    hint=f"add the columns of table {name!r} that name the unit",
                )  # fmt: skip
        if len({len(columns) for columns in unit.values()}) > 1:
            message = "has not as many columns in each table"
            raise RequestError(
                field="privacy_unit", message=message, hint="list the columns that correspond, in one order"
            )
    for pair in join.pairs if join is not None else ():
        for table, column in zip((join.left, join.right) if join is not None else (), pair, strict=True):
            if column in unit_of_rows(unit, table):
                message = f"names {column!r}, a column of the privacy unit, which is always part of the join"
                raise RequestError(field="join.on", message=message, hint="drop it")


def refuse_beside_row_unit(
    *,
    tables: object | None,
    row_id: str | None,
    parties: object | None,
    lookups: Mapping[str, LookupModel],
    unit_columns: Mapping[str, Mapping[str, str]],
    others: Collection[str],
) -> None:
    """Refuse what a job cannot have whose privacy unit is one row (`privacy_unit: {row: true}`).

    Of one row nothing makes several, nothing looks at all rows of a unit, and nothing splits units by a hash of their number:
    it depends on the rows before it, so that a row that is removed would move others.

    Args:
        tables, row_id, parties: of the job; None: it has none.
        lookups: by place.
        unit_columns: by stage.
        others: the stages that are no aggregates.

    Raises:
        RequestError: by field.
    """
    found = [key for value, key in ((tables, "tables"), (row_id, "row_id"), (parties, "parties")) if value is not None]
    found += [place for place, table in lookups.items() if table.max_rows_per_key > 1]
    found += [f"stages.{name}.kind" for name in others]
    found += [f"stages.{name}.unit_columns" for name, columns in unit_columns.items() if columns]
    for field in found:
        message = "cannot be combined with privacy_unit: {row: true}, whose units have one row each and no other name"
        hint = "name the column of the privacy unit, or drop this"
        raise RequestError(field=field, message=message, hint=hint)
