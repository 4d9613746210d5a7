"""How Arrow tables travel between workers: one Arrow IPC stream each.

In: a pa.Table. Out: bytes, and back without copying. Holds: a slice is written as the slice, not as its parent's buffers
(pickle writes the parent); the size of an element is known without encoding it, since Beam samples sizes all the time.
Not covered: compression.
"""

import pyarrow as pa
from apache_beam import coders

from dp_pipelines.kernels.columns import ipc


class ArrowTableCoder(coders.Coder):
    """Encodes one pa.Table as one IPC stream.

    >>> table = pa.table({"a": [1, 2]})
    >>> ArrowTableCoder().decode(ArrowTableCoder().encode(table)).equals(table)
    True
    """

    def encode(self, value: pa.Table) -> bytes:
        """The IPC stream of a table."""
        encoded: bytes = ipc.to_buffer(value).to_pybytes()
        return encoded

    def decode(self, encoded: bytes) -> pa.Table:
        """The table of an IPC stream; its arrays are views of the given bytes."""
        return ipc.from_buffer(encoded)

    def estimate_size(self, value: pa.Table) -> int:
        """The approximate size of the encoded table, found without encoding it."""
        return int(value.nbytes) + 1024

    def is_deterministic(self) -> bool:
        """Tables are never keys."""
        return False

    def to_type_hint(self) -> type:
        """The type that this coder is for."""
        table: type = pa.Table
        return table

    def __eq__(self, other: object) -> bool:
        """All coders of this class are the same."""
        return type(self) is type(other)

    def __hash__(self) -> int:
        """All coders of this class are the same."""
        return hash(type(self))


def register() -> None:
    """Register this as the coder of pa.Table in this process, unless the program has registered its own."""
    if isinstance(coders.registry.get_coder(pa.Table), coders.FastPrimitivesCoder):
        coders.registry.register_coder(pa.Table, ArrowTableCoder)
