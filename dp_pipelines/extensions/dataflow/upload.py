"""Copies a published folder to a bucket: `python -m dp_pipelines.extensions.dataflow.upload FOLDER gs://BUCKET/FOLDER`.

In: a folder that a run has published, a place in a bucket. Out: the same files there, `manifest.json` last. Holds:
nothing is ever overwritten, because an object is only created if there is none; a place with a manifest is complete;
after a kill, the same command continues; another release at that place is refused. Not covered: stores other than
Google's; who may read the bucket. It was never run on the service: docs/dataflow.md. Google's client, from the extra
`dataflow`, is imported on use.
"""

import argparse
import importlib
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.extensions.dataflow import dataflow_requirements
from dp_pipelines.jobs.stores.object_folder import put
from dp_pipelines.jobs.terminal import output


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Put a published folder into a bucket; exit codes are those of `dp-pipelines`."""
    parser = argparse.ArgumentParser(
        prog="python -m dp_pipelines.extensions.dataflow.upload",
        description="Copy a published folder to a bucket, with its manifest last, never overwriting anything.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a folder that `dp-pipelines run` has published")
    parser.add_argument("place", metavar="gs://BUCKET/FOLDER", help="where to put it")
    given = parser.parse_args(arguments)
    try:
        again = put(pathlib.Path(given.folder), GoogleFolder(given.place), given.place)
    except DpError as error:
        output.note(f"error: {error}")
        return 2 if isinstance(error, RequestError) else 1
    told = f"{'already there' if again else 'published'}: {given.place}"
    with output.printing(told):
        print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
