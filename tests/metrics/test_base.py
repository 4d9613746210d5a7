"""Metrics: what they refuse, which statistics they need, and that without noise they end where numpy does."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import Lattice, SummandLattice, logarithms
from dp_pipelines.kernels.statistics import ClippedUnitSum, NotNullCount, Statistic, ValueSum
from dp_pipelines.metrics.base import ROWS, UNITS, Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.metrics.geometric_mean import GeometricMean
from dp_pipelines.metrics.sums import Mean, Sum, Variance

BASES = [Basis(centred=centred, nullable=nullable) for centred in (False, True) for nullable in (False, True)]
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, "3", None, 1e300, -1e300, [1]]
NOT_NULL = NotNullCount(column="a")


# What is refused.

Wrong = tuple[Callable[[], Any], str, str]

WRONG: list[Wrong] = [
    *[
        (lambda make=make: make(None, min_value=1, max_value=2), "column", "must be a name")
        for make in (Sum, Mean, Variance, GeometricMean)
    ],
    *[
        (lambda make=make: make("__a", min_value=0, max_value=1), "column", "two underscores; rename")
        for make in (Sum, Mean)
    ],
    *[
        (lambda make=make: make("a", min_value=2, max_value=1), "min_value", "must not be above max_value; swap")
        for make in (Sum, Mean)
    ],
    (lambda: Sum("a", min_value=0, max_value=0), "max_value", "leaves only the value 0 to sum; widen the range"),
    (lambda: Sum("a", min_value=0.0, max_value=5e-324), "min_value, max_value", "vanishes; choose finite bounds"),
    (lambda: Mean("a", min_value=1, max_value=1), "min_value", "must be below max_value; widen the range"),
    (lambda: Mean("a", min_value=0, max_value=1, nullable=1), "nullable", "must be true or false"),
    (lambda: Mean("a", min_value=0, max_value=1, nullable=None), "nullable", "must be true or false"),
    (lambda: GeometricMean("a", min_value=0, max_value=1), "min_value", "must be a finite number above 0 and below"),
    (lambda: GeometricMean("a", min_value=-1, max_value=1), "min_value", "above 0 .*; declare what a value can be"),
    (lambda: GeometricMean("a", min_value=2, max_value=2), "min_value", "must be below max_value; widen the range"),
    (lambda: GeometricMean("a", min_value=1, max_value="auto"), "max_value", "must be a number, not str; declare"),
    (lambda: GeometricMean("a", min_value=1e9, max_value=1e9 + 1e-7), "min_value, max_value", "a range that is empty"),
    (lambda: GeometricMean("a", min_value=1, max_value=2, nullable=1), "nullable", "must be true or false"),
    (lambda: GeometricMean("a", min_value=1, max_value=2, stddev=1), "stddev", "depends on how many rows"),
    (lambda: Variance("a", min_value=0, max_value=1e155), "min_value, max_value", "its square.* overflows"),
    (lambda: Variance("a", min_value=0, max_value=1e-160), "min_value, max_value", "vanishes; choose finite bounds"),
    (
        lambda: Sum("a", min_sum_per_partition=0, max_sum_per_partition=1, max_value=1),
        "min_sum_per_partition",
        "beside no bounds of single values; drop",
    ),
    (
        lambda: Sum("a", min_sum_per_partition=2, max_sum_per_partition=1),
        "min_sum_per_partition",
        "must not be above .*; swap",
    ),
    (lambda: Sum("a", max_sum_per_partition=1), "min_sum_per_partition", "must be a number, not NoneType"),
    (lambda: Sum("a", min_sum_per_partition=1), "max_sum_per_partition", "must be a number, not NoneType"),
    (
        lambda: Sum("a", min_sum_per_partition=0, max_sum_per_partition=0),
        "min_sum_per_partition, max_sum_per_partition",
        "not both zero",
    ),
    (
        lambda: Sum("a", min_sum_per_partition=0, max_sum_per_partition=1.7e308),
        "min_sum_per_partition, max_sum_per_partition",
        r"2\*\*1000",
    ),
]


@pytest.mark.parametrize(("make", "field", "message"), WRONG)
def test_what_is_wrong_is_refused_with_field_message_and_hint(
    make: Callable[[], Any], field: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        make()
    assert caught.value.field == field
    assert caught.value.hint or "must" in caught.value.message, "a message without a hint says itself what to write"


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("make", [Sum, Mean, Variance])
@pytest.mark.parametrize("field", ["min_value", "max_value"])
def test_a_bound_that_is_no_number_is_refused_with_advice(make: Callable[..., Any], field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^{field}: must be a .*; declare what a value can be") as caught:
        make("a", **{"min_value": 0, "max_value": 1, field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("value", [v for v in NO_NUMBERS if v is not None and v not in (1e300, -1e300)], ids=repr)
@pytest.mark.parametrize("field", ["min_sum_per_partition", "max_sum_per_partition"])
def test_a_bound_of_sums_that_is_no_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^{field}: must be a "):
        Sum("a", **{"min_sum_per_partition": 0, "max_sum_per_partition": 1, field: value})


def test_bounds_become_plain_floats() -> None:
    total = Sum("a", min_value=np.int64(-1), max_value=np.float32(0.5))
    assert (type(total.min_value), type(total.max_value)) == (float, float)
    assert total == Sum("a", min_value=-1.0, max_value=0.5)


# Which statistics.


@pytest.mark.parametrize("basis", BASES, ids=str)
def test_each_metric_names_its_statistics(basis: Basis) -> None:
    count = NOT_NULL if basis.nullable else ROWS
    total = ValueSum(column="a", lattice=Lattice.for_values(0.0, 9.0, centred=basis.centred))
    squares = ValueSum(column="a", lattice=Lattice.for_squares(0.0, 9.0, centred=basis.centred))
    ends = {"min_value": 0, "max_value": 9}
    assert Count().statistics(basis) == (ROWS,)
    assert PrivacyIdCount().statistics(basis) == (UNITS,)
    assert Sum("a", **ends).statistics(basis) == ((total, count) if basis.centred else (total,))
    assert Mean("a", **ends).statistics(basis) == (total, count)
    assert Variance("a", **ends).statistics(basis) == (total, count, squares)
    of_logarithms = Lattice.for_values(0.5, 9.0, centred=True, through=logarithms)
    in_logarithms = ValueSum(column="a", lattice=of_logarithms)
    assert GeometricMean("a", min_value=0.5, max_value=9).statistics(basis) == (in_logarithms, count)
    clipped = Sum("a", min_sum_per_partition=-1, max_sum_per_partition=2)
    assert clipped.statistics(basis) == (ClippedUnitSum(column="a", lattice=SummandLattice.for_sums(-1.0, 2.0)),)


def test_metrics_over_the_same_values_are_a_family() -> None:
    ends = {"min_value": 0, "max_value": 9}
    assert {m.family for m in (Sum("a", **ends), Mean("a", **ends), Variance("a", **ends))} == {("a", 0.0, 9.0)}
    assert Count().family is PrivacyIdCount().family is None
    assert Sum("a", min_sum_per_partition=0, max_sum_per_partition=9).family is None


def test_a_bound_of_minus_zero_is_zero() -> None:
    def asked(zero: float) -> list[Metric]:
        ends = {"min_value": zero, "max_value": 9}
        clipped = Sum("a", min_sum_per_partition=zero, max_sum_per_partition=9)
        return [Sum("a", **ends), Mean("a", **ends), clipped, Sum("a", min_value=-9, max_value=zero)]

    for plain, minus in zip(asked(0.0), asked(-0.0), strict=True):
        assert repr(minus) == repr(plain)
        basis = Basis(centred=False, nullable=True)
        assert [repr(s) for s in minus.statistics(basis)] == [repr(s) for s in plain.statistics(basis)]


def test_which_metrics_look_at_rows() -> None:
    ends = {"min_value": 0, "max_value": 9}
    assert all(m.needs_row_bound for m in (Count(), Sum("a", **ends), Mean("a", **ends), Variance("a", **ends)))
    assert not PrivacyIdCount().needs_row_bound
    assert not Sum("a", min_sum_per_partition=0, max_sum_per_partition=9).needs_row_bound


def test_a_metric_without_statistics_is_no_metric() -> None:
    with pytest.raises(NotImplementedError):
        Metric().statistics(BASES[0])
    with pytest.raises(NotImplementedError):
        Metric().finish({}, BASES[0])


# How they end. Without noise, statistics are those that the lattice gives for the values of each partition.


def exact(metric: Metric, basis: Basis, partitions: list[list[float | None]]) -> dict[Statistic, Noisy]:
    """The statistics of a metric for partitions of values, null among them, with no noise."""
    found = {}
    for statistic in metric.statistics(basis):
        numbers = []
        for values in partitions:
            present = np.array([value for value in values if value is not None], np.float64)
            if statistic.kind == "rows":
                numbers.append(float(len(values)))
            elif statistic.kind == "not_null":
                numbers.append(float(len(present)))
            else:
                assert statistic.lattice is not None
                numbers.append(float(statistic.lattice.integers(present).sum()) * statistic.fine_step)
        found[statistic] = Noisy(values=np.array(numbers), stddev=0.0)
    return found


VALUES = st.lists(st.one_of(st.none(), st.floats(-20, 20)), min_size=1, max_size=30)
PARTITIONS = st.lists(VALUES.filter(lambda values: any(value is not None for value in values)), min_size=1, max_size=4)
RANGES = st.sampled_from([(0.0, 10.0), (-5.0, 5.0), (-20.0, -3.0), (0.125, 0.25)])


def clipped(values: list[float | None], low: float, high: float) -> NDArray[np.float64]:
    return np.clip(np.array([value for value in values if value is not None]), low, high)


@given(PARTITIONS, RANGES, st.booleans())
def test_without_noise_a_sum_is_numpys(
    partitions: list[list[float | None]], ends: tuple[float, float], centred: bool
) -> None:
    total, basis = Sum("a", min_value=ends[0], max_value=ends[1]), Basis(centred=centred, nullable=True)
    values, stddevs = total.finish(exact(total, basis, partitions), basis)
    assert values == pytest.approx([clipped(of, *ends).sum() for of in partitions], abs=1e-5)
    assert not stddevs.any()


@given(PARTITIONS, RANGES, st.booleans())
def test_without_noise_a_mean_is_numpys(
    partitions: list[list[float | None]], ends: tuple[float, float], centred: bool
) -> None:
    mean, basis = Mean("a", min_value=ends[0], max_value=ends[1]), Basis(centred=centred, nullable=True)
    values, stddevs = mean.finish(exact(mean, basis, partitions), basis)
    assert values == pytest.approx([clipped(of, *ends).mean() for of in partitions], abs=1e-6)
    assert not stddevs.any()


@given(PARTITIONS, st.sampled_from([(1.0, 10.0), (1e-3, 15.0), (0.125, 0.25)]))
def test_without_noise_a_geometric_mean_is_that_of_the_clamped_values(
    partitions: list[list[float | None]], ends: tuple[float, float]
) -> None:
    mean, basis = GeometricMean("a", min_value=ends[0], max_value=ends[1]), BASES[1]
    values, stddevs = mean.finish(exact(mean, basis, partitions), basis)
    assert values == pytest.approx([math.exp(np.log(clipped(of, *ends)).mean()) for of in partitions], rel=1e-7)
    assert not stddevs.any()


@given(PARTITIONS, RANGES, st.booleans())
def test_without_noise_a_variance_is_numpys(
    partitions: list[list[float | None]], ends: tuple[float, float], centred: bool
) -> None:
    variance, basis = Variance("a", min_value=ends[0], max_value=ends[1]), Basis(centred=centred, nullable=True)
    values, stddevs = variance.finish(exact(variance, basis, partitions), basis)
    assert values == pytest.approx([clipped(of, *ends).var() for of in partitions], abs=1e-5)
    assert not stddevs.any()


@pytest.mark.parametrize("centred", [False, True])
def test_a_null_in_a_column_declared_without_nulls_counts_as_a_row_that_adds_nothing(centred: bool) -> None:
    basis = Basis(centred=centred, nullable=False)
    mean = Mean("a", min_value=0, max_value=10, nullable=False)
    values, _ = mean.finish(exact(mean, basis, [[4.0, 4.0, None, None]]), basis)
    # Nothing is added to the sum from where it is counted: from 0, or from the middle.
    assert values == pytest.approx([4.5 if centred else 2.0])
    geometric = GeometricMean("a", min_value=1, max_value=16, nullable=False)
    values, _ = geometric.finish(exact(geometric, basis, [[16.0, 16.0, None, None]]), basis)
    assert values == pytest.approx([8.0])  # a null is 4 here, the middle of the logarithms


def noisy(metric: Metric, basis: Basis, numbers: dict[str, float], stddev: float = 1.0) -> dict[Statistic, Noisy]:
    """Statistics of one partition with given values by kind, squares as `squares`."""

    def kind(statistic: Statistic) -> str:
        return "squares" if isinstance(statistic.lattice, Lattice) and statistic.lattice.square else statistic.kind

    return {s: Noisy(values=np.array([numbers[kind(s)]]), stddev=stddev) for s in metric.statistics(basis)}


def test_counts_and_plain_sums_are_their_statistic() -> None:
    basis = BASES[0]
    for metric, statistic in (
        (Count(), ROWS),
        (PrivacyIdCount(), UNITS),
        (Sum("a", min_value=0, max_value=9), Sum("a", min_value=0, max_value=9).statistics(basis)[0]),
        (c := Sum("a", min_sum_per_partition=0, max_sum_per_partition=9), c.statistics(basis)[0]),
    ):
        given_noisy = {statistic: Noisy(values=np.array([7.5, -3.25]), stddev=2.5)}
        values, stddevs = metric.finish(given_noisy, basis)
        assert values.tolist() == [7.5, -3.25]
        assert stddevs.tolist() == [2.5, 2.5]


@pytest.mark.parametrize("count", [-50.0, 0.0, 0.4])
@pytest.mark.parametrize("total", [-1e9, 0.0, 1e9])
@pytest.mark.parametrize("basis", BASES, ids=str)
def test_means_and_variances_of_next_to_nobody_stay_in_their_range(count: float, total: float, basis: Basis) -> None:
    numbers = {"sum": total, "squares": -total, "rows": count, "not_null": count}
    mean = Mean("a", min_value=-2, max_value=10)
    values, stddevs = mean.finish(noisy(mean, basis, numbers), basis)
    assert -2 <= values[0] <= 10
    assert np.isfinite(stddevs[0])
    assert stddevs[0] > 0
    geometric = GeometricMean("a", min_value=0.1, max_value=10)
    values, stddevs = geometric.finish(noisy(geometric, basis, numbers), basis)
    assert 0.1 <= values[0] <= 10
    assert np.isfinite(stddevs[0])
    assert stddevs[0] > 0
    variance = Variance("a", min_value=-2, max_value=10)
    values, stddevs = variance.finish(noisy(variance, basis, numbers), basis)
    assert 0 <= values[0] <= 36
    assert np.isfinite(stddevs[0])
    assert stddevs[0] > 0


def spread(metric: Metric, basis: Basis) -> tuple[float, float]:
    """The standard deviation of a metric over noise, by simulation, and as it is published."""
    chance = np.random.default_rng(20_26)  # fixed: a test that fails by chance is no test
    partition = [float(value) for value in chance.uniform(1.0, 9.0, 4000)]
    truth = exact(metric, basis, [partition])
    stddevs = {"rows": 15.0, "not_null": 15.0, "sum": 40.0}
    size = 200_000
    drawn = {
        statistic: Noisy(
            values=exactly.values[0] + chance.normal(0, stddevs[statistic.kind], size), stddev=stddevs[statistic.kind]
        )
        for statistic, exactly in truth.items()
    }
    values, _ = metric.finish(drawn, basis)
    at_truth = {s: Noisy(values=n.values, stddev=stddevs[s.kind]) for s, n in truth.items()}
    return float(values.std()), float(metric.finish(at_truth, basis)[1][0])


METRICS = [
    Sum("a", min_value=0, max_value=20),
    Mean("a", min_value=0, max_value=20),
    Variance("a", min_value=0, max_value=20),
    GeometricMean("a", min_value=0.5, max_value=1e6),
]


@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("metric", METRICS, ids=lambda m: type(m).__name__)
def test_the_published_standard_deviation_is_that_of_the_noise_to_first_order(metric: Metric, basis: Basis) -> None:
    simulated, published = spread(metric, basis)
    assert published == pytest.approx(simulated, rel=0.01)


def _without_the_noise_of_the_count(noisy: Mapping[Statistic, Noisy]) -> dict[Statistic, Noisy]:
    return {s: Noisy(values=n.values, stddev=0.0 if s in (ROWS, NOT_NULL) else n.stddev) for s, n in noisy.items()}


@pytest.mark.parametrize(
    ("metric", "basis"),
    [
        (METRICS[0], BASES[2]),
        (METRICS[1], BASES[0]),
        (METRICS[1], BASES[2]),
        (METRICS[2], BASES[0]),
        (METRICS[3], BASES[1]),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_standard_deviation_that_forgets_the_count_is_found(
    metric: Metric, basis: Basis, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = type(metric).finish

    def forgetful(self: Metric, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        return finish(self, noisy, basis)[0], finish(self, _without_the_noise_of_the_count(noisy), basis)[1]

    monkeypatch.setattr(type(metric), "finish", forgetful)
    simulated, published = spread(metric, basis)
    assert published != pytest.approx(simulated, rel=0.01)
