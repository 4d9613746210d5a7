"""The columns of formulas over released numbers, such as `revenue / orders`: post-processing of a published table.

In: a published table, the entry of its stage in the manifest, formulas. Out: for each formula the columns `<name>`,
`<name>_noise_low` and `<name>_noise_high` (95% of what noise may have changed), and where a stage has `kept` also
`<name>_estimate`, `<name>_low` and `<name>_high`; what the manifest says of them. Holds: the columns are a function of published
numbers and public facts, so they cost nothing; a row's columns depend on that row alone, and on totals of the table. Not covered:
ranges of metrics themselves (`release.ranges`).
"""

import dataclasses
import math
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.metrics import registry
from dp_pipelines.query.range_columns import ENDS
from dp_pipelines.release import finest_rows, ranges, shown_rows, staging
from dp_pipelines.report.derived import formula, part_noise
from dp_pipelines.report.derived.formula import Formula
from dp_pipelines.report.derived.intervals import DRAWS, interval_of, method_of
from dp_pipelines.report.derived.known_range import KnownRange, known_range
from dp_pipelines.report.pages import mapping, text

ENTRY = "derived"
"""Where the entry of a stage in a manifest, and what it says to readers, names such columns."""

ADDED = "added_later"
"""What marks formulas that a release does not have, in what is shown of it."""

NEAR_NOISE = ", less often where the divisor is near its own noise"
"""The exception from how often an interval of a quotient holds the truth (docs/ratios.md)."""

ALIKE = 1e-6
"""Deviations of a metric that differ by at most this part of the largest are the same."""

NOISE_ENDS = ("noise_low", "noise_high")
"""What follows the name of a formula in the names of the columns with the interval of its noise."""

CHOSEN_ROWS = "rows were chosen by their numbers, so that their total has no meaning of its own"
OF_PEOPLE = "somebody may be in several groups, and would count in each of them in their total"
OF_LEVELS = "groups of a rollup share their noise with their total"
DIFFERING = "the noise of {name} differs by group"
"""Why there is no number of a formula that names a total."""

MISSING = "{name} is no released count or sum of this table"
NO_QUOTIENT = "what the limits cut off is known of quotients of two metrics alone"
UNKNOWN_CUT = "what the limits cut off of {name} is not known well enough"
NOT_ROLLED = "what the limits cut off differs by level"
"""Why there is no range that covers what the limits cut off."""


def column_names(name: str, *, ranged: bool) -> tuple[str, ...]:
    """Return the columns of a formula.

    Args:
        name: of the formula.
        ranged: whether its stage says what its limits cut off.

    >>> column_names("basket", ranged=False)
    ('basket', 'basket_noise_low', 'basket_noise_high')
    """
    return tuple(f"{name}_{end}" if end else name for end in ("", *NOISE_ENDS, *(ENDS if ranged else ())))


def fields(names: Collection[str], *, ranged: bool) -> list[pa.Field]:
    """Return the fields of formulas, in the order in which they follow the other columns of a table."""
    return [pa.field(column, pa.float64()) for name in names for column in column_names(name, ranged=ranged)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Derived:
    """A formula over the numbers of one stage.

    Args:
        name: of its column.
        formula: over the stage's metrics.
        noise: of these; a text says why it is not known, so that there is no number.
        cut: parts of a numerator and a denominator that are left at least, and the factor of an estimate; None: no range.
        how: the entry of the manifest.
        totals: of the metrics whose totals it names.
        known: the range in which it must lie.
    """

    name: str
    formula: Formula
    noise: part_noise.PartNoise | str
    cut: "CutOff | None"
    how: Mapping[str, Any]
    totals: "Mapping[str, SumOfRows]" = dataclasses.field(default_factory=dict)
    known: KnownRange = dataclasses.field(default_factory=KnownRange)

    def columns(self, table: pa.Table) -> list[Floats]:
        """Return its numbers: the value, both ends of the noise, the estimate and both ends of the range; NaN for none.

        Args:
            table: the published table.
        """
        nothing = np.full(table.num_rows, np.nan)
        if isinstance(self.noise, str) or not table.num_rows:
            return [nothing] * 6
        values, stddevs = {}, {}
        for name in self.formula.names:
            plain = formula.plain(name)
            if name != plain:
                total = self.totals[plain]
                both = [np.full(table.num_rows, number) for number in (total.value, total.stddev)]
            else:
                both = [_floats(table.column(column)) for column in (name, f"{name}_stddev")]
            values[name], stddevs[name] = both
        found, (low, high) = interval_of(self.formula, values, stddevs, self.noise)
        if self.known.below is not None:  # a divisor of the wrong sign is noise
            signed = self.known.below.compute(values) > 0
            found, low, high = (np.where(signed, numbers, np.nan) for numbers in (found, low, high))
        found, low, high = self.known.cut(found, low, high)
        return [found, low, high, *([nothing] * 3 if self.cut is None else self.cut.range_of(found, low, high))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumOfRows:
    """The total of a metric over the rows of a table.

    Args:
        value: the sum of its numbers.
        stddev: of the sum of their noise.
        rows: how many there are.
        alike: whether all of them have the same deviation.
    """

    value: float
    stddev: float
    rows: int
    alike: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class CutOff:
    """What limits may have cut off a quotient of two numbers that they can only make smaller.

    Args:
        left_above, left_below: the parts of numerator and denominator that are left of a group at least.
        factor: of the estimate: the share that is counted of the denominator over that of the numerator.
        negative: whether the formula is a quotient of them times a number below zero.
    """

    left_above: float
    left_below: float
    factor: float
    negative: bool = False

    def range_of(self, values: Floats, low: Floats, high: Floats) -> list[Floats]:
        """Return estimate, low end and high end, as for means (`release.ranges.ranges_of_means`).

        Args:
            values, low, high: the quotient and the interval of its noise.

        >>> cut = CutOff(left_above=0.8, left_below=0.5, factor=1.1)
        >>> [part.round(2).tolist() for part in cut.range_of(np.array([10.0]), np.array([8.0]), np.array([12.0]))]
        [[11.0], [4.0], [15.0]]
        >>> cut = dataclasses.replace(cut, negative=True)
        >>> [part.round(2).tolist() for part in cut.range_of(np.array([-10.0]), np.array([-12.0]), np.array([-8.0]))]
        [[-11.0], [-15.0], [-4.0]]
        """
        if self.negative:
            estimate, least, most = dataclasses.replace(self, negative=False).range_of(-values, -high, -low)
            return [-estimate, -most, -least]
        with np.errstate(all="ignore"):
            estimate = values * self.factor
            least = np.minimum(np.where(low > 0, low * self.left_below, low), low * self.factor)
            most = np.maximum(np.where(high > 0, high / self.left_above, high), high * self.factor)
        known = np.isfinite(estimate) & np.isfinite(least) & np.isfinite(most)
        return [np.where(known, numbers, np.nan) for numbers in (estimate, least, most)]


def of_stage(
    stage: Mapping[str, Any],
    formulas: Mapping[str, str],
    columns: Collection[str],
    totals: Mapping[str, SumOfRows] = FrozenMapping({}),
) -> list[Derived]:
    """Return what formulas become over the table of a stage.

    Args:
        stage: its entry in the manifest.
        formulas: by name.
        columns: of the table.
        totals: of the metrics whose totals they name, as far as they are known.

    Raises:
        RequestError: a text is no formula; without a field.
    """
    entries = mapping(stage.get("metrics"))
    found = []
    for name, written in formulas.items():
        read = formula.read(written)
        noise: part_noise.PartNoise | str = next(
            (MISSING.format(name=part) for part in read.metrics if not {part, f"{part}_stddev"} <= {*columns}), ""
        ) or part_noise.noise_of(read.metrics, entries)
        if read.totals and not isinstance(noise, str):
            noise = _no_total(read, stage, totals) or _with_totals(noise, read, totals)
        how: dict[str, Any] = {"formula": read.text, "why": noise if isinstance(noise, str) else None}
        if not isinstance(noise, str):
            how["interval"] = method_of(read, noise)
        cut: CutOff | str | None = None
        if ranges.ENTRY in stage:
            cut = _cut_off(read, stage)
            how[ranges.ENTRY] = {"why": cut if isinstance(cut, str) else None}
        known = None if isinstance(cut, str) else cut
        of_truth = known_range(read, entries)
        found.append(Derived(name=name, formula=read, noise=noise, cut=known, how=how, totals=totals, known=of_truth))
    return found


def _no_total(read: Formula, stage: Mapping[str, Any], totals: Mapping[str, SumOfRows]) -> str:
    """Return why a formula with totals has no number; empty where it has one."""
    if shown_rows.are_chosen(stage):
        return CHOSEN_ROWS
    if finest_rows.is_rollup(stage):
        return OF_LEVELS
    entries = mapping(stage.get("metrics"))
    kinds = {name: registry.of_kind(mapping(entries.get(name)).get("kind")) for name in read.totals}
    if any(kind is None or kind.rolls_up != "sum" for kind in kinds.values()):
        return OF_PEOPLE
    missing = (MISSING.format(name=name) for name in read.totals if name not in totals)
    differing = (DIFFERING.format(name=name) for name in read.metrics if name in totals and not totals[name].alike)
    return next(missing, "") or next(differing, "")


def _with_totals(noise: part_noise.PartNoise, read: Formula, totals: Mapping[str, SumOfRows]) -> part_noise.PartNoise:
    """Return the noise of the names of a formula, in their order in it."""
    groups = max(totals[read.totals[0]].rows, 1)
    both = part_noise.with_totals(noise, read.metrics, read.totals, groups)
    order = [*read.metrics, *(formula.total_of(name) for name in read.totals)]
    return dataclasses.replace(both, shares=both.shares[[order.index(name) for name in read.names]])


def _cut_off(read: Formula, stage: Mapping[str, Any]) -> CutOff | str:
    """Return what the limits may have cut off a formula, or why that is not known."""
    parts = read.quotient()
    if parts is None or any(part.constant or len(part.factors) != 1 for part in parts):
        return NO_QUOTIENT
    above, below = (next(iter(part.factors)) for part in parts)  # names of rows or of totals
    negative = parts[0].factors[above] * parts[1].factors[below] < 0
    if finest_rows.is_rollup(stage):
        return NOT_ROLLED
    lefts, counted = [], []
    for named in (above, below):
        name = formula.plain(named)
        entry = mapping(mapping(stage.get("metrics")).get(name))
        bounds, kept = part_noise.sum_bounds(entry), mapping(entry.get(ranges.ENTRY))
        numbers = [kept.get(key) for key in ("share", "stddev", "divided_by", "times")]
        smaller = bounds is None or bounds[0] == 0  # the limits can only make it smaller
        if kept.get("why") is not None or not smaller or not all(isinstance(each, int | float) for each in numbers):
            return UNKNOWN_CUT.format(name=name)
        share, stddev, divided, times = (float(each) for each in numbers if each is not None)
        left = ranges.KeptShare(share=share, stddev=stddev).left(times)
        if left < ranges.LEAST_LEFT or not divided > 0:
            return UNKNOWN_CUT.format(name=name)
        lefts.append(left)
        counted.append(divided)
    return CutOff(left_above=lefts[0], left_below=lefts[1], factor=counted[1] / counted[0], negative=negative)


def added(table: pa.Table, derived: Sequence[Derived], *, ranged: bool) -> pa.Table:
    """Return a published table with the columns of formulas.

    Args:
        table: without them.
        derived: what `of_stage` gave.
        ranged: whether the stage says what its limits cut off.
    """
    for one in derived:
        for column, numbers in zip(column_names(one.name, ranged=ranged), one.columns(table), strict=False):
            table = table.append_column(column, pa.array(numbers, from_pandas=True))
    return table


def without(table: pa.Table, stage: Mapping[str, Any]) -> pa.Table:
    """Return a published table without the columns of formulas that it was released with.

    Args:
        table: as it is published.
        stage: its entry in the manifest.
    """
    ranged = ranges.ENTRY in stage
    dropped = {column for name in mapping(stage.get(ENTRY)) for column in column_names(text(name), ranged=ranged)}
    return table.drop_columns([name for name in table.column_names if name in dropped])


def write(
    source: pathlib.Path, target: pathlib.Path, stage: Mapping[str, Any], formulas: Mapping[str, str]
) -> dict[str, Any]:
    """Write a published table with the columns of formulas, and return what its manifest says of them.

    Args:
        source: the table; columns of formulas that its manifest names are left out. It need not fit into memory.
        target: the new file; its folder exists.
        stage: the entry of its stage in the manifest.
        formulas: by name.

    Raises:
        RequestError: a text is no formula, or the table has another column of its name; without a field.
        DiskError: the disk is full, read-only or failing.
    """
    ranged = ranges.ENTRY in stage
    with pa.parquet.ParquetFile(source) as file:
        plain = without(file.schema_arrow.empty_table(), stage)
        derived = of_stage(stage, formulas, plain.column_names, _totals(file, formulas, plain.column_names))
        refuse_taken(formulas, plain.column_names, ranged=ranged)
        staging.write_in_order(
            (added(without(group, stage), derived, ranged=ranged) for group in _groups(file)), target
        )
    return {one.name: dict(one.how) for one in derived}


def _totals(
    file: pa.parquet.ParquetFile, formulas: Mapping[str, str], columns: Collection[str]
) -> dict[str, SumOfRows]:
    """Return the totals of the metrics of formulas that name a total, as far as the table has them."""
    read = [one for text_of_it in formulas.values() if (one := formula.read(text_of_it)).totals]
    names = [name for name in dict.fromkeys(name for one in read for name in one.metrics) if name in columns]
    found = {}
    for name in names if file.metadata.num_rows else ():
        if f"{name}_stddev" not in columns:
            continue
        value, variance, least, most = 0.0, 0.0, math.inf, 0.0
        for batch in file.iter_batches(columns=[name, f"{name}_stddev"]):  # the table need not fit into memory
            values, stddevs = (_floats(pa.chunked_array([column])) for column in batch.columns)
            value, variance = value + float(values.sum()), variance + float((stddevs**2).sum())
            least, most = min(least, float(stddevs.min())), max(most, float(stddevs.max()))
        alike = most - least <= ALIKE * most
        found[name] = SumOfRows(value=value, stddev=math.sqrt(variance), rows=file.metadata.num_rows, alike=alike)
    return found


def _groups(file: pa.parquet.ParquetFile) -> Iterator[pa.Table]:
    """Yield the rows of a file in parts, at least one."""
    if not file.num_row_groups:
        yield file.schema_arrow.empty_table()
    for number in range(file.num_row_groups):
        yield file.read_row_group(number)


def refuse_taken(names: Collection[str], columns: Collection[str], *, ranged: bool) -> None:
    """Refuse formulas whose columns would have the name of another column, in capitals or not.

    Args:
        names: of the formulas.
        columns: the other columns of the table.
        ranged: whether the stage says what its limits cut off.

    Raises:
        RequestError: one would; the field is its name.
    """
    taken = {column.casefold(): column for column in columns}
    for name in names:
        for column in column_names(name, ranged=ranged):
            if column.casefold() in taken:
                message = f"would publish column {column!r}, whose name another column has"
                raise RequestError(field=name, message=message, hint="rename it")
            taken[column.casefold()] = column


def is_only_shown(stage: Mapping[str, Any], name: str) -> bool:
    """Return True if a formula was added after the release, so that no published file has its columns.

    Args:
        stage: the entry of its stage in the manifest.
        name: of the formula.
    """
    return mapping(mapping(stage.get(ENTRY)).get(name)).get(ADDED) is True


def names_in(stage: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Return the names of formulas whose columns a table has, in the order of the table.

    Args:
        stage: the entry of its stage in the manifest.
        columns: of the table.
    """
    named = {text(name) for name in mapping(stage.get(ENTRY))}
    return [name for name in columns if name in named and {*column_names(name, ranged=False)} <= {*columns}]


def lines(stage: Mapping[str, Any]) -> list[str]:
    """Return what is said of the formulas of a stage below its numbers.

    Args:
        stage: its entry in the manifest.

    >>> lines({"derived": {"net": {"formula": "revenue - cost", "interval": "normal", "why": None}}})
    ['net: revenue - cost, computed from the released numbers; the range in brackets covers 95% of the noise']
    """
    said = []
    for name, entry in mapping(stage.get(ENTRY)).items():
        why, unranged = (mapping(one).get("why") for one in (entry, mapping(entry).get(ranges.ENTRY)))
        written = text(mapping(entry).get("formula"))
        words = f"{text(name)}: {written}, computed from the released numbers"
        if f"{formula.TOTAL}(" in written:
            words += f"; {formula.TOTAL} is the sum over all groups of this table"
        if isinstance(why, str):
            said.append(f"{words}; no number: {why}")
            continue
        draws = f", by {DRAWS:,} public draws of it" if "draws" in text(mapping(entry).get("interval")) else ""
        words += f"; the range in brackets covers 95% of the noise{draws}"
        words += NEAR_NOISE if "/" in written else ""
        said.append(words + (f"; no estimate and no range: {unranged}" if isinstance(unranged, str) else ""))
    return said


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
