"""The sensitivity of sums of vectors and of second moments, on integers: what docs/proofs/vectors.md proves, and its code.

Neighbouring data sets (all rows of one unit more) go through the whole way of the kernels up to the noise, with several kinds of
lists and with numbers that overflow, vanish or are none. No test here looks at noise, so none can fail by chance.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.kernels import accumulate, vectors
from dp_pipelines.kernels.lattice import coarse_words
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.moments import Moments
from dp_pipelines.kernels.sensitivity import LatticeSteps, Shape
from dp_pipelines.kernels.statistics import ProductSums, Statistic, UnitCount, VectorSums
from dp_pipelines.kernels.vectors import VectorLattice
from dp_pipelines.metrics.vectors import SecondMoment, VectorSum
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

Vectors = dict[tuple[Any, ...], NDArray[Any]]

ODD = [
    0.0,
    -0.0,
    1.0,
    -0.3,
    7.0,
    1e308,
    -1e308,
    5e-324,
    -5e-324,
    2.0**-149,
    64.0,
    200.0,
    math.inf,
    -math.inf,
    math.nan,
    None,
]
KINDS: list[pa.DataType] = [
    pa.list_(pa.float64()),
    pa.list_(pa.float32()),
    pa.large_list(pa.float64()),
    pa.list_view(pa.float64()),
    pa.list_(pa.float16()),
]


def array_of(kind: pa.DataType, rows: list[Any], form: str) -> pa.Array:
    """Lists as an array of a type: plain, a slice of a longer one, or codes that rows share."""
    if pa.types.is_floating(kind.value_type) and kind.value_type.bit_width < 64:
        narrow = np.float16 if kind.value_type.bit_width == 16 else np.float32
        with np.errstate(over="ignore"):
            rows = [r and [x if x is None else float(narrow(x)) for x in r] for r in rows]
        if narrow is np.float16:
            rows = [r and [x if x is None else np.float16(x) for x in r] for r in rows]
    if form == "slice":
        return pa.array([[9.0], *rows, None], kind)[1:-1]
    if form == "codes" and pa.types.is_list(kind) and not pa.types.is_float16(kind.value_type):
        return pa.DictionaryArray.from_arrays(pa.array(range(len(rows)), pa.int16()), pa.array(rows, kind))
    return pa.array(rows, kind)


@st.composite
def pairs(draw: st.DrawFn) -> nb.Neighbours:
    """Neighbours with a column of lists and two features; bounds are small, so that they bind."""
    size = draw(st.integers(1, 4))
    norm = draw(st.sampled_from(["l1", "l2", "linf"]))
    features = draw(st.sampled_from([
        Moments(columns=("a", "b"), max_norm=2.0),
        Moments(columns=("a", "b"), ranges=((-1.0, 3.0), (0.5, 2.0))),
        Moments(columns=("b",), max_norm=1e100),
    ]))  # fmt: skip
    in_all = draw(st.booleans())
    lattice = VectorLattice(size=size, norm=norm, max_norm=draw(st.sampled_from([1.0, 0.3, 3e-200, 1e200])))
    layout = Layout(
        units=("unit",),
        partitions=("key",),
        vectors=() if in_all else (("v", lattice),),
        moments=(features,),
        max_partitions=draw(st.integers(1, 3)),
        max_rows_per_partition=draw(st.integers(1, 3)),
        max_rows=None,
        public=draw(st.sampled_from([None, (("x", "y", None),)])),
    )
    if in_all:
        most = draw(st.integers(1, 4))
        layout = dataclasses.replace(layout, max_partitions=most, max_rows_per_partition=most, max_rows=most)
    kind, form = draw(st.sampled_from(KINDS)), draw(st.sampled_from(["plain", "slice", "codes"]))
    number = st.sampled_from(ODD) | st.floats(-4, 4)
    one = st.lists(number, min_size=size, max_size=size) | st.none() | st.lists(number, max_size=5)

    def table(units: list[Any], most: int) -> pa.Table:
        rows = draw(
            st.lists(
                st.tuples(st.sampled_from(units), st.sampled_from(["x", "y", "z", None]), one, number, number),
                max_size=most,
            )
        )
        columns = list(zip(*rows, strict=True)) or [()] * 5
        return pa.table({
            "unit": pa.array(columns[0], pa.int64()),
            "key": pa.array(columns[1], pa.string()),
            "v": array_of(kind, list(columns[2]), form),
            "a": pa.array(columns[3], pa.float64()),
            "b": pa.array(columns[4], pa.float64()),
        })  # fmt: skip

    smaller, extra = table([1, 2, 3, None], 8), table([0], 12)
    places = tuple(draw(st.lists(st.integers(0, smaller.num_rows), min_size=extra.num_rows, max_size=extra.num_rows)))
    return nb.Neighbours(smaller=smaller, extra=extra, places=places, layout=layout, statistics=statistics_of(layout))


def statistics_of(layout: Layout) -> tuple[Statistic, ...]:
    """The units, which say that a partition is there, and every statistic with vectors."""
    made = [UnitCount()]
    made += [VectorSums(column=column, vectors=lattice) for column, lattice in layout.vectors]
    return (*made, *(ProductSums(vectors=features) for features in layout.moments))


def larger_of(pair: nb.Neighbours) -> pa.Table:
    """All rows; codes and list views are put together by hand, since Arrow cannot take rows of all kinds of lists."""
    smaller, extra = pair.smaller, pair.extra
    order = np.argsort([*np.arange(smaller.num_rows) + 0.5, *pair.places], kind="stable")
    kind = smaller.schema.field("v").type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    lists = smaller.column("v").to_pylist() + extra.column("v").to_pylist()
    both = pa.concat_tables([smaller.drop_columns("v"), extra.drop_columns("v")]).take(pa.array(order))
    return both.append_column("v", pa.array([lists[i] for i in order], kind))


def found(merged: Sequence[accumulate.Totals], index: int, step: int) -> Vectors:
    """Partition to the coarse vector of a statistic."""
    sums: Vectors = {}
    for part in merged:
        size = len(part.partitions[0])
        rows = part.coarse_lists(index, np.arange(size), shift=0, step=step)
        keys = zip(*([repr(v) for v in column.to_pylist()] for column in part.partitions), strict=True)
        sums |= dict(zip(keys, rows, strict=True))
    return sums


def moved(one: Vectors, other: Vectors) -> LatticeSteps:
    """By how much two sets of vectors differ; a partition that is not there has zeros."""
    changes = [
        abs(int(x) - int(y))
        for key in one.keys() | other.keys()
        for x, y in np.broadcast(one.get(key, 0), other.get(key, 0))
    ]
    return LatticeSteps(
        l0=sum(c > 0 for c in changes),
        linf=max(changes, default=0),
        l1=sum(changes),
        l2_squared=sum(c * c for c in changes),
    )


def within(change: LatticeSteps, most: LatticeSteps) -> bool:
    """Whether a change is no larger than is declared."""
    return all(getattr(change, f.name) <= getattr(most, f.name) for f in dataclasses.fields(LatticeSteps))


def too_sensitive(pair: nb.Neighbours, way: nb.Way, other: nb.Way) -> list[str]:
    """The statistics with vectors that the one unit moves by more than is declared, on lattices of many widths."""
    without = nb.totals(pair.smaller, pair.layout, pair.statistics, way)
    with_unit = nb.totals(larger_of(pair), pair.layout, pair.statistics, other)
    broken = []
    for index, statistic in enumerate(pair.statistics):
        shape = pair.shape(statistic)
        for step in () if statistic.width is None else (1, 2, 3, 1000, -(-shape.unit // 7), shape.unit):
            change = moved(found(without, index, step), found(with_unit, index, step))
            if not within(change, shape.steps(step)):
                broken.append(f"{statistic.name} in steps of {step}: {change} over {shape.steps(step)}")
    return broken


@settings(max_examples=examples(100, 400))
@given(data=st.data())
def test_one_unit_moves_no_vector_by_more_than_its_shape(data: st.DataObject) -> None:
    pair = data.draw(pairs())
    rows = pair.smaller.num_rows, pair.smaller.num_rows + pair.extra.num_rows
    ways = [data.draw(nb.ways(number)) for number in rows]
    assert too_sensitive(pair, *ways) == []


def heavy(size: int, norm: Any = "l2", users: int = 1, **bounds: Any) -> nb.Neighbours:
    """One user with everything: 300 rows of the largest vectors in each of five partitions."""
    lists = [[1e308 if i % 2 else -1e308 for i in range(size)]] * 1500
    table = pa.table({"unit": [0] * 1500, "key": [f"k{i % 5}" for i in range(1500)], "v": lists})
    lattice = VectorLattice(size=size, norm=norm, max_norm=1.0)
    layout = Layout(units=("unit",), partitions=("key",), vectors=(("v", lattice),), max_partitions=3, **bounds)
    other = pa.table({"unit": [1], "key": ["k0"], "v": [[0.5] * size]})
    return nb.Neighbours(
        smaller=other, extra=table, places=(0,) * 1500, layout=layout, statistics=statistics_of(layout)
    )


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("size", [1, 16, 300])
def test_one_user_with_everything_stays_within_and_reaches_the_norm(size: int, norm: str) -> None:
    pair = heavy(size, norm)
    assert too_sensitive(pair, nb.STRAIGHT, nb.Way(cuts=(7, 900), reduced=(True, False), shards=3)) == []
    change = moved(*(found(nb.totals(t, pair.layout, pair.statistics), 1, 1) for t in (pair.smaller, larger_of(pair))))
    most = pair.shape(pair.statistics[1]).steps(1)
    reached = (change.l1, most.l1) if norm == "l1" else (math.sqrt(change.l2_squared), math.sqrt(most.l2_squared))
    assert reached[0] >= 0.999 * reached[1]


@pytest.mark.parametrize("max_rows", [None, 4])
@pytest.mark.parametrize(
    ("features", "row"),
    [
        (Moments(columns=("a",), max_norm=2.0), (2.0, 0.0)),
        (Moments(columns=("a", "b"), max_norm=2.0), (2.0, 0.0)),
        (Moments(columns=("a", "b"), ranges=((-1.0, 3.0), (0.5, 2.0))), (3.0, 2.0)),
    ],
    ids=["one by norm", "two by norm", "two by ranges"],
)
def test_one_user_with_the_longest_rows_stays_within_and_reaches_the_norm_of_their_moments(
    features: Moments, row: tuple[float, float], max_rows: int | None
) -> None:
    layout = Layout(
        units=("unit",),
        partitions=("key",),
        moments=(features,),
        max_partitions=max_rows or 3,
        max_rows_per_partition=max_rows or 2,
        max_rows=max_rows,
    )
    # Rows that are bounded in all may lie in one partition, where their squares grow with the square of their number.
    keys = [f"k{0 if max_rows else i % 5}" for i in range(40)]
    rows = {name: [number] * 40 for name, number in zip("ab", row, strict=True)}
    table = pa.table({"unit": [0] * 40, "key": keys, "v": [[0.0]] * 40, **rows})
    nobody, statistics = table.slice(0, 0), statistics_of(layout)
    pair = nb.Neighbours(smaller=nobody, extra=table, places=(0,) * 40, layout=layout, statistics=statistics)
    assert too_sensitive(pair, nb.STRAIGHT, nb.Way(cuts=(7,), reduced=(True,), shards=3)) == []
    change = moved({}, found(nb.totals(table, layout, statistics), 1, 1))
    assert change.l2_squared == pair.shape(statistics[1]).steps(1).l2_squared


# Planted faults are found.


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_sums_that_are_not_clipped_are_found(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "clipped", lambda sums, norm, bound, out: sums.astype(np.float64))
    assert too_sensitive(heavy(4, norm), nb.STRAIGHT, nb.STRAIGHT)


def test_clipping_before_the_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def each_row(lattice: VectorLattice, rows: Any, places: Any, starts: Any, codes: Any, size: int) -> Any:
        of_rows = np.repeat(codes, np.diff(np.append(starts, len(places))))
        result = np.zeros((size, lattice.size), np.int64)
        np.add.at(result, of_rows, lattice.clipped(rows[places]))
        return result

    monkeypatch.setattr(vectors, "clipped_sums", each_row)
    assert too_sensitive(heavy(4), nb.STRAIGHT, nb.STRAIGHT)


def test_a_clip_that_rounds_to_the_nearest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_the_nearest(sums: Any, norm: str, bound: int, out: Any) -> Any:
        lengths = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1))
        return np.rint(sums * np.minimum(1, bound / lengths)[:, None])

    monkeypatch.setattr(vectors, "clipped", to_the_nearest)
    assert too_sensitive(heavy(2), nb.STRAIGHT, nb.STRAIGHT)


def test_records_without_what_rounding_adds_are_found() -> None:
    # 256 small coordinates, each of which just crosses a border of the coarse lattice.
    size, step = 256, 2**20
    shape = VectorSums(column="v", vectors=VectorLattice(size=size, norm="l2", max_norm=1.0)).shape(
        max_partitions=1, max_rows_per_partition=1, max_rows=None
    )
    border = np.full((1, size), step // 2 - 1, np.int64)
    contribution = np.full((1, size), math.isqrt(shape.unit**2 // size), np.int64)
    before, after = (coarse_words(x * 0, x, shift=0, step=step) for x in (border, border + contribution))
    change = moved({("k",): before[0]}, {("k",): after[0]})
    assert within(change, shape.steps(step))
    too_little = dataclasses.replace(shape.steps(step), l2_squared=(-(-shape.unit // step)) ** 2)
    assert not within(change, too_little)


@given(
    unit=st.integers(1, 2**24),
    step=st.integers(1, 2**24),
    parts=st.lists(st.integers(0, 2**24), min_size=1, max_size=6),
)
def test_the_steps_of_a_shape_hold_for_any_vector_within_it(unit: int, step: int, parts: list[int]) -> None:
    rounded = [-(-part // step) for part in parts]
    unit = max(unit, *parts, 1)
    squares = -(-sum(p * p for p in parts) // unit**2)
    total = -(-sum(parts) // unit)
    shape = Shape(unit=unit, coordinates=len(parts), per_coordinate=1, in_total=max(total, 1), squares=max(squares, 1))
    most = shape.steps(step)
    assert sum(r * r for r in rounded) <= most.l2_squared
    assert sum(rounded) <= most.l1
    assert max(rounded) <= most.linf


# Whole stages.

QUERIES = {
    "vectors": {"v": VectorSum("v", size=3, max_norm=1.0), "w": VectorSum("v", size=3, norm="l1", max_norm=2.0)},
    "moments": {"m": SecondMoment(columns=["a", "b"], max_norm=2.0)},
    "ranges": {
        "m": SecondMoment(columns=["a", "b"], bounds={"a": (-1, 3), "b": (0, 2)}),
        "v": VectorSum("v", size=3, norm="linf", max_norm=1.0),
    },
}


@functools.cache
def stage_of(name: str, delta: float) -> StagePlan:
    """A planned stage over public partitions."""
    query = Query(
        privacy_unit="unit",
        partition_by="key",
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
        metrics=QUERIES[name],
        partitions=PublicPartitions(keys=[("x",), ("y",), ("z",)]),
    )
    return Plan(epsilon=1.0, delta=delta, stages={"s": query})["s"]


@pytest.mark.parametrize("delta", [1e-6, 0.0], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=25)
@given(data=st.data())
def test_the_records_of_a_stage_bound_what_one_unit_moves(name: str, delta: float, data: st.DataObject) -> None:
    stage = stage_of(name, delta)
    number = st.sampled_from(ODD) | st.floats(-4, 4)
    rows = st.tuples(st.sampled_from("xyz"), st.lists(number, min_size=3, max_size=3), number, number)

    def table(unit: list[int], most: int) -> pa.Table:
        drawn = data.draw(st.lists(st.tuples(st.sampled_from(unit), rows), max_size=most))
        columns = list(zip(*((u, *row) for u, row in drawn), strict=True)) or [()] * 5
        kinds = (pa.int64(), pa.string(), pa.list_(pa.float64()), pa.float64(), pa.float64())
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
            ["unit", "key", "v", "a", "b"],
        )

    smaller, extra = table([1, 2], 5), table([0], 8)
    totals = [nb.totals(t, stage.layout, stage.statistics) for t in (smaller, pa.concat_tables([extra, smaller]))]
    records = {record.name: record for record in stage.mechanisms}
    for index, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True)):
        if statistic.width is None or noise is None:
            continue
        record = records[statistic.name]
        change = moved(*(found(total, index, noise.step) for total in totals))
        assert change.l0 <= (record.l0 or 0)
        if record.kind == "gaussian":
            assert change.l2_squared <= (record.l2_squared or 0)
        else:
            assert change.linf <= (record.linf or 0)
            assert change.l1 <= min(record.l1 or 0, (record.l0 or 0) * (record.linf or 0))
