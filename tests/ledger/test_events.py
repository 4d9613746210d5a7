"""The chain of hashes: whatever is changed, removed, added or put elsewhere breaks it where it stands."""

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import LedgerError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.events import Event, chained, check_chain


def chain(length: int = 5) -> list[Event]:
    found: list[Event] = []
    for number in range(length):
        kind = events.KINDS[number % len(events.KINDS)]
        found.append(chained(found[-1] if found else None, kind, {"number": number}, f"2026-01-0{number + 1}"))
    return found


def test_a_chain_that_was_written_is_sound() -> None:
    assert check_chain(chain()) == chain()[-1]
    assert check_chain(chain()[2:], chain()[1]) == chain()[-1]
    assert check_chain([]) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", 4), ("seq", 3.0), ("seq", "3"), ("seq", True), ("previous", "0" * 64), ("kind", events.RUN_RESERVED),
        ("kind", "cap_forgotten"), ("time", "2026-01-04"), ("body", '{"number":7}'), ("body", b'{"number":2}'),
        ("body", None), ("hash", "f" * 64), ("hash", None),
    ],
)  # fmt: skip
def test_a_field_that_was_changed_is_found_at_its_event(field: str, value: object) -> None:
    found = chain()
    found[2] = dataclasses.replace(found[2], **{field: value})
    with pytest.raises(LedgerError, match="event 3 is not as it was written"):
        check_chain(found)


@given(st.permutations(range(5)))
def test_events_in_another_order_are_found(order: list[int]) -> None:
    if order == sorted(order):
        return
    with pytest.raises(LedgerError):
        check_chain([chain()[number] for number in order])


@pytest.mark.parametrize("gone", range(4))
def test_an_event_that_was_removed_is_found(gone: int) -> None:
    with pytest.raises(LedgerError, match=f"event {gone + 1} "):
        check_chain([event for number, event in enumerate(chain()) if number != gone])


def test_an_event_that_was_added_is_found() -> None:
    found = chain()
    forged = chained(found[1], events.CAP_RAISED, {"epsilon": 100}, "")
    with pytest.raises(LedgerError, match="event 4 "):
        check_chain([*found[:2], forged, *found[3:]])


def test_the_last_events_can_only_be_missed_by_an_anchor() -> None:
    assert check_chain(chain()[:3]) == chain()[2]  # nothing here can know: tests/ledger/test_anchor.py


def test_an_auditor_needs_ten_lines_to_check_it() -> None:
    before = "0" * 64
    for event in chain():
        fields = [1, event.seq, before, event.kind, event.time, event.body]
        before = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
        assert event.hash == before


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_a_body_has_one_spelling_and_is_read_back(body: dict[str, object]) -> None:
    event = chained(None, events.LEDGER_CREATED, body, "")
    assert event.content == json.loads(json.dumps(body))
    assert event.body == events.canonical(dict(reversed(body.items())))
    assert event.body.isascii()


def test_what_is_no_number_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        chained(None, events.LEDGER_CREATED, {"epsilon": float("nan")}, "")


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="object"):
        _ = dataclasses.replace(chain(1)[0], body="[1]").content
