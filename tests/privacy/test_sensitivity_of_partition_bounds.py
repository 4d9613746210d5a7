"""The bound on partitions that a run chooses: how far one unit moves the histogram, and what follows from it.

In: neighbouring data sets through the whole way of the kernels, stages of plans with every candidate. Out: integer distances,
compared with the records of the plan, which is made before a candidate is known (docs/proofs/sensitivity.md, lemmas 6b and 6c).
Holds: no noise, nothing that fails by chance.
"""

import dataclasses
import functools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.auto_bounds import partition_bound, value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import contributions, partitions_per_unit, shard
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.kernels.vectors import VectorLattice
from dp_pipelines.plan_stages.phases import expand
from dp_pipelines.planning import reserve, resolve
from dp_pipelines.planning.stage import StagePlan, build_stage, released_statistics, shape_of
from dp_pipelines.planning.stage_choices import Choice, StageChoices
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, PublicPartitions, Query
from tests.helpers import cells as wide
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples
from tests.privacy.test_sensitivity import Scales

CANDIDATES = st.lists(st.integers(1, 40), min_size=2, max_size=6, unique=True).map(sorted)


def query(candidates: list[int], **changes: object) -> Query:
    """A query with statistics of every kind that may have an open bound on partitions."""
    fields: dict[str, object] = {
        "privacy_unit": "u0",
        "partition_by": "p0",
        "bounds": ContributionBounds(
            max_partitions_contributed="auto", partition_candidates=candidates, max_contributions_per_partition=3
        ),
        "metrics": {
            "rows": dp.Count(),
            "users": dp.PrivacyIdCount(),
            "mean": dp.Mean("n0", min_value=-3, max_value=10),
            "spread": dp.Variance("n0", min_value=-3, max_value=10),
            "clipped": dp.Sum("n0", min_sum_per_partition=0, max_sum_per_partition=7),
            "bins": dp.Histogram("n0", edges=[0, 1, 10]),
            "middle": dp.Median("n0", min_value=0, max_value=8),
            "kinds": dp.DistinctCount("k0", max_values_per_partition=2),
        },
    }
    return Query(**{**fields, **changes})  # type: ignore[arg-type]


# The way of the rows: a histogram of units.


def one_row_each(table: pa.Table, layout: Layout, way: nb.Way) -> pa.Table:
    """One row for each unit with the number of its partitions, in the order of the transforms."""
    of_shard: dict[int, list[pa.Table]] = {0: [layout.wire(table.slice(0, 0))]}
    for number, (begin, end) in enumerate(nb._batches(table.num_rows, way.cuts)):
        wire = layout.wire(table.slice(begin, end - begin))
        if way.reduced[number % len(way.reduced)]:
            wire = contributions.reduce(wire, layout, nb.SALT)
        for index, part in shard.slices(wire, layout.unit_names, nb.SALT, way.shards):
            of_shard.setdefault(index, []).append(part)
    parts = [
        partitions_per_unit.partitions_of_units(shard.joined(tables), layout, nb.SALT) for tables in of_shard.values()
    ]
    whole = pa.concat_tables(parts, promote_options="permissive")
    return whole.append_column(value_bounds.COLUMN, pa.array([value_bounds.COLUMN] * whole.num_rows, pa.string()))


def histogram_stage(candidates: list[int]) -> StagePlan:
    """The stage that releases the histogram, with noise of some size."""
    (before, asked), *_ = expand({"s": query(candidates)}, {"s": 1.0}).queries.items()
    (name,) = released_statistics(asked, ())
    choices = StageChoices(strategy=None, noises=FrozenMapping({name: Choice(law="laplace", steps=7)}))
    return build_stage(before, asked, choices, Scales())


def moved_by(pair: nb.Neighbours, most: int, way: nb.Way, other_way: nb.Way) -> list[int]:
    """By how much each count of the histogram differs, those that do."""
    asked = histogram_stage([1, most])
    counted = dataclasses.replace(
        pair.layout, values=(), summands=(), row_id=None, max_rows=None, max_rows_per_partition=1, max_partitions=most
    )
    layout = dataclasses.replace(
        asked.layout,
        units=tuple(counted.unit_names),
        cells=tuple((partition_bound_column(), cells) for _, cells in asked.layout.cells),
    )
    statistics = tuple(
        dataclasses.replace(s, column=partition_bound_column()) if s.cells is not None else s for s in asked.statistics
    )
    found = []
    for table, way_of in ((pair.smaller, way), (pair.larger, other_way)):
        rows = one_row_each(table, counted, way_of)
        found.append(wide.counts(nb.totals(rows, layout, statistics, nb.Way(shards=way_of.shards)), 0))
    return [moved for moved in nb.distances(*found) if moved]


def partition_bound_column() -> str:
    """The kernel's name of the column; the transform gives it the one that the query reads."""
    return "partitions"


@settings(max_examples=examples(75, 300), deadline=None)
@given(data=st.data(), most=st.integers(2, 9))
def test_one_unit_moves_one_count_of_units_by_one(data: st.DataObject, most: int) -> None:
    pair = data.draw(nb.neighbours(other=True))
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    moved = moved_by(pair, most, *ways)
    assert moved in ([], [1])  # nothing where the one unit has no listed partition


@pytest.mark.parametrize("most", [4, 100, 4096])
@pytest.mark.parametrize("reduced", [False, True])
def test_a_unit_that_is_in_every_partition_moves_one_count_by_one(most: int, reduced: bool) -> None:
    """3,000 partitions, each row twice, in batches of 500, beside 300 units with one partition each."""
    everywhere = pa.table({"u0": [0] * 6000, "p0": [f"p{n}" for n in np.arange(6000) % 3000]})
    others = pa.table({"u0": np.arange(1, 301), "p0": [f"p{n}" for n in range(300)]})
    layout = Layout(units=("u0",), partitions=("p0",), max_partitions=3)
    pair = nb.Neighbours(smaller=others, extra=everywhere, places=(150,) * 6000, layout=layout, statistics=())
    way = nb.Way(cuts=tuple(range(0, 6300, 500)), reduced=(reduced,), shards=3)
    assert moved_by(pair, most, nb.STRAIGHT, way) == [1]


def test_a_histogram_of_pairs_instead_of_units_would_be_found() -> None:
    """Were there a row for each partition of a unit, it would have to be bounded; the stage keeps one whatever comes."""
    stage = histogram_stage([1, 8])
    rows = pa.table(
        {"u0": [1] * 8, value_bounds.COLUMN: [value_bounds.COLUMN] * 8, partition_bound.COLUMN: range(1, 9)}
    )
    assert (stage.layout.max_partitions, stage.layout.max_rows_per_partition) == (1, 1)
    assert sum(wide.counts(nb.totals(rows, stage.layout, stage.statistics), 0).values()) == 1
    loose = dataclasses.replace(stage.layout, max_rows_per_partition=8)
    assert sum(wide.counts(nb.totals(rows, loose, stage.statistics), 0).values()) == 8
    (record,) = stage.mechanisms
    assert (record.l0, record.linf, record.l1) == (1, 7, 7)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), most=st.integers(1, 6))
def test_a_unit_has_as_many_partitions_as_a_plain_program_counts(data: st.DataObject, most: int) -> None:
    row = st.tuples(st.integers(1, 4), st.sampled_from([*"abcdefgh", None]))
    rows = data.draw(st.lists(row, max_size=40))
    table = pa.table(
        {"u0": pa.array([u for u, _ in rows], pa.int64()), "p0": pa.array([p for _, p in rows], pa.string())}
    )
    layout = Layout(units=("u0",), partitions=("p0",), max_partitions=most)
    found = one_row_each(table, layout, data.draw(nb.ways(len(rows))))
    counted = dict(zip(found.column("u0").to_pylist(), found.column("partitions").to_pylist(), strict=True))
    assert counted == {u: min(len({p for v, p in rows if v == u}), most) for u, _ in rows}
    assert found.num_rows == len(counted)


# The records: what is paid for holds for every candidate.


@settings(max_examples=400)
@given(
    candidates=st.lists(st.integers(1, 2**24), min_size=2, max_size=6, unique=True).map(sorted),
    rows=st.integers(1, 100),
    one_cell=st.booleans(),
    unit=st.integers(1, 2**50),
    steps=st.integers(1, 2**18),
    law=st.sampled_from(["gaussian", "laplace"]),
)
def test_with_no_candidate_a_unit_moves_more_than_is_reserved(
    candidates: list[int], rows: int, one_cell: bool, unit: int, steps: int, law: str
) -> None:
    def shape(partitions: int) -> Shape:
        if one_cell:  # as counts of rows by cell
            every = partitions * rows
            return Shape(unit=unit, coordinates=every, per_coordinate=rows, in_total=every)
        return Shape(unit=unit, coordinates=partitions, per_coordinate=1, in_total=partitions)

    whole = reserve.reserved(shape(candidates[-1]), candidates)
    paid = whole.ideally(steps)
    for candidate in candidates:
        now = reserve.steps_at(whole, law, steps, shape(candidate))
        assert now >= steps
        moved = shape(candidate).steps(-(-unit // now))
        assert moved.l0 <= paid.l0
        if law == "gaussian":
            assert moved.l2_squared <= paid.l2_squared
        else:
            assert moved.linf <= paid.linf
            assert moved.l1 <= paid.l1


STRATEGIES = [None, "laplace", "gaussian", "weighted_gaussian"]


@st.composite
def open_stages(draw: st.DrawFn) -> StagePlan:
    """Stages with an open bound on partitions, of any choices that a plan could make."""
    strategy = draw(st.sampled_from(STRATEGIES))
    partitions = (
        PublicPartitions(keys=[("a",), ("b",), ("c",)])
        if strategy is None
        else PrivatePartitions(strategy=strategy, min_users=draw(st.sampled_from([0, 1])))
    )
    asked = query(draw(CANDIDATES), partitions=partitions)
    released_users = draw(st.booleans())
    if not released_users:
        asked = dataclasses.replace(
            asked, metrics={name: metric for name, metric in asked.metrics.items() if name != "users"}
        )
    centred = draw(st.sampled_from([(), (("n0", -3.0, 10.0),)]))
    noises = {
        name: Choice(law=draw(st.sampled_from(["gaussian", "laplace"])), steps=draw(st.integers(1, 3000)))
        for name in released_statistics(asked, centred)
    }
    if strategy == "weighted_gaussian":
        noises["selection"] = Choice(law="gaussian", steps=draw(st.integers(1, 3000)))
    elif strategy is not None:
        name = "units" if released_users else "selection"
        noises[name] = Choice(law=strategy, steps=draw(st.integers(1, 3000)))
    choices = StageChoices(
        strategy=strategy,
        noises=FrozenMapping(noises),
        selection_delta=0.0 if strategy is None else 1e-7,
        centred=centred,
    )
    return build_stage("s", asked, choices, Scales())


@settings(max_examples=60, deadline=None)
@given(stage=open_stages())
def test_whatever_bound_is_chosen_the_records_are_dominated_by_those_of_the_plan(stage: StagePlan) -> None:
    planned = {record.name: record for record in stage.mechanisms}
    for candidate in stage.query.bounds.candidates:
        ready = resolve.with_partitions(stage, candidate)
        assert ready.mechanisms == stage.mechanisms
        assert ready.layout.max_partitions == candidate
        assert not resolve.is_open(ready)
        # Built anew by the way that a fixed bound goes, it is the same stage, and its records say no more.
        anew = build_stage("s", ready.query, ready.choices, Scales())
        assert (anew.statistics, anew.noises, anew.layout) == (ready.statistics, ready.noises, ready.layout)
        assert anew.selection == ready.selection
        assert {record.name for record in anew.mechanisms} == set(planned)
        assert all(resolve._dominates(planned[record.name], record) for record in anew.mechanisms)


PLANS = {
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "pure": {"epsilon": 4.0, "partitions": PublicPartitions(keys=[("a",), ("b",)])},
    "laplace": {"epsilon": 2.0, "delta": 1e-6, "partitions": PrivatePartitions(strategy="laplace")},
    "weights": {"epsilon": 1.0, "delta": 1e-6, "partitions": PrivatePartitions(strategy="weighted_gaussian")},
    "hardly private": {"epsilon": 35.0, "delta": 0.1},
    "rounds": {"epsilon": 4.0, "delta": 1e-6, "runs": 3, "split": "linear"},
}


@functools.cache
def plan_of(kind: str) -> dp.Plan:
    """A plan with an open bound on partitions."""
    arguments = dict(PLANS[kind])
    changes = {"partitions": arguments.pop("partitions")} if "partitions" in arguments else {}
    return dp.Plan(stages={"s": query([1, 2, 5, 16], **changes)}, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", PLANS)
def test_no_candidate_costs_more_than_the_plan_says(kind: str) -> None:
    """By the accountant itself, on the records of the stage as it would be without a plan."""
    plan = plan_of(kind)
    for number in range(1, plan.runs + 1):
        this = plan.round(number)
        others = [record for record in this.mechanisms if record.stage != "s"]
        paid = plan._budget.cost(list(this.mechanisms), runs=1)
        for candidate in (1, 2, 5, 16):
            ready = resolve.with_partitions(this.stages["s"], candidate)
            own = build_stage("s", ready.query, ready.choices, scales_of(this.stages["s"])).mechanisms
            assert plan._budget.cost([*others, *own], runs=1) <= paid * (1 + 1e-3)


def scales_of(stage: StagePlan) -> Scales:
    """The scales of the records of a stage."""
    found = {record.kind: record.scale for record in stage.mechanisms if record.scale is not None}
    return Scales(gaussian_scale=found.get("gaussian", Fraction(1)), laplace_scale=found.get("laplace", Fraction(1)))


def test_a_record_of_the_largest_candidate_alone_would_be_found() -> None:
    """With Laplace noise a small bound lets one number move far: what pays for the largest bound alone pays too little."""
    stage = plan_of("laplace")["s"]
    most = stage.query.bounds.max_partitions
    naive = []
    for record in stage.mechanisms:
        linf = record.linf if record.linf is None else record.linf // most
        naive.append(dataclasses.replace(record, linf=linf))
    planned = dataclasses.replace(stage, mechanisms=tuple(naive))
    with pytest.raises(AssertionError, match="costs more than the plan says"):
        resolve.with_partitions(planned, 1)
    less = tuple(
        dataclasses.replace(r, l2_squared=1) if r.kind == "gaussian" else r for r in plan_of("weights")["s"].mechanisms
    )
    with pytest.raises(AssertionError, match="costs more than the plan says"):
        resolve.with_partitions(dataclasses.replace(plan_of("weights")["s"], mechanisms=less), 2)


# The rows of the second pass: one unit moves a resolved stage by no more than its plan says.


def beyond(pair: nb.Neighbours, planned: StagePlan, ready: StagePlan) -> list[str]:
    """The statistics of a resolved stage that one unit moves by more than the plan's records say."""
    without, with_unit = (nb.totals(table, ready.layout, ready.statistics) for table in (pair.smaller, pair.larger))
    records = {record.name: record for record in planned.mechanisms}
    noises = [
        (s.name, index, noise) for index, (s, noise) in enumerate(zip(ready.statistics, ready.noises, strict=True))
    ]
    if ready.selection is not None and not ready.selection.released:
        noises.append(("selection", ready.selection.statistic, ready.selection.noise))
    found = []
    for name, index, noise in noises:
        if noise is None:
            continue
        statistic = ready.statistics[index]
        coarse = wide.coarse if statistic.cells is not None else nb.coarse
        one, other = (coarse(side, index, statistic.fine_bits, noise.step) for side in (without, with_unit))
        if not within(nb.distances(one, other), records[name]):
            found.append(name)
    return found


def within(moved: list[int], record: MechanismRecord) -> bool:
    """Whether a change is one that a record allows."""
    if sum(d > 0 for d in moved) > (record.l0 or 0):
        return False
    if record.kind == "gaussian":
        return sum(d * d for d in moved) <= (record.l2_squared or 0)
    return max(moved, default=0) <= (record.linf or 0) and sum(moved) <= (record.l1 or 0)


def everywhere(rows: int, partitions: int, value: float) -> Iterator[tuple[int, str, float, str]]:
    """Rows of one unit in every partition."""
    for number in range(rows):
        yield 1, f"p{number % partitions}", value, f"k{number}"


def table_of(rows: list[tuple[int, str, float | None, str]]) -> pa.Table:
    """Rows as a table."""
    columns = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.string())
    return pa.table([pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)], ["u0", "p0", "n0", "k0"])


@settings(max_examples=examples(25, 80), deadline=None)
@given(data=st.data(), stage=open_stages())
def test_one_unit_moves_a_resolved_stage_by_no_more_than_its_plan(data: st.DataObject, stage: StagePlan) -> None:
    values = st.one_of(st.sampled_from([-1e300, -3.0, 0.0, 0.5, 10.0, 1e300]), st.none())
    place = st.sampled_from([f"p{n}" for n in range(6)]) if stage.layout.public is None else st.sampled_from("abcd")
    row = st.tuples(place, values, st.sampled_from("xyz"))
    others = [(data.draw(st.sampled_from([2, 3])), *drawn) for drawn in data.draw(st.lists(row, max_size=6))]
    mine = [(1, *drawn) for drawn in data.draw(st.lists(row, min_size=1, max_size=20))]
    if stage.layout.public is None and data.draw(st.booleans()):
        mine = list(everywhere(200, 50, 10.0))
    smaller, extra = table_of(others), table_of(mine)
    pair = nb.Neighbours(smaller=smaller, extra=extra, places=(0,) * extra.num_rows, layout=stage.layout, statistics=())
    for candidate in stage.query.bounds.candidates:
        assert beyond(pair, stage, resolve.with_partitions(stage, candidate)) == []


def test_a_bound_that_is_not_kept_is_found() -> None:
    """The bound of the resolved stage decides its lattice: rows that were bounded by a larger one would move too much."""
    for kind in ("approximate", "laplace"):
        stage = plan_of(kind)["s"]
        ready = resolve.with_partitions(stage, 2)
        rows = table_of(list(everywhere(160, 40, 10.0)))
        pair = nb.Neighbours(
            smaller=rows.slice(0, 0), extra=rows, places=(0,) * 160, layout=ready.layout, statistics=()
        )
        assert beyond(pair, stage, ready) == []
        loose = dataclasses.replace(ready, layout=dataclasses.replace(ready.layout, max_partitions=16))
        assert beyond(pair, stage, loose) != []


# What is refused.


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": {"v": dp.VectorSum("w0", size=3, norm=norm, max_norm=1.0)}} for norm in ("l1", "l2")
    ]
    + [{"metrics": {"q": dp.Quantile("n0", quantile=0.5, candidates=[1, 2, 3], method="exponential")}}],
)  # fmt: skip
def test_what_does_not_follow_the_bound_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="cannot be combined with a bound on partitions that the run chooses"):
        query([1, 4], **changes)


def test_lists_whose_numbers_are_bounded_each_may_have_an_open_bound() -> None:
    asked = query([1, 4], metrics={"v": dp.VectorSum("w0", size=3, norm="linf", max_norm=1.0)})
    (statistic,) = released_statistics(asked, ()).values()
    assert isinstance(statistic.vectors, VectorLattice)
    assert shape_of(statistic, asked).in_total == 12
