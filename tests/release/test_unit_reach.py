"""How far a unit moves a statistic, by the count of the gate: against planning's count, and against every way to round.

In: whole numbers that a statistic may state. Out: the steps of a release. Holds: the two counts share no code, so that a fault in
one of them is a difference. Not covered: what each statistic states (tests/audit/test_recount.py).
"""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.planning import reserve, stage
from dp_pipelines.query.contribution_bounds import ContributionBounds
from dp_pipelines.release.unit_reach import DeclaredBounds, Reach, reach

few, steps = st.integers(1, 12), st.integers(1, 40)


@st.composite
def moved(draw: st.DrawFn, *, vectors: bool) -> tuple[Reach, Shape]:
    """The same change, as both counts state it."""
    coordinates, largest = draw(few), draw(few)
    fields = {"unit": draw(st.integers(1, 60)), "coordinates": coordinates, "per_coordinate": largest}
    fields["in_total"] = draw(st.integers(largest, largest * coordinates) | st.just(largest))
    squares = draw(st.integers(largest**2, largest * fields["in_total"])) if vectors else None
    return Reach(**fields, squares=squares), Shape(**fields, squares=squares)


@given(both=moved(vectors=False) | moved(vectors=True), step=steps, joined=st.booleans())
@settings(max_examples=300)
def test_both_counts_round_a_change_alike(both: tuple[Reach, Shape], step: int, joined: bool) -> None:
    own, shape = both
    assert own.rounded(step, joined=joined) == shape.steps(step, joined=joined)


@given(both=moved(vectors=False) | moved(vectors=True), exactly=steps, units=few)
@settings(max_examples=200)
def test_both_counts_take_whole_steps_alike(both: tuple[Reach, Shape], exactly: int, units: int) -> None:
    own, shape = both
    assert own.exactly(exactly, units) == shape.ideally(exactly, units)


@given(both=moved(vectors=False), leaves=st.none() | few, groups=st.none() | few)
@settings(max_examples=200)
def test_both_counts_add_up_groups_alike(both: tuple[Reach, Shape], leaves: int | None, groups: int | None) -> None:
    (own, shape), fields = both, ("unit", "coordinates", "per_coordinate", "in_total", "squares")
    found, planned = own.grouped(leaves, groups), shape.in_groups(leaves, groups)
    assert [getattr(found, field) for field in fields] == [getattr(planned, field) for field in fields]


@given(
    both=moved(vectors=False), candidates=st.lists(few, min_size=2, max_size=4, unique=True).map(sorted), exactly=steps
)
def test_both_counts_pay_for_all_candidates_of_a_bound_alike(
    both: tuple[Reach, Shape], candidates: list[int], exactly: int
) -> None:
    found, planned = both[0].reserved(candidates), reserve.reserved(both[1], candidates)
    assert found.exactly(exactly, 1) == planned.ideally(exactly)


def changes(unit: int, coordinates: int, largest: int, total: int, step: int) -> list[tuple[int, ...]]:
    """Every way in which rounded totals may move: by whole units, of which all that fall on one integer come together."""
    units = [way for way in itertools.product(range(largest + 1), repeat=coordinates) if sum(way) <= total]
    # Rounding is halves up; by how much it moves a total depends on where the total was before.
    moves = [
        max((before + n * unit + step // 2) // step - (before + step // 2) // step for before in range(step))
        for n in range(largest + 1)
    ]
    return [tuple(moves[n] for n in way) for way in units]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(("unit", "step"), [(1, 1), (6, 3), (5, 3), (3, 7), (1, 9)])
@pytest.mark.parametrize(("coordinates", "largest", "total"), [(1, 1, 1), (3, 1, 3), (2, 3, 5), (3, 3, 3), (2, 4, 4)])
def test_no_way_to_round_moves_more_than_the_gate_asks_for(
    joined: bool, unit: int, step: int, coordinates: int, largest: int, total: int
) -> None:
    own = Reach(unit=unit, coordinates=coordinates, per_coordinate=largest, in_total=total)
    stated, ways = own.rounded(step, joined=joined), changes(unit, coordinates, largest, total, step)
    assert max(sum(move > 0 for move in way) for way in ways) == stated.l0
    assert max(map(max, ways)) <= stated.linf
    assert max(map(sum, ways)) <= stated.l1
    assert max(sum(move**2 for move in way) for way in ways) <= stated.l2_squared
    if unit % step == 0:  # then rounding adds nothing, and the ends are reached
        assert (max(map(max, ways)), max(map(sum, ways))) == (stated.linf, stated.l1)


def test_a_bound_that_a_run_chooses_is_the_largest_of_its_candidates() -> None:
    fixed = {"max_partitions_contributed": 3, "max_contributions_per_partition": 5}
    assert DeclaredBounds.of(ContributionBounds(**fixed)) == DeclaredBounds(
        partitions=3, rows_of_partition=5, rows=None
    )
    open_partitions = fixed | {"max_partitions_contributed": "auto", "partition_candidates": [2, 4, 7]}
    assert DeclaredBounds.of(ContributionBounds(**open_partitions)).partitions == 7
    open_rows = fixed | {"max_contributions_per_partition": "auto", "row_candidates": [2, 4, 9]}
    assert DeclaredBounds.of(ContributionBounds(**open_rows)).rows_of_partition == 9
    in_all = DeclaredBounds.of(ContributionBounds(max_contributions=6))
    assert in_all == DeclaredBounds(partitions=6, rows_of_partition=6, rows=6)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 9, 50])
@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_both_counts_of_a_sum_of_vectors_agree_whether_or_not_their_size_is_a_square(
    norm: str, size: int, partitions: int
) -> None:
    query = dp.Query(
        privacy_unit="who",
        partition_by="k",
        bounds=ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=1),
        metrics={"sum": dp.VectorSum("embedding", size=size, norm=norm, max_norm=2.0)},
        partitions=dp.PublicPartitions(keys=[("a",)]),
    )
    for statistic in stage.released_statistics(query, ()).values():
        found, planned = reach(statistic, query), stage.shape_of(statistic, query)
        assert dataclasses.astuple(found) == dataclasses.astuple(planned)
        # Cauchy-Schwarz in each partition: a vector with a norm of 1 has an L1 norm of at most the root of its size.
        if norm == "l2" and size > 1:
            assert found.in_total - 1 < partitions * math.sqrt(size) <= found.in_total * (1 + 1e-12)
