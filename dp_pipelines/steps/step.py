"""A step of a pipeline: what becomes of one element, without an engine.

In: elements (Arrow tables, or a key with its tables). Out: elements. Holds: a step keeps nothing between elements, so engines
may call it from several threads and in any order; its kernels are calls into NumPy and Arrow, which let other threads run.
Not covered: how elements travel (`transforms.beam_flow`, `jobs.runners.local`).
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.long_text import STAND_IN

Sharded = tuple[int, pa.Table]
"""A table with the number of its shard, its place, or its block."""


class Step:
    """Base of steps; subclasses define `process`."""

    gives: ClassVar[Any] = pa.Table
    """The type of what it makes, by which engines choose how that travels."""

    alone: ClassVar[bool] = False
    """Whether its elements, pairs of a key that occurs once and something, are each worth a task of their own."""

    def process(self, element: Any) -> Iterable[Any]:
        """What one element becomes."""
        raise NotImplementedError


class AheadStep(Step):
    """Base of steps with much to compute, which engines may do in other threads; subclasses define `compute`."""

    gives = Sharded

    def load(self, element: Any) -> Any:
        """The element in memory; called in the engine's own thread, since what Beam hands out may be read lazily."""
        return element

    def compute(self, element: Any) -> list[Any]:
        """What one loaded element becomes: a pure function of it."""
        raise NotImplementedError

    def process(self, element: Any) -> Iterable[Any]:
        """Load and compute."""
        return self.compute(self.load(element))


class GatheringStep(AheadStep):
    """The same for tables, of which `compute` gets several at once, as a list.

    Args:
        enough: bytes of tables (`bytes_of`) that engines put together at least; fewer only at the end.
    """

    def __init__(self, enough: int) -> None:
        self.enough = enough

    def bytes_of(self, table: pa.Table) -> int:
        """What a table counts for: the most that it takes while it waits or after `compute`."""
        return plain_bytes(table)

    def process(self, element: Any) -> Iterable[Any]:
        """What one table becomes alone."""
        return self.compute([element])


class GroupStep(AheadStep):
    """The same for a key with its tables, which are loaded as a list."""

    def load(self, element: tuple[int, Iterable[pa.Table]]) -> tuple[int, list[pa.Table]]:
        """The key and its tables."""
        return element[0], list(element[1])


def plain_bytes(table: pa.Table, longest: int = STAND_IN) -> int:
    """What a table takes once the texts of its dictionaries stand in each row, as those of a privacy unit will.

    Args:
        table: any.
        longest: the most bytes that a text then has; left out, those of the digest of a long one (`kernels.columns.long_text`).

    >>> codes = pa.array(["abcdefgh"] * 1000).dictionary_encode()
    >>> pa.table({"who": codes}).nbytes < 5000, plain_bytes(pa.table({"who": codes})) > 8000
    (True, True)
    """
    size = int(table.nbytes)
    for column in table.columns:
        if not pa.types.is_dictionary(column.type):
            continue
        kind = column.type.value_type
        if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
            size += sum(_decoded_bytes(chunk, longest) for chunk in column.chunks)
    return size


def _decoded_bytes(column: pa.DictionaryArray, longest: int) -> int:
    """Bytes of the values of all rows, each of so many at most."""
    lengths = pc.min_element_wise(pc.binary_length(column.dictionary), longest)
    return int(pc.sum(gather.take(lengths, column.indices.fill_null(0)) if len(lengths) else lengths).as_py() or 0)
