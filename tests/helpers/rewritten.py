"""An attacker who can write the ledger, and nothing else: the whole chain anew, as sound as the old one.

In: a URL, the events to be written. Out: a ledger that holds these. Holds: it is done behind the software's back, with the
triggers off and on again as their owner can; every hash is computed again. Not covered: who can write the anchor too (tests copy
it beside the ledger for that).
"""

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from dp_pipelines.ledger import events
from dp_pipelines.ledger.database import EVENTS, Database
from dp_pipelines.ledger.events import Event, chained


def rewrite(url: str, keep: int, first: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body) -> None:
    """Drop all events after a number, and write what the first one says anew.

    Args:
        url: of the ledger.
        keep: how many events stay.
        first: changes the body of the first event.
    """
    database = Database(url)
    written: list[Event] = []
    for event in database.events()[:keep]:
        body = first(event.content) if event.kind == events.LEDGER_CREATED else event.content
        written.append(chained(written[-1] if written else None, event.kind, body, event.time))
    engine = sa.create_engine(f"sqlite:///{url}" if database.is_sqlite else url.replace("://", "+psycopg://", 1))
    with engine.begin() as connection, _unguarded(connection, is_sqlite=database.is_sqlite):
        connection.execute(EVENTS.delete())
        connection.execute(EVENTS.insert(), [dataclasses.asdict(event) for event in written])
    engine.dispose()
    database.close()


@contextlib.contextmanager
def _unguarded(connection: sa.Connection, *, is_sqlite: bool) -> Iterator[None]:
    if not is_sqlite:
        connection.execute(sa.text("ALTER TABLE dp_events DISABLE TRIGGER USER"))
        yield
        connection.execute(sa.text("ALTER TABLE dp_events ENABLE TRIGGER USER"))
        return
    made: Sequence[Any] = connection.execute(
        sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    ).all()
    for name, _ in made:
        connection.execute(sa.text(f"DROP TRIGGER {name}"))
    yield
    for _, statement in made:
        connection.execute(sa.text(statement))


def unanchored(body: dict[str, Any]) -> dict[str, Any]:
    """A first event that names no anchor: the ledger that it was, with the anchor switched off."""
    return {**body, "anchor": ""}


def renamed(body: dict[str, Any]) -> dict[str, Any]:
    """A first event under another name: the anchor knows no such ledger."""
    return {**body, "ledger": uuid.uuid4().hex, "anchor": ""}


def renamed_in_place(body: dict[str, Any]) -> dict[str, Any]:
    """A first event under another name, with the same anchor."""
    return {**body, "ledger": uuid.uuid4().hex}
