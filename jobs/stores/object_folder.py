"""A published folder in an object store: its files first, `manifest.json` last, never over anything.

In: a folder that a run has published, a folder of an object store. Out: the same files there. Holds: an object is only created
where there is none, as the store decides; a place with a manifest is complete; after a kill, the same call continues; another
release at that place is refused. Not covered: who may read the place; what its objects are in each store (`s3_folder`,
`extensions.dataflow.upload`).
"""

import hashlib
import json
import pathlib
import shutil
from typing import Protocol

from dp_pipelines import private_folders
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import DpError, PublishError, RequestError
from dp_pipelines.release import manifest

MANIFEST = "manifest.json"


class ObjectFolder(Protocol):
    """A folder of an object store."""

    def read(self, name: str) -> bytes | None:
        """An object, or None where there is none."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Create a complete object in one step; False if there is one already, which stays unchanged."""
        ...


def put(folder: pathlib.Path, place: ObjectFolder, shown: str) -> bool:
    """Put a published folder into an object store.

    Args:
        folder: the published folder of a run.
        place: the destination.
        shown: the name of the place, for messages.

    Returns:
        whether it was there before.

    Raises:
        RequestError: the folder does not hold a complete release, or another release is at the place.
        PublishError: the store failed; the same command continues.
    """
    listed = (manifest.read_manifest(folder) or {}).get("files")
    if not listed or not manifest.holds(folder, listed):
        message = "does not hold a complete release: its files differ from its manifest"
        raise RequestError(
            field=f"folder {str(folder)!r}",
            message=message,
            hint="run its job again; the ledger returns the same release",
        )
    try:
        seal = (folder / MANIFEST).read_bytes()
        standing = place.read(MANIFEST)
        if standing is not None and standing != seal:
            raise _other(shown)
        for name, facts in sorted(listed.items()):
            if not _created(place, name, (folder / name).read_bytes(), facts["sha256"]):
                raise _other(shown)
        if not _created(place, MANIFEST, seal, hashlib.sha256(seal).hexdigest()):
            raise _other(shown)
    except DpError:
        raise
    except StoreError as error:
        raise PublishError(f"place {shown!r}: {error.reason}; {error.hint}, then run the same command again") from None
    except Exception as error:  # a store may raise errors of any kind
        raise PublishError(f"place {shown!r}: failed with {type(error).__name__}; run the same command again") from None
    return standing is not None


def fetch(place: ObjectFolder, folder: pathlib.Path, shown: str) -> bool:
    """Fetch a release that stands in an object store, whole.

    Args:
        place: where it is.
        folder: that it is to become, with files of the same bytes; whatever it holds is removed unless it is that release.
        shown: the name of the place, for messages.

    Returns:
        whether there is one.

    Raises:
        RequestError: something else stands there, or its files differ from its manifest.
    """
    seal = place.read(MANIFEST)
    if seal is None:
        return False
    if (folder / MANIFEST).is_file() and (folder / MANIFEST).read_bytes() == seal:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    private_folders.make(folder)
    try:
        for name in _names(seal, shown):
            content = place.read(name)
            if content is not None:
                private_folders.make((folder / name).parent)
                (folder / name).write_bytes(content)
        (folder / MANIFEST).write_bytes(seal)
        found = manifest.read_manifest(folder) or {}
        if not manifest.holds(folder, found.get("files", {})):
            message, hint = (
                "holds a release whose files differ from its manifest",
                "restore them, or choose another place",
            )
            raise RequestError(field=f"output {shown!r}", message=message, hint=hint)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return True


def _names(seal: bytes, shown: str) -> list[str]:
    """The files that a manifest lists. Raises: RequestError: it is none of a release."""
    try:
        content = json.loads(seal)
        names = list(content["files"]) if content["format"] == manifest.FORMAT else []
    except (ValueError, KeyError, TypeError):
        names = []
    inside = [name for name in names if isinstance(name, str) and not {"", ".", ".."} & set(name.split("/"))]
    folders = {name[:end] for name in inside for end in range(len(name)) if name[end] == "/"}
    if not names or inside != names or folders & set(inside):  # another's manifest must not write anywhere else
        message = f"already has a {MANIFEST}, which is of no release"
        raise RequestError(field=f"output {shown!r}", message=message, hint="choose another place")
    return inside


def _created(place: ObjectFolder, name: str, content: bytes, sha256: str) -> bool:
    """Whether an object holds some bytes now."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PublishError(f"file {name!r}: was changed while it was read; nothing more was uploaded")
    return place.create(name, content) or place.read(name) == content


def _other(shown: str) -> RequestError:
    return RequestError(
        field=f"place {shown!r}", message="holds another release, or part of one", hint="choose another place"
    )
