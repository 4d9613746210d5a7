"""Pins of a ledger's anchor outside the ledger, since anyone who can write the ledger can change the place it names.

In: the anchor that a command or the environment names; the ledger that this user last saw at the place. Out: an error if the
ledger says otherwise. Holds: a named anchor must exist and match; a ledger whose name or anchor has changed is refused until a
person accepts it; a missing ledger is never recreated silently. Not covered: a ledger seen for the first time with no anchor
named; anyone who can write this user's state folder; a rollback of both the ledger and its anchor.
"""

import contextlib
import hashlib
import os
import pathlib
from typing import Any

from dp_pipelines import private_folders
from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger.anchor import Anchor, default_anchor, put, read_object

ENVIRONMENT = "DP_PIPELINES_ANCHOR"
"""The environment variable that is used if a command has no `--anchor`."""


class OtherAnchor(LedgerError):
    """A ledger keeps its anchor somewhere other than the place that was named."""


def named(given: str | None) -> str:
    """Return the absolute path of the folder that must hold the anchor; empty if none is named.

    Args:
        given: the folder that the caller names; None for the one in the environment.
    """
    folder = given if given is not None else os.environ.get(ENVIRONMENT, "")
    return os.path.abspath(folder) if folder else ""


def refuse_other(shown: str, held: str, pinned: str) -> None:
    """Refuse a ledger whose anchor is not in the named folder.

    Args:
        shown: the ledger's place.
        held: the folder that the ledger names; empty for this user's own.
        pinned: the result of `named`.

    Raises:
        OtherAnchor: it is elsewhere.
    """
    if pinned and os.path.realpath(held or default_anchor()) != os.path.realpath(pinned):
        place = repr(held) if held else f"this user's own folder {default_anchor()!r}"
        raise OtherAnchor(
            f"ledger {shown}: says that its anchor is in {place}, and --anchor (or {ENVIRONMENT}) names {pinned!r}: the ledger "
            "was rewritten or replaced, unless that name is wrong; restore the newest copy, or correct the name"
        )


def refuse_unlike(place: str, shown: str, ledger: str, anchor: str) -> None:
    """Refuse a ledger if this user last saw a different one at this place.

    Args:
        place: the ledger's place, in its one canonical spelling.
        shown: the place as people read it.
        ledger: the ledger's own name.
        anchor: the anchor's folder that it names; empty for this user's own.

    Raises:
        LedgerError: the ledger or its anchor differs from what was seen.
    """
    last_seen, note = _held(place), _note(place)
    if last_seen is None:
        return
    if last_seen["ledger"] != ledger:
        what = "is not the ledger that this user has seen here before"
    elif last_seen["anchor"] != anchor:
        what = "names a different place for its anchor than when this user last saw it"
    else:
        return
    raise LedgerError(
        f"ledger {shown}: {what} ({note}): it was rewritten or replaced; restore the newest copy, or, if it was replaced on "
        "purpose, accept it as it is with `dp-pipelines ledger verify --accept`"
    )


def seen(place: str) -> bool:
    """Return True if this user has seen a ledger at this place."""
    return _held(place) is not None


def refuse_gone(place: str, shown: str) -> None:
    """Refuse to create a ledger where one was seen before: the missing one records what was spent.

    Args:
        place: the ledger's place, in its one canonical spelling.
        shown: the place as people read it.

    Raises:
        RequestError: this user has seen a ledger there.
    """
    note = _held(place)
    if note is None:
        return
    head = Anchor(pathlib.Path(note["anchor"] or default_anchor()), note["ledger"], optional=True).read()
    events = "" if head is None else f" ({head.seq:,} {'event' if head.seq == 1 else 'events'})"
    raise RequestError(
        field=f"ledger {shown}",
        message=f"was here{events} and is gone: it records what was spent",
        hint="restore it; to start anew on purpose, with a full budget: `dp-pipelines ledger init --accept`",
    )


def remember(place: str, ledger: str, anchor: str) -> None:
    """Record the ledger that this user has seen. An unwritable state folder is not an error. Arguments as for `refuse_unlike`."""
    seen, note = {"place": place, "ledger": ledger, "anchor": anchor}, _note(place)
    if read_object(note) != seen:
        with contextlib.suppress(OSError):
            private_folders.make(note.parent)
            put(note, seen)


def _held(place: str) -> dict[str, Any] | None:
    content = read_object(_note(place))
    return content if content and all(isinstance(content.get(name), str) for name in ("ledger", "anchor")) else None


def _note(place: str) -> pathlib.Path:
    name = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return pathlib.Path(default_anchor()) / f"place-{name}.json"
