"""Public lists that are sorted on disk: made once out of a file of keys, and used again by every run.

In: a Parquet file of keys in rising order, the columns and types of a key. Out: a `KeyFile` in this user's cache. Holds: a list
is named by the digest of its file's bytes, so that a changed file makes a new list; one that is used is whole, and in folders of
this user into which nobody else may write. Not covered: lists are never removed; the folder may be deleted between two runs.
"""

import hashlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines import private_folders
from dp_pipelines.disk_errors import reason_of, told_of_disk
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import own_cache
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.column_types import column_of_kind, readable, readable_schema
from dp_pipelines.kernels.columns.key_file import FACTS, FILTER, FORMAT, KEYS, KeyFile
from dp_pipelines.kernels.columns.key_file_writer import KeyFileWriter, WrongOrder
from dp_pipelines.kernels.columns.long_text import LONGEST_KEY, is_text
from dp_pipelines.steps.read_files import batches_of, open_parquet

if TYPE_CHECKING:
    from dp_pipelines.jobs.terminal.progress import Progress

FIELD = "partitions.public_sorted_file"

AT_ONCE = 2**20
"""Keys that are read at a time."""

MOST_KEYS = 2**32
"""Keys of a list."""

OWN_FOLDER = "point XDG_CACHE_HOME to a folder of your own"

SORT = "sort it by the columns of partition_by, in their order and rising, nulls last, each key once"


def sorted_list(path: pathlib.Path, name: str, columns: Sequence[str], kinds: Sequence[pa.DataType] | None) -> KeyFile:
    """The list of a file, made where this user has none of it yet.

    Args:
        path: of the Parquet file.
        name: what the job calls it.
        columns: of a key, in order.
        kinds: the types that the data have; None: those of the file.

    Raises:
        RequestError: the file is none of sorted keys.
        DiskError: the disk of the cache is full, read-only or failing.
    """
    if not path.is_file():
        raise RequestError(field=FIELD, message=f"file not found: {name!r}", hint="check the path")
    try:
        with open_parquet(path) as file:
            schema, count = readable_schema(file.schema_arrow), file.metadata.num_rows
    except (pa.ArrowException, OSError, ValueError):
        raise RequestError(field=FIELD, message=f"cannot be read as Parquet: {name!r}", hint="check the file") from None
    for column in columns:
        if schema.names.count(column) != 1:
            message = f"must have exactly one column {column!r}"
            raise RequestError(field=FIELD, message=message, hint="name its columns as in partition_by")
    if not 0 < count <= MOST_KEYS:
        message = f"must list between 1 and {MOST_KEYS:,} keys"
        raise RequestError(field=FIELD, message=message, hint="check the file")
    types = [keys.plain_type(kind) for kind in (kinds or [schema.field(column).type for column in columns])]
    digest = _digest(path, columns, types, count)
    listed = KeyFile(os.path.abspath(own_cache.folder() / "lists" / digest), digest, count, len(columns))
    if not _is_whole(listed):
        _make(path, name, columns, types, listed)
    return listed


def _digest(path: pathlib.Path, columns: Sequence[str], types: Sequence[pa.DataType], count: int) -> str:
    """What names the list of a file."""
    found = hashlib.sha256(f"{FORMAT} {list(columns)} {list(map(str, types))} {count} ".encode())
    with path.open("rb") as stream:
        found.update(hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()


def _is_whole(listed: KeyFile) -> bool:
    """Whether a list is there with all of its files, and nobody else may have written them."""
    folder = pathlib.Path(listed.folder)
    folders, files = (folder.parent.parent, folder.parent, folder), [folder / name for name in (KEYS, FILTER, FACTS)]
    if not all(map(own_cache.is_own, (*folders, *files))):
        return False
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return bool(facts["bytes"] == {path.name: path.stat().st_size for path in files[:2]})
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _make(path: pathlib.Path, name: str, columns: Sequence[str], kinds: Sequence[pa.DataType], listed: KeyFile) -> None:
    """Sort a list into a folder beside its own, which then gets its name."""
    from dp_pipelines.jobs.terminal.progress import Progress  # here, since a plan shows none

    target = pathlib.Path(listed.folder)
    with told_of_disk(target.parent, "point XDG_CACHE_HOME to a larger disk"):
        try:
            made = _private_folder(target.parent)
            try:
                whole = made / "whole"
                whole.mkdir(mode=0o700)
                with Progress(sys.stderr) as progress:
                    _fill(KeyFileWriter(whole, columns, listed.count), path, name, columns, kinds, progress)
                if _digest(path, columns, kinds, listed.count) != listed.digest:
                    message = f"has changed while it was read: {name!r}"
                    raise RequestError(field=FIELD, message=message, hint="run it again once nobody writes the file")
                _give_name(whole, target, listed, made / "broken")
            finally:
                shutil.rmtree(made, ignore_errors=True)
        except OSError as error:
            if _is_whole(listed):  # another process came in between: its list is the same
                return
            if reason_of(error):
                raise
            message = f"is sorted into {str(target.parent)!r}, which cannot be written"
            raise RequestError(field=FIELD, message=message, hint=OWN_FOLDER) from None


def _private_folder(lists: pathlib.Path) -> pathlib.Path:
    """A new folder beside the lists, in folders into which nobody else may write."""
    for folder in (own_cache.folder(), lists):
        private_folders.make(folder)
        if not own_cache.is_own(folder):  # a list that has a key twice would be paid for once
            message = f"is sorted into {str(folder)!r}, which is another user's or which others may write"
            hint = f"{OWN_FOLDER}, or let nobody else write into this one"
            raise RequestError(field=FIELD, message=message, hint=hint)
    return pathlib.Path(tempfile.mkdtemp(dir=lists, prefix=".list-"))  # mode 0700


def _give_name(whole: pathlib.Path, target: pathlib.Path, listed: KeyFile, broken: pathlib.Path) -> None:
    """Put a list that has been made in its place."""
    for file in whole.iterdir():
        file.chmod(0o600)  # whatever umask says
        _sync(file)
    _sync(whole)
    if _is_whole(listed):  # another process was first
        return
    if os.path.lexists(target):  # of which somebody has deleted or cut a part
        os.replace(target, broken)
    os.replace(whole, target)


def _sync(path: pathlib.Path) -> None:
    """See that a name which outlives a power failure stands for bytes that do."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(
    writer: KeyFileWriter, path: pathlib.Path, name: str, columns: Sequence[str], kinds: Sequence[pa.DataType],
    progress: "Progress",
) -> None:  # fmt: skip
    try:
        with open_parquet(path) as file:
            every, taken = file.metadata.num_rows, 0  # of a public list, so anybody may see them
            for batch in batches_of(path, file, columns, AT_ONCE):
                progress.show(f"sorting a public list, once for all runs: {taken:,} of {every:,} keys are read")
                taken += batch.num_rows
                listed = readable(pa.Table.from_batches([batch]))
                writer.add(
                    [_typed(c, k, keys.one_array(listed.column(c))) for c, k in zip(columns, kinds, strict=True)]
                )
        progress.show(f"sorting a public list, once for all runs: all {every:,} keys are read")
        writer.finish()
    except WrongOrder as error:
        wrong = "is there twice" if error.doubled else "is not above the one before it"
        raise RequestError(
            field=FIELD, message=f"lists a key that {wrong}, in row {error.row:,} of {name!r}", hint=SORT
        ) from None
    except (pa.ArrowException, ValueError, OSError) as error:
        if reason_of(error):
            raise
        raise RequestError(field=FIELD, message=f"cannot be read as Parquet: {name!r}", hint="check the file") from None


def _typed(name: str, kind: pa.DataType, column: pa.Array) -> pa.Array:
    """Listed values in the type that the data have."""
    plain = keys.plain(column)
    if is_text(plain.type) and (pa.compute.max(pa.compute.binary_length(plain)).as_py() or 0) > LONGEST_KEY:
        message = f"lists a key of more than {LONGEST_KEY:,} bytes in column {name!r}"
        raise RequestError(field=FIELD, message=message, hint="leave it out: such a key counts as null in rows")
    return column_of_kind(name, kind, plain, declared=True)
