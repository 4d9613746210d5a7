"""A link to the newest release of a job: one address for a dashboard, whatever the folders of its runs are called.

In: a published release, a place for the link. Out: a symbolic link beside local folders, or a small JSON object in a bucket.
Holds: the link changes in one step, and never moves back to an older release, whichever order runs end in. Not covered: who
reads it.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from dp_pipelines import disk_errors
from dp_pipelines.engine import object_store
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.jobs.stores.s3_folder import S3Folder
from dp_pipelines.ledger import disks
from dp_pipelines.release import manifest
from dp_pipelines.report.pages import mapping
from dp_pipelines.report.trends import published_runs
from dp_pipelines.report.trends.published_runs import ReleasedRun

OPTION = "--latest"

PARTS = ("dataset", "run_id", "params", "plan", "ledger")
"""What an object says of a release, which is enough to tell the newer of two."""

TRIES = 10
"""How often an object is written that somebody else changes at the same time."""


@dataclasses.dataclass(frozen=True)
class LatestLink:
    """A symbolic link on this machine.

    Args:
        place: of the link.
    """

    place: pathlib.Path

    def refuse_unfit(self, output: str) -> None:
        """Refuse a place that cannot have the link, before anything is charged.

        Args:
            output: where the release will be published.

        Raises:
            RequestError: as said.
        """
        field = f"{OPTION} {str(self.place)!r}"
        if object_store.is_object(output):
            hint = f"write {OPTION} s3://BUCKET/NAME.json, or publish on this machine"
            raise RequestError(field=field, message="is on this machine, and the release is in a bucket", hint=hint)
        place = _resolved(str(self.place.parent)) / self.place.name
        texts = {output, os.path.expanduser(output)}  # a quoted ~ is a folder of this name to a run
        outputs = {path for text in texts for path in (pathlib.Path(os.path.abspath(text)), _resolved(text))}
        if not outputs.isdisjoint({place, self.place.absolute()}):
            raise RequestError(field=field, message="is the output folder itself", hint="write e.g. out/latest")
        if not outputs.isdisjoint(place.parents):
            message = "is inside the output folder, and a published folder is never changed"
            raise RequestError(field=field, message=message, hint="name a place beside it, e.g. out/latest")
        self._refuse_unwritable(field)
        if (place.parent / "manifest.json").exists() or any(manifest.read_manifest(folder) for folder in place.parents):
            message = "is inside a published folder, which is never changed"
            raise RequestError(field=field, message=message, hint="name a place beside it")
        if os.path.lexists(self.place) and not self.place.is_symlink():
            message = "exists and is no link"
            raise RequestError(field=field, message=message, hint="name another place, or remove it")
        if self.place.exists() and manifest.read_manifest(self.place) is None:
            message = "is a link to something that is no release"
            raise RequestError(field=field, message=message, hint="name another place, or remove it")

    def _refuse_unwritable(self, field: str) -> None:
        """Refuse a place whose folder cannot be written or made, or whose name is too long. Raises: RequestError."""
        new = self._new().absolute()
        folder = next(path for path in new.parents if os.path.lexists(path))
        if not folder.is_dir():
            message = f"cannot be written: {str(folder)!r} is no folder"
            raise RequestError(field=field, message=message, hint="name another place")
        try:
            # The system looks at a name only where the folder above it exists, but at the length of a whole path always.
            for path in (new, *(folder / part for part in new.relative_to(folder).parts)):
                with contextlib.suppress(FileNotFoundError):
                    os.lstat(path)
            disk_errors.refuse_full(folder)
        except OSError as error:
            message = f"cannot be written: {error.strerror or 'its folder refuses it'}"
            raise RequestError(field=field, message=message, hint="name another place") from None

    def _new(self) -> pathlib.Path:
        """Return where this process makes the link before it takes its place."""
        return self.place.with_name(f".{self.place.name}.{os.getpid()}")

    def point_to(self, release: ReleasedRun, shown: str) -> str:
        """Have the link lead to a release unless it leads to a newer one, and return what was done, in words.

        Args:
            release: the published one.
            shown: what its place is called.

        Raises:
            PublishError: the link cannot be written.
        """
        try:
            self.place.parent.mkdir(parents=True, exist_ok=True)
            with disks.alone(self.place.parent):
                self._remove_leftovers()
                content = manifest.read_manifest(self.place)
                if content is not None and (newer := _newer(content, release.content)):
                    return f"{self.place} still leads to {newer}"
                target = os.path.relpath(release.folder.resolve(), self.place.parent.resolve())
                new = self._new()
                new.symlink_to(target, target_is_directory=True)
                new.replace(self.place)
        except OSError as error:
            raise _not_written(str(self.place), shown, error.strerror or "it cannot be written") from None
        return f"{self.place} leads to {shown}"

    def _remove_leftovers(self) -> None:
        """Remove the links of processes that were killed before theirs took its place. Raises: OSError."""
        pattern = re.compile(rf"\.{re.escape(self.place.name)}\.\d+")
        for path in self.place.parent.iterdir():
            if pattern.fullmatch(path.name) and path.is_symlink():
                path.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class LatestObject:
    """An object of a bucket: JSON with the URL of the release, and what tells its place among others.

    Args:
        url: `s3://BUCKET/FOLDER/NAME`.
    """

    url: str

    def _folder(self) -> tuple[S3Folder, str]:
        """Return the folder of the object, and its name. Raises: RequestError."""
        match = re.fullmatch(r"(s3://[^/]+/.+)/([^/]+)", self.url)
        field = f"{OPTION} {object_store.without_credentials(self.url)!r}"
        if match is None:
            message, hint = "names no object in a folder of a bucket", "write e.g. s3://BUCKET/reports/latest.json"
            raise RequestError(field=field, message=message, hint=hint)
        return S3Folder(match[1], field), match[2]

    def refuse_unfit(self, output: str) -> None:
        """See `LatestLink`."""
        folder, name = self._folder()
        field = f"{OPTION} {self.url!r}"
        if not object_store.is_object(output):
            message, hint = "is in a bucket, and the release is on this machine", f"write e.g. {OPTION} out/latest"
            raise RequestError(field=field, message=message, hint=hint)
        if self.url.startswith(f"{output.rstrip('/')}/") or self.url == output.rstrip("/"):
            message = "is the output, or inside of it"
            raise RequestError(field=field, message=message, hint="name a place beside it")
        try:
            content, _ = folder.read_version(name)
        except StoreError as error:
            raise RequestError(field=field, message=error.reason, hint=error.hint) from None
        if content is not None and _said(content) is None:
            message = "is an object that is no link to a release"
            raise RequestError(field=field, message=message, hint="name another place, or remove it")

    def point_to(self, release: ReleasedRun, shown: str) -> str:
        """See `LatestLink`."""
        said = {"release": shown} | {part: release.content.get(part) for part in PARTS}
        text = (json.dumps(said, indent=2, sort_keys=True) + "\n").encode()
        try:
            folder, name = self._folder()
            for _ in range(TRIES):
                content, version = folder.read_version(name)
                known = None if content is None else _said(content)
                if known is not None and (newer := _newer(known, release.content)):
                    return f"{self.url} still leads to {newer}"
                if folder.replace(name, text, version):
                    return f"{self.url} leads to {shown}"
        except StoreError as error:
            raise _not_written(self.url, shown, f"{error.reason}; {error.hint}") from None
        raise _not_written(self.url, shown, "others change it all the time")


def link_of(place: str) -> LatestLink | LatestObject:
    """Return the link that `--latest` names.

    Args:
        place: a path, or `s3://BUCKET/FOLDER/NAME`.
    """
    if object_store.is_object(place):
        return LatestObject(place)
    return LatestLink(pathlib.Path(os.path.normpath(os.path.expanduser(place))))


def _resolved(path: str) -> pathlib.Path:
    """Return a path without symbolic links."""
    return pathlib.Path(os.path.realpath(path))


def _newer(known: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the run that a link leads to if it is newer than another; empty if it is not.

    The window of event time decides, else a parameter or a run id that is a date, else which run the ledger committed later.
    The numbers of runs in their plan do not decide: spare runs have the last ones, and those of abandoned runs are given again.

    Args:
        known: what is said of the release that the link leads to.
        new: the manifest of the other one.

    >>> _newer({"params": {"day": "2026-01-06"}, "run_id": "b"}, {"params": {"day": "2026-01-05"}, "run_id": "a"})
    "run 'b'"
    >>> _newer({"params": {"day": "2026-01-05"}, "run_id": "a"}, {"params": {"day": "2026-01-06"}, "run_id": "b"})
    ''
    """
    if known.get("dataset") != new.get("dataset"):
        return ""  # somebody has given the place to another report
    name = f"run {known.get('run_id')!r}"
    runs = [ReleasedRun(folder=pathlib.Path(str(number)), content=one) for number, one in enumerate((known, new))]
    ordered, order = published_runs.in_order(runs)
    if order.timed:
        return name if ordered[-1] is runs[0] else ""
    ledgers = [mapping(one.get("ledger")) for one in (known, new)]
    before, after = (mapping(of.get("head")).get("seq") for of in ledgers)
    if not isinstance(before, int) or not isinstance(after, int) or ledgers[0].get("id") != ledgers[1].get("id"):
        return ""
    return name if before > after else ""


def _said(content: bytes) -> dict[str, Any] | None:
    """Return what an object says of a release; None if it is something else."""
    try:
        said = json.loads(content)
    except ValueError:
        return None
    return said if isinstance(said, dict) and {"release", *PARTS} <= said.keys() else None


def _not_written(place: str, shown: str, reason: str) -> PublishError:
    return PublishError(
        f"{OPTION} {place!r}: {reason}; the release is published in {shown}, and the same command tries the link again"
    )
