"""The events of a ledger, and the hash chain that ties each event to all earlier ones.

In: the kind of an event and its body. Out: a row whose hash covers its number, its kind, its time, its body and the
hash of the row before; the first row names the ledger itself. Holds: changing, removing, adding or reordering any row
breaks the chain at that place. Not covered: anyone who can write the ledger and every anchor can write another, equally
sound chain.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from dp_pipelines.errors import LedgerError

FORMAT = 1
"""Part of every hash; raised when the meaning of an event changes."""

START = "0" * 64
"""The hash that the first event names as its predecessor's."""

LEDGER_CREATED = "ledger_created"
ACCOUNT_OPENED = "account_opened"
CAP_RAISED = "cap_raised"
SOURCE_REGISTERED = "source_registered"
PLAN_FROZEN = "plan_frozen"
RUN_RESERVED = "run_reserved"
ATTEMPT_STARTED = "attempt_started"
JOB_SUBMITTED = "job_submitted"
ATTEMPT_ENDED = "attempt_ended"
DRAW_FROZEN = "draw_frozen"
RUN_STAGED = "run_staged"
RUN_COMMITTED = "run_committed"
RUN_PUBLISHED = "run_published"
RUN_ABANDONED = "run_abandoned"
DATA_TUNED = "data_tuned"

KINDS = (
    LEDGER_CREATED,
    ACCOUNT_OPENED,
    CAP_RAISED,
    SOURCE_REGISTERED,
    PLAN_FROZEN,
    RUN_RESERVED,
    ATTEMPT_STARTED,
    JOB_SUBMITTED,
    ATTEMPT_ENDED,
    DRAW_FROZEN,
    RUN_STAGED,
    RUN_COMMITTED,
    RUN_PUBLISHED,
    RUN_ABANDONED,
    DATA_TUNED,
)
"""The kinds of events that the core has rules for. Extensions have more (`account_kind`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One row of a ledger.

    Args:
        seq: its number, from 1 without gaps.
        previous: the hash of the event before it.
        kind: one of `KINDS`, or of an extension.
        time: when the driver's clock said it happened; it decides nothing.
        body: canonical JSON.
        hash: SHA-256 over all of the above.
    """

    seq: int
    previous: str
    kind: str
    time: str
    body: str
    hash: str

    @property
    def content(self) -> dict[str, Any]:
        """Return the body as values."""
        content = json.loads(self.body)
        if not isinstance(content, dict):
            raise ValueError("the body of an event is an object")
        return content


def chained(previous: Event | None, kind: str, body: Mapping[str, Any], time: str) -> Event:
    """Return the event that follows another.

    Args:
        previous: the last event; None for the first one.
        kind: one of `KINDS`, or of an extension.
        body: the content.
        time: by the driver's clock.

    >>> first = chained(None, LEDGER_CREATED, {"ledger": "l"}, "2026-01-01T00:00:00Z")
    >>> first.seq, chained(first, CAP_RAISED, {}, "").previous == first.hash
    (1, True)
    """
    seq = 1 if previous is None else previous.seq + 1
    before = START if previous is None else previous.hash
    text = canonical(body)
    return Event(seq=seq, previous=before, kind=kind, time=time, body=text, hash=digest(seq, before, kind, time, text))


def canonical(body: Mapping[str, Any]) -> str:
    """Return JSON in one spelling only: sorted keys, no spaces, no NaN."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(seq: int, previous: str, kind: str, time: str, body: str) -> str:
    """Return the hash of an event. Arguments as for `Event`."""
    return hashlib.sha256(json.dumps([FORMAT, seq, previous, kind, time, body]).encode()).hexdigest()


def check_chain(events: Iterable[Event], last: Event | None = None) -> Event | None:
    """Verify that events follow each other, and return the last one.

    Args:
        events: in the order of their numbers.
        last: the event before them, verified already.

    Raises:
        LedgerError: the chain is broken; the message names the first event that does not fit.
    """
    for event in events:
        seq = 1 if last is None else last.seq + 1
        before = START if last is None else last.hash
        texts = (event.previous, event.kind, event.time, event.body, event.hash)
        sound = (
            type(event.seq) is int
            and all(type(text) is str for text in texts)
            and event.seq == seq
            and event.previous == before
            and event.hash == digest(event.seq, event.previous, event.kind, event.time, event.body)
        )
        if not sound:
            raise LedgerError(
                f"ledger: event {seq} is not as it was written: the ledger was damaged or edited; restore the "
                "newest backup and check it with `dp-pipelines ledger verify`"
            )
        last = event
    return last
