"""Files of other file systems, named by URL: which there are, how large, and how they are opened.

In: patterns, URLs. Out: names, sizes, streams. Holds: `s3://` is read through pyarrow, without Beam; other schemes through
Beam's file systems; what a library says is not repeated. Not covered: files of this machine (`jobs.sources`), writing.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa

from dp_pipelines.engine import compressed, object_store
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import DamagedInputError, DpError, RequestError
from dp_pipelines.jobs.terminal.silence import silence


def find(pattern: str, field: str) -> tuple[str, ...]:
    """The files of another file system that a pattern names, sorted.

    Args:
        pattern: a URL.
        field: the key of the job file that names the files.

    Raises:
        RequestError: the file system is not known here, cannot be asked, or has no such file.
    """
    refuse_credentials(pattern, field)
    found = _objects(pattern, field) if object_store.is_object(pattern) else _of_beam(pattern, field)
    if not found:
        raise RequestError(field=field, message=f"matches no file: {pattern!r}", hint="check the bucket and the path")
    return tuple(found)


def is_url(path: str) -> bool:
    """Whether a path is on another file system.

    >>> is_url("gs://bucket/rows.parquet"), is_url("rows.parquet")
    (True, False)
    """
    return "://" in path


def refuse_unanswered(folder: str, shown: str, field: str) -> None:
    """Refuse a folder of a store that does not answer, so that whoever reads it then has no such reason to fail.

    Args:
        folder: the URL of the folder.
        shown: the URL that the job names.
        field: the key of the job file that names it.

    Raises:
        RequestError: it does not answer, or has no such bucket.
    """
    try:
        object_store.listed(folder, deep=False)
    except StoreError as error:
        unanswered(shown, field, error)


def refuse_credentials(url: str, field: str) -> None:
    """Refuse a URL that holds credentials: it stands in manifests and in the ledger. Raises: RequestError."""
    if object_store.has_credentials(url):
        message = f"names {object_store.without_credentials(url)!r} with somebody's credentials"
        hint = "leave them out; for s3:// set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise RequestError(field=field, message=message, hint=hint)


def unanswered(url: str, field: str, error: StoreError) -> NoReturn:
    """Refuse what a store does not answer. Raises: RequestError."""
    raise RequestError(field=field, message=f"names {url!r}, but {error.reason}", hint=error.hint) from None


def _objects(pattern: str, field: str) -> list[str]:
    try:
        return [url for url, _ in object_store.matching(pattern)]
    except StoreError as error:
        unanswered(pattern, field, error)


def _of_beam(pattern: str, field: str) -> list[str]:
    scheme = f"{pattern.partition('://')[0]}://"
    try:
        _file_systems().get_filesystem(pattern)
    except ValueError:
        message = f"names {pattern!r}, but no file system here supports {scheme}"
        hint = "for gs:// install the extra `dataflow`, or name local files"
        raise RequestError(field=field, message=message, hint=hint) from None
    try:
        (match,) = _file_systems().match([pattern])
    except Exception:  # each file system has errors of its own
        message = f"cannot be listed: {pattern!r}"
        raise RequestError(field=field, message=message, hint=f"check that this user may list it at {scheme}") from None
    return sorted({entry.path for entry in match.metadata_list if not entry.path.endswith("/")})


def _file_systems() -> Any:
    """Beam's file systems. Their messages while loading are for developers."""
    if "apache_beam" not in sys.modules:
        with silence():
            importlib.import_module("apache_beam")
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


@contextlib.contextmanager
def opened(url: str) -> Iterator[Any]:
    """A stream of the bytes of a file.

    Raises:
        RequestError: it is in a store that does not give it out.
        DpError: the store or the network failed while it was read.
        OSError: it cannot be read; whatever else its file system says.
    """
    if object_store.is_object(url):
        try:
            with object_store.open_object(url) as stream:
                yield stream
        except DamagedInputError as error:
            message = str(error).removeprefix(f"file {url!r}: ")
            if message in (
                object_store.UNREACHABLE,
                object_store.REPLACED,
            ):  # which passes: nothing is wrong with the request
                raise DpError(f"file {url!r}: {message}; run the same command again") from None
            hint = "check that this user may read it"
            raise RequestError(field=f"file {url!r}", message=message, hint=hint) from None
        return
    try:
        with _file_systems().open(url, compression_type=compressed.of_beam(url)) as stream:
            yield stream
    except (pa.ArrowException, OSError, ValueError):
        raise
    except Exception:  # each file system has errors of its own
        raise OSError("cannot be read") from None


def size_of(url: str) -> int:
    """The bytes of a file; 0 where nobody tells."""
    try:
        if object_store.is_object(url):
            return object_store.size_of(url) or 0
        return int(_file_systems().get_filesystem(url).size(url))
    except Exception:  # it only affects the number of shards
        return 0
