"""Where a release is published: a folder of this machine, or a folder of a bucket, for which a private local one stands in.

In: what `--output` says. Out: the local folder, what is done after it is published, errors that name what the user has named.
Holds: a bucket gets what the local folder holds, `manifest.json` last, each object only where there is none; another release is
refused before anything is charged. Not covered: what is written (`jobs.run`), stores other than S3 and its like.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from dp_pipelines import private_folders
from dp_pipelines.engine import object_store
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import DpError, PublishError, RequestError
from dp_pipelines.jobs.sources import own_cache
from dp_pipelines.jobs.stores import object_folder
from dp_pipelines.jobs.stores.remote_files import refuse_credentials, unanswered
from dp_pipelines.jobs.stores.s3_folder import S3Folder
from dp_pipelines.release import manifest, staging

Asked = TypeVar("Asked")
Given = ParamSpec("Given")
Done = TypeVar("Done")


@dataclasses.dataclass(frozen=True)
class ReleasePlace:
    """A folder of this machine.

    Args:
        folder: where the release is made and published.
    """

    folder: pathlib.Path

    @property
    def shown(self) -> str:
        """What it is called."""
        return str(self.folder)

    def look(self) -> bool:
        """See what stands there; whether it is elsewhere and is here now too. Raises: RequestError."""
        return False

    def waits(self) -> bool:
        """Return True if a release of before is here, and has to be brought to its place yet."""
        return False

    def refused_by_waiting(self) -> RequestError:
        """Return the refusal of another run for the place that the waiting release has."""
        raise NotImplementedError

    def refuse_unready(self) -> None:
        """Refuse a place that cannot get a new release, before anything is charged. Raises: RequestError."""

    def deliver(self, *, remembered: bool) -> None:
        """Put the published folder where it belongs, once however often it is called.

        Args:
            remembered: whether a ledger keeps the release, so that the same run can be published elsewhere.

        Raises:
            PublishError: it cannot be done, with what to do.
        """

    def clear(self) -> None:
        """Remove what only stood in for it."""


@dataclasses.dataclass(frozen=True)
class BucketPlace(ReleasePlace):
    """A folder of a bucket.

    Args:
        url: `s3://BUCKET/FOLDER`.
    """

    url: str

    @property
    def shown(self) -> str:
        """See `ReleasePlace`."""
        return self.url

    @functools.cached_property
    def _objects(self) -> S3Folder:
        return S3Folder(self.url, f"output {object_store.without_credentials(self.url)!r}")

    def look(self) -> bool:
        """Fetch the release that stands there: whether it is this run's is found out as for a local one."""
        try:
            return object_folder.fetch(self._objects, self.folder, self.url)
        except StoreError as error:
            unanswered(self.url, f"output {self.url!r}", error)

    def waits(self) -> bool:
        """See `ReleasePlace`."""
        return os.path.lexists(self.folder)

    def refused_by_waiting(self) -> RequestError:
        """See `ReleasePlace`."""
        content = manifest.read_manifest(self.folder) or {}
        run = f"the release of run {content['run_id']!r}" if "run_id" in content else "another release"
        return RequestError(
            field=f"output {self.url!r}",
            message=f"is taken by {run}, which waits in {str(self.folder.parent)!r} because the store did not take it",
            hint="run that one's command again, or remove that folder if nobody wants the release; or choose another place",
        )

    def refuse_unready(self) -> None:
        """See `ReleasePlace`."""
        try:
            empty = self._objects.is_empty()
        except StoreError as error:
            unanswered(self.url, f"output {self.url!r}", error)
        if not empty:
            message = "holds something, and no release that is whole"
            hint = "choose another place; or if it is of a run that was killed, run that one's command again"
            raise RequestError(field=f"output {self.url!r}", message=message, hint=hint)

    def deliver(self, *, remembered: bool) -> None:
        """See `ReleasePlace`."""
        try:
            object_folder.put(self.folder, self._objects, self.url)
        except RequestError as error:  # it is charged by now
            message = f"output {self.url!r}: {error.message}, which came meanwhile"
            if remembered:
                hint = "run the same command with another --output, which costs nothing"
                self.clear()
            else:  # its folder is named by what holds it: the folder's own name stands for the place in messages
                hint = (
                    "no ledger remembers this run, so another --output would draw anew and cost as much again: move the "
                    f"release out of {str(self.folder.parent)!r} before you run any command with this --output"
                )
            raise PublishError(f"{message}; {hint}") from None

    def clear(self) -> None:
        """See `ReleasePlace`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()


def place_of(output: str) -> ReleasePlace:
    """The place that `--output` names.

    Args:
        output: a path, or `s3://BUCKET/FOLDER`.

    Raises:
        RequestError: a URL of another file system.
    """
    refuse_credentials(output, f"output {object_store.without_credentials(output)!r}")
    if not object_store.is_object(output):
        return ReleasePlace(staging.local_path(output))
    url = output.rstrip("/")
    # Of one name for one place: the same command finds what a killed one has left. Of this user alone: it may be a draw.
    name, waiting = hashlib.sha256(url.encode()).hexdigest()[:32], own_cache.folder() / "to-publish"
    with contextlib.suppress(OSError):  # whatever is the matter with it is told where it is written to
        private_folders.make(waiting)
    return BucketPlace(waiting / name / "release", url)


def at_place(
    act: Callable[Concatenate[Asked, ReleasePlace, Given], Done],
) -> Callable[Concatenate[Asked, str, Given], Done]:
    """An act on a place as one on what `--output` says: errors name that, not what stands in for it."""

    @functools.wraps(act)
    def named(asked: Asked, output: str, /, *args: Given.args, **more: Given.kwargs) -> Done:
        place = place_of(output)
        try:
            there = place.look()
            waits = not there and place.waits()
            try:
                return act(asked, place, *args, **more)
            except BaseException as error:
                if there:  # what was fetched waits for nothing
                    place.clear()
                if waits and isinstance(error, RequestError) and error.field == f"output {str(place.folder)!r}":
                    raise place.refused_by_waiting() from None
                raise
        except DpError as error:
            if place.shown == str(place.folder):
                raise
            raise _renamed(error, str(place.folder), place.shown) from None

    return named


def _renamed(error: DpError, old: str, new: str) -> DpError:
    """The same error of another place."""
    if isinstance(error, RequestError):
        said: Any = {part: getattr(error, part).replace(old, new) for part in ("field", "message", "hint")}
        return type(error)(**said)
    if isinstance(error, PublishError):
        return PublishError(str(error).replace(old, new))
    return error
