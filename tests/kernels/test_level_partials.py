"""Partial aggregates of coarser groups: against plain Python over the same kept rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.kernels import accumulate, bounding, contributions
from dp_pipelines.kernels.bounding import KeptPairs
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import ClippedUnitSum, RowCount, UnitCount, ValueSum
from tests.helpers.examples import examples

VALUES = Lattice.for_values(-1.0, 3.0)
CLIPPED = SummandLattice.for_sums(-2.0, 4.0)
SUMS = (RowCount(), ValueSum(column="amount", lattice=VALUES), ClippedUnitSum(column="amount", lattice=CLIPPED))
STATISTICS = (*SUMS, UnitCount())
LEVELS = ([], [0], [0, 1])
SALT = 7


def rows(seed: int, size: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {
        "who": random.integers(0, 12, size),
        "region": pa.array([[None, "n", "s"][i] for i in random.integers(0, 3, size)], pa.string()),
        "week": random.integers(0, 4, size),
        "store": random.integers(0, 2, size),
        "amount": random.normal(size=size),
    }
    return pa.table(columns)


def layout(**bounds: int | None) -> Layout:
    return Layout(
        units=("who",),
        partitions=("region", "week", "store"),
        values=(("amount", VALUES),),
        summands=() if bounds.get("max_rows") else (("amount", CLIPPED),),
        **{"max_partitions": 5, "max_rows_per_partition": 2, **bounds},  # type: ignore[arg-type]
    )


def by_group(table: pa.Table, places: list[int], statistics: tuple) -> dict[tuple, list[int]]:
    """The integers of groups, added up over the rows of partial aggregates."""
    found: dict[tuple, list[int]] = {}
    for row in table.to_pylist():
        key = tuple(row[f"p{place}"] for place in places)
        mine = found.setdefault(key, [0] * len(statistics))
        for i in range(len(statistics)):
            mine[i] += row[f"a{i}"]
    return found


@pytest.mark.parametrize(
    "bounds", [{}, {"max_rows": 6, "max_partitions": 6}], ids=["rows of partitions", "rows in all"]
)
@settings(max_examples=examples(50, 200), deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 200))
def test_sums_of_leaves_are_the_sums_of_their_groups(bounds: dict[str, int], seed: int, size: int) -> None:
    sums = SUMS[:2] if bounds else SUMS
    wire = layout(**bounds).wire(rows(seed, size))
    leaves, *above = accumulate.partials_of_levels(wire, layout(**bounds), sums, SALT, LEVELS)
    for places, table in zip(LEVELS, above, strict=True):
        if size or places:
            assert by_group(table, list(range(len(places))), sums) == by_group(leaves, places, sums)


@pytest.mark.parametrize("marks", [0, 32], ids=["sorted", "marked"])
@settings(max_examples=examples(50, 200), deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 200))
def test_a_unit_counts_once_in_each_group(marks: int, seed: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounding, "MARKS", marks)
        _check_units(seed, size)


def _check_units(seed: int, size: int) -> None:
    wire = layout().wire(rows(seed, size))
    kept = contributions.bound(wire, layout(), SALT).bounded.rows
    pairs = wire.take(pa.array(kept)).to_pylist()
    _, *above = accumulate.partials_of_levels(wire, layout(), STATISTICS, SALT, LEVELS)
    for places, table in zip(LEVELS, above, strict=True):
        units: dict[tuple, set] = {}
        for row in pairs:
            units.setdefault(tuple(row[f"p{place}"] for place in places), set()).add(row["u0"])
        found = {tuple(row[f"p{i}"] for i in range(len(places))): row["a3"] for row in table.to_pylist()}
        assert found == {key: len(who) for key, who in units.items()}


def test_no_rows_are_no_groups() -> None:
    wire = layout().wire(rows(1, 0))
    assert [t.num_rows for t in accumulate.partials_of_levels(wire, layout(), STATISTICS, SALT, LEVELS)] == [0] * 4


@pytest.mark.parametrize("marks", [0, 32], ids=["sorted", "marked"])
def test_adding_up_the_units_of_leaves_would_count_them_twice(marks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounding, "MARKS", marks)
    # Two units, of which one is in both leaves of the one group.
    pairs = KeptPairs(rows=np.array([0, 1, 0]), first_of_unit=np.array([True, False, True]))
    assert pairs.units_of(np.zeros(2, np.int64), 1).tolist() == [2]
    assert pairs.units_of(np.arange(2), 2).sum() == 3


def test_the_finest_level_is_what_a_stage_without_levels_has() -> None:
    wire = layout().wire(rows(3, 150))
    alone = accumulate.partials(wire, layout(), STATISTICS, SALT)
    assert accumulate.partials_of_levels(wire, layout(), STATISTICS, SALT, LEVELS)[0].equals(alone)
