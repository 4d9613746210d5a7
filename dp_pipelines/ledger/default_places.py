"""Notes of the files that this user has charged to accounts, to warn if another ledger starts with a full budget.

In: files, an account, its ledger. Out: warnings that name other accounts charged for these files before. Holds: a file is
recognised by its path with links resolved, or by device and inode if renamed; a URL by its text. It only warns, and an
unwritable state folder is not an error. Not covered: copies; files that were moved and then changed; other users and machines.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dp_pipelines import private_folders
from dp_pipelines.ledger import disks
from dp_pipelines.ledger.anchor import default_anchor, put, read_object
from dp_pipelines.ledger.sources import without_scheme

DEFAULT_NAME = "dp-ledger.sqlite"
"""The file next to a job file that is used if no ledger is named."""

Mark = tuple[int, ...]
"""Device, inode and modification time of a file; empty for a URL or a missing file."""


def beside(job: pathlib.Path) -> str:
    """Return where the ledger of a job is if none is named.

    Args:
        job: its file, which need not exist yet.
    """
    # The folder of the target: a link to the file in another folder is the same job.
    return str(job.resolve().parent / DEFAULT_NAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountPlace:
    """An account of a ledger, to which files are charged.

    Args:
        account: the `dataset`.
        ledger: the ledger's own name.
        shown: its place.
    """

    account: str
    ledger: str
    shown: str


def remember(place: AccountPlace, pattern: str, files: Sequence[str], option: str) -> list[str]:
    """Record that files are charged to an account, and return warnings of other accounts that were charged for one.

    Args:
        place: the account.
        pattern: the registered pattern of its files.
        files: the files that match it now; if empty (rows in memory), the pattern itself is recorded.
        option: the command-line option that names a ledger.

    Returns:
        the warnings; none for files that were recorded before.
    """
    known, read = _known(place), _marks(files or [pattern])
    if read.items() <= known.items():
        return []
    warnings = _warnings_of_new(place, known, read, option, pattern)
    with contextlib.suppress(OSError):
        note = _folder() / _name(place)
        private_folders.make(note.parent)
        with disks.alone(note.parent):
            marks = _known(place) | read
            put(note, {**vars(place), "files": {name: list(mark) for name, mark in marks.items()}})
    return warnings


def warnings_of(place: AccountPlace, pattern: str, files: Sequence[str], option: str) -> list[str]:
    """Return the warnings that `remember` would give, and record nothing. Arguments as for `remember`."""
    return _warnings_of_new(place, _known(place), _marks(files or [pattern]), option, pattern)


def _warnings_of_new(
    place: AccountPlace, known: Mapping[str, Mark], read: Mapping[str, Mark], option: str, pattern: str
) -> list[str]:
    """Return warnings about files that an account has not recorded, or with other marks.

    If it has recorded nothing, also about the pattern.
    """
    if read.items() <= known.items():
        return []
    new = {name: mark for name, mark in read.items() if name not in known}
    return _warnings(place, new, option) if known else _warnings(place, new, option, pattern)


def charged_before(place: AccountPlace, files: Sequence[str], option: str) -> list[str]:
    """Return a warning for every other account that was charged for one of these files; record nothing.

    Arguments as for `remember`.
    """
    return _warnings(place, _marks(files), option)


def _warnings(place: AccountPlace, new: Mapping[str, Mark], option: str, pattern: str | None = None) -> list[str]:
    others = (
        {other for other, marks in _notes() if not _same_account(other, place) and _shared(new, marks)}
        if new
        else set()
    )
    older = None if pattern is None else _older(place, pattern)
    if older is not None and older.shown not in {other.shown for other in others}:
        others.add(older)
    return [
        f"these files were charged before, in the ledger {other.shown}, to the account {other.account!r}: what was "
        f"spent there is not counted here, where another account has a budget of its own; if that ledger is still in use, "
        f"name it with {option}"
        for other in sorted(others, key=lambda other: (other.shown, other.account, other.ledger))
    ]


def _same_account(one: AccountPlace, other: AccountPlace) -> bool:
    return (one.ledger, one.account) == (other.ledger, other.account)


def _shared(new: Mapping[str, Mark], held: Mapping[str, Mark]) -> bool:
    """Return True if one of these files was recorded, under this or another name."""
    if not new.keys().isdisjoint(held):
        return True
    by_inode = {mark[:2]: (name, mark) for name, mark in held.items() if mark}
    for mark in new.values():
        if mark and mark[:2] in by_inode:
            name, noted = by_inode[mark[:2]]
            # A number that a file had which is gone is given to new files. It is the same file where the noted name still
            # leads to it (a hard link, another mount), or where it was not changed since (it was moved).
            if noted == mark or _mark(name)[:2] == mark[:2]:
                return True
    return False


def _marks(files: Iterable[str]) -> dict[str, Mark]:
    places = (without_scheme(file) for file in files)
    names = dict.fromkeys(place if "://" in place else os.path.realpath(place) for place in places)
    return {name: _mark(name) for name in names}


def _mark(name: str) -> Mark:
    if "://" in name:
        return ()
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _known(place: AccountPlace) -> dict[str, Mark]:
    note = _read(_folder() / _name(place))
    return note[1] if note is not None and _same_account(note[0], place) else {}


def _notes() -> Iterator[tuple[AccountPlace, dict[str, Mark]]]:
    for path in sorted(_folder().glob("files-*.json")):
        note = _read(path)
        if note is not None:
            yield note


def _read(path: pathlib.Path) -> tuple[AccountPlace, dict[str, Mark]] | None:
    content = read_object(path) or {}
    texts = {name: content.get(name) for name in ("account", "ledger", "shown")}
    files = content.get("files")
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in texts.values()):
        return None
    marks = {name: mark if isinstance(mark, list) else [] for name, mark in files.items()}
    return AccountPlace(**texts), {  # type: ignore[arg-type]  # all are texts
        name: tuple(mark) if len(mark) == 3 and all(type(part) is int for part in mark) else ()
        for name, mark in marks.items()
    }


def _older(place: AccountPlace, pattern: str) -> AccountPlace | None:
    """Return another ledger, as version 0.1.0 noted it, with the same account name and pattern; None if there is none."""
    name = hashlib.sha256(json.dumps([place.account, pattern]).encode()).hexdigest()[:32]
    note = read_object(_folder() / f"source-{name}.json") or {}
    ledger_place, ledger = note.get("shown"), note.get("ledger")
    if not isinstance(ledger_place, str) or not isinstance(ledger, str) or ledger == place.ledger:
        return None
    return AccountPlace(account=place.account, ledger=ledger, shown=ledger_place)


def _name(place: AccountPlace) -> str:
    return f"files-{hashlib.sha256(json.dumps([place.ledger, place.account]).encode()).hexdigest()[:32]}.json"


def _folder() -> pathlib.Path:
    return pathlib.Path(default_anchor())
