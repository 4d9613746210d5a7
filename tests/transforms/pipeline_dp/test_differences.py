"""What the original does unsoundly or not at all, and the drop-in does: each beside the original, which shows that it is so."""

import concurrent.futures
import copy
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dp_pipelines.errors import RequestError
from tests.helpers.drop_in import M, Row, extractors, local, ours, theirs

BOUNDS = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
S = theirs.PartitionSelectionStrategy


def planned(params: Any, *, public: Any = None, epsilon: float = 1.0, delta: float = 1e-6, times: int = 1) -> Any:
    """The plan of some aggregations of a kind."""
    accountant = ours.PLDBudgetAccountant(epsilon, delta)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    for _ in range(times):
        if isinstance(params, theirs.SelectPartitionsParams):
            engine.select_partitions([], params, extractors())
        else:
            engine.aggregate([], params, extractors(), public)
    accountant.compute_budgets()
    return accountant.plan


def test_the_noise_of_a_variance_is_enough_for_its_squares() -> None:
    """By basic composition: what one row moves, in scales of the noise, adds up to epsilon."""
    params = theirs.AggregateParams(metrics=[M.VARIANCE], min_value=-10, max_value=10, **BOUNDS)
    plan = planned(params, public=[1], delta=0.0)
    losses = [record.l1 / record.scale for record in plan.mechanisms]
    assert len(losses) == 3
    assert 0.9 < sum(losses) <= 1.0


def test_the_original_takes_half_of_that_noise_for_a_range_across_zero() -> None:
    from pipeline_dp import dp_computations

    # Squares of distances from the middle, 0, move by up to 100; a third of epsilon is theirs.
    noise = dp_computations.ScalarNoiseParams(1.0, 0.0, -10, 10, None, None, 1, 1, theirs.NoiseKind.LAPLACE)
    rows = 10.0**9
    found = [dp_computations.compute_dp_var(rows, 0.0, 0.0, noise)[3] * rows for _ in range(4000)]
    assert np.mean(np.abs(found)) < 0.7 * 300


def test_a_variance_is_the_variance() -> None:
    values = np.arange(-10, 11)
    rows = [Row(who, 1, values[who % 21]) for who in range(21_000)]
    params = theirs.AggregateParams(metrics=[M.VARIANCE, M.MEAN], min_value=-10, max_value=10, **BOUNDS)
    ((_, metrics),) = local(ours, rows, params, epsilon=9.0, public=[1])
    assert np.allclose(metrics, (values.var(), 0.0), atol=1)


def test_selections_by_coins_are_in_the_account() -> None:
    params = theirs.SelectPartitionsParams(max_partitions_contributed=1)
    plan = planned(params, times=10)
    assert len(plan.mechanisms) == 10
    assert 0 < sum(record.delta for record in plan.mechanisms) <= 1e-6
    assert sum(record.epsilon for record in plan.mechanisms) > 0.9
    assert plan.accounted["epsilon"] <= 1.0


def test_the_original_forgets_them() -> None:
    pytest.importorskip("dp_accounting")
    accountant = theirs.PLDBudgetAccountant(1.0, 1e-6)
    kinds = theirs.aggregate_params.MechanismType
    count = accountant.request_budget(kinds.GAUSSIAN)
    coins = [accountant.request_budget(kinds.TRUNCATED_GEOMETRIC) for _ in range(10)]
    accountant.compute_budgets()
    assert count.noise_standard_deviation > 0
    # Their deltas alone are more than all that was promised.
    assert sum(coin.delta for coin in coins) > 1e-6


def test_a_selection_alone_works_with_either_accountant() -> None:
    rows = [Row(who, who % 2, 1) for who in range(2000)]
    params = theirs.SelectPartitionsParams(max_partitions_contributed=1)
    for pld in (False, True):
        assert sorted(local(ours, rows, params, pld=pld)) == [0, 1]
    with pytest.raises(AttributeError):
        local(theirs, rows, params, pld=True)


def test_weighted_selection_has_the_threshold_that_it_needs() -> None:
    """At 16 partitions a unit the original's threshold is four times as high."""
    params = theirs.SelectPartitionsParams(
        max_partitions_contributed=16, partition_selection_strategy=S.WEIGHTED_GAUSSIAN_THRESHOLDING
    )
    # 130 people with all their 16 partitions give each of these 130 / 4 = 32.5.
    rows = [Row(who, where, 0) for who in range(130) for where in range(16)]
    found = [
        (len(local(ours, rows, params, delta=1e-5)), len(local(theirs, rows, params, delta=1e-5))) for _ in range(3)
    ]
    kept, of_original = np.sum(found, axis=0)
    # One of a hundred is lost to noise; 30 of 48 would be below a probability of 1e-20.
    assert kept > 30
    assert of_original < 24


def test_a_bound_on_rows_in_all_works_with_private_partitions() -> None:
    rows = [Row(who, where, 1) for who in range(2000) for where in range(3)]
    params = theirs.AggregateParams(metrics=[M.COUNT, M.PRIVACY_ID_COUNT], max_contributions=2)
    found = dict(local(ours, rows, params))
    assert set(found) == {0, 1, 2}
    assert abs(sum(metrics.count for metrics in found.values()) - 4000) < 1000
    with pytest.raises(TypeError):
        local(theirs, rows, params)


VECTORS = theirs.AggregateParams(
    metrics=[M.VECTOR_SUM],
    vector_size=2,
    vector_max_norm=5,
    vector_norm_kind=ours.NormKind.L2,
    max_partitions_contributed=1,
    max_contributions_per_partition=2,
)


def test_a_vector_sum_has_all_public_partitions_and_leaves_the_programs_arrays_alone() -> None:
    own = np.array([3.0, 4.0])
    rows = [Row(who, 0, own) for who in range(500) for _ in range(2)]
    found = dict(local(ours, rows, VECTORS, public=[0, 1], epsilon=5.0))
    assert own.tolist() == [3.0, 4.0]
    # Each person's (6, 8) is scaled down to (3, 4).
    assert np.allclose(found[0].vector_sum, (1500, 2000), atol=150)
    assert np.allclose(found[1].vector_sum, (0, 0), atol=150)
    with pytest.raises(Exception, match=r"."):
        local(theirs, [Row(1, 0, np.array([3.0, 4.0]))], VECTORS, public=[0, 1])


def test_one_value_that_is_no_number_does_not_spoil_a_sum() -> None:
    rows = [Row(who, 1, 2.0) for who in range(1000)] + [Row("x", 1, float("nan"))]
    params = theirs.AggregateParams(metrics=[M.SUM], min_value=0, max_value=2, **BOUNDS)
    assert abs(dict(local(ours, rows, params, public=[1]))[1].sum - 2000) < 200
    assert np.isnan(dict(local(theirs, rows, params, public=[1]))[1].sum)


def test_sums_beyond_64_bits_keep_their_sign() -> None:
    rows = [Row(who, 1, 2**62) for who in range(1000)]
    params = theirs.AggregateParams(metrics=[M.SUM], min_value=0, max_value=2**62, **BOUNDS)
    assert abs(dict(local(ours, rows, params, public=[1]))[1].sum / 2.0**62 - 1000) < 100
    assert dict(local(theirs, rows, params, public=[1]))[1].sum < 2.0**70


def test_the_order_of_results_does_not_follow_the_order_of_rows() -> None:
    rows = [Row(who, where, 1) for where in range(30) for who in range(5)]
    params = theirs.AggregateParams(metrics=[M.COUNT], **BOUNDS)
    public = list(range(30))
    forth, back = (
        [key for key, _ in local(ours, found, params, public=public, epsilon=9.0)] for found in (rows, rows[::-1])
    )
    assert forth == back == public


def test_a_result_that_is_read_twice_is_one_release() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    params = theirs.AggregateParams(metrics=[M.COUNT], **BOUNDS)
    result = engine.aggregate(iter([Row(1, 1, 1)] * 9), params, extractors(), public_partitions=[1])
    accountant.compute_budgets()
    assert list(result) == list(result) != []


def test_rows_that_raise_are_not_heard_of(caplog, capsys) -> None:
    rows = [Row(who, 1, 1.0) for who in range(100)] + ["secret", None, Row("secret", object(), 1)]
    params = theirs.AggregateParams(metrics=[M.COUNT], **BOUNDS)
    with caplog.at_level(logging.DEBUG):
        ((key, metrics),) = local(ours, rows, params, public=[1], epsilon=9.0)
    assert key == 1
    assert abs(metrics.count - 100) < 20
    assert "secret" not in caplog.text + "".join(capsys.readouterr())
    with pytest.raises(AttributeError):
        local(theirs, rows, params, public=[1])


def local_counts(rows: Any) -> Any:
    accountant = ours.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    params = ours.AggregateParams(
        metrics=[ours.Metrics.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1
    )
    extractors = ours.DataExtractors(privacy_id_extractor=lambda row: row, partition_extractor=lambda row: "all")
    result = ours.DPEngine(accountant, ours.LocalBackend()).aggregate(rows, params, extractors)
    accountant.compute_budgets()
    return result


def test_a_copy_of_a_local_result_draws_no_second_release() -> None:
    result = local_counts(range(3000))
    other = copy.copy(result)
    first = list(result)
    assert list(result) == first
    with pytest.raises(RequestError, match="has already been released by another run"):
        list(other)


def test_threads_that_read_one_local_result_get_one_release() -> None:
    begun = threading.Event()

    def rows() -> Iterator[int]:
        begun.set()
        time.sleep(0.2)  # the other thread is there while the first one reads
        yield from range(3000)

    result = local_counts(rows())
    with concurrent.futures.ThreadPoolExecutor() as threads:
        first = threads.submit(list, result)
        begun.wait()
        assert list(result) == first.result()


@pytest.mark.parametrize("epsilon", [40, 1000, 1e5])
def test_an_epsilon_that_protects_nobody_is_held_to_the_largest_of_a_plan(epsilon: float, caplog) -> None:
    accountant = ours.NaiveBudgetAccountant(epsilon, 1e-6)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    params = theirs.AggregateParams(metrics=[M.COUNT], **BOUNDS)
    counts = engine.aggregate([Row(who, 1, 1.0) for who in range(1000)], params, extractors(), [1])
    accountant.compute_budgets()
    assert accountant.total_epsilon == epsilon
    assert 39 < accountant.plan.accounted["epsilon"] < 40
    assert "the plan spends 40" in caplog.text
    ((_, metrics),) = counts
    assert abs(metrics.count - 1000) < 2
