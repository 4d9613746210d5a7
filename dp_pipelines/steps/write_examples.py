"""From rows to bounded examples on disk: the inputs of training, by the same bounding as the aggregates.

In: Arrow tables of rows. Out: one private file for each shard of units (`dp_pipelines.training.examples.bounded_examples`), and
their paths. Holds: which rows of a unit are kept, and what its examples are, depends on that unit's rows alone: removing a unit
leaves all other units' examples unchanged, bit for bit; order, batches, files and retries change nothing. Rows of a unit beyond
`max_rows_per_unit` are dropped before anything looks at several rows. Not covered: cleanup of the files, which the driver does.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from dp_pipelines.kernels import sizes
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import GatheringStep, Step, plain_bytes
from dp_pipelines.steps.whole_units import (
    LONGEST,
    ToUnitShards,
    UnitColumns,
    bounded,
    canonical,
    whole_units,
    with_digests,
)
from dp_pipelines.training.examples import bounded_examples
from dp_pipelines.training.examples.split import as_decided, carried, with_answers

_OF_EXAMPLES = 0x6578616D706C6573
"""Makes the hash that chooses examples independent of the one that chooses rows."""


def examples_written(
    tables: Flow,
    task: TrainModel,
    *,
    folder: str,
    max_rows_per_unit: int,
    reads: Sequence[str],
    unit_columns: UnitColumns | None,
    num_shards: int,
    salt: int,
    key: bytes | None,
) -> Flow:
    """Write the examples of a train stage into a private folder: one shuffle.

    Args:
        tables: of rows; those where a column of the unit is null are dropped.
        task, folder, max_rows_per_unit, reads, unit_columns, num_shards, salt, key: see `transforms.examples.BoundedExamples`.

    Returns:
        the paths.
    """
    cut = SpillToShards(
        tuple(dict.fromkeys((*task.unit_columns, *reads))),
        task.unit_columns,
        max_rows_per_unit,
        num_shards,
        salt,
        folder=folder,
        key=key,
        held_out=task.held_out,
    )
    write = WriteShard(task, max_rows_per_unit, unit_columns, folder, salt)
    return tables.each("ToShards", cut).by_key("ByShard").each("Write", write)


class SpillToShards(ToUnitShards, GatheringStep):
    """Like `ToUnitShards`, but rows go through private files: a shuffle in memory would hold all of them at once."""

    def __init__(
        self,
        reads: tuple[str, ...],
        unit: tuple[str, ...],
        most: int,
        shards: int,
        salt: int,
        *,
        folder: str,
        key: bytes | None,
        held_out: float,
    ) -> None:
        super().__init__(reads, unit, most, shards, salt)
        self.enough = sizes.gathered_columns_bytes(shards, len(reads))
        self._folder, self._key, self._held_out = folder, key, held_out

    def bytes_of(self, table: pa.Table) -> int:
        """See `GatheringStep`: texts that are no unit's stay as they are up to `LONGEST`."""
        return plain_bytes(table, LONGEST)

    def rows(self, table: pa.Table) -> pa.Table:
        """Like the base class, after deciding who is held out from the unit's own text."""
        if self._key is None:
            return canonical(table, self._reads, self._unit)
        table = with_answers(table.select(self._reads), self._unit, key=self._key, held_out=self._held_out)
        return canonical(with_digests(table, self._unit), (*self._reads, *carried(table)), self._unit)

    def compute(self, element: list[pa.Table]) -> list[tuple[int, pa.Table]]:
        """The position of each part of some tables, with its shard."""
        alike: dict[pa.Schema, list[pa.Table]] = {}
        for table in element:
            alike.setdefault(table.schema, []).append(table)
        cut = [
            part for tables in alike.values() for part in super(SpillToShards, self).compute(pa.concat_tables(tables))
        ]
        places = bounded_examples.spill([part for _, part in cut], self._folder)
        return [(shard, place) for (shard, _), place in zip(cut, places, strict=True)]


class WriteShard(Step):
    """The examples of a shard's units, in a file."""

    gives = str

    def __init__(self, task: TrainModel, most: int, unit_columns: UnitColumns | None, folder: str, salt: int) -> None:
        self._task, self._most, self._unit_columns, self._folder, self._salt = task, most, unit_columns, folder, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        """Write, and give the path."""
        number, places = element
        tables = (bounded_examples.spilled(place) for place in places)
        yield bounded_examples.write(
            examples_of(tables, self._task, self._most, self._unit_columns, self._salt), self._folder, number
        )


def examples_of(
    tables: Iterable[pa.Table], task: TrainModel, max_rows_per_unit: int, unit_columns: UnitColumns | None, salt: int
) -> pa.Table:
    """The examples of some whole units.

    Args:
        tables: at least one; canonical rows, all of these units.
        task, max_rows_per_unit, unit_columns, salt: see `BoundedExamples`.
    """
    unit = task.unit_columns
    ordered = unit_columns is not None and not getattr(unit_columns, "any_order", False)
    found = whole_units(tables, unit, max_rows_per_unit, salt, ordered=ordered)
    columns = [*task.columns, *carried(found)]
    if unit_columns is not None:
        found = unit_columns.apply(found)
    examples = bounded(canonical(found, columns, unit), unit, task.max_examples_per_unit, salt ^ _OF_EXAMPLES)
    return as_decided(examples)
