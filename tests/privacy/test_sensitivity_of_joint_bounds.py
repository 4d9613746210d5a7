"""The bounds on partitions and rows that a run chooses together: how far one unit moves their histograms, and what follows.

In: neighbouring data sets through the whole way of the kernels, stages of plans with every pair of candidates. Out: integer
distances, compared with the records of the plan, which is made before a pair is known (docs/proofs/sensitivity.md, lemmas 6b and
6c). Holds: no noise, nothing that fails by chance.
"""

import dataclasses
import functools
import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.audit import audit
from dp_pipelines.auto_bounds import joint_bounds, partition_bound, value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import contributions, partitions_per_unit, shard
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.plan_stages.phases import expand
from dp_pipelines.planning import reserve, resolve
from dp_pipelines.planning.stage import StagePlan, build_stage, released_statistics
from dp_pipelines.planning.stage_choices import Choice, StageChoices
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, PublicPartitions, Query
from dp_pipelines.steps.unit_rows import Ones
from tests.helpers import cells as wide
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples
from tests.privacy.test_sensitivity import Scales
from tests.privacy.test_sensitivity_of_partition_bounds import beyond, everywhere, table_of
from tests.privacy.test_sensitivity_of_partition_bounds import query as with_partitions

CANDIDATES = st.lists(st.integers(1, 40), min_size=2, max_size=5, unique=True).map(sorted)


def query(groups: list[int] | None, rows: list[int], **changes: object) -> Query:
    """A query with statistics of every kind that may have an open bound on rows, beside one on partitions or 3 of these."""
    bounds = ContributionBounds(
        max_partitions_contributed=3 if groups is None else "auto",
        partition_candidates=groups,
        max_contributions_per_partition="auto",
        row_candidates=rows,
    )
    return with_partitions([1, 2], bounds=bounds, **changes)


# The way of the rows: two histograms of units.


def one_row_each(table: pa.Table, layout: Layout, way: nb.Way) -> pa.Table:
    """One row for each unit with the number of its partitions and of its rows in one of them, in the order of the transforms."""
    (table,) = Ones().process(table)
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


def counting(most: int, units: tuple[str, ...] = ("u0",), partitions: tuple[str, ...] = ("p0",)) -> Layout:
    """How a unit's partitions and rows are counted."""
    summands = ((joint_bounds.COLUMN, partitions_per_unit.ONE),)
    return Layout(units=units, partitions=partitions, summands=summands, max_partitions=most)


NAMES = {partition_bound.COLUMN: "partitions", joint_bounds.COLUMN: "rows"}
"""The kernel's names of the columns; the transform gives them those that the query reads."""


def histograms(most: int) -> StagePlan:
    """The stage that releases both histograms, with noise of some size."""
    expanded = expand({"s": query([1, most], [1, 4])}, {"s": 1.0})
    ((before, asked),) = [(name, one) for name, one in expanded.queries.items() if name == "s.partitions"]
    noises = {name: Choice(law="laplace", steps=7) for name in released_statistics(asked, ())}
    return build_stage(before, asked, StageChoices(strategy=None, noises=FrozenMapping(noises)), Scales())


def moved_by(pair: nb.Neighbours, most: int, way: nb.Way, other_way: nb.Way) -> list[list[int]]:
    """By how much each count of each histogram differs, those that do."""
    asked = histograms(most)
    counted = dataclasses.replace(
        counting(most, pair.layout.units, pair.layout.partitions), public=pair.layout.public, other=pair.layout.other
    )
    cells = tuple((NAMES[column], cells) for column, cells in asked.layout.cells)
    layout = dataclasses.replace(asked.layout, units=tuple(counted.unit_names), cells=cells)
    statistics = tuple(
        s if s.cells is None else dataclasses.replace(s, column=NAMES[s.column or ""]) for s in asked.statistics
    )
    sides = [
        nb.totals(one_row_each(table, counted, way_of), layout, statistics, nb.Way(shards=way_of.shards))
        for table, way_of in ((pair.smaller, way), (pair.larger, other_way))
    ]
    places = [place for place, s in enumerate(statistics) if s.cells is not None]
    assert len(places) == 2
    return [
        [moved for moved in nb.distances(*(wide.counts(side, place) for side in sides)) if moved] for place in places
    ]


@settings(max_examples=examples(60, 300), deadline=None)
@given(data=st.data(), most=st.integers(2, 9))
def test_one_unit_moves_one_count_of_each_histogram_by_one(data: st.DataObject, most: int) -> None:
    pair = data.draw(nb.neighbours(other=True))
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    assert moved_by(pair, most, *ways) in ([[], []], [[1], [1]])  # nothing where the one unit has no listed partition


@pytest.mark.parametrize("reduced", [False, True])
def test_a_unit_with_very_many_rows_in_every_partition_moves_one_count_of_each_by_one(reduced: bool) -> None:
    """300 partitions with 20 rows each, in batches of 500, beside 300 units with one row each."""
    everywhere_ = pa.table({"u0": [0] * 6000, "p0": [f"p{n}" for n in np.arange(6000) % 300]})
    others = pa.table({"u0": np.arange(1, 301), "p0": [f"p{n}" for n in range(300)]})
    layout = Layout(units=("u0",), partitions=("p0",), max_partitions=3)
    pair = nb.Neighbours(smaller=others, extra=everywhere_, places=(150,) * 6000, layout=layout, statistics=())
    way = nb.Way(cuts=tuple(range(0, 6300, 500)), reduced=(reduced,), shards=3)
    assert moved_by(pair, 8, nb.STRAIGHT, way) == [[1], [1]]


def test_several_rows_of_a_unit_in_a_histogram_would_be_found() -> None:
    """Were there a row for each partition of a unit, it would have to be bounded; the stage keeps one whatever comes."""
    stage = histograms(8)
    names = {value_bounds.COLUMN: [value_bounds.COLUMN] * 8, "u0": [1] * 8}
    rows = pa.table({**names, partition_bound.COLUMN: range(1, 9), joint_bounds.COLUMN: range(1, 9)})
    places = [place for place, s in enumerate(stage.statistics) if s.cells is not None]
    loose = dataclasses.replace(stage.layout, max_rows_per_partition=8)
    for layout, of_unit in ((stage.layout, 1), (loose, 8)):
        totals = nb.totals(rows, layout, stage.statistics)
        assert [sum(wide.counts(totals, place).values()) for place in places] == [of_unit] * 2
    assert [(record.l0, record.linf, record.l1) for record in stage.mechanisms] == [(1, 7, 7)] * 2


@settings(max_examples=60, deadline=None)
@given(data=st.data(), most=st.integers(1, 4))
def test_the_rows_are_those_of_one_partition_as_a_plain_program_counts_them(data: st.DataObject, most: int) -> None:
    row = st.tuples(st.integers(1, 3), st.sampled_from([*"abcdef", None]))
    rows = data.draw(st.lists(row, max_size=40))
    table = pa.table(
        {"u0": pa.array([u for u, _ in rows], pa.int64()), "p0": pa.array([p for _, p in rows], pa.string())}
    )
    found, again = (one_row_each(table, counting(most), data.draw(nb.ways(len(rows)))) for _ in range(2))
    counted = dict(zip(found.column("u0").to_pylist(), found.column("rows").to_pylist(), strict=True))
    for unit, number in counted.items():
        assert number in {sum(row == (unit, p) for row in rows) for p in {p for u, p in rows if u == unit}}
    # Which partition it is follows from the unit's rows alone, whatever batches and shards are.
    assert counted == dict(zip(again.column("u0").to_pylist(), again.column("rows").to_pylist(), strict=True))


# The records: what is paid for holds for every pair of candidates.


@settings(max_examples=300)
@given(
    partitions=st.lists(st.integers(1, 2**24), min_size=1, max_size=4, unique=True).map(sorted),
    rows=st.lists(st.integers(1, 2**12), min_size=2, max_size=4, unique=True).map(sorted),
    one_cell=st.booleans(),
    unit=st.integers(1, 2**30),
    steps=st.integers(1, 2**18),
    law=st.sampled_from(["gaussian", "laplace"]),
)
def test_with_no_pair_of_candidates_a_unit_moves_more_than_is_reserved(
    partitions: list[int], rows: list[int], one_cell: bool, unit: int, steps: int, law: str
) -> None:
    def shape(of_partitions: int, of_rows: int) -> Shape:
        if one_cell:  # as counts of rows by cell
            every = of_partitions * of_rows
            return Shape(unit=unit, coordinates=every, per_coordinate=of_rows, in_total=every)
        return Shape(unit=unit * of_rows, coordinates=of_partitions, per_coordinate=1, in_total=of_partitions)

    whole = reserve.reserved(shape(partitions[-1], rows[-1]), partitions)
    paid = whole.ideally(steps)
    for pair in itertools.product(partitions, rows):
        now = reserve.steps_at(whole, law, steps, shape(*pair))
        assert now >= steps
        moved = shape(*pair).steps(-(-shape(*pair).unit // now))
        assert moved.l0 <= paid.l0
        if law == "gaussian":
            assert moved.l2_squared <= paid.l2_squared
        else:
            assert moved.linf <= paid.linf
            assert moved.l1 <= paid.l1


STRATEGIES = [None, "laplace", "gaussian", "weighted_gaussian"]


@st.composite
def open_stages(draw: st.DrawFn) -> StagePlan:
    """Stages with an open bound on rows, and mostly on partitions, of any choices that a plan could make."""
    strategy = draw(st.sampled_from(STRATEGIES))
    partitions = (
        PublicPartitions(keys=[("a",), ("b",), ("c",)])
        if strategy is None
        else PrivatePartitions(strategy=strategy, min_users=draw(st.sampled_from([0, 1])))
    )
    asked = query(draw(st.none() | CANDIDATES), draw(CANDIDATES), partitions=partitions)
    centred = draw(st.sampled_from([(), (("n0", -3.0, 10.0),)]))
    noises = {
        name: Choice(law=draw(st.sampled_from(["gaussian", "laplace"])), steps=draw(st.integers(1, 3000)))
        for name in released_statistics(asked, centred)
    }
    if strategy == "weighted_gaussian":
        noises["selection"] = Choice(law="gaussian", steps=draw(st.integers(1, 3000)))
    elif strategy is not None:
        noises["units"] = Choice(law=strategy, steps=draw(st.integers(1, 3000)))
    choices = StageChoices(
        strategy=strategy,
        noises=FrozenMapping(noises),
        selection_delta=0.0 if strategy is None else 1e-7,
        centred=centred,
    )
    return build_stage("s", asked, choices, Scales())


def pairs(stage: StagePlan) -> list[tuple[int | None, int | None]]:
    """All pairs of candidates of a stage."""
    bounds = stage.query.bounds
    return list(itertools.product(bounds.partition_candidates or (None,), bounds.row_candidates or (None,)))


@settings(max_examples=examples(25, 100), deadline=None)
@given(stage=open_stages())
def test_whatever_pair_is_chosen_the_records_are_dominated_by_those_of_the_plan(stage: StagePlan) -> None:
    planned = {record.name: record for record in stage.mechanisms}
    for partitions, rows in pairs(stage):
        ready = resolve.with_partitions(stage, partitions, rows)
        assert ready.mechanisms == stage.mechanisms
        assert ready.layout.max_partitions == (partitions or 3)
        assert ready.layout.max_rows_per_partition == rows
        assert not resolve.is_open(ready)
        # Built anew by the way that fixed bounds go, it is the same stage, and its records say no more.
        anew = build_stage("s", ready.query, ready.choices, Scales())
        assert (anew.statistics, anew.noises, anew.layout) == (ready.statistics, ready.noises, ready.layout)
        assert anew.selection == ready.selection
        assert {record.name for record in anew.mechanisms} == set(planned)
        assert all(resolve._dominates(planned[record.name], record) for record in anew.mechanisms)


@settings(max_examples=examples(15, 80), deadline=None)
@given(data=st.data(), stage=open_stages())
def test_one_unit_moves_a_stage_with_chosen_bounds_by_no_more_than_its_plan(
    data: st.DataObject, stage: StagePlan
) -> None:
    values = st.one_of(st.sampled_from([-1e300, -3.0, 0.0, 0.5, 10.0, 1e300]), st.none())
    place = st.sampled_from([f"p{n}" for n in range(6)]) if stage.layout.public is None else st.sampled_from("abcd")
    row = st.tuples(place, values, st.sampled_from("xyz"))
    others = [(data.draw(st.sampled_from([2, 3])), *drawn) for drawn in data.draw(st.lists(row, max_size=6))]
    mine = [(1, *drawn) for drawn in data.draw(st.lists(row, min_size=1, max_size=20))]
    if stage.layout.public is None and data.draw(st.booleans()):
        mine = list(everywhere(200, 50, 10.0))
    smaller, extra = table_of(others), table_of(mine)
    pair = nb.Neighbours(smaller=smaller, extra=extra, places=(0,) * extra.num_rows, layout=stage.layout, statistics=())
    for chosen in data.draw(st.lists(st.sampled_from(pairs(stage)), min_size=1, max_size=4)):
        assert beyond(pair, stage, resolve.with_partitions(stage, *chosen)) == []


@functools.cache
def plan_of(law: str) -> dp.Plan:
    """A plan with both bounds open."""
    public = PublicPartitions(keys=[("a",), ("b",)])
    if law == "laplace":
        asked = query([1, 2], [1, 4, 16], partitions=public)
        return dp.Plan(epsilon=2.0, delta=0.0, stages={"s": asked})
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query([1, 5, 16], [1, 4, 16])})


def test_a_bound_on_rows_that_is_not_kept_is_found() -> None:
    """The bound of the resolved stage decides its lattice: rows that were bounded by a larger one would move too much."""
    for law in ("gaussian", "laplace"):
        stage = plan_of(law)["s"]
        ready = resolve.with_partitions(stage, 1, 1)
        rows = table_of([(1, "a", 10.0, f"k{number}") for number in range(160)])
        pair = nb.Neighbours(
            smaller=rows.slice(0, 0), extra=rows, places=(0,) * 160, layout=ready.layout, statistics=()
        )
        assert beyond(pair, stage, ready) == []
        loose = dataclasses.replace(ready, layout=dataclasses.replace(ready.layout, max_rows_per_partition=16))
        assert beyond(pair, stage, loose) != []


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_that_is_not_scaled_by_the_chosen_pair_does_not_run(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the release steps of the smallest pair, and so its noise, the largest would move four times as much."""
    stage = plan_of(law)["s"]
    most = tuple(candidates[-1] for candidates in zip(*pairs(stage), strict=True))
    resolve.with_partitions(stage, *most)
    monkeypatch.setattr(reserve, "steps_at", lambda whole, law, steps, shape: 4 * steps)
    with pytest.raises(AssertionError, match="costs more than the plan says"):
        resolve.with_partitions(stage, *most)


@pytest.mark.parametrize("pair", [(2, 4), (5, 3), (None, 4), (5, None)])
def test_a_pair_that_is_no_candidate_does_not_run(pair: tuple[int | None, int | None]) -> None:
    with pytest.raises(AssertionError, match="none of the candidates"):
        resolve.with_partitions(plan_of("gaussian")["s"], *pair)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_no_pair_costs_more_than_the_plan_says(law: str) -> None:
    """By the accountant itself, on the records of the stage as it would be without a plan."""
    plan = plan_of(law)
    this = plan.round(1)
    others = [record for record in this.mechanisms if record.stage != "s"]
    paid = plan._budget.cost(list(this.mechanisms), runs=1)
    found = {record.kind: record.scale for record in this.stages["s"].mechanisms if record.scale is not None}
    scales = Scales(gaussian_scale=found.get("gaussian", Fraction(1)), laplace_scale=found.get("laplace", Fraction(1)))
    for pair in pairs(this.stages["s"]):
        ready = resolve.with_partitions(this.stages["s"], *pair)
        own = build_stage("s", ready.query, ready.choices, scales).mechanisms
        assert plan._budget.cost([*others, *own], runs=1) <= paid * (1 + 1e-3)


def test_an_audit_replays_the_extreme_pairs_and_compares_the_records_of_all() -> None:
    found = audit.audit(plan_of("gaussian"), replays=1000, false_alarms=1e-10)
    assert found.agrees
    replayed = [line.name for line in found.lines if line.name.startswith("s, ")]
    assert replayed == ["s, smallest bound on partitions", "s, smallest bound on rows", "s, smallest bounds"]


def test_an_audit_finds_a_pair_that_a_run_could_choose_and_that_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the largest nor the smallest pair, so that no replay sees it."""
    real = resolve.with_partitions

    def careless(stage: StagePlan, partitions: int | None, rows: int | None = None) -> StagePlan:
        ready = real(stage, partitions, rows)
        if (partitions, rows) != (5, 4):
            return ready
        halved = tuple(n if n is None else dataclasses.replace(n, step=max(n.step // 2, 1)) for n in ready.noises)
        return dataclasses.replace(ready, noises=halved)

    monkeypatch.setattr(resolve, "with_partitions", careless)
    assert not audit.audit(plan_of("gaussian"), replays=1000, false_alarms=1e-10).agrees


# What is refused.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": {"v": dp.VectorSum("w0", size=3, norm="l2", max_norm=1.0)} | {"n": dp.Count()}}, "is a choice, or a norm"),
        ({"metrics": {"n": dp.Count(stddev=9.0)}}, "bound on partitions that the run chooses"),
        ({"metrics": {"max_contributions_per_partition": dp.Count()}}, "is the name of a bound in bounds.json"),
        ({"partition_by": "_rows"}, "no column may be called '_rows'"),
    ],
)  # fmt: skip
def test_what_cannot_have_open_bounds_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        query([1, 4], [1, 4], **changes)


def test_coins_of_selection_may_stand_beside_an_open_bound_on_rows_alone() -> None:
    """Their number follows from the bound on partitions, and nothing about them from the bound on rows."""
    coins = PrivatePartitions(strategy="truncated_geometric")
    asked = query(None, [1, 4, 16], partitions=coins)
    stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
    assert stage.choices.strategy == "truncated_geometric"
    assert resolve.with_partitions(stage, None, 4).selection == stage.selection
    with pytest.raises(RequestError, match="is truncated_geometric, which cannot be combined"):
        query([1, 4], [1, 4], partitions=coins)
