"""Neighbouring data sets, the way of the kernels up to the noise, and the laws that both must obey.

In: nothing (hypothesis strategies) or tables of events. Out: pairs of tables that differ by all rows of one privacy unit,
merged statistics, lists of broken laws. Holds: the way is made of the kernels that the transforms call, in the same order,
cut and shuffled at will. Not covered: selection and noise, which come after. A law is a function that returns what breaks
it, so that a test can show that a planted fault is found. Tests only.
"""

import dataclasses
import datetime
import decimal
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from dp_pipelines.kernels import accumulate, bounding, contributions, shard
from dp_pipelines.kernels.columns import hashing, long_text
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.kernels.lattice import Lattice, SummandLattice, logarithms
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import (
    WEIGHT_BITS,
    ClippedUnitSum,
    NotNullCount,
    RowCount,
    Shape,
    Statistic,
    UnitCount,
    UnitWeights,
    ValueSum,
)
from dp_pipelines.query.partitions import OTHER, PrivatePartitions, PublicPartitions

Values = list[Any]
Sums = dict[tuple[Any, ...], tuple[int, ...]]

_DAY = datetime.date(2026, 1, 1)
_UTC = datetime.UTC

LONG = "longer than what travels as it is: " + "z" * 50

UNITS: list[tuple[pa.DataType, Values]] = [
    (pa.int64(), [2**53 + 1, 2**53, -(2**63), 2**63 - 1]),
    (pa.uint64(), [2**64 - 1, 2**63, 0, 2**53 + 1]),
    (pa.string(), ["", "a", "a\0", "longer than one word of hash"]),
    (pa.dictionary(pa.int8(), pa.large_string()), ["x", "y", "é", "é"]),
    # Minus zero and zero are one unit; NaN is none.
    (pa.float64(), [0.0, 5e-324, math.inf, -math.inf]),
    (pa.decimal128(20, 2), [decimal.Decimal(v) for v in ("0.00", "0.01", "-0.01", "999999999999999999.99")]),
    # Long texts, of which rows carry a digest; and one that looks like the digest of another.
    (pa.string(), [LONG, long_text.stand_in(LONG.encode()).decode(), LONG + "x", "x" * 5000]),
    (pa.dictionary(pa.int32(), pa.binary()), [b"\xff" * 65, b"\xff" * 64, b"\xff" * 66, b""]),
    (pa.timestamp("us", "Europe/Berlin"), [datetime.datetime(2026, 1, d, tzinfo=_UTC) for d in (1, 2, 3, 4)]),
]
"""Types of unit columns with four different units each; the first is the one unit more."""

PARTITIONS: list[tuple[pa.DataType, Values]] = [
    (pa.string(), [None, "", "north", "longer than one word of hash"]),
    (pa.int32(), [None, 0, -1, 2**31 - 1]),
    (pa.bool_(), [None, True, False]),
    (pa.date32(), [None, _DAY, _DAY + datetime.timedelta(1), _DAY - datetime.timedelta(1)]),
    (pa.dictionary(pa.int16(), pa.string()), ["n", "s", None]),
    (pa.string(), [None, LONG, long_text.stand_in(LONG.encode()).decode(), "y" * long_text.LONGEST_KEY]),
    (pa.dictionary(pa.int16(), pa.large_binary()), [b"\xff" * 65, b"\xff" * 64, None]),
]

NUMBERS: list[tuple[pa.DataType, Values]] = [
    (
        pa.float64(),
        [0.0, -0.0, 1.0, 0.1, -0.1, 1e308, -1e308, 5e-324, -5e-324, 2.0**53 + 1, math.inf, -math.inf, math.nan, None],
    ),
    (pa.float32(), [1.5, -0.0, 1e-45, 3e38, math.inf, math.nan, None]),
    (pa.int64(), [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), None]),
    (pa.uint64(), [0, 1, 2**64 - 1, None]),
    (pa.decimal128(25, 3), [decimal.Decimal("0.125"), decimal.Decimal("-1e21"), None]),
    (pa.dictionary(pa.int8(), pa.float64()), [1.0, 1e308, None]),
]

MODES = ("partitions and rows", "rows in all", "sums per partition")
"""What is bounded: see `Layout`."""

RANGES = [(0.0, 200.0), (-1.0, 1.0), (-7.5, 0.25), (0.001, 1e9), (-1e150, 1e150)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Two data sets: `smaller`, and `larger`, which holds all rows of one unit more.

    Args:
        smaller: events of other units, and of none.
        extra: events of one unit, none of whose rows is in `smaller`.
        places: where each row of `extra` stands among the rows of `smaller`, from 0 to their number.
        layout: the columns' parts and the bounds.
        statistics: what is computed.
    """

    smaller: pa.Table
    extra: pa.Table
    places: tuple[int, ...]
    layout: Layout
    statistics: tuple[Statistic, ...]

    @property
    def larger(self) -> pa.Table:
        """All rows, those of the one unit more in their places."""
        both = pa.concat_tables([self.smaller, self.extra])
        order = np.argsort([*np.arange(self.smaller.num_rows) + 0.5, *self.places], kind="stable")
        return both.take(pa.array(order))

    def shape(self, statistic: Statistic) -> Shape:
        """What is declared about a statistic."""
        return statistic.shape(
            max_partitions=self.layout.max_partitions,
            max_rows_per_partition=self.layout.max_rows_per_partition,
            max_rows=self.layout.max_rows,
        )


def statistics_of(layout: Layout) -> tuple[Statistic, ...]:
    """Every statistic that a layout allows."""
    made = [RowCount(), UnitCount(), UnitWeights()]
    made += [NotNullCount(column=column) for column in dict(layout.values)]
    made += [ValueSum(column=column, lattice=lattice) for column, lattice in layout.values]
    made += [ClippedUnitSum(column=column, lattice=lattice) for column, lattice in layout.summands]
    return tuple(made)


@st.composite
def layouts(
    draw: st.DrawFn,
    units: int,
    partitions: int,
    numbers: int,
    public: Any,
    modes: Sequence[str],
    *,
    other: bool = False,
) -> Layout:
    """Layouts over columns u0.., p0.., n0.. with small bounds, so that they bind."""
    values: list[tuple[str, Lattice]] = []
    summands: list[tuple[str, SummandLattice]] = []
    mode = draw(st.sampled_from(modes))
    for i in range(numbers):
        low, high = draw(st.sampled_from(RANGES))
        for make in (Lattice.for_values, Lattice.for_squares):
            values += [(f"n{i}", make(low, high, centred=centred)) for centred in (False, True)]
        if low > 0:
            values += [(f"n{i}", Lattice.for_values(low, high, centred=c, through=logarithms)) for c in (False, True)]
        if mode == "sums per partition":
            summands.append((f"n{i}", SummandLattice.for_sums(low, high)))
    most = draw(st.integers(1, 3))
    rows = draw(st.integers(1, 3))
    in_all = mode == "rows in all"
    names = [f"p{i}" for i in range(partitions)]
    return Layout(
        units=tuple(f"u{i}" for i in range(units)),
        partitions=(*names, *(["_".join(names) + OTHER] if other else [])),
        values=tuple(dict.fromkeys(values)),
        row_id="id" if draw(st.booleans()) else None,
        summands=tuple(summands),
        # As query.ContributionBounds gives them: a bound on rows in all is also one on partitions, and on rows in one.
        max_partitions=most,
        max_rows_per_partition=most if in_all else rows,
        max_rows=most if in_all else None,
        public=public,
        other=other,
    )


def partitions_of(layout: Layout) -> PublicPartitions | PrivatePartitions:
    """Return the partitions of a query that has this layout."""
    if layout.public is None:
        return PrivatePartitions()
    assert isinstance(layout.public, ListedKeys)
    width = len(layout.read_partitions)
    keys = [key[:width] for key in layout.public if not (layout.other and key[width])]
    return PublicPartitions(keys=keys, other=layout.other)


def array_of(kind: pa.DataType, values: Values) -> pa.Array:
    """Values as an array of a type, dictionaries among them."""
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    encoded = pa.array(values, kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)


@st.composite
def neighbours(
    draw: st.DrawFn, *, modes: Sequence[str] = MODES, most_rows: int = 14, other: bool = False
) -> Neighbours:
    """Neighbouring data sets of few units and partitions with many repeated rows, and all statistics over them.

    Args:
        modes: what may be bounded.
        most_rows: of each of both.
        other: whether all keys that are not listed may be one partition.
    """
    units = draw(st.lists(st.sampled_from(UNITS), min_size=1, max_size=2))
    partitions = draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2))
    numbers = draw(st.lists(st.sampled_from(NUMBERS), max_size=2))
    listed, others = None, False
    if draw(st.booleans()):
        every = [[*values, *values[1:2]] for _, values in partitions]
        number = draw(st.integers(1, 3))
        chosen = draw(
            st.lists(st.tuples(*map(st.sampled_from, every)), min_size=number, max_size=number, unique_by=repr)
        )
        listed, others = ListedKeys(tuple(zip(*chosen, strict=True))), other and draw(st.booleans())
        listed = listed.with_other if others else listed
    layout = draw(layouts(len(units), len(partitions), len(numbers), listed, modes, other=others))

    def table(number: int, of_units: list[tuple[pa.DataType, Values]]) -> pa.Table:
        ids = (pa.int8(), [1, 2, None])
        columns = [
            array_of(kind, draw(st.lists(st.sampled_from(values), min_size=number, max_size=number)))
            for kind, values in (*of_units, *partitions, *numbers, ids)
        ]
        names = [*layout.units, *layout.read_partitions, *(f"n{i}" for i in range(len(numbers))), "id"]
        return pa.table(columns, names)

    # Nobody else has the first value of the first column; null (and NaN) units are nobody at all.
    (kind, values), *rest = units
    nobody = [None, math.nan] if pa.types.is_floating(kind) else [None]
    mine = [0.0, -0.0] if pa.types.is_floating(kind) else values[:1]
    smaller = table(
        draw(st.integers(0, most_rows)), [(kind, [*values[1:], *nobody]), *[(k, [*v, None]) for k, v in rest]]
    )
    extra = table(draw(st.integers(1, most_rows)), [(kind, mine), *[(k, v[:1]) for k, v in rest]])
    places = tuple(draw(st.lists(st.integers(0, smaller.num_rows), min_size=extra.num_rows, max_size=extra.num_rows)))
    return Neighbours(smaller=smaller, extra=extra, places=places, layout=layout, statistics=statistics_of(layout))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """One way of the rows through the kernels: none of this may change a total.

    Args:
        cuts: where the table is cut into batches.
        reduced: whether each batch is bounded before the shuffle, by its number modulo the length.
        shards, places: into how many groups of units and of partitions.
        backwards: whether shards meet their slices in the opposite order.
    """

    cuts: tuple[int, ...] = ()
    reduced: tuple[bool, ...] = (False,)
    shards: int = 1
    places: int = 1
    backwards: bool = False


@st.composite
def ways(draw: st.DrawFn, rows: int) -> Way:
    """Ways for a table of some rows."""
    return Way(
        cuts=tuple(sorted(draw(st.lists(st.integers(0, rows), max_size=4)))),
        reduced=tuple(draw(st.lists(st.booleans(), min_size=1, max_size=3))),
        shards=draw(st.sampled_from([1, 2, 3, 300])),
        places=draw(st.sampled_from([1, 2, 8])),
        backwards=draw(st.booleans()),
    )


STRAIGHT = Way()
SALT = 0x5EED_0000_0000_0001


def totals(
    table: pa.Table, layout: Layout, statistics: Sequence[Statistic], way: Way = STRAIGHT, salt: int = SALT
) -> list[accumulate.Totals]:
    """The merged statistics of a table, one `Totals` for each place: all kernels, in the order of the transforms."""
    of_shard: dict[int, list[pa.Table]] = {0: [layout.wire(table.slice(0, 0))]}
    names = layout.text_names
    for number, (begin, end) in enumerate(_batches(table.num_rows, way.cuts)):
        texts: long_text.Texts = {}
        wire = layout.wire(table.slice(begin, end - begin), texts)
        if way.reduced[number % len(way.reduced)]:
            wire = contributions.reduce(wire, layout, salt)
        cut = shard.slices(wire, layout.unit_names, salt, way.shards)
        for index, part in long_text.with_texts(cut, names, texts):
            of_shard.setdefault(index, []).append(part)
    of_place: list[list[pa.Table]] = [[] for _ in range(way.places)]
    for tables in of_shard.values():
        rows, texts = long_text.apart(tables)
        joined = shard.joined(rows[::-1] if way.backwards else rows)
        partial = accumulate.partials(joined, layout, statistics, salt)
        if layout.public is not None:
            partial = accumulate.by_public_index(partial, layout)
            dealt = partial.column("p0").to_numpy() % way.places
            for place in range(way.places):
                of_place[place].append(partial.filter(pa.array(dealt == place)))
            continue
        for place in range(way.places):
            of_place[place].append(partial.slice(0, 0))
        cut = shard.slices(partial, layout.partition_names, salt, way.places)
        for place, part in long_text.with_texts(cut, names, texts):
            of_place[place].append(part)
    if layout.public is not None:
        return [
            accumulate.merge_public(parts, layout, statistics, place, way.places)
            for place, parts in enumerate(of_place)
        ]
    return [accumulate.merge(parts, layout.partition_names, statistics) for parts in of_place]


def _batches(rows: int, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    ends = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    yield from itertools.pairwise(ends)


def exact(merged: Sequence[accumulate.Totals]) -> Sums:
    """Partition to its statistics as Python integers."""
    sums: Sums = {}
    for part in merged:
        words = [
            [(int(h) << 32) + int(low) for h, low in zip(high, lows, strict=True)]
            for high, lows in zip(part.high, part.low, strict=True)
        ]
        for row, key in enumerate(_keys(part)):
            assert key not in sums, "a partition came out twice"
            sums[key] = tuple(column[row] for column in words)
    return sums


def coarse(merged: Sequence[accumulate.Totals], statistic: int, shift: int, step: int) -> dict[tuple[Any, ...], int]:
    """Partition to one statistic on the lattice of its release."""
    return {
        key: int(value)
        for part in merged
        for key, value in zip(_keys(part), part.coarse(statistic, shift=shift, step=step), strict=True)
    }


def _keys(part: accumulate.Totals) -> list[tuple[Any, ...]]:
    # By representation: True is not 1, and a listed 1.0 is not 1. Whole keys: each digest has its text.
    columns = part.keys(np.arange(len(part.partitions[0])))
    return list(zip(*([_text(value) for value in column] for column in columns), strict=True))


def _text(value: pa.Scalar) -> str:
    """A key as Python writes it; a day or a time that Python has not as the integer that it is."""
    if pa.types.is_time(
        value.type
    ):  # a file may hold a time before midnight, which Python turns into one of the evening
        return f"{value.type} {value.value}"
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError):
        return f"{value.type} {value.value}"


def distances(one: dict[Any, int], other: dict[Any, int]) -> list[int]:
    """By how much each partition's number differs; a partition that is not there has zero."""
    return [abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys()]


Computed = Callable[[pa.Table, Layout, Sequence[Statistic], Way], Sequence[accumulate.Totals]]
"""The merged statistics of a table, as `totals` gives them."""


def too_sensitive(
    pair: Neighbours,
    way: Way = STRAIGHT,
    other_way: Way = STRAIGHT,
    steps: Sequence[int] = (1, 7, 1024, 3000),
    computed: Computed = totals,
) -> list[str]:
    """The statistics that one unit moves by more than is declared, on the fine lattice and after coarse rounding.

    Args:
        pair: two data sets.
        way: the way of the smaller one.
        other_way: the way of the larger one.
        steps: release steps of one unit of change, as a plan may choose them.
        computed: goes a way.
    """
    without = computed(pair.smaller, pair.layout, pair.statistics, way)
    with_unit = computed(pair.larger, pair.layout, pair.statistics, other_way)
    fine_without, fine_with = exact(without), exact(with_unit)
    broken = []
    for index, statistic in enumerate(pair.statistics):
        fine = distances({k: v[index] for k, v in fine_without.items()}, {k: v[index] for k, v in fine_with.items()})
        if statistic.kind == "weights":
            if sum(d * d for d in fine) > 1 << 2 * WEIGHT_BITS or sum(d > 0 for d in fine) > pair.layout.max_partitions:
                broken.append("weights")
            continue
        shape, shift = pair.shape(statistic), statistic.fine_bits
        if not _within(fine, shape, shape.unit >> shift):
            broken.append(f"{statistic.name}, fine")
        for number in steps:
            # As planning.stage.records: what one unit of change becomes at most.
            step = -(-shape.unit // number)
            moved = distances(coarse(without, index, shift, step), coarse(with_unit, index, shift, step))
            if not _within(moved, shape, -(-shape.unit // step)):
                broken.append(f"{statistic.name}, in steps of {step}")
    return broken


def _within(moved: Sequence[int], shape: Shape, unit: int) -> bool:
    changed = sum(d > 0 for d in moved) <= shape.coordinates
    return changed and max(moved, default=0) <= shape.per_coordinate * unit and sum(moved) <= shape.in_total * unit


def kept_rows(table: pa.Table, layout: Layout, salt: int = SALT) -> Counter[bytes]:
    """The rows that bounding keeps, as bytes."""
    wire = layout.wire(table)
    kept = wire.take(pa.array(contributions.bound(wire, layout, salt).bounded.rows))
    return Counter(repr(row).encode() for row in zip(*(column.to_pylist() for column in kept.columns), strict=True))


def changed_for_others(pair: Neighbours) -> Counter[bytes]:
    """Kept rows of others that the one unit more adds or removes."""
    mine = set(
        kept_rows(pair.extra, dataclasses.replace(pair.layout, max_partitions=2**20, max_rows_per_partition=2**20))
    )
    if pair.layout.max_rows is not None:
        mine |= set(kept_rows(pair.extra, dataclasses.replace(pair.layout, max_rows=2**20)))
    before, after = kept_rows(pair.smaller, pair.layout), kept_rows(pair.larger, pair.layout)
    assert not mine & set(before)
    for row in mine:
        del after[row]
    return (before - after) + (after - before)


def weak_hashes(patch: pytest.MonkeyPatch, kept: int) -> None:
    """Let the hashes of everything keep only some bits, so that ties are everywhere.

    Args:
        patch: undone by the caller.
        kept: the bits that stay.
    """
    strong: Callable[[hashing.Words], hashing.Words] = hashing.mix

    def weak(words: hashing.Words) -> hashing.Words:
        return strong(words) & np.uint64(kept)

    patch.setattr(hashing, "mix", weak)
    patch.setattr(bounding, "mix", weak)
