"""What is counted once for each unit: beside a plain program, and whatever the batches, shards, order and other units."""

import collections
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.kernels import amounts, contributions, unit_facts
from dp_pipelines.plan_stages import kept_counts
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.query.query import ContributionBounds, Query
from tests.helpers import kept
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples
from tests.privacy.test_sensitivity_of_kept import cases

ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([*"abc", None]), st.sampled_from([-1.0, 0.0, 3.0, 9.0, 11.0, None])),
    max_size=60,
)


def table_of(rows: list[tuple[int, str | None, float | None]]) -> pa.Table:
    """Rows of a unit u, a partition p and a value x."""
    return pa.table(
        {
            "u": pa.array([u for u, _, _ in rows], pa.int64()),
            "p": pa.array([p for _, p, _ in rows], pa.string()),
            "x": pa.array([x for _, _, x in rows], pa.float64()),
        }
    )


def asked(bounds: ContributionBounds, *, each_metric: bool = False, **changes: Any) -> Query:
    metrics: dict[str, dp.Metric] = {"users": dp.PrivacyIdCount()}
    if bounds.bounds_rows:
        metrics["paid"] = dp.Sum("x", min_value=0, max_value=10)
    kept_of = dp.Kept(share=0.1, up_to=16, each_metric=each_metric)
    return Query(privacy_unit="u", partition_by="p", bounds=bounds, metrics=metrics, kept=kept_of, **changes)


def kept_by_hand(rows: list[Any], unit: int, query: Query) -> int:
    """How many rows of a unit the bounds keep; which partitions it keeps, the hashes say."""
    mine = collections.Counter(p for u, p, _ in rows if u == unit)
    if query.bounds.max_contributions is not None:
        return min(sum(mine.values()), query.bounds.max_contributions)
    layout = kept_counts.layout_of(query, query.metrics)
    wire = unit_facts.wire_of(
        table_of([row for row in rows if row[0] == unit]), layout, (), nb.SALT, bounds_rows=query.bounds.bounds_rows
    )
    partitions = set(gathered(wire, contributions.bound(wire, layout, nb.SALT).bounded.rows))
    assert len(partitions) == min(len(mine), query.bounds.max_partitions)
    most = query.bounds.max_contributions_per_partition or len(rows)
    return sum(min(mine[partition], most) for partition in partitions)


def gathered(wire: pa.Table, rows: Any) -> list[str | None]:
    return list(wire.take(pa.array(rows)).column("p0").to_pylist())


BOUNDS = st.one_of(
    st.builds(ContributionBounds, max_contributions=st.integers(1, 8)),
    st.builds(ContributionBounds, max_partitions_contributed=st.integers(1, 3)),
    st.builds(
        ContributionBounds,
        max_partitions_contributed=st.integers(1, 3),
        max_contributions_per_partition=st.integers(1, 4),
    ),
)


@settings(max_examples=examples(150, 600), deadline=None)
@given(rows=ROWS, bounds=BOUNDS, frequent=st.sampled_from([0, 2, 64]), data=st.data())
def test_whole_units_and_parts_of_rows_are_those_of_a_plain_program(rows, bounds, frequent, data) -> None:
    query = asked(bounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "FREQUENT", frequent)
        made = kept.made_rows(table_of(rows), query, data.draw(nb.ways(len(rows))))
    found, cells = kept.vectors_of(made, ("u",)), KeptCounts.of(query).cells
    assert set(found) == {(str(u),) for u, _, _ in rows}
    for unit in {u for u, _, _ in rows}:
        vector, of_unit = found[(str(unit),)], [row for row in rows if row[0] == unit]
        number, stays = len(of_unit), kept_by_hand(rows, unit, query)
        assert vector[:2].tolist() == ([1, 0] if stays == number else [0, 1])
        parts = np.zeros((2, len(cells.edges)))
        cell = int(np.searchsorted(cells.edges, number, side="right")) - 1
        parts[:, cell] = stays * 1024 // number / 1024, 1 - stays * 1024 // number / 1024
        assert vector[2 : cells.before_clamped].tolist() == parts.ravel().tolist()


def bounded_by_hand(rows: list[Any], unit: int, query: Query) -> tuple[int, float]:
    """In how many partitions a unit is counted, and how much of its x, in parts of 10; which rows stay, the hashes say."""
    layout = kept_counts.layout_of(query, query.metrics)
    mine = table_of([row for row in rows if row[0] == unit])
    told_apart = query.columns if layout.cells else ()
    wire = unit_facts.wire_of(mine, layout, told_apart, nb.SALT, bounds_rows=query.bounds.bounds_rows)
    places = contributions.bound(wire, layout, nb.SALT).bounded.rows
    kept_rows = mine.take(pa.array(places)).to_pylist()
    return len({row["p"] for row in kept_rows}), sum(min(max(row["x"] or 0, 0), 10) for row in kept_rows) / 10


@settings(max_examples=examples(60, 600), deadline=None)
@given(rows=ROWS, bounds=BOUNDS, frequent=st.sampled_from([0, 2, 64]), data=st.data())
def test_parts_of_partitions_and_of_sums_are_those_of_a_plain_program(rows, bounds, frequent, data) -> None:
    query = asked(bounds, each_metric=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "FREQUENT", frequent)
        made = kept.made_rows(table_of(rows), query, data.draw(nb.ways(len(rows))))
    found, cells = kept.vectors_of(made, ("u",)), KeptCounts.of(query).cells
    assert cells.pairs[-1] == 16
    assert cells.sums == bounds.bounds_rows
    for unit in {u for u, _, _ in rows}:
        mine, vector = [row for row in rows if row[0] == unit], found[(str(unit),)]
        stay, paid = bounded_by_hand(rows, unit, query)
        whole = len({p for _, p, _ in mine})
        of_pairs = vector[cells.before_pairs : cells.before_sums].reshape(2, -1)
        cell = int(np.searchsorted(cells.pairs, whole, side="right")) - 1
        assert of_pairs[:, cell].tolist() == [stay * 1024 // whole / 1024, 1 - stay * 1024 // whole / 1024]
        assert of_pairs.sum() == 1
        if cells.sums:
            amount = sum(math.floor(max(x or 0, 0) / 10 * amounts.PARTS_OF_END) for _, _, x in mine)
            of_sum = vector[cells.before_sums : cells.before_facts].reshape(2, -1)
            cell = int(np.searchsorted(cells.amounts, amount, side="right")) - 1
            expected = paid * amounts.PARTS_OF_END / amount if amount else 1
            assert of_sum[0, cell] == pytest.approx(expected, abs=2e-3)
            assert of_sum.sum() == 1


@settings(max_examples=examples(150, 600), deadline=None)
@given(rows=ROWS, data=st.data())
def test_the_row_that_is_looked_at_is_one_of_the_unit_and_kept(rows, data) -> None:
    query = asked(ContributionBounds(max_contributions=60))  # all rows are kept, so any may be looked at
    found = kept.vectors_of(kept.made_rows(table_of(rows), query, data.draw(nb.ways(len(rows)))), ("u",))
    counts = KeptCounts.of(query)
    cells = counts.cells
    assert counts.columns == ("p", "x")
    for unit in {u for u, _, _ in rows}:
        mine = [(p, x) for u, p, x in rows if u == unit]
        vector = found[(str(unit),)]
        sides = [
            [float(x is not None and low <= x < high) for low, high in ((-9, 0), (0, 10.5), (10.5, 99))]
            for _, x in mine
        ]
        assert vector[cells.before_clamped : cells.before_facts].tolist() in sides
        facts = [[float(p is not None), float(p is None), float(x is not None), float(x is None)] for p, x in mine]
        assert vector[cells.before_facts :].tolist() in facts


@settings(max_examples=examples(80, 400), deadline=None)
@given(case=cases(), frequent=st.sampled_from([0, 1, 64]), bits=st.sampled_from([0, 1, 2**64 - 1]), order=st.randoms())
def test_order_batches_shards_and_other_units_change_no_vector_even_where_hashes_are_equal(
    case, frequent, bits, order
) -> None:
    pair, query, way, other = case
    places = list(range(pair.smaller.num_rows))
    order.shuffle(places)
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        straight = kept.vectors_of(kept.made_rows(pair.smaller, query), query.unit_columns)
        patch.setattr(contributions, "FREQUENT", frequent)
        shuffled = kept.vectors_of(
            kept.made_rows(pair.smaller.take(pa.array(places, pa.int64())), query, way), query.unit_columns
        )
        beside = kept.vectors_of(kept.made_rows(pair.larger, query, other), query.unit_columns)
    assert straight.keys() == shuffled.keys()
    for unit, vector in straight.items():
        assert vector.tolist() == shuffled[unit].tolist() == beside[unit].tolist()
    assert len(beside) <= len(straight) + 1


@pytest.mark.parametrize("frequent", [0, 1, 64])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_row_looked_at_is_the_same_in_any_order_where_all_hashes_are_equal(most: int, frequent: int) -> None:
    rows = [(1, "a", -1.0), (1, "a", 3.0), (1, "b", 11.0), (1, "b", 3.0)]
    query, found = asked(ContributionBounds(max_contributions=most)), []
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, 0)
        patch.setattr(contributions, "FREQUENT", frequent)
        for order in itertools.permutations(rows):
            for way in (nb.Way(), nb.Way(cuts=(1,)), nb.Way(cuts=(2,), backwards=True)):
                found.append(
                    kept.vectors_of(kept.made_rows(table_of(list(order)), query, way), ("u",))[("1",)].tolist()
                )
    assert found.count(found[0]) == len(found) == 72


def test_rows_reduced_before_the_shuffle_count_with_their_whole_amount() -> None:
    rows = [(1, "a", float(x)) for x in (1, 2, 4, 8)]
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    query = asked(bounds, each_metric=True)
    straight = kept.vectors_of(kept.made_rows(table_of(rows), query), ("u",))[("1",)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "FREQUENT", 0)
        reduced = kept.vectors_of(kept.made_rows(table_of(rows), query, nb.Way(cuts=(3,))), ("u",))[("1",)]
    assert reduced.tolist() == straight.tolist()


def test_among_different_rows_the_one_looked_at_is_as_good_as_drawn_at_random() -> None:
    """3,000 units with three rows above the clamp and seven within: the false alarm of 6.5 standard deviations is below 1e-10."""
    number = 3000
    values = np.concatenate([np.linspace(0, 9, 7 * number), np.linspace(11, 20, 3 * number)])
    units = np.concatenate([np.repeat(np.arange(number), 7), np.repeat(np.arange(number), 3)])
    rows = pa.table({"u": units, "p": ["a"] * 10 * number, "x": values})
    query = asked(ContributionBounds(max_contributions=4))
    counts = KeptCounts.of(query).cells

    def above(table: pa.Table) -> float:
        vectors = kept.vectors_of(kept.made_rows(table, query), ("u",)).values()
        return float(sum(vector[counts.before_clamped + 2] for vector in vectors))

    spread = (number * 0.3 * 0.7) ** 0.5
    assert abs(above(rows) - 0.3 * number) < 6.5 * spread
    few = rows.set_column(2, "x", pa.array(np.where(values > 10, 11.0, values)))  # equal rows count as one in the draw
    assert abs(above(few) - 0.3 * number) > 6.5 * spread


def test_many_facts_travel_in_words_of_64() -> None:
    flags = np.random.default_rng(1).random((50, 130)) < 0.5
    rows = unit_facts.facts_of_rows(pa.table({"u": range(50)}), ["u"], np.arange(50, dtype=np.uint64), flags)
    cells = unit_facts.UnitCells(edges=(1, 2), clamped=0, facts=130)
    vectors = unit_facts.vectors_of_facts(unit_facts.first_rows(rows), cells)
    assert (vectors[:, cells.before_facts :: 2] == flags).all()
    assert (vectors[:, cells.before_facts + 1 :: 2] == ~flags).all()
