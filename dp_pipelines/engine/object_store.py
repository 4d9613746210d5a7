"""Objects of S3, and of stores that speak like it, by URL: streams and lists, through pyarrow's file systems.

In: `s3://BUCKET/KEY`, the usual variables of the environment. Out: streams, names. Holds: a stream shows one object from first to
last byte: one that was replaced meanwhile is an error; an error says what failed in words of ours, never in those of a
library, which quote keys and answers. Not covered: writing (`jobs.stores`); other stores, which Beam knows.
"""

import fnmatch
import functools
import glob
import io
import os
import re
from types import TracebackType
from typing import BinaryIO, cast
from urllib.parse import urlsplit

import pyarrow as pa

from dp_pipelines.errors import DamagedInputError

SCHEME = "s3://"

BUFFER_BYTES = 2**20
"""Read at a time where somebody wants a few bytes: each request takes a round trip."""

CONNECT_SECONDS, ANSWER_SECONDS, ATTEMPTS = 10, 60, 4
"""How long a store may take to accept a connection and to send something, and how often it is asked."""

GONE = "is not in its bucket any more"
REPLACED = "was replaced while it was read"
UNREACHABLE = "cannot be read from its store"
DENIED = "is refused to this user by its store"
FAILURES = (GONE, REPLACED, UNREACHABLE, DENIED)
"""What can become of an object while it is read."""

_SIGNED = re.compile(r"[?&][^=&/]*(secret|sig|signature|token|password|credential|access_?key)=.*", re.I | re.S)
"""The rest of a URL that says in its query who asks."""

_CODE = re.compile(r"AWS Error ([A-Z_]+)")
NO_BUCKET = ("there is no such bucket", "check the name of the bucket, and AWS_ENDPOINT_URL")
NO_ANSWER = ("the store does not answer", "check AWS_ENDPOINT_URL and the network")
REFUSED = (
    "the store refuses this user",
    "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and who may read it",
)
UNCLEAR = ("the store cannot be asked", "check AWS_ENDPOINT_URL and the credentials")
"""Why a store cannot be asked, each with what to check."""

_REASONS = {"NO_SUCH_BUCKET": NO_BUCKET, "RESOURCE_NOT_FOUND": NO_BUCKET, "NETWORK_CONNECTION": NO_ANSWER}
_REFUSALS = ("ACCESS_DENIED", "ACCESSDENIED", "INVALID", "SIGNATURE", "TOKEN", "EXPIRED", "UNRECOGNIZED", "MISSING")


class StoreError(Exception):
    """A store could not be asked.

    Args:
        reason: why, in words of ours.
        hint: what to check.
    """

    def __init__(self, reason: str, hint: str) -> None:
        self.reason, self.hint = reason, hint
        super().__init__(f"{reason}; {hint}")


def is_object(path: str) -> bool:
    """Whether a path is the URL of an object here.

    >>> is_object("s3://bucket/rows.parquet"), is_object("gs://bucket/rows.parquet"), is_object("rows.parquet")
    (True, False, False)
    """
    return path.startswith(SCHEME)


def open_object(url: str) -> BinaryIO:
    """An object for reading, as a context; inside of it a stream that can be sought in.

    Args:
        url: of the object.
    """
    return cast(BinaryIO, _Object(url))


class _Object:
    """One object, opened inside of a block.

    A failure inside the block that came of the store is told as such: whoever reads takes every error for damage.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> BinaryIO:
        try:
            self._raw = file_system().open_input_file(_path(self._url))
            self._mark = _mark(self._raw)
        except FileNotFoundError:
            raise DamagedInputError(f"file {self._url!r}: {GONE}") from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedInputError(f"file {self._url!r}: {_unread(error)}") from None
        return cast(BinaryIO, io.BufferedReader(self._raw, BUFFER_BYTES))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()
        if kind is GeneratorExit:  # nobody wants more of it
            return
        came_of = error.__context__ if isinstance(error, DamagedInputError) else error
        if error is not None and not isinstance(came_of, (pa.ArrowException, OSError, ValueError)):
            return
        if _CODE.search(str(came_of)):
            raise DamagedInputError(f"file {self._url!r}: {_unread(came_of)}") from None
        # What was read of two objects may look like one that is damaged, or like one that is whole.
        if self._mark != self._mark_now():
            raise DamagedInputError(f"file {self._url!r}: {REPLACED}") from None

    def _mark_now(self) -> bytes:
        try:
            with file_system().open_input_file(_path(self._url)) as again:
                return _mark(again)
        except FileNotFoundError:
            return b""
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedInputError(f"file {self._url!r}: {_unread(error)}") from None


def _unread(error: BaseException | None) -> str:
    """Return why an object could not be read to its end: its store refuses it, or else time may help."""
    return DENIED if _is_refusal(error) else UNREACHABLE


def _is_refusal(error: BaseException | None) -> bool:
    code = _CODE.search(str(error))
    return code is not None and any(code[1].startswith(word) for word in _REFUSALS)


def _mark(file: pa.NativeFile) -> bytes:
    """What is another one for another object of the same name."""
    told = file.metadata()
    return b" ".join(bytes(told.get(name, b"")) for name in ("VersionId", "ETag", "Last-Modified", "Content-Length"))


def matching(pattern: str) -> list[tuple[str, int]]:
    """The objects that a pattern names, each with its bytes, in the order of their names.

    Args:
        pattern: a URL; `*`, `?` and `[...]` stand for what is between two slashes, `**` for any folders.

    Raises:
        StoreError: the store cannot be asked, or has no such bucket.
    """
    bucket, _, key = _path(pattern).partition("/")
    if glob.has_magic(bucket):
        raise StoreError("the name of its bucket has a wildcard", "name one bucket")
    parts = key.split("/")
    plain = next((number for number, part in enumerate(parts) if glob.has_magic(part)), None)
    if plain is None:
        size = size_of(pattern)
        if size is None and _no_bucket(pattern):
            raise StoreError(*NO_BUCKET)
        return [] if size is None else [(pattern, size)]
    folder = "/".join([f"{SCHEME}{bucket}", *parts[:plain]])
    rest = parts[plain:]
    found = listed(folder, deep=len(rest) > 1 or rest == ["**"])
    return [(url, size) for url, size in found if _fits(url[len(folder) + 1 :].split("/"), rest)]


def _fits(parts: list[str], pattern: list[str]) -> bool:
    """Whether the parts of a name fit those of a pattern, as `glob` reads it.

    >>> _fits(["a", "b", "c.csv"], ["**", "*.csv"]), _fits(["a", "c.csv"], ["*.csv"]), _fits(["c.csv"], ["**", "*.csv"])
    (True, False, True)
    >>> _fits([".c.csv"], ["*.csv"]), _fits([".a", "c.csv"], ["**", "*.csv"]), _fits([".c.csv"], [".*"])
    (False, False, True)
    """
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == "**":
        hidden = next((place for place, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(_fits(parts[start:], rest) for start in range(hidden + 1))
    if parts and parts[0].startswith(".") and not first.startswith("."):
        return False
    return bool(parts) and fnmatch.fnmatchcase(parts[0], first) and _fits(parts[1:], rest)


def listed(url: str, *, deep: bool) -> list[tuple[str, int]]:
    """The objects in a folder of a bucket, each with its bytes, in the order of their names; none where there is no such folder.

    Args:
        url: of the folder.
        deep: whether the folders inside of it count.

    Raises:
        StoreError: the store cannot be asked, or has no such bucket.
    """
    from pyarrow import fs

    try:
        selector = fs.FileSelector(_path(url), recursive=deep, allow_not_found=True)
        found = [entry for entry in file_system().get_file_info(selector) if entry.type == fs.FileType.File]
        if not found and _no_bucket(url):
            raise StoreError(*NO_BUCKET)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise why(error) from None
    return sorted((f"{SCHEME}{entry.path}", int(entry.size)) for entry in found)


def _no_bucket(url: str) -> bool:
    from pyarrow import fs

    return bool(file_system().get_file_info(_path(url).partition("/")[0]).type == fs.FileType.NotFound)


def size_of(url: str) -> int | None:
    """The bytes of an object; None where there is none.

    Raises:
        StoreError: the store cannot be asked.
    """
    from pyarrow import fs

    try:
        found = file_system().get_file_info(_path(url))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise why(error) from None
    return int(found.size) if found.type == fs.FileType.File else None


def why(error: Exception) -> StoreError:
    """What a library's error says, in words of ours."""
    if _is_refusal(error):
        return StoreError(*REFUSED)
    found = _CODE.search(str(error))
    return StoreError(*_REASONS.get(found[1] if found else "", UNCLEAR))


def file_system() -> "pa.fs.FileSystem":
    """The file system that the environment describes."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
    return _file_system(endpoint(), region(), hash(tuple(os.environ.get(name) for name in names)))


@functools.lru_cache(maxsize=4)
def _file_system(at: str | None, of: str | None, who: int) -> "pa.fs.FileSystem":
    from pyarrow import fs  # loads the library of the stores

    patience = fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    return fs.S3FileSystem(
        endpoint_override=at, region=of, connect_timeout=CONNECT_SECONDS, request_timeout=ANSWER_SECONDS,
        retry_strategy=patience,
    )  # fmt: skip


def endpoint() -> str | None:
    """Where another store than Amazon's is, as the usual variables say."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def region() -> str | None:
    """The region that the usual variables say."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def without_credentials(url: str) -> str:
    """A URL as it may be shown.

    >>> without_credentials("s3://key:secret@bucket/rows"), without_credentials("s3://bucket/a@b")
    ('s3://...@bucket/rows', 's3://bucket/a@b')
    >>> without_credentials("abfs://container@account/rows")
    'abfs://container@account/rows'
    >>> without_credentials("s3://key:sec/ret@bucket/rows"), without_credentials("https://host/rows?sig=secret")
    ('s3://...@bucket/rows', 'https://host/rows?...')
    """
    scheme, mark, rest = url.partition("://")
    if mark and (signed := _SIGNED.search(rest)):
        rest = f"{rest[: signed.start() + 1]}..."
    place, slash, path = rest.partition("/")
    who, at, where = place.rpartition("@")
    if mark and at and (":" in who or is_object(url)):
        return f"{scheme}://...@{where}{slash}{path}"
    _, colon, port = place.rpartition(":")
    # Amazon's secret keys may hold a slash, but no @. No bucket has a colon in its name.
    if mark and colon and not at and "@" in path and (is_object(url) or not port.isdigit()):
        return f"{scheme}://...@{path.partition('@')[2]}"
    return f"{scheme}{mark}{rest}"


def has_credentials(url: str) -> bool:
    """Whether a URL names somebody before the name of its place."""
    return without_credentials(url) != url


def is_encrypted() -> bool:
    """Whether what is said to the store is encrypted on its way."""
    return urlsplit(endpoint() or "https://").scheme != "http"


def _path(url: str) -> str:
    return url.removeprefix(SCHEME).rstrip("/")
