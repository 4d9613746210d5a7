"""Stores the head of a ledger in a second place, so that a restored old copy is detected.

In: a folder, the head of a chain. Out: one small file for each ledger, and one for each account that a ledger keeps. Holds: a
ledger that is behind its anchor, or has another event in the anchor's place, is refused; a ledger that is ahead is fine,
since an anchor is written after the event. An anchor never goes back. Two ledgers that share a chosen anchor folder cannot keep
the same account. Not covered: a ledger that is restored together with its anchor; on a file system without locks, two
processes at once, the slower of which may put the anchor back by the other one's last event.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from dp_pipelines import private_folders
from dp_pipelines.disk_errors import reason_of, remedy_of
from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import disks
from dp_pipelines.ledger.events import Event


def default_anchor() -> str:
    """Return the default folder of anchors: this user's own state."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return str(pathlib.Path(base) / "dp_pipelines" / "anchors")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """The newest event that an anchor has recorded: its number and hash."""

    seq: int
    hash: str


class Anchor:
    """The second place for the head of a ledger.

    Args:
        folder: where the files are.
        ledger: the ledger's own name.
        optional: True if a missing file is made anew without asking (in the default place).
    """

    def __init__(self, folder: pathlib.Path, ledger: str, *, optional: bool) -> None:
        self._folder, self._ledger, self._optional = folder, ledger, optional
        self._head = folder / f"{ledger}.json"
        self.trouble = ""
        """The failure of `write` in the default place, in words; empty if there is none."""

    def prepare(self) -> None:
        """Make sure that a chosen place can be written, before there is a ledger.

        Raises:
            LedgerError: it cannot.
        """
        with self._told(self._folder):
            private_folders.make(self._folder)
            with tempfile.TemporaryFile(dir=self._folder):
                pass

    def read(self) -> Head | None:
        """Return the recorded head; None if there is no readable anchor."""
        known = read_object(self._head)
        if known is None or known.get("ledger") != self._ledger:
            return None
        seq, text = known.get("seq"), known.get("hash")
        if type(seq) is not int or seq < 1 or not isinstance(text, str):
            return None
        return Head(seq=seq, hash=text)

    def check(self, known: Head | None, hash_of: Callable[[int], str | None], *, needed: bool = True) -> None:
        """Refuse a ledger that is not the one that was anchored, or an older copy of it.

        Args:
            known: what `read` gave, before the last event was read: an anchor may go ahead of what was read earlier.
            hash_of: returns the hash of the ledger's event with a number; None if there is none.
            needed: whether an anchor that is missing or damaged is refused.

        Raises:
            LedgerError: it is not.
        """
        if known is None:
            if not needed or (self._optional and not os.path.lexists(self._head)):
                return
            raise self._gone()
        hash_there = hash_of(known.seq)
        if hash_there is None:
            raise LedgerError(
                f"ledger: is older than its anchor {self._head}, which has seen event {known.seq}: an old copy was "
                "restored, and later spending is missing from it; restore the newest copy"
            )
        if hash_there != known.hash:
            raise LedgerError(
                f"ledger: event {known.seq} differs from the one that its anchor {self._head} has seen: the ledger was "
                "rewritten; restore the newest copy"
            )

    def write(self, head: Event, *, anew: bool = False) -> None:
        """Record the head, unless a later one is recorded. In the default folder, failures are ignored.

        Args:
            head: the last event.
            anew: whether a missing or damaged anchor is replaced.

        Raises:
            LedgerError: it cannot be written, or is missing or damaged.
        """
        with self._told(self._head, written=True):
            private_folders.make(self._folder)
            with disks.alone(self._folder):
                known = self.read()
                if known is None and not anew and (os.path.lexists(self._head) or not self._optional):
                    if self._optional:
                        return  # a damaged one is reported at the next opening
                    raise self._gone()
                if known is None or known.seq < head.seq:
                    put(self._head, {"ledger": self._ledger, "seq": head.seq, "hash": head.hash})

    def claim(self, account: str) -> None:
        """Record that this ledger keeps an account.

        Raises:
            RequestError: another ledger keeps it.
            LedgerError: it cannot be written or read.
        """
        if self._optional:
            return  # a place that nobody chose is shared by ledgers that have nothing to do with each other
        path = (
            self._folder / f"account-{hashlib.sha256(account.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"
        )
        with self._told(path), contextlib.suppress(FileExistsError):
            private_folders.make(self._folder)
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as stream:
                json.dump({"account": account, "ledger": self._ledger}, stream, sort_keys=True)
                stream.flush()
                os.fsync(stream.fileno())
        known = read_object(path)
        if known is None:
            raise LedgerError(
                f"anchor {path}: is damaged, so it is unknown which ledger has the account {account!r}; restore it, "
                "or remove it if no other ledger has the account"
            )
        if known.get("ledger") != self._ledger:
            raise RequestError(
                field=f"account {account!r}",
                message="already exists in another ledger with the same anchor; two ledgers would each spend the whole budget",
                hint=f"use that ledger ({path} names it)",
            )

    def _gone(self) -> LedgerError:
        return LedgerError(
            f"anchor {self._head}: is missing or damaged, so nothing proves that this ledger is the newest; restore "
            "it, or accept the ledger as it is with `dp-pipelines ledger verify --accept`"
        )

    @contextlib.contextmanager
    def _told(self, path: pathlib.Path, *, written: bool = False) -> Iterator[None]:
        """Report that a chosen place cannot be written.

        Args:
            path: which file, or folder.
            written: whether the ledger has the event already; else nothing was added to it.
        """
        try:
            yield
        except OSError as error:
            reason = reason_of(error)
            if self._optional:
                self.trouble = f"anchor {path}: cannot be written: {reason or error.strerror or 'no such folder'}"
                return
            state = "has taken this step, and is not charged for it again" if written else "itself is unchanged"
            remedy = remedy_of(reason) if reason else "mend that"
            raise LedgerError(
                f"anchor {path}: cannot be written: {reason or error.strerror or 'no such folder'}; the ledger {state}; "
                f"{remedy}, then run the same command again"
            ) from None


def put(path: pathlib.Path, content: dict[str, Any]) -> None:
    """Write a JSON object into a file whose folder exists: whole, or not at all.

    Args:
        path: of the file.
        content: the object.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".anchor-")
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            json.dump(content, stream, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def read_object(path: pathlib.Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
