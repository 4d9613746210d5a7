"""A stage whose bounds a run has chosen: a record that costs more than the planned one is found, and families stay apart.

In: records, plans with open bounds. Out: stages. Not covered: which bounds are chosen (tests/auto_bounds), and whether the
chosen ones keep the privacy of the plan (tests/privacy).
"""

import dataclasses
import math
from fractions import Fraction

import pytest

import dp_pipelines as dp
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.planning import resolve

RECORDS = [
    MechanismRecord(stage="s", name="n", kind="gaussian", scale=Fraction(64), l2_squared=50, l0=4),
    MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(64), linf=5, l0=4, l1=15),
    MechanismRecord(stage="s", name="n", kind="approximate_dp", epsilon=0.5, delta=1e-7, l0=4),
]


@pytest.mark.parametrize("planned", RECORDS, ids=lambda record: record.kind)
def test_a_record_dominates_those_that_state_no_more_in_any_field_of_the_same_noise(planned: MechanismRecord) -> None:
    assert resolve._dominates(planned, planned)
    for field in ("l0", "linf", "l1", "l2_squared", "epsilon", "delta"):
        value = getattr(planned, field)
        if value is not None:
            less, more = (value - 1, value + 1) if isinstance(value, int) else (value / 2, value * 1.001)
            assert resolve._dominates(planned, dataclasses.replace(planned, **{field: less}))
            assert not resolve._dominates(planned, dataclasses.replace(planned, **{field: more}))
    if planned.scale is not None:
        for scale in (Fraction(63), Fraction(65)):
            assert not resolve._dominates(planned, dataclasses.replace(planned, scale=scale))
    assert not any(resolve._dominates(planned, other) for other in RECORDS if other.kind != planned.kind)


def stage_of(**metrics: dp.Metric) -> resolve.StagePlan:
    query = dp.Query(
        privacy_unit="who",
        partition_by="k",
        partitions=dp.PublicPartitions(keys=[("a",), ("b",)]),
        bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
        metrics=metrics,
    )
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]


def open_sum(within: tuple[float, float] = (0.0, 100.0)) -> dp.Metric:
    return dp.Sum("paid", min_value=within[0], max_value="auto", within=within)


@pytest.mark.parametrize("ends", [(0.0, 100.0), (0.0, 7.5), (0.0, 1e-3)])
def test_values_are_clamped_to_the_chosen_bounds_at_the_planned_price(ends: tuple[float, float]) -> None:
    stage = stage_of(total=open_sum(), rows=dp.Count())
    assert resolve.is_open(stage)
    ready = resolve.resolve(stage, {"total": ends})
    assert not resolve.is_open(ready)
    (total,) = [metric for name, metric in ready.query.metrics.items() if name == "total"]
    assert total.family == ("paid", *ends)
    assert [lattice for _, lattice in ready.layout.values] == [s.lattice for s in ready.statistics if s.lattice]
    assert [dataclasses.replace(record, name="n") for record in ready.mechanisms] == [
        dataclasses.replace(record, name="n") for record in stage.mechanisms
    ]
    names = {
        statistic.name for statistic, noise in zip(ready.statistics, ready.noises, strict=True) if noise is not None
    }
    assert names == {record.name for record in ready.mechanisms} == set(ready.choices.noises)
    for before, after in zip(stage.noises, ready.noises, strict=True):
        assert (before is None) == (after is None)
        assert before is None or after is None or before.law == after.law


@pytest.mark.parametrize("ends", [(-1e-9, 50.0), (0.0, math.nextafter(100.0, 101.0)), (50.0, 50.0), (60.0, 50.0)])
def test_bounds_outside_of_their_range_are_not_used(ends: tuple[float, float]) -> None:
    with pytest.raises(AssertionError, match="outside of their range"):
        resolve.resolve(stage_of(total=open_sum()), {"total": ends})


def test_a_family_that_becomes_one_that_is_there_moves_by_one_float_so_that_sums_stay_apart() -> None:
    stage = stage_of(total=open_sum(), known=dp.Sum("paid", min_value=0, max_value=50))
    ready = resolve.resolve(stage, {"total": (0.0, 50.0)})
    families = {name: metric.family for name, metric in ready.query.metrics.items()}
    assert families == {"total": ("paid", 0.0, math.nextafter(50.0, 0.0)), "known": ("paid", 0.0, 50.0)}
    assert len(set(ready.statistics)) == len(ready.statistics) == len(stage.statistics)


@pytest.mark.parametrize("rows", [None, 1, 8])
@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_each_candidate_of_the_bounds_is_run_at_the_planned_price_and_none_at_less(
    partitions: int, rows: int | None
) -> None:
    of_rows = {"max_contributions_per_partition": 8}
    if rows is not None:
        of_rows = {"max_contributions_per_partition": "auto", "row_candidates": [1, 8]}
    bounds = dp.ContributionBounds(max_partitions_contributed="auto", partition_candidates=[1, 4, 16], **of_rows)
    listed, metrics = dp.PublicPartitions(keys=[("a",)]), {"rows": dp.Count(), "users": dp.PrivacyIdCount()}
    query = dp.Query(privacy_unit="who", partition_by="k", partitions=listed, bounds=bounds, metrics=metrics)
    stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]
    ready = resolve.with_partitions(stage, partitions, rows)
    assert (ready.layout.max_partitions, ready.layout.max_rows_per_partition) == (partitions, rows or 8)
    assert ready.mechanisms == stage.mechanisms
    assert [noise and noise.law for noise in ready.noises] == [noise and noise.law for noise in stage.noises]
    assert not resolve.is_open(ready)
    cheaper = tuple(
        dataclasses.replace(record, **{field: getattr(record, field) // 400})
        for record in stage.mechanisms
        for field in ["l2_squared" if record.kind == "gaussian" else "l1"]
    )
    with pytest.raises(AssertionError, match="costs more than the plan says"):
        resolve.with_partitions(dataclasses.replace(stage, mechanisms=cheaper), partitions, rows)
