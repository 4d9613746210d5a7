"""A DoFn that gets a separate bundle for each element, on runners that would otherwise use one bundle per worker.

In: elements with keys that occur once. Out: what the DoFn makes of each. Holds: nothing is kept between elements. Why: Beam's
runner for Flink (batch, 1.19) takes what a bundle sends to a shuffle only when the bundle has ended; until then it waits in the
heap of the task manager, in at most a hundred messages of ten megabytes: one bundle for a whole input would need that much
memory, and beyond a gigabyte it would wait for ever. Steps with state are given a bundle for each key, so this one asks for a
state, which it never uses.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import BagStateSpec

UNUSED = beam.DoFn.StateParam(BagStateSpec("unused", VarIntCoder()))


class OwnBundleDoFn(beam.DoFn):
    """Base of such DoFns; subclasses define `in_a_bundle`. Elements are pairs of a key and something."""

    def in_a_bundle(self, element: Any) -> Iterator[Any]:
        """What one element becomes."""
        raise NotImplementedError

    def process(self, element: Any, unused: Any = UNUSED) -> Iterator[Any]:
        """As `in_a_bundle`."""
        yield from self.in_a_bundle(element)
