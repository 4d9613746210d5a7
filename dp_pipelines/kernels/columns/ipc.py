"""A table as bytes, as it travels between workers and waits on disks: one Arrow IPC stream.

In: a pa.Table. Out: a buffer, and back without copying. Holds: a slice is written as the slice, not as its parent's buffers.
Not covered: files.
"""

import pyarrow as pa

WRITE_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)
"""Workers run in parallel already: the engine manages that, not Arrow."""


def to_buffer(table: pa.Table, options: pa.ipc.IpcWriteOptions = WRITE_OPTIONS) -> pa.Buffer:
    """Return the IPC stream of a table.

    Args:
        table: any.
        options: whether it is compressed, for one.

    >>> table = pa.table({"a": [1, 2]})
    >>> from_buffer(to_buffer(table)).equals(table)
    True
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_buffer(buffer: pa.Buffer | bytes) -> pa.Table:
    """Return the table of an IPC stream; its arrays are views of the given bytes."""
    with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
        return reader.read_all()
