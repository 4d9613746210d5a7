"""Names of the files that a run read, so that a later command can say which of them are new.

In: paths and URLs of files. Out: what an event of a ledger holds of them, and a sentence on what has changed since. Holds: names
and number only, which are public; never sizes or times. Not covered: tables with snapshots, of which a run id fixes the version.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

MOST_NAMES = 500
"""The most names in an event; for more files it has the number and a digest."""

SHOWN = 3
"""The most names in a sentence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadFiles:
    """The files of a run.

    Args:
        count: how many there are.
        sha256: digest of their names.
        names: in order, below the folder of the job file where they are there; empty if there are more than `MOST_NAMES`.
    """

    count: int
    sha256: str
    names: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {"count": self.count, "sha256": self.sha256, "names": list(self.names)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ReadFiles":
        """Return the entry that `to_json` wrote. Raises LookupError, TypeError or ValueError for anything else."""
        return cls(count=int(value["count"]), sha256=str(value["sha256"]), names=tuple(map(str, value["names"])))

    def changes(self, now: "ReadFiles") -> str:
        """Return in words how the files differ now; empty if they do not.

        Args:
            now: the files that are there now.

        >>> before, after = read_files(["/j/data/a.csv"], "/j"), read_files(["/j/data/b.csv", "/j/data/c.csv"], "/j")
        >>> before.changes(after)
        '2 files are new (data/b.csv, data/c.csv) and 1 file is gone (data/a.csv)'
        >>> before.changes(before)
        ''
        """
        if self.sha256 == now.sha256:
            return ""
        if not self.names or not now.names:
            return f"it read {_files(self.count)}, and now there are {now.count:,}, or others"
        new, missing = sorted(set(now.names) - set(self.names)), sorted(set(self.names) - set(now.names))
        parts = [_counted(new, "new"), _counted(missing, "gone")]
        return " and ".join(part for part in parts if part)


def read_files(paths: Iterable[str], folder: str) -> ReadFiles:
    """Return the entry of a ledger about files.

    Args:
        paths: absolute paths, or URLs.
        folder: of the job file; what is below it is named from there, so that the folder may be moved.
    """
    below = folder.rstrip(os.sep) + os.sep
    names = sorted(path.removeprefix(below) for path in paths)
    digest = hashlib.sha256(json.dumps(names).encode("utf-8", "surrogatepass")).hexdigest()
    # A name that is not UTF-8 could not be written into an event.
    writable = len(names) <= MOST_NAMES and all(_is_utf8(name) for name in names)
    return ReadFiles(count=len(names), sha256=digest, names=tuple(names) if writable else ())


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _counted(names: list[str], what: str) -> str:
    if not names:
        return ""
    listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")
    return f"{_files(len(names))} {'is' if len(names) == 1 else 'are'} {what} ({listed})"


def _files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"
