"""The choice of the bounds on partitions and rows: post-processing of released histograms, near the best pair."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.auto_bounds import joint_bounds
from dp_pipelines.auto_bounds.joint_bounds import CANDIDATES, BoundsEffect, UnitSizes
from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages.phases import expand
from dp_pipelines.plan_stages.reads import UnitPartitionCounts
from dp_pipelines.query.query import PublicPartitions
from dp_pipelines.release import bounds_chosen

BOTH = dp.ContributionBounds(max_partitions_contributed="auto", max_contributions_per_partition="auto")
EFFECTS = (BoundsEffect(weight=1.0, multiple=4.4, power=0.5, rows=True),)
PAIRS = (CANDIDATES, CANDIDATES)


def query(**changes: object) -> dp.Query:
    """A query with both bounds open."""
    metrics = {"rows": dp.Count(), "users": dp.PrivacyIdCount(), "paid": dp.Sum("n0", min_value=0, max_value=9)}
    fields: dict[str, object] = {"privacy_unit": "u0", "partition_by": "p0", "bounds": BOTH, "metrics": metrics}
    return dp.Query(**{**fields, **changes})  # type: ignore[arg-type]


def sizes_of(numbers: np.ndarray, edges: tuple[float, ...], stddev: float = 5.0) -> UnitSizes:
    """The histogram of some numbers without noise, as far as it would stand out."""
    counts = np.histogram(np.minimum(numbers, edges[-1] - 1), edges)[0].astype(float)
    return UnitSizes.seen(counts.tolist(), edges, stddev, "gaussian")


def test_both_bounds_open_are_the_powers_of_two_if_nothing_else_is_said() -> None:
    assert BOTH.candidates == (1, 2, 4, 8, 16, 32, 64)
    assert BOTH.row_candidates == (*BOTH.candidates, 128, 256, 512)
    assert (BOTH.max_partitions, BOTH.max_rows_per_partition, BOTH.max_rows) == (64, 512, 32768)
    chosen = BOTH.choosing(8, 2)
    assert chosen == dp.ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=2)


@settings(max_examples=100)
@given(
    counts=st.lists(st.floats(-1e9, 1e9), min_size=80, max_size=80),
    public=st.none() | st.integers(1, 10**6),
    estimates=st.booleans(),
    power=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_whatever_was_released_the_choice_is_a_pair_of_candidates(
    counts: list[float], public: int | None, estimates: bool, power: float
) -> None:
    edges, row_edges = joint_bounds.edges(CANDIDATES), joint_bounds.row_edges(CANDIDATES)
    partitions = UnitSizes.seen(counts[: len(edges) - 1], edges, 10.0, "laplace")
    rows = UnitSizes.seen(counts[: len(row_edges) - 1], row_edges, 10.0, "gaussian")
    effects = [*EFFECTS, BoundsEffect(weight=0.5, multiple=2.0, power=power, rows=False)]
    found = joint_bounds.choose(partitions, rows, candidates=PAIRS, effects=effects, public=public, estimates=estimates)
    assert set(found) <= set(CANDIDATES)


@pytest.mark.parametrize("public", [None, 10])
def test_where_nothing_stands_out_of_the_noise_noise_alone_decides(public: int | None) -> None:
    edges, row_edges = joint_bounds.edges(CANDIDATES), joint_bounds.row_edges(CANDIDATES)
    nothing = [sizes_of(np.zeros(0), at) for at in (edges, row_edges)]
    found = joint_bounds.choose(*nothing, candidates=PAIRS, effects=EFFECTS, public=public, estimates=True)
    assert found == (1, 1)


@pytest.mark.parametrize("open_rows", [True, False])
@pytest.mark.parametrize(("candidates", "numbers"), [((1, 64), (1, 2)), ((2, 100), (2, 3)), ((1, 4, 100), (4, 6))])
def test_where_candidates_have_gaps_the_choice_is_the_best_one(
    candidates: tuple[int, ...], numbers: tuple[int, int], *, open_rows: bool
) -> None:
    """By the error of an estimate: a tenth of 20,000 units has somewhat more than the smaller candidate, none near the larger."""
    of_units = np.repeat(numbers, [18_000, 2_000])
    ones = np.ones(20_000, np.int64)
    effects = [BoundsEffect(weight=1.0, multiple=4.4, power=1.0, rows=True)]
    rows, partitions = (of_units, ones) if open_rows else (ones, of_units)
    whole = of_units.sum()

    def error(bound: int) -> float:
        return math.hypot(0.7 * (1 - np.minimum(of_units, bound).sum() / whole) * whole / 20, 0.674 * 4.4 * bound)

    found = joint_bounds.choose(
        sizes_of(partitions, joint_bounds.edges(candidates)), sizes_of(rows, joint_bounds.row_edges(candidates)),
        candidates=(candidates, candidates), effects=effects, public=20, estimates=True,
    )  # fmt: skip
    best = min(candidates, key=error)
    assert found == ((candidates[0], best) if open_rows else (best, candidates[0]))


def test_bins_between_candidates_are_narrow_and_the_usual_candidates_have_none_between() -> None:
    """No bin is wider than by a factor of 2, so that its middle is off by less than the root of 2."""
    for candidates in ((1, 64), (3, 5, 1000), (7, 2**24)):
        at = np.array(joint_bounds.row_edges(candidates))
        assert (at[1:] - 1 <= 2 * at[:-1]).all()
        assert {float(candidate + 1) for candidate in candidates} <= set(at)
    assert joint_bounds.edges(CANDIDATES) == (1.0, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0)
    assert len(joint_bounds.row_edges(CANDIDATES)) == 14


@pytest.mark.parametrize("groups", [5, 50, 1000])
def test_the_choice_is_not_much_worse_than_the_best_pair(groups: int) -> None:
    """By the error of an estimate, of all pairs of candidates, with 20,000 units of uneven numbers of partitions and rows."""
    random = np.random.default_rng(5)
    partitions = np.ceil(random.lognormal(1.0, 1.0, 20_000)).astype(np.int64)
    rows = np.ceil(random.lognormal(0.5, 1.2, 20_000)).astype(np.int64)
    typical = partitions.sum() / groups * rows.mean()

    def error(pair: tuple[int, int]) -> float:
        kept = np.minimum(partitions, pair[0]).sum() / partitions.sum() * np.minimum(rows, pair[1]).sum() / rows.sum()
        return math.hypot(0.7 * (1 - kept) * typical, 0.674 * 4.4 * pair[0] ** 0.5 * pair[1])

    found = joint_bounds.choose(
        sizes_of(partitions, joint_bounds.edges(CANDIDATES)), sizes_of(rows, joint_bounds.row_edges(CANDIDATES)),
        candidates=PAIRS, effects=EFFECTS, public=groups, estimates=True,
    )  # fmt: skip
    assert error(found) <= 1.4 * min(error((a, b)) for a in CANDIDATES for b in CANDIDATES)


def test_more_and_smaller_groups_have_smaller_bounds_and_without_estimates_bounds_are_larger() -> None:
    random = np.random.default_rng(6)
    numbers = np.ceil(random.lognormal(1.0, 1.0, 20_000)).astype(np.int64)
    sizes = sizes_of(numbers, joint_bounds.edges(CANDIDATES)), sizes_of(numbers, joint_bounds.row_edges(CANDIDATES))

    def product(groups: int, *, estimates: bool) -> int:
        return math.prod(
            joint_bounds.choose(*sizes, candidates=PAIRS, effects=EFFECTS, public=groups, estimates=estimates)
        )

    found = [product(groups, estimates=True) for groups in (5, 500, 50_000)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    assert all(product(groups, estimates=False) >= product(groups, estimates=True) for groups in (5, 500, 50_000))


def test_the_histograms_are_one_stage_of_the_first_pipeline_with_a_share_of_its_own() -> None:
    expanded = expand({"s": query()}, {"s": 1.0})
    assert expanded.phases == (("s.partitions",), ("s",))
    assert dict(expanded.auto_contributions) == {"s": "s.partitions"}
    assert dict(expanded.shares) == pytest.approx({"s.partitions": 0.06, "s": 0.94})
    assert expanded.reads["s.partitions"] == UnitPartitionCounts(of="s", rows=True)
    before = expanded.queries["s.partitions"]
    assert list(before.metrics) == ["units", "rows"]
    assert before.bounds == dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    assert before.partitions == PublicPartitions(keys=[("_all",)])


def test_the_chosen_bounds_follow_what_the_released_table_shows() -> None:
    public = PublicPartitions(keys=[("a",), ("b",)])
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(partitions=public, metrics={"rows": dp.Count()})})
    stage, before = plan["s"], plan["s.partitions"]
    edges = {"units": joint_bounds.edges(CANDIDATES), "rows": joint_bounds.row_edges(CANDIDATES)}
    for pair in ((1, 1), (1, 64), (64, 1), (4, 8)):
        counts = {
            name: np.histogram([number], edges[name], weights=[1e7])[0].tolist()
            for name, number in zip(edges, pair, strict=True)
        }
        table = pa.table({"_all": ["_all"], **{name: [each] for name, each in counts.items()}})
        assert bounds_chosen.contributions(stage, before, table) == pair


def test_a_metric_that_looks_at_no_rows_needs_no_bound_on_them() -> None:
    asked = query(metrics={"users": dp.PrivacyIdCount()})
    assert not asked.bounds.auto_rows
    assert list(expand({"s": asked}, {"s": 1.0}).queries["s.partitions"].metrics) == ["units"]


def test_of_a_total_the_bound_on_rows_alone_is_chosen() -> None:
    asked = query(partition_by=[])
    assert (asked.bounds.auto_partitions, asked.bounds.auto_rows) == (False, True)
    assert asked.bounds.max_partitions == 1
    assert list(expand({"s": asked}, {"s": 1.0}).queries["s.partitions"].metrics) == ["rows"]


def test_a_plan_with_both_bounds_open_is_restored() -> None:
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()})
    again = dp.Plan.restore(plan.frozen(), epsilon=1.0, delta=1e-6, stages={"s": query()})
    assert again.digest == plan.digest
    assert again["s"] == plan["s"]
    fewer = dp.ContributionBounds(
        max_partitions_contributed="auto", max_contributions_per_partition="auto", row_candidates=[1, 2]
    )
    assert dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(bounds=fewer)}).digest != plan.digest


@pytest.mark.parametrize("candidates", [4, "124", [4], [], [1, 1], [2, 1], [0, 1], [1, 2.5], [1, True], [1, 2**25]])
def test_row_candidates_that_are_not_rising_whole_numbers_are_refused(candidates: object) -> None:
    with pytest.raises(RequestError, match="^row_candidates"):
        dp.ContributionBounds(
            max_partitions_contributed=4,
            max_contributions_per_partition="auto",
            row_candidates=candidates,  # type: ignore[arg-type]
        )


def test_row_candidates_stand_beside_a_bound_that_is_chosen_alone() -> None:
    with pytest.raises(RequestError, match="is only for a bound that the run chooses"):
        dp.ContributionBounds(max_contributions_per_partition=4, row_candidates=[1, 4])
