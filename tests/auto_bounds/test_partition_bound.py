"""The bound on partitions that is chosen from a noisy histogram: one of the candidates, near the best one."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.auto_bounds import partition_bound
from dp_pipelines.auto_bounds.partition_bound import Effect
from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages.phases import expand
from dp_pipelines.planning import resolve
from dp_pipelines.release import bounds_chosen
from dp_pipelines.transforms import PrivateAggregate
from tests.helpers.examples import examples

LISTS = st.lists(st.integers(1, 2**24), min_size=2, max_size=64, unique=True).map(sorted)
POWERS = [2**n for n in range(7)]


def query(**changes: object) -> dp.Query:
    """A query whose bound on partitions is open."""
    fields: dict[str, object] = {
        "privacy_unit": "u0",
        "partition_by": "p0",
        "bounds": dp.ContributionBounds(
            max_partitions_contributed="auto", partition_candidates=POWERS, max_contributions_per_partition=2
        ),
        "metrics": {"rows": dp.Count(), "users": dp.PrivacyIdCount(weight=2)},
    }
    return dp.Query(**{**fields, **changes})  # type: ignore[arg-type]


PLAN = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()})


@given(candidates=LISTS)
def test_the_edges_rise_from_one_to_beyond_the_largest_with_one_after_each_candidate(candidates: list[int]) -> None:
    edges = partition_bound.edges(candidates)
    assert (edges[0], edges[-1]) == (1.0, candidates[-1] + 1.0)
    assert all(a < b for a, b in itertools.pairwise(edges))
    assert {candidate + 1.0 for candidate in candidates} <= set(edges)
    assert len(edges) <= 64 + 64


@pytest.mark.slow
@settings(max_examples=examples(40, 300))
@given(data=st.data(), candidates=LISTS)
def test_whatever_the_counts_are_a_candidate_is_chosen(data: st.DataObject, candidates: list[int]) -> None:
    size = len(partition_bound.edges(candidates)) - 1
    counts = np.resize(data.draw(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=80)), size).tolist()
    effect = st.builds(
        Effect,
        weight=st.floats(1e-3, 1e3),
        multiple=st.floats(1e-6, 1e6),
        power=st.sampled_from([0.0, 0.5, 1.0]),
    )
    found = partition_bound.choose(
        counts,
        candidates=candidates,
        stddev=data.draw(st.floats(1e-3, 1e9)),
        law=data.draw(st.sampled_from(["laplace", "gaussian"])),
        effects=data.draw(st.lists(effect, min_size=1, max_size=4)),
        partitions=data.draw(st.one_of(st.none(), st.integers(1, 10**6))),
    )
    assert found in candidates


def counts_of(partitions: "np.ndarray[tuple[int], np.dtype[np.int64]]", candidates: list[int]) -> list[float]:
    """How many units have so many partitions, those with more than the most counted there."""
    capped = np.minimum(partitions, candidates[-1])
    return [float(count) for count in np.histogram(capped, partition_bound.edges(candidates))[0]]


@pytest.mark.parametrize("multiple", [1.0, 8.0, 64.0])
@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("size", [20, 200])
def test_the_bound_has_nearly_the_least_error_that_a_candidate_can_have(
    multiple: float, power: float, size: int
) -> None:
    """Against the error of each candidate, with the exact numbers of partitions of 20,000 units."""
    of_units = np.ceil(np.random.default_rng(5).lognormal(1.0, 1.0, 20_000)).astype(np.int64)
    rows = np.minimum(of_units, 64).sum() / size * 2.0

    def error(bound: int) -> float:
        lost = 1 - np.minimum(of_units, bound).sum() / np.minimum(of_units, 64).sum()
        return math.hypot(lost * rows, multiple * bound**power)

    found = partition_bound.choose(
        counts_of(of_units, POWERS), candidates=POWERS, stddev=5.0, law="laplace",
        effects=[Effect(weight=1.0, multiple=multiple, power=power)], partitions=size,
    )  # fmt: skip
    assert error(found) <= 1.2 * min(error(bound) for bound in POWERS)


def test_more_noise_makes_the_bound_smaller_and_larger_partitions_make_it_larger() -> None:
    counts = counts_of(np.ceil(np.random.default_rng(4).pareto(1.0, 50_000) + 1e-9).astype(np.int64), POWERS)

    def bound(multiple: float, partitions: int | None) -> int:
        effects = [Effect(weight=1.0, multiple=multiple, power=0.5)]
        return partition_bound.choose(
            counts, candidates=POWERS, stddev=5.0, law="gaussian", effects=effects, partitions=partitions
        )

    noisier = [bound(multiple, 500) for multiple in (0.1, 10.0, 100.0, 1000.0)]
    assert noisier == sorted(noisier, reverse=True)
    assert noisier[0] > noisier[-1]
    assert bound(10.0, 10) > bound(10.0, 50_000)


def test_units_that_stand_out_of_the_noise_only_together_are_not_dropped() -> None:
    """2,000 units by Pareto's law: above 4 partitions no bin stands out, and there is more than half of what is counted."""
    of_units = np.ceil(np.random.default_rng(7).pareto(1.0, 2_000) + 1e-9).astype(np.int64)
    exact, random, found = np.array(counts_of(of_units, POWERS)), np.random.default_rng(8), []
    for _ in range(20):
        noisy = (exact + random.laplace(0, 11 / math.sqrt(2), len(exact))).tolist()
        found.append(
            partition_bound.choose(
                noisy, candidates=POWERS, stddev=11.0, law="laplace", partitions=200,
                effects=[Effect(weight=1.0, multiple=4.6, power=0.5)],
            )
        )  # fmt: skip
    assert np.mean([bound >= 8 for bound in found]) >= 0.8


def test_a_typical_partition_has_no_more_than_all_units() -> None:
    """Where partitions are private and noise is large, a guess beyond that would pay for units that nobody drops."""
    counts = [float(count) for count in counts_of(np.full(1_000, 5), POWERS)]
    effects = [Effect(weight=1.0, multiple=1000.0, power=0.5)]
    assert partition_bound.choose(counts, candidates=POWERS, stddev=1.0, law="gaussian", effects=effects) == 1


def test_of_an_empty_histogram_noise_alone_decides() -> None:
    nothing = [0.0] * (len(partition_bound.edges(POWERS)) - 1)
    for power, expected in ((0.5, 1), (1.0, 1), (0.0, 64)):
        effects = [Effect(weight=1.0, multiple=3.0, power=power)]
        for counts in (nothing, [-9.0] * len(nothing)):
            assert expected == partition_bound.choose(
                counts, candidates=POWERS, stddev=10.0, law="laplace", effects=effects
            )  # fmt: skip


def test_the_histogram_of_units_is_a_stage_of_the_first_pipeline_with_a_share_of_its_own() -> None:
    both = query(metrics={"total": dp.Sum("n0", min_value=0, max_value="auto", within=[0, 100])})
    expanded = expand({"s": query(), "both": both}, {"s": 2.0, "both": 1.0})
    assert expanded.phases == (("s.partitions", "both.bounds", "both.partitions"), ("s", "both"))
    assert dict(expanded.auto_contributions) == {"s": "s.partitions", "both": "both.partitions"}
    assert dict(expanded.auto) == {"both": "both.bounds"}
    assert dict(expanded.shares) == pytest.approx(
        {"s.partitions": 0.2, "s": 1.8, "both.bounds": 0.1, "both.partitions": 0.09, "both": 0.81}
    )
    before = expanded.queries["s.partitions"]
    assert before.bounds == dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    assert before.partitions == dp.PublicPartitions(keys=[("_all",)])
    assert PLAN.accounted["epsilon"] <= 1.0


def test_a_plan_with_a_bound_on_partitions_to_choose_is_restored() -> None:
    again = dp.Plan.restore(PLAN.frozen(), epsilon=1.0, delta=1e-6, stages={"s": query()})
    assert again.digest == PLAN.digest
    assert again["s"] == PLAN["s"]


def test_the_candidates_are_part_of_the_digest() -> None:
    wider = dp.ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=[1, 64], max_contributions_per_partition=2
    )
    assert dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(bounds=wider)}).digest != PLAN.digest


@pytest.mark.parametrize("strategy", ["gaussian", "weighted_gaussian"])
def test_noise_and_threshold_with_a_candidate_are_near_those_of_a_plan_that_knew_it(strategy: str) -> None:
    """A tenth of the budget is gone, which is a hundredth or so of the noise; whole steps cost a little."""
    partitions, metrics = dp.PrivatePartitions(strategy=strategy), {"users": dp.PrivacyIdCount()}  # type: ignore[arg-type]
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(partitions=partitions, metrics=metrics)})
    compared = 0
    for candidate in POWERS:
        ready = resolve.with_partitions(plan["s"], candidate)
        own = query(partitions=partitions, metrics=metrics, bounds=ready.query.bounds)
        known = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": own})["s"]
        if (
            known.choices.noises["units"].law == "gaussian"
        ):  # few partitions may have Laplace noise where they are known
            (mine, *_), (theirs, *_) = ready.noises, known.noises
            assert mine is not None
            assert theirs is not None
            assert mine.stddev <= 1.15 * theirs.stddev
            assert (ready.half_keep_users or math.inf) <= 1.2 * (known.half_keep_users or 0.0)
            compared += 1
    assert compared >= 4


def test_a_bound_that_is_no_candidate_is_not_used() -> None:
    with pytest.raises(AssertionError, match="none of the candidates"):
        resolve.with_partitions(PLAN["s"], 3)


def test_the_chosen_bound_follows_what_the_histogram_shows() -> None:
    stage, before = PLAN["s"], PLAN["s.partitions"]
    size = len(partition_bound.edges(POWERS)) - 1
    for place, most in ((0, 1), (3, 4), (size - 1, 64)):
        counts = [1e6 if bin_ == place else 0.0 for bin_ in range(size)]
        table = pa.table({"_all": ["_all"], "units": [counts]})
        assert bounds_chosen.contributions(stage, before, table) == (most, None)


def test_the_library_refuses_to_run_a_stage_whose_bound_on_partitions_is_open() -> None:
    with pytest.raises(RequestError, match="has bounds that another pipeline must release first"):
        PrivateAggregate(PLAN["s"])
    ready = resolve.with_partitions(PLAN["s"], 4)
    assert PrivateAggregate(ready).stage is ready


def test_a_stage_with_the_name_of_the_histogram_is_refused() -> None:
    with pytest.raises(RequestError, match="is what the bounds of 's' are called"):
        dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(), "s.partitions": query()})


@pytest.mark.parametrize(
    "candidates", [None, 4, "124", [4], [], [1, 1], [2, 1], [0, 1], [1, 2.5], [1, True], [1, 2**25]]
)
def test_candidates_that_are_not_rising_whole_numbers_are_refused(candidates: object) -> None:
    with pytest.raises(RequestError, match="^partition_candidates"):
        dp.ContributionBounds(max_partitions_contributed="auto", partition_candidates=candidates)  # type: ignore[arg-type]


def test_candidates_stand_beside_a_bound_that_is_chosen_alone() -> None:
    with pytest.raises(RequestError, match="is only for a bound that the run chooses"):
        dp.ContributionBounds(max_partitions_contributed=4, partition_candidates=[1, 4])
