"""Where a Delta table is: a folder of this machine, or a folder of a bucket.

In: what `delta:` of a job names, the names of its tables. Out: tables as deltalake opens them, data files, refusals. Holds: a
data file is there whole or not at all; in a bucket nothing is written over, as the store decides, and a store that does not
decide is none to publish in; errors have words of ours. Not covered: what a commit is (`delta_output`), other stores than S3's.
"""

import abc
import contextlib
import dataclasses
import errno
import functools
import json
import os
import pathlib
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp_pipelines.disk_errors import reason_of, refuse_full, remedy_of
from dp_pipelines.engine import object_store
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.lake import store_options
from dp_pipelines.jobs.outputs.release_place import BucketPlace, ReleasePlace
from dp_pipelines.jobs.stores import remote_files
from dp_pipelines.jobs.stores.object_folder import MANIFEST
from dp_pipelines.jobs.stores.s3_folder import S3Folder
from dp_pipelines.ledger import disks
from dp_pipelines.release import manifest, staging

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LONGEST_INSIDE = 160
"""Bytes that the paths of a table's own files have beyond its folder's, at most."""

_LONGEST_KEY = 1024
"""Bytes of the name of an object of S3, at most."""

_BUCKET_PARTS = 3
"""Of a URL, up to its bucket."""

_ELSEWHERE = "choose another folder for delta:"

_LOCKS = "AWS_S3_LOCKING_PROVIDER"
"""Says that the writers of tables in buckets lock them elsewhere: they then overwrite what others have committed."""

_UNCONDITIONAL = (
    "the store writes over objects that may only be created (If-None-Match), so commits could be lost",
    "choose a store that knows conditional writes",
)


class DeltaPlace(abc.ABC):
    """Where one table is."""

    @property
    @abc.abstractmethod
    def shown(self) -> str:
        """What it is called, by messages and by deltalake."""

    @property
    def field(self) -> str:
        """What errors name it."""
        return f"Delta table {self.shown!r}"

    @property
    def options(self) -> dict[str, str] | None:
        """What deltalake is told of its store."""
        return None

    def needed(self) -> None:
        """Refuse to go on without the packages. Raises: RequestError."""
        try:
            import deltalake  # noqa: F401 - whether it is there
        except ImportError:
            hint = "install the extra: pip install 'dp-pipelines[delta]'"
            raise RequestError(
                field="outputs.delta", message="needs packages that are not installed", hint=hint
            ) from None

    @abc.abstractmethod
    def overlapping(self, release: ReleasePlace) -> str | None:
        """The release that the table lies in, or that lies in it; None: neither.

        Args:
            release: where the run is published.
        """

    @abc.abstractmethod
    def refuse_unready(self) -> None:
        """Refuse a place where no table can be. Nothing is created. Raises: RequestError."""

    @abc.abstractmethod
    def opened(self) -> "DeltaTable | None":
        """The last version of the table; None where there is none yet. Raises: RequestError."""

    def trouble(self) -> str:
        """Return what is wrong with its disk now, in public words; empty where nothing is known to be."""
        return ""

    @abc.abstractmethod
    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """A block in which commits are made. Raises: OSError."""

    @abc.abstractmethod
    def put(self, name: str, content: bytes) -> int:
        """Write a data file, whose name says which content it has.

        Args:
            name: of the file.
            content: its bytes.

        Returns:
            when it was written, in milliseconds.

        Raises:
            DiskError, PublishError, StoreError: it cannot be written.
        """

    def unreadable(self) -> RequestError:
        """That something stands there, and no table that can be asked."""
        return RequestError(field=self.field, message="is not a Delta table that can be read", hint=_ELSEWHERE)


@dataclasses.dataclass(frozen=True)
class DeltaFolder(DeltaPlace):
    """A folder of this machine.

    Args:
        path: the folder.
    """

    path: pathlib.Path

    @property
    def shown(self) -> str:
        """See `DeltaPlace`."""
        return str(self.path)

    def overlapping(self, release: ReleasePlace) -> str | None:
        """See `DeltaPlace`. A release that is published elsewhere has a folder here too, in which nothing may stay."""
        path, folder = (pathlib.Path(os.path.realpath(place)) for place in (self.path, release.folder))
        within = [path, *path.parents]
        if folder in within or path in folder.parents:
            return str(release.folder)
        return next((str(parent) for parent in within if manifest.read_manifest(parent) is not None), None)

    def refuse_unready(self) -> None:
        """See `DeltaPlace`."""
        there = self.path
        while not os.path.lexists(there) and there != there.parent:
            there = there.parent
        try:
            names, whole = (os.pathconf(there, limit) for limit in ("PC_NAME_MAX", "PC_PATH_MAX"))
            longest = max(map(len, map(os.fsencode, self.path.parts)))
            if longest > names or len(os.fsencode(self.path)) + _LONGEST_INSIDE > whole:
                raise OSError(errno.ENAMETOOLONG, "too long")
            refuse_full(there)
        except OSError as error:
            if reason := reason_of(error):
                hint = f"{remedy_of(reason)}, or {_ELSEWHERE}"
                raise RequestError(field=self.field, message=reason, hint=hint) from None
            message = "cannot be created" if there != self.path else "cannot be written"
            hint = "choose a folder where this user may write"
            raise RequestError(field=self.field, message=message, hint=hint) from None

    def opened(self) -> "DeltaTable | None":
        """See `DeltaPlace`."""
        from deltalake import DeltaTable

        try:
            return DeltaTable(self.shown) if DeltaTable.is_deltatable(self.shown) else None
        except Exception:  # each of its causes has a class of its own
            raise self.unreadable() from None

    def trouble(self) -> str:
        """See `DeltaPlace`. deltalake's own errors do not say what its disk did."""
        try:
            refuse_full(self.path)
        except OSError as error:
            return reason_of(error)
        return ""

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """See `DeltaPlace`: no other process of ours works in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with disks.alone(self.path):
            yield

    def put(self, name: str, content: bytes) -> int:
        """See `DeltaPlace`."""
        for left in self.path.glob(f".{name}.*{staging.UNFINISHED}"):  # of a process that was killed
            left.unlink(missing_ok=True)
        staging.write_whole(self.path / name, content)
        return int((self.path / name).stat().st_mtime * 1000)


@dataclasses.dataclass(frozen=True)
class DeltaBucket(DeltaPlace):
    """A folder of a bucket. Nobody locks it: of two commits of one version the store takes the first.

    Args:
        url: `s3://BUCKET/FOLDER`, of the parts that `folder_of` lets pass.
    """

    url: str

    @property
    def shown(self) -> str:
        """See `DeltaPlace`."""
        return self.url

    @property
    def options(self) -> dict[str, str]:
        """See `DeltaPlace`. The environment must not take the condition from a commit."""
        return {**(store_options.for_delta(self.url) or {}), "aws_conditional_put": "etag"}

    @functools.cached_property
    def _objects(self) -> S3Folder:
        return S3Folder(self.url, "outputs.delta")

    def needed(self) -> None:
        """See `DeltaPlace`."""
        super().needed()
        _ = self._objects

    def overlapping(self, release: ReleasePlace) -> str | None:
        """See `DeltaPlace`."""
        if not isinstance(release, BucketPlace):
            return None
        ours, theirs = self.url.split("/"), release.url.split("/")
        shorter = min(len(ours), len(theirs))
        return release.url if ours[:shorter] == theirs[:shorter] else None

    def refuse_unready(self) -> None:
        """See `DeltaPlace`."""
        if os.environ.get(_LOCKS):
            message = f"is in a bucket, where commits are conditional writes, and {_LOCKS} names another way"
            hint = f"unset {_LOCKS}, if no other writer of the table locks it in this way"
            raise RequestError(field=self.field, message=message, hint=hint)
        if len(self.url.removeprefix(object_store.SCHEME).encode()) + _LONGEST_INSIDE > _LONGEST_KEY:
            raise RequestError(field=self.field, message="cannot be created", hint="choose a shorter name for delta:")
        self._refuse_unanswered()
        parts = self.url.split("/")
        for end in range(_BUCKET_PARTS + 1, len(parts) + 1):
            if _is_release(folder := "/".join(parts[:end])):
                message = f"and the release {folder!r} lie in one another"
                raise RequestError(field=self.field, message=message, hint=_ELSEWHERE)

    def opened(self) -> "DeltaTable | None":
        """See `DeltaPlace`."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        self._refuse_unanswered()
        try:
            return DeltaTable(self.url, storage_options=self.options)
        except TableNotFoundError:
            return None
        except OSError:  # deltalake cannot ask the store, e.g. for credentials that Amazon's client finds elsewhere
            reason, hint = object_store.UNCLEAR
            raise RequestError(field=self.field, message=reason, hint=hint) from None
        except Exception:
            raise self.unreadable() from None

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """See `DeltaPlace`."""
        return contextlib.nullcontext()

    def put(self, name: str, content: bytes) -> int:
        """See `DeltaPlace`."""
        created = self._objects.create(name, content)
        if created and self._objects.create(name, content):  # the same bytes once more: asked without any harm
            raise StoreError(*_UNCONDITIONAL)
        if not created and self._objects.read(name) != content:
            raise StoreError("something else has the name of the run's data file", "remove it")
        return int(time.time() * 1000)

    def _refuse_unanswered(self) -> None:
        try:
            self._objects.is_empty()
        except StoreError as error:
            raise RequestError(field=self.field, message=error.reason, hint=error.hint) from None


def place_of(folder: str, name: str) -> DeltaPlace:
    """Where a table is.

    Args:
        folder: of the tables, as `folder_of` gives it.
        name: of the table.
    """
    return (
        DeltaBucket(f"{folder}/{name}") if object_store.is_object(folder) else DeltaFolder(pathlib.Path(folder) / name)
    )


def folder_of(path: str, beside: pathlib.Path) -> str:
    """The folder of tables that a job names.

    Args:
        path: what it says.
        beside: the folder that paths are relative to.

    Raises:
        RequestError: it names no such place.

    >>> folder_of("s3://bucket/lake/", pathlib.Path("/jobs")), folder_of("lake", pathlib.Path("/jobs"))
    ('s3://bucket/lake', '/jobs/lake')
    """
    if object_store.is_object(path):
        remote_files.refuse_credentials(path, "")
        return _bucket_folder(path.rstrip("/"))
    path = path.removeprefix("file://")
    if "://" in path or "\0" in path:
        message = "names no local folder, and none of a bucket of S3"
        hint = "write to a local path, e.g. of a mounted bucket, or to s3://BUCKET/FOLDER"
        raise RequestError(field="", message=message, hint=hint)
    return str(beside / path)


def _bucket_folder(url: str) -> str:
    """A URL whose parts are the same for every library: some read `%20` as a space, `..` as the folder above."""
    bucket, *parts = url.removeprefix(object_store.SCHEME).split("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket):
        message, hint = "names no bucket that can be", "write s3://BUCKET/FOLDER"
        raise RequestError(field="", message=message, hint=hint)
    if any(part in ("", ".", "..") or set(part) & set("%?#") or not part.isprintable() for part in parts):
        message = "names a folder with an empty part, ., .., or one of %?#, which libraries read in different ways"
        raise RequestError(field="", message=message, hint="choose plain names, e.g. s3://BUCKET/lake")
    return url


def _is_release(url: str) -> bool:
    """Whether the folder of a bucket holds a release, as far as this user may look."""
    with contextlib.suppress(StoreError, ValueError):  # who may write below a folder need not be one who may read in it
        said = json.loads(S3Folder(url, "outputs.delta").read(MANIFEST) or b"null")
        return isinstance(said, dict) and said.get("format") == manifest.FORMAT
    return False
