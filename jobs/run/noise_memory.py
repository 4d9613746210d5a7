"""Private memories of runs, beside their ledger: what is kept only until the last step that needs it, and then destroyed.

In: the place of a ledger, a run, bytes. Out: the same bytes, until they are forgotten. Holds: a memory is one file of mode
0600 in a folder of mode 0700, named by the run and its own digest; it is on the disk before `remember` returns, so that an
event which names the digest counts it in, and no other. Nothing of it is in the ledger, its exports or its backups. Not covered:
blocks that a disk keeps of a removed file; whoever can read this user's files while the run goes on.
"""

# The ledger itself only ever grows, by triggers, in copies and on replicas: nothing in it can be destroyed. So the noise stands
# beside it, and what freezes it together with its round is the digest in the content that the ledger freezes. A digest of
# noise would let whoever guesses the rows check the guess after the noise is gone, so memories begin with words of their own.

import contextlib
import hashlib
import json
import os
import pathlib
import uuid

from dp_pipelines import private_folders
from dp_pipelines.disk_errors import DiskError, told_of_disk
from dp_pipelines.ledger.anchor import default_anchor
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.ledger import Ledger

SUFFIX = ".noise"

FOLDER = "dp-noise"
"""The name of the folder beside a ledger, after the ledger's own."""

INSTEAD = "have the ledger, or with one on a server XDG_STATE_HOME, on another disk from the next run on"
"""What else can be done about a disk on which no memory can be written: the rounds of this run need it where it is."""

TRIES = 100
"""How often a folder is made again that others remove meanwhile."""


class NoiseMemory:
    """The memories of one run.

    Args:
        folder: of all memories of a ledger (`folder_of`).
        ledger: the ledger's own name.
        account, run_id: of the run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     memory = NoiseMemory(pathlib.Path(place) / "m", "ledger", "shop", "monday")
    ...     digest = memory.remember("model", b"noise")
    ...     found = memory.recall("model", digest)
    ...     memory.forget("model")
    ...     found, memory.recall("model", digest)
    (b'noise', None)
    """

    def __init__(self, folder: pathlib.Path, ledger: str, account: str, run_id: str) -> None:
        self._folder = folder
        self._run = hashlib.sha256(json.dumps([ledger, account, run_id]).encode()).hexdigest()[:32]

    def remember(self, name: str, content: bytes) -> str:
        """Write a memory of a stage, durably. Returns its SHA-256 in hexadecimal digits.

        Raises:
            DiskError: the disk is full, read-only or failing.
        """
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(name, digest)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with told_of_disk(self._folder, INSTEAD):
            try:
                with open(self._begun(temporary), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            _sync(self._folder)
        return digest

    def recall(self, name: str, digest: str) -> bytes | None:
        """A memory, as it lies there; None where there is none."""
        try:
            return self._path(name, digest).read_bytes()
        except FileNotFoundError:
            return None

    def forget(self, name: str, but: str = "") -> None:
        """Destroy the memories of a stage, but for the one with a digest."""
        kept = self._path(name, but) if but else None
        with told_of_disk(self._folder, INSTEAD):
            for path in self._folder.glob(f"*{self._stage(name)}-*"):  # with those that were never finished
                if path != kept:
                    _destroy(path)
        self._tidy()

    def forget_all(self) -> None:
        """Destroy all memories of the run."""
        with told_of_disk(self._folder, INSTEAD):
            for path in self._folder.glob(f"*{self._run}-*"):
                _destroy(path)
        self._tidy()

    def _begun(self, path: pathlib.Path) -> int:
        """A new file of the folder, which is made where it is missing."""
        for _ in range(TRIES):
            _make(self._folder)
            with contextlib.suppress(FileNotFoundError):  # another run has just removed it, since it was empty
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        raise FileNotFoundError(f"folder {str(self._folder)!r}: is removed again and again")

    def _stage(self, name: str) -> str:
        return f"{self._run}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def _path(self, name: str, digest: str) -> pathlib.Path:
        return self._folder / f"{self._stage(name)}-{digest}{SUFFIX}"

    def _tidy(self) -> None:
        with contextlib.suppress(OSError):  # it is not there, or holds other memories
            self._folder.rmdir()


def folder_of(path: pathlib.Path | None, ledger: str) -> pathlib.Path:
    """Where the memories of a ledger lie: beside its file, by whatever link it is reached; of a server, in this user's own state.

    Args:
        path: of the ledger's file; None: it is on a server.
        ledger: its own name.

    >>> folder_of(pathlib.Path("/data/dp-ledger.sqlite"), "l").as_posix()
    '/data/dp-ledger.sqlite.dp-noise'
    """
    if path is not None:
        return pathlib.Path(f"{os.path.realpath(path)}.{FOLDER}")
    return pathlib.Path(default_anchor()).parent / FOLDER / ledger


def of_run(ledger: Ledger, run: Run) -> NoiseMemory:
    """The memories of a run of a ledger."""
    name = ledger.state.ledger
    return NoiseMemory(folder_of(ledger.path, name), name, run.account, run.run_id)


def sweep(ledger: Ledger) -> None:
    """Destroy what runs have left that are over: they were killed between their last round and its end.

    What cannot be destroyed now holds up no other run: the next command tries again.
    """
    if folder_of(ledger.path, ledger.state.ledger).exists():
        for run in ledger.state.runs.values():
            if run.committed or run.state == "abandoned":
                with contextlib.suppress(OSError, DiskError):
                    of_run(ledger, run).forget_all()


def _make(folder: pathlib.Path) -> None:
    """Make a folder that is missing, for this user alone, durably."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    private_folders.make(folder)
    for each in missing:
        with contextlib.suppress(PermissionError):  # a folder that may be written and not read
            _sync(each.parent)


def _sync(folder: pathlib.Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _destroy(path: pathlib.Path) -> None:
    """Overwrite a file, and remove it. Of a link, which is none of ours, only the name goes."""
    with contextlib.suppress(OSError), open(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink(missing_ok=True)
