"""A folder of a bucket of S3, or of a store that speaks like it, whose objects are created only where there are none.

In: `s3://BUCKET/FOLDER`, the usual variables of the environment. Out: objects. Holds: the store decides whether an object is
the first of its name (`If-None-Match`); errors have words of ours, never those of a library. Not covered: stores that do not know
conditional writes. Amazon's client, from the extra `s3`, is imported on use.
"""

import contextlib
import importlib
import re
import time
from collections.abc import Iterator
from typing import Any

from dp_pipelines.engine import object_store
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.stores import remote_files

_TAKEN, _AT_ONCE = 412, 409
"""What a store answers where there is an object of the name, and where somebody else is creating one."""

_TRIES = 5
_SECONDS = 0.2


class S3Folder:
    """A folder of a bucket.

    Args:
        url: `s3://BUCKET/FOLDER`.
        field: what names it.

    Raises:
        RequestError: it is not such a URL, holds credentials, or the client is not installed.
    """

    def __init__(self, url: str, field: str) -> None:
        remote_files.refuse_credentials(url, field)
        found = re.fullmatch(r"s3://([^/]+)/(.*[^/])/*", url)
        if found is None:
            raise RequestError(
                field=field, message=f"names {url!r}, which is no folder in a bucket", hint="write s3://BUCKET/FOLDER"
            )
        try:
            client: Any = importlib.import_module("boto3")
            core: Any = importlib.import_module("botocore")
            settings: Any = importlib.import_module("botocore.config")
        except ImportError:
            hint = "install the extra: pip install 'dp-pipelines[s3]'"
            raise RequestError(field=field, message="needs packages that are not installed", hint=hint) from None
        self._bucket, self._folder, self._errors = found[1], found[2], core.exceptions
        patience = settings.Config(
            connect_timeout=object_store.CONNECT_SECONDS, read_timeout=object_store.ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": object_store.ATTEMPTS},
        )  # fmt: skip
        # Without a region one signs for one that a store of one's own does not look at.
        of = object_store.region() or ("us-east-1" if object_store.endpoint() else None)
        try:
            self._client = client.client("s3", endpoint_url=object_store.endpoint(), region_name=of, config=patience)
        except (self._errors.BotoCoreError, ValueError):
            message, hint = "is in a store that cannot be asked", "check AWS_ENDPOINT_URL, AWS_REGION and AWS_PROFILE"
            raise RequestError(field=field, message=message, hint=hint) from None

    def read(self, name: str) -> bytes | None:
        """An object, or None where there is none. Raises: StoreError."""
        with self._told():
            try:
                return bytes(self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read())
            except self._client.exceptions.NoSuchKey:
                return None

    def create(self, name: str, content: bytes) -> bool:
        """Create an object; the store decides whether it is the first of its name. Raises: StoreError."""
        with self._told():
            for attempt in range(_TRIES):
                try:
                    self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content, IfNoneMatch="*")
                    return True
                except self._errors.ClientError as error:
                    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                    if status == _TAKEN:
                        return False
                    if status != _AT_ONCE or attempt == _TRIES - 1:
                        raise
                time.sleep(_SECONDS * 2**attempt)
        return False

    def read_version(self, name: str) -> tuple[bytes | None, str | None]:
        """An object with what tells this version of it from others; None and None where there is none. Raises: StoreError."""
        with self._told():
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
                return bytes(found["Body"].read()), str(found["ETag"])
            except self._client.exceptions.NoSuchKey:
                return None, None

    def replace(self, name: str, content: bytes, version: str | None) -> bool:
        """Write an object if it still is a version; False if somebody else was faster. Raises: StoreError.

        Args:
            name, content: of the object.
            version: what `read_version` gave; None: there must be none.
        """
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        with self._told():
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content, **condition)
                return True
            except self._errors.ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in (_TAKEN, _AT_ONCE):
                    return False
                raise

    def is_empty(self) -> bool:
        """Whether there is nothing in the folder. Raises: StoreError."""
        with self._told():
            found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._folder}/", MaxKeys=1)
            return not found.get("Contents")

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._errors.ClientError as error:
            said = error.response
            code, status = said.get("Error", {}).get("Code"), said.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if code == "NoSuchBucket":
                raise StoreError(*object_store.NO_BUCKET) from None
            raise StoreError(*(object_store.REFUSED if status in (401, 403) else object_store.UNCLEAR)) from None
        except (self._errors.NoCredentialsError, self._errors.PartialCredentialsError):
            raise StoreError(*object_store.REFUSED) from None
        except self._errors.BotoCoreError:
            raise StoreError(*object_store.NO_ANSWER) from None
