"""Every field of every kind of record, told wrong in turn, is found by the audit before anything is sampled.

In: plans with all kinds of records. Out: findings about them. Holds: nothing here is drawn, but where a test runs a whole audit.
Not covered: whether a sensitivity is true of the kernels (`tests/privacy`).
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query, RequestError
from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import KINDS as RECORD_KINDS
from dp_pipelines.audit import audit, records, replay
from dp_pipelines.metrics.smooth_median import SmoothMedian
from dp_pipelines.query.train_model import Category, Number, Steps
from tests.audit.test_audit import KINDS, NORTH, aggregate, broken, model, plan

MANY = {
    "visits": Number(column="visits", min_value=0, max_value=60, bins=4),
    "age": Category(column="age", most=3),
}
AUTO = ContributionBounds(
    max_partitions_contributed="auto", partition_candidates=[1, 4, 16], max_contributions_per_partition=2
)
MEDIAN = Query(
    privacy_unit="customer",
    partition_by="block",
    partitions=PublicPartitions(keys=[[100]]),
    bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
    metrics={"value": SmoothMedian(column="output", blocks=100, low=-1.0, high=3.0)},
)
SHORT = Steps(steps=20, sampling_rate=0.25, clip_norm=2.0)

PLANS: dict[str, Callable[[], Plan]] = {
    **{kind: functools.partial(plan, weekly=query) for kind, query in KINDS.items()},
    "report": functools.partial(plan, weekly=aggregate()),
    "model": functools.partial(plan, model=model(features=MANY, steps=SHORT)),
    "model, all units in each step": functools.partial(plan, model=model(steps=Steps(steps=12))),
    "features as they are": functools.partial(plan, model=model(whiten=False)),
    "a bound on partitions that a run chooses": functools.partial(
        plan,
        weekly=Query(privacy_unit="who", partition_by="k", bounds=AUTO, metrics={"rows": Count()}, partitions=NORTH),
    ),
    "median": lambda: Plan(epsilon=4.0, delta=1e-6, stages={"median": MEDIAN}),
    "rounds of growing budget": lambda: Plan(
        epsilon=4.0, delta=1e-6, stages={"weekly": aggregate()}, runs=3, split="linear"
    ),
}


@functools.cache
def made(kind: str) -> Plan:
    """A plan, made once."""
    return PLANS[kind]()


def wrong(of: Plan) -> dict[str, str]:
    """What is found wrong, by what it is."""
    ready = {name: audit._ready(stage) for name, stage in of.round(1).stages.items()}
    found = records.findings(of, ready)
    return {each.what: each.found for of_stage in found.values() for each in of_stage if each.evidence}


def with_record(of: Plan, place: int, record: MechanismRecord, *, accounted: bool) -> Plan:
    """A copy of a plan with another record, either in what was accounted or in what its stages carry."""
    first, other = of.round(1), copy.copy(of)
    other._rounds, other._groups = dict(of._rounds), of._groups
    if accounted:
        (listed, times), *rest = of._groups
        other._groups = ((*listed[:place], record, *listed[place + 1 :]), times), *rest
    else:
        listed = (*first.mechanisms[:place], record, *first.mechanisms[place + 1 :])
        other._rounds[1] = dataclasses.replace(first, mechanisms=listed)
    return other


def told_wrong(record: MechanismRecord, field: str) -> Iterator[MechanismRecord]:
    """The record with another value in one field, a little more and a little less where that can be."""
    value = getattr(record, field)
    others: tuple[Any, ...] = ()
    if field == "kind":
        same = {"stage": record.stage, "name": record.name, "group": record.group}
        if record.kind == "delta":
            yield MechanismRecord(**same, kind="bounded_range", epsilon=9.0, l0=1)
        else:
            yield MechanismRecord(**same, kind="delta", delta=1e-9)
        return
    if field == "group":
        others = ("training", "held out", None)
    elif isinstance(value, str):
        others = (f"{value}2",)
    elif isinstance(value, Fraction):
        others = (value + Fraction(1, 64), value - Fraction(1, 64), 2 * value)
    elif isinstance(value, int):
        others = (value + 1, value - 1, 2 * value)
    elif isinstance(value, float):
        others = (value * (1 + 1e-9), value * (1 - 1e-9), value / 2) if value else (1e-9,)
    for other in others:
        if other != value:
            try:
                yield dataclasses.replace(record, **{field: other})
            except RequestError:
                continue


def test_no_field_of_a_record_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {field.name for field in dataclasses.fields(MechanismRecord)} == records.COMPARED
    monkeypatch.setattr(records, "COMPARED", records.COMPARED - {"times"})  # as if it had come later
    assert any("times is compared with nothing" in found for found in wrong(made("model")).values())


@pytest.mark.parametrize("kind", PLANS)
def test_records_of_all_kinds_say_what_runs(kind: str) -> None:
    assert wrong(made(kind)) == {}


def test_the_plans_have_records_of_every_kind_and_every_form() -> None:
    assert {record.kind for kind in PLANS for record in made(kind).mechanisms} == set(RECORD_KINDS)


@pytest.mark.parametrize(
    ("kind", "field"),
    [(name, f) for name, kind in RECORD_KINDS.items() for f in ("stage", "name", "kind", "group", *kind.fields)],
)
def test_a_field_that_is_told_wrong_is_found(kind: str, field: str) -> None:
    places = [(of, n) for of in map(made, PLANS) for n, one in enumerate(of.mechanisms) if one.kind == kind]
    false = [(of, place, record) for of, place in places for record in told_wrong(of.mechanisms[place], field)]
    assert len(false) >= len(places) > 0
    for of, place, record in false:
        for accounted in (True, False):
            found = wrong(with_record(of, place, record, accounted=accounted))
            assert found, (record, accounted)
            if field not in ("stage", "name"):
                assert field in found[f"record of {record.name}"]


def test_a_record_that_stands_twice_or_for_nothing_is_found() -> None:
    of = made("report")
    (listed, times), *_ = of._groups
    for more in (
        listed[0],
        dataclasses.replace(listed[0], name="other"),
        dataclasses.replace(listed[0], stage="other"),
    ):
        other = copy.copy(of)
        other._groups = (((*listed, more), times),)
        assert wrong(other)


def test_a_last_round_that_was_accounted_otherwise_is_found() -> None:
    of, other = made("rounds of growing budget"), copy.copy(made("rounds of growing budget"))
    *groups, (listed, times) = of._groups
    more = dataclasses.replace(listed[0], scale=2 * (listed[0].scale or 0))
    other._groups = (*groups, ((more, *listed[1:]), times))
    assert list(wrong(other)) == [f"record of {more.name} in round 3"]


def test_fifteen_of_twenty_steps_are_found_before_anything_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of fifteen steps where twenty are taken: what is claimed lies below the truth, and no replay shows it."""
    of = made("model")
    place = next(n for n, record in enumerate(of.mechanisms) if record.kind == "sampled_gaussian")
    fewer = dataclasses.replace(of.mechanisms[place], times=15)
    other = with_record(of, place, fewer, accounted=False)
    other._groups = with_record(of, place, fewer, accounted=True)._groups
    assert accountant.epsilon_of(other.mechanisms, 1e-6) < 0.97 * accountant.epsilon_of(of.mechanisms, 1e-6)
    found = audit.audit(other, replays=1000, false_alarms=1e-9)
    assert ("model", f"record of {fewer.name}") in broken(found)
    assert not found.agrees
    monkeypatch.setattr(replay, "replay", lambda *rest: pytest.fail("it was sampled first"))
    assert "times 15, but 20 runs" in wrong(other)[f"record of {fewer.name}"]
