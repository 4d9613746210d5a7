"""Bounded examples on their way from the pipeline to the training: one Arrow file for each shard.

In: a table with whole units, a private folder. Out: a file of mode 0600, written completely or not at all; all tables
of a folder, in the order of shards. Holds: nobody reads a file that a killed attempt left; if several attempts write a
shard, the first stays. Not covered: removing the folder.
"""

import contextlib
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dp_pipelines.disk_errors import told_of_disk
from dp_pipelines.kernels.columns import ipc
from dp_pipelines.release.staging import UNFINISHED, attempt_name

SUFFIX = ".arrow"

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def write(table: pa.Table, folder: str | os.PathLike[str], shard: int) -> str:
    """Write the examples of a shard unless they exist, and return the path.

    Args:
        table: all examples of its units.
        folder: an existing, private folder.
        shard: its number.

    Raises:
        DiskError: the disk is full, read-only or failing.
    """
    target = pathlib.Path(folder) / f"shard-{shard:05d}{SUFFIX}"
    temporary = target.with_name(f".{target.name}.{attempt_name()}{UNFINISHED}")
    with told_of_disk(folder):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                # At once: Arrow calls a file of Python's for each buffer of each column, under Python's lock.
                sink = pa.BufferOutputStream()
                with pa.ipc.new_file(sink, table.schema, options=_OPTIONS) as writer:
                    writer.write_table(table)
                file.write(sink.getvalue())
            with contextlib.suppress(FileExistsError):
                os.link(temporary, target)  # fails if another attempt came first: that one stays
        finally:
            temporary.unlink(missing_ok=True)
    return str(target)


def spill(parts: Sequence[pa.Table], folder: str | os.PathLike[str]) -> list[pa.Table]:
    """Write tables of one schema into one private file; return for each a table of one row that says where it is.

    Args:
        parts: at least one.
        folder: exists, is private, and is removed when the run ends. Nobody reads a file that a killed worker left.

    Raises:
        DiskError: the disk is full, read-only or failing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     places = spill([pa.table({"who": [1, 2]}), pa.table({"who": [3]})], folder)
    ...     [spilled(place).column("who").to_pylist() for place in places]
    [[1, 2], [3]]
    """
    path = pathlib.Path(folder) / f".spill-{attempt_name()}{UNFINISHED}"
    with told_of_disk(folder):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        ends = [0]
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                ends.append(ends[-1] + file.write(ipc.to_buffer(part, _OPTIONS)))
    names = [str(path)]
    return [pa.table({"path": names, "begin": [begin], "end": [end]}) for begin, end in itertools.pairwise(ends)]


def spilled(place: pa.Table) -> pa.Table:
    """A table that `spill` has written."""
    path, begin, end = (place.column(name)[0].as_py() for name in ("path", "begin", "end"))
    with pa.OSFile(path) as file:
        file.seek(begin)
        return ipc.from_buffer(file.read_buffer(end - begin))


def tables(folder: str | os.PathLike[str]) -> Iterator[pa.Table]:
    """The examples of a folder, shard by shard: each table holds all examples of its units.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write(pa.table({"who": [1]}), folder, 0)
    ...     [table.num_rows for table in tables(folder)]
    [1]
    """
    for path in sorted(pathlib.Path(folder).glob(f"shard-*{SUFFIX}")):
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            yield reader.read_all()
