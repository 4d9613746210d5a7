"""Tells of a disk that is full, read-only or failing, by the folder and what to do: one guard for all that we write.

In: a block that writes into a folder. Out: `DiskError` in place of the system's error. Holds: the message has no size and no
name of a file, since both may follow from the rows; that a disk has run out is told. Not covered: memory that runs out; a
disk of another machine, where the error is not one of ours.
"""

import contextlib
import errno
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator

from dp_pipelines.errors import DpError

ENOUGH = 2**18
"""Bytes that must fit into a folder before anything is charged: about a report of a few numbers. A public number."""

NO_TMPDIR = "set TMPDIR to a folder on another disk"
"""What else can be done about temporary files."""

ANOTHER_OUTPUT = "choose another folder with --output"
"""What else can be done about the folder that is published."""

_TOLD = {
    errno.ENOSPC: ("the disk is full", "free some space on it"),
    errno.EDQUOT: ("this user's quota on the disk is used up", "free some space on it"),
    errno.EFBIG: ("a file would be larger than `ulimit -f` or the file system allows", "raise the limit"),
    errno.EROFS: ("the disk is read-only", "mount it for writing"),
    errno.EIO: ("the disk failed", "check it"),
}
_REMEDIES = dict(_TOLD.values())


class DiskError(DpError):
    """A disk is full, read-only or failing (exit code 1). Nothing is visible, and the same command mends it.

    Args:
        folder: what could not be written; empty where whoever tells it does not know.
        reason: one of `reason_of`.
        instead: what can be done other than mending the disk.

    >>> print(DiskError("out", "the disk is full"))
    folder 'out': the disk is full; nothing was published; free some space on it, or choose another folder with --output; then \
run the same command again
    """

    def __init__(self, folder: str, reason: str, instead: str = ANOTHER_OUTPUT) -> None:
        self.folder, self.reason, self.instead = folder, reason, instead
        where = f"folder {folder!r}" if folder else "a folder that is written here"
        remedy = f"{_REMEDIES.get(reason, 'check it')}, or {instead}"
        super().__init__(f"{where}: {reason}; nothing was published; {remedy}; then run the same command again")

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return type(self), (self.folder, self.reason, self.instead)


def reason_of(error: BaseException) -> str:
    """What is wrong with a disk, in public words; empty for every other error.

    >>> reason_of(OSError(errno.ENOSPC, "...")), reason_of(ValueError())
    ('the disk is full', '')
    """
    return _TOLD[error.errno][0] if isinstance(error, OSError) and error.errno in _TOLD else ""


def remedy_of(reason: str) -> str:
    """What mends it, as an imperative."""
    return _REMEDIES[reason]


@contextlib.contextmanager
def told_of_disk(folder: str | os.PathLike[str], instead: str | None = None) -> Iterator[None]:
    """Raise `DiskError` where a block cannot write into a folder because of its disk. Other errors pass.

    Blocks may be nested: the outermost folder is told, which is the one that a person knows, unless an inner one has said what
    else can be done about it: that one was named by a person too.

    Args:
        folder: into which the block writes; nothing else.
        instead: what can be done other than mending the disk; None: another `--output`.

    Raises:
        DiskError: the disk is full, read-only or failing.

    >>> with told_of_disk("/data/spill", "choose another folder with --spill"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    dp_pipelines.disk_errors.DiskError: folder '/data/spill': the disk is full; nothing was published; free some space on it, \
or choose another folder with --spill; then run the same command again
    """
    try:
        yield
    except DiskError as error:
        inside = pathlib.Path(error.folder).is_relative_to(folder)
        if error.folder and (not inside or (instead is None and error.instead != ANOTHER_OUTPUT)):
            raise
        raise _of(folder, error.reason, instead) from None
    except OSError as error:
        reason = reason_of(error)
        if not reason:
            raise
        raise _of(folder, reason, instead) from None


def quoted_in(text: str, folder: str | os.PathLike[str]) -> DiskError | None:
    """The `DiskError` of a folder, or of one inside it, in a text to which others may have added.

    >>> quoted_in(f"RuntimeError: {DiskError('out/a', 'the disk is full')} [while running 'Write']", "out").reason
    'the disk is full'
    """
    begin = re.escape(f"folder {str(folder)!r}"[:-1])
    for reason, _ in _TOLD.values():
        if re.search(f"{begin}[^\n]*: {re.escape(reason)}; nothing was published", text):
            return DiskError(str(folder), reason)
    return None


def refuse_full(folder: str | os.PathLike[str]) -> None:
    """Write a little into a folder, which leaves nothing there.

    Raises:
        OSError: it cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ENOUGH))
        file.flush()


def _of(folder: str | os.PathLike[str], reason: str, instead: str | None) -> DiskError:
    return DiskError(str(folder), reason) if instead is None else DiskError(str(folder), reason, instead)
