"""A released table in the order of its keys, in bounded memory: sorted runs in private files, then a merge.

In: tables with rows in any order. Out: tables whose rows follow each other. Holds: what is in memory at a time does not grow with
the rows, beyond a table for each run; runs are in the private folder of the attempt, and gone at the end. Not covered: writing
(`staging`); rows without keys, whose order nothing says.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.columns import gather
from dp_pipelines.release import staging

RUN_BYTES = 2**28
"""Bytes of a run: what is sorted at a time."""

_LAST = "\0last"
"""An extra column: the run of which a row is the last one in memory, or -1."""


def in_order(
    tables: Iterable[pa.Table], keys: Sequence[str], folder: pathlib.Path, run_bytes: int = RUN_BYTES
) -> Iterator[pa.Table]:
    """Yield the rows of tables, sorted by key.

    Args:
        tables: of one schema; they are taken one by one.
        keys: the columns that sort.
        folder: a private one, for the runs.
        run_bytes: see `RUN_BYTES`.

    >>> tables = [pa.table({"k": [3, 1]}), pa.table({"k": [2]})]
    >>> [table.column("k").to_pylist() for table in in_order(tables, ["k"], pathlib.Path("/nowhere"))]
    [[1, 2, 3]]
    """
    with contextlib.ExitStack() as files:
        runs: list[pa.RecordBatchFileReader] = []
        waiting: list[pa.Table] = []
        for table in tables:
            waiting.append(table)
            if sum(each.nbytes for each in waiting) > run_bytes:
                runs.append(files.enter_context(_written(_sorted(waiting, keys), folder, run_bytes)))
                waiting = []
        if not runs:
            yield _sorted(waiting, keys)
            return
        if any(table.num_rows for table in waiting):  # a file without rows would have no piece
            runs.append(files.enter_context(_written(_sorted(waiting, keys), folder, run_bytes)))
        del waiting
        yield from _merged(runs, keys)


def _sorted(tables: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    return staging.sorted_by_key(pa.concat_tables(tables, promote_options="permissive"), keys)


@contextlib.contextmanager
def _written(table: pa.Table, folder: pathlib.Path, run_bytes: int) -> Iterator[pa.RecordBatchFileReader]:
    """Write a run into a file without a name, in pieces of which many fit into memory, and yield its reader."""
    with tempfile.TemporaryFile(dir=folder) as stream:
        rows = max(1, table.num_rows * (run_bytes // 16) // max(table.nbytes, 1))
        with pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        yield pa.ipc.open_file(stream)


def _merged(runs: Sequence[pa.RecordBatchFileReader], keys: Sequence[str]) -> Iterator[pa.Table]:
    taken = [0] * len(runs)
    pending = [_next(runs, number, taken) for number in range(len(runs))]
    while pending:
        together = _sorted(pending, keys)
        marks = together.column(_LAST).to_numpy()
        ends = np.flatnonzero(marks >= 0)
        # What comes after the last row in memory of a run may come before rows that are not in memory yet.
        end = int(ends[0]) + 1 if len(ends) else together.num_rows
        yield together.slice(0, end).drop_columns([_LAST])
        pending = [gather.take_rows(together, np.arange(end, together.num_rows))] if end < together.num_rows else []
        if len(ends):
            pending.append(_next(runs, int(marks[ends[0]]), taken))


def _next(runs: Sequence[pa.RecordBatchFileReader], number: int, taken: list[int]) -> pa.Table:
    """Return the next piece of a run, whose last row is marked where more pieces follow."""
    run = runs[number]
    piece = pa.Table.from_batches([run.get_batch(taken[number])])
    taken[number] += 1
    marks = np.full(piece.num_rows, -1, np.int32)
    if taken[number] < run.num_record_batches:
        marks[-1] = number
    return piece.append_column(_LAST, pa.array(marks))
