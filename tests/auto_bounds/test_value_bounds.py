"""Bounds that are chosen from noisy histograms: within their range, near the best ones, and never dearer than the plan."""

import dataclasses
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.plan_stages import partition_groups
from dp_pipelines.plan_stages.phases import expand
from dp_pipelines.planning import resolve as resolving
from dp_pipelines.planning.resolve import resolve
from dp_pipelines.planning.stage import StagePlan, build_stage
from dp_pipelines.release import bounds_chosen
from dp_pipelines.transforms import PrivateAggregate
from tests.helpers import neighbours as nb

WITHIN = (-50.0, 1e6)


def query(**changes: object) -> dp.Query:
    """A query with bounds of every kind that can be chosen, beside fixed ones over the same column."""
    fields: dict[str, object] = {
        "privacy_unit": "u0",
        "partition_by": "p0",
        "bounds": dp.ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2),
        "metrics": {
            "rows": dp.Count(),
            "total": dp.Sum("n0", min_value=0, max_value="auto", within=[0, 1e6]),
            "mean": dp.Mean("n0", min_value="auto", max_value="auto", within=WITHIN),
            "spread": dp.Variance("n0", min_value="auto", max_value="auto", within=WITHIN),
            "fixed": dp.Mean("n0", min_value=0, max_value=100),
        },
    }
    return dp.Query(**{**fields, **changes})  # type: ignore[arg-type]


PLANS = {
    "approximate": dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()}),
    "pure": dp.Plan(epsilon=4.0, stages={"s": query(partitions=dp.PublicPartitions(keys=[("a",), ("b",)]))}),
    # So little noise that a unit of change is far more release steps than the noise has.
    "hardly private": dp.Plan(epsilon=35.0, delta=0.1, stages={"s": query()}),
    "rows in all": dp.Plan(
        epsilon=1.0, delta=1e-6, stages={"s": query(bounds=dp.ContributionBounds(max_contributions=5))}
    ),
}

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def pairs(draw: st.DrawFn, low: float, high: float) -> tuple[float, float]:
    """Bounds within a range, the first below the second; many of them edges of bins or next to each other."""
    inside = st.one_of(st.floats(low, high, allow_subnormal=False), st.sampled_from(value_bounds.edges(low, high)))
    ends = sorted((draw(inside) + 0.0, draw(inside) + 0.0))
    if ends[1] - ends[0] < 1e-9:
        return (ends[0], ends[0] + 1e-3) if ends[0] + 1e-3 <= high else (high - 1e-3, high)
    return ends[0], ends[1]


@st.composite
def chosen_bounds(draw: st.DrawFn) -> dict[str, tuple[float, float]]:
    """Bounds for each metric of `query` that says `auto`."""
    of_mean = draw(pairs(*WITHIN))
    return {"total": (0.0, draw(pairs(1.0, 1e6))[1]), "mean": of_mean, "spread": of_mean}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@settings(max_examples=150)
@given(chosen_bounds=chosen_bounds())
def test_whatever_bounds_are_chosen_the_records_stay_those_of_the_plan(
    plan: dp.Plan, chosen_bounds: dict[str, tuple[float, float]]
) -> None:
    stage = plan["s"]
    ready = resolve(stage, chosen_bounds)
    assert [_numbers(record) for record in ready.mechanisms] == [_numbers(record) for record in stage.mechanisms]
    # Built anew from the resolved query, by the way that fixed bounds go, it is the same stage, and its records say no more.
    anew = build_stage("s", ready.query, ready.choices, plan.calibrated)
    assert (anew.statistics, anew.noises, anew.layout) == (ready.statistics, ready.noises, ready.layout)
    assert {record.name for record in anew.mechanisms} == {record.name for record in ready.mechanisms}
    planned = {record.name: record for record in ready.mechanisms}
    for record in anew.mechanisms:
        assert resolving._dominates(planned[record.name], record)


def _numbers(record: MechanismRecord) -> dict[str, object]:
    return {**dataclasses.asdict(record), "name": None}


@given(unit=st.integers(1, 2**60), steps=st.integers(1, 2**30))
def test_a_unit_of_change_is_never_more_release_steps_than_were_chosen(unit: int, steps: int) -> None:
    moved = Shape(unit=unit, coordinates=3, per_coordinate=2, in_total=5).steps(-(-unit // steps))
    most = Shape(unit=1, coordinates=3, per_coordinate=2, in_total=5).ideally(steps)
    assert (moved.l0, most.l0) == (3, 3)
    assert moved.linf <= most.linf
    assert moved.l1 <= most.l1
    assert moved.l2_squared <= most.l2_squared


def beyond(pair: nb.Neighbours, planned: StagePlan, ready: StagePlan) -> list[str]:
    """The statistics of a resolved stage that one unit moves by more than the plan's records say."""
    without, with_unit = (nb.totals(table, ready.layout, ready.statistics) for table in (pair.smaller, pair.larger))
    records = {record.name: record for record in planned.mechanisms}
    found = []
    for index, (old, new) in enumerate(zip(planned.statistics, ready.statistics, strict=True)):
        noise = ready.noises[index]
        if noise is None:
            continue
        one, other = (nb.coarse(side, index, new.fine_bits, noise.step) for side in (without, with_unit))
        moved, record = nb.distances(one, other), records[old.name]
        if sum(d > 0 for d in moved) > record.l0:
            found.append(new.name)
        elif record.kind == "gaussian":
            found += [new.name] if sum(d * d for d in moved) > record.l2_squared else []
        elif max(moved, default=0) > record.linf or sum(moved) > record.l1:
            found.append(new.name)
    return found


@st.composite
def neighbouring_rows(draw: st.DrawFn) -> nb.Neighbours:
    """Rows of a few units, and all rows of one unit more, many of them at or beyond the ends of ranges."""
    values = st.one_of(st.sampled_from([-1e300, -50.0, -3.0, 0.0, 1.0, 99.9, 1e6, 1e300, math.inf]), FINITE)

    def table(units: list[int], most: int) -> pa.Table:
        row = st.tuples(st.sampled_from(units), st.sampled_from("abcde"), st.one_of(values, st.none()))
        rows = draw(st.lists(row, max_size=most))
        kinds = (pa.int64(), pa.string(), pa.float64())
        columns = zip(*rows, strict=True) if rows else [[], [], []]
        return pa.table([pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)], ["u0", "p0", "n0"])

    smaller, extra = table([2, 3], 6), table([1], 10)
    return nb.Neighbours(
        smaller=smaller, extra=extra, places=(0,) * extra.num_rows, layout=PLANS["pure"]["s"].layout, statistics=()
    )


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@settings(max_examples=60, deadline=None)
@given(pair=neighbouring_rows(), chosen_bounds=chosen_bounds())
def test_one_unit_moves_a_resolved_stage_by_no_more_than_its_plan(
    plan: dp.Plan, pair: nb.Neighbours, chosen_bounds: dict[str, tuple[float, float]]
) -> None:
    assert beyond(pair, plan["s"], resolve(plan["s"], chosen_bounds)) == []


def test_a_lattice_that_is_finer_than_the_plan_says_is_found() -> None:
    planned = PLANS["approximate"]["s"]
    ready = resolve(planned, {"total": (0.0, 10.0), "mean": (-1.0, 9.0), "spread": (-1.0, 9.0)})
    rows = pa.table({"u0": [1] * 10, "p0": list("aabbccddee"), "n0": [1e6] * 10})
    pair = nb.Neighbours(smaller=rows.slice(0, 0), extra=rows, places=(0,) * 10, layout=ready.layout, statistics=())
    assert beyond(pair, planned, ready) == []
    finer = tuple(n and dataclasses.replace(n, step=n.step // 2) for n in ready.noises)
    assert beyond(pair, planned, dataclasses.replace(ready, noises=finer)) != []


def test_a_stage_that_would_cost_more_than_its_plan_is_not_run() -> None:
    planned = PLANS["approximate"]["s"]
    less = tuple(dataclasses.replace(r, l2_squared=1) if r.kind == "gaussian" else r for r in planned.mechanisms)
    with pytest.raises(AssertionError, match="cost more than the plan says"):
        resolve(dataclasses.replace(planned, mechanisms=less), dict.fromkeys(("total", "mean", "spread"), (0.0, 9.0)))


def test_bounds_outside_of_their_range_are_not_used() -> None:
    for pair in ((0.0, 2e6), (-1.0, 5.0), (5.0, 5.0)):
        with pytest.raises(AssertionError, match="outside of their range"):
            resolve(PLANS["approximate"]["s"], {"total": pair, "mean": (0.0, 1.0), "spread": (0.0, 1.0)})


def test_bounds_that_another_metric_has_do_not_make_two_sums_one() -> None:
    plan = PLANS["approximate"]
    ready = resolve(plan["s"], {"total": (0.0, 100.0), "mean": (0.0, 100.0), "spread": (0.0, 100.0)})
    families = [metric.family for metric in ready.query.metrics.values() if metric.family is not None]
    assert len(set(families)) == 3
    assert all(family[2] == pytest.approx(100.0) and family[2] <= 100.0 for family in families)
    assert ready.query.metrics["mean"].family == ready.query.metrics["spread"].family
    assert len(ready.mechanisms) == len(plan["s"].mechanisms)


COUNTS = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=200)


@settings(max_examples=300)
@given(data=st.data(), one=st.floats(-1e90, 1e90), other=st.floats(-1e90, 1e90))
def test_whatever_the_counts_are_the_bounds_lie_within_the_range(data: st.DataObject, one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if not low < high or max(abs(low), abs(high)) < 1e-90:
        low, high = 0.0, 1.0
    size = len(value_bounds.bins(low, high)) - 1
    counts = np.resize(data.draw(COUNTS), size).tolist()
    fixed = data.draw(st.sampled_from(["none", "low", "high"]))
    pair = value_bounds.choose(
        counts,
        within=(low, high),
        stddev=data.draw(st.floats(1e-3, 1e9)),
        law=data.draw(st.sampled_from(["laplace", "gaussian"])),
        multiple=data.draw(st.floats(1e-6, 1e6)),
        centred=data.draw(st.booleans()),
        partitions=data.draw(st.one_of(st.none(), st.integers(1, 10**6))),
        low=low if fixed == "low" else None,
        high=high if fixed == "high" else None,
    )
    assert low <= pair[0] < pair[1] <= high
    assert fixed != "low" or pair[0] == low
    assert fixed != "high" or pair[1] == high


@given(one=st.floats(-1e90, 1e90), other=st.floats(-1e90, 1e90))
def test_the_edges_of_a_range_rise_from_its_one_end_to_the_other(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if low < high:
        edges = value_bounds.edges(low, high)
        assert (edges[0], edges[-1]) == (low, high)
        assert all(a < b for a, b in itertools.pairwise(edges))
        assert len(edges) <= 2 * (value_bounds.PER_SIGN + 1) + 3


def counts_of(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", within: tuple[float, float]) -> list[float]:
    """How many values lie in each bin."""
    return [float(count) for count in np.histogram(values, value_bounds.bins(*within))[0]]


@pytest.mark.parametrize("multiple", [1.0, 8.0, 64.0])
@pytest.mark.parametrize("centred", [False, True])
def test_bounds_have_nearly_the_least_error_that_bounds_can_have(multiple: float, centred: bool) -> None:
    """Against a search among a thousand bounds, with the exact clipped mass; edges are a factor of sqrt(2) apart."""
    values = np.random.default_rng(3).lognormal(3.0, 1.0, 40_000)
    rows = len(values) / 100 * value_bounds.SKEW

    def error(low: float, high: float) -> float:
        lost = float(np.abs(values - np.clip(values, low, high)).mean()) * rows
        return math.hypot(lost, multiple * ((high - low) / 2 if centred else high))

    low, high = value_bounds.choose(
        counts_of(values, (0.0, 1e6)), within=(0.0, 1e6), stddev=1.0, law="laplace", multiple=multiple, centred=centred,
        partitions=100, low=0.0,
    )  # fmt: skip
    best = min(error(0.0, b) for b in np.geomspace(1, 1e4, 1000))
    assert low == 0.0
    assert error(low, high) <= 1.2 * best


def test_more_noise_makes_bounds_narrower_and_larger_partitions_wider() -> None:
    counts = counts_of(np.random.default_rng(4).pareto(1.5, 50_000), (0.0, 1e6))

    def high(multiple: float, partitions: int | None) -> float:
        return value_bounds.choose(
            counts,
            within=(0.0, 1e6),
            stddev=1.0,
            law="gaussian",
            multiple=multiple,
            centred=False,
            partitions=partitions,
        )[1]

    noisier = [high(multiple, 500) for multiple in (0.1, 1.0, 10.0, 100.0)]
    assert noisier == sorted(noisier, reverse=True)
    assert noisier[0] > noisier[-1]
    assert high(1.0, 10) > high(1.0, None) > high(1.0, 50_000)


def test_noise_alone_passes_for_rows_with_a_small_probability() -> None:
    """False alarms of the test itself: 2000 histograms with at most 1% each; more than 80 have a probability below 1e-15."""
    made, size = np.random.default_rng(6), len(value_bounds.bins(-8.0, 8.0)) - 1
    draws = {"gaussian": made.normal(0, 10, (2000, size)), "laplace": made.laplace(0, 10 / math.sqrt(2), (2000, size))}
    for law, of_law in draws.items():
        assert (of_law >= value_bounds.stands_out(size, 10.0, law, 0.01)).any(axis=1).sum() <= 80
        # A threshold without the union over bins would be passed again and again.
        assert (of_law >= value_bounds.stands_out(1, 10.0, law, 0.01)).any(axis=1).sum() > 200


def grouped(sign_of: "np.ndarray[tuple[int], np.dtype[np.float64]]", stddev: float = 10.0) -> list[list[float]]:
    """Noisy counts by group of 200 partitions, which have values of both signs, or of the given sign where it is not 0."""
    random = np.random.default_rng(11)
    partition = random.integers(0, 200, 100_000)
    values, signs = 50 * random.standard_t(3, len(partition)), sign_of[partition]
    values = np.where(signs == 0, values, np.abs(values) * signs)
    groups = [
        counts_of(values[partition % partition_groups.GROUPS == n], SIGNED) for n in range(partition_groups.GROUPS)
    ]
    return (np.array(groups) + random.laplace(0, stddev / math.sqrt(2), np.shape(groups))).tolist()


SIGNED = (-1e6, 1e6)


def of_groups(groups: list[list[float]]) -> tuple[float, float]:
    """The bounds for these, with a known number of partitions."""
    return value_bounds.choose(
        groups, within=SIGNED, stddev=10.0, law="laplace", multiple=25.0, centred=False, partitions=200
    )  # fmt: skip


def test_bounds_are_as_wide_as_partitions_that_differ_need_and_no_wider_where_they_do_not() -> None:
    """What clamping takes at two ends cancels in partitions that are alike, and adds up in partitions of one sign each."""
    signs = np.random.default_rng(3).permutation(np.where(np.arange(200) % 2, 1.0, -1.0))
    narrow, wide = of_groups(grouped(np.zeros(200))), of_groups(grouped(signs))
    values, rows = np.abs(50 * np.random.default_rng(2).standard_t(3, 100_000)), 500

    def errors(high: float) -> tuple[float, float]:
        lost = np.maximum(values - high, 0.0)
        return math.hypot(math.sqrt(rows * float((lost**2).mean())), 25 * high), math.hypot(
            rows * float(lost.mean()), 25 * high
        )

    least = [min(errors(high)[place] for high in np.geomspace(1, 1000, 200)) for place in (0, 1)]
    assert (narrow[0], wide[0]) == (-narrow[1], -wide[1])
    assert errors(narrow[1])[0] <= 1.3 * least[0]
    assert errors(wide[1])[1] <= 1.3 * least[1]
    # Each would be a poor choice for the other.
    assert errors(narrow[1])[1] > 1.5 * least[1]
    assert errors(wide[1])[0] > 1.5 * least[0]
    # All rows together, without groups, look the same in both cases.
    assert len({of_groups([np.sum(grouped(which), axis=0).tolist()]) for which in (np.zeros(200), signs)}) == 1


@given(data=st.data())
def test_groups_of_any_numbers_lead_to_bounds_within_the_range(data: st.DataObject) -> None:
    size = len(value_bounds.bins(*WITHIN)) - 1
    rows = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40).map(lambda row: np.resize(row, size).tolist())
    low, high = value_bounds.choose(
        data.draw(st.lists(rows, min_size=1, max_size=8)),
        within=WITHIN,
        stddev=data.draw(st.floats(1e-3, 1e9)),
        law=data.draw(st.sampled_from(["laplace", "gaussian"])),
        multiple=data.draw(st.floats(1e-6, 1e6)),
        centred=data.draw(st.booleans()),
        partitions=data.draw(st.one_of(st.none(), st.integers(1, 10**6))),
    )
    assert WITHIN[0] <= low < high <= WITHIN[1]


def test_groups_that_differ_by_noise_and_chance_alone_are_taken_to_be_alike() -> None:
    """The estimate is above its least value where noise passes one deviation: in a sixth of all cases or so."""
    random, passed = np.random.default_rng(12), 0
    for _ in range(200):
        groups = random.poisson(500.0, (8, 6)) + random.normal(0, 20, (8, 6))
        ends = np.array([-1.0, -1.0, 0.0, 0.0, 1.0, 1.0]) / 6
        passed += (
            value_bounds.apart(groups, groups.sum(axis=0), ends, stddev=20.0, typical=100.0) > value_bounds.LEAST_APART
        )
    assert passed <= 100


def test_bins_of_both_signs_are_averaged_only_where_noise_and_chance_may_be_all_that_differs() -> None:
    at, stddev = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], 10.0
    near, far = [100.0, 0.0, 0.0, 130.0, 7.0], [100.0, 0.0, 0.0, 300.0, 7.0]
    assert value_bounds.balanced(np.array(near), at, stddev).tolist() == [115.0, 0.0, 0.0, 115.0, 7.0]
    assert value_bounds.balanced(np.array(far), at, stddev).tolist() == far


@pytest.mark.parametrize(("law", "added"), [("laplace", 1), ("laplace", 8), ("gaussian", 8)])
def test_sums_of_noises_pass_for_rows_as_rarely_as_single_ones(law: str, added: int) -> None:
    """20,000 sums with at most 1 % each: more than 290 have a probability below 1e-9; at a limit of 20 % more do."""
    made = np.random.default_rng(13)
    draws = made.normal(0, 10, (20_000, added)) if law == "gaussian" else made.laplace(0, 50**0.5, (20_000, added))
    assert (draws.sum(axis=1) >= value_bounds.stands_out(1, 10.0, law, 0.01, added=added)).sum() <= 290
    assert (draws.sum(axis=1) >= value_bounds.stands_out(1, 10.0, law, 0.2, added=added)).sum() > 290


def test_rows_that_stand_out_together_are_seen_and_noise_is_not() -> None:
    random = np.random.default_rng(14)
    shown = np.array([1e4, 0.0, 0.0, 0.0, 0.0, 40.0, 40.0, 40.0, 40.0, 0.0, 0.0, 0.0])
    found = [value_bounds.seen(shown + random.normal(0, 10, 12), 10.0, "gaussian", 0.001) for _ in range(50)]
    tails = [float(one[4:10].sum()) for one in found]
    assert np.mean(tails) == pytest.approx(160, abs=25)
    assert sum(one[1:4].sum() > 0 for one in found) <= 2


def test_of_an_empty_histogram_the_whole_range_is_taken() -> None:
    nothing = [0.0] * (len(value_bounds.bins(0.0, 100.0)) - 1)
    for counts in (nothing, [-5.0] * len(nothing)):
        assert value_bounds.choose(
            counts, within=(0.0, 100.0), stddev=10.0, law="laplace", multiple=1.0, centred=False
        ) == (0.0, 100.0)  # fmt: skip


def test_values_beyond_the_range_count_as_its_ends() -> None:
    counts = counts_of(np.array([1e9] * 10_000), (0.0, 128.0))
    assert value_bounds.choose(
        counts, within=(0.0, 128.0), stddev=10.0, law="laplace", multiple=1.0, centred=False
    ) == (0.0, 128.0)  # fmt: skip


def test_the_histogram_is_a_stage_of_the_first_pipeline_with_a_share_of_its_own() -> None:
    plain = dp.Query(privacy_unit="u0", partition_by="p0", metrics={"rows": dp.Count()}, bounds=query().bounds)
    expanded = expand({"s": query(), "plain": plain}, {"s": 2.0, "plain": 1.0})
    assert expanded.phases == (("s.bounds",), ("s", "plain"))
    assert dict(expanded.auto) == {"s": "s.bounds"}
    assert dict(expanded.shares) == pytest.approx({"s.bounds": 0.2, "s": 1.8, "plain": 1.0})
    before = expanded.queries["s.bounds"]
    # `mean` and `spread` declare one range, and share a histogram.
    assert list(before.metrics) == ["mean", "total"]
    assert before.partitions == dp.PublicPartitions(keys=[(name,) for name in partition_groups.NAMES])
    assert before.bounds.max_rows == 4
    assert {record.stage for record in PLANS["approximate"].mechanisms} == {"s", "s.bounds"}
    assert PLANS["approximate"].accounted["epsilon"] <= 1.0


def test_a_plan_with_bounds_to_choose_is_restored() -> None:
    plan = PLANS["approximate"]
    again = dp.Plan.restore(plan.frozen(), epsilon=1.0, delta=1e-6, stages={"s": query()})
    assert again.digest == plan.digest
    assert again["s"] == plan["s"]


def test_plans_without_chosen_bounds_keep_their_digest() -> None:
    """A plan without `within` has the digest that ledgers hold."""
    asked = dp.Query(
        privacy_unit="u", partition_by="k", metrics={"s": dp.Sum("v", min_value=0, max_value=2)},
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        partitions=dp.PublicPartitions(keys=[("a",)]),
    )  # fmt: skip
    assert dp.Plan(epsilon=1.0, stages={"s": asked}).digest == DIGEST


DIGEST = "7c9bb4f8c937c9d3a790e2578fb5a2490ebac8faeb6619068a3a97ab26f204b1"


def test_metrics_of_one_family_get_the_same_bounds() -> None:
    plan = PLANS["approximate"]
    before, made = plan["s.bounds"], np.random.default_rng(8)
    values = made.random(40_000) * 20
    table = pa.table(
        {
            "_all": ["_all"],
            "total": [counts_of(values, (0.0, 1e6))],
            "mean": [counts_of(values, WITHIN)],
        }
    )
    found = bounds_chosen.choose(plan["s"], before, table)
    assert found["mean"] == found["spread"]
    assert found["total"][0] == 0.0
    assert all(10 < high < 30 for _, high in found.values())
    assert resolve(plan["s"], found).query.metrics["mean"].auto is False


def test_the_library_refuses_to_run_a_stage_whose_bounds_are_open() -> None:
    with pytest.raises(RequestError, match="has bounds that another pipeline must release first"):
        PrivateAggregate(PLANS["pure"]["s"])
    ready = resolve(PLANS["pure"]["s"], dict.fromkeys(("total", "mean", "spread"), (0.0, 9.0)))
    assert PrivateAggregate(ready).stage is ready


def test_a_stage_with_the_name_of_the_bounds_is_refused() -> None:
    with pytest.raises(RequestError, match="is what the bounds of 's' are called"):
        dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(), "s.bounds": query()})
