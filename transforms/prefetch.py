"""A DoFn whose pure work runs in two threads, a few elements ahead of the runner.

In: elements. Out: what `compute` gives for each, in order. Holds: `compute` is a pure function of one element and touches
neither Beam nor the DoFn's state, so threads can change no result; its kernels are calls into NumPy and Arrow, which let other
threads run. Errors surface where the result would have.
"""

import collections
import concurrent.futures
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.long_text import STAND_IN

THREADS = min(2, os.cpu_count() or 1)

LARGEST_KEPT = 2**25 - 2**16
"""Bytes of an array just below the largest from which the C library on Linux learns what to keep (32 MiB)."""


def keep_freed_memory() -> None:
    """Have the process keep the memory of freed arrays for the next ones: a tenth of a job's processor time.

    By default glibc hands the memory of each array of some megabytes back, and the kernel clears it again for the next
    array of the same size. It raises its limit to the largest array that was freed so far, up to 32 MiB (mallopt(3),
    M_MMAP_THRESHOLD), so one such array is made and freed; none of its pages is touched. Elsewhere it does nothing.
    """
    np.empty(LARGEST_KEPT, np.uint8)


def _at_the_end(result: Any) -> WindowedValue:
    """What `finish_bundle` hands out."""
    window = GlobalWindow()
    return WindowedValue(result, window.max_timestamp(), [window])


class AheadDoFn(beam.DoFn):
    """Base of DoFns that compute ahead; subclasses define `compute` and, where elements are lazy, `load`."""

    def compute(self, element: Any) -> list[Any]:
        """What one element becomes; called in another thread."""
        raise NotImplementedError

    def load(self, element: Any) -> Any:
        """The element in memory; called in the runner's own thread, since what Beam hands out may be read lazily."""
        return element

    def setup(self) -> None:
        """Start the threads."""
        keep_freed_memory()
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS)

    def start_bundle(self) -> None:
        """Nothing is under way."""
        self._pending: collections.deque[concurrent.futures.Future[list[Any]]] = collections.deque()

    def process(self, element: Any) -> Iterator[Any]:
        """Begin with this element, and hand out what an earlier one has become."""
        yield from self.begin(self.load(element))

    def begin(self, loaded: Any) -> Iterator[Any]:
        """Begin to compute, and hand out what was begun before, once more is under way than there are threads."""
        self._pending.append(self._pool.submit(self.compute, loaded))
        if len(self._pending) > THREADS:
            yield from self._pending.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Hand out the rest."""
        while self._pending:
            for result in self._pending.popleft().result():
                yield _at_the_end(result)

    def teardown(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class GatheringDoFn(AheadDoFn):
    """The same for tables, of which `compute` gets several at once, as a list.

    Args:
        enough: bytes of tables (`plain_bytes`) that are put together at least; fewer only at the end of a bundle.
    """

    def __init__(self, enough: int) -> None:
        super().__init__()
        self._enough = enough

    def start_bundle(self) -> None:
        """Nothing is gathered."""
        super().start_bundle()
        self._gathered: list[pa.Table] = []
        self._bytes = 0

    def process(self, element: Any) -> Iterator[Any]:
        """Gather, and begin where it is enough."""
        self._gathered.append(element)
        self._bytes += plain_bytes(element)
        if self._bytes >= self._enough:
            yield from self._gathered_begin()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Begin with the rest, and hand it all out."""
        if self._gathered:
            for result in self._gathered_begin():
                yield _at_the_end(result)
        yield from super().finish_bundle()

    def _gathered_begin(self) -> Iterator[Any]:
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        yield from self.begin(gathered)


def plain_bytes(table: pa.Table) -> int:
    """What a table takes once the texts of its dictionaries stand in each row, as those of a privacy unit will.

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
            size += sum(_decoded_bytes(chunk) for chunk in column.chunks)
    return size


def _decoded_bytes(column: pa.DictionaryArray) -> int:
    """Bytes of the values of all rows, where a long text is its digest (`kernels.columns.long_text`)."""
    lengths = pc.min_element_wise(pc.binary_length(column.dictionary), STAND_IN)
    return int(pc.sum(gather.take(lengths, column.indices.fill_null(0)) if len(lengths) else lengths).as_py() or 0)
