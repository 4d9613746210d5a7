"""A release before anyone may see it: one Parquet file per stage in a private folder, then one rename.

In: a released table. Out: a file that is there whole or not at all. Holds: the first complete attempt stays, later ones of the
same file are thrown away unseen, so that no reader ever sees two draws; rows are sorted by key, columns are plain, nothing of
the input's metadata is written.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from dp_pipelines.disk_errors import reason_of, told_of_disk
from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.kernels.columns import gather

MADE_UP_NOTICE = "MADE-UP-ROWS.txt"
"""A file in the folder of a report of made-up rows, for people who look into it."""

MADE_UP_METADATA = {b"dp_pipelines": b"made-up rows"}
"""Metadata of Parquet files of made-up rows; files of a release have none."""

ROWS_OF_A_GROUP = 2**20
"""Rows of a row group of a published file, but for the last."""

UNFINISHED = ".unfinished"
"""The suffix of a file that an attempt is still writing, or was writing when it was killed."""

SEALS = f".seals{UNFINISHED}"
"""The file with the seals of a complete release, where it is staged."""


def sorted_by_key(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows in the order of their keys, nulls last; without any metadata.

    >>> sorted_by_key(pa.table({"k": ["b", None, "a"]}), ["k"]).to_pydict()
    {'k': ['a', 'b', None]}
    """
    by = [(name, "ascending") for name in keys if not pa.types.is_null(table.schema.field(name).type)]
    if by and table.num_rows:
        table = gather.take_rows(table, pc.sort_indices(table, sort_keys=by))
    plain = pa.schema([pa.field(field.name, field.type) for field in table.schema])
    # What has too many bytes for one array stays in several.
    return pa.table([gather.whole(column) for column in table.columns], schema=plain)


def write_release(table: pa.Table, path: str | os.PathLike[str], keys: Sequence[str]) -> None:
    """Write a released table unless the file is there already.

    Args:
        table: the released table.
        path: of the Parquet file; its folder exists.
        keys: the partition columns, by which rows are sorted.

    Raises:
        DiskError: its disk is full, read-only or failing.
    """
    write_in_order(iter([sorted_by_key(table, keys)]), path)


def write_in_order(tables: Iterator[pa.Table], path: str | os.PathLike[str]) -> None:
    """Write tables whose rows follow each other in the order of their keys, and need not fit into memory together.

    Args:
        tables: at least one; all of one schema.
        path: of the Parquet file; its folder exists.

    Raises:
        DiskError: its disk is full, read-only or failing.
    """
    target = pathlib.Path(path)
    temporary = target.with_name(f".{target.name}.{attempt_name()}{UNFINISHED}")
    with told_of_disk(target.parent):
        try:
            groups = _row_groups(tables)
            first = next(groups)
            with (
                pa.OSFile(str(temporary), "wb") as file,  # closed whatever fails, or it would still hold its room
                pa.parquet.ParquetWriter(file, first.schema, compression="zstd") as writer,
            ):
                for group in itertools.chain([first], groups):
                    writer.write_table(group, row_group_size=ROWS_OF_A_GROUP)
            _sync(temporary)
            with contextlib.suppress(FileExistsError):
                os.link(temporary, target)  # fails where another attempt came first: that one stays
        finally:
            temporary.unlink(missing_ok=True)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of one size, but for the last: a file's layout must not tell how its rows came together."""
    waiting = [next(tables)]
    rows, any_yet = waiting[0].num_rows, False
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        while rows >= ROWS_OF_A_GROUP:
            whole = pa.concat_tables(waiting)
            yield _plain(whole.slice(0, ROWS_OF_A_GROUP))
            any_yet = True
            waiting, rows = [whole.slice(ROWS_OF_A_GROUP)], rows - ROWS_OF_A_GROUP
    if rows or not any_yet:
        yield _plain(pa.concat_tables(waiting))


def _plain(table: pa.Table) -> pa.Table:
    return pa.table([gather.whole(column) for column in table.columns], schema=table.schema)


def mark_made_up(path: str | os.PathLike[str]) -> None:
    """Write a staged Parquet file again, with a mark that its rows are made up."""
    table = pa.parquet.read_table(path).replace_schema_metadata(MADE_UP_METADATA)
    content = pa.BufferOutputStream()
    pa.parquet.write_table(table, content, compression="zstd")
    write_whole(pathlib.Path(path), content.getvalue().to_pybytes())


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Write a file that is there whole or not at all; one that is there is replaced.

    Raises:
        DiskError: its disk is full, read-only or failing.
        PublishError: it cannot be written for another reason.
    """
    temporary = path.with_name(f".{path.name[:100]}.{attempt_name()}{UNFINISHED}")
    with told_of_disk(path.parent):
        try:
            try:
                with temporary.open("xb") as file:  # never a file or link that is there
                    file.write(content)
                _sync(temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            if reason_of(error):
                raise
            raise PublishError(f"file {str(path)!r}: cannot be written: {error.strerror or 'no such folder'}") from None


def attempt_name() -> str:
    """Return a name that no other attempt has. It is not secret."""
    return f"{os.getpid()}-{uuid.uuid4().hex}"


def staging_path(output: str | os.PathLike[str], attempt: str) -> pathlib.Path:
    """Return the folder in which an attempt stages, next to the output folder. Errors as for `local_path`.

    Args:
        output: the folder that is to be published.
        attempt: its name.
    """
    target = local_path(output)
    return target.parent / f".{target.name[:100]}.staging-{attempt}"


def is_of(folder: str | os.PathLike[str], attempt: str) -> bool:
    """Return True if a folder has the name of an attempt's staging. Other folders must not be removed.

    Args:
        folder: its path.
        attempt: its name.
    """
    return pathlib.Path(folder).name.endswith(f".staging-{attempt}")


def note_seals(folder: pathlib.Path, seals: Mapping[str, str]) -> None:
    """Write the seals of a complete release into its staging folder, in case they cannot be recorded elsewhere.

    Args:
        folder: of the attempt.
        seals: by file.
    """
    part = folder / f".seals-part{UNFINISHED}"
    part.write_text(json.dumps(dict(seals)), encoding="utf-8")
    part.replace(folder / SEALS)


def noted_seals(folder: pathlib.Path) -> dict[str, str]:
    """Return what `note_seals` has written.

    Raises:
        OSError, ValueError: nothing was written there.
    """
    seals: dict[str, str] = json.loads((folder / SEALS).read_text(encoding="utf-8"))
    return seals


def destroy(folder: str | os.PathLike[str]) -> bool:
    """Destroy the staging of an attempt; return True if there was one and nothing is left."""
    path = pathlib.Path(folder)
    there = path.is_dir() and not path.is_symlink()
    shutil.rmtree(path, ignore_errors=True)
    return there and not os.path.lexists(path)


def why_left(folder: str | os.PathLike[str]) -> str:
    """Return why a folder that `destroy` has left is still there, if its disk gives a reason; else empty."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        return reason_of(error)
    return ""


@contextlib.contextmanager
def staging_folder(
    output: str | os.PathLike[str],
    attempt: str | None = None,
    keep: Callable[[BaseException], bool] = lambda error: False,
) -> Iterator[pathlib.Path]:
    """Yield a private folder (mode 0700) next to the output folder; remove it at the end, unless `keep` returns True.

    Args:
        output: the folder that is to be published.
        attempt: the name of the attempt; None makes one.
        keep: returns True if an error that ends the block leaves the folder to a later attempt.

    Raises:
        RequestError: the output folder exists, is on no local filesystem, or its parent cannot be written.
        DiskError: the disk is full, read-only or failing, now or at any time before the end of the block.
    """
    target = local_path(output)
    refuse_existing(target)
    folder = staging_path(output, attempt or attempt_name())
    with told_of_disk(target.parent):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            if reason_of(error):
                raise
            raise RequestError(
                field=f"output {str(output)!r}", message="cannot be created", hint="choose a folder that can be written"
            ) from None
        left = False
        try:
            yield folder
        except BaseException as error:
            left = keep(error)
            raise
        finally:
            if not left:
                shutil.rmtree(folder, ignore_errors=True)


def local_path(output: str | os.PathLike[str]) -> pathlib.Path:
    """Return the output as a local path.

    Raises:
        RequestError: for a URL of another filesystem.
    """
    text = os.fspath(output)
    if "://" in text:
        raise RequestError(
            field=f"output {text!r}", message="is not a local folder", hint="write locally, then copy the folder"
        )
    return pathlib.Path(os.path.abspath(text))


def refuse_existing(target: pathlib.Path) -> None:
    """Raise RequestError if the output already exists."""
    if os.path.lexists(target):
        message = "already exists"
        if (target / MADE_UP_NOTICE).is_file():
            message = "holds a report of made-up rows (run --synthetic)"
        raise RequestError(field=f"output {str(target)!r}", message=message, hint="choose a new folder, or remove it")


def publish_folder(staged: pathlib.Path, output: str | os.PathLike[str]) -> None:
    """Make a staged folder visible under the output's name, whole, by one rename.

    Raises:
        PublishError: the output already exists; the staged folder is untouched.
        DiskError: the disk is full, read-only or failing.
    """
    target = local_path(output)
    with told_of_disk(target.parent):
        for path in sorted(staged.rglob("*"), reverse=True):  # what is in a folder before the folder
            if not path.name.endswith(UNFINISHED):
                _sync(path)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()  # of an attempt that was killed: a second draw, which nobody may see
        _as_others_may(staged)
        give_name(staged, target)
    with contextlib.suppress(OSError):  # it is visible: an error would say that it is not
        _sync(target.parent)


def give_name(staged: pathlib.Path, target: pathlib.Path) -> None:
    """Give a complete file or folder its name, which nothing else has.

    Raises:
        PublishError: something has it, or it cannot be given.
        OSError: the disk is full, read-only or failing.
    """
    whole = staged.is_dir()
    try:
        if os.path.lexists(target):
            raise FileExistsError
        staged.rename(target)
    except OSError as error:
        if whole:
            with contextlib.suppress(OSError):
                staged.chmod(0o700)
        if reason_of(error):
            raise
        if not os.path.lexists(target):
            raise PublishError(
                f"output {str(target)!r}: cannot be created: {error.strerror}; nothing was published"
            ) from None
        raise PublishError(f"output {str(target)!r}: appeared while the job ran; nothing was published") from None


def _as_others_may(staged: pathlib.Path) -> None:
    """Give a folder and its files the permissions that new ones have here: what umask and folder say.

    A new folder shows them. Asking for the umask would mean to change it, for other threads as well.
    """
    sample = staged / f".{attempt_name()}{UNFINISHED}"
    sample.mkdir()
    mode = stat.S_IMODE(sample.stat().st_mode)
    sample.rmdir()
    for path in staged.rglob("*"):
        path.chmod(mode if path.is_dir() else mode & 0o666)
    staged.chmod(mode)


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
