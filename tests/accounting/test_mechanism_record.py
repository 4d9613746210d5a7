"""Records: exact round trips, and refusal of whatever is not plainly a record."""

import dataclasses
import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import KINDS
from dp_pipelines.errors import RequestError

GOOD = {
    "gaussian": {"scale": Fraction(65537, 64), "l2_squared": 2**70, "l0": 3},
    "sampled_gaussian": {"scale": Fraction(4096), "l2_squared": 2**20, "l0": 3, "rate": 0.02, "times": 2000},
    "laplace": {"scale": Fraction(4096), "linf": 7, "l0": 2, "l1": 14},
    "approximate_dp": {"epsilon": 0.1, "delta": 1e-9, "l0": 8},
    "bounded_range": {"epsilon": 0.1, "l0": 8},
    "delta": {"delta": 5e-7},
}
scales = st.builds(Fraction, st.integers(1, 2**80), st.sampled_from([1, 2, 64, 2**40]))
sizes = st.integers(1, 2**100)
records = st.one_of(
    st.builds(dict, kind=st.just("gaussian"), scale=scales, l2_squared=sizes, l0=sizes),
    st.builds(
        dict,
        kind=st.just("sampled_gaussian"),
        scale=scales,
        l2_squared=sizes,
        l0=sizes,
        rate=st.floats(0, 1, exclude_min=True, exclude_max=True),
        times=st.integers(1, 10**9),
    ),
    st.builds(dict, kind=st.just("laplace"), scale=scales, linf=sizes, l0=sizes, l1=sizes),
    st.builds(
        dict,
        kind=st.just("approximate_dp"),
        epsilon=st.floats(0, 1e300),
        delta=st.floats(0, 1, exclude_max=True),
        l0=sizes,
    ),
    st.builds(dict, kind=st.just("bounded_range"), epsilon=st.floats(0, 1e300), l0=sizes),
    st.builds(dict, kind=st.just("delta"), delta=st.floats(0, 1, exclude_max=True)),
)


def record(kind: str, **changed: object) -> MechanismRecord:
    return MechanismRecord(**{"stage": "weekly", "name": "orders", "kind": kind, **GOOD[kind], **changed})  # type: ignore[arg-type]


@given(
    fields=records,
    stage=st.text(min_size=1),
    name=st.text(min_size=1),
    group=st.one_of(st.none(), st.text(min_size=1)),
)
def test_a_record_survives_json_digit_for_digit(fields: dict[str, object], stage: str, name: str, group: str | None):
    one = MechanismRecord(stage=stage, name=name, group=group, **fields)  # type: ignore[arg-type]
    text = json.dumps(one.to_json())
    again = MechanismRecord.from_json(json.loads(text))
    assert again == one
    assert hash(again) == hash(one)
    assert json.dumps(again.to_json()) == text


def test_json_holds_exactly_the_fields_of_the_kind():
    assert record("gaussian").to_json() == {
        "stage": "weekly",
        "name": "orders",
        "kind": "gaussian",
        "scale": "65537/64",
        "l2_squared": 2**70,
        "l0": 3,
    }
    for kind in GOOD:
        assert set(record(kind).to_json()) == {"stage", "name", "kind", *KINDS[kind].fields}


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("field", ["scale", "l2_squared", "linf", "l0", "l1", "epsilon", "delta", "rate", "times"])
def test_a_missing_or_superfluous_field_is_refused(kind: str, field: str):
    changed = {field: None} if field in KINDS[kind].fields else {field: 1}
    with pytest.raises(RequestError, match=f"mechanism.{field}.*exactly the fields"):
        record(kind, **changed)


WRONG = [math.nan, math.inf, -1, True, "1", [], 1 + 0j]


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_not_plainly_such_a_number_is_refused(kind: str, wrong: object):
    for field in KINDS[kind].fields:
        with pytest.raises(RequestError, match=f"mechanism.{field}"):
            record(kind, **{field: wrong})


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        ("gaussian", "scale", 0),
        ("gaussian", "scale", Fraction(1, 3)),
        ("gaussian", "scale", 4096.0),
        ("gaussian", "l2_squared", 0),
        ("gaussian", "l2_squared", 4.0),
        ("laplace", "linf", 0),
        ("laplace", "l0", 0),
        ("laplace", "l1", 2.5),
        ("approximate_dp", "delta", 1),
        ("approximate_dp", "delta", 1.5),
        ("delta", "delta", 1.0),
        ("sampled_gaussian", "rate", 0.0),
        ("sampled_gaussian", "rate", 1.0),
        ("sampled_gaussian", "times", 0),
        ("sampled_gaussian", "times", 10**9 + 1),
        ("sampled_gaussian", "times", 2.5),
    ],
)
def test_what_would_mean_no_noise_or_no_bound_is_refused(kind: str, field: str, wrong: object):
    with pytest.raises(RequestError, match=f"mechanism.{field}"):
        record(kind, **{field: wrong})


@pytest.mark.parametrize(
    ("field", "wrong"), [("stage", ""), ("name", None), ("stage", 3), ("kind", "discrete"), ("kind", None)]
)
def test_a_record_without_name_stage_or_kind_is_refused(field: str, wrong: object):
    with pytest.raises(RequestError, match=f"mechanism.{field}"):
        MechanismRecord(**{"stage": "weekly", "name": "orders", "kind": "delta", "delta": 0.1, field: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "scale",
    ["1", "1/", "/1", "1/0", "1/3", "-1/2", "1/-2", " 1/2", "1_0/1", "1.5/1", "٣/1", 4096, 4096.5, None, "nan/1"],
)
def test_a_scale_written_otherwise_is_refused(scale: object):
    fields = record("laplace").to_json() | {"scale": scale}
    with pytest.raises(RequestError, match="mechanism.scale"):
        MechanismRecord.from_json(fields)


@pytest.mark.parametrize(
    "fields", [{}, [], None, "gaussian", {"stage": "s", "name": "n", "kind": "delta", "delta": 0.1, "x": 1}]
)
def test_what_is_no_object_of_a_record_is_refused(fields: object):
    with pytest.raises(RequestError, match="mechanism"):
        MechanismRecord.from_json(fields)  # type: ignore[arg-type]


def test_records_are_frozen_and_equal_by_value():
    one = record("laplace")
    assert one == record("laplace", scale=4096)
    assert len({one, record("laplace"), record("gaussian")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.l0 = 1  # type: ignore[misc]


def test_only_noise_is_drawn_from_tables():
    assert [record(kind).draws for kind in GOOD] == [3, 6000, 2, 0, 0, 0]


def test_a_group_is_written_only_where_it_is_set():
    assert "group" not in record("gaussian").to_json()
    assert record("gaussian", group="held out").to_json() == record("gaussian").to_json() | {"group": "held out"}
    assert record("gaussian", group="held out") != record("gaussian")


@pytest.mark.parametrize("group", ["", 3, ["a"], True])
def test_a_group_that_is_no_name_is_refused(group: object):
    with pytest.raises(RequestError, match="mechanism.group"):
        record("laplace", group=group)


def test_what_may_fail_has_no_pure_epsilon_and_what_may_not_has_one() -> None:
    common = {"stage": "s", "name": "n"}
    decision = MechanismRecord(**common, kind="approximate_dp", epsilon=0.5, delta=0.0, l0=3)
    assert decision.pure_epsilon == Fraction(3, 2)
    assert dataclasses.replace(decision, delta=1e-9).pure_epsilon is None
    assert MechanismRecord(**common, kind="delta", delta=0.0).pure_epsilon is None
    assert MechanismRecord(**common, kind="gaussian", scale=Fraction(1), l2_squared=1, l0=1).pure_epsilon is None
    assert MechanismRecord(**common, kind="bounded_range", epsilon=0.25, l0=2).pure_epsilon == Fraction(1, 2)


@pytest.mark.parametrize("missing", ["stage", "name", "kind"])
def test_an_object_without_a_field_that_each_record_has_is_refused_in_our_words(missing: str) -> None:
    fields = record("delta").to_json()
    del fields[missing]
    with pytest.raises(RequestError, match="must be an object with stage, name, kind"):
        MechanismRecord.from_json(fields)


@pytest.mark.parametrize(
    ("kind", "field", "most"),
    [("sampled_gaussian", "times", 10**9), *(("laplace", field, 2**160) for field in ("scale", "linf", "l0", "l1"))],
)
def test_the_largest_number_of_a_field_is_taken_and_the_next_is_refused(kind: str, field: str, most: int) -> None:
    assert getattr(record(kind, **{field: most}), field) == most
    with pytest.raises(RequestError, match=f"mechanism.{field}"):
        record(kind, **{field: most + 1})
