"""An open ledger as one sequence of events: create, open and verify, catch up, append.

In: a URL. Out: the state of a ledger, and a way to add events to it. Holds: before anything is trusted, the file, the
chain, the possibility of each event and the anchor are verified, and the anchor again before anything is charged; the
anchor is where the command or the environment says, and where this user has seen it (`pins`); a step that fails leaves
no trace; one whose answer was lost is looked for before it is repeated. Not covered: which events make sense (`ledger`).
"""

import contextlib
import datetime
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import events, pins
from dp_pipelines.ledger.account_kind import refuse_missing
from dp_pipelines.ledger.anchor import Anchor, default_anchor
from dp_pipelines.ledger.database import Database, Writer
from dp_pipelines.ledger.events import Event, chained, check_chain
from dp_pipelines.ledger.patience import Patience, Refused, Unreachable
from dp_pipelines.ledger.state import State

Self = TypeVar("Self", bound="Journal")


def now() -> str:
    """Return the hour to record, as ISO 8601: `2026-01-05T03:00Z`.

    It decides nothing. A finer time would reveal the duration of runs, and so the number of rows.
    """
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:00Z")


class Journal:
    """The events of an open ledger. Use `create`, `open` or `open_or_create`."""

    def __init__(self, database: Database, clock: Callable[[], str], pinned: str = "") -> None:
        self._database, self._clock, self._pinned = database, clock, pinned
        self._events: list[Event] = []
        self._state: State | None = None
        self.anchor_trouble = ""
        """Why the last event is in no anchor, where the place is one that nobody chose; else empty."""

    @classmethod
    def create(
        cls: type[Self],
        url: str,
        *,
        anchor: str | None = None,
        clock: Callable[[], str] = now,
        patience: Patience | None = None,
        anew: bool = False,
    ) -> Self:
        """Make a new ledger.

        Args:
            url: where.
            anchor: the folder for its anchor; None takes the one that the environment names, else this user's own, where
                missing anchors are no error.
            clock: gives the times that are written down.
            patience: with a server that does not answer; None has none.
            anew: True if it may replace one that this user has seen there and that is gone.

        Raises:
            RequestError: there is one already, there was one, or the URL is wrong.
            LedgerError: it cannot be made, or its anchor cannot.
        """
        name, place = uuid.uuid4().hex, pins.named(anchor)
        journal = cls(Database(url, patience), clock, place)
        if not anew and pins.seen(journal._database.place) and not journal._database.exists():
            pins.refuse_gone(journal._database.place, journal.shown)
        if place:
            Anchor(pathlib.Path(place), name, optional=False).prepare()
        journal._state = State()
        with journal._database.creating() as writer:
            adder = Adder(journal, writer)
            adder(events.LEDGER_CREATED, {"ledger": name, "anchor": place})
        journal._write_anchor(anew=True)
        journal._remember()
        return journal

    @classmethod
    def open(
        cls: type[Self],
        url: str,
        *,
        anchor: str | None = None,
        clock: Callable[[], str] = now,
        patience: Patience | None = None,
    ) -> Self:
        """Open a ledger and verify it: file, chain, anchor.

        Args:
            url: where.
            anchor: the folder where its anchor must be; None takes the one that the environment names, if any.
            clock: gives the times that are written down.
            patience: with a server that does not answer; None has none.

        Raises:
            RequestError: there is none.
            LedgerError: it cannot be read or trusted.
        """
        journal = cls._found(url, anchor, clock, patience)
        journal._load()
        return journal

    @classmethod
    def open_or_create(
        cls: type[Self],
        url: str,
        *,
        anchor: str | None = None,
        clock: Callable[[], str] = now,
        patience: Patience | None = None,
    ) -> Self:
        """Open a ledger, or create it if there is none, even if two processes do so at once.

        Raises:
            RequestError, LedgerError: as for both; or there was one that this user has seen, and it is gone.
        """
        database = Database(url, patience)
        if not database.exists():
            with contextlib.suppress(RequestError):  # of two at once one makes it
                return cls.create(url, anchor=anchor, clock=clock, patience=patience)
        return cls.open(url, anchor=anchor, clock=clock, patience=patience)

    @classmethod
    def exists(cls, url: str, *, patience: Patience | None = None) -> bool:
        """Return True if there is a ledger at a place. Errors as for `open`, except for its absence."""
        return Database(url, patience).exists()

    @classmethod
    def was_seen(cls, url: str) -> bool:
        """Return True if this user has seen a ledger at a place, whether it is still there or not."""
        return pins.seen(Database(url).place)

    @classmethod
    def accept(
        cls: type[Self],
        url: str,
        *,
        anchor: str | None = None,
        clock: Callable[[], str] = now,
        check: Callable[[Self], object] = lambda journal: None,
    ) -> Self:
        """Open a ledger whose anchor is missing or damaged, or that is not the one seen here before, and anchor it as it is.

        Args:
            url, anchor, clock: as for `open`.
            check: examines the ledger first; if it raises, the anchor and the note of what this user has seen stay
                unchanged.

        Raises:
            RequestError, LedgerError: as for `open`, but for that anchor and that note; or the rules of an account are not
                installed.
        """
        journal = cls._found(url, anchor, clock)
        journal._load(needed=False)
        check(journal)
        refuse_missing(journal.state, journal.shown)
        journal._write_anchor(anew=True)
        journal._remember()
        return journal

    @property
    def state(self) -> State:
        """Return the state after all events; read it again if a step has failed.

        Raises:
            LedgerError: it had to be read again, and cannot be read or trusted.
        """
        if self._state is None:
            self._load()
        assert self._state is not None
        return self._state

    @property
    def patience(self) -> Patience:
        """Return how long it waits for its server."""
        return self._database.patience

    @property
    def shown(self) -> str:
        """Return the place, without a password."""
        return self._database.shown

    @property
    def path(self) -> pathlib.Path | None:
        """Return the file; None for a ledger on a server."""
        return self._database.path

    @property
    def head(self) -> Event:
        """Return the last event."""
        last = self.state.last
        assert last is not None
        return last

    @property
    def history(self) -> Sequence[Event]:
        """Return all events, verified."""
        return tuple(self._events) if self.state.last is not None else ()

    def refresh(self) -> None:
        """Read the events that others have written in the meantime.

        Raises:
            LedgerError: the ledger cannot be read or trusted.
        """
        with self._whole():
            known = self._anchor.read()
            self._follow_on(self._database.events(self.head.seq - 1))
            self._anchor.check(known, self._hash_of, needed=False)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    @classmethod
    def _found(
        cls: type[Self], url: str, anchor: str | None, clock: Callable[[], str], patience: Patience | None = None
    ) -> Self:
        journal = cls(Database(url, patience), clock, pins.named(anchor))
        if not journal._database.exists():
            pins.refuse_gone(journal._database.place, journal.shown)
            raise RequestError(
                field=f"ledger {journal.shown}",
                message="does not exist",
                hint="create it with `dp-pipelines ledger init`, or with the account of a job: `dp-pipelines ledger init JOB`",
            )
        return journal

    def _load(self, *, needed: bool = True) -> None:
        self._database.check()
        with self._whole():
            self._events, self._state = [], State()
            self._begin(self._database.events(), needed=needed)
            # The anchor is read before the last events: others may write at any time.
            known = self._anchor.read()
            self._follow_on(self._database.events(self.head.seq - 1))
            self._anchor.check(known, self._hash_of, needed=needed)
        if needed:  # a ledger that a person is about to accept is not accepted yet
            self._remember()

    def _begin(self, found: Sequence[Event], *, needed: bool = True) -> None:
        self._take(found)
        if not found:
            raise LedgerError(f"ledger {self.shown}: all of its events are gone; restore the newest backup")
        pins.refuse_other(self.shown, self.state.anchor, self._pinned)
        if needed:
            pins.refuse_unlike(self._database.place, self.shown, self.state.ledger, self.state.anchor)

    def _remember(self) -> None:
        pins.remember(self._database.place, self.state.ledger, self.state.anchor)

    def _follow_on(self, found: Sequence[Event]) -> None:
        """Apply events, the first of which must be the last known one."""
        if not found or found[0] != self.head:
            raise LedgerError(f"ledger {self.shown}: was replaced while it was open; restore the newest copy")
        self._take(found[1:])

    def _take(self, more: Sequence[Event]) -> None:
        assert self._state is not None
        check_chain(more, self._state.last)
        for event in more:
            self._state.apply(event)
            self._events.append(event)

    @property
    def _anchor(self) -> Anchor:
        chosen = self.state.anchor
        folder = pathlib.Path(chosen or default_anchor())
        return Anchor(folder, self.state.ledger, optional=not chosen and not self._pinned)

    def _write_anchor(self, *, anew: bool = False) -> None:
        anchor = self._anchor
        anchor.write(self.head, anew=anew)
        self.anchor_trouble = anchor.trouble

    def _hash_of(self, seq: int) -> str | None:
        return self._events[seq - 1].hash if 1 <= seq <= len(self._events) else None

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Forget the state if any step inside fails, so that it is read again before it is trusted."""
        try:
            yield
        except BaseException:
            self._events, self._state = [], None
            raise

    def write(self, step: Callable[["Adder"], None], *, charges: bool = True) -> None:
        """Catch up with other writers, add events, and remember the head.

        After a failure the state is read again before the next step.

        Args:
            step: adds the events, or raises. It is called again if the server hung up before it heard of them all, and then
                sees what others have written meanwhile.
            charges: whether the anchor must be there. Without it nothing new is begun, but what is charged may be finished.

        Raises:
            RequestError: the rules of an account are not installed.
        """
        unsure: Event | None = None
        while True:
            adder: Adder | None = None
            try:
                with self._database.writing() as writer:
                    self._catch_up(writer, charges)
                    # Nobody else writes now, nor will our lost connection: either its events are here, or they never will be.
                    written = unsure is not None and self._hash_of(unsure.seq) == unsure.hash
                    if not written:
                        refuse_missing(self.state, self.shown)
                        adder = Adder(self, writer)
                        step(adder)
                break
            except BaseException as error:
                last = self._events[-1] if adder is not None and adder.added and self._state is not None else None
                if adder is not None and adder.added:
                    self._events, self._state = [], None
                if not isinstance(error, Unreachable | Refused):
                    raise
                unsure = unsure if last is None else last
                self._database.patience.again(error, f"ledger {self.shown}")
        self._database.patience.answered(f"ledger {self.shown}")
        if written or (adder is not None and adder.added):
            self._write_anchor()

    def _catch_up(self, writer: Writer, charges: bool) -> None:
        """Apply the events that others have written, and check the anchor, while nobody else writes."""
        with self._whole():
            if self._state is None:
                self._state = State()
                self._begin(writer.events(0))
            else:
                self._follow_on(writer.events(self.head.seq - 1))
            self._anchor.check(self._anchor.read(), self._hash_of, needed=charges)


class Adder:
    """A function that adds events inside one transaction."""

    def __init__(self, journal: Journal, writer: Writer) -> None:
        self._journal, self.writer, self.added = journal, writer, False

    def __call__(self, kind: str, body: Mapping[str, Any], time: str | None = None) -> None:
        self.added = True
        event = chained(self._journal.state.last, kind, body, time or self._journal._clock())
        self._journal.state.apply(event)
        self._journal._events.append(event)
        self.writer.append(event)
