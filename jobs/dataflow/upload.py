"""Copies a published folder to a bucket: `python -m dp_pipelines.jobs.dataflow.upload FOLDER gs://BUCKET/FOLDER`.

In: a folder that a run has published, a place in a bucket. Out: the same files there, `manifest.json` last. Holds:
nothing is ever overwritten, because an object is only created if there is none; a place with a manifest is complete;
after a kill, the same command continues; another release at that place is refused. Not covered: stores other than
Google's; who may read the bucket. It was never run on the service: docs/dataflow.md. Google's client, from the extra
`dataflow`, is imported on use.
"""

import argparse
import hashlib
import importlib
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from dp_pipelines.errors import DpError, PublishError, RequestError
from dp_pipelines.jobs.runners import dataflow_requirements
from dp_pipelines.jobs.terminal import output
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


class GoogleFolder:
    """A folder of a bucket in Google Cloud Storage, with the machine's credentials.

    Args:
        url: `gs://BUCKET/FOLDER`.

    Raises:
        RequestError: it is not such a URL, or Google's client is not installed.
    """

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"gs://([^/]+)/(.*[^/])/*", url)
        if found is None:
            raise RequestError(
                field=f"place {url!r}", message="is not a folder in a bucket", hint="write gs://BUCKET/FOLDER"
            )
        try:
            exceptions: Any = importlib.import_module("google.api_core.exceptions")
            storage: Any = importlib.import_module("google.cloud.storage")
        except ImportError:
            raise dataflow_requirements.extra_missing(f"place {url!r}") from None
        self._exceptions = exceptions
        self._bucket, self._folder = storage.Client().bucket(found[1]), found[2]

    def read(self, name: str) -> bytes | None:
        """An object, or None where there is none."""
        try:
            return bytes(self._bucket.blob(f"{self._folder}/{name}").download_as_bytes())
        except self._exceptions.NotFound:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Create an object; the service decides whether it is the first with its name."""
        blob = self._bucket.blob(f"{self._folder}/{name}")
        try:
            blob.upload_from_string(content, content_type="application/octet-stream", if_generation_match=0)
        except self._exceptions.PreconditionFailed:
            return False
        return True


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
    except Exception as error:  # a store may raise errors of any kind
        raise PublishError(f"place {shown!r}: failed with {type(error).__name__}; run the same command again") from None
    return standing is not None


def _created(place: ObjectFolder, name: str, content: bytes, sha256: str) -> bool:
    """Whether an object holds some bytes now."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PublishError(f"file {name!r}: was changed while it was read; nothing more was uploaded")
    return place.create(name, content) or place.read(name) == content


def _other(shown: str) -> RequestError:
    return RequestError(
        field=f"place {shown!r}", message="holds another release, or part of one", hint="choose another place"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Put a published folder into a bucket; exit codes are those of `dp-pipelines`."""
    parser = argparse.ArgumentParser(
        prog="python -m dp_pipelines.jobs.dataflow.upload",
        description="Copy a published folder to a bucket, with its manifest last, never overwriting anything.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a folder that `dp-pipelines run` has published")
    parser.add_argument("place", metavar="gs://BUCKET/FOLDER", help="where to put it")
    given = parser.parse_args(arguments)
    try:
        again = put(pathlib.Path(given.folder), GoogleFolder(given.place), given.place)
    except DpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, RequestError) else 1
    told = f"{'already there' if again else 'published'}: {given.place}"
    with output.printing(told):
        print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
