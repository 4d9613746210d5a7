"""The cells of a published table for spreadsheets: numbers in the digits that their noise leaves meaningful, and its interval.

In: a published table, and which of its columns are released numbers. Out: names and cells of CSV. Holds: digits are those of the
page of the release; a cell depends on the numbers of its own row alone. Not covered: the lines of the file (`spreadsheet_csv`).
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.jobs.outputs.text_tables import csv_texts_of, in_quotation_marks
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.error_bars import ERROR_BAR, cut_at_range, deviations_in_bar
from dp_pipelines.query.compare import number_columns
from dp_pipelines.query.partitions import PublicPartitions
from dp_pipelines.query.query import Query
from dp_pipelines.query.range_columns import range_columns
from dp_pipelines.report.compare_text import FILE as COMPARISON
from dp_pipelines.report.compare_text import comparison_cells
from dp_pipelines.report.derived.derived_columns import column_names
from dp_pipelines.report.numbers import ANYWHERE, rounded_cells
from dp_pipelines.report.range_text import range_cells
from dp_pipelines.report.words.number_format import FormOf, NumberFormat


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberColumns:
    """The columns of one released number.

    Args:
        value, stddev: the number and the standard deviation of its noise.
        whole: whether its true values are whole, such as numbers of people.
        ends: the columns of an estimate of the true number and of its range; None: the stage has none of it.
        form: how the job wants it to be written; None: in the digits that its noise leaves meaningful.
        metric: whose number it is.
        deviations: half the length of its error bar, in standard deviations.
        within: the range of its true values, where its interval is cut off.
    """

    value: str
    stddev: str
    whole: bool
    ends: tuple[str, str, str] | None = None
    form: NumberFormat | None = None
    metric: str = ""
    deviations: float = ERROR_BAR
    within: tuple[float, float] = ANYWHERE

    @property
    def interval(self) -> tuple[str, str]:
        """The columns of the interval of the noise, which are in no Parquet file."""
        return f"{self.value}_from", f"{self.value}_to"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvLayout:
    """Which columns of a published table are what.

    Args:
        keys: say which partition a row is of.
        numbers: the released ones.
        derived: the columns of numbers that are computed from released ones: a value and both ends, or an estimate and both.
        compared: the columns of numbers of a comparison of arms.
        levels, ranks: whether the table has several levels of partitions, or the best ones only.
        other: whether one partition is that of all keys that are not listed.
        listed: the public partitions, where all of them are published.
        forms: how numbers that are computed from released ones are written, by the first of their three columns.
    """

    keys: tuple[str, ...]
    numbers: tuple[NumberColumns, ...] = ()
    derived: tuple[tuple[str, ...], ...] = ()
    compared: tuple[str, ...] = ()
    levels: bool = False
    ranks: bool = False
    other: bool = False
    listed: Sequence[Sequence[Any]] | None = None
    forms: Mapping[str, NumberFormat] = FrozenMapping({})


def with_laws(layout: CsvLayout, laws: Mapping[str, str]) -> CsvLayout:
    """Return a layout with error bars as long as the noise of each number has them.

    Args:
        layout: of a table.
        laws: of the noise of its metrics.
    """
    numbers = [
        dataclasses.replace(one, deviations=deviations_in_bar(laws.get(one.metric, ""))) for one in layout.numbers
    ]
    return dataclasses.replace(layout, numbers=tuple(numbers))


def layout_of(
    query: Query, *, all_rows: bool = True, derived: Collection[str] = (), form_of: FormOf = lambda name: None
) -> CsvLayout:
    """Return which columns of a stage's table are what.

    Args:
        query: of the stage.
        all_rows: whether the job publishes all rows of the table.
        derived: names of what is computed from released numbers.
        form_of: how the numbers of each metric are written.

    >>> from dp_pipelines import ContributionBounds, Count
    >>> query = Query(privacy_unit="customer", partition_by=("region", "week"), metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_contributions=4))
    >>> layout = layout_of(query)
    >>> layout.keys, layout.numbers[0].value, layout.numbers[0].interval, layout.numbers[0].whole
    (('region', 'week'), 'orders', ('orders_from', 'orders_to'), True)
    """
    numbers, ends = [], range_columns(query)
    for name, metric in query.metrics.items():
        columns = query.released_columns(name)
        for value, stddev in zip(columns[::2], columns[1::2], strict=True):
            of_value = ends.get(name) if value == name else None
            numbers.append(
                NumberColumns(
                    value=value,
                    stddev=stddev,
                    whole=metric.whole,
                    ends=of_value,
                    metric=name,
                    form=form_of(name),
                    within=_within(metric),
                )
            )
    triples = {
        columns[start : start + 3]: form_of(name)
        for name in derived
        for columns in [column_names(name, ranged=query.kept is not None)]
        for start in range(0, len(columns), 3)
    }
    partitions = query.partitions
    all_listed = all_rows and query.top is None and isinstance(partitions, PublicPartitions)
    return CsvLayout(
        keys=tuple(query.published_keys),
        numbers=tuple(numbers),
        derived=tuple(triples),
        forms={columns[0]: form for columns, form in triples.items() if form is not None},
        levels=query.rollup is not None,
        ranks=query.best is not None,
        other=query.other_column is not None,
        listed=partitions.columns if all_listed and isinstance(partitions, PublicPartitions) else None,
    )


def layouts_of(
    queries: Mapping[str, Query],
    shown: Mapping[str, object],
    derived: Mapping[str, Collection[str]] = FrozenMapping({}),
    form_of: Callable[[str], FormOf] = lambda stage: lambda name: None,
) -> dict[str, CsvLayout]:
    """Return the layout of every published table, by its name.

    Args:
        queries: by stage.
        shown: the stages of which some rows are not published.
        derived: names of what is computed from released numbers, by stage.
        form_of: how the numbers of each metric of a stage are written.
    """
    layouts = {}
    for name, query in queries.items():
        all_rows, of_stage = name not in shown, derived.get(name, ())
        layouts[name] = layout_of(query, all_rows=all_rows, derived=of_stage, form_of=form_of(name))
        if query.compare is not None:
            compared = number_columns(query.compare.intervals)
            layouts[f"{name}.{COMPARISON}"] = CsvLayout(keys=(query.compare.by,), compared=compared)
    return layouts


def columns_of(names: Sequence[str], layout: CsvLayout, *, interval: bool) -> list[str]:
    """Return the columns of a file.

    Args:
        names: the columns of the published table.
        layout, interval: as for `cells_of`.
    """
    after = {numbers.stddev: numbers.interval for numbers in layout.numbers} if interval else {}
    return [column for name in names for column in (name, *after.get(name, ()))]


def columns_with_decimals(schema: pa.Schema, layout: CsvLayout, *, interval: bool) -> list[str]:
    """Return the columns of a file whose cells are numbers that may have a decimal separator.

    Args:
        schema: of the published table.
        layout, interval: as for `cells_of`.

    >>> numbers = NumberColumns(value="n", stddev="n_stddev", whole=True)
    >>> schema = pa.schema([("k", pa.string()), ("n", pa.float64()), ("n_stddev", pa.float64()), ("at", pa.time64("us"))])
    >>> columns_with_decimals(schema, CsvLayout(keys=("k",), numbers=(numbers,)), interval=True)
    ['n', 'n_stddev', 'n_from', 'n_to']
    """
    fractional = {field.name for field in schema if pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)}
    ends = {end for numbers in layout.numbers if numbers.value in fractional for end in numbers.interval}
    columns = columns_of(schema.names, layout, interval=interval)
    return [name for name in columns if name in (fractional if name in schema.names else ends)]


def cells_of(table: pa.Table, layout: CsvLayout, *, rounded: bool, interval: bool) -> dict[str, pa.Array]:
    """Return the cells of a table by column, in the order of the file.

    Args:
        table: rows of a published table that are few enough for one array.
        layout: of the table.
        rounded: whether numbers have the digits that their noise leaves meaningful.
        interval: whether the interval of the noise follows each standard deviation.

    >>> numbers = NumberColumns(value="n", stddev="n_stddev", whole=True)
    >>> table = pa.table({"k": ["a", None], "n": [12.34, None], "n_stddev": [2.0, 2.0]})
    >>> layout = CsvLayout(keys=("k",), numbers=(numbers,))
    >>> for name, cells in cells_of(table, layout, rounded=True, interval=True).items():
    ...     print(name, cells.to_pylist())
    k ['"a"', '']
    n ['12', '']
    n_stddev ['2.0', '2.0']
    n_from ['8', '']
    n_to ['16', '']
    """
    made: dict[str, pa.Array] = {}
    for numbers in layout.numbers:
        made |= _rounded(table, numbers) if rounded else _as_published(table, numbers)
    for derived in layout.derived if rounded else ():
        made |= _range_cells(table, derived, whole=False, form=layout.forms.get(derived[0]))
    if rounded and layout.compared:
        rows = [comparison_cells(row) for row in table.select(list(layout.compared)).to_pylist()]
        made |= {name: pa.array([row[name] for row in rows], pa.string()) for name in layout.compared}
    columns = columns_of(table.column_names, layout, interval=interval)
    return {name: made[name] if name in made else csv_texts_of(table.column(name)) for name in columns}


def _as_published(table: pa.Table, numbers: NumberColumns) -> dict[str, pa.Array]:
    """Return the interval of a number in all digits."""
    kind = table.schema.field(numbers.value).type
    values, stddevs = (table.column(name).to_pylist() for name in (numbers.value, numbers.stddev))
    cells = {}
    for name, sign in zip(numbers.interval, (-1, 1), strict=True):
        ends = [
            _each(value, stddev, _end(sign * numbers.deviations, numbers.within))
            for value, stddev in zip(values, stddevs, strict=True)
        ]
        cells[name] = csv_texts_of(pa.chunked_array([pa.array(ends, kind)]))
    return cells


def _within(metric: Metric) -> tuple[float, float]:
    """Return the range of the values of a metric; that of bounds that the run chooses or that differ by group is not known."""
    known = None if metric.auto or metric.scale is not None else metric.value_range
    return ANYWHERE if known is None else known


def _end(deviations: float, within: tuple[float, float]) -> Callable[[float | None, float | None], float | None]:
    """Return a function that gives the number so many deviations above another one; none of a number without an error bar.

    Args:
        deviations: how many; below zero for the low end.
        within: the range of the true number, where the ends are cut off.
    """

    def end(value: float | None, stddev: float | None) -> float | None:
        if value is None or stddev is None or math.isnan(stddev):
            return None
        bar = abs(deviations) * stddev
        return cut_at_range(value, value - bar, value + bar, within)[deviations > 0]

    return end


def _each(values: Any, stddevs: Any, function: Callable[[Any, Any], Any]) -> Any:
    """Return what a function gives of a number, or of each number of a list; None for no list."""
    if not isinstance(values, list):
        return None if isinstance(stddevs, list) else function(values, stddevs)
    others = stddevs if isinstance(stddevs, list) else [None] * len(values)
    return [function(value, stddev) for value, stddev in zip(values, others, strict=True)]


def _rounded(table: pa.Table, numbers: NumberColumns) -> dict[str, pa.Array]:
    """Return the cells of all columns of a number, rounded."""
    values, stddevs = (table.column(name).to_pylist() for name in (numbers.value, numbers.stddev))
    rows = zip(values, stddevs, strict=True)
    four = [
        _each(
            value,
            stddev,
            lambda v, s: rounded_cells(
                v, s, whole=numbers.whole, deviations=numbers.deviations, form=numbers.form, within=numbers.within
            ),
        )
        for value, stddev in rows
    ]
    columns = [numbers.value, numbers.stddev, *numbers.interval]
    cells = {
        name: _column(None if row is None else _part(row, place) for row in four) for place, name in enumerate(columns)
    }
    if not pa.types.is_list(table.schema.field(numbers.stddev).type):  # a missing number has its noise all the same
        alone = [rounded_cells(0.0, stddev)[1] for stddev in stddevs]
        cells[numbers.stddev] = pa.array(alone, pa.string())
    if numbers.ends is not None:
        cells |= _range_cells(table, numbers.ends, whole=numbers.whole, form=numbers.form)
    return cells


def _range_cells(
    table: pa.Table, names: Sequence[str], *, whole: bool, form: NumberFormat | None
) -> dict[str, pa.Array]:
    """Return the cells of a number and both ends of its range, rounded."""
    three = [
        range_cells(*(math.nan if number is None else number for number in row), whole=whole, form=form)
        for row in zip(*(table.column(name).to_pylist() for name in names), strict=True)
    ]
    return {name: pa.array([row[place] for row in three], pa.string()) for place, name in enumerate(names)}


def _part(row: Any, place: int) -> str:
    """Return one of the texts of a number, or of each number of a list as JSON."""
    if not isinstance(row, list):
        return str(row[place])
    return "[" + ",".join(texts[place] or "null" for texts in row) + "]"


def _column(texts: Iterator[str | None]) -> pa.Array:
    """Return texts as cells; those of lists in quotation marks, as they hold commas."""
    column = pa.array(texts, pa.string())
    is_list = any(text is not None and text.startswith("[") for text in column.to_pylist())
    return (in_quotation_marks(column) if is_list else column).fill_null("")
