"""What waits between two steps of this process, by key: in memory up to a limit, beyond it in a private file.

In: keys with values, each with its place in an order. Out: each key with all of its values in that order, whoever came first.
Holds: what is held in memory at once stays below a limit that is fixed before; a file holds rows, so it has no name and no other
user can open it. Not covered: values that are no tables are few and small, and stay in memory.
"""

import collections
import contextlib
import operator
import os
import pathlib
import tempfile
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.disk_errors import told_of_disk
from dp_pipelines.errors import DpError
from dp_pipelines.kernels.columns import ipc

Order = tuple[int, ...]
"""The place of a value: the number of the task it was made in, then the places of the steps on the way."""

Ordered = tuple[Order, Any]

SPILL_AT = 0.5
"""Which part of the limit is in memory when spilling begins: while that is written, as much again may come."""

ELSEWHERE = "choose another folder with --spill-folder"
"""What else helps where the disk of the folder does not."""


class SpillFailed(DpError):
    """Memory could not hold what waits, and there is no disk for it. The message holds public facts only."""


class Held:
    """What all shuffles of a run hold together.

    Args:
        limit: bytes in memory.
        folder: for the files of what is beyond; None: nothing may be beyond.
    """

    def __init__(self, limit: int, folder: pathlib.Path | None) -> None:
        self._limit, self._folder = limit, folder
        self._changed = threading.Condition()
        self._bytes = 0
        self._shuffles: list[Shuffle] = []
        self._spilling: Shuffle | None = None
        self._closed = False

    def shuffle(self) -> "Shuffle":
        """A new one."""
        made = Shuffle(self, self._folder)
        self._shuffles.append(made)
        return made

    def close(self) -> None:
        """Forget everything. A thread that an interrupted run has left behind may still write: it closes its file itself.

        For its number would soon be that of another file, of the ledger perhaps, into which it would write rows.
        """
        with self._changed:
            self._closed = True
            writing = self._spilling
        for shuffle in self._shuffles:
            if shuffle is not writing:
                shuffle.close()

    def add(self, to: "Shuffle", key: Hashable, value: Any, order: Order) -> None:
        """Hold a value; spill first where there is no room."""
        size = _bytes_of(value)
        with self._changed:
            while self._spilling is not None and self._bytes + size > self._limit:
                self._changed.wait()
            to.values.setdefault(key, []).append((order, value))
            to.bytes += size
            self._bytes += size
            if self._bytes <= SPILL_AT * self._limit or self._spilling is not None or self._closed:
                return
            victim = self._spilling = max(self._shuffles, key=lambda shuffle: shuffle.bytes)
            taken, victim.values = victim.values, {}
            freed, victim.bytes = victim.bytes, 0
        kept: dict[Hashable, list[Ordered]] = {}
        try:
            kept = victim.spill(taken)
        finally:
            with self._changed:
                for key, values in kept.items():
                    victim.values.setdefault(key, []).extend(values)
                # Not before all is back: whoever takes a key waits for this.
                self._spilling = None
                self._bytes -= freed
                closed = self._closed
                self._changed.notify_all()
            if closed:
                victim.close()

    def take(self, of: "Shuffle", key: Hashable) -> tuple[list[Ordered], list[tuple[Order, tuple[int, int]]]]:
        """The values of a key, and where in the file more of them are; nobody holds them any more."""
        with self._changed:
            while self._spilling is of:
                self._changed.wait()
            values = of.values.pop(key, [])
            size = sum(_bytes_of(value) for _, value in values)
            of.bytes -= size
            self._bytes -= size
            return values, of.places.pop(key, [])


class Shuffle:
    """Values by key.

    Args:
        held: counts them.
        folder: for the file.
    """

    def __init__(self, held: Held, folder: pathlib.Path | None) -> None:
        self._held, self._folder = held, folder
        self.values: dict[Hashable, list[Ordered]] = {}
        self.places: dict[Hashable, list[tuple[Order, tuple[int, int]]]] = {}
        self.bytes = 0
        self._file: int | None = None
        self._end = 0

    def add(self, pair: tuple[Hashable, Any], order: Order = ()) -> None:
        """Hold a value of a key."""
        self._held.add(self, *pair, order)

    @property
    def keys(self) -> list[Any]:
        """All keys, in the order of their first values."""
        first: dict[Hashable, Order] = {}
        for found in (self.values, self.places):
            for key, values in found.items():
                here = min(order for order, _ in values)
                first[key] = min(first.get(key, here), here)
        return sorted(first, key=lambda key: first[key])

    @property
    def tasks(self) -> list[tuple[int, Any]]:
        """All keys with their numbers in that order, those with most to do first."""
        sizes: dict[Hashable, int] = collections.defaultdict(int)
        for key, values in self.values.items():
            sizes[key] += sum(_bytes_of(value) for _, value in values)
        for key, places in self.places.items():
            sizes[key] += sum(length for _, (_, length) in places)
        return sorted(enumerate(self.keys), key=lambda task: sizes[task[1]], reverse=True)

    def take(self, key: Hashable) -> list[Any]:
        """All values of a key, once, in their order."""
        return list(self.each(key))

    def each(self, key: Hashable) -> Iterator[Any]:
        """The same, those in the file one by one, as they are asked for."""
        values, places = self._held.take(self, key)
        waiting: list[tuple[Order, Any, tuple[int, int] | None]] = [(order, value, None) for order, value in values]
        waiting += [(order, None, place) for order, place in places]
        del values
        waiting.sort(key=operator.itemgetter(0), reverse=True)
        while waiting:  # nothing holds what was asked for before
            _, value, place = waiting.pop()
            yield value if place is None else self._read(place)

    def spill(self, taken: Mapping[Hashable, Sequence[Ordered]]) -> dict[Hashable, list[Ordered]]:
        """Write tables to the file.

        Returns:
            what stays in memory.

        Raises:
            SpillFailed: there is no folder.
            DiskError: the disk does not take it.
        """
        if self._folder is None:
            raise SpillFailed("the memory is full, and there is no disk for what is beyond it; give a --spill-folder")
        kept: dict[Hashable, list[Ordered]] = {}
        with told_of_disk(self._folder, ELSEWHERE):
            if self._file is None:
                self._file = _private_file(self._folder)
            for key, values in taken.items():
                for order, value in values:
                    if isinstance(value, pa.Table):
                        self.places.setdefault(key, []).append((order, self._write(ipc.to_buffer(value))))
                    else:
                        kept.setdefault(key, []).append((order, value))
        return kept

    def _write(self, content: pa.Buffer) -> tuple[int, int]:
        assert self._file is not None
        view, at = memoryview(content), self._end
        while view:
            done = os.pwrite(self._file, view, self._end)
            self._end += done
            view = view[done:]
        return at, self._end - at

    def _read(self, place: tuple[int, int]) -> pa.Table:
        assert self._file is not None
        assert self._folder is not None
        at, length = place
        pieces = []
        while length:
            with told_of_disk(self._folder, ELSEWHERE):
                piece = os.pread(self._file, length, at)
            if not piece:  # somebody else cut the file
                raise SpillFailed(f"spill folder {str(self._folder)!r}: what was written there cannot be read again")
            pieces.append(piece)
            at, length = at + len(piece), length - len(piece)
        return ipc.from_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        """Free what is left."""
        self.values.clear()
        self.places.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None


def _private_file(folder: pathlib.Path) -> int:
    """A file without a name, for this user alone."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, IsADirectoryError, NotImplementedError, OSError):
        # Not every system and file system has such files; one whose name goes at once is next to it.
        number, path = tempfile.mkstemp(prefix=".dp-spill-", dir=folder)
        os.unlink(path)
        return number


def _bytes_of(value: Any) -> int:
    return int(value.nbytes) if isinstance(value, pa.Table) else 0
