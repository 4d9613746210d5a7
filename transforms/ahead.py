"""A DoFn whose pure work runs in two threads, a few elements ahead of the runner.

In: elements. Out: what `compute` gives for each, in order. Holds: `compute` is a pure function of one element and touches
neither Beam nor the DoFn's state, so threads can change no result; its kernels are calls into NumPy and Arrow, which let other
threads run. Errors surface where the result would have. May import Beam.
"""

import collections
import concurrent.futures
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

THREADS = min(2, os.cpu_count() or 1)


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
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS)

    def start_bundle(self) -> None:
        """Nothing is under way."""
        self._pending: collections.deque[concurrent.futures.Future[list[Any]]] = collections.deque()

    def process(self, element: Any) -> Iterator[Any]:
        """Begin with this element, and hand out what an earlier one has become."""
        self._pending.append(self._pool.submit(self.compute, self.load(element)))
        if len(self._pending) > THREADS:
            yield from self._pending.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Hand out the rest."""
        window = GlobalWindow()
        while self._pending:
            for result in self._pending.popleft().result():
                yield WindowedValue(result, window.max_timestamp(), [window])

    def teardown(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
