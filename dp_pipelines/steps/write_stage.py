"""The end of a stage: one writer of one file.

In: released tables. Out: a Parquet file that appears complete or not at all, and its path. Holds: an existing file stays, so that
whatever is tried again, the first complete attempt is the one that counts. Not covered: publishing.
"""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from dp_pipelines.disk_errors import told_of_disk
from dp_pipelines.kernels.shard import pieces
from dp_pipelines.release import sorted_runs, staging
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import Sharded, Step


def written(released: Flow, writer: Step) -> Flow:
    """Have one step write all released tables of a stage.

    Args:
        released: the tables.
        writer: gets a key with all tables, once.
    """
    return released.each("Keyed", Keyed()).by_key("Gather").each("Write", writer)


class Keyed(Step):
    """Give all tables one key."""

    gives = Sharded

    def process(self, element: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The pieces of a table."""
        yield from ((0, piece) for piece in pieces(element))


class WriteStage(Step):
    """Write the released tables of a stage into one Parquet file of a staging folder.

    Args:
        path: of the file; its folder exists and is private.
        keys: the partition columns, by which rows are sorted.
    """

    gives = str

    def __init__(self, path: str, keys: Sequence[str]) -> None:
        self._path, self._keys = path, tuple(keys)

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        """Write, and give the path."""
        folder = pathlib.Path(self._path).parent
        with told_of_disk(folder):
            staging.write_in_order(sorted_runs.in_order(element[1], self._keys, folder), self._path)
        yield self._path
