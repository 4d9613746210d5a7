"""Several private tables as one: which columns the rows have that stages read, and what is read of each table for them.

In: a checked job file with `tables:`, and each table's files and expressions. Out: `Tables`: the rows as one source, and how they
are made. Holds: a joined row has the left table's unit; the units and the columns of `on` are compared in one type; a name that
two tables have stands for neither; all that is wrong by public facts is refused here. Not covered: the join itself
(`steps.unit_join`).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources.lookups import Lookups
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec.job_file import Job, JobFile
from dp_pipelines.jobs.spec.table_models import JoinModel, TableModel, unit_of_rows
from dp_pipelines.jobs.spec.validation_errors import JobErrors, nearest, raise_all
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.steps import row_bytes
from dp_pipelines.steps.read_files import Shuffled
from dp_pipelines.steps.unit_join import JoinSide, UnitJoin, common_type, is_nested

Result = TypeVar("Result")

LEFT, RIGHT = "l.", "r."


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRows:
    """One of several tables.

    Args:
        name: in the job.
        declared: what the job says of it.
        source: its files.
        rows: its `where` and `columns`.
        lookup: the public tables that are joined to it, or None.
        unit: its columns of the privacy unit.
        columns: of its files that are read.
        reads: what is read of its rows once they are shaped.
    """

    name: str
    declared: TableModel
    source: Source
    rows: RowExpressions
    lookup: Lookups | None
    unit: tuple[str, ...]
    columns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows once they are shaped."""
        return pa.schema([*self.rows.output_schema, *(self.lookup.fields if self.lookup is not None else ())])

    @property
    def explodes(self) -> bool:
        """Whether a public table makes several rows of one."""
        return self.lookup is not None and self.lookup.explodes

    @property
    def shuffled(self) -> Shuffled:
        """The size of a row on its way to other tables."""
        grows = 1 if self.lookup is None else self.lookup.most_rows
        size = row_bytes.of_columns(self.schema, self.reads) * grows
        return Shuffled(widest=size, together=size)

    def reading(self, names: Iterable[str]) -> "TableRows":
        """The same, of which some columns are read."""
        reads = tuple(dict.fromkeys(names))
        needed = (*reads, *(self.lookup.on if self.lookup is not None else ()), *self.rows.input_columns)
        columns = tuple(dict.fromkeys(name for name in needed if name in self.source.schema.names))
        schema = pa.schema([self.source.schema.field(name) for name in columns])
        return dataclasses.replace(
            self, columns=columns, reads=reads, rows=dataclasses.replace(self.rows, schema=schema)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Several tables, and the rows that they become.

    Args:
        parts: the tables: left and right of a join, or those of a union in their order.
        source: the files of all, with the columns of the rows that they become.
        key_types: the types in which columns of the unit, and of `on`, are compared, by the names in the first table.
        join: what the job says, or None for a union.
        united: how they are joined, once it is known what is read.
    """

    parts: tuple[TableRows, ...]
    source: Source
    key_types: Mapping[str, pa.DataType]
    join: JoinModel | None = None
    united: UnitJoin | None = None

    def reading(self, columns: Sequence[str]) -> "Tables":
        """The same, of whose rows some columns are read.

        Args:
            columns: names in `source`.
        """
        if self.join is None:
            first, *others = self.parts
            parts = [first.reading((*first.unit, *columns))]
            rest = [name for name in columns if name not in first.unit]
            parts += [other.reading((*other.unit, *rest)) for other in others]
            return dataclasses.replace(self, parts=tuple(parts))
        left, right = self.parts
        on = self.join.pairs
        of_left = (*left.unit, *(name for name, _ in on), *(name for name in columns if name in left.schema.names))
        of_right = (*right.unit, *(name for _, name in on), *(n for n in columns if n not in of_left and n != TWIN))
        twin = [(TWIN,) if part.explodes else () for part in self.parts]
        read = left.reading((*(n for n in of_left if n != TWIN), *twin[0])), right.reading((*of_right, *twin[1]))
        united = UnitJoin(
            left=_side(read[0], LEFT, self.join, 0, self.key_types),
            right=_side(read[1], RIGHT, self.join, 1, self.key_types),
            columns=pa.schema([self.source.schema.field(name) for name in columns]),
            pair_hash=TWIN,
            keeps_unmatched=self.join.keeps_unmatched,
        )
        return dataclasses.replace(self, parts=read, united=united)

    @property
    def widest(self) -> int:
        """Bytes of the widest row of a table on its way to the others; 0 where tables do not meet."""
        return max(part.shuffled.widest for part in self.parts) if self.join is not None else 0


def _side(part: TableRows, tag: str, join: JoinModel, place: int, key_types: Mapping[str, pa.DataType]) -> JoinSide:
    on = tuple(pair[place] for pair in join.pairs)
    types = list(key_types.values())
    return JoinSide(
        tag=tag,
        unit=part.unit,
        on=on,
        reads=part.reads,
        key_types=dict(zip((*part.unit, *on), types, strict=True)),
        most=join.max_rows_per_unit[part.name],
        needs_match=bool(place) or not join.keeps_unmatched,
    )


def bind(file: JobFile, look: Callable[[str, Sequence[str]], TableRows]) -> Tables:
    """The tables of a job as one.

    Args:
        file: the job file, with `tables:`.
        look: from the name of a table and its columns of the unit to the table, checked alone.

    Raises:
        RequestError: what is wrong.
    """
    job = file.job
    names = [job.join.left, job.join.right] if job.join is not None else list(job.union or ())
    units_of = {name: unit_of_rows(job.privacy_unit, name) for name in names}
    parts = tuple(of_table(file, name, functools.partial(look, name, units_of[name])) for name in names)
    for part in parts:
        _check_unit(file, part)
    units = _unit_types(file, parts)
    if job.join is None:
        return Tables(parts=parts, source=_united(file, parts, units), key_types=units)
    types = {**units, **_on_types(file, parts, job.join)}
    return Tables(parts=parts, source=_joined(parts, job.join, types), key_types=types, join=job.join)


def of_table(file: JobFile, name: str, step: Callable[[], Result]) -> Result:
    """The result of a step for one table; what is wrong with the table is told with its place in the job.

    Args:
        file: the job file, with `tables:`.
        name: of the table.
        step: whose errors name keys of the table's own.

    Raises:
        RequestError: what is wrong.
    """

    def placed(error: RequestError) -> RequestError:
        first, _, rest = error.field.partition(".")
        if first == "source":
            error = RequestError(field=rest, message=error.message, hint=error.hint)
        elif first not in TableModel.model_fields:
            return error
        return file.error(("tables", name), error)

    try:
        return step()
    except JobErrors as errors:
        raise JobErrors([placed(problem) for problem in errors.problems]) from None
    except RequestError as error:
        raise placed(error) from None


def _check_unit(file: JobFile, part: TableRows) -> None:
    """Refuse a unit that is no column of a table's files, or that an expression or a public table makes."""
    path = ("privacy_unit", part.name) if isinstance(file.job.privacy_unit, Mapping) else ("privacy_unit",)
    for name in part.unit:
        if name not in part.source.schema.names:
            hint = nearest(name, part.source.schema.names, "columns")
            message = f"names column {name!r}, which table {part.name!r} does not have"
            raise file.error(path, RequestError(field="", message=message, hint=hint))
        try:
            keys.check_key_type(part.source.schema.field(name).type, name, partition=False)
        except RequestError as error:
            raise file.error(path, RequestError(field="", message=f"{error.field} {error.message}")) from None


def _unit_types(file: JobFile, parts: Sequence[TableRows]) -> dict[str, pa.DataType]:
    """The types in which units are compared, by the columns of the first table."""
    found: dict[str, pa.DataType] = {}
    for place, name in enumerate(parts[0].unit):
        kinds = [part.source.schema.field(part.unit[place]).type for part in parts]
        kind = kinds[0]
        for part, other in zip(parts[1:], kinds[1:], strict=True):
            common = common_type(kind, other)
            if common is None:
                message = f"has type {kind} in table {parts[0].name!r} and {other} in table {part.name!r}"
                hint = "give the unit one type in all tables: nobody would be the same person in both"
                raise file.error(("privacy_unit",), RequestError(field="", message=message, hint=hint))
            kind = common
        found[name] = kind
    return found


def _on_types(file: JobFile, parts: Sequence[TableRows], join: JoinModel) -> dict[str, pa.DataType]:
    """The types in which the columns of `on` are compared, by those of the left table."""
    problems, found = [], {}
    for place, pair in enumerate(join.pairs):
        path = ("join", "on", place)
        lacking = [(p, n) for p, n in zip(parts, pair, strict=True) if n not in p.schema.names]
        if lacking:
            part, name = lacking[0]
            hint = nearest(name, part.schema.names, "columns")
            message = f"names column {name!r}, which table {part.name!r} does not have"
            absent = part.source.missing.get(name)
            problems.append(absent or file.error(path, RequestError(field="", message=message, hint=hint)))
            continue
        left, right = (part.schema.field(name).type for part, name in zip(parts, pair, strict=True))
        common = None if any(is_nested(kind) for kind in (left, right)) else common_type(left, right)
        if common is None:
            message = f"compares {pair[0]!r} of type {left} with {pair[1]!r} of type {right}"
            hint = 'define columns of one plain type, e.g. columns: {day: "CAST(paid_at AS DATE)"}'
            problems.append(file.error(path, RequestError(field="", message=message, hint=hint)))
        else:
            found[pair[0]] = common
    raise_all(problems)
    return found


def with_limits(described: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """A plan or a manifest whose stages say, among their limits, what of a unit is joined.

    Args:
        described: with `stages`.
        job: whose plan it is.
    """
    if job.join is None:
        return dict(described)
    most = job.join.max_rows_per_unit
    rows = " and ".join(f"{most[name]:,} rows of {name}" for name in (job.join.left, job.join.right))
    said = f"at most {rows} of one {', '.join(job.unit)} are joined"
    stages = [{**s, "limits": [said, *s["limits"]]} if "limits" in s else s for s in described["stages"]]
    return {**described, "stages": stages}


def _joined(parts: Sequence[TableRows], join: JoinModel, types: Mapping[str, pa.DataType]) -> Source:
    """Joined rows as a source. A name that two tables have is missing, unless it is the unit or one name of `on`."""
    left, right = parts
    same = {mine for mine, other in join.pairs if mine == other}
    of_right = {theirs: types[mine] for mine, theirs in join.pairs}
    missing = _missing(parts)
    fields = {field.name: types.get(field.name, keys.plain_type(field.type)) for field in left.schema}
    for field in right.schema:
        name = field.name
        if name in right.unit or name in left.unit or name in same or name == TWIN:
            continue
        if name in fields:
            message = f"is in table {left.name!r} and in table {right.name!r}"
            hint = f"use another name, e.g. tables: {{{right.name}: {{columns: {{{right.name}_{name}: {name}}}}}}}"
            missing[name] = RequestError(field=f"column {name!r}", message=message, hint=hint)
            del fields[name]
        elif name not in left.source.missing:
            fields[name] = of_right.get(name, keys.plain_type(field.type))
    fields[TWIN] = pa.uint64()
    return _source(parts, fields, missing)


def _united(file: JobFile, parts: Sequence[TableRows], units: Mapping[str, pa.DataType]) -> Source:
    """The rows of all tables as a source: the columns that all of them have, with one type."""
    first, *others = parts
    missing = _missing(parts)
    fields = {field.name: units.get(field.name, field.type) for field in first.schema}
    for part in parts:
        if part.explodes:
            message = "makes several rows of one, and the tables become one without it"
            raise file.error(
                ("tables", part.name, "lookup"),
                RequestError(field="", message=message, hint="write lookup: beside union:, for all tables"),
            )
    for other in others:
        for name in [name for name in fields if name not in first.unit]:
            kind = other.schema.field(name).type if name in other.schema.names else None
            if name in other.unit or kind is None:
                message = f"is not in table {other.name!r}"
                hint = f"define it with tables: {{{other.name}: {{columns: ...}}}}"
            elif keys.plain_type(kind) != keys.plain_type(fields[name]):
                message = f"has type {fields[name]} in table {first.name!r} and {kind} in table {other.name!r}"
                hint = "give it one type in all tables"
            else:
                continue
            missing[name] = RequestError(field=f"column {name!r}", message=message, hint=hint)
            del fields[name]
    return _source(parts, fields, missing)


def _missing(parts: Sequence[TableRows]) -> dict[str, RequestError]:
    """What is wrong with names, by the first table that has them; those of the unit are the first table's, and right there."""
    found: dict[str, RequestError] = {}
    for part in parts:
        for name, error in part.source.missing.items():
            if name not in parts[0].unit:
                found.setdefault(name, error)
    return found


def _source(
    parts: Sequence[TableRows], fields: Mapping[str, pa.DataType], missing: Mapping[str, RequestError]
) -> Source:
    nested = {name: kind for name, kind in fields.items() if is_nested(kind)}
    refused = {
        name: RequestError(
            field=f"column {name!r}", message=f"has type {kind}, which rows of several tables cannot have",
            hint="extract what you need with columns: of its table",
        )
        for name, kind in nested.items()
    }  # fmt: skip
    sizes: dict[str, int] = {}
    for part in parts:
        for name, size in part.source.sizes.items():
            sizes[name] = sizes.get(name, 0) + size
    return Source(
        files=tuple(dict.fromkeys(file for part in parts for file in part.source.files)),
        schema=pa.schema([(name, kind) for name, kind in fields.items() if name not in nested]),
        sizes=sizes,
        types=None,
        missing={**missing, **refused},
        rows=sum(part.source.rows for part in parts),
    )
