"""What the choosers of bounds are told of a plan: true numbers of its noise, its rows and its partitions.

In: plans with open bounds, released histograms; choosers that write down their arguments. Out: these arguments. Holds: what is
said of noise is the noise of the stage once it has its bounds, to a few parts in a hundred, for rounding to whole steps. Not
covered: what is chosen for such arguments (tests/auto_bounds).
"""

from typing import Any

import pyarrow as pa
import pytest

import dp_pipelines as dp
from dp_pipelines.auto_bounds import joint_bounds, partition_bound, value_bounds
from dp_pipelines.planning import resolve
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import bounds_chosen

PUBLIC = dp.PublicPartitions(keys=[("a",), ("b",), ("c",)])
WIDE, SHORT = (-50.0, 1e6), (0.0, 100.0)
METRICS: dict[str, Any] = {
    "rows": dp.Count(),
    "total": dp.Sum("n0", min_value=0, max_value="auto", within=SHORT),
    "capped": dp.Sum("n0", min_value=0, max_value="auto", within=WIDE),
    "least": dp.Sum("n1", min_value="auto", max_value=70, within=SHORT),
    "mean": dp.Mean("n0", min_value="auto", max_value="auto", within=WIDE),
    "spread": dp.Variance("n0", min_value="auto", max_value="auto", within=WIDE),
    "fixed": dp.Mean("n2", min_value=0, max_value=100),
}


GIVEN = {"total": (0.0, 8.0), "capped": (0.0, 8.0), "least": (1.0, 70.0)}
"""Bounds with the end that the job gives."""


def plan_of(**changes: Any) -> dp.Plan:
    """A plan with a stage `s`."""
    fields: dict[str, Any] = {
        "privacy_unit": "u0",
        "partition_by": "p0",
        "bounds": dp.ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=3),
        "metrics": METRICS,
    }
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": dp.Query(**{**fields, **changes})})


def stddevs_of(stage: StagePlan) -> dict[str, float]:
    """The deviation of the noise of each statistic, by its name."""
    return {s.name: noise.stddev for s, noise in zip(stage.statistics, stage.noises, strict=True) if noise is not None}


class Asked(dict[str, Any]):
    """The arguments of a call, by name; the first one as `counts`."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The questions that the chooser of bounds of values was asked, which answers (1, 8) to each."""
    asked: list[Asked] = []

    def choose(counts: Any, **more: Any) -> tuple[float, float]:
        asked.append(Asked(counts=counts, **more))
        return 1.0, 8.0

    monkeypatch.setattr(value_bounds, "choose", choose)
    return asked


def table_of(plan: dp.Plan) -> pa.Table:
    """A histogram for each column and range, in two groups: the numbers in it say whose it is."""
    shown = plan["s.bounds"].query.metrics
    return pa.table({name: pa.array([[float(at)], [at + 0.5]]) for at, name in enumerate(shown)})


def asked_of(plan: dp.Plan, calls: list[Asked]) -> dict[str, Asked]:
    """What was asked of each metric."""
    found = bounds_chosen.choose(plan["s"], plan["s.bounds"], table_of(plan))
    assert set(found.values()) == {(1.0, 8.0)}
    return dict(zip(found, calls, strict=True))


@pytest.mark.parametrize("partitions", [PUBLIC, dp.PrivatePartitions()], ids=["public", "private"])
def test_each_metric_is_asked_about_with_its_own_histogram_and_what_the_job_declares(
    partitions: Any, calls: list[Asked]
) -> None:
    plan = plan_of(partitions=partitions)
    asked = asked_of(plan, calls)
    assert set(asked) == {"total", "capped", "least", "mean", "spread"}
    assert {name: one["within"] for name, one in asked.items()} == {
        "total": SHORT, "capped": WIDE, "least": SHORT, "mean": WIDE, "spread": WIDE,
    }  # fmt: skip
    assert {name: (one["low"], one["high"]) for name, one in asked.items()} == {
        "total": (0.0, None), "capped": (0.0, None), "least": (None, 70.0), "mean": (None, None), "spread": (None, None),
    }  # fmt: skip
    # Clamped squares cancel at no end: where a variance reads the same bounds, they are chosen for it too.
    assert {name: one["cancels"] for name, one in asked.items()} == {
        "total": True, "capped": True, "least": True, "mean": False, "spread": False,
    }  # fmt: skip
    shown = plan["s.bounds"].query.metrics
    own = {name: [[float(at)], [at + 0.5]] for at, name in enumerate(shown)}
    assert set(own) == {"capped", "least", "total"}, (
        "a column has one histogram for each range, named after the first metric"
    )
    assert {name: one["counts"] for name, one in asked.items()} == {
        "total": own["total"], "capped": own["capped"], "least": own["least"], "mean": own["capped"], "spread": own["capped"],
    }  # fmt: skip
    assert {one["partitions"] for one in asked.values()} == {3 if partitions is PUBLIC else None}


def test_bounds_of_values_are_chosen_by_the_noise_of_the_histogram_and_of_the_sums_with_these_bounds(
    calls: list[Asked],
) -> None:
    plan = plan_of(partitions=PUBLIC)
    asked, before = asked_of(plan, calls), plan["s.bounds"]
    ready = resolve.resolve(plan["s"], dict.fromkeys(asked, (1.0, 8.0)) | GIVEN)
    largest = {"total": 8.0, "capped": 8.0, "least": 70.0, "mean": 3.5 if asked["mean"]["centred"] else 8.0}
    for name, size in largest.items():
        (noise,) = {stddevs_of(ready)[s] for s in sums_of(ready, name)}
        assert asked[name]["multiple"] * size == pytest.approx(noise, rel=0.02)
    (of_histograms,) = set(stddevs_of(before).values())
    assert {one["stddev"] for one in asked.values()} == {of_histograms}
    assert {one["law"] for one in asked.values()} == {choice.law for choice in before.choices.noises.values()}
    # Nine rows of a unit may count in the stage, and four in a histogram.
    assert {one["rows_beyond"] for one in asked.values()} == {9 / 4}


def sums_of(stage: StagePlan, name: str) -> list[str]:
    """The names of the sums of values of a metric."""
    metric = stage.query.metrics[name]
    return [s.name for s in metric.statistics(stage.basis(metric)) if s.name.startswith("sum(")]


OPEN: dict[str, Any] = {
    "bounds": dp.ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=[1, 2, 4, 8, 16], max_contributions_per_partition=2
    ),
    "metrics": {
        "rows": dp.Count(),
        "users": dp.PrivacyIdCount(weight=2),
        "paid": dp.Sum("n0", min_value=0, max_value=9, weight=3),
    },
}
ADDS = {"rows": 2.0, "users": 1.0, "paid": 18.0, "selection": 1.0}
"""What a unit with its two rows adds to one partition at most."""

NO_USERS = {name: metric for name, metric in OPEN["metrics"].items() if name != "users"}
WEIGHTS = {"rows": 1.0, "users": 2.0, "paid": 3.0}
SELECTIONS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "public": ({"partitions": PUBLIC}, WEIGHTS),
    # The number of users that is published is the one that selection compares: it has both weights.
    "published": ({"partitions": dp.PrivatePartitions(strategy="laplace", weight=5)}, {**WEIGHTS, "users": 7.0}),
    "published, gaussian": (
        {"partitions": dp.PrivatePartitions(strategy="gaussian", weight=5)},
        {**WEIGHTS, "users": 7.0},
    ),
    "for selection alone": (
        {"partitions": dp.PrivatePartitions(strategy="laplace", weight=5), "metrics": NO_USERS},
        {"rows": 1.0, "paid": 3.0, "selection": 5.0},
    ),
    "by weights": (
        {"partitions": dp.PrivatePartitions(strategy="weighted_gaussian", weight=5)},
        {**WEIGHTS, "selection": 5.0},
    ),
}


def named(name: str) -> str:
    """The metric of a statistic."""
    return {"units": "users"}.get(name, "paid" if name.startswith("sum(") else name)


@pytest.mark.parametrize(("changes", "weights"), SELECTIONS.values(), ids=SELECTIONS)
def test_the_bound_on_partitions_is_chosen_by_the_noise_that_the_stage_has_with_each_candidate(
    changes: dict[str, Any], weights: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Asked] = []

    def choose(counts: Any, **more: Any) -> int:
        asked.append(Asked(counts=counts, **more))
        return 4

    monkeypatch.setattr(partition_bound, "choose", choose)
    plan = plan_of(**OPEN | changes)
    stage, before = plan["s"], plan["s.partitions"]
    table = pa.table({"_all": ["_all"], "units": [[5.0, 2.0]]})
    assert bounds_chosen.contributions(stage, before, table) == (4, None)
    (one,) = asked
    (stddev,) = stddevs_of(before).values()
    (law,) = {choice.law for choice in before.choices.noises.values()}
    assert (one["counts"], one["stddev"], one["law"]) == ([5.0, 2.0], stddev, law)
    assert one["candidates"] == (1, 2, 4, 8, 16)
    assert one["partitions"] == (3 if changes["partitions"] is PUBLIC else None)
    effects = {named(name): effect for name, effect in bounds_chosen._effects(stage)}
    assert one["effects"] == [effect for _, effect in bounds_chosen._effects(stage)]
    assert {name: effect.weight for name, effect in effects.items()} == weights
    for candidate in (1, 4, 16):
        ready = resolve.with_partitions(stage, candidate)
        noises = {named(name): noise for name, noise in stddevs_of(ready).items()}
        if "selection" in weights:
            assert ready.selection is not None
            assert ready.selection.noise is not None
            noises["selection"] = ready.selection.noise.stddev
        for name, effect in effects.items():
            told = effect.multiple * candidate**effect.power * ADDS[name]
            assert told == pytest.approx(noises[name], rel=0.02), name


@pytest.mark.parametrize("partitions", [PUBLIC, dp.PrivatePartitions()], ids=["public", "private"])
@pytest.mark.parametrize("alone", [False, True])
def test_both_bounds_are_chosen_by_the_noise_that_the_stage_has_with_each_pair(
    partitions: Any, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Asked] = []

    def choose(sizes: Any, rows: Any, **more: Any) -> tuple[int, int]:
        asked.append(Asked(counts=(sizes, rows), **more))
        return 4, 2

    monkeypatch.setattr(joint_bounds, "choose", choose)
    bounds = dp.ContributionBounds(
        max_partitions_contributed=8 if alone else "auto", max_contributions_per_partition="auto"
    )
    plan = plan_of(bounds=bounds, metrics=OPEN["metrics"], partitions=partitions)
    stage, before = plan["s"], plan["s.partitions"]
    shown = {name: [1e7] + [0.0] * (len(metric.edges) - 2) for name, metric in before.query.metrics.items()}  # type: ignore[attr-defined]
    table = pa.table({"_all": ["_all"], **{name: [counts] for name, counts in shown.items()}})
    assert bounds_chosen.contributions(stage, before, table) == (None if alone else 4, 2)
    (one,) = asked
    assert [None if sizes is None else sizes.mean for sizes in one["counts"]] == [None if alone else 1.0, 1.0]
    assert one["candidates"] == (stage.query.bounds.candidates, stage.query.bounds.row_candidates)
    assert one["public"] == (3 if partitions is PUBLIC else None)
    effects = dict(zip((named(name) for name, _ in bounds_chosen._effects(stage)), one["effects"], strict=True))
    assert {name for name, effect in effects.items() if effect.rows} == {"rows", "paid"}
    for pair in ((None, 1), (None, 16)) if alone else ((1, 1), (8, 16)):
        noises = {named(name): noise for name, noise in stddevs_of(resolve.with_partitions(stage, *pair)).items()}
        for name in ("rows", "users", "paid"):
            effect = effects[name]
            per_row = {"rows": 1.0, "users": 1.0, "paid": 9.0}[name] * (pair[1] if effect.rows else 1)
            told = effect.multiple * (pair[0] or 8) ** effect.power * per_row
            assert told == pytest.approx(noises[name], rel=0.05), (name, pair)


def test_a_stage_that_makes_up_for_what_its_bounds_cut_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def choose(*_: Any, estimates: bool, **__: Any) -> tuple[int, int]:
        asked.append(estimates)
        return 4, 2

    monkeypatch.setattr(joint_bounds, "choose", choose)
    bounds = dp.ContributionBounds(max_partitions_contributed="auto", max_contributions_per_partition="auto")
    for kept in (None, dp.Kept(share=0.05)):
        plan = plan_of(bounds=bounds, metrics={"rows": dp.Count()}, partitions=PUBLIC, kept=kept)
        before = plan["s.partitions"]
        counts = {name: [[0.0] * (len(m.edges) - 1)] for name, m in before.query.metrics.items()}  # type: ignore[attr-defined]
        bounds_chosen.contributions(plan["s"], before, pa.table({"_all": ["_all"], **counts}))
    assert asked == [False, True]
