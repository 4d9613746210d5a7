"""The statistics of the accuracy benchmark, against what is known."""

import doctest

import numpy as np
import pytest
from scipy import stats


def test_the_error_of_a_run_is_over_the_asked_partitions_only(load):
    errors = load("errors")
    released = np.array([[3.0, 10.0, np.nan], [np.nan, np.nan, np.nan]])
    where = np.array([[True, True, False], [False, False, False]])
    found = errors.rmse(released, np.array([0.0, 6.0, 7.0]), where)
    assert found[0] == pytest.approx(np.sqrt((9 + 16) / 2))
    assert np.isnan(found[1])


def test_a_run_without_partitions_counts_neither_as_good_nor_as_bad(load):
    errors = load("errors")
    assert errors.mean_interval(np.array([np.nan, 2.0, 2.0])).value == 2.0
    assert np.isnan(errors.mean_interval(np.array([np.nan])).value)
    assert np.isnan(errors.ratio_interval(np.array([np.nan, 1.0]), np.array([1.0, 1.0])).low)


def test_the_interval_covers_the_mean_about_as_often_as_it_says(load):
    errors = load("errors")
    random = np.random.default_rng(1)
    found = [errors.mean_interval(random.normal(5, 2, 10)) for _ in range(2_000)]
    covered = np.mean([interval.low <= 5 <= interval.high for interval in found])
    # 95% of 2,000: standard deviation 0.5 points; the seed is fixed, so that this never flickers
    assert 0.93 < covered < 0.97


def test_a_ratio_that_is_not_one_is_told_from_one(load):
    errors = load("errors")
    random = np.random.default_rng(2)
    different = errors.ratio_interval(random.normal(15, 1, 30), random.normal(10, 1, 30))
    assert different.low > 1.3
    assert different.high < 1.7
    equal = errors.ratio_interval(random.normal(10, 1, 30), random.normal(10, 1, 30))
    assert equal.low < 1 < equal.high


@pytest.mark.parametrize("name", ["errors", "gates"])
def test_the_examples_run(load, name):
    result = doctest.testmod(load(name), globs={**vars(load(name)), "np": np}, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_wider_interval_misses_more_rarely(load):
    errors, values = load("errors"), np.array([1.0, 2.0, 4.0, 7.0])
    usual, wide = errors.mean_interval(values), errors.mean_interval(values, outside=1e-10)
    assert usual == errors.mean_interval(values, outside=0.05)
    assert usual.value == wide.value
    assert stats.t.sf((wide.high - 3.5) / (values.std(ddof=1) / 2), 3) == pytest.approx(0.5e-10)
