"""At the same parameters the drop-in and the original release numbers of one distribution, where the original is sound.

How: both release over the same rows with LocalBackend; two samples of some thousand released numbers are compared by the
two-sample Kolmogorov-Smirnov test. Its false alarm rate for samples of n and m numbers is at most 2 exp(-2 D^2 nm / (n + m))
asymptotically: at LIMIT below 1e-10 each. Released numbers of one run are independent given the rows that are kept, and which
rows are kept moves them by far less than the noise. A planted fault of twice the noise is seen.
"""

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.helpers.drop_in import BOTH, M, Row, extractors, local, ours, theirs

PARTITIONS = 60
RELEASES = 40
LIMIT = math.sqrt(-math.log(1e-10 / 2) / 2)
"""Of D sqrt(nm / (n + m))."""

ROWS = {
    # Each of 240 people has two rows in one partition: nothing is cut off.
    "few": [Row(f"p{who}", who % PARTITIONS, 3.0) for who in range(240) for _ in range(2)],
    # Each of 20 people has three rows in every partition: one partition is kept, with two rows.
    "many": [Row(who, where, 3.0) for who in range(20) for where in range(PARTITIONS) for _ in range(3)],
    "even": [Row((who, where), where, 4.0) for where in range(PARTITIONS) for who in range(30)],
}
BOUNDS = {"max_partitions_contributed": 1, "max_contributions_per_partition": 2, "min_value": 0, "max_value": 5}
ALL = [M.COUNT, M.SUM, M.PRIVACY_ID_COUNT]


@functools.cache
def released(library: str, rows: str, metrics: tuple[Any, ...] = tuple(ALL), **more: Any) -> dict[str, np.ndarray]:
    """All released numbers of all partitions, by field."""
    epsilon = more.pop("epsilon", 1.0)
    made = theirs.AggregateParams(**{"metrics": list(metrics), **BOUNDS, **more})
    public = list(range(PARTITIONS))
    runs = (local(BOTH[library], ROWS[rows], made, public=public, epsilon=epsilon) for _ in range(RELEASES))
    results = [metrics for _, metrics in itertools.chain(*runs)]
    return {field: np.array([getattr(metrics, field) for metrics in results]) for field in results[0]._fields}


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The statistic of Kolmogorov and Smirnov, as it is compared with LIMIT."""
    places = np.sort(np.concatenate((one, other)))
    shares = [np.searchsorted(np.sort(sample), places, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max()) * math.sqrt(len(one) * len(other) / (len(one) + len(other)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["few", "many"])
def test_counts_and_sums_have_one_distribution(rows: str) -> None:
    one, other = released("original", rows), released("drop-in", rows)
    assert list(one) == list(other) == ["count", "sum", "privacy_id_count"]
    assert max(distance(one[field], other[field]) for field in one) < LIMIT


@pytest.mark.slow
def test_means_have_one_distribution() -> None:
    samples = (released(name, "even", (M.MEAN,), max_contributions_per_partition=1)["mean"] for name in BOTH)
    assert distance(*samples) < LIMIT


@pytest.mark.slow
def test_sums_that_are_clipped_have_one_distribution() -> None:
    bounds = {"min_value": None, "max_value": None, "min_sum_per_partition": 0, "max_sum_per_partition": 4}
    assert distance(*(released(name, "few", (M.SUM,), **bounds)["sum"] for name in BOTH)) < LIMIT


def test_twice_the_noise_is_seen() -> None:
    one, other = released("original", "few"), released("drop-in", "few", epsilon=0.5)
    assert all(distance(one[field], other[field]) > LIMIT for field in one)


def test_a_bound_that_is_not_enforced_is_seen() -> None:
    one, other = released("original", "few", max_contributions_per_partition=1), released("drop-in", "few")
    assert distance(one["count"], other["count"]) > LIMIT


def test_percentiles_lie_where_the_original_has_them() -> None:
    rows = [Row(who, where, float(who % 100)) for where in range(2) for who in range(5_000)]
    params = theirs.AggregateParams(
        metrics=[M.PERCENTILE(90), M.PERCENTILE(50), M.PERCENTILE(12.5)],
        max_partitions_contributed=2,
        max_contributions_per_partition=1,
        min_value=0,
        max_value=100,
    )
    for library in (theirs, ours):
        for _, metrics in local(library, rows, params, epsilon=8.0, public=[0, 1]):
            assert metrics._fields == ("percentile_90", "percentile_50", "percentile_12_5")
            assert np.allclose(metrics, (89.5, 49.5, 12.0), atol=4)


@pytest.mark.parametrize("noise", list(theirs.NoiseKind))
@pytest.mark.parametrize("metrics", [[M.COUNT], ALL], ids=["one metric", "three metrics"])
@pytest.mark.parametrize(("partitions", "rows"), [(1, 1), (4, 2), (30, 5)])
@pytest.mark.parametrize("public", [[1, 2], None], ids=["public", "private"])
def test_there_is_never_more_noise(noise: Any, metrics: list[Any], partitions: int, rows: int, public: Any) -> None:
    params = theirs.AggregateParams(
        metrics=metrics,
        noise_kind=noise,
        max_partitions_contributed=partitions,
        max_contributions_per_partition=rows,
        min_value=0,
        max_value=5,
        output_noise_stddev=True,
    )
    found = [Row(who, where, 1.0) for who in range(3000) for where in (1, 2)]
    of = {name: dict(local(library, found, params, public=public))[1] for name, library in BOTH.items()}
    assert of["drop-in"]._fields == of["original"]._fields
    stddevs = [name for name in of["drop-in"]._fields if name.endswith("_noise_stddev")]
    assert len(stddevs) == len(metrics)
    for name in stddevs:
        assert getattr(of["drop-in"], name) <= getattr(of["original"], name) * 1.001


@pytest.mark.parametrize("partitions", [1, 4, 20])
def test_a_partition_needs_at_most_some_hundredths_more_people(partitions: int) -> None:
    """To be kept half of the time, by coins: half of delta is kept for the composition."""
    coins = theirs.PartitionSelectionStrategy.TRUNCATED_GEOMETRIC
    original = theirs.partition_selection.create_partition_selection_strategy(coins, 1.0, 1e-6, partitions, None)
    needed = next(people for people in range(1, 1000) if original.probability_of_keep(people) >= 0.5)
    accountant = ours.NaiveBudgetAccountant(1.0, 1e-6)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    engine.select_partitions([], theirs.SelectPartitionsParams(partitions), extractors())
    accountant.compute_budgets()
    (stage,) = accountant.plan.stages.values()
    assert stage.half_keep_users <= 1.06 * needed + 1


@pytest.mark.parametrize(
    "strategy",
    [
        theirs.PartitionSelectionStrategy.TRUNCATED_GEOMETRIC,
        theirs.PartitionSelectionStrategy.LAPLACE_THRESHOLDING,
        theirs.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING,
    ],
)
@pytest.mark.parametrize("pre_threshold", [None, 40])
def test_partitions_need_about_as_many_people_and_never_far_more(strategy: Any, pre_threshold: int | None) -> None:
    rows = [Row(f"{size}-{who}", size, 0) for size in range(10, 120, 2) for who in range(size)]
    params = theirs.SelectPartitionsParams(
        max_partitions_contributed=2, partition_selection_strategy=strategy, pre_threshold=pre_threshold
    )
    kept = {name: np.mean([len(local(library, rows, params)) for _ in range(10)]) for name, library in BOTH.items()}
    # A sum of independent coins, of which some ten are not all but certain: its mean over 10 runs has a standard deviation
    # below 0.5, and 5 is seven of that for the difference of two.
    assert kept["drop-in"] > kept["original"] - 5
    if pre_threshold:
        assert not any(size < pre_threshold for size in local(ours, rows, params))


def test_private_partitions_come_with_the_same_names_and_keys() -> None:
    rows = [Row(who, ("day", who % 2), 1.0) for who in range(4000)]
    params = theirs.AggregateParams(metrics=[M.VARIANCE, M.MEAN, M.SUM, M.COUNT, M.PRIVACY_ID_COUNT], **BOUNDS)
    of = {name: local(library, rows, params) for name, library in BOTH.items()}
    assert (
        sorted(key for key, _ in of["drop-in"]) == sorted(key for key, _ in of["original"]) == [("day", 0), ("day", 1)]
    )
    assert of["drop-in"][0][1]._fields == of["original"][0][1]._fields
    assert type(of["drop-in"][0][1]).__name__ == type(of["original"][0][1]).__name__ == "MetricsTuple"


def test_weights_and_scopes_share_the_budget_about_as_in_the_original() -> None:
    """About: several aggregations are planned together, for the smallest noise on average."""
    noise = {}
    for name, library in BOTH.items():
        accountant = library.NaiveBudgetAccountant(1, 1e-6)
        engine = library.DPEngine(accountant, library.LocalBackend())
        params = theirs.AggregateParams(metrics=[M.COUNT], **BOUNDS, output_noise_stddev=True)
        weighted = [dataclasses.replace(params, budget_weight=weight) for weight in (3, 1, 4)]
        results = [engine.aggregate(ROWS["few"], weighted[0], extractors(), [1])]
        with accountant.scope(weight=2):
            results += [engine.aggregate(ROWS["few"], params, extractors(), [1]) for params in weighted[1:]]
        accountant.compute_budgets()
        noise[name] = np.array([next(iter(result))[1].count_noise_stddev for result in results])
    ratios = noise["drop-in"] / noise["original"]
    assert ratios.max() < 1.1
    assert np.log(ratios).mean() < 0.001
    assert noise["drop-in"][1] > 2 * noise["drop-in"][2] > 2 * noise["drop-in"][0]
