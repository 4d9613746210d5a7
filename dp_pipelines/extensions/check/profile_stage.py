"""Counts what a stage's bounds keep and how large its groups are, in one pass: rows by unit, groups by partition. NOT private.

In: tables of events. Out: notes (`notes`). Holds: two shuffles of data, as a release has; through both, notes travel
under a key of their own; nothing but these leaves. Not covered: privacy; nothing here is a release.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from dp_pipelines.extensions.check import bound_shares, group_sizes, notes
from dp_pipelines.extensions.check.bound_shares import ProfiledStage
from dp_pipelines.extensions.check.notes import FACT, Notes
from dp_pipelines.kernels import shard
from dp_pipelines.kernels.layout import LARGEST_BATCH
from dp_pipelines.release import staging
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import AheadStep, Sharded, Step

OF_NOTES = -1
"""The key under which notes travel: no shard and no place has it."""


def stage_profiled(tables: Flow, of: ProfiledStage) -> Flow:
    """Count what the bounds of a stage keep. NOT private.

    Args:
        tables: of events.
        of: what is counted.

    Returns:
        notes, with the key 0.
    """
    return (
        tables.each("ToShards", _EventsToShards(of))
        .by_key("ByShard")
        .each("ToPlaces", _GroupsToPlaces(of))
        .by_key("ByPlace")
        .each("Sizes", _CountSizes(of))
    )


def notes_written(parts: Sequence[Flow], path: str) -> Flow:
    """Put notes together and write them.

    Args:
        parts: of notes, with the key 0; at least one.
        path: of a Parquet file, in a private folder.
    """
    first, *others = parts
    nothing = first.known("Nothing", [(0, notes.nothing())], Sharded)  # without files there would be nothing to gather
    return first.with_others("AllNotes", *others, nothing).by_key("Gather").each("Write", _WriteNotes(path))


class OnlyNotes(Step):
    """Of rows and notes, the notes, with the key 0."""

    gives = Sharded

    def process(self, element: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The same table, if it holds notes."""
        if notes.is_notes(element):
            yield 0, element


class OnlyRows(Step):
    """Of rows and notes, the rows."""

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same table, if it holds rows."""
        if not notes.is_notes(element):
            yield element


class _EventsToShards(AheadStep):
    """Cut a table of events by the shard of its units; nothing is bounded."""

    def __init__(self, of: ProfiledStage) -> None:
        self._of = of

    def compute(self, element: pa.Table) -> list[Sharded]:
        of, counted = self._of, Notes("stage", self._of.name)
        cut: list[Sharded] = []
        for begin in range(0, element.num_rows, LARGEST_BATCH):
            rows = bound_shares.wire(element.slice(begin, LARGEST_BATCH), of, counted)
            cut += shard.slices(rows, of.layout.unit_names, of.salt, of.num_shards)
        return [*cut, (OF_NOTES, counted.table())]


class _GroupsToPlaces(AheadStep):
    """The groups of a shard's units, cut by their place."""

    def __init__(self, of: ProfiledStage) -> None:
        self._of = of

    def load(self, element: tuple[int, Iterable[pa.Table]]) -> tuple[int, list[pa.Table]]:
        return element[0], list(element[1])

    def compute(self, element: tuple[int, list[pa.Table]]) -> list[Sharded]:
        number, tables = element
        if number == OF_NOTES:
            return [(OF_NOTES, notes.merged(tables))]
        counted, cut = Notes("stage", self._of.name), list[Sharded]()
        for level, groups in bound_shares.of_units(shard.joined(tables), self._of, counted):
            cut += bound_shares.cut_groups(groups, level, self._of)
        return [*cut, (OF_NOTES, counted.table())]


class _CountSizes(Step):
    """The sizes of the groups of a place."""

    gives = Sharded

    def __init__(self, of: ProfiledStage) -> None:
        self._of = of

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        number, tables = element
        if number == OF_NOTES:
            yield 0, notes.merged(tables)
            return
        counted = Notes("stage", self._of.name)
        group_sizes.note_sizes(list(tables), number // self._of.num_shards, self._of, counted)
        yield 0, counted.table()


class _WriteNotes(Step):
    """All notes as one file."""

    gives = str

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        staging.write_release(notes.merged(element[1]), self._path, (FACT,))
        yield self._path
