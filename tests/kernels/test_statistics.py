"""Statistics: each has its own name, its lattice, and a shape that follows from the bounds."""

import itertools

import pytest

from dp_pipelines.kernels.lattice import Lattice, SummandLattice, logarithms
from dp_pipelines.kernels.statistics import (
    COUNT_BITS,
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

VALUES = Lattice.for_values(0.0, 200.0)
SUMS = SummandLattice.for_sums(-10.0, 500.0)
COUNTS = [RowCount(), NotNullCount(column="a")]
ONE = 1 << COUNT_BITS


def every_statistic() -> list[Statistic]:
    made = [*COUNTS, UnitCount(), UnitWeights(), NotNullCount(column="b")]
    for column, (low, high) in itertools.product(["a", "b", "a in [0.0, 1.0]"], [(0.0, 1.0), (0.0, 2.0), (1.0, 2.0)]):
        for make, centred in itertools.product((Lattice.for_values, Lattice.for_squares), (False, True)):
            made.append(ValueSum(column=column, lattice=make(low, high, centred=centred)))
        for centred in (False, True) if low > 0 else ():
            lattice = Lattice.for_values(low, high, centred=centred, through=logarithms)
            made.append(ValueSum(column=column, lattice=lattice))
        made.append(ClippedUnitSum(column=column, lattice=SummandLattice.for_sums(low, high)))
    return made


def test_two_statistics_share_a_name_only_if_they_are_the_same() -> None:
    names = [statistic.name for statistic in every_statistic()]
    assert len(set(names)) == len(names)


def test_raw_and_centred_sums_over_a_symmetric_range_are_one_statistic() -> None:
    raw, centred = (ValueSum(column="a", lattice=Lattice.for_values(-1.0, 1.0, centred=c)) for c in (False, True))
    assert raw == centred
    assert raw.name == centred.name


@pytest.mark.parametrize("statistic", COUNTS, ids=lambda s: s.kind)
def test_a_unit_moves_counts_of_rows_by_its_rows(statistic: Statistic) -> None:
    shape = statistic.shape(max_partitions=8, max_rows_per_partition=3, max_rows=None)
    assert shape == Shape(unit=3 * ONE, coordinates=8, per_coordinate=1, in_total=8)
    in_all = statistic.shape(max_partitions=5, max_rows_per_partition=5, max_rows=5)
    assert in_all == Shape(unit=ONE, coordinates=5, per_coordinate=5, in_total=5)


@pytest.mark.parametrize("max_rows", [None, 5])
def test_a_unit_counts_once_in_each_of_its_partitions(max_rows: int | None) -> None:
    shape = UnitCount().shape(max_partitions=5, max_rows_per_partition=5, max_rows=max_rows)
    assert shape == Shape(unit=ONE, coordinates=5, per_coordinate=1, in_total=5)


@pytest.mark.parametrize(
    "lattice", [VALUES, Lattice.for_values(-3.0, 200.0, centred=True), Lattice.for_squares(-3.0, 200.0)], ids=str
)
def test_a_unit_moves_a_sum_by_its_rows_times_the_largest_value(lattice: Lattice) -> None:
    statistic = ValueSum(column="a", lattice=lattice)
    shape = statistic.shape(max_partitions=8, max_rows_per_partition=3, max_rows=None)
    assert shape == Shape(unit=3 * lattice.largest, coordinates=8, per_coordinate=1, in_total=8)
    in_all = statistic.shape(max_partitions=5, max_rows_per_partition=5, max_rows=5)
    assert in_all == Shape(unit=lattice.largest, coordinates=5, per_coordinate=5, in_total=5)


def test_a_clipped_sum_moves_by_its_larger_bound_whatever_the_rows() -> None:
    statistic = ClippedUnitSum(column="a", lattice=SUMS)
    assert SUMS.largest * SUMS.step == 500.0
    for rows in (1, 1000):
        shape = statistic.shape(max_partitions=8, max_rows_per_partition=rows, max_rows=None)
        assert shape == Shape(unit=SUMS.largest, coordinates=8, per_coordinate=1, in_total=8)


def test_weights_have_an_l2_norm_instead_of_a_shape() -> None:
    with pytest.raises(ValueError, match="L2 norm"):
        UnitWeights().shape(max_partitions=1, max_rows_per_partition=1, max_rows=None)


def test_one_unit_of_change_is_what_a_release_says_it_is() -> None:
    assert all(s.fine_bits == COUNT_BITS and s.fine_step == 1 / ONE for s in (*COUNTS, UnitCount()))
    weights = UnitWeights()
    assert (weights.fine_bits, weights.fine_step) == (0, 2.0**-WEIGHT_BITS)
    total = ValueSum(column="a", lattice=VALUES)
    assert (total.fine_bits, total.fine_step * VALUES.largest) == (0, 200.0)
