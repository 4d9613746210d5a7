"""A published table as arrays to show: its keys as codes, its numbers with their standard deviations, the choices for plots.

In: the Parquet file of a stage and, where the manifest has them, the names of its partition columns. Out: `Published`; for
plots the largest groups and partitions. Holds: it reads the released table and nothing else; the same table gives the same
choices; null, NaN and infinite numbers are no numbers, and never an error.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.error_bars import ERROR_BAR, deviations_in_bar
from dp_pipelines.query.best import RANK
from dp_pipelines.query.order_by import SortColumn
from dp_pipelines.query.partitions import OTHER
from dp_pipelines.query.range_columns import ENDS
from dp_pipelines.release.shown_rows import in_order
from dp_pipelines.report.key_text import key_text, label
from dp_pipelines.report.key_times import begin_weeks, days_of, numbered_times, over_the_turn, written_dates
from dp_pipelines.report.pages import mapping, text

OTHER_KEYS = "all others"
"""What the partition of all keys that are not listed is called."""

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

Grain = Literal["year", "month", "day", "minute"]
GRAINS: Mapping[Grain, int] = {"year": 4, "month": 7, "day": 10, "minute": 16}
"""How many characters of a moment as text tell it, where all moments begin a year, a month, a day or a minute."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """A partition column: the distinct values, a code for each row, and the values as points in time where they are some.

    Args:
        name: of the column.
        values: the distinct values, null among them.
        codes: for each row, its place in `values`.
        days: for each value days since 1970, NaN for null; None where the column is no time.
        grain: of dates and timestamps, what all of them begin: a year, a month, a day, a minute.
        counted: whether `days` are numbers of weeks, hours and the like, as they stand in the column.
        turns: whether they run over the turn of a year: then `days` of those after it go on counting.
        other: the code of all keys that are not listed; its value is null. None where no row is of them.
    """

    name: str
    values: pa.Array
    codes: Codes
    days: Floats | None
    grain: Grain | None = None
    counted: bool = False
    turns: bool = False
    other: int | None = None

    def is_other(self, row: int) -> bool:
        """Return True if a row is that of all keys that are not listed."""
        return self.other is not None and int(self.codes[row]) == self.other

    def text(self, code: int) -> str | None:
        """The value of a code, a time of day only where it says something; None for null."""
        if code == self.other:
            return OTHER_KEYS
        text = key_text(self.values[int(code)])
        return text if text is None or self.grain in (None, "minute") else text[: GRAINS["day"]]

    def short(self, code: int) -> str:
        """The value of a code as a label on a plot: of times no more than tells one from the other."""
        if code == self.other:
            return OTHER_KEYS
        text = key_text(self.values[int(code)])
        return label(text if text is None or self.grain is None else text[: GRAINS[self.grain]])

    @property
    def whole(self) -> Literal["", "week", "month"]:
        """What each time begins, where that is not all that its text tells; empty elsewhere."""
        if self.days is None or self.counted:
            return ""
        if self.grain == "month":
            return "month"
        known = np.flatnonzero(np.isfinite(self.days))
        return "week" if len(known) and begin_weeks(self.name, self.days, self.short(int(known[0]))) else ""

    @property
    def order(self) -> Codes:
        """The codes in the order of their values, null last; as they are first met where values have no order."""
        try:
            return np.asarray(pc.array_sort_indices(self.values).to_numpy(), dtype=np.int64)
        except (pa.ArrowException, TypeError):
            return np.arange(len(self.values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known of the true numbers behind counted ones (docs/ranges.md): for each row NaN where there is nothing.

    Args:
        estimates: of the true numbers.
        lows, highs: the ends of their ranges.
    """

    estimates: Floats
    lows: Floats
    highs: Floats

    def taken(self, rows: Codes) -> "Truth":
        """Some rows of it, in this order."""
        return Truth(estimates=self.estimates[rows], lows=self.lows[rows], highs=self.highs[rows])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbers:
    """A metric: for each row a value and its standard deviation, NaN where there is none.

    Args:
        name: of the metric.
        values, stddevs: the numbers.
        truth: estimates and ranges of the true numbers; None where no row has any.
        deviations: half the length of an error bar of their law, in standard deviations.
    """

    name: str
    values: Floats
    stddevs: Floats
    truth: Truth | None = None
    deviations: float = ERROR_BAR

    @property
    def bars(self) -> Floats:
        """Half the length of each error bar; 0 for a number that was chosen among candidates, and has none."""
        chosen = np.isnan(self.stddevs) & np.isfinite(self.values)
        return np.where(chosen, 0.0, self.deviations * self.stddevs)

    @property
    def normal_stddevs(self) -> Floats:
        """Standard deviations of normal noise with as long bars, of which `numbers` makes texts."""
        return self.stddevs * (self.deviations / ERROR_BAR)

    def taken(self, rows: Codes) -> "Numbers":
        """Some rows of it, in this order."""
        truth = None if self.truth is None else self.truth.taken(rows)
        return dataclasses.replace(self, values=self.values[rows], stddevs=self.stddevs[rows], truth=truth)

    @property
    def lower(self) -> Floats:
        """The lower end of each error bar, minus infinity where there is no number."""
        ends = self.values - self.bars
        return np.where(np.isfinite(ends), ends, -np.inf)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lists:
    """A metric with a list of numbers in each row: rows by places, NaN where there is no number. Deviations as in `Numbers`."""

    name: str
    values: Floats
    stddevs: Floats
    deviations: float = ERROR_BAR

    @property
    def bars(self) -> Floats:
        """Half the length of each error bar."""
        return self.deviations * self.stddevs

    @property
    def normal_stddevs(self) -> Floats:
        """Standard deviations of normal noise with as long bars, of which `numbers` makes texts."""
        return self.stddevs * (self.deviations / ERROR_BAR)

    def taken(self, rows: Codes) -> "Lists":
        """Some rows of it, in this order."""
        return dataclasses.replace(self, values=self.values[rows], stddevs=self.stddevs[rows])

    def at(self, place: int) -> Numbers:
        """One place of the lists as a metric."""
        values, stddevs = self.values[:, place], self.stddevs[:, place]
        return Numbers(name=self.name, values=values, stddevs=stddevs, deviations=self.deviations)

    @property
    def total(self) -> Numbers:
        """The sum of each list; the noise of its numbers is independent."""
        sums = np.nansum(self.values, axis=1)
        spread = np.sqrt(np.nansum(self.stddevs**2, axis=1))
        return Numbers(name=f"the total of {self.name}", values=sums, stddevs=spread, deviations=self.deviations)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A published table: its keys, its metrics with a number and those with a list of numbers in each row."""

    table: pa.Table
    keys: tuple[Key, ...]
    metrics: tuple[Numbers, ...]
    lists: tuple[Lists, ...]

    @property
    def in_order(self) -> list[Numbers | Lists]:
        """All metrics in the order of the file."""
        every: list[Numbers | Lists] = [*self.metrics, *self.lists]
        return sorted(every, key=lambda metric: self.table.column_names.index(metric.name))

    @property
    def time(self) -> Key | None:
        """The first key that is a time with at least two different points."""
        for key in self.keys:
            if key.days is not None and len(np.unique(key.days[np.isfinite(key.days)])) > 1:
                return key
        return None


def laws_of(stage: Mapping[str, Any]) -> dict[str, str]:
    """Return the law of the noise of each metric.

    Args:
        stage: its entry in the manifest.

    >>> laws_of({"metrics": {"n": {"noise": "laplace"}, "old": {}}})
    {'n': 'laplace', 'old': ''}
    """
    return {text(name): text(mapping(entry).get("noise")) for name, entry in mapping(stage.get("metrics")).items()}


def read_published(
    path: pathlib.Path, partition_by: Sequence[str] | None = None, laws: Mapping[str, str] = FrozenMapping({})
) -> Published:
    """Read the published table of a stage.

    Args:
        path: of the Parquet file.
        partition_by: its partition columns; None: every column that is no metric.
        laws: of the noise of its metrics (`laws_of`).

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read.
    """
    with pyarrow.parquet.ParquetFile(path) as file:  # a dataset would read keys out of the names of folders
        return of_table(file.read().combine_chunks(), partition_by, laws)


def of_table(
    table: pa.Table, partition_by: Sequence[str] | None = None, laws: Mapping[str, str] = FrozenMapping({})
) -> Published:
    """A table as it is published, or several of one stage one below the other. Arguments as for `read_published`."""
    names = list(table.column_names)
    if partition_by is not None and all(name in names for name in partition_by):
        keys = list(partition_by)
        metrics = [n for n in names if n not in keys and f"{n}_stddev" in names]
    else:
        metrics = [n for n in names if f"{n}_stddev" in names]
        beside = {f"{metric}_{part}" for metric in metrics for part in ("stddev", *ENDS)}
        keys = [n for n in names if n not in metrics and n not in beside]
    keys, others = _without_flag(table, keys)
    return Published(
        table=table,
        keys=tuple(_key(name, table.column(name), others) for name in keys),
        metrics=tuple(
            Numbers(
                name=n,
                values=_floats(table.column(n)),
                stddevs=_floats(table.column(f"{n}_stddev")),
                truth=_truth(table, n, keys),
                deviations=deviations_in_bar(laws.get(n, "")),
            )
            for n in metrics
            if _is_number(table.schema.field(n).type) and _is_number(table.schema.field(f"{n}_stddev").type)
        ),
        lists=tuple(
            dataclasses.replace(found, deviations=deviations_in_bar(laws.get(n, "")))
            for n in metrics
            if (found := _lists(n, table.column(n), table.column(f"{n}_stddev"))) is not None
        ),
    )


def range_ends(table: pa.Table, name: str, keys: Sequence[str] = ()) -> Floats | None:
    """Return both ends of the ranges of a metric, NaN for none; None where none has a high end.

    Args:
        table: the published table.
        name: of the metric.
        keys: columns that are none of a metric, whatever their names are.

    >>> range_ends(pa.table({"n": [2.0], "n_stddev": [1.0], "n_low": [0.5], "n_high": [4.5]}), "n").tolist()
    [[0.5], [4.5]]
    """
    columns = [f"{name}_low", f"{name}_high"]
    if not {*columns} <= {*table.column_names} - {*keys} or any(
        f"{one}_stddev" in table.column_names for one in columns
    ):
        return None
    if not all(_is_number(table.schema.field(column).type) for column in columns):
        return None
    ends = np.array([_floats(table.column(column)) for column in columns])
    return ends if np.isfinite(ends[1]).any() else None


def _truth(table: pa.Table, name: str, keys: Sequence[str]) -> Truth | None:
    """Estimates and ranges of a metric; None where it has none with two ends."""
    ends, column = range_ends(table, name, keys), f"{name}_estimate"
    if ends is None or column not in table.column_names or not _is_number(table.schema.field(column).type):
        return None
    return Truth(estimates=_floats(table.column(column)), lows=ends[0], highs=ends[1])


def ranking(published: Published, kinds: Mapping[str, object]) -> Numbers:
    """The numbers by which groups are chosen for plots: those of the first metric that says how large a group is.

    Args:
        published: a table.
        kinds: the kind of each metric, where it is known; of others those rank whose names do not begin with "mean".

    Returns:
        numbers without a name, all zeros, where nothing says which groups are large: then the first are chosen.
    """
    for metric in published.metrics:
        kind = registry.of_kind(kinds.get(metric.name))
        if kind.ranks if kind else not metric.name.lower().startswith("mean"):
            return metric
    for found in published.lists:
        kind = registry.of_kind(kinds.get(found.name))
        if kind and kind.ranks:
            return found.total
    if published.metrics:
        return published.metrics[0]
    nothing = np.zeros(published.table.num_rows)
    return Numbers(name="", values=nothing, stddevs=nothing)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrintedOrder:
    """The rows that are printed, in order.

    Args:
        rows: their places in the table.
        by: the column by which they come first; empty where that are the keys.
        largest: whether the largest come first.
        latest: whether these are the latest of a time series, which has more.
    """

    rows: Codes
    by: str
    largest: bool = True
    latest: bool = False


def printed_order(
    published: Published,
    kinds: Mapping[str, object],
    most: int,
    *,
    best: bool = False,
    order_by: Sequence[SortColumn] = (),
) -> PrintedOrder:
    """Choose the first rows to print: of a time series group by group in the order of time, else the largest.

    The largest group comes first, by the first metric that says how large a group is; of a single series these are the latest
    rows. Where no metric says it, rows are in the order of their keys.

    Args:
        published: a table.
        kinds: the kind of each metric, where it is known.
        most: how many rows.
        best: whether they were chosen as the best, and are in the order in which they were chosen.
        order_by: the order that the job asks for.
    """
    count = published.table.num_rows
    if order_by and all(_can_order(published.table, one.column) for one in order_by):
        keys = [key.name for key in published.keys if _can_order(published.table, key.name)]
        rows = in_order(published.table, order_by, keys)
        return PrintedOrder(rows=rows[:most], by=", ".join(one.text for one in order_by), largest=False)
    if best:
        for key in published.keys:
            if key.name == RANK:
                order = np.argsort(_floats(published.table.column(RANK)), kind="stable")
                return PrintedOrder(rows=order[:most], by=RANK, largest=False)
    every: list[Numbers | Lists] = [*published.metrics, *published.lists]
    if (time := published.time) is not None and time.days is not None:
        others = [key for key in published.keys if key is not time]
        rows, latest = _series_rows(published, others, time.days[time.codes], kinds), not others and count > most
        of_groups = [", ".join(key.name for key in others) + " (the largest first)"] if others else []
        by = ", ".join([*of_groups, time.name])
        return PrintedOrder(rows=rows[-most:] if latest else rows[:most], by=by, largest=False, latest=latest)
    for metric in every:
        kind = registry.of_kind(kinds.get(metric.name))
        if kind is not None and kind.ranks:
            rows = largest_rows(metric.total if isinstance(metric, Lists) else metric, most)
            if len(rows) < min(most, count):  # those without a number come last
                rows = np.concatenate([rows, np.setdiff1d(np.arange(count), rows)[: most - len(rows)]])
            return PrintedOrder(rows=rows, by=metric.name)
    return PrintedOrder(rows=np.arange(min(most, count)), by="")


def _series_rows(published: Published, others: Sequence[Key], days: Floats, kinds: Mapping[str, object]) -> Codes:
    """All rows, group by group in the order of time, the largest group first; null last.

    Args:
        published: the table.
        others: the keys that tell groups apart.
        days: the time of each row, NaN for null.
        kinds: the kind of each metric, where it is known.
    """
    group, _ = groups(others, published.table.num_rows)
    place = np.empty(int(group.max()) + 1, dtype=np.int64)
    ranked = largest_groups(group, ranking(published, kinds), len(place))
    place[ranked] = np.arange(len(ranked))
    return np.lexsort((np.where(np.isfinite(days), days, np.inf), place[group]))


def _can_order(table: pa.Table, column: str) -> bool:
    return column in table.column_names and not pa.types.is_nested(table.schema.field(column).type)


def largest_rows(metric: Numbers, most: int) -> Codes:
    """The rows with the largest lower ends of error bars, largest first; of equal ones the first.

    >>> n = Numbers(name="n", values=np.array([5.0, 9.0, np.nan, 9.0]), stddevs=np.array([1.0, 9.0, 1.0, 1.0]))
    >>> largest_rows(n, 2).tolist()
    [3, 0]
    """
    lower = metric.lower
    at = np.flatnonzero(lower > -np.inf)
    if len(at) > most:
        bound = np.partition(lower[at], len(at) - most)[len(at) - most]
        at = at[lower[at] >= bound]
    return at[np.argsort(-lower[at], kind="stable")][:most]


def groups(keys: Sequence[Key], rows: int) -> tuple[Codes, Codes]:
    """Rows grouped by several keys: the group of each row, and for each group its first row.

    >>> groups([], 3)
    (array([0, 0, 0]), array([0]))
    """
    group = np.zeros(rows, dtype=np.int64)
    for key in keys:
        group = np.unique(group * len(key.values) + key.codes, return_inverse=True)[1].reshape(-1)
    first = np.unique(group, return_index=True)[1].astype(np.int64)
    return group, first


def largest_groups(group: Codes, metric: Numbers, most: int) -> Codes:
    """The groups whose lower ends of error bars add up to most, largest first; ends below zero count as zero.

    >>> n = Numbers(name="n", values=np.array([5.0, 9.0, 7.0]), stddevs=np.zeros(3))
    >>> largest_groups(np.array([0, 1, 0]), n, 5).tolist()
    [0, 1]
    """
    weight = np.clip(metric.lower, 0, 1e100)
    totals = np.bincount(group, weights=weight)
    return np.argsort(-totals, kind="stable")[:most]


def _without_flag(table: pa.Table, keys: list[str]) -> tuple[list[str], NDArray[np.bool_] | None]:
    """The keys without the column that is true for all keys that are not listed, and its values; None if there is none."""
    for count in (len(keys) - 1, len(keys)):
        flag = "_".join(keys[:count]) + OTHER
        if not count or keys[count:] not in ([], [flag]) or flag not in table.column_names:
            continue
        if pa.types.is_boolean(table.schema.field(flag).type):
            rows = np.asarray(table.column(flag).to_numpy(), np.bool_)
            if all(table.column(name).is_null().to_numpy()[rows].all() for name in keys[:count]):
                return keys[:count], rows
    return keys, None


def _key(name: str, column: pa.ChunkedArray, others: NDArray[np.bool_] | None = None) -> Key:
    key = _key_of_values(name, column)
    if others is None or not others.any():
        return key
    return dataclasses.replace(
        key,
        values=pa.concat_arrays([key.values, pa.nulls(1, key.values.type)]),
        codes=np.where(others, len(key.values), key.codes),
        days=None if key.days is None else np.append(key.days, np.nan),
        other=len(key.values),
    )


def _key_of_values(name: str, column: pa.ChunkedArray) -> Key:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # Arrow before 21 gives a chunked array with one chunk or none
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_null(array.type):
        return Key(name=name, values=pa.nulls(1), codes=np.zeros(len(array), dtype=np.int64), days=None)
    if pa.types.is_nested(array.type):  # no key that we publish; shown all the same
        return Key(name=name, values=array, codes=np.arange(len(array)), days=None)
    if pa.types.is_decimal(array.type) and array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode(null_encoding="encode")
    values, codes = encoded.dictionary, encoded.indices
    if codes.null_count:
        codes = pc.fill_null(codes.cast(pa.int64()), len(values))
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    numbers = numbered_times(name, values)
    written = None if numbers is None else written_dates(name, values)
    turned = None if numbers is None or written is not None else over_the_turn(name, numbers)
    days = next((found for found in (written, turned, numbers) if found is not None), None)
    days = days_of(values) if days is None else days
    return Key(
        name=name,
        values=values,
        codes=codes.to_numpy(zero_copy_only=False).astype(np.int64),
        days=days,
        grain=None if days is None else _grain(values),
        counted=numbers is not None and written is None,
        turns=turned is not None,
    )


def _grain(values: pa.Array) -> Grain | None:
    """What all moments begin, as their own zone tells them; None for texts, seconds and zones that are not known here."""
    kind = values.type
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return None
    try:
        local = pc.local_timestamp(values) if pa.types.is_timestamp(kind) and kind.tz is not None else values
    except pa.ArrowException:
        return None
    moments = local.drop_null().cast(pa.timestamp("ns" if pa.types.is_timestamp(kind) and kind.unit == "ns" else "us"))
    told = moments.to_numpy(zero_copy_only=False)
    units: tuple[tuple[Grain, str], ...] = (("year", "Y"), ("month", "M"), ("day", "D"), ("minute", "m"))
    return next((grain for grain, unit in units if (told == told.astype(f"datetime64[{unit}]")).all()), None)


def _lists(name: str, values: pa.ChunkedArray, stddevs: pa.ChunkedArray) -> Lists | None:
    """A column of lists, or None where it is none."""
    if not _is_list(values.type) or not _is_number(values.type.value_type):
        return None
    found = _matrix(values)
    if _is_number(stddevs.type):
        spread = np.broadcast_to(_floats(stddevs)[:, None], found.shape)
    elif _is_list(stddevs.type) and _is_number(stddevs.type.value_type):
        spread = _matrix(stddevs)
    else:
        return None
    if spread.shape != found.shape:
        spread = np.full(found.shape, np.nan)
    return Lists(name=name, values=found, stddevs=spread) if found.shape[1] else None


def _matrix(column: pa.ChunkedArray) -> Floats:
    """Lists as rows of one length, the most frequent; a list of another length has no numbers here."""
    lengths = np.where(
        column.is_valid().to_numpy(), pc.fill_null(pc.list_value_length(column), 0).to_numpy(), 0
    ).astype(np.int64)
    flat = _floats(pc.list_flatten(column))
    known, counts = np.unique(lengths[lengths > 0], return_counts=True)
    width = int(known[np.argmax(counts)]) if len(known) else 0
    fits = lengths == width
    if fits.all():
        return flat.reshape(len(lengths), width)
    rows = np.full((len(lengths), width), np.nan)
    starts = (np.cumsum(lengths) - lengths)[fits]
    rows[fits] = flat[starts[:, None] + np.arange(width)]
    return rows


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    )


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
